//! The native code of a process, and the frames that it has on a stack.

use crate::fibers;
use crate::names::NamedObject;
use crate::object_file::UnwindTables;
use framehop::{CacheNative, FrameAddress, Module, UnwindRegsNative, Unwinder, UnwinderNative};
use object::ReadCache;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use wlprof_plugin::SourceFrame;

/// Files whose code is unwound, in the life of a process.
const MAX_OBJECTS: usize = 256;

/// Mappings of native code that are looked at.
const MAX_MAPPINGS: usize = 1024;

/// Bytes of unwind tables that are kept, of all files.
const MAX_ALL_TABLES: usize = 256 << 20;

/// Native frames between two entries into wasm, or beyond them.
const MAX_FRAMES: usize = 512;

/// Bytes of a file that are compared with what is mapped: its headers, which mostly have an id of the build.
const COMPARED: usize = 4096;

/// The name of the code that the kernel maps into each process.
const VDSO: &str = "[vdso]";

/// Bytes of that.
const MAX_VDSO: usize = 64 << 10;

/// Native code that a process has mapped.
#[derive(Clone, Debug)]
pub struct CodeMapping<'a> {
    /// Its addresses.
    pub addresses: Range<usize>,
    /// Offset in the file at which it begins.
    pub offset: u64,
    /// The file's device and number.
    pub file: ((u32, u32), u64),
    /// What the process calls the file.
    pub name: &'a str,
    /// Where the file's beginning is mapped.
    pub header: Option<usize>,
}

/// The registers that unwinding begins with.
#[derive(Clone, Copy, Debug)]
pub struct HostRegisters {
    /// Address of the instruction that runs next, or where a call returns to.
    pub pc: usize,
    /// Stack pointer.
    pub sp: usize,
    /// Frame pointer.
    pub fp: usize,
    /// Link register, where the architecture has one.
    pub lr: usize,
    /// `pc` is where a call returns to.
    pub is_return: bool,
}

/// A native frame before it has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostFrame {
    /// The file that the code is of, by the order in which they were found.
    pub object: u32,
    /// The address that the file states for the instruction that runs or calls.
    pub address: u64,
}

/// How unwinding came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnwindEnd {
    /// At code that it was to end at.
    Reached,
    /// At the root of the stack.
    Root,
    /// Frames are missing.
    Truncated,
}

/// Native code of a process: unwinds it.
///
/// ```
/// use wlprof_host::{HostCode, HostRegisters, UnwindEnd};
///
/// let mut code = HostCode::default();
/// let registers = HostRegisters { pc: 0x1000, sp: 0x7000, fp: 0x7000, lr: 0, is_return: false };
/// // There is no memory to read.
/// let (frames, end) = code.unwind(registers, |_| None, |_| false);
/// assert_eq!((frames, end), (vec![None], UnwindEnd::Truncated));
/// ```
///
/// # Accuracy
/// Frames are as exact as the unwind tables (`.eh_frame`) that compilers write for exceptions. Code without them is unwound by frame pointers; if it has
/// none either, callers may be missing without a mark. What a debugger would find by `.debug_frame` is not looked for.
///
/// # Overhead
/// The unwind tables of all files with code are kept in memory, some MB for a large program.
///
/// # Security
/// Files are opened by the names that the process has for them, and used if they begin as what it has mapped does. What they say is not trusted: frames
/// may be wrong, and are no more than 512 from one entry into wasm to the next. No more than 256 MiB of unwind tables are kept. Files
/// with more than 512 MiB of debug information have the names of symbols alone.
pub struct HostCode {
    unwinder: UnwinderNative<Vec<u8>, framehop::MayAllocateDuringUnwind>,
    cache: CacheNative<framehop::MayAllocateDuringUnwind>,
    mapped: BTreeMap<usize, Mapped>,
    objects: Vec<NamedObject>,
    /// Bytes of unwind tables in use.
    tables: usize,
}

struct Mapped {
    end: usize,
    offset: u64,
    file: ((u32, u32), u64),
    /// Bytes of its unwind tables.
    tables: usize,
    /// The file, and what is added to the addresses that it states. `None` if it is not to be had.
    object: Option<(u32, u64)>,
}

impl Default for HostCode {
    fn default() -> Self {
        Self {
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new(),
            mapped: BTreeMap::new(),
            objects: Vec::new(),
            tables: 0,
        }
    }
}

impl HostCode {
    /// Takes `mappings` for all native code that there is from now on. `read` fills its buffer with memory of the process, and `open` opens a file by
    /// the name that the process has for it.
    pub fn look<'a>(
        &mut self,
        mappings: impl Iterator<Item = CodeMapping<'a>>,
        read: impl Fn(usize, &mut [u8]) -> bool,
        open: impl Fn(&str) -> Option<File>,
    ) {
        let there: BTreeMap<usize, CodeMapping<'a>> =
            mappings.take(MAX_MAPPINGS).map(|mapping| (mapping.addresses.start, mapping)).collect();
        let is_gone = |start: &usize, mapped: &mut Mapped| {
            let now = there.get(start).map(|mapping| (mapping.addresses.end, mapping.offset, mapping.file));
            now != Some((mapped.end, mapped.offset, mapped.file))
        };
        for (start, mapped) in self.mapped.extract_if(.., is_gone) {
            self.unwinder.remove_module(start as u64);
            self.tables -= mapped.tables;
            // Rules are known by a number of 16 bits for all changes.
            self.cache = CacheNative::new();
        }
        for (start, mapping) in there {
            if !self.mapped.contains_key(&start) {
                let before = self.tables;
                let object = self.add(&mapping, &read, &open);
                let CodeMapping { addresses: Range { end, .. }, offset, file, .. } = mapping;
                self.mapped.insert(start, Mapped { end, offset, file, tables: self.tables - before, object });
            }
        }
    }

    /// Has code of a file unwound by the file's tables, as long as there is room for them. Returns the file and what is added to the addresses that it
    /// states.
    fn add(
        &mut self,
        mapping: &CodeMapping<'_>,
        read: &impl Fn(usize, &mut [u8]) -> bool,
        open: &impl Fn(&str) -> Option<File>,
    ) -> Option<(u32, u64)> {
        let (start, end) = (mapping.addresses.start as u64, mapping.addresses.end as u64);
        let (tables, object) = if mapping.name == VDSO {
            let mut image = vec![0; mapping.addresses.len().min(MAX_VDSO)];
            read(mapping.addresses.start, &mut image).then_some(())?;
            (UnwindTables::read(&*image)?, NamedObject::new(VDSO, None))
        } else {
            let file = open(mapping.name)?;
            is_mapped(&file, mapping.header?, read).then_some(())?;
            let tables = UnwindTables::read(&ReadCache::new(&file))?;
            (tables, NamedObject::new(mapping.name, Some(file)))
        };
        let bias = start.wrapping_sub(tables.stated_address(mapping.offset)?);
        let in_use = Some(self.tables + tables.bytes()).filter(|all| *all <= MAX_ALL_TABLES)?;
        let known = self.objects.iter().position(|known| known.is(&object));
        let id = known.or_else(|| {
            (self.objects.len() < MAX_OBJECTS).then(|| {
                self.objects.push(object);
                self.objects.len() - 1
            })
        })?;
        self.tables = in_use;
        self.cache = CacheNative::new();
        self.unwinder.add_module(Module::new(mapping.name.to_owned(), start..end, bias, tables.sections));
        Some((id as u32, bias))
    }

    /// Unwinds from these registers until there is code that it `ends` at. From a fiber of Wasmtime's it goes on to who has resumed it (on x86-64).
    /// `word` reads memory of the process. Returns the frames, leaf first; `None` is code of no file.
    pub fn unwind(
        &mut self,
        registers: HostRegisters,
        word: impl Fn(usize) -> Option<usize>,
        ends: impl Fn(usize) -> bool,
    ) -> (Vec<Option<HostFrame>>, UnwindEnd) {
        let (mut frames, mut from) = (Vec::new(), registers);
        loop {
            let (end, last) = self.unwind_stack(from, &word, &ends, &mut frames);
            if end == UnwindEnd::Reached || frames.len() == MAX_FRAMES {
                return (frames, end);
            }
            let is_code = |registers: &HostRegisters| self.frame(registers.pc as u64).is_some();
            let Some(resumer) = last.and_then(|sp| fibers::resumer(sp, &word)).filter(is_code) else {
                return (frames, end);
            };
            from = resumer;
        }
    }

    /// Unwinds one stack. Returns how that came to its end, and the stack pointer that the last frame has.
    fn unwind_stack(
        &mut self,
        registers: HostRegisters,
        word: &impl Fn(usize) -> Option<usize>,
        ends: &impl Fn(usize) -> bool,
        frames: &mut Vec<Option<HostFrame>>,
    ) -> (UnwindEnd, Option<usize>) {
        let mut read = |address: u64| word(address as usize).map(|word| word as u64).ok_or(());
        let pc = registers.pc as u64;
        let first = match registers.is_return {
            true => FrameAddress::from_return_address(pc),
            false => Some(FrameAddress::from_instruction_pointer(pc)),
        };
        let Some(mut at) = first else { return (UnwindEnd::Root, None) };
        let mut registers = unwind_registers(registers);
        loop {
            if ends(at.address_for_lookup() as usize) {
                return (UnwindEnd::Reached, None);
            }
            if frames.len() == MAX_FRAMES {
                return (UnwindEnd::Truncated, None);
            }
            frames.push(self.frame(at.address_for_lookup()));
            let sp = registers.sp() as usize;
            match self.unwinder.unwind_frame(at, &mut registers, &mut self.cache, &mut read) {
                Ok(caller) => match caller.and_then(FrameAddress::from_return_address) {
                    Some(caller) => at = caller,
                    None => return (UnwindEnd::Root, Some(sp)),
                },
                Err(_) => return (UnwindEnd::Truncated, Some(sp)),
            }
        }
    }

    fn frame(&self, address: u64) -> Option<HostFrame> {
        let (_, mapped) = self.mapped.range(..=address as usize).next_back()?;
        let (object, bias) = mapped.object.filter(|_| (address as usize) < mapped.end)?;
        Some(HostFrame { object, address: address.wrapping_sub(bias) })
    }

    /// Appends what a frame is called, innermost inlined first. Code without symbols is called by its file. Nothing if there is no such file.
    ///
    /// Symbols and debug information of a file are read when the first of its frames is named.
    pub fn name(&mut self, frame: HostFrame, out: &mut Vec<SourceFrame>) {
        if let Some(object) = self.objects.get_mut(frame.object as usize) {
            object.name(frame.address, out);
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn unwind_registers(HostRegisters { pc, sp, fp, .. }: HostRegisters) -> UnwindRegsNative {
    UnwindRegsNative::new(pc as u64, sp as u64, fp as u64)
}

#[cfg(target_arch = "aarch64")]
fn unwind_registers(HostRegisters { pc: _, sp, fp, lr, .. }: HostRegisters) -> UnwindRegsNative {
    UnwindRegsNative::new(lr as u64, sp as u64, fp as u64)
}

/// Whether a file begins as what is mapped at `header`: another may have its name by now.
fn is_mapped(file: &File, header: usize, read: impl Fn(usize, &mut [u8]) -> bool) -> bool {
    let (mut of_file, mut mapped) = (vec![0; COMPARED], vec![0; COMPARED]);
    let Ok(length) = file.read_at(&mut of_file, 0) else { return false };
    length > 0 && read(header, &mut mapped[..length]) && of_file[..length] == mapped[..length]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn marked_function() -> usize {
        std::hint::black_box(7)
    }

    /// What this process has mapped of its program, as `(addresses, offset)`, the code first; and the program's name.
    fn own_code() -> (Vec<(Range<usize>, u64)>, String) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let program = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let mapping = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (start, end) = words[0].split_once('-').unwrap();
            (words[1].contains('x'), number(start) as usize..number(end) as usize, number(words[2]))
        };
        let mut own: Vec<_> = maps.lines().filter(|line| line.ends_with(&program)).map(mapping).collect();
        own.sort_by_key(|(is_code, addresses, _)| (!is_code, addresses.start));
        (own.into_iter().map(|(_, addresses, offset)| (addresses, offset)).collect(), program)
    }

    /// What `code` calls a function of this process, read from its file; `byte` is added to each byte of memory that is compared with the file.
    fn name_of(code: &mut HostCode, function: usize, byte: u8) -> Vec<SourceFrame> {
        let (own, name) = own_code();
        let header = own.iter().find(|(_, offset)| *offset == 0).map(|(addresses, _)| addresses.start);
        let (addresses, offset) = own[0].clone();
        let memory = File::open("/proc/self/mem").unwrap();
        let read = |address: usize, buffer: &mut [u8]| {
            let is_read = memory.read_exact_at(buffer, address as u64).is_ok();
            buffer.iter_mut().for_each(|of| *of = of.wrapping_add(byte));
            is_read
        };
        code.look(
            [CodeMapping { addresses, offset, file: ((0, 0), 1), name: &name, header }].into_iter(),
            read,
            |name| File::open(name).ok(),
        );
        let mut names = Vec::new();
        code.frame(function as u64).into_iter().for_each(|frame| code.name(frame, &mut names));
        names
    }

    #[test]
    fn code_is_named_by_its_symbols() {
        let names = name_of(&mut HostCode::default(), marked_function as fn() -> usize as usize, 0);
        assert!(names.last().is_some_and(|name| name.function.ends_with("::marked_function")), "{names:?}");
    }

    #[test]
    fn another_file_of_the_same_name_is_not_taken_for_what_is_mapped() {
        assert!(name_of(&mut HostCode::default(), marked_function as fn() -> usize as usize, 1).is_empty());
    }

    #[test]
    fn code_that_has_gone_is_not_named() {
        let mut code = HostCode::default();
        let function = marked_function as fn() -> usize as usize;
        assert!(!name_of(&mut code, function, 0).is_empty());
        code.look(std::iter::empty(), |_, _| false, |_| None);
        assert_eq!(code.frame(function as u64), None);
    }

    #[test]
    fn unwinding_ends_whatever_the_memory_says() {
        let mut code = HostCode::default();
        // Each word is the address of the next: frame pointers that go up without end.
        let word = |address: usize| Some(address + 16);
        let registers = HostRegisters { pc: 0x1000, sp: 0x7000, fp: 0x7000, lr: 0x2000, is_return: false };
        let (frames, end) = code.unwind(registers, word, |_| false);
        assert!(end != UnwindEnd::Reached && frames.len() <= MAX_FRAMES, "{end:?} {}", frames.len());
    }
}
