//! Makes components that run Python, with componentize-py: it links CPython's libraries with the code of a world, starts the interpreter,
//! imports the program and keeps what memory holds then.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::{Cache, Key};
use crate::{checkout, component, process, wheels};

/// The program that runs scripts, in `testdata`. The world that it is for stands beside it, as that of others does.
pub(crate) const PROGRAM: &str = "python/component/app.py";

/// Where the wheel has its command's code.
const PACKAGE: &str = "componentize_py";

/// What runs that: moving an environment breaks its scripts.
const COMMAND: &str = "import sys, componentize_py.componentize_py; sys.exit(componentize_py.componentize_py.script())";

/// The line that pins this release.
pub(crate) fn pin(release: &str) -> Result<String> {
    let file = checkout::testdata().join("requirements-componentize.txt");
    let pins = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let start = format!("componentize-py=={release} ");
    let line = pins.lines().find(|line| line.starts_with(&start));
    line.map(str::to_owned).with_context(|| format!("{} does not pin componentize-py {release}", file.display()))
}

/// Makes the component of a program in `testdata` with this release.
pub(crate) fn build(release: &str, program: &str, cache: &Cache, output: &Path) -> Result<()> {
    let pin = pin(release)?;
    let key = Key::of([pin.as_bytes()]);
    let venv = cache.toolchain(&format!("componentize-py-{release}-{}", key.short()));
    if !venv.exists() {
        let workplace = cache.workplace("componentize-py")?;
        let requirements = workplace.path.join("requirements.txt");
        fs::write(&requirements, &pin)?;
        wheels::install(cache, &format!("componentize-py {release}"), &requirements, &venv, &[PACKAGE])?;
    }
    let world = component::world(program);
    // It leaves what it generates where it runs.
    let workplace = cache.workplace("component")?;
    fs::copy(checkout::testdata().join(program), workplace.path.join("app.py"))?;
    let mut componentize = Command::new(venv.join("bin/python"));
    componentize.current_dir(&workplace.path).args(["-c", COMMAND]);
    // The argument that it takes for its own name.
    componentize.arg("-d").arg(world).args(["componentize", "app", "-o"]).arg(output);
    process::output(&mut componentize, "remove the toolchains folder of the cache and try again").map(drop)
}
