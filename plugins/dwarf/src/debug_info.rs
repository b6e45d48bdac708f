//! The DWARF of a module: which functions, inlined calls and lines stand behind a code offset.

use crate::{
    bodies::Bodies,
    budget::{self, Fault},
    category::categorize,
    function::{self, Function, UnitFit},
    inlined::{InlinedCall, InlinedCalls},
    line::{self, Row, Sequence},
    names::{self, Names},
    sections::Reader,
    unit::{FunctionName, Units},
};
use gimli::UnitOffset;
use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    sync::Arc,
};
use wlprof_plugin::{Budget, Category, SourceFrame, WasmFrame};

/// What is shown for an inlined function that has no name.
const NAMELESS: &str = "<inlined function>";
/// What stands for inlined functions that are left out.
const LEFT_OUT: &str = "[truncated]";
/// How much of a path decides what kind of code is there. Rules name folders of toolchains, and those are near its start.
const CATEGORIZED: usize = 1024;

/// The index of a module's DWARF. Units are read when a frame first falls into one.
pub(crate) struct DebugInfo {
    units: Units,
    /// Bodies and the units that say they cover them, ascending.
    by_body: Vec<(usize, usize)>,
    /// Units that do not say what they cover.
    anywhere: Vec<usize>,
    read: Vec<bool>,
    /// File tables of the line programs that were run, by where these are. Several units may name one.
    headers: HashMap<usize, gimli::LineProgramHeader<Reader>>,
    lines_read: HashSet<usize>,
    functions: HashMap<usize, Vec<Function>>,
    sequences: HashMap<usize, Vec<Sequence>>,
    inlined: HashMap<(usize, UnitOffset), Arc<InlinedCalls>>,
    names: HashMap<(usize, UnitOffset), Arc<FunctionName>>,
    /// Paths of files by unit and number. The same few are asked for with every frame.
    paths: HashMap<(usize, u64), Option<String>>,
    budget: Budget,
    lines_budget: Budget,
    damage: Damage,
}

/// What could not be read or was not believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) units: usize,
    pub(crate) line_programs: usize,
    /// Units that describe other code than the module has.
    pub(crate) stale_units: usize,
    /// How the functions of those fit, all together.
    pub(crate) stale: UnitFit,
    pub(crate) split: usize,
    /// Places with more inlined calls than are shown.
    pub(crate) deep_places: usize,
    /// Whether reading was given up.
    pub(crate) budget: bool,
    /// Whether reading line tables was given up.
    pub(crate) lines_budget: bool,
}

/// A place in a source file.
#[derive(Clone, Copy, Debug)]
struct Place {
    file: Option<u64>,
    line: Option<u32>,
    column: Option<u32>,
}

impl From<Row> for Place {
    fn from(row: Row) -> Self {
        let known = |number| (number > 0).then_some(number);
        let line = known(row.line);
        Self { file: Some(u64::from(row.file)), line, column: line.and(known(row.column)) }
    }
}

impl From<InlinedCall> for Place {
    fn from(call: InlinedCall) -> Self {
        Self { file: call.call_file, line: call.call_line, column: call.call_column }
    }
}

impl DebugInfo {
    pub(crate) fn new(dwarf: gimli::Dwarf<Reader>, size: usize, bodies: &Bodies) -> Self {
        let mut budget = budget::for_sections(size);
        let mut units = Units::parse(dwarf, &mut budget);
        let mut by_body: Vec<(usize, usize)> = Vec::new();
        let mut anywhere = Vec::new();
        for (index, unit) in units.all.iter_mut().enumerate() {
            let Some(ranges) = unit.ranges.take() else {
                anywhere.push(index);
                continue;
            };
            for range in ranges {
                let touched = bodies.touching(range.begin, range.end);
                if budget.spend(touched.len().saturating_mul(size_of::<(usize, usize)>())).is_ok() {
                    by_body.extend(touched.map(|body| (body, index)));
                }
            }
        }
        by_body.sort_unstable();
        by_body.dedup();
        let read = vec![false; units.all.len()];
        let damage = Damage { units: units.broken, split: units.split, ..Damage::default() };
        Self {
            units,
            by_body,
            anywhere,
            read,
            headers: HashMap::new(),
            lines_read: HashSet::new(),
            functions: HashMap::new(),
            sequences: HashMap::new(),
            inlined: HashMap::new(),
            names: HashMap::new(),
            paths: HashMap::new(),
            budget,
            lines_budget: budget::for_lines(size),
            damage,
        }
    }

    pub(crate) fn damage(&self) -> Damage {
        Damage { budget: self.budget.is_spent(), lines_budget: self.lines_budget.is_spent(), ..self.damage }
    }

    /// Appends the frames at `frame`, innermost inlined function first. Nothing, if the DWARF does not know it.
    pub(crate) fn frames(&mut self, frame: WasmFrame, bodies: &Bodies, names: &mut Names, out: &mut Vec<SourceFrame>) {
        let Some(body) = bodies.of_function(frame.function, frame.code_offset) else { return };
        self.read_units_of(body, bodies);
        let function = self.function_at(body, frame, names, bodies);
        let Some((unit, row)) = self.row_at(body, frame.code_offset, function.as_ref().map(|function| function.unit))
        else {
            let Some(function) = function else { return };
            return self.push_chain(&function, frame, None, names, out);
        };
        match function {
            Some(function) if function.unit == unit => {
                self.push_chain(&function, frame, Some(row.into()), names, out);
            }
            Some(function) => self.push_chain(&function, frame, None, names, out),
            None => {
                let frame = names.frame(frame.function);
                out.push(self.placed(frame, unit, Some(row.into()), &FunctionName::default()));
            }
        }
    }

    /// Reads the units that may know a body, once.
    fn read_units_of(&mut self, body: usize, bodies: &Bodies) {
        let first = self.by_body.partition_point(|&(other, _)| other < body);
        let covering = self.by_body[first..].iter().take_while(|&&(other, _)| other == body).map(|&(_, unit)| unit);
        let wanted: Vec<_> = covering.chain(self.anywhere.drain(..)).collect();
        for unit in wanted {
            if !std::mem::replace(&mut self.read[unit], true) {
                self.read_unit(unit, bodies);
            }
        }
    }

    fn read_unit(&mut self, unit: usize, bodies: &Bodies) {
        let mut found = function::UnitFunctions::default();
        let read = function::functions(&self.units, unit, bodies, &mut self.budget, &mut found);
        self.damage.units += usize::from(read == Err(Fault::Broken));
        if found.fit.is_stale() {
            return self.leave_out(found.fit);
        }
        if found.is_doubtful() {
            return;
        }
        let has_functions = found.fit != UnitFit::default();
        for (body, function) in found.functions {
            self.functions.entry(body).or_default().push(function);
        }
        let Some(offset) = self.units.all[unit].lines else { return };
        if !self.lines_read.insert(offset.0) {
            return;
        }
        let mut lines = line::Lines::default();
        let read = line::lines(&self.units, unit, offset, bodies, &mut self.lines_budget, &mut lines);
        self.damage.line_programs += usize::from(read == Err(Fault::Broken));
        if !has_functions && lines.fit.is_stale() {
            return self.leave_out(lines.fit);
        }
        for (body, sequence) in lines.sequences {
            self.sequences.entry(body).or_default().push(sequence);
        }
        self.headers.extend(lines.header.map(|header| (offset.0, header)));
    }

    /// Counts a unit of which nothing is shown.
    fn leave_out(&mut self, fit: UnitFit) {
        self.damage.stale_units += 1;
        self.damage.stale.fitting += fit.fitting;
        self.damage.stale.stray += fit.stray;
    }

    /// The function whose code at `offset` is. A body has one; where the DWARF has several, all but one are dead
    /// functions whose stale addresses happen to fall inside: the one that is the whole body is preferred, then the
    /// one that the linker calls so, then the larger.
    fn function_at(&mut self, body: usize, frame: WasmFrame, names: &mut Names, bodies: &Bodies) -> Option<Function> {
        let whole = bodies.range(body);
        let here = self.functions.get(&body)?;
        // Compilers leave one, and linkers a few.
        self.budget.spend(here.len() - 1).ok()?;
        let mut fitting: Vec<_> =
            here.iter().filter(|function| function.range.contains(&frame.code_offset)).cloned().collect();
        if fitting.len() > 1 {
            let linker_name = names.linkage(frame.function);
            fitting.sort_by_cached_key(|function| {
                let name = self.name(function.unit, function.die);
                let is_called = |(linker_name, name): (&Arc<str>, &str)| names.is_called(linker_name, name);
                let is_named = linker_name.as_ref().zip(name.linkage()).is_some_and(is_called);
                (function.range != whole, !is_named, Reverse(function.range.len()))
            });
        }
        fitting.into_iter().next()
    }

    /// The line row for `offset` from the sequence that fits the body best, of the function's unit if possible.
    fn row_at(&mut self, body: usize, offset: u32, unit: Option<usize>) -> Option<(usize, Row)> {
        let sequences = self.sequences.get(&body)?;
        self.budget.spend(sequences.len() - 1).ok()?;
        let program = |unit: usize| self.units.all.get(unit)?.lines;
        let wanted = unit.and_then(program);
        let rows = sequences.iter().filter_map(|sequence| Some((sequence, sequence.row(offset)?)));
        let is_other = |sequence: &Sequence| wanted.is_none() || program(sequence.unit) != wanted;
        let (sequence, row) = rows.min_by_key(|(sequence, _)| (is_other(sequence), sequence.fit))?;
        // Of the units that name this program, the function's own knows the folder that its paths begin at.
        Some((unit.filter(|_| !is_other(sequence)).unwrap_or(sequence.unit), row))
    }

    fn push_chain(
        &mut self,
        function: &Function,
        frame: WasmFrame,
        mut place: Option<Place>,
        names: &mut Names,
        out: &mut Vec<SourceFrame>,
    ) {
        let key = (function.unit, function.die);
        let inlined = match self.inlined.get(&key) {
            Some(inlined) => Arc::clone(inlined),
            None => {
                let inlined = Arc::new(InlinedCalls::read(&self.units, function, &mut self.budget));
                self.inlined.insert(key, Arc::clone(&inlined));
                inlined
            }
        };
        let chain = inlined.at(frame.code_offset);
        for call in chain.calls {
            let name = self.name(function.unit, call.die);
            let named = source_frame(&name, names).unwrap_or_else(|| names.named(NAMELESS));
            out.push(self.placed(named, function.unit, place, &name));
            place = Some((*call).into());
        }
        if let Some(outermost) = chain.outermost {
            self.damage.deep_places += 1;
            out.push(SourceFrame { function: LEFT_OUT.to_owned(), ..SourceFrame::default() });
            place = Some((*outermost).into());
        }
        let name = self.name(function.unit, function.die);
        let linker_name = names.linkage(frame.function);
        // DWARF cut down to line tables has plain names alone: `fmt`, hundreds of times.
        let qualified = linker_name.clone().filter(|linker| name.linkage.is_none() && names.is_qualified(linker));
        let mut named = match qualified {
            Some(linker_name) => names.named(&linker_name),
            None => source_frame(&name, names).unwrap_or_else(|| names.frame(frame.function)),
        };
        let linker_name = linker_name.filter(|name| **name != *named.function);
        named.linkage_name = named.linkage_name.or_else(|| linker_name.map(|name| names::shorten(&name)));
        out.push(self.placed(named, function.unit, place, &name));
    }

    fn name(&mut self, unit: usize, die: UnitOffset) -> Arc<FunctionName> {
        if let Some(name) = self.names.get(&(unit, die)) {
            return Arc::clone(name);
        }
        let name = Arc::new(self.units.function_name(unit, die, &mut self.budget));
        self.names.insert((unit, die), Arc::clone(&name));
        name
    }

    /// Code without a line is the compiler's, and the file of its row that of whatever code stood there before. The file
    /// that the function was declared in says more.
    fn placed(
        &mut self,
        mut frame: SourceFrame,
        unit: usize,
        place: Option<Place>,
        declared: &FunctionName,
    ) -> SourceFrame {
        let row_file = place.and_then(|place| Some((unit, place.file?)));
        let line = place.and_then(|place| place.line);
        let files = if line.is_some() { [row_file, declared.file] } else { [declared.file, row_file] };
        frame.file = files.into_iter().flatten().find_map(|(unit, file)| self.path(unit, file));
        // A line goes with its file: code included from elsewhere has another.
        let is_declared_here = declared.file.and_then(|(unit, file)| self.path(unit, file)) == frame.file;
        frame.function_line = declared.line.filter(|_| is_declared_here);
        frame.line = line;
        frame.column = place.and_then(|place| place.column);
        frame.category = match &frame.file {
            Some(file) => categorize(&frame.function, Some(&file[..file.floor_char_boundary(CATEGORIZED)])),
            None => self.category_of_unit(&frame.function, unit),
        };
        frame
    }

    /// Without a file the unit's name, which is its main file, is the next best.
    fn category_of_unit(&self, function: &str, unit: usize) -> Category {
        let unit = self.units.all.get(unit).and_then(|unit| unit.dies.name.as_ref());
        let unit = unit.map(|name| String::from_utf8_lossy(&name.bytes()[..name.bytes().len().min(CATEGORIZED)]));
        match unit.map(|unit| categorize(function, Some(&unit))) {
            None | Some(Category::User) => categorize(function, None),
            Some(category) => category,
        }
    }

    fn path(&mut self, unit: usize, file: u64) -> Option<String> {
        let header = self.headers.get(&self.units.all.get(unit)?.lines?.0)?;
        let path = self.paths.entry((unit, file));
        path.or_insert_with(|| line::path(&self.units, unit, header, file, &mut self.budget)).clone()
    }
}

/// The linker's name is preferred where it says more than the plain one: `shapes::Square::area()` for `area`, Zig's
/// `main.parse` for `parse`. `main` itself it knows as `__main_argc_argv`.
fn source_frame(name: &FunctionName, names: &mut Names) -> Option<SourceFrame> {
    let linkage = name.linkage()?;
    let mut frame = names.named(linkage);
    if let Some(plain) = &name.plain
        && frame.linkage_name.is_none()
        && plain != linkage
        && !linkage.strip_suffix(plain.as_str()).is_some_and(|scope| scope.ends_with('.'))
    {
        frame.linkage_name = Some(frame.function);
        frame.function = plain.clone();
    }
    Some(frame)
}
