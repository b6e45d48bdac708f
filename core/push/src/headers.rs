//! Headers that requests have besides those of their protocol: credentials and tenants.

use http::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;
use std::path::Path;

/// Headers that are the protocol's own. Those that the user gives are left out.
const RESERVED: [&str; 9] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "grpc-encoding",
    "host",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Headers of each request. Nothing shows their values.
#[derive(Clone, Default)]
pub(crate) struct Headers(HeaderMap);

impl Headers {
    /// Gives requests this header, in the place of another one of that name.
    ///
    /// # Errors
    /// If there can be no such header.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), http::Error> {
        let name = HeaderName::try_from(name)?;
        if RESERVED.contains(&name.as_str()) {
            return Ok(());
        }
        let mut value = HeaderValue::try_from(value)?;
        value.set_sensitive(true);
        self.0.insert(name, value);
        Ok(())
    }

    /// Has requests say who sends them.
    pub(crate) fn set_basic(&mut self, user: &str, password: &str) {
        let credentials = base64_simd::STANDARD.encode_to_string(format!("{user}:{password}"));
        // Base64 has only letters that headers have.
        let _ = self.set("authorization", &format!("Basic {credentials}"));
    }

    /// Adds the headers of a file, each on a line: `Name: value`. Lines that are empty or begin with `#` are none.
    ///
    /// # Errors
    /// Which line is wrong, without what stands there.
    pub(crate) fn read(&mut self, path: &Path) -> Result<(), String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || format!("{}:{number}: expected `Name: value`", path.display());
            let (name, value) = line.split_once(':').ok_or_else(wrong)?;
            self.set(name.trim(), value.trim()).map_err(|_| wrong())?;
        }
        Ok(())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.0.iter()
    }

    #[cfg(test)]
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.0.get(name)?.to_str().ok().map(str::to_owned)
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_one_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("headers");
        std::fs::write(&path, "# for the server\nAuthorization: Bearer x:y\n\nX-Scope-OrgID: a\n").unwrap();
        let mut headers = Headers::default();
        headers.read(&path).unwrap();
        assert_eq!(headers.get("authorization").as_deref(), Some("Bearer x:y"));
        assert_eq!(headers.get("x-scope-orgid").as_deref(), Some("a"));
        std::fs::write(&path, "a: b\nsecret\n").unwrap();
        let error = headers.read(&path).unwrap_err();
        assert!(error.contains(":2: ") && !error.contains("secret"), "{error}");
    }
}
