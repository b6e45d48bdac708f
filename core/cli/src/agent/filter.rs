//! Which processes the agent attaches to.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// What a pattern is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Command,
    User,
    Cgroup,
}

/// A pattern of processes: `*` stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    subject: Subject,
    text: String,
}

impl Pattern {
    /// Reads `command:TEXT`, `user:TEXT`, `cgroup:TEXT`, or a text of the first.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let subjects = [("command:", Subject::Command), ("user:", Subject::User), ("cgroup:", Subject::Cgroup)];
        let named = subjects.iter().find_map(|(name, subject)| Some((*subject, text.strip_prefix(name)?)));
        let is_word = |(word, _): &(&str, &str)| word.chars().all(|c| c.is_ascii_alphanumeric());
        // A misspelt subject would match nothing, and a program's name seldom has a colon.
        let is_unknown = named.is_none() && text.split_once(':').as_ref().is_some_and(is_word);
        let (subject, text) = named.unwrap_or((Subject::Command, text));
        if is_unknown || text.is_empty() {
            return Err("expected TEXT, command:TEXT, user:TEXT or cgroup:TEXT".to_owned());
        }
        Ok(Self { subject, text: text.to_owned() })
    }

    fn matches(&self, process: &ProcessFacts) -> bool {
        let facts = match self.subject {
            Subject::Command => &process.commands,
            Subject::User => &process.users,
            Subject::Cgroup => &process.cgroups,
        };
        facts.iter().any(|fact| is_like(fact, &self.text))
    }
}

/// Whether all of `text` is as `pattern` says.
fn is_like(text: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let (between, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in between.split('*') {
        // The first place leaves most for the parts behind.
        let Some(place) = text.find(part) else { return false };
        text = &text[place + part.len()..];
    }
    text.ends_with(end)
}

/// What patterns are compared with.
#[derive(Debug, Default)]
pub(super) struct ProcessFacts {
    /// The name of the program, and the whole line.
    commands: Vec<String>,
    /// Its owner's name and number.
    users: Vec<String>,
    cgroups: Vec<String>,
}

impl ProcessFacts {
    /// Reads those of process `pid`, whose command this is.
    pub(super) fn of(pid: i32, command: &[String]) -> Self {
        let program = command.first().map(|program| program.rsplit('/').next().unwrap_or_default().to_owned());
        let uid = fs::metadata(format!("/proc/{pid}")).map(|data| data.uid()).ok();
        let name = uid.and_then(user_name);
        let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        Self {
            commands: program.into_iter().chain([command.join(" ")]).collect(),
            users: uid.map(|uid| uid.to_string()).into_iter().chain(name).collect(),
            cgroups: cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).map(str::to_owned).collect(),
        }
    }
}

/// The name of a user, where this process sees the list of them.
fn user_name(uid: u32) -> Option<String> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let name = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid.to_string()).then(|| name.to_owned())
    };
    users.lines().find_map(name)
}

/// Returns whether the agent is to attach to a process: one that is included, or all if none is said to be, and that is not excluded.
pub(super) fn is_wanted(process: &ProcessFacts, include: &[Pattern], exclude: &[Pattern]) -> bool {
    let matches = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(process));
    (include.is_empty() || matches(include)) && !matches(exclude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (text, pattern, expected) in [
            ("wasmtime", "wasmtime", true),
            ("wasmtime", "wasm", false),
            ("wasmtime", "wasm*", true),
            ("wasmtime", "*time", true),
            ("wasmtime", "w*m*e", true),
            ("wasmtime", "w*m*x", false),
            ("aa", "a*a", true),
            ("a", "a*a", false),
            ("abab", "*ab*ab", true),
            ("ab", "*ab*ab", false),
            ("", "*", true),
        ] {
            assert_eq!(is_like(text, pattern), expected, "{text} {pattern}");
        }
    }

    #[test]
    fn processes_are_chosen_by_command_user_and_group() {
        let process = ProcessFacts {
            commands: vec!["spin".to_owned(), "/usr/bin/spin up".to_owned()],
            users: vec!["1000".to_owned(), "web".to_owned()],
            cgroups: vec!["/system.slice/spin.service".to_owned()],
        };
        let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::parse(text).unwrap()).collect::<Vec<_>>();
        let wanted = |include: &[&str], exclude: &[&str]| is_wanted(&process, &patterns(include), &patterns(exclude));
        assert!(wanted(&[], &[]) && wanted(&["spin"], &[]) && wanted(&["* up"], &[]));
        assert!(wanted(&["user:web"], &[]) && wanted(&["user:1000"], &["user:0"]));
        assert!(wanted(&["cgroup:*/spin.service"], &["wasmtime"]));
        assert!(!wanted(&["wasmtime"], &[]) && !wanted(&["spin"], &["cgroup:/system.slice/*"]));
        assert!(wanted(&["command:*spin up"], &[]) && !wanted(&["/bin/x:y"], &[]));
        assert!(Pattern::parse("user:").is_err() && Pattern::parse("uid:1000").is_err());
        let own = ProcessFacts::of(std::process::id() as i32, &["/x/y".to_owned()]);
        assert!(own.commands == ["y", "/x/y"] && !own.users.is_empty(), "{own:?}");
    }
}
