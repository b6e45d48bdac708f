//! What all pages have around their part: the profile's name and the way to the other pages.

use crate::firefox_profiler::url;
use crate::html::escaped;

const STYLE: &str = include_str!("style.css");

/// A page of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// The flame graph.
    FlameGraph,
    /// The call tree.
    CallTree,
    /// The files, and the lines of one.
    Sources,
    /// The table that a run prints.
    Table,
}

impl Page {
    /// Every one, in the order of the navigation.
    const ALL: [Self; 4] = [Self::FlameGraph, Self::CallTree, Self::Sources, Self::Table];

    /// Its path below the secret one.
    fn path(self) -> &'static str {
        match self {
            Self::FlameGraph => "",
            Self::CallTree => "call-tree",
            Self::Sources => "sources",
            Self::Table => "table",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::FlameGraph => "Flame graph",
            Self::CallTree => "Call tree",
            Self::Sources => "Sources",
            Self::Table => "Table",
        }
    }
}

/// Makes the pages of one profile.
///
/// ```
/// use wlprof_show::pages::{Page, Shell};
///
/// let shell = Shell::new("run.wlprof".to_owned(), "http://127.0.0.1:8080/secret".to_owned());
/// assert!(shell.page(Page::Table, "<p>rows</p>").contains("<h1>run.wlprof</h1>"));
/// ```
#[derive(Clone, Debug)]
pub struct Shell {
    /// The file's name.
    name: String,
    /// The URL below which all is.
    base: String,
}

impl Shell {
    /// The pages of the profile of the file `name`, which are below `base`.
    #[must_use]
    pub fn new(name: String, base: String) -> Self {
        Self { name, base }
    }

    /// A page with `part`, which is HTML.
    #[must_use]
    pub fn page(&self, page: Page, part: &str) -> String {
        self.navigable(page, &format!("<main>\n{part}</main>\n"))
    }

    /// The page with the flame graph, which is a document of its own.
    #[must_use]
    pub fn flame_graph(&self) -> String {
        self.navigable(Page::FlameGraph, "<iframe src=\"flamegraph.svg\" title=\"Flame graph\"></iframe>\n")
    }

    /// The page of a profile that only the Firefox Profiler shows.
    #[must_use]
    pub fn of_firefox(&self) -> String {
        self.document("Profile", "", "")
    }

    fn navigable(&self, page: Page, body: &str) -> String {
        let links = Page::ALL.map(|other| {
            let current = if other == page { " aria-current=\"page\"" } else { "" };
            format!("<a href=\"{}/{}\"{current}>{}</a>\n", escaped(&self.base), other.path(), other.title())
        });
        self.document(page.title(), &links.concat(), body)
    }

    fn document(&self, title: &str, links: &str, body: &str) -> String {
        let firefox = escaped(&url(&format!("{}/profile.json", self.base)));
        let (name, base) = (escaped(&self.name), escaped(&self.base));
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title} of {name} – wlprof</title>\n<style>\n{STYLE}</style>\n<header>\n<h1>{name}</h1>\n<nav>\n{links}\
             <a href=\"{firefox}\" title=\"It is loaded from the net; nothing is uploaded\">Firefox Profiler</a>\n\
             <a href=\"{base}/profile.json\" download>Save the profile</a>\n</nav>\n</header>\n{body}</html>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str) -> Shell {
        Shell::new(name.to_owned(), "http://127.0.0.1:1/t".to_owned())
    }

    #[test]
    fn names_are_text_and_nothing_else() {
        let page = shell("</h1><script>alert('1')</script>\" onload=\"x&lt;").page(Page::Table, "");
        let text = "&lt;/h1&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot; onload=&quot;x&amp;lt;";
        assert!(page.contains(&format!("<title>Table of {text} – wlprof</title>")), "{page}");
        assert!(page.contains(&format!("<h1>{text}</h1>")) && !page.contains("<script"), "{page}");
    }

    #[test]
    fn pages_lead_to_each_other_and_to_the_firefox_profiler() {
        let shell = shell("a");
        let page = shell.page(Page::CallTree, "<p>part</p>\n");
        for path in ["", "call-tree", "sources", "table", "profile.json"] {
            assert!(page.contains(&format!("href=\"http://127.0.0.1:1/t/{path}\"")), "{path} {page}");
        }
        assert_eq!(page.matches("aria-current").count() - STYLE.matches("aria-current").count(), 1);
        let firefox = "https://profiler.firefox.com/from-url/http%3A%2F%2F127.0.0.1%3A1%2Ft%2Fprofile.json";
        for page in [page, shell.flame_graph(), shell.of_firefox()] {
            assert!(page.contains(&format!("href=\"{firefox}\"")), "{page}");
        }
        assert!(shell.flame_graph().contains("src=\"flamegraph.svg\""));
        assert!(!shell.of_firefox().contains("call-tree"));
    }
}
