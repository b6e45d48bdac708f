//! Who calls a function, and whom it calls.

use super::{Doubt, FunctionId, Recording, Weight};
use std::collections::{BTreeMap, BTreeSet};

/// A function, with its callers and callees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbors {
    /// The function.
    pub function: FunctionId,
    /// Time in which it was the innermost frame.
    pub self_time: Weight,
    /// Of that, what may be another's.
    pub doubt: Doubt,
    /// Time in which it was anywhere on the stack.
    pub total_time: Weight,
    /// Of its total time, what it had been called by, most first. A sample counts once for each caller that its stack has.
    pub callers: Vec<(FunctionId, Weight)>,
    /// Of its total time, what it had called, most first; counted likewise.
    pub callees: Vec<(FunctionId, Weight)>,
}

impl Neighbors {
    /// Those of the functions called `name`, or, if none is called just that, of those with `name` in theirs; most total time
    /// first.
    pub fn of(recording: &Recording, name: &str) -> Vec<Self> {
        let named = |holds: &dyn Fn(&str) -> bool| -> BTreeSet<FunctionId> {
            (0..).zip(&recording.functions).filter(|(_, function)| holds(&function.name)).map(|(id, _)| id).collect()
        };
        let exact = named(&|other| other == name);
        let functions = if exact.is_empty() { named(&|other| other.contains(name)) } else { exact };
        let doubts = recording.doubts();
        let mut sums = BTreeMap::<FunctionId, Sum>::new();
        for (stack, weight) in recording.stack_weights() {
            let lines: Vec<FunctionId> = recording.lines_of(stack).map(|line| line.function).collect();
            for &function in functions.iter().filter(|function| lines.contains(*function)) {
                let sum = sums.entry(function).or_default();
                sum.total_time.add(weight);
                if lines[0] == function {
                    sum.self_time.add(weight);
                    doubts.get(&stack).into_iter().for_each(|doubt| sum.doubt.add(*doubt));
                }
                let pairs = || lines.windows(2).map(|pair| (pair[0], pair[1]));
                let callers: BTreeSet<_> = pairs().filter(|pair| pair.0 == function).map(|pair| pair.1).collect();
                let callees: BTreeSet<_> = pairs().filter(|pair| pair.1 == function).map(|pair| pair.0).collect();
                callers.into_iter().for_each(|caller| sum.callers.entry(caller).or_default().add(weight));
                callees.into_iter().for_each(|callee| sum.callees.entry(callee).or_default().add(weight));
            }
        }
        let mut neighbors: Vec<Self> = sums
            .into_iter()
            .map(|(function, sum)| Self {
                function,
                self_time: sum.self_time,
                doubt: sum.doubt,
                total_time: sum.total_time,
                callers: most_first(sum.callers),
                callees: most_first(sum.callees),
            })
            .collect();
        neighbors.sort_by_key(|one| (std::cmp::Reverse(one.total_time.ns), one.function));
        neighbors
    }
}

#[derive(Default)]
struct Sum {
    self_time: Weight,
    doubt: Doubt,
    total_time: Weight,
    callers: BTreeMap<FunctionId, Weight>,
    callees: BTreeMap<FunctionId, Weight>,
}

fn most_first(weights: BTreeMap<FunctionId, Weight>) -> Vec<(FunctionId, Weight)> {
    let mut weights: Vec<_> = weights.into_iter().collect();
    weights.sort_by_key(|(function, weight)| (std::cmp::Reverse(weight.ns), *function));
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn callers_and_callees_have_their_times() {
        let recording = example();
        let name = |function: FunctionId| recording.functions[function as usize].name.as_str();
        let named = |of: &[(FunctionId, Weight)]| -> Vec<(String, u64)> {
            of.iter().map(|(function, weight)| (name(*function).to_owned(), weight.ns / 1_000_000)).collect()
        };
        let found = Neighbors::of(&recording, "genexpr");
        let [price] = &found[..] else { panic!("{found:?}") };
        assert_eq!((price.self_time.ns, price.total_time.ns), (0, 6_000_000));
        assert_eq!(
            named(&price.callers),
            [("_PyEval_EvalFrameDefault".to_owned(), 6), (name(price.function).to_owned(), 2)]
        );
        let callees = named(&price.callees);
        assert!(callees.contains(&("wasi_snapshot_preview1.fd_write".to_owned(), 2)), "{callees:?}");
        // Two functions of one name are two.
        assert_eq!(Neighbors::of(&recording, "init").len(), 2);
        assert_eq!(Neighbors::of(&recording, "nobody"), []);
    }
}
