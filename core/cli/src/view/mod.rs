//! `wlprof view`: serves a profile on loopback, for as long as somebody looks at it, and opens the browser.
//!
//! A recording is shown on pages that need nothing of the net; another program's profile by the Firefox Profiler only.
//!
//! # Security
//! The profile lies below a path that nobody can guess: other users of the machine can connect, too. Nor can they read it among the
//! arguments of the browser ([`browser`]). A recording may be a
//! stranger's, so that another process works on it, within limits ([`renderer`]).

mod browser;
mod options;
mod parts;
mod recording_pages;
mod renderer;

pub(super) use options::View;
pub(super) use parts::run_child;
pub(super) use renderer::MAKE_VIEW;

use super::failure::{FAILED, Failure};
use super::http::{ListenAddress, Server, for_firefox_profiler};
use super::interrupt::{Signals, die_of, ignores_interrupts};
use axum::Router;
use axum::body::Bytes;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Html;
use axum::routing::get;
use browser::Redirect;
use flate2::read::GzDecoder;
use renderer::Renderer;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use wlprof_recording::MAGIC;
use wlprof_show::escape;
use wlprof_show::firefox_profiler;
use wlprof_show::pages::Shell;

/// What somebody reads who asks for another path than the one that was printed.
const CONTENTS: &str = "The address that `wlprof view` printed leads to the profile.\n";

const NO_PROFILE: &str = "neither a recording of wlprof's (.wlprof) nor a profile for the Firefox Profiler (.json, .json.gz); \
                          make one with `wlprof -o x.wlprof GUEST`";

/// What files of gzip begin with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// How much of a file is looked at for the beginning of JSON: in one of gzip, names and tables may come before it.
const BEGINNING: u64 = 4096;

/// What is shown.
enum Subject {
    /// A profile that the Firefox Profiler reads.
    Profile {
        json: Vec<u8>,
        /// `json` is compressed.
        is_gzip: bool,
    },
    /// A recording.
    Recording(Renderer),
}

/// Serves the profile until a signal comes, of which the process dies.
pub(super) fn run(view: &View) -> Result<u8, Failure> {
    let path = &view.file;
    let listener = ListenAddress::ANY_LOOPBACK_PORT.bind().map_err(|error| Failure::new(FAILED, error))?;
    let shown =
        match firefox_profile(path).map_err(|error| Failure::new(FAILED, format!("{}: {error}", path.display())))? {
            Some(shown) => shown,
            None => Subject::Recording(Renderer::start(view)?),
        };
    let is_recording = matches!(shown, Subject::Recording(_));
    let mut signals = Signals::that_end().map_err(|error| Failure::new(FAILED, error))?;
    let start = || {
        let [secret, name] = [token()?, token()?];
        let pages = pages(&secret, base(listener.local_addr()?, &secret), path, shown);
        Ok((Server::start(listener, pages, CONTENTS)?, secret, name))
    };
    let (server, secret, name) = start().map_err(|error: io::Error| Failure::new(FAILED, error))?;
    let base = base(server.address(), &secret);
    let firefox = firefox_profiler::url(&format!("{base}/profile.json"));
    let end =
        if ignores_interrupts() { "SIGTERM: Ctrl-C is ignored, as it was when wlprof was started" } else { "Ctrl-C" };
    let (url, other) = match is_recording {
        true => (format!("{base}/"), format!("in the Firefox Profiler: {firefox}")),
        false => (firefox, format!("without the net: {base}/")),
    };
    // Nobody may be reading it.
    let _ = writeln!(io::stdout(), "{url}\n{other}\nuntil {end}");
    // Without it there is the URL.
    let redirect = if view.no_open { None } else { Redirect::to(&url, &name).ok() };
    redirect.iter().for_each(Redirect::open);
    let signal = signals.wait();
    server.stop();
    drop(redirect);
    die_of(signal)
}

/// The URL of what is below `token`.
fn base(address: SocketAddr, token: &str) -> String {
    format!("http://{address}/{token}")
}

/// All pages, below `token`. `base` is the URL of that.
fn pages(token: &str, base: String, path: &Path, shown: Subject) -> Router {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let shell = Shell::new(escape::single_line(&name), base);
    let pages = match shown {
        Subject::Profile { json, is_gzip } => pages_of_profile(&shell, json, is_gzip),
        Subject::Recording(renderer) => recording_pages::router(shell, Arc::new(renderer)),
    };
    Router::new().nest(&format!("/{token}/"), pages)
}

/// A profile as it is, and a page that leads to who shows it.
fn pages_of_profile(shell: &Shell, json: Vec<u8>, is_gzip: bool) -> Router {
    let (page, json) = (shell.of_firefox(), Bytes::from(json));
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if is_gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    let profile = get(async move || (headers.clone(), json.clone()));
    Router::new()
        .route("/", get(async move || Html(page.clone())))
        .route("/profile.json", for_firefox_profiler(profile))
}

/// What nobody guesses, of letters and digits.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The file at `path` if it is JSON, compressed or not, and nothing if it is a recording. Whether JSON is a profile the Firefox
/// Profiler will say.
fn firefox_profile(path: &Path) -> io::Result<Option<Subject>> {
    let mut json = Vec::new();
    let mut file = File::open(path)?;
    (&mut file).take(BEGINNING).read_to_end(&mut json)?;
    let is_gzip = json.starts_with(&GZIP);
    let mut beginning = Vec::new();
    if is_gzip {
        // A file that breaks off or is damaged has said by then what it is, or it is none.
        let _ = GzDecoder::new(&json[..]).take(BEGINNING).read_to_end(&mut beginning);
    } else {
        beginning.clone_from(&json);
    }
    if beginning.trim_ascii_start().first() != Some(&b'{') {
        let is_recording = json.starts_with(&MAGIC);
        return if is_recording { Ok(None) } else { Err(io::Error::other(NO_PROFILE)) };
    }
    file.read_to_end(&mut json)?;
    Ok(Some(Subject::Profile { json, is_gzip }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn is_json(bytes: &[u8]) -> Option<bool> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let shown = firefox_profile(file.path()).unwrap();
        shown.map(|shown| {
            let Subject::Profile { json, is_gzip } = shown else { panic!("it is no recording") };
            assert_eq!(json, bytes);
            is_gzip
        })
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn json_is_known_by_what_it_begins_with() {
        let long = format!("{{\"meta\": [{}]}}", "0,".repeat(1 << 16));
        assert_eq!(is_json(b" \n{}"), Some(false));
        assert_eq!(is_json(long.as_bytes()), Some(false));
        assert_eq!(is_json(&gzip(long.as_bytes())), Some(true));
        assert_eq!(is_json(b"wlprof\r\n\x01\0\0\0"), None);
    }

    #[test]
    fn what_is_neither_json_nor_a_recording_is_refused() {
        for other in [&b""[..], b"wlprof", b"[]", &gzip(b"\x0a\x04\x08"), &gzip(b""), &[0x1f, 0x8b]] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), other).unwrap();
            let error = firefox_profile(file.path()).map(|_| ()).unwrap_err();
            assert_eq!(error.to_string(), NO_PROFILE, "{other:?}");
        }
    }

    #[test]
    fn tokens_are_long_and_differ() {
        let (one, other) = (token().unwrap(), token().unwrap());
        assert!(one.len() == 32 && one.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
        assert_ne!(one, other);
    }
}
