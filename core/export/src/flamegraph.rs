//! A flame graph: an SVG with the search and zoom that inferno, which draws it, puts into such files.
//!
//! inferno reads folded stacks, a line each: `root;caller;leaf 12`. Frames are what stands between semicolons, so a frame is a
//! text here, [`label`]: the function's name with its place in parentheses. That keeps functions of one name apart, and keeps
//! what a guest calls a function from being read as something else: by inferno, `f 99 12` is a stack with two numbers, a line
//! that begins with `# ` is a comment, and endings such as `_[k]` are a kind of code.
//!
//! Kinds of code are colours, set through inferno's palette map, which has a colour for each text. (It also has palettes that
//! go by the ending of a name, but those have fewer kinds than there are here, and cut the endings off names that have one.)
//! The map must have all texts: inferno picks colours at random for others.
//!
//! Lines are in the order of their frames and not of their characters, which would tear `a` and `a b` apart. inferno lays stacks out
//! as they come for flame charts alone, and then from the last line to the first.
//!
//! Roots are at the top. At the bottom, where flame graphs usually have them, they would be below the end of the window wherever
//! a few stacks are deep, as those of imports in Python, and most of what the window shows would be empty.
//!
//! What two recordings differ in is drawn in red and blue, by the time of a stack's last frame alone: inferno gives all others the
//! difference 0. What was there before alone has no width and is not seen; the other way round it is.
//!
//! Times are shown in microseconds, because inferno shows whole numbers of them alone.

use super::Exporter;
use super::categories::{CATEGORIES, category_index, shown_as};
use super::plain_text::{drawn_name, short_path};
use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap, StrokeColor};
use inferno::flamegraph::{Direction, Options, TextTruncateDirection, from_lines};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;
use wlprof_recording::{Category, Function, Recording, StackId, count_of};

/// `flamegraph`: an SVG for browsers.
pub(super) struct FlameGraph;

impl Exporter for FlameGraph {
    fn name(&self) -> &'static str {
        "flamegraph"
    }

    fn description(&self) -> &'static str {
        "A flame graph for any browser, with search and zoom, coloured by kind of code"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["svg"]
    }

    fn how_to_open(&self, path: &Path) -> String {
        format!("open {} in a browser", path.display())
    }

    fn export(&self, recording: &Recording, _: &Path, out: &mut dyn Write) -> io::Result<Option<Vec<u8>>> {
        let labels: Vec<String> = recording.functions.iter().map(|function| label(recording, function)).collect();
        let times = times(recording, &labels);
        // All of them together have to be a number, too.
        let most = u64::MAX / times.len().max(1) as u64;
        let times = times.into_iter().filter(|(_, time_ns)| *time_ns > 0);
        let lines = times.map(|(frames, time_ns)| format!("{} {}", frames.join(";"), time_ns.min(most))).collect();
        let mut palette = palette(recording, &labels);
        let mut options = options(title(recording), subtitle(recording), recording);
        options.palette_map = Some(&mut palette);
        options.factor = 1.0 / per_count(recording) as f64;
        draw(lines, options, out)?;
        Ok(None)
    }

    fn shows_differences(&self) -> bool {
        true
    }

    /// Red and blue: what has more and less of the time for itself than before. Widths are the time after. The time before is
    /// scaled to as much in all, so that runs of other lengths are compared by their shares.
    fn export_difference(&self, recordings: [&Recording; 2], out: &mut dyn Write) -> io::Result<()> {
        let labels = recordings.map(|recording| {
            recording.functions.iter().map(|function| label(recording, function)).collect::<Vec<String>>()
        });
        let [before, after] = [0, 1].map(|side| times(recordings[side], &labels[side]));
        let lines = compared(&before, &after, per_count(recordings[1]));
        let [title, before_title] = [recordings[1], recordings[0]].map(title);
        let subtitle = format!(
            "{} · {}: red more, blue less than in {before_title} ({})",
            measured(recordings[1]),
            if recordings[1].part.is_some() { "share of the bytes" } else { "own time" },
            measured(recordings[0])
        );
        draw(lines, options(title, subtitle, recordings[1]), out)
    }
}

/// How all of them look.
fn options<'a>(title: String, subtitle: String, recording: &Recording) -> Options<'a> {
    let mut options = Options::default();
    options.title = title;
    options.subtitle = Some(subtitle);
    options.bgcolors = Some(BackgroundColor::Flat(WHITE));
    // Neighbours of one kind have one colour.
    options.stroke_color = StrokeColor::Color(WHITE);
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.count_name = if recording.part.is_some() { "bytes" } else { "µs" }.to_owned();
    options.direction = Direction::Inverted;
    options.flame_chart = true;
    options
}

/// Draws these lines, which are in the order in which they are drawn.
fn draw(lines: Vec<String>, mut options: Options<'_>, out: &mut dyn Write) -> io::Result<()> {
    if lines.is_empty() {
        // inferno fails where there is nothing to draw.
        return out.write_all(NOTHING.as_bytes());
    }
    from_lines(&mut options, lines.iter().rev().map(String::as_str), out)
}

const WHITE: Color = Color { r: 255, g: 255, b: 255 };

const NOTHING: &str = r#"<?xml version="1.0"?>
<svg xmlns="http://www.w3.org/2000/svg" width="400" height="60"><text x="20" y="35">no samples</text></svg>
"#;

/// The text of a function's frames. It ends with a parenthesis and has no semicolon.
fn label(recording: &Recording, function: &Function) -> String {
    let place = match (&function.file, function.line, function.module) {
        (Some(file), Some(line), _) if !file.is_empty() => format!("{}:{line}", short_path(file)),
        (Some(file), None, _) if !file.is_empty() => short_path(file).to_owned(),
        (.., Some(module)) => recording.modules[module as usize].name.clone(),
        _ if function.category == Category::Host => "host".to_owned(),
        _ => "wlprof".to_owned(),
    };
    let text = format!("{} ({})", drawn_name(&function.name), drawn_name(&place)).replace(';', ":");
    if text.starts_with("# ") { text.replacen("# ", "#", 1) } else { text }
}

/// Nanoseconds of all stacks, in the order in which they are drawn.
fn times<'a>(recording: &Recording, labels: &'a [String]) -> BTreeMap<Vec<&'a str>, u64> {
    let mut times = BTreeMap::<StackId, u64>::new();
    for sample in recording.samples() {
        let time_ns = times.entry(sample.stack).or_default();
        *time_ns = time_ns.saturating_add(sample.period_ns);
    }
    let mut of_frames = BTreeMap::<Vec<&str>, u64>::new();
    for (stack, time_ns) in times {
        let mut frames: Vec<&str> = recording.lines_of(stack).map(|line| &*labels[line.function as usize]).collect();
        frames.reverse();
        let sum = of_frames.entry(frames).or_default();
        *sum = sum.saturating_add(time_ns);
    }
    of_frames
}

/// Lines with two numbers, as inferno reads them for differences: what is counted before, as much in all as after, and after.
/// What is counted, because it multiplies the widths with a factor and not the differences.
fn compared(before: &BTreeMap<Vec<&str>, u64>, after: &BTreeMap<Vec<&str>, u64>, per_count: u64) -> Vec<String> {
    let [all_before, all_after] =
        [before, after].map(|times| times.values().map(|time_ns| u128::from(*time_ns)).sum::<u128>());
    let per_count = u128::from(per_count);
    let counted = |time_ns: u128| (time_ns + per_count / 2) / per_count;
    // What inferno adds up has to be a number.
    let most = i64::MAX as u128 / (before.len() + after.len()).max(1) as u128;
    let stacks: BTreeSet<&Vec<&str>> = before.keys().chain(after.keys()).collect();
    let line = |stack: &Vec<&str>| {
        let [before_ns, after_ns] =
            [before, after].map(|times| times.get(stack).map_or(0, |time_ns| u128::from(*time_ns)));
        let scaled_ns = before_ns.saturating_mul(all_after) / all_before.max(1);
        let [before, after] = [scaled_ns, after_ns].map(|time_ns| counted(time_ns).min(most));
        (before + after > 0).then(|| format!("{} {before} {after}", stack.join(";")))
    };
    // Without any time after there is nothing to draw.
    if counted(all_after) == 0 { Vec::new() } else { stacks.into_iter().filter_map(line).collect() }
}

/// How much of what samples stand for is counted as one: nanoseconds as microseconds, bytes as they are.
fn per_count(recording: &Recording) -> u64 {
    if recording.part.is_some() { 1 } else { 1000 }
}

/// The colour of every text that is drawn.
fn palette(recording: &Recording, labels: &[String]) -> PaletteMap {
    let mut palette = PaletteMap::default();
    // Above the roots of all stacks.
    palette.insert("", Color { r: 232, g: 232, b: 232 });
    for (label, function) in labels.iter().zip(&recording.functions) {
        let [r, g, b] = shown_as(function.category).rgb;
        palette.insert(label, Color { r, g, b });
    }
    palette
}

fn title(recording: &Recording) -> String {
    let meta = &recording.meta;
    let words: Vec<_> = std::iter::once(&meta.guest).chain(&meta.arguments).map(|word| drawn_name(word)).collect();
    words.join(" ")
}

/// What the widths are of, and what the colours mean.
fn subtitle(recording: &Recording) -> String {
    let seen: BTreeSet<usize> = recording.functions.iter().map(|function| category_index(function.category)).collect();
    let colors: Vec<String> =
        seen.into_iter().map(|index| format!("{} {}", CATEGORIES[index].color, CATEGORIES[index].name)).collect();
    format!("{} · {}", measured(recording), colors.join(", "))
}

/// How much there is of what.
fn measured(recording: &Recording) -> String {
    let sum = recording.samples().fold(0_u64, |sum, sample| sum.saturating_add(sample.period_ns));
    format!("{}, {}", count_of(recording.samples().count() as u64, "sample"), recording.unit().amount(sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roxmltree::{Document, Node, NodeType, ParsingOptions};
    use wlprof_recording::{Samples, example};

    fn drawn(recording: &Recording) -> String {
        let mut svg = Vec::new();
        FlameGraph.export(recording, Path::new("/x.svg"), &mut svg).unwrap();
        String::from_utf8(svg).unwrap()
    }

    fn parsed(svg: &str) -> Document<'_> {
        Document::parse_with_options(svg, ParsingOptions { allow_dtd: true, ..ParsingOptions::default() }).unwrap()
    }

    /// A rectangle: its title, where it begins and ends in nanoseconds, how far down it stands, its colour.
    type Rectangle = (String, u64, u64, i64, String);

    fn rectangles(document: &Document<'_>) -> Vec<Rectangle> {
        let frames = document.descendants().find(|node| node.attribute("id") == Some("frames")).unwrap();
        let rectangle = |group: Node<'_, '_>| {
            let child = |name| group.children().find(|node| node.has_tag_name(name)).unwrap();
            let rect = child(("http://www.w3.org/2000/svg", "rect"));
            let own =
                |name| rect.attribute(("http://github.com/jonhoo/inferno", name)).unwrap().parse::<u64>().unwrap();
            let title = child(("http://www.w3.org/2000/svg", "title")).text().unwrap().to_owned();
            let y = rect.attribute("y").unwrap().parse().unwrap();
            (title, own("x"), own("x") + own("w"), y, rect.attribute("fill").unwrap().to_owned())
        };
        frames.children().map(rectangle).collect()
    }

    /// What stands for all stacks.
    fn root(all: &[Rectangle]) -> &Rectangle {
        all.iter().min_by_key(|(.., y, _)| *y).unwrap()
    }

    #[test]
    fn what_is_drawn_is_the_recordings_time_in_the_colours_of_its_kinds() {
        let recording = example();
        let svg = drawn(&recording);
        let document = parsed(&svg);
        let all = rectangles(&document);
        let total: u64 = recording.samples().map(|sample| sample.period_ns).sum();
        for (index, function) in recording.functions.iter().enumerate() {
            let label = label(&recording, function);
            let own: Vec<&Rectangle> =
                all.iter().filter(|(title, ..)| title.starts_with(&format!("{label} ("))).collect();
            let drawn_ns: u64 = own.iter().map(|(_, begin, end, ..)| end - begin).sum();
            // A function that is on a stack twice is drawn twice.
            let time_ns: u64 = recording
                .samples()
                .map(|sample| {
                    let own = recording.lines_of(sample.stack).filter(|line| line.function as usize == index);
                    own.count() as u64 * sample.period_ns
                })
                .sum();
            assert_eq!(drawn_ns, time_ns, "{label}");
            let [r, g, b] = shown_as(function.category).rgb;
            assert!(own.iter().all(|(.., color)| *color == format!("rgb({r},{g},{b})")), "{own:?}");
            assert!(own.iter().all(|(title, ..)| title.contains(" µs, ") && title.ends_with("%)")), "{own:?}");
        }
        let root = root(&all);
        assert_eq!((&*root.0, root.1, root.2), ("all (13,000 µs, 100%)", 0, total));
    }

    /// Whether the first has the elements, attributes and scripts of the second, and no text that turns its direction.
    fn assert_harmless(svg: &str, harmless: &str) {
        let (document, expected) = (parsed(svg), parsed(harmless));
        let scripts = |document: &Document<'_>| -> Vec<String> {
            let all = document.descendants().filter(|node| node.tag_name().name() == "script");
            all.map(|node| node.text().unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(scripts(&document), scripts(&expected));
        let kinds = |document: &Document<'_>| -> BTreeSet<String> {
            let attributes = |node: Node<'_, '_>| {
                let names: Vec<&str> = node.attributes().map(|attribute| attribute.name()).collect();
                format!("{:?} {} {names:?}", node.node_type(), node.tag_name().name())
            };
            document.descendants().map(attributes).collect()
        };
        assert_eq!(kinds(&document), kinds(&expected), "elements and attributes are those of a harmless graph");
        let texts = document.descendants().filter(|node| node.node_type() == NodeType::Text);
        let turned = texts.filter_map(|node| node.text()).find(|text| text.contains(['\u{202e}', '\u{2066}']));
        assert_eq!(turned, None);
    }

    #[test]
    fn what_a_guest_calls_its_functions_is_text_and_nothing_else() {
        let harmless = drawn(&example());
        let names = [
            "</text><script>alert(1)</script>",
            "\";//",
            "]]><script>alert(1)</script>",
            "f 99",
            "# comment",
            "--",
            "",
            "a_[k]",
            "x\u{202e}\u{2066}y\u{0}\u{1b}\u{ffff}z",
            "<a href=\"javascript:alert(1)\">&lt;</a>",
            "a;b 7",
        ];
        let mut recording = example();
        for (function, name) in recording.functions.iter_mut().zip(names.iter().cycle()) {
            function.name = (*name).to_owned();
            function.file = function.file.as_ref().map(|_| (*name).to_owned());
        }
        recording.meta.guest = names[0].to_owned();
        recording.meta.arguments = names.map(str::to_owned).to_vec();
        recording.modules.iter_mut().for_each(|module| module.name = names[2].to_owned());
        let compared = compared_with(&recording, &recording);
        assert_harmless(&compared, &compared_with(&example(), &example()));
        let svg = drawn(&recording);
        assert_harmless(&svg, &harmless);
        let document = parsed(&svg);
        // Nothing of the time is lost to a name that reads as something else.
        let total: u64 = recording.samples().map(|sample| sample.period_ns).sum();
        let all = rectangles(&document);
        let (_, begin, end, top, _) = root(&all);
        assert_eq!((*begin, *end), (0, total));
        let below_it = all.iter().map(|(.., y, _)| *y).filter(|y| y > top).min().unwrap();
        let roots = all.iter().filter(|(.., y, _)| *y == below_it);
        assert_eq!(roots.map(|(_, begin, end, ..)| end - begin).sum::<u64>(), total);
        for name in ["\";//", "f 99", "#comment", "a_[k]", "a:b 7"] {
            let name = name.replace(';', ":");
            assert!(all.iter().any(|(title, ..)| title.starts_with(&format!("{name} ("))), "{name}: {all:#?}");
        }
    }

    fn compared_with(before: &Recording, after: &Recording) -> String {
        let mut svg = Vec::new();
        FlameGraph.export_difference([before, after], &mut svg).unwrap();
        String::from_utf8(svg).unwrap()
    }

    /// Points that a rectangle says to have more.
    fn points(title: &str) -> f64 {
        title.rsplit_once("; ").unwrap().1.trim_end_matches("%)").parse().unwrap()
    }

    #[test]
    fn differences_are_of_shares_and_red_or_blue() {
        let before = example();
        let mut longer = example();
        // The same, twice: other times, equal shares.
        longer.threads.extend(longer.threads.clone());
        let same = compared_with(&before, &longer);
        let same = rectangles(&parsed(&same));
        assert!(
            same.len() > 5 && same.iter().filter(|rect| rect.0 != root(&same).0).all(|rect| points(&rect.0) == 0.0)
        );
        assert_eq!(root(&same).2, 26_000, "microseconds of the second");

        let mut less = example();
        let leaf = |recording: &Recording, stack| recording.lines_of(stack).next().unwrap().function as usize;
        let first = less.threads[0].samples.iter().next().unwrap().stack;
        let thread = &mut less.threads[0];
        thread.samples = thread.samples.iter().filter(|sample| sample.stack != first).collect();
        let svg = compared_with(&less, &before);
        let all = rectangles(&parsed(&svg));
        let name = label(&before, &before.functions[leaf(&before, first)]);
        let more =
            all.iter().filter(|(title, ..)| title.starts_with(&format!("{name} ("))).find(|rect| points(&rect.0) > 0.0);
        let channels = |color: &str| -> Vec<u8> {
            color
                .trim_start_matches("rgb(")
                .trim_end_matches(')')
                .split(',')
                .map(|part| part.parse::<u8>().unwrap())
                .collect()
        };
        let red = channels(&more.expect("it has more").4);
        assert!(red[0] > red[2], "{red:?}");
        let blue =
            all.iter().filter(|rect| rect.0 != root(&all).0 && points(&rect.0) < 0.0).map(|rect| channels(&rect.4));
        let blue: Vec<_> = blue.collect();
        assert!(!blue.is_empty() && blue.iter().all(|color| color[2] > color[0]), "{blue:?}");
    }

    #[test]
    fn a_run_without_samples_is_a_picture_that_says_so() {
        let mut recording = example();
        recording.threads.iter_mut().for_each(|thread| thread.samples = Samples::default());
        let svg = drawn(&recording);
        assert_eq!(parsed(&svg).descendants().filter_map(|node| node.text()).next(), Some("no samples"));
    }
}
