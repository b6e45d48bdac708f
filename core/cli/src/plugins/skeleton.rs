//! `wlprof plugins new`: writes a plugin that compiles and knows nothing yet.

use super::super::failure::{FAILED, Failure};
use super::super::say;
use clap::{Args, ValueEnum};
use std::io::ErrorKind;
use std::path::Path;
use wlprof::languages::BUILT_IN;
use wlprof_loader::why_no_name;
use wlprof_plugin::sources::{CRATE, HEADER};
use wlprof_show::escape;

/// Options of `wlprof plugins new`.
#[derive(Debug, Args)]
pub(crate) struct NewPlugin {
    /// The language that it is to know: what --lang will take
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    /// What the plugin is written in
    #[arg(long, value_enum, default_value_t = PluginLanguage::Rust)]
    pub(super) language: PluginLanguage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PluginLanguage {
    Rust,
    C,
}

/// Writes the folder.
pub(super) fn write(new: &NewPlugin) -> Result<(), Failure> {
    let name = &new.name;
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !starts_well || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
        let message = format!("`{name}` is no name for a plugin: use lower case letters, digits and _, as in `lua54`");
        return Err(Failure::new(FAILED, message));
    }
    if let Some(reason) = why_no_name(name) {
        return Err(Failure::new(FAILED, format!("{reason}; take another name")));
    }
    if BUILT_IN.iter().any(|language| language.name() == name) {
        let message = format!("wlprof has a plugin for {name} built in; take another name");
        return Err(Failure::new(FAILED, message));
    }
    let new = match new.language {
        PluginLanguage::C => c(name),
        PluginLanguage::Rust => rust(name),
    };
    let failed = |path: &Path, error| Failure::new(FAILED, format!("{}: {error}", path.display()));
    let folder = Path::new(name);
    // Not into a folder with something else in it.
    std::fs::create_dir(folder).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::new(FAILED, format!("{name} is there already; take another name")),
        _ => failed(folder, error),
    })?;
    let Skeleton { source, build, library, templates, verbatim } = new;
    let fill_in = |text: &str| {
        let text = text.replace("LANGUAGE", name).replace("LIBRARY", &library);
        text.replace("SOURCE", &source).replace("BUILD", build)
    };
    let readme = ("README.md".to_owned(), include_str!("skeletons/README.md"));
    let filled_in = templates.into_iter().chain([readme]).map(|(path, text)| (path, fill_in(text)));
    for (path, text) in filled_in.chain(verbatim.into_iter().map(|(path, text)| (path, text.to_owned()))) {
        let path = folder.join(path);
        let write = || {
            std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
            std::fs::write(&path, text)
        };
        write().map_err(|error| failed(&path, error))?;
    }
    let next = format!("wrote {name}/: cd {name} && {build} && wlprof plugins check {library}");
    say::line(format_args!("{}", escape::single_line(&next)));
    Ok(())
}

/// A plugin before it has a name.
struct Skeleton {
    source: String,
    build: &'static str,
    library: String,
    /// Paths and texts in which words in capitals stand for what they say.
    templates: Vec<(String, &'static str)>,
    verbatim: Vec<(String, &'static str)>,
}

fn c(name: &str) -> Skeleton {
    let source = format!("{name}.c");
    Skeleton {
        build: "make",
        library: format!("lib{name}.so"),
        templates: vec![
            (source.clone(), include_str!("skeletons/plugin.c")),
            ("Makefile".to_owned(), include_str!("skeletons/Makefile")),
        ],
        verbatim: vec![("wlprof_plugin.h".to_owned(), HEADER)],
        source,
    }
}

fn rust(name: &str) -> Skeleton {
    let source = "src/lib.rs".to_owned();
    let vendored = CRATE.iter().map(|(path, text)| (format!("wlprof-plugin/{path}"), *text));
    Skeleton {
        build: "cargo build --release",
        library: format!("target/release/lib{name}.so"),
        templates: vec![
            (source.clone(), include_str!("skeletons/plugin.rs")),
            ("Cargo.toml".to_owned(), include_str!("skeletons/Cargo.toml.in")),
        ],
        verbatim: vendored.chain([(".gitignore".to_owned(), "/target\n")]).collect(),
        source,
    }
}
