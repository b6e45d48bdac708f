//! `cargo xtask test-fixtures`: builds the test guests and puts them into `target/fixtures`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};

use crate::cache::{self, Cache, Key};
use crate::component;
use crate::cpython::{self, Release};
use crate::links::symlink;
use crate::progress::{self, Step};
use crate::recipes::{GuestSet, Language, MadeInto, RECIPE_VERSION, RECIPES, Recipe};
use crate::rust_target::RustTarget;
use crate::wheels::{Pins, Wheels};
use crate::{assemblyscript, checkout, javascript_component, process, python_component, quickjs};

/// Builds the guests named, or all if none is, as far as the cache does not have them.
pub(crate) fn build(names: &[String]) -> Result<()> {
    build_recipes(&choose(names)?)
}

/// Builds the guests of these sets, as far as the cache does not have them.
pub(crate) fn build_sets(sets: &[GuestSet]) -> Result<()> {
    let recipes: Vec<&Recipe> = RECIPES.iter().filter(|recipe| sets.contains(&recipe.set())).collect();
    if recipes.is_empty() { Ok(()) } else { build_recipes(&recipes) }
}

/// Builds the guests of the main tests, or all if the user chooses other tests.
pub(crate) fn build_for(tests: &[&str]) -> Result<()> {
    if tests.is_empty() { build_sets(&[GuestSet::Main]) } else { build(&[]) }
}

fn build_recipes(recipes: &[&Recipe]) -> Result<()> {
    let step = Step::quietly("fixtures");
    let cache = Cache::open()?;
    let pins = Pins::read()?;
    let needs_rust = recipes.iter().any(|recipe| recipe.language.is_rust());
    let rust = if needs_rust { RustTarget::find(&cache, &pins)? } else { None };

    let mut missing = Vec::new();
    for recipe in recipes {
        match finished(recipe, &cache, &pins, rust.as_ref())? {
            Some(path) => show(recipe, &path)?,
            None => missing.push(*recipe),
        }
    }
    let built = missing.len();
    if built > 0 {
        let _lock = cache.lock()?;
        build_missing(&missing, &cache, &pins)?;
    }
    progress::say(format_args!("{} fixtures in target/fixtures, {built} of them new", recipes.len()));
    if built > 0 {
        step.done();
    }
    Ok(())
}

fn choose(names: &[String]) -> Result<Vec<&'static Recipe>> {
    if names.is_empty() {
        return Ok(RECIPES.iter().collect());
    }
    names
        .iter()
        .map(|name| {
            RECIPES.iter().find(|recipe| recipe.name == name).with_context(|| {
                let known: Vec<_> = RECIPES.iter().map(|recipe| recipe.name).collect();
                format!("there is no fixture `{name}`; there are {}", known.join(", "))
            })
        })
        .collect()
}

/// Builds by toolchain, side by side, and reports every one that failed.
fn build_missing(missing: &[&Recipe], cache: &Cache, pins: &Pins) -> Result<()> {
    let is_rust = |recipe: &Recipe| recipe.language.is_rust();
    let is_go = |recipe: &Recipe| recipe.language.go().is_some();
    let wheels = &Wheels::get(cache, pins)?;
    let build_some = |wanted: &dyn Fn(&Recipe) -> bool| -> Vec<anyhow::Error> {
        let mut rust = None;
        let mut errors = Vec::new();
        for recipe in missing.iter().filter(|recipe| wanted(recipe)) {
            if is_rust(recipe) && rust.is_none() {
                match RustTarget::get(cache, pins) {
                    Ok(found) => rust = Some(found),
                    Err(error) => return vec![error],
                }
            }
            let toolchains = Toolchains { cache, pins, wheels, rust: rust.as_ref() };
            if let Err(error) = build_one(recipe, &toolchains) {
                errors.push(error.context(format!("cannot build {}", recipe.name)));
            }
        }
        errors
    };
    let build_some = &build_some;
    let errors: Vec<anyhow::Error> = thread::scope(|scope| {
        let groups = [
            scope.spawn(move || build_some(&is_rust)),
            scope.spawn(move || build_some(&|recipe| !is_rust(recipe) && !is_go(recipe))),
            scope.spawn(move || build_some(&is_go)),
        ];
        groups
            .into_iter()
            .flat_map(|group| group.join().unwrap_or_else(|_| vec![anyhow!("a building thread panicked")]))
            .collect()
    });
    for error in &errors {
        progress::say(format_args!("error: {error:#}"));
    }
    if !errors.is_empty() {
        bail!("not every fixture could be built, see above");
    }
    Ok(())
}

struct Toolchains<'a> {
    cache: &'a Cache,
    pins: &'a Pins,
    wheels: &'a Wheels,
    rust: Option<&'a RustTarget>,
}

fn build_one(recipe: &Recipe, toolchains: &Toolchains<'_>) -> Result<()> {
    let Toolchains { cache, pins, wheels, rust } = *toolchains;
    // Another process may have built it while we waited for the lock.
    if let Some(path) = finished(recipe, cache, pins, rust)? {
        return show(recipe, &path);
    }
    let step = Step::quietly(recipe.name);
    let workplace = cache.workplace(recipe.name)?;
    let output = workplace.path.join(recipe.file_name());
    let testdata = checkout::testdata();
    let source = testdata.join(recipe.source);
    match recipe.language {
        Language::C | Language::Cpp => {
            let driver = if recipe.language == Language::C { "cc" } else { "c++" };
            let mut zig = wheels.zig(cache)?;
            zig.args([driver, "-target", "wasm32-wasi"]);
            zig.args(recipe.flags).args(source_path_flags(&testdata, wheels));
            run(zig.arg("-o").arg(&output).arg(&source))?;
        }
        Language::Go(_) | Language::GoForJs(_) => {
            let (release, system) = recipe.language.go().context("it is Go")?;
            let folder = source.parent().context("a Go source is in a folder of its own")?;
            let mut go = wheels.go(cache, pins, release)?;
            go.current_dir(folder).env("GOOS", system).env("GOARCH", "wasm");
            run(go.arg("build").args(recipe.flags).arg("-o").arg(&output).arg("."))?;
        }
        Language::Rust | Language::RustLibrary(_) => {
            let rust = rust.context("the Rust target was not set up")?;
            let mut rustc = rust.compiler(cache, wheels)?;
            rustc.current_dir(&testdata).args(["--edition", "2024"]).args(recipe.flags);
            rustc.arg(format!("--remap-path-prefix={}=/testdata", testdata.display()));
            if let Language::RustLibrary(function) = recipe.language {
                let archive = workplace.path.join("library.a");
                run(rustc.args(["--crate-type", "staticlib", "-o"]).arg(&archive).arg(&source))?;
                // What rustc itself tells a linker of a module without a main function is not known to every linker here.
                let mut zig = wheels.zig(cache)?;
                zig.args(["cc", "-target", "wasm32-wasi", "-mexec-model=reactor", "-g", "-O2"]);
                run(zig.arg(format!("-Wl,--export={function}")).arg("-o").arg(&output).arg(&archive))?;
            } else {
                run(rustc.arg("-o").arg(&output).arg(&source))?;
            }
        }
        Language::AssemblyScript => assemblyscript::build(recipe.source, recipe.flags, cache, &output)?,
        Language::JavaScriptComponent => javascript_component::build(recipe.source, recipe.flags, cache, &output)?,
        Language::Python(minor) => cpython::build(&Release::find(minor)?, cache, wheels, &output)?,
        Language::PythonComponent(release) => python_component::build(release, recipe.source, cache, &output)?,
        Language::QuickJs => quickjs::build(recipe.flags, cache, wheels, &output)?,
        Language::Wat => fs::copy(&source, &output).map(drop)?,
    }
    match recipe.made_into {
        MadeInto::Module => {}
        MadeInto::Command => component::make(&output)?,
        MadeInto::Handler => component::make_handler(&output, &component::world(recipe.source))?,
        MadeInto::CalledByPython { release, program } => {
            component::make_handler(&output, &component::world(recipe.source))?;
            let caller = workplace.path.join("caller.wasm");
            python_component::build(release, program, cache, &caller)?;
            component::put_into(&caller, &output)?;
        }
    }
    let path = place(recipe, cache, pins, rust)?;
    cache::publish(&output, &path)?;
    show(recipe, &path)?;
    step.done();
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    process::output(command, "remove the toolchains folder of the cache and try again").map(drop)
}

/// Keeps this machine's folders out of the debug info of our own sources.
pub(crate) fn source_path_flags(testdata: &Path, wheels: &Wheels) -> [String; 3] {
    [
        "-fdebug-compilation-dir=/testdata".to_owned(),
        format!("-ffile-prefix-map={}=/testdata", testdata.display()),
        format!("-ffile-prefix-map={}=/zig/lib", wheels.zig_library().display()),
    ]
}

/// The built guest in the cache, if it is there.
fn finished(recipe: &Recipe, cache: &Cache, pins: &Pins, rust: Option<&RustTarget>) -> Result<Option<PathBuf>> {
    if recipe.language.is_rust() && rust.is_none() {
        return Ok(None);
    }
    let path = place(recipe, cache, pins, rust)?;
    Ok(path.exists().then_some(path))
}

/// Where in the cache the built guest belongs.
fn place(recipe: &Recipe, cache: &Cache, pins: &Pins, rust: Option<&RustTarget>) -> Result<PathBuf> {
    let toolchain = match recipe.language {
        Language::C | Language::Cpp | Language::QuickJs => pins.line("ziglang")?.to_owned(),
        Language::Go(release) | Language::GoForJs(release) => pins.go(release)?.to_owned(),
        Language::AssemblyScript => assemblyscript::pins()?,
        Language::JavaScriptComponent => javascript_component::pins()?,
        Language::Python(minor) => format!("{} {}", Release::find(minor)?.identity(), pins.line("ziglang")?),
        Language::PythonComponent(_) | Language::Wat => String::new(),
        Language::Rust => rust.context("the Rust target was not set up")?.identity().to_owned(),
        Language::RustLibrary(_) => {
            format!("{} {}", rust.context("the Rust target was not set up")?.identity(), pins.line("ziglang")?)
        }
    };
    let python = recipe.python_component().map(|(release, _)| python_component::pin(release)).transpose()?;
    let toolchain = toolchain + python.as_deref().unwrap_or_default();
    let sources = read_sources(recipe)?;
    Ok(cache.fixture(&key(recipe, &toolchain, &sources), &recipe.file_name()))
}

fn key(recipe: &Recipe, toolchain: &str, sources: &[Vec<u8>]) -> Key {
    let language = format!("{:?}", recipe.language);
    let fixed = [RECIPE_VERSION, &language, toolchain, recipe.source];
    let encoder = (recipe.made_into != MadeInto::Module).then_some(component::ENCODER);
    // The count keeps a flag from passing for a source.
    let flag_count = recipe.flags.len().to_string();
    Key::of(
        fixed
            .into_iter()
            .chain([flag_count.as_str()])
            .chain(recipe.flags.iter().copied())
            .chain(encoder)
            .map(str::as_bytes)
            .chain(sources.iter().map(Vec::as_slice)),
    )
}

/// The contents of all files the guest is built from.
fn read_sources(recipe: &Recipe) -> Result<Vec<Vec<u8>>> {
    let source = checkout::testdata().join(recipe.source);
    let mut paths = vec![source.clone()];
    if recipe.language.go().is_some() {
        paths = go_package(source.parent().context("a Go source is in a folder of its own")?)?;
    }
    let of_python = recipe.python_component();
    let is_of_world = of_python.is_some() || recipe.language == Language::JavaScriptComponent;
    if is_of_world || recipe.made_into == MadeInto::Handler {
        paths.extend(component::world_files(recipe.source)?);
    }
    if let Some((_, program)) = of_python.filter(|(_, program)| *program != recipe.source) {
        paths.push(checkout::testdata().join(program));
        paths.extend(component::world_files(program)?);
    }
    paths.iter().map(|path| fs::read(path).with_context(|| format!("cannot read {}", path.display()))).collect()
}

/// The files of a Go package and its module, in a fixed order.
fn go_package(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "go" || extension == "mod") {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// Lets tests find the guest in `target/fixtures`.
fn show(recipe: &Recipe, built: &Path) -> Result<()> {
    // Not CARGO_TARGET_DIR: tests look in the checkout, wherever cargo puts its own files.
    let folder = checkout::root().join("target/fixtures");
    for (name, target) in recipe.shown(built) {
        let link = folder.join(&name);
        if fs::read_link(&link).is_ok_and(|found| found == target) {
            continue;
        }
        fs::create_dir_all(&folder)?;
        let unfinished = folder.join(format!(".{name}-{}", std::process::id()));
        let _ = fs::remove_file(&unfinished);
        symlink(&target, &unfinished)
            .and_then(|()| fs::rename(&unfinished, &link))
            .with_context(|| format!("cannot write {}", link.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECIPE: Recipe = Recipe {
        name: "x",
        language: Language::C,
        source: "c/x.c",
        flags: &["-g", "-O2"],
        made_into: MadeInto::Module,
    };

    #[test]
    fn key_covers_toolchain_sources_and_flags() {
        let source = [b"int main;".to_vec()];
        let original = key(&RECIPE, "zig 1", &source);
        assert_eq!(original, key(&RECIPE, "zig 1", &source));
        assert_ne!(original, key(&RECIPE, "zig 2", &source));
        assert_ne!(original, key(&RECIPE, "zig 1", &[b"int Main;".to_vec()]));
        assert_ne!(original, key(&Recipe { flags: &["-g"], ..RECIPE }, "zig 1", &source));
        assert_ne!(original, key(&Recipe { flags: &["-O2", "-g"], ..RECIPE }, "zig 1", &source));
        assert_ne!(original, key(&Recipe { language: Language::Cpp, ..RECIPE }, "zig 1", &source));
    }

    #[test]
    fn key_does_not_take_a_flag_for_a_source() {
        let one_flag = Recipe { flags: &["-g"], ..RECIPE };
        let as_source = [b"-O2".to_vec(), b"int main;".to_vec()];
        assert_ne!(key(&RECIPE, "zig", &as_source[1..]), key(&one_flag, "zig", &as_source));
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let error = choose(&["c-nothing".into()]).unwrap_err().to_string();
        assert!(error.contains("c-nothing") && error.contains("c-shares"), "{error}");
    }
}
