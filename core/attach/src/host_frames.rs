//! The frames of a host on a stack with wasm: where they stand among those of its guests.

use wlprof_recording::Origin;

/// Frames of the host, leaf first, by the wasm frame that they stand before.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostFrames {
    calls: Vec<(usize, Vec<Origin>)>,
    root: Vec<Origin>,
}

impl HostFrames {
    /// Those of what the wasm frame of that number has called.
    pub(crate) fn called_by(&self, number: usize) -> &[Origin] {
        self.calls.iter().find(|(caller, _)| *caller == number).map_or(&[], |(_, frames)| frames)
    }

    /// Those that have entered wasm first.
    pub(crate) fn root(&self) -> &[Origin] {
        &self.root
    }
}

#[cfg(feature = "host-frames")]
mod unwinding {
    use super::HostFrames;
    use crate::files;
    use crate::maps::Mapping;
    use crate::pages::Pages;
    use crate::process::Process;
    use crate::stack::WalkOutcome;
    use std::collections::HashMap;
    use std::ops::RangeInclusive;
    use std::path::Path;
    use wlprof_host::{CodeMapping, HostCode, HostFrame, HostRegisters, UnwindEnd};
    use wlprof_recording::{Origin, Recorder};
    use wlprof_walk::{CodeReader, Registers, WalkTruncation};

    const WORD: usize = size_of::<usize>();

    /// Files with code that are read.
    const SIZES: RangeInclusive<u64> = 64..=4 << 30;

    /// Gives `host` the native code that there is: of all `mappings` but those that `is_image` says are compiled from wasm.
    pub(crate) fn look(
        host: &mut HostCode,
        process: &Process,
        mappings: &[Mapping],
        is_image: impl Fn(&Mapping) -> bool,
    ) {
        let first = mappings.iter().filter(|mapping| mapping.offset == 0);
        let headers: HashMap<&str, usize> = first.map(|mapping| (&*mapping.name, mapping.range.start)).collect();
        let is_native = |mapping: &&Mapping| mapping.is_executable && !mapping.is_anonymous() && !is_image(mapping);
        let native = mappings.iter().filter(is_native).map(|mapping| CodeMapping {
            addresses: mapping.range.clone(),
            offset: mapping.offset,
            file: mapping.file,
            name: &mapping.name,
            header: headers.get(&*mapping.name).copied(),
        });
        let read = |address, buffer: &mut [u8]| process.read(address, buffer);
        let root = files::root(process);
        let open = |name: &str| files::regular_file(root.as_ref().ok()?, Path::new(name.strip_prefix('/')?), SIZES);
        host.look(native, read, open);
    }

    /// Unwinds the host's frames of a thread with these registers, whose wasm frames have been walked: `count` of them.
    pub(crate) fn unwind(
        host: &mut HostCode,
        memory: &Pages<'_>,
        code: &CodeReader<'_>,
        registers: Registers,
        walked: &WalkOutcome,
        count: usize,
    ) -> HostFrames {
        let mut unwind = |registers| {
            let (frames, end) = host.unwind(registers, |at| memory.word(at), |pc| code.code(pc).is_some());
            let origin = |frame: Option<HostFrame>| {
                frame.map_or(Origin::Host, |frame| Origin::Native { object: frame.object, address: frame.address })
            };
            (frames.into_iter().map(origin).collect::<Vec<_>>(), end)
        };
        // What leads to a frame of wasm has ended before it, or not all of it was found.
        let whole = |(mut frames, end): (Vec<Origin>, UnwindEnd)| {
            frames.extend((end != UnwindEnd::Reached).then_some(Origin::Elided));
            frames
        };
        let mut found = HostFrames::default();
        if count == 0 {
            return found;
        }
        if !walked.is_in_wasm {
            found.calls.push((0, whole(unwind(interrupted(registers)))));
        }
        let is_cut = walked.end == Err(WalkTruncation::Elided);
        let (outermost, inner) = match walked.entries.split_last() {
            Some((outermost, inner)) if is_cut || walked.end.is_ok() => (Some(outermost), inner),
            _ => (None, &*walked.entries),
        };
        // Where wasm frames are left out, it is not known between which of the others they are.
        for entry in inner.iter().filter(|entry| !is_cut && entry.frames < count) {
            let of_entry = entered_by(memory, entry.fp).map(|registers| whole(unwind(registers)));
            found.calls.extend(of_entry.map(|frames| (entry.frames, frames)));
        }
        if let Some(registers) = outermost.and_then(|entry| entered_by(memory, entry.fp)) {
            let (frames, end) = unwind(registers);
            found.root = frames;
            found.root.extend((end != UnwindEnd::Root).then_some(Origin::Truncated));
        }
        found
    }

    /// Names what has no name yet.
    pub(crate) fn name(host: &mut HostCode, recorder: &mut Recorder) {
        for (object, address) in recorder.unnamed_native() {
            let mut names = Vec::new();
            host.name(HostFrame { object, address }, &mut names);
            recorder.name_native(object, address, names);
        }
    }

    fn interrupted(registers: Registers) -> HostRegisters {
        #[cfg(target_arch = "aarch64")]
        let lr = registers.lr;
        #[cfg(not(target_arch = "aarch64"))]
        let lr = 0;
        HostRegisters { pc: registers.pc, sp: registers.sp, fp: registers.fp, lr, is_return: false }
    }

    /// The registers of the host's function that has entered wasm through the trampoline whose frame pointer is `fp`, as they are when that returns.
    fn entered_by(memory: &Pages<'_>, fp: usize) -> Option<HostRegisters> {
        let pc = memory.word(fp.checked_add(WORD)?)?;
        Some(HostRegisters { pc, sp: fp.checked_add(2 * WORD)?, fp: memory.word(fp)?, lr: pc, is_return: true })
    }
}

#[cfg(feature = "host-frames")]
pub(crate) use unwinding::{look, name, unwind};
