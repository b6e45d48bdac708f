//! Servers that run while the task pushes to them.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process;

/// Most of this is for Parca, which opens its storage first.
const TO_START: Duration = Duration::from_secs(60);
const TO_END: Duration = Duration::from_secs(30);

/// Addresses on loopback that nothing listens at.
pub(super) fn free_addresses<const N: usize>() -> Result<[SocketAddr; N]> {
    let listeners = [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let addresses: Vec<_> = listeners.into_iter().map(|listener| listener?.local_addr()).collect::<Result<_, _>>()?;
    addresses.try_into().ok().context("as many addresses as listeners")
}

/// A server that ends with its guard.
pub(super) struct Server(Child);

impl Server {
    pub(super) fn start(
        name: &str,
        program: &Path,
        options: &[&str],
        folder: &Path,
        addresses: &[SocketAddr],
    ) -> Result<Self> {
        let mut command = Command::new(program);
        let log = File::create(folder.join(name).with_extension("log"))?;
        command.args(options).current_dir(folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut server = Self(command.spawn().with_context(|| format!("cannot start {name}"))?);
        let started = Instant::now();
        while !addresses.iter().all(|address| TcpStream::connect(address).is_ok()) {
            if server.0.try_wait()?.is_some() || started.elapsed() > TO_START {
                bail!("{name} does not listen; its last words:\n{}", last_lines(folder, name));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }

    /// Ends it as a service manager does, so that it writes what it has not written yet.
    pub(super) fn end(mut self) -> Result<()> {
        process::output(Command::new("kill").arg(self.0.id().to_string()), "install kill")?;
        let began = Instant::now();
        while self.0.try_wait()?.is_none() {
            if began.elapsed() > TO_END {
                bail!("a server does not end");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn last_lines(folder: &Path, name: &str) -> String {
    let log = fs::read(folder.join(name).with_extension("log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].iter().map(|line| format!("{line}\n")).collect()
}
