//! Stacks of the Go runtime's own heap profiler as frames: what allocated, and its callers.
//!
//! The runtime has written them down with inlined calls expanded, one pc for each, and every pc is one block past what it
//! stands for. A frame is a pc with all that was inlined there, as in the stacks that are walked. So the pcs of the calls
//! that a frame has inlined are left out after it.
//!
//! The runtime cuts deep stacks off at the root: after 32 pcs until Go 1.22, after 128 since.

use crate::{call_sites::Step, code::Code, decoded::DecodedTables, pclntab, symbols::MOST_INLINED};
use std::collections::HashMap;
use wlprof_plugin::{Budget, FrameKey, Truncation};

/// What Go's own profiles leave out at the leaf of a stack: the allocator, and what of the runtime has called it.
const RUNTIME: [&str; 3] = ["runtime.", "internal/runtime/", "runtime/internal/"];
/// So much of a function's name says whether it is that.
const LONGEST_PREFIX: usize = 20;
/// Stacks of fewer pcs are whole in all releases.
const DEPTH_OF_CUT: usize = 32;
/// Pcs that are kept; real programs allocate in some thousands.
const MOST_SITES: usize = 1 << 18;
/// Bytes of names and pcs that are looked at in one profile, which are hundreds for each site.
const WORK: u64 = 1 << 26;
const WORK_OF_A_CALL: usize = 64;

/// What a pc of a stack stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Site {
    frame: u64,
    is_runtime: bool,
    /// The pcs that come after it if nothing is left out: of the calls around it that are of the same function.
    around: Box<[u64]>,
}

/// Makes frames of one profile's stacks.
pub(crate) struct Stacks<'a> {
    code: &'a mut Code,
    tables: &'a mut DecodedTables,
    sites: HashMap<u64, Site>,
    budget: Budget,
}

impl<'a> Stacks<'a> {
    pub(crate) fn new(code: &'a mut Code, tables: &'a mut DecodedTables) -> Self {
        Self { code, tables, sites: HashMap::new(), budget: Budget::new(WORK) }
    }

    /// The frames of a stack of pcs, both leaf first, from what is not the runtime's on; all, if all is the runtime's.
    /// What was cut off at its root is elided.
    pub(crate) fn frames(&mut self, pcs: &[u64]) -> Result<Vec<FrameKey>, Truncation> {
        let mut start = 0;
        while let Some(&pc) = pcs.get(start)
            && self.site(pc)?.is_runtime
        {
            start += 1;
        }
        let mut rest = if start < pcs.len() { &pcs[start..] } else { pcs };
        let mut frames = Vec::new();
        while let Some((&pc, mut next)) = rest.split_first() {
            let site = self.site(pc)?;
            frames.push(FrameKey::Own(site.frame));
            // Go leaves out wrappers, inlined ones as well, so not all need be there.
            let mut around = site.around.iter();
            while let Some((pc, after)) = next.split_first()
                && around.any(|expected| expected == pc)
            {
                next = after;
            }
            rest = next;
        }
        if let Some(&last) = pcs.last()
            && pcs.len() >= DEPTH_OF_CUT
            && self.code.call_site(last).is_none_or(|site| site.step != Step::Root)
        {
            frames.push(FrameKey::Elided);
        }
        Ok(frames)
    }

    fn site(&mut self, pc: u64) -> Result<&Site, Truncation> {
        if !self.sites.contains_key(&pc) {
            let site = self.read(pc)?;
            if self.sites.len() >= MOST_SITES {
                self.sites.clear();
            }
            self.sites.insert(pc, site);
        }
        self.sites.get(&pc).ok_or(Truncation::Inconsistent)
    }

    fn read(&mut self, pc: u64) -> Result<Site, Truncation> {
        let table = &self.code.table;
        let function = table.index(pc).and_then(|index| table.function(index)).ok_or(Truncation::Inconsistent)?;
        let mut pay = |bytes: usize| self.budget.spend(bytes + WORK_OF_A_CALL).map_err(|_| Truncation::TooDeep);
        pay(0)?;
        let mut block = pclntab::block(pc).saturating_sub(1);
        let frame = pclntab::pc(function.index, block);
        let tree = self.code.moduledata.gofunc.and_then(|gofunc| table.inline_tree(&function, gofunc));
        let (mut around, mut innermost) = (Vec::new(), None);
        // As where the frame is given its names.
        for _ in 0..MOST_INLINED {
            let Some(call) = tree.and_then(|tree| table.inlined(self.tables, &function, tree, block)) else { break };
            pay(call.name.len())?;
            innermost.get_or_insert_with(|| is_runtime(&call.name));
            if block == call.parent_block {
                break;
            }
            block = call.parent_block;
            around.push(pclntab::pc(function.index, block.saturating_add(1)));
        }
        let is_runtime = innermost
            .unwrap_or_else(|| table.name_up_to(&function, LONGEST_PREFIX).is_some_and(|name| is_runtime(&name)));
        Ok(Site { frame, is_runtime, around: around.into() })
    }
}

fn is_runtime(name: &str) -> bool {
    RUNTIME.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::Go;
    use wlprof_plugin::testing::TestModule;

    /// A program, and what finds the return address in a function by its name, past the call in a block.
    struct Fixture {
        code: Code,
        tables: DecodedTables,
        names: HashMap<String, u32>,
    }

    impl Fixture {
        fn new(name: &str) -> Self {
            let code = Code::new(Go.attach_program(&TestModule::fixture(name)).unwrap().0.tables.clone());
            let tables = DecodedTables::new(code.table.image.size());
            let names = (0..code.table.len()).map(|index| {
                let function = code.table.function(index).unwrap();
                (code.table.name(&function).unwrap(), index)
            });
            let names = names.collect();
            Self { code, tables, names }
        }

        fn pc(&self, function: &str, block: u32) -> u64 {
            pclntab::pc(self.names[function], block + 1)
        }

        fn frames(&mut self, pcs: &[u64]) -> Result<Vec<u64>, Truncation> {
            let frames = Stacks::new(&mut self.code, &mut self.tables).frames(pcs)?;
            Ok(frames
                .into_iter()
                .map(|frame| if let FrameKey::Own(pc) = frame { pc } else { panic!("not Go's") })
                .collect())
        }

        /// A call in the program's own code with two others inlined around it, as the runtime writes it down.
        fn inlined(&mut self) -> Vec<u64> {
            let own = self.names.iter().filter(|(name, _)| name.starts_with("main.")).map(|(_, index)| *index);
            let pcs = own.flat_map(|index| (1..1000).map(move |block| pclntab::pc(index, block)));
            let mut stacks = Stacks::new(&mut self.code, &mut self.tables);
            let mut sites = pcs.map(|pc| (pc, stacks.read(pc).unwrap()));
            let (pc, site) = sites.find(|(_, site)| site.around.len() == 2 && !site.is_runtime).unwrap();
            [&[pc][..], &site.around].concat()
        }
    }

    #[test]
    fn the_runtime_is_left_out_at_the_leaf_alone() {
        check_leaves([21, 27]);
    }

    #[test]
    fn the_runtime_is_left_out_at_the_leaf_alone_in_every_other_release() {
        check_leaves(22..27);
    }

    fn check_leaves(minors: impl IntoIterator<Item = u32>) {
        for minor in minors {
            let mut guest = Fixture::new(&format!("go-stacks-1.{minor}"));
            let allocator = [guest.pc("runtime.mallocgc", 2), guest.pc("runtime.newobject", 1)];
            let code = [guest.pc("main.main", 3), guest.pc("runtime.main", 4), guest.pc("runtime.goexit", 0)];
            let keys = code.map(|pc| pc - 1);
            assert_eq!(guest.frames(&code).unwrap(), keys, "1.{minor}");
            assert_eq!(guest.frames(&[&allocator[..], &code].concat()).unwrap(), keys, "1.{minor}");
            assert_eq!(guest.frames(&allocator).unwrap(), allocator.map(|pc| pc - 1), "there is nothing else");
            assert_eq!(guest.frames(&[]), Ok(Vec::new()));
        }
    }

    #[test]
    fn a_frame_stands_for_the_calls_inlined_there() {
        check_inlined_calls([21, 27]);
    }

    #[test]
    fn a_frame_stands_for_the_calls_inlined_there_in_every_other_release() {
        check_inlined_calls(22..27);
    }

    fn check_inlined_calls(minors: impl IntoIterator<Item = u32>) {
        for minor in minors {
            for strip in ["", "-stripped"] {
                let mut guest = Fixture::new(&format!("go-stacks-1.{minor}{strip}"));
                let caller = guest.pc("main.main", 3);
                let whole = guest.inlined();
                let key = whole[0] - 1;
                let with = |rest: &[u64]| [rest, &[caller]].concat();
                assert_eq!(guest.frames(&with(&whole)).unwrap(), [key, caller - 1], "1.{minor}{strip}");
                // The runtime leaves out wrappers, and the ends of deep stacks.
                assert_eq!(guest.frames(&with(&whole[..1])).unwrap(), [key, caller - 1]);
                // Cut at the leaf, where frames of the allocator were.
                assert_eq!(guest.frames(&with(&whole[1..])).unwrap(), [whole[1] - 1, caller - 1]);
                // A function that calls itself is there twice.
                let twice = [&whole[..], &whole].concat();
                assert_eq!(guest.frames(&with(&twice)).unwrap(), [key, key, caller - 1]);
            }
        }
    }

    #[test]
    fn what_was_cut_off_at_the_root_is_elided() {
        let mut guest = Fixture::new("go-work-1.27");
        let [callee, root] = [guest.pc("main.plant", 1), guest.pc("runtime.goexit", 0)];
        for (calls, is_cut) in [(31, false), (32, true), (128, true)] {
            let mut pcs = vec![callee; calls];
            let mut stacks = Stacks::new(&mut guest.code, &mut guest.tables);
            assert_eq!(stacks.frames(&pcs).unwrap().last() == Some(&FrameKey::Elided), is_cut, "{calls}");
            pcs[calls - 1] = root;
            assert_eq!(stacks.frames(&pcs).unwrap().last(), Some(&FrameKey::Own(root - 1)));
        }
    }

    #[test]
    fn pcs_of_no_function_are_no_stack() {
        let mut guest = Fixture::new("go-work-1.27");
        let main = guest.pc("main.main", 1);
        let past = pclntab::pc(guest.code.table.len(), 0);
        for pc in [0, 1, 0xfff_ffff, past, u64::MAX] {
            assert_eq!(guest.frames(&[pc, main]), Err(Truncation::Inconsistent), "{pc:#x}");
            assert_eq!(guest.frames(&[main, pc]), Err(Truncation::Inconsistent), "{pc:#x}");
        }
        // Blocks that a function does not have are without inlined calls, and 0 is where nothing returns to.
        let entry = main & !0xffff;
        assert_eq!(guest.frames(&[entry, entry | 0xffff]).unwrap(), [entry, entry | 0xfffe]);
    }

    #[test]
    fn more_pcs_than_programs_have_are_too_many() {
        let guest = Fixture::new("go-work-1.27");
        let Fixture { mut code, mut tables, .. } = guest;
        let mut stacks = Stacks::new(&mut code, &mut tables);
        let functions = stacks.code.table.len();
        let pcs = (0..functions).flat_map(|index| (0..=0xffff).map(move |block| pclntab::pc(index, block)));
        let end = pcs.map(|pc| stacks.frames(&[pc])).find(Result::is_err);
        assert_eq!(end, Some(Err(Truncation::TooDeep)));
        assert!(stacks.sites.len() <= MOST_SITES);
    }
}
