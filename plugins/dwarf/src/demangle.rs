//! Mangled names to those of their languages, Rust and C++, for a bounded price.
//!
//! A mangled name is a program: it refers back to its own parts, so that a hundred bytes stand for more text than there is
//! memory, and where its grammar is ambiguous, `cpp_demangle` tries one reading after the other, so that sixty bytes keep
//! it busy for minutes. The text is bounded as it is written. The tries are bounded by how deep the parser may go, as
//! nothing else stops it: [`Ambiguities`] foretell what they may cost. And the names of a module are paid for from
//! one [`Budget`].

use std::{collections::HashMap, fmt, fmt::Write as _, sync::Arc};
use wlprof_plugin::Budget;

/// The longest name that is read or written. C++ templates reach a few thousand characters; more is a mistake or an
/// attack.
pub(crate) const LONGEST: usize = 16 << 10;

/// How deep a C++ name may be nested. The names of clang, which are as deep as programs' get, take 44.
const DEEPEST: u32 = 96;
/// How much deeper the parser is when it has come from one part that it tries in two ways to the next within it, at least.
const STEPS_TO_A_PART: u32 = 4;
/// The same, if that is a template parameter in a conversion.
const STEPS_TO_A_PARAMETER: u32 = 3;
/// The same, if that is an operator in an expression.
const STEPS_TO_AN_OPERATOR: u32 = 1;
/// The most that one name may cost: bytes, times the readings tried. A unit is some forty calls in the parser.
const DEAREST: usize = 1 << 20;

/// What a name costs at least if it turns out not to be one: the foretelling may be wrong. Compilers' names are names.
const FAILURE: usize = 1 << 16;

/// What a module's names may cost for each byte of theirs, and at least.
const FACTOR: u64 = 8;
const FLOOR: u64 = 4 << 20;

/// Demangles the names of one module, each once.
#[derive(Debug)]
pub(crate) struct Demangler {
    known: HashMap<Box<str>, Option<Arc<str>>>,
    budget: Budget,
    is_any_too_deep: bool,
}

impl Demangler {
    /// For a module whose sections with names have `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { known: HashMap::new(), budget: Budget::for_input(bytes, FACTOR, FLOOR), is_any_too_deep: false }
    }

    /// `name` in the terms of its language (Rust, without the hash, or C++), if it is mangled and not too dear.
    pub(crate) fn demangle(&mut self, name: &str) -> Option<Arc<str>> {
        if name.len() > LONGEST || !is_mangled(name) {
            return None;
        }
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        self.budget.spend(name.len()).ok()?;
        let mut out = BoundedText::default();
        let is_whole = demangle_rust(name, &mut out) || self.demangle_cpp(name, &mut out);
        // `_ZNE` is nothing at all to `rustc_demangle`, which takes no number of parts for too few.
        let is_whole = is_whole && !out.text.is_empty();
        // It has been written, so it is of use, even if it was the last.
        let _ = self.budget.spend(out.written);
        let demangled = is_whole.then(|| Arc::from(out.text));
        self.known.insert(name.into(), Option::clone(&demangled));
        demangled
    }

    fn demangle_cpp(&mut self, name: &str, out: &mut BoundedText) -> bool {
        if !name.starts_with("_Z") && !name.starts_with("__Z") {
            return false;
        }
        let reading = affordable_reading(name);
        let options = cpp_demangle::ParseOptions::default().recursion_limit(reading.deepest);
        let symbol = cpp_demangle::Symbol::new_with_options(name, &options);
        self.is_any_too_deep |= symbol.is_err() && reading.deepest < DEEPEST;
        let cost = if symbol.is_ok() { reading.cost_if_whole } else { reading.cost.max(FAILURE) };
        let (Ok(symbol), Ok(())) = (symbol, self.budget.spend(cost)) else { return false };
        out.text.clear();
        symbol.structured_demangle(out, &cpp_demangle::DemangleOptions::default()).is_ok()
    }

    /// Whether names were left as they are for want of budget.
    pub(crate) fn gave_up(&self) -> bool {
        self.is_any_too_deep || self.budget.is_spent()
    }
}

/// Only what begins as names of functions do: without that `f` is the type `float` to a demangler, and `i` is `int`.
fn is_mangled(name: &str) -> bool {
    ["_Z", "__Z", "_R", "__R", "ZN", "R"].iter().any(|start| name.starts_with(start))
}

fn demangle_rust(name: &str, out: &mut BoundedText) -> bool {
    // `#` leaves out the hash.
    rustc_demangle::try_demangle(name).is_ok_and(|symbol| write!(out, "{symbol:#}").is_ok())
}

/// How `cpp_demangle` may be asked to read a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    /// How deep it may go.
    deepest: u32,
    /// Bytes, times the readings that may be tried before the name turns out not to be one.
    cost: usize,
    /// The same for a name that is one.
    cost_if_whole: usize,
}

/// As deep as `name` can be read for [`DEAREST`].
fn affordable_reading(name: &str) -> Reading {
    let ambiguities = Ambiguities::count(name.as_bytes());
    let affordable = (DEAREST / name.len().max(1)).max(1).ilog2();
    let all = ambiguities.parts + ambiguities.parameters + ambiguities.operators;
    let steps = if ambiguities.operators > 0 {
        STEPS_TO_AN_OPERATOR
    } else if ambiguities.parameters > 0 {
        STEPS_TO_A_PARAMETER
    } else {
        STEPS_TO_A_PART
    };
    Reading {
        deepest: if all > affordable { (affordable * steps).min(DEEPEST) } else { DEEPEST },
        cost: name.len() << all.min(affordable),
        cost_if_whole: name.len() << ambiguities.parameters.min(affordable),
    }
}

/// How many parts of a name are tried in two ways, so that what is within them is read twice. It is a bound: all bytes
/// are looked at, those of identifiers, too.
#[derive(Debug, Default)]
struct Ambiguities {
    /// Substitutions with template arguments (`S_I`); where the name of a function or a type may stand, operators that
    /// convert, lambdas and inherited constructors (`cv`, `Ul`, `CI1`); literals and names that only their file knows
    /// (`LN`, `L1`). They are read again only if there is an error in them.
    parts: u32,
    /// In names with a conversion, template parameters with arguments (`T_I`), which are always read again.
    parameters: u32,
    /// In names with an expression, `new` and `delete` (`nw`, `na`, `dl`, `da`).
    operators: u32,
}

impl Ambiguities {
    fn count(name: &[u8]) -> Self {
        let mut found = Self::default();
        let (mut has_conversion, mut has_expression) = (false, false);
        for (at, pair) in name.windows(2).enumerate() {
            let (before, after) = (&name[..at], &name[at + 2..]);
            match pair {
                b"cv" => {
                    has_conversion = true;
                    found.parts += u32::from(may_begin_name(before));
                }
                b"Ul" => found.parts += u32::from(may_begin_name(before)),
                b"CI" => found.parts += u32::from(matches!(after.first(), Some(b'1'..=b'4'))),
                [b'C', b'1'..=b'4'] => found.parts += u32::from(after.starts_with(b"I")),
                // Both a literal and a name that only its file knows.
                [b'L', b'0'..=b'9'] => found.parts += 2,
                // Types of one letter cannot be mistaken.
                [b'L', b'A'..=b'Z' | b'r' | b'u'] => found.parts += 1,
                b"_I" => {
                    let is_number = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'A'..=b'R' | b'U'..=b'Z');
                    match before.iter().rev().find(|byte| !is_number(byte)) {
                        Some(b'S') => found.parts += 1,
                        Some(b'T') => found.parameters += 1,
                        _ => {}
                    }
                }
                [b'a'..=b'z', b'I'] => found.parts += u32::from(before.ends_with(b"S")),
                b"nw" | b"na" | b"dl" | b"da" => {
                    found.operators += u32::from(after.starts_with(b"_") || may_begin_expression(after));
                }
                // Expressions stand in template arguments, types and the sizes of arrays and vectors.
                [b'X', _] | [b'D', b'T' | b't' | b'O' | b'B' | b'U'] => has_expression = true,
                [b'A' | b'v', _] => has_expression |= may_begin_expression(&name[at + 1..]),
                _ => {}
            }
        }
        if !has_conversion {
            found.parameters = 0;
        }
        if !has_expression {
            found.operators = 0;
        }
        found
    }
}

/// How expressions begin that are not parameters, literals or names: operators, casts, calls.
const EXPRESSIONS: &[u8] =
    b"aNaSaaadanatazccclcmcocvdVdadcdedldndsdtdveOeoeqfLfRflfpfrgegsgtilixlSlelilsltmImLmimlmmnanengnt\
    nwnxoRonooorpLplpmpppsptqurMrSrcrmrssPsZscsospsrssstsztetitltrtw";

/// Whether the name of a function or a type may stand behind `before`.
fn may_begin_name(before: &[u8]) -> bool {
    matches!(
        before,
        [.., b'Z' | b'E' | b'_' | b'R' | b'V' | b'H' | b'W']
            | [.., b'S', b't']
            | [.., b'T', b's' | b'u' | b'e']
            | [.., b'o', b'n']
    )
}

/// Whether an expression may begin with `text`.
fn may_begin_expression(text: &[u8]) -> bool {
    match text {
        [b'T' | b'L' | b'v' | b'0'..=b'9', ..] => true,
        [first, second, ..] => EXPRESSIONS.chunks_exact(2).any(|code| code == [*first, *second]),
        _ => false,
    }
}

/// Takes no more than [`LONGEST`].
#[derive(Default)]
struct BoundedText {
    text: String,
    /// How much was written altogether.
    written: usize,
}

impl fmt::Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        self.written += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demangle(name: &str) -> Option<Arc<str>> {
        Demangler::new(0).demangle(name)
    }

    #[test]
    fn demangles_what_it_knows_and_leaves_the_rest() {
        let cases = [
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", Some("core::fmt::Formatter::pad")),
            ("_RNvNtCs1234_7mycrate3foo3bar", Some("mycrate::foo::bar")),
            ("_ZN6shapes6Square4areaEv", Some("shapes::Square::area()")),
            (
                "_ZNSt3__16vectorIiNS_9allocatorIiEEE9push_backEOi",
                Some("std::__1::vector<int, std::__1::allocator<int> >::push_back(int&&)"),
            ),
            ("main", None),
            ("f", None),
            ("i", None),
            ("__wasm_call_ctors", None),
            ("_Z", None),
            ("_ZNE", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(demangle(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_name_that_explodes_stays_mangled() {
        // Each parameter is a template of the one before, twice: sixty doublings. A template and its instance take a
        // number each, so the one before has every other.
        let mut name = String::from("_Z1f1aIiiE");
        for level in 0..60 {
            let id = format!("S{}_", base36(2 * level));
            name.push_str(&format!("1aI{id}{id}E"));
        }
        assert_eq!(demangle(&name), None);
    }

    fn base36(number: u32) -> String {
        let digit = |digit: u32| char::from_digit(digit, 36).unwrap().to_ascii_uppercase();
        if number < 36 { digit(number).to_string() } else { format!("{}{}", digit(number / 36), digit(number % 36)) }
    }
}
