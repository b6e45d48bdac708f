//! The page for those who have no other: the table, and ways to the profile.

use super::super::http::{escaped, firefox_profiler_url};

/// The page of the profile of the file `name`, which lies in `base`.
pub(super) fn page(name: &str, base: &str, table: Option<&str>) -> String {
    let (name, firefox) = (escaped(name), escaped(&firefox_profiler_url(&format!("{base}/profile.json"))));
    let table = table.map_or_else(String::new, |table| format!("<pre>{}</pre>\n", escaped(table)));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{name} – wlprof</title>\n\
         <style>body {{ font-family: sans-serif; margin: 2em }} pre {{ overflow-x: auto }}</style>\n<h1>{name}</h1>\n\
         <p><a href=\"{firefox}\">Open in the Firefox Profiler</a>, which is loaded from the net; nothing is uploaded. Or \
         <a href=\"profile.json\" download>save the profile</a>.</p>\n{table}</html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_and_nothing_else() {
        let hostile = "</pre><script>alert('1')</script>\" onload=\"x&lt;";
        let page = page(hostile, "http://127.0.0.1:1/t", Some(hostile));
        let text = "&lt;/pre&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot; onload=&quot;x&amp;lt;";
        assert!(page.contains(&format!("<title>{text} – wlprof</title>")), "{page}");
        assert!(page.contains(&format!("<h1>{text}</h1>")) && page.contains(&format!("<pre>{text}</pre>")), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }

    #[test]
    fn the_page_leads_to_the_profile() {
        let page = page("a", "http://127.0.0.1:1/t", None);
        let firefox = "https://profiler.firefox.com/from-url/http%3A%2F%2F127.0.0.1%3A1%2Ft%2Fprofile.json";
        assert!(page.contains(&format!("href=\"{firefox}\"")), "{page}");
        assert!(page.contains("href=\"profile.json\"") && !page.contains("<pre>"), "{page}");
    }
}
