//! Which functions call which, directly, of those that an allocator may come to: each body is read once.

use super::allocators::NotRewritten;
use super::parsed::ModuleParts;
use std::collections::HashSet;

/// The direct calls of the functions that some functions come to.
pub(super) struct Calls {
    /// Of each function of the module; none of those that are imported or not come to.
    callees: Vec<Vec<u32>>,
    /// Functions with the same number here come to each other.
    cycles: Vec<u32>,
}

impl Calls {
    /// Reads what `functions` call, and what that calls.
    pub(super) fn of(
        parsed: &ModuleParts,
        bytes: &[u8],
        functions: impl IntoIterator<Item = u32>,
    ) -> Result<Self, NotRewritten> {
        let count = parsed.function_count() as usize;
        let (mut callees, mut was_met) = (vec![Vec::new(); count], vec![false; count]);
        let mut open: Vec<u32> = functions.into_iter().collect();
        while let Some(function) = open.pop() {
            let Ok(defined) = parsed.defined(function) else { continue };
            if std::mem::replace(&mut was_met[function as usize], true) {
                continue;
            }
            let mut called = parsed.calls(bytes, defined)?;
            // What no function has is for the engine to refuse.
            called.retain(|callee| (*callee as usize) < count);
            called.sort_unstable();
            called.dedup();
            open.extend(called.iter().filter(|callee| !was_met[**callee as usize]));
            callees[function as usize] = called;
        }
        let cycles = cycles(&callees);
        Ok(Self { callees, cycles })
    }

    /// Those of `functions` that come to one of them by a call, themselves among them.
    pub(super) fn reaching(&self, functions: &HashSet<u32>) -> HashSet<u32> {
        let mut callers = vec![Vec::new(); self.callees.len()];
        for (caller, callees) in (0_u32..).zip(&self.callees) {
            callees.iter().for_each(|callee| callers[*callee as usize].push(caller));
        }
        let (mut reaching, mut open) = (vec![false; self.callees.len()], Vec::new());
        open.extend(functions.iter().copied().filter(|function| (*function as usize) < callers.len()));
        while let Some(function) = open.pop() {
            for caller in std::mem::take(&mut callers[function as usize]) {
                if !std::mem::replace(&mut reaching[caller as usize], true) {
                    open.push(caller);
                }
            }
        }
        let reaches = |function: &u32| reaching.get(*function as usize) == Some(&true);
        functions.iter().copied().filter(reaches).collect()
    }

    /// Whether `callee`, which `caller` calls, is `caller` or comes back to it.
    pub(super) fn comes_back(&self, caller: u32, callee: u32) -> bool {
        let cycle = |function: u32| self.cycles.get(function as usize);
        caller == callee || cycle(caller).is_some() && cycle(caller) == cycle(callee)
    }
}

/// For each node of a graph the number of its strongly connected component, by Tarjan's algorithm, without recursion.
fn cycles(edges: &[Vec<u32>]) -> Vec<u32> {
    const UNSEEN: u32 = u32::MAX;
    let (mut order, mut low) = (vec![UNSEEN; edges.len()], vec![0; edges.len()]);
    let (mut component, mut components) = (vec![UNSEEN; edges.len()], 0);
    let (mut next, mut stack, mut path) = (0, Vec::new(), Vec::new());
    for start in 0..edges.len() {
        if order[start] == UNSEEN {
            path.push((start, 0));
        }
        while let Some((node, edge)) = path.last_mut() {
            let node = *node;
            if *edge == 0 && order[node] == UNSEEN {
                (order[node], low[node]) = (next, next);
                next += 1;
                stack.push(node);
            }
            if let Some(target) = edges[node].get(*edge).map(|target| *target as usize) {
                *edge += 1;
                if order[target] == UNSEEN {
                    path.push((target, 0));
                } else if component[target] == UNSEEN {
                    low[node] = low[node].min(order[target]);
                }
                continue;
            }
            path.pop();
            if let Some((caller, _)) = path.last() {
                low[*caller] = low[*caller].min(low[node]);
            }
            if low[node] == order[node] {
                while let Some(member) = stack.pop() {
                    component[member] = components;
                    if member == node {
                        break;
                    }
                }
                components += 1;
            }
        }
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether there is a way of one edge or more.
    fn leads(edges: &[Vec<u32>], from: u32, to: u32) -> bool {
        let (mut seen, mut open) = (HashSet::new(), vec![from]);
        while let Some(node) = open.pop() {
            open.extend(edges[node as usize].iter().filter(|target| seen.insert(**target)));
        }
        seen.contains(&to)
    }

    #[test]
    fn cycles_and_what_leads_to_an_allocator_are_those_that_a_search_finds() {
        // A generator of numbers that are as good as random here.
        let mut state = 7_u32;
        let mut number = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        for round in 0..200 {
            let count = 1 + number(12);
            let callees: Vec<Vec<u32>> = (0..count).map(|_| (0..number(4)).map(|_| number(count)).collect()).collect();
            let cycles = cycles(&callees);
            let calls = Calls { callees, cycles };
            let allocating: HashSet<u32> = (0..count).filter(|_| number(3) == 0).collect();
            let reaching = calls.reaching(&allocating);
            for from in 0..count {
                let reaches = allocating.iter().any(|to| leads(&calls.callees, from, *to));
                let expected = allocating.contains(&from) && reaches;
                assert_eq!(reaching.contains(&from), expected, "{round}: {from} of {:?}", calls.callees);
                for to in &calls.callees[from as usize] {
                    let comes_back = *to == from || leads(&calls.callees, *to, from);
                    assert_eq!(calls.comes_back(from, *to), comes_back, "{round}: {from} {to} {:?}", calls.callees);
                }
            }
        }
    }
}
