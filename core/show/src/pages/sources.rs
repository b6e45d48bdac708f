//! The pages of sources: the files that were sampled, and the lines of each with their time.

use crate::annotated::around;
use crate::escape::single_line;
use crate::html::escaped;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use wlprof_recording::sources::SourceFolders;
use wlprof_recording::{LineTotal, LineTotals, Recording, Weight, bytes};

const NO_LINES: &str = "<p>No lines are known of what was sampled. Compile the guest with debug information, or see the notes of \
                        the <a href=\"table\">table</a>.</p>\n";

/// Files of a recording with their lines.
pub(super) struct SampledFiles {
    totals: LineTotals,
    /// Most time of their own lines first. A file's place is its number in addresses.
    names: Vec<String>,
    is_memory: bool,
}

impl SampledFiles {
    /// Adds up `recording`.
    pub(super) fn of(recording: &Recording) -> Self {
        let totals = LineTotals::of(recording);
        let mut names: Vec<String> = totals.lines.keys().map(|(file, _)| file.clone()).collect();
        names.dedup();
        names.sort_by_cached_key(|name| std::cmp::Reverse(totals.own_of_file(name).ns));
        Self { totals, names, is_memory: recording.part.is_some() }
    }

    /// The files, each a link to its lines.
    pub(super) fn list(&self) -> String {
        if self.names.is_empty() {
            return NO_LINES.to_owned();
        }
        let mut text =
            String::from("<table aria-label=\"Files\">\n<thead><tr><th>self</th><th>file</th></tr></thead>\n<tbody>\n");
        for (number, name) in self.names.iter().enumerate() {
            let own = self.amount(self.totals.own_of_file(name));
            let name = escaped(&single_line(name));
            // Writing to a string cannot fail.
            let _ = writeln!(text, "<tr>{own}<td><a href=\"source/{number}\">{name}</a></td></tr>");
        }
        text + "</tbody>\n</table>\n"
    }

    /// The lines of the file of that number: all, or those around samples. Without its text, those that were sampled.
    pub(super) fn source(&self, number: usize, whole: bool, folders: &SourceFolders) -> Option<String> {
        let name = self.names.get(number)?;
        let times: BTreeMap<u32, LineTotal> = self.totals.of_file(name).collect();
        let source = folders.text(name);
        let lines: Vec<&str> = source.as_deref().unwrap_or_default().lines().collect();
        let last = u32::try_from(lines.len()).unwrap_or(u32::MAX);
        let mut text = format!("<h2>{}</h2>\n", escaped(&single_line(name)));
        let past = times.keys().find(|line| **line > last);
        let note = match (&source, past) {
            (None, _) => "Its text was not found: name a folder that has it with <code>--source-dir</code>.".to_owned(),
            (Some(_), Some(past)) => {
                format!("The file has {last} lines and was sampled at line {past}: it is another version.")
            }
            (Some(_), None) if whole => format!("<a href=\"../{number}\">Show the lines around samples</a>"),
            (Some(_), None) => format!("<a href=\"{number}/whole\">Show the whole file</a>"),
        };
        let _ = write!(
            text,
            "<p>{note}</p>\n<table class=\"lines\" aria-label=\"Lines\">\n\
             <thead><tr><th>total</th><th>self</th><th>line</th><th>source</th></tr></thead>\n<tbody>\n"
        );
        let ranges = match (&source, whole) {
            (None, _) => times.keys().map(|line| *line..=*line).collect(),
            (Some(_), true) => vec![1..=last],
            (Some(_), false) => around(times.keys().copied()),
        };
        for (at, range) in ranges.into_iter().enumerate() {
            if at > 0 && source.is_some() {
                text.push_str("<tr><td></td><td></td><td>…</td><td></td></tr>\n");
            }
            for number in range.take_while(|line| source.is_none() || *line <= last) {
                let LineTotal { self_time, total_time } = times.get(&number).copied().unwrap_or_default();
                let code = lines.get((number as usize).wrapping_sub(1)).map(|line| line.replace('\t', "    "));
                let share = total_time.share_of(self.totals.all).percent;
                let _ = writeln!(
                    text,
                    "<tr id=\"L{number}\" style=\"--share:{share:.1}%\">{}{}<td>{number}</td><td>{}</td></tr>",
                    self.amount(total_time),
                    self.amount(self_time),
                    escaped(&single_line(&code.unwrap_or_default()))
                );
            }
        }
        Some(text + "</tbody>\n</table>\n")
    }

    /// A cell with a share of the time or memory and how much that is; nothing for none.
    fn amount(&self, time: Weight) -> String {
        if time.ns == 0 {
            return "<td></td>".to_owned();
        }
        let percent = time.share_of(self.totals.all).percent;
        let amount = if self.is_memory { bytes(time.ns as f64) } else { format!("{:.3} s", time.ns as f64 / 1e9) };
        format!("<td><b>{percent:.1} %</b> <span>{amount}</span></td>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_recording::example;

    fn folder_with(text: &str) -> (tempfile::TempDir, SourceFolders) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("app")).unwrap();
        std::fs::write(folder.path().join("app/shop.py"), text).unwrap();
        let mut folders = SourceFolders::default();
        folders.add(folder.path()).unwrap();
        (folder, folders)
    }

    #[test]
    fn lines_of_a_file_have_their_time_and_their_text() {
        let files = SampledFiles::of(&example());
        let shop = files.names.iter().position(|name| name == "/app/shop.py").unwrap();
        assert!(files.list().contains(&format!("<a href=\"source/{shop}\">/app/shop.py</a>")), "{}", files.list());
        let source: String = (1..=20).map(|line| format!("\t<b>{line}</b>\n")).collect();
        let (_folder, folders) = folder_with(&source);
        let page = files.source(shop, false, &folders).unwrap();
        let row = "<td><b>30.8 %</b> <span>4.000 s</span></td>".replace("4.000", "0.004");
        assert!(page.contains(&format!("{row}{row}<td>6</td><td>    &lt;b&gt;6&lt;/b&gt;</td></tr>")), "{page}");
        assert!(page.contains("<td>3</td>") && !page.contains("<td>2</td>"), "{page}");
        let whole = files.source(shop, true, &folders).unwrap();
        assert!(whole.contains("<td>1</td>") && whole.contains("<td>20</td>"), "{whole}");
        assert!(!whole.contains("<b>6</b>"), "{whole}");
        assert_eq!(files.source(files.names.len(), false, &folders), None);
    }

    #[test]
    fn without_its_text_a_file_has_its_lines() {
        let mut recording = example();
        recording.functions.iter_mut().filter(|function| function.file.is_some()).for_each(|function| {
            function.file = Some("<script>".to_owned());
        });
        let files = SampledFiles::of(&recording);
        let page = files.source(0, false, &SourceFolders::default()).unwrap();
        assert!(page.contains("--source-dir") && page.contains("<td>6</td>") && !page.contains("<td>5</td>"), "{page}");
        assert!(!page.contains("<script>") && !files.list().contains("<script>"), "{page}");
        let (_folder, folders) = folder_with("1\n");
        let files = SampledFiles::of(&example());
        let shop = files.names.iter().position(|name| name == "/app/shop.py").unwrap();
        assert!(files.source(shop, false, &folders).unwrap().contains("has 1 lines and was sampled at line 6"));
    }

    #[test]
    fn a_guest_without_lines_has_a_page_that_says_what_to_do() {
        let mut recording = example();
        recording.functions.iter_mut().for_each(|function| function.file = None);
        assert_eq!(SampledFiles::of(&recording).list(), NO_LINES);
    }
}
