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
    use crate::maps::Mapping;
    use crate::pages::Pages;
    use crate::process::Process;
    use crate::stack::WalkOutcome;
    use nix::libc;
    use std::collections::HashMap;
    use std::fs::OpenOptions;
    use std::io;
    use std::os::unix::fs::OpenOptionsExt;
    use wlprof_host::{CodeMapping, HostCode, HostFrame, HostRegisters, UnwindEnd};
    use wlprof_recording::{Origin, Recorder};
    use wlprof_walk::{CodeReader, Registers};

    const WORD: usize = size_of::<usize>();

    /// Gives `host` the native code that there is.
    pub(crate) fn look(host: &mut HostCode, process: &Process, mappings: &[Mapping]) {
        let first = mappings.iter().filter(|mapping| mapping.offset == 0);
        let headers: HashMap<&str, usize> = first.map(|mapping| (&*mapping.name, mapping.range.start)).collect();
        let is_native = |mapping: &&Mapping| mapping.is_executable && !mapping.is_anonymous();
        let native = mappings.iter().filter(is_native).map(|mapping| CodeMapping {
            addresses: mapping.range.clone(),
            offset: mapping.offset,
            name: &mapping.name,
            header: headers.get(&*mapping.name).copied(),
        });
        let read = |address, buffer: &mut [u8]| process.read(address, buffer);
        // A device may have the file's name by now, or a pipe.
        let open = |name: &str| {
            let path = process.path(&format!("root{name}"));
            if !std::fs::metadata(&path)?.is_file() {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
        };
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
        let Some((outermost, inner)) = walked.entries.split_last() else { return found };
        for entry in inner {
            let of_entry = entered_by(memory, entry.fp).map(|registers| whole(unwind(registers)));
            found.calls.extend(of_entry.map(|frames| (entry.frames, frames)));
        }
        if let (Ok(()), Some(registers)) = (walked.end, entered_by(memory, outermost.fp)) {
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
