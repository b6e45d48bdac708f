//! Opens a page in the user's browser.
//!
//! # Security
//! Arguments of a process are no secret: every user of the machine can read them. So the address of the profile, which nobody else may
//! know, is not among them. It stands in a file for its owner only, whose page leads there, and the file's path is the argument.

use crate::os::folder::Folder;
use crate::os::{self, Readers};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Stdio;
use wlprof_show::html::escaped;

/// The file that leads a browser to the profile. It is removed when this is dropped.
pub(super) struct Redirect {
    folder: Folder,
    name: OsString,
    file: File,
}

impl Redirect {
    /// Writes the page that leads to `url`. `token` is what no other file has in its name.
    ///
    /// # Errors
    /// If there is no folder for such files, or no room.
    pub(super) fn to(url: &str, token: &str) -> io::Result<Self> {
        let folder = Folder::open(&os::folder_of_the_session())?;
        let name = OsString::from(format!("wlprof-{token}.html"));
        let file = folder.create_new(&name, Readers::Owner)?;
        let redirect = Self { folder, name, file };
        (&redirect.file).write_all(page(url).as_bytes())?;
        Ok(redirect)
    }

    /// Opens it in the browser, if there is what opens it: the URL has been printed all the same.
    pub(super) fn open(&self) {
        let mut opener = os::open_browser(&self.path());
        opener.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // The browser that it may start goes on.
        os::keep_interrupts_from(&mut opener);
        let Ok(mut opener) = opener.spawn() else { return };
        // Some openers end when the browser does.
        let _ = std::thread::Builder::new().name("wlprof browser".into()).spawn(move || opener.wait());
    }

    fn path(&self) -> PathBuf {
        self.folder.path_of(OsStr::new(&self.name))
    }
}

impl Drop for Redirect {
    fn drop(&mut self) {
        if self.folder.has(&self.file, &self.name) {
            self.folder.remove(&self.name);
        }
    }
}

fn page(url: &str) -> String {
    let url = escaped(url);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta http-equiv=\"refresh\" content=\"0; url={url}\">\n<title>wlprof</title>\n\
         <p><a href=\"{url}\">Open the profile</a></p>\n</html>\n"
    )
}
