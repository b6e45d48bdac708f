//! Finds options of wlprof that stand behind the guest, where they are the guest's.

use clap::Command;
use std::ffi::OsString;

/// Says which options of `command` stand behind the guest and not before it, in this process's arguments. These end with
/// `guest_and_arguments`. `None` if there are none.
pub(super) fn options_behind(guest_and_arguments: &[OsString], command: &Command) -> Option<String> {
    let all: Vec<OsString> = std::env::args_os().collect();
    let before = all.len().saturating_sub(guest_and_arguments.len());
    advice(&options(command, &all[..before]), &options(command, guest_and_arguments.get(1..)?))
}

fn advice(before: &[(String, String)], behind: &[(String, String)]) -> Option<String> {
    let is_new = |(id, _): &&(String, String)| !before.iter().any(|(other, _)| other == id);
    let mut names: Vec<&str> = behind.iter().filter(is_new).map(|(_, name)| name.as_str()).collect();
    names.dedup();
    let stand = match names.len() {
        0 => return None,
        1 => "stands",
        _ => "stand",
    };
    Some(format!("{} {stand} behind the guest; options of wlprof come before the guest", names.join(", ")))
}

/// The options of `command` among `arguments`, each with its id. Of the short ones only `-o` is looked for: guests have their own.
fn options(command: &Command, arguments: &[OsString]) -> Vec<(String, String)> {
    let arguments = arguments.iter().map(|argument| argument.to_string_lossy());
    let option = |argument: &str| {
        let name = match argument.strip_prefix("--") {
            Some(long) => long.split('=').next()?,
            None if argument.starts_with("-o") => "output",
            None => return None,
        };
        let known = command.get_arguments().filter(|option| !option.is_hide_set());
        let known = known.into_iter().find(|option| option.get_long() == Some(name))?;
        let written = if argument.starts_with("--") { format!("--{name}") } else { "-o".to_owned() };
        Some((known.get_id().to_string(), written))
    };
    arguments.take_while(|argument| argument != "--").filter_map(|argument| option(&argument)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::CommandFactory;

    #[test]
    fn options_behind_the_guest_are_known_and_others_are_not() {
        let command = Arguments::command();
        let among = |words: &str| options(&command, &words.split_whitespace().map(OsString::from).collect::<Vec<_>>());
        let cases = [
            ("", "-o x.json", Some("-o stands behind")),
            ("", "--output=x.json --memory", Some("--output, --memory stand behind")),
            ("", "-ox --lang=python --dir .", Some("-o, --lang, --dir stand behind")),
            ("--output=y", "-o x", None),
            ("--dir .", "--dir .", None),
            ("", "-- --memory", None),
            ("", "-v --target x --other --help -q", None),
        ];
        for (before, behind, expected) in cases {
            let found = advice(&among(before), &among(behind));
            assert_eq!(found.is_some(), expected.is_some(), "{behind}: {found:?}");
            assert!(expected.is_none_or(|part| found.unwrap_or_default().starts_with(part)), "{behind}");
        }
    }
}
