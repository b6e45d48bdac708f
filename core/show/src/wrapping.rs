//! Lines that are no longer than the terminal is wide.

/// Breaks lines of more than `width` characters at spaces; what follows stands two cells to the right. `None` for no bound.
///
/// Words stay whole, however long they are: paths and addresses are copied.
#[must_use]
pub fn wrapped(text: &str, width: Option<usize>) -> String {
    const INDENT: &str = "  ";
    let Some(width) = width else { return text.to_owned() };
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        let mut rest: Vec<char> = line.chars().collect();
        while rest.len() > width {
            let indent = rest.iter().take_while(|c| **c == ' ').count();
            let is_space = |at: &usize| rest[*at] == ' ';
            let last_that_fits = (indent..=width).rev().find(is_space);
            let Some(at) = last_that_fits.or_else(|| (indent.max(width)..rest.len()).find(is_space)) else { break };
            out.push_str(rest[..at].iter().collect::<String>().trim_end());
            out.push('\n');
            let after = rest[at..].iter().skip_while(|c| **c == ' ');
            rest = INDENT.chars().chain(after.copied()).collect();
        }
        out.extend(rest);
        out.push_str(end);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_spaces_and_words_stay_whole() {
        let wrapped = |text: &str| wrapped(text, Some(20));
        assert_eq!(wrapped("a line that is too long for it\nshort\n"), "a line that is too\n  long for it\nshort\n");
        assert_eq!(wrapped("exactly twenty cells"), "exactly twenty cells");
        assert_eq!(wrapped("exactly twenty cells!"), "exactly twenty\n  cells!");
        let word = "w".repeat(50);
        assert_eq!(wrapped(&format!("see {word} and\nmore\n")), format!("see\n  {word}\n  and\nmore\n"));
        assert_eq!(wrapped(&format!("    {word}")), format!("    {word}"));
        assert_eq!(super::wrapped(&word, None), word);
    }
}
