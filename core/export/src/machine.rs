//! What perf must know of the processor that the guest ran on.

use object::elf;

/// A processor.
pub(super) struct Machine {
    /// As `uname -m` calls it.
    pub(super) name: &'static str,
    /// As ELF files call it.
    pub(super) elf: u16,
    /// What does nothing in eight bytes, so that `perf annotate` has an instruction for each line, or two.
    pub(super) no_op: [u8; 8],
}

const X86_64: Machine = Machine {
    name: "x86_64",
    elf: elf::EM_X86_64,
    // `nopl 0(%rax,%rax,1)`
    no_op: [0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
};

const AARCH64: Machine = Machine {
    name: "aarch64",
    elf: elf::EM_AARCH64,
    // `nop`, twice.
    no_op: [0x1f, 0x20, 0x03, 0xd5, 0x1f, 0x20, 0x03, 0xd5],
};

impl Machine {
    /// The processor of that name, as recordings have it. Of one that perf would have to be told more of the first will do.
    pub(super) fn called(architecture: &str) -> &'static Self {
        if architecture == AARCH64.name { &AARCH64 } else { &X86_64 }
    }
}
