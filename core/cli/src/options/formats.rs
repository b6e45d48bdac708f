//! What `--format` takes and what the endings of files mean, in words for help and errors: those in which the formats
//! describe themselves.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::fmt;
use wlprof_export::{EXPORTERS, Exporter};

/// What to write.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    /// A profile of wlprof's own.
    Profile(&'static dyn Exporter),
    /// The guest's machine code, for perf's own samples.
    Code(CodeFormat),
}

/// A format for machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CodeFormat {
    /// Names of the guest's machine code for `perf record`, in /tmp/perf-PID.map
    #[value(name = "perfmap")]
    PerfMap,
    /// The guest's machine code with names and lines for `perf record`, in jit-PID.dump
    #[value(name = "jitdump")]
    JitDump,
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Profile(exporter) => f.write_str(exporter.name()),
            Self::Code(format) => format.fmt(f),
        }
    }
}

impl Format {
    fn all() -> impl Iterator<Item = Self> {
        let profiles = EXPORTERS.iter().copied().map(Self::Profile);
        profiles.chain(CodeFormat::value_variants().iter().copied().map(Self::Code))
    }

    fn value(self) -> PossibleValue {
        match self {
            Self::Profile(exporter) => PossibleValue::new(exporter.name()).help(exporter.description()),
            Self::Code(format) => format.value(),
        }
    }

    /// Takes what `--format` is.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        parser_of(Self::value)
    }

    /// Takes the same and shows no formats of machine code, of which a recording has none: [`super::render`] says so to who
    /// asks for them.
    pub(crate) fn rendered_parser() -> impl TypedValueParser<Value = Self> {
        parser_of(|format| format.value().hide(matches!(format, Self::Code(_))))
    }
}

impl CodeFormat {
    fn value(self) -> PossibleValue {
        self.to_possible_value().unwrap_or_default()
    }

    /// The name that `--format` takes.
    pub(crate) fn name(self) -> String {
        self.value().get_name().to_owned()
    }
}

fn parser_of(value: fn(Format) -> PossibleValue) -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::all().map(value)).try_map(|name| {
        let format = Format::all().find(|format| format.value().get_name() == name);
        format.ok_or("there is no such format")
    })
}

/// The endings that tell formats, as a list for the user.
pub(crate) fn endings() -> String {
    let endings = EXPORTERS.iter().map(|exporter| format!(".{} ({})", exporter.extensions()[0], exporter.name()));
    endings.collect::<Vec<_>>().join(", ")
}

/// The name of a profile whose format is known and that the user has given no name.
pub(crate) fn default_file(exporter: &dyn Exporter) -> String {
    format!("profile.{}", exporter.extensions()[0])
}

/// The help of `-o` in a run.
pub(crate) fn files_help() -> String {
    let (endings, default) = (endings(), default_file(EXPORTERS[0]));
    format!(
        "Write the profile here; may repeat. The ending tells the format: {endings}. A run without it writes {default}"
    )
}

/// The same in a line.
pub(crate) const FILES: &str = "Write the profile here; its ending says the format";

/// The help of `-o` in `wlprof render`.
pub(crate) fn rendered_files_help() -> String {
    let (endings, default) = (endings(), default_file(EXPORTERS[0]));
    format!(
        "Write the recording here, in another format; may repeat. The ending tells the format: {endings}. Without it \
         --format writes {default} or the like, and without that nothing is written"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn no_two_formats_have_one_name() {
        let names: BTreeSet<_> = Format::all().map(|format| format.value().get_name().to_owned()).collect();
        assert_eq!(names.len(), Format::all().count());
    }

    #[test]
    fn the_page_lists_the_formats_as_they_describe_themselves() {
        let row = |format: Format| {
            let endings = match format {
                Format::Profile(exporter) => exporter.extensions(),
                Format::Code(_) => &[],
            };
            let endings: Vec<_> = endings.iter().map(|ending| format!("`.{ending}`")).collect();
            let (value, endings) = (format.value(), endings.join(", "));
            format!("| `{}` | {endings} | {} |\n", value.get_name(), value.get_help().unwrap())
        };
        let rows: String = Format::all().map(row).collect();
        let table = format!("| `--format` | endings | what it is |\n|---|---|---|\n{rows}\n");
        let page = std::fs::read_to_string(root().join("docs/formats.md")).unwrap();
        assert!(page.contains(&table), "docs/formats.md has another table of formats than this:\n\n{table}");
    }

    #[test]
    fn documents_name_no_other_formats() {
        let names: BTreeSet<_> = Format::all().map(|format| format.value().get_name().to_owned()).collect();
        let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
        let documents = docs.chain(["README.md", "CHANGELOG.md"].map(|name| root().join(name)));
        let mut named = BTreeSet::new();
        for document in documents.filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
            let text = std::fs::read_to_string(&document).unwrap();
            for after in text.split("--format=").skip(1) {
                let name: String = after.chars().take_while(char::is_ascii_alphanumeric).collect();
                assert!(names.contains(&name), "{}: --format={name}", document.display());
                named.insert(name);
            }
        }
        assert!(!named.is_empty());
    }
}
