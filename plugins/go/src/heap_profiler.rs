//! Where the Go runtime's own heap profiler keeps what it goes by, read from the code that uses it.
//!
//! The profiler is in every Go program. But where `runtime.MemProfile` cannot be reached the linker sets a byte,
//! `runtime.disableMemoryProfiling`, by which `runtime.schedinit` turns the profiler off before the first allocation that
//! could be sampled:
//!
//! ```text
//! i64.const DISABLED  i32.wrap_i64  i64.load8_u  i32.wrap_i64  i32.eqz  if … end…
//! i64.const RATE  i32.wrap_i64  i64.const 0  i64.store
//! ```
//!
//! The list of buckets begins at what `runtime.mProf_FlushLocked` gives to its first call of `atomic.Loadp`, and the size
//! of a cycle's counters in a bucket is what it shifts the number of the cycle by. Variables have no symbols in wasm.

use crate::code::Tables;
use wasmparser::{BinaryReader, FunctionBody, Operator};
use wlprof_plugin::MemoryPatch;

/// `runtime.MemProfileRate` as all programs have it before they run.
const DEFAULT_RATE: u64 = 512 * 1024;
/// Larger bodies are not read: the two that are have a few thousand bytes.
const LARGEST_BODY: usize = 256 << 10;
/// Instructions between the look at the byte and the one of the rate: the branch, as compilers put it.
const LONGEST_BRANCH: usize = 12;
/// Longer names are not the one of `atomic.Loadp`.
const LONGEST_NAME: usize = 64;

/// What a bucket counts in each cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counters {
    /// Blocks allocated and freed, and the bytes of both, until Go 1.26.
    BlocksAndBytes,
    /// Blocks alone: all blocks of a bucket have its size.
    Blocks,
}

/// The profiler's variables, by their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeapProfiler {
    /// `runtime.disableMemoryProfiling`, a byte.
    pub(crate) disabled: u64,
    /// `runtime.MemProfileRate`, an `int`.
    pub(crate) rate: u64,
    /// `runtime.mbuckets`, which points to the first bucket.
    pub(crate) buckets: u64,
    pub(crate) counters: Counters,
}

impl HeapProfiler {
    /// Finds them; else says why not, to go on after a colon.
    pub(crate) fn find(tables: &Tables) -> Result<Self, String> {
        let unlike = |name: &str| format!("{name} is not as in Go 1.21 to 1.27");
        let operators = |name: &str, index: Option<u32>| {
            let bytes = index.and_then(|index| tables.own_body(index));
            let bytes = bytes.ok_or_else(|| format!("the module has no {name}"))?;
            read(bytes).ok_or_else(|| unlike(name))
        };
        let schedinit = operators("runtime.schedinit", tables.special.schedinit)?;
        let (disabled, rate) = switch(&schedinit).ok_or_else(|| unlike("runtime.schedinit"))?;
        let flush = operators("runtime.mProf_FlushLocked", tables.special.flush_heap_profile)?;
        let (buckets, counters) =
            list(&flush, |target| is_loadp(tables, target)).ok_or_else(|| unlike("runtime.mProf_FlushLocked"))?;
        let image = &tables.table.image;
        let before = (image.u8(disabled).unwrap_or(0), image.u64(rate).unwrap_or(0));
        if before.0 > 1 || before.1 != DEFAULT_RATE {
            return Err(format!(
                "the module begins with {} and {} where runtime.disableMemoryProfiling (0 or 1) and \
                 runtime.MemProfileRate ({DEFAULT_RATE}) should be",
                before.0, before.1
            ));
        }
        Ok(Self { disabled, rate, buckets, counters })
    }

    /// What makes it sample an allocation each `rate` bytes. A rate of 0, which would turn it off, is taken as 1.
    pub(crate) fn patches(&self, rate: u64) -> Vec<MemoryPatch> {
        // It is an `int` to the runtime, and below 1 it is off.
        let rate = rate.clamp(1, i64::MAX.cast_unsigned());
        vec![
            MemoryPatch { address: self.disabled, expected: vec![vec![0], vec![1]], bytes: vec![0] },
            MemoryPatch {
                address: self.rate,
                expected: vec![DEFAULT_RATE.to_le_bytes().to_vec()],
                bytes: rate.to_le_bytes().to_vec(),
            },
        ]
    }
}

/// The instructions of a body but for `nop`, with which the compiler marks inlined calls.
fn read(bytes: &[u8]) -> Option<Vec<Operator<'_>>> {
    if bytes.len() > LARGEST_BODY {
        return None;
    }
    let reader = FunctionBody::new(BinaryReader::new(bytes, 0)).get_operators_reader().ok()?;
    let operators: Result<Vec<_>, _> = reader.into_iter().collect();
    Some(operators.ok()?.into_iter().filter(|operator| !matches!(operator, Operator::Nop)).collect())
}

/// An address as a constant. Memory ends at 4 GiB, and nothing is at 0.
fn address(value: i64) -> Option<u64> {
    u32::try_from(value).ok().filter(|&address| address > 0).map(u64::from)
}

/// The addresses of the byte that turns the profiler off and of the rate, if `schedinit` has them in one place alone.
fn switch(schedinit: &[Operator<'_>]) -> Option<(u64, u64)> {
    let mut found = schedinit.windows(3).enumerate().filter_map(|(at, window)| {
        let [Operator::I64Const { value: disabled }, Operator::I32WrapI64, Operator::I64Load8U { memarg }] = window
        else {
            return None;
        };
        let rest = &schedinit[at + window.len()..];
        let branch = rest.iter().take(LONGEST_BRANCH).take_while(|operator| is_of_branch(operator)).count();
        let [
            Operator::I64Const { value: rate },
            Operator::I32WrapI64,
            Operator::I64Const { value: 0 },
            Operator::I64Store { memarg: stored },
            ..,
        ] = rest.get(branch..)?
        else {
            return None;
        };
        let is_conditional = rest[..branch].iter().any(|operator| matches!(operator, Operator::If { .. }));
        let (disabled, rate) = (address(*disabled)?, address(*rate)?);
        (is_conditional && memarg.offset == 0 && stored.offset == 0 && rate % 8 == 0).then_some((disabled, rate))
    });
    let first = found.next();
    first.filter(|first| found.all(|other| other == *first))
}

/// Whether it may be between the condition of an `if` in Go and what it guards.
fn is_of_branch(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::I32WrapI64
            | Operator::I32Eqz
            | Operator::I64Eqz
            | Operator::If { .. }
            | Operator::I32Const { .. }
            | Operator::LocalSet { .. }
            | Operator::Br { .. }
            | Operator::End
    )
}

/// The address of the first bucket's, and what a cycle counts.
fn list(flush: &[Operator<'_>], is_loadp: impl Fn(u32) -> bool) -> Option<(u64, Counters)> {
    let loads = flush.windows(13).enumerate().filter_map(|(at, window)| {
        // The argument, then the return address, and the call.
        let [
            Operator::LocalGet { local_index: 1 },
            Operator::I64Const { value },
            Operator::I64Store { memarg },
            Operator::LocalGet { local_index: 1 },
            Operator::I32Const { value: 8 },
            Operator::I32Sub,
            Operator::LocalTee { local_index: 1 },
            Operator::GlobalSet { global_index: 0 },
            Operator::LocalGet { local_index: 1 },
            Operator::I64Const { .. },
            Operator::I64Store { .. },
            Operator::I32Const { value: 0 },
            Operator::Call { function_index },
        ] = window
        else {
            return None;
        };
        (memarg.offset == 0 && is_loadp(*function_index)).then(|| Some((at + window.len(), address(*value)?)))
    });
    let (after, buckets) = { loads }.next()??;
    let counters = flush[after..].windows(2).find_map(|window| match window {
        [Operator::I64Const { value: 4 }, Operator::I64Shl] => Some(Counters::Blocks),
        [Operator::I64Const { value: 5 }, Operator::I64Shl] => Some(Counters::BlocksAndBytes),
        _ => None,
    })?;
    (buckets % 8 == 0).then_some((buckets, counters))
}

/// Whether a wasm function is `atomic.Loadp`, whose package was moved.
fn is_loadp(tables: &Tables, target: u32) -> bool {
    let function = tables.own_function(target).and_then(|index| tables.table.function(index));
    let name = function.and_then(|function| tables.table.name_up_to(&function, LONGEST_NAME));
    matches!(name.as_deref(), Some("internal/runtime/atomic.Loadp" | "runtime/internal/atomic.Loadp"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::Go;
    use wlprof_plugin::{Program, testing::TestModule};

    fn find(name: &str) -> Result<HeapProfiler, String> {
        Go.attach_program(&TestModule::fixture(name)).unwrap().0.tables.heap_profiler.clone()
    }

    fn check_release(minor: u32) {
        let counters = if minor < 27 { Counters::BlocksAndBytes } else { Counters::Blocks };
        let whole = find(&format!("go-stacks-1.{minor}"));
        assert_eq!(whole, find(&format!("go-stacks-1.{minor}-stripped")), "1.{minor}");
        for other in ["goroutines", "naps"] {
            assert_eq!(find(&format!("go-{other}-1.{minor}")).unwrap().counters, counters, "{other} 1.{minor}");
        }
        assert_eq!(whole.unwrap().counters, counters, "1.{minor}");
    }

    #[test]
    fn it_is_found_stripped_or_not() {
        [21, 27].into_iter().for_each(check_release);
    }

    #[test]
    fn it_is_found_in_every_other_release() {
        (22..27).for_each(check_release);
    }

    /// What the reference found with a disassembler and tried in running guests.
    #[test]
    fn it_is_where_others_have_found_it() {
        check_addresses("go-work-1.21", [0xfc440, 0xf7130, 0xffa28]);
        check_addresses("go-work-1.27", [0x12_8522, 0x12_8570, 0x13_0f30]);
        for name in ["go-bench", "go-export", "go-waits"] {
            assert!(find(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn it_is_where_others_have_found_it_in_every_other_release() {
        check_addresses("go-work-1.24", [0x12_c261, 0x12_c2b8, 0x13_54e0]);
    }

    fn check_addresses(name: &str, addresses: [u64; 3]) {
        let HeapProfiler { disabled, rate, buckets, .. } = find(name).unwrap();
        assert_eq!([disabled, rate, buckets], addresses, "{name}");
    }

    #[test]
    fn a_rate_is_written_as_the_runtime_reads_it() {
        let program = Go.attach_program(&TestModule::fixture("go-work-1.27")).unwrap();
        let rates = [(4096, 4096), (1, 1), (0, 1), (u64::MAX, i64::MAX)];
        for (asked, written) in rates {
            let [switch, rate] = &program.switch_heap_profiler_on(asked)[..] else { panic!("two patches") };
            assert_eq!((switch.address, &switch.bytes[..], switch.expected.len()), (0x12_8522, &[0][..], 2));
            assert_eq!((rate.address, &rate.bytes[..]), (0x12_8570, &i64::to_le_bytes(written)[..]));
            assert_eq!(rate.expected, [524_288_i64.to_le_bytes()]);
        }
        assert!(program.warnings().is_empty());
    }

    #[test]
    fn code_that_does_something_else_is_not_it() {
        let memarg = wasmparser::MemArg { align: 0, max_align: 0, offset: 0, memory: 0 };
        let code = |rate: i64| {
            vec![
                Operator::I64Const { value: 0x1001 },
                Operator::I32WrapI64,
                Operator::I64Load8U { memarg },
                Operator::I32WrapI64,
                Operator::If { blockty: wasmparser::BlockType::Empty },
                Operator::I64Const { value: rate },
                Operator::I32WrapI64,
                Operator::I64Const { value: 0 },
                Operator::I64Store { memarg },
            ]
        };
        assert_eq!(switch(&code(0x2000)), Some((0x1001, 0x2000)));
        assert_eq!(switch(&[code(0x2000), code(0x2000)].concat()), Some((0x1001, 0x2000)));
        assert_eq!(switch(&[code(0x2000), code(0x3000)].concat()), None, "which of them?");
        for rate in [0, -8, 0x2001, 1 << 40] {
            assert_eq!(switch(&code(rate)), None, "{rate:#x}");
        }
        for cut in 0..9 {
            assert_eq!(switch(&code(0x2000)[..cut]), None, "{cut}");
        }
        let mut unconditional = code(0x2000);
        unconditional.remove(4);
        assert_eq!(switch(&unconditional), None);
        assert_eq!(list(&code(0x2000), |_| true), None);
    }
}
