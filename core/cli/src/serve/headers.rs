//! `--header`: headers that requests are given, whatever their clients say.

use crate::failure::{FAILED, Failure};
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

/// Headers of all requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Headers(Vec<(HeaderName, HeaderValue)>);

impl Headers {
    /// Reads them: each is `NAME: VALUE`, or `@FILE` with one a line.
    ///
    /// # Errors
    /// Which one is none, or which file cannot be read.
    pub(super) fn read(options: &[String]) -> Result<Self, Failure> {
        let failed = |message: String| Failure::new(FAILED, format!("--header: {message}"));
        let mut headers = Vec::new();
        for option in options {
            let Some(path) = option.strip_prefix('@') else {
                headers.push(header(option).map_err(failed)?);
                continue;
            };
            let lines =
                std::fs::read_to_string(path).map_err(|error| failed(format!("cannot read {path}: {error}")))?;
            for line in lines.lines().filter(|line| !line.trim().is_empty()) {
                headers.push(header(line).map_err(|message| failed(format!("{path}: {message}")))?);
            }
        }
        Ok(Self(headers))
    }

    /// Puts them in the place of those of the same names.
    pub(super) fn apply(&self, headers: &mut HeaderMap) {
        for (name, _) in &self.0 {
            headers.remove(name);
        }
        for (name, value) in &self.0 {
            headers.append(name, value.clone());
        }
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or_else(|| format!("expected NAME: VALUE, found `{text}`"))?;
    let bad = |what: &str| format!("`{text}` has no {what} of a header");
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| bad("name"))?;
    let value = HeaderValue::from_str(value.trim_start()).map_err(|_| bad("value"))?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_take_the_place_of_a_clients() {
        let options = ["x-a: 1".to_owned(), "X-A:2".to_owned(), "x-b: a: b".to_owned()];
        let headers = Headers::read(&options).unwrap_or_else(|failure| panic!("{}", failure.message));
        let mut given = HeaderMap::new();
        given.insert("x-a", HeaderValue::from_static("a client's"));
        given.insert("x-c", HeaderValue::from_static("another"));
        headers.apply(&mut given);
        let all = |name: &str| given.get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!((all("x-a"), all("x-b"), all("x-c")), (vec!["1", "2"], vec!["a: b"], vec!["another"]));
    }

    #[test]
    fn what_is_no_header_is_refused() {
        for bad in ["", "x", ": y", "a b: c", "x: \u{1}", "@/there/is/none"] {
            assert!(Headers::read(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
