//! The call graph, in DOT for Graphviz: functions with the time in themselves and with all they called, and who called whom.
//!
//! What is small is left out as pprof leaves it out, and the graph's label says how much that is. A call through functions that
//! are left out is an edge, too, a dotted one.
//!
//! Texts are strings in quotation marks, in which `\` begins what Graphviz puts in their place (`\G` is the graph's name, `\l`
//! ends a line) and `&` an entity of HTML.

mod drawn;

pub(super) use drawn::DrawnCallGraph;

use super::Exporter;
use super::categories::shown_as;
use super::plain_text::{drawn_name, short_path};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use wlprof_recording::{Category, FunctionId, ModuleId, Recording, StackId, bytes, count_of};

/// The least share of the time that a function has to have to be shown, itself and with all it called.
const LEAST_OF_NODE: f64 = 0.005;
/// The least share of the time that a call has to have.
const LEAST_OF_EDGE: f64 = 0.001;
/// Functions that are shown at most: those with the most time.
const MOST_NODES: usize = 80;
/// Characters of a name that are shown. All of them are in the node's tooltip.
const NAME_WIDTH: usize = 72;

/// `graph`: for Graphviz.
pub(super) struct CallGraph;

impl Exporter for CallGraph {
    fn name(&self) -> &'static str {
        "graph"
    }

    fn description(&self) -> &'static str {
        "The call graph with times, for Graphviz: functions, host calls, and calls between modules"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["dot", "gv"]
    }

    fn how_to_open(&self, path: &Path) -> String {
        format!("draw it with Graphviz: dot -Tsvg -O {}", path.display())
    }

    fn export(&self, recording: &Recording, _: &Path, out: &mut dyn Write) -> io::Result<Option<Vec<u8>>> {
        let graph = Graph::of(recording);
        writeln!(out, "digraph calls {{")?;
        writeln!(out, "\tlabel={};", quoted(&graph.label(recording)))?;
        writeln!(out, "\tlabelloc=t;\n\tfontname=\"sans-serif\";")?;
        writeln!(out, "\tnode [shape=box, style=filled, fontname=\"sans-serif\"];")?;
        writeln!(out, "\tedge [fontname=\"sans-serif\", fontsize=9];")?;
        for (module, nodes) in graph.nodes_by_module(recording) {
            let Some(module) = module else {
                nodes.iter().try_for_each(|id| writeln!(out, "\t{}", graph.node(recording, *id)))?;
                continue;
            };
            let name = &recording.modules[module as usize].name;
            writeln!(out, "\tsubgraph cluster_{module} {{\n\t\tlabel={};", quoted(&drawn_name(name)))?;
            nodes.iter().try_for_each(|id| writeln!(out, "\t\t{}", graph.node(recording, *id)))?;
            writeln!(out, "\t}}")?;
        }
        graph.edges.iter().try_for_each(|(ends, edge)| writeln!(out, "\t{}", graph.edge(recording, *ends, edge)))?;
        writeln!(out, "}}")?;
        Ok(None)
    }
}

/// Time, and the samples that stand for it.
#[derive(Clone, Copy, Default)]
struct Sum {
    time_ns: u64,
    samples: u64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
        self.samples += other.samples;
    }
}

#[derive(Default)]
struct Node {
    own: Sum,
    total: Sum,
}

#[derive(Default)]
struct Edge {
    sum: Sum,
    /// Whether one called the other itself, at least once, and not through functions that are left out.
    is_direct: bool,
}

struct Graph {
    all: Sum,
    nodes: BTreeMap<FunctionId, Node>,
    edges: BTreeMap<(FunctionId, FunctionId), Edge>,
    nodes_left_out: usize,
    edges_left_out: usize,
}

impl Graph {
    fn of(recording: &Recording) -> Self {
        let mut stacks = BTreeMap::<StackId, Sum>::new();
        for sample in recording.samples() {
            stacks.entry(sample.stack).or_default().add(Sum { time_ns: sample.period_ns, samples: 1 });
        }
        let mut all = Sum::default();
        stacks.values().for_each(|sum| all.add(*sum));
        let is_worth = |sum: &Sum, least: f64| sum.time_ns as f64 >= least * all.time_ns as f64;

        let mut nodes = nodes(recording, &stacks);
        let before = nodes.len();
        nodes.retain(|_, node| is_worth(&node.total, LEAST_OF_NODE));
        let mut by_time: Vec<_> = nodes.iter().map(|(id, node)| (Reverse(node.total.time_ns), *id)).collect();
        by_time.sort_unstable();
        for (_, id) in by_time.iter().skip(MOST_NODES) {
            nodes.remove(id);
        }
        let nodes_left_out = before - nodes.len();

        let mut edges = edges(recording, &stacks, &nodes);
        let before = edges.len();
        edges.retain(|_, edge| is_worth(&edge.sum, LEAST_OF_EDGE));
        let edges_left_out = before - edges.len();
        Self { all, nodes, edges, nodes_left_out, edges_left_out }
    }

    fn percent(&self, sum: Sum) -> f64 {
        100.0 * sum.time_ns as f64 / self.all.time_ns.max(1) as f64
    }

    fn label(&self, recording: &Recording) -> String {
        let meta = &recording.meta;
        let words: Vec<_> = std::iter::once(&meta.guest).chain(&meta.arguments).map(|word| drawn_name(word)).collect();
        let all = recording.unit().amount(self.all.time_ns);
        let mut label = format!("{}\n{}, {all}", words.join(" "), samples(self.all));
        if self.nodes_left_out + self.edges_left_out > 0 {
            // Writing to a string cannot fail.
            let _ = write!(
                label,
                "\nleft out: {} functions with less than {} % or beyond the first {MOST_NODES}, {} calls with less than {} %",
                self.nodes_left_out,
                100.0 * LEAST_OF_NODE,
                self.edges_left_out,
                100.0 * LEAST_OF_EDGE,
            );
        }
        label
    }

    /// The host's are of no module.
    fn nodes_by_module(&self, recording: &Recording) -> BTreeMap<Option<ModuleId>, Vec<FunctionId>> {
        let mut of_modules = BTreeMap::<Option<ModuleId>, Vec<FunctionId>>::new();
        for id in self.nodes.keys() {
            of_modules.entry(recording.functions[*id as usize].module).or_default().push(*id);
        }
        of_modules
    }

    fn node(&self, recording: &Recording, id: FunctionId) -> String {
        let function = &recording.functions[id as usize];
        let Node { own, total } = &self.nodes[&id];
        let name = drawn_name(&function.name);
        let place = |shorten: fn(&str) -> &str| match (&function.file, function.line) {
            (Some(file), Some(line)) => format!("\n{}:{line}", drawn_name(shorten(file))),
            (Some(file), None) => format!("\n{}", drawn_name(shorten(file))),
            (None, _) => String::new(),
        };
        let label = format!(
            "{}{}\nself {} ({:.1} %)\ntotal {} ({:.1} %)\n{}",
            shortened(&name),
            place(short_path),
            amount(recording, *own),
            self.percent(*own),
            amount(recording, *total),
            self.percent(*total),
            samples(*total),
        );
        let shape = if function.category == Category::Host { ", shape=ellipse" } else { "" };
        let [red, green, blue] = shown_as(function.category).rgb;
        // What takes the time itself is what one looks for.
        let font_size = 8.0 + 1.6 * self.percent(*own).sqrt();
        format!(
            "f{id} [label={}, tooltip={}, fillcolor=\"#{red:02x}{green:02x}{blue:02x}\", fontsize={font_size:.1}{shape}];",
            quoted(&label),
            quoted(&format!("{name}{}", place(|file| file))),
        )
    }

    fn edge(&self, recording: &Recording, (caller, callee): (FunctionId, FunctionId), edge: &Edge) -> String {
        let module = |id: FunctionId| recording.functions[id as usize].module;
        let crosses = module(caller).zip(module(callee)).is_some_and(|(one, other)| one != other);
        let marked = if crosses { ", color=\"#c03030\", fontcolor=\"#c03030\"" } else { "" };
        let style = if edge.is_direct { "" } else { ", style=dotted" };
        let label = format!("{}\n{}", amount(recording, edge.sum), samples(edge.sum));
        let width = 1.0 + self.percent(edge.sum) / 20.0;
        format!("f{caller} -> f{callee} [label={}, penwidth={width:.1}{marked}{style}];", quoted(&label))
    }
}

fn nodes(recording: &Recording, stacks: &BTreeMap<StackId, Sum>) -> BTreeMap<FunctionId, Node> {
    let mut nodes = BTreeMap::<FunctionId, Node>::new();
    for (stack, sum) in stacks {
        let leaf_first: Vec<FunctionId> = recording.lines_of(*stack).map(|line| line.function).collect();
        nodes.entry(leaf_first[0]).or_default().own.add(*sum);
        // Recursion counts once.
        for function in leaf_first.into_iter().collect::<BTreeSet<_>>() {
            nodes.entry(function).or_default().total.add(*sum);
        }
    }
    nodes
}

/// Calls among `nodes`.
fn edges(
    recording: &Recording,
    stacks: &BTreeMap<StackId, Sum>,
    nodes: &BTreeMap<FunctionId, Node>,
) -> BTreeMap<(FunctionId, FunctionId), Edge> {
    let mut edges = BTreeMap::<(FunctionId, FunctionId), Edge>::new();
    for (stack, sum) in stacks {
        let functions = recording.lines_of(*stack).map(|line| line.function).enumerate();
        let leaf_first: Vec<(usize, FunctionId)> = functions.filter(|(_, id)| nodes.contains_key(id)).collect();
        let mut seen = BTreeSet::new();
        for pair in leaf_first.windows(2) {
            let [(below, callee), (above, caller)] = [pair[0], pair[1]];
            let edge = edges.entry((caller, callee)).or_default();
            edge.is_direct |= above == below + 1;
            if seen.insert((caller, callee)) {
                edge.sum.add(*sum);
            }
        }
    }
    edges
}

fn amount(recording: &Recording, sum: Sum) -> String {
    match recording.part {
        None => format!("{:.1} ms", sum.time_ns as f64 / 1e6),
        Some(_) => bytes(sum.time_ns as f64),
    }
}

fn samples(sum: Sum) -> String {
    count_of(sum.samples, "sample")
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(NAME_WIDTH) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// A string of DOT that is `text`, line by line.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('&', "&amp;").replace('\n', "\\n");
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_recording::example;

    fn drawn(recording: &Recording) -> String {
        let mut dot = Vec::new();
        CallGraph.export(recording, Path::new("/x.dot"), &mut dot).unwrap();
        String::from_utf8(dot).unwrap()
    }

    /// The lines of nodes and of edges.
    fn parts(dot: &str) -> (Vec<&str>, Vec<&str>) {
        let lines = dot.lines().map(str::trim).filter(|line| line.starts_with('f') && line.contains(" [label="));
        lines.partition(|line| !line.split(" [").next().unwrap().contains("->"))
    }

    #[test]
    fn functions_and_calls_have_the_recordings_times() {
        let recording = example();
        let dot = drawn(&recording);
        let (nodes, edges) = parts(&dot);
        assert_eq!(nodes.len(), recording.functions.len());
        let of = |name: &str| *nodes.iter().find(|node| node.contains(&format!("label=\"{name}\\n"))).unwrap();
        // A generator that runs itself: its line counts once.
        let generator = of("Shop.price.<locals>.<genexpr>");
        assert!(
            generator.contains("\\napp/shop.py:6\\nself 0.0 ms (0.0 %)\\ntotal 6.0 ms (46.2 %)\\n5 samples\""),
            "{generator}"
        );
        let host_call = of("wasi_snapshot_preview1.fd_write");
        assert!(host_call.contains("self 2.0 ms") && host_call.contains("shape=ellipse"), "{host_call}");
        let edge = |from: &str, to: &str| {
            let ends = format!("{} -> {} ", from.split(' ').next().unwrap(), to.split(' ').next().unwrap());
            edges.iter().find(|edge| edge.starts_with(&ends)).map(|edge| (*edge).to_owned())
        };
        let write = edge(generator, host_call).unwrap();
        assert!(write.contains("label=\"2.0 ms\\n2 samples\""), "{write}");
        let into_library = edge(generator, of("shapes::outer")).unwrap();
        assert!(into_library.contains("color=\"#c03030\"") && !write.contains("color="), "{into_library}");
        assert_eq!(edge(host_call, generator), None);
        assert!(!dot.contains("left out") && !dot.contains("dotted"));
    }

    #[test]
    fn what_is_small_is_left_out_and_told_of() {
        let mut recording = example();
        // All but one sample stand for next to nothing.
        for thread in &mut recording.threads {
            let weighed = |sample: wlprof_recording::Sample| {
                let period_ns = if sample.stack == 3 { 1_000_000_000 } else { 1_000 };
                wlprof_recording::Sample { period_ns, ..sample }
            };
            thread.samples = thread.samples.iter().map(weighed).collect();
        }
        let dot = drawn(&recording);
        let (nodes, _) = parts(&dot);
        let shown: BTreeSet<FunctionId> = recording.lines_of(3).map(|line| line.function).collect();
        assert_eq!(nodes.len(), shown.len());
        let left_out = recording.functions.len() - shown.len();
        assert!(dot.contains(&format!("left out: {left_out} functions with less than 0.5 %")), "{dot}");
    }

    #[test]
    fn no_text_ends_its_string_or_has_graphviz_put_something_in_its_place() {
        let mut recording = example();
        let names = ["\";//", "\\", "\\\"", "\\G\\N\\l", "&lt;b&gt;", "]; f1 -> f2; }", "a\nb", "<<b>x</b>>"];
        for (function, name) in recording.functions.iter_mut().zip(names.iter().cycle()) {
            function.name = (*name).to_owned();
            function.file = Some((*name).to_owned());
        }
        recording.modules.iter_mut().for_each(|module| module.name = names[0].to_owned());
        recording.meta.guest = names[1].to_owned();
        let dot = drawn(&recording);
        for line in dot.lines() {
            let without_escapes = line.replace("\\\\", "").replace("\\\"", "");
            assert!(without_escapes.matches('"').count().is_multiple_of(2), "{line}");
            assert!(without_escapes.split('\\').skip(1).all(|after| after.starts_with('n')), "{line}");
            assert!(without_escapes.split('&').skip(1).all(|after| after.starts_with("amp;")), "{line}");
        }
        assert_eq!(quoted("\\G \"&lt;\"\n"), r#""\\G \"&amp;lt;\"\n""#);
    }
}
