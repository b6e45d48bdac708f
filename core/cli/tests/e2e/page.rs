//! Pages of `docs/`: the commands in them, and what they say these print.

/// A command of a page and what the page shows of its output.
pub(crate) struct Example {
    pub(crate) command: String,
    pub(crate) shown: Vec<String>,
}

/// The commands of a page, in order: lines of its console blocks after `$ `, each with those that follow.
pub(crate) fn examples(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for line in block.lines() {
            match line.strip_prefix("$ ") {
                Some(command) => examples.push(Example { command: command.to_owned(), shown: Vec::new() }),
                None => examples.last_mut().unwrap().shown.push(line.to_owned()),
            }
        }
    }
    examples
}

/// The words of a line that are not numbers, shares or addresses.
pub(crate) fn words(line: &str) -> Vec<&str> {
    let is_number =
        |word: &str| word.trim_end_matches('%').bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'.');
    line.split_whitespace().filter(|word| !is_number(word)).collect()
}
