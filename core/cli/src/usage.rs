//! What is said of a command line that is wrong, and of an empty one.

use super::arguments::Arguments;
use super::failure::{Failure, NO_GUEST};
use super::say;
use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory, Parser};
use std::ffi::{OsStr, OsString};
use wlprof_show::{escape, wrapped};

/// The short usage is no wider.
const SHORT_WIDTH: usize = 80;

/// What `wlprof` without arguments prints.
const SHORT: &str = "\
Usage: wlprof [OPTIONS] GUEST [ARGS]

  wlprof guest.wasm                   run a program and show where its time goes
  wlprof -o run.wlprof guest.wasm     keep what was sampled
  wlprof view run.wlprof              show it in the browser
  wlprof --memory guest.wasm          show what allocates memory

";

/// Prints what is wrong with the arguments of this process, or the help that they ask for. Help and version go to standard output.
pub(super) fn print(error: clap::Error) {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.len() <= 1 {
        return say::text(&wrapped(&format!("{SHORT}{}", commands()), Some(SHORT_WIDTH)));
    }
    let error = with_suggestion(error, &arguments);
    // The message has words of the arguments in it: with escapes in these it has none of their control characters.
    let escaped: Vec<String> =
        arguments.iter().map(|argument| escape::single_line(&argument.to_string_lossy())).collect();
    if !error.use_stderr() || escaped.iter().zip(&arguments).all(|(escaped, argument)| **argument == **escaped) {
        let _ = error.print();
    } else if let Err(error) = Arguments::try_parse_from(escaped)
        && error.use_stderr()
    {
        let _ = with_suggestion(error, &arguments).print();
    } else {
        // Escapes alone have made it right.
        say::text(&escape::multi_line(&error.render().to_string()));
    }
}

/// The commands that there are, in lines for a terminal.
fn commands() -> String {
    let command = Arguments::command();
    let names: Vec<&str> =
        command.get_subcommands().filter(|command| !command.is_hide_set()).map(|command| command.get_name()).collect();
    format!(
        "Commands: {}\n\n`wlprof --help` lists all options, `wlprof COMMAND --help` those of a command.\n",
        names.join(", ")
    )
}

/// `failure` with the command that was meant, where it is that there is no guest called `name`.
pub(super) fn with_command_meant(failure: Failure, name: &OsStr) -> Failure {
    let command = name.to_str().filter(|_| failure.code == NO_GUEST).and_then(similar_command);
    match command {
        Some(command) => Failure::new(NO_GUEST, format!("{}; there is a command `wlprof {command}`", failure.message)),
        None => failure,
    }
}

/// The command that was meant by the name of a guest that is not there: one with a letter more, less, or another in a place or two.
fn similar_command(name: &str) -> Option<String> {
    similar_command_of(&Arguments::command(), name)
}

/// Adds the command that was meant, which clap does not do for `help COMMAND`.
fn with_suggestion(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    if error.get(ContextKind::SuggestedSubcommand).is_some() {
        return error;
    }
    let all = Arguments::command();
    let before = arguments.iter().skip(1).filter(|argument| *argument != "help");
    let found = before.scan(&all, |command, argument| {
        *command = command.find_subcommand(argument)?;
        Some(*command)
    });
    if let Some(meant) = similar_command_of(found.last().unwrap_or(&all), name) {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant]));
    }
    error
}

fn similar_command_of(command: &Command, name: &str) -> Option<String> {
    let known = command.get_subcommands().filter(|command| !command.is_hide_set()).map(|command| command.get_name());
    let distances = known.map(|known| (distance(known, name), known));
    let (_, nearest) = distances.filter(|(distance, known)| *distance <= known.len().div_ceil(4)).min()?;
    Some(nearest.to_owned())
}

/// How many letters have to be put in, left out or changed to make one of the other. Two that are exchanged count as one.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    // Rows of the table: the one before the last, and the last.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut least = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_commands_are_known_and_other_words_are_not() {
        let meant = [("rendr", "render"), ("veiw", "view"), ("vew", "view"), ("annotat", "annotate"), ("dif", "diff")];
        for (typed, command) in meant {
            assert_eq!(similar_command(typed).as_deref(), Some(command), "{typed}");
        }
        for other in ["guest", "app", "main.wasm", "", "x", "python", "./rendr", "bin"] {
            assert_eq!(similar_command(other), None, "{other}");
        }
    }

    #[test]
    fn distances_are_those_of_the_letters() {
        let cases = [("", "", 0), ("", "abc", 3), ("abc", "acb", 1), ("kitten", "sitting", 3), ("ä", "a", 1)];
        for (one, other, expected) in cases {
            assert_eq!((distance(one, other), distance(other, one)), (expected, expected), "{one} {other}");
        }
    }
}
