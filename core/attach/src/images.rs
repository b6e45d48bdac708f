//! The compiled images in a process: each module and each component lies there as one ELF file, mapped whole.

use crate::maps::Mapping;
use crate::process::Process;
use crate::stand_in;
use std::sync::Arc;
use wlprof_walk::{CompiledImage, MappedImage};

/// What such an image begins with.
const ELF: [u8; 4] = *b"\x7fELF";

/// Where its header says which system it is for, and what Wasmtime writes there (`ELFOSABI_WASMTIME`).
const OS_ABI: (usize, u8) = (7, 200);

/// Length of the header of a 64-bit ELF file, and of each entry in its table of sections.
const HEADER: usize = 64;

/// Images begin on a page.
const PAGE: usize = 4096;

/// Bytes of an image before its machine code. Wasmtime has some hundred there, up to the next page.
const MAX_HEAD: usize = 1 << 20;

/// Bytes of all images that are read of a process.
const MAX_BYTES: usize = 1 << 30;

/// Images that are read of a process.
const MAX_IMAGES: usize = 10_000;

/// A compiled image that was found in a process.
#[derive(Clone, Debug)]
pub(crate) struct FoundImage {
    /// The image, without modules.
    pub(crate) image: MappedImage,
    /// The release of Wasmtime that compiled it, as in `48.0.0`, or only the first number of it.
    pub(crate) release: String,
    /// The name of its file, if it is mapped from one: it was compiled beforehand.
    pub(crate) name: String,
}

/// How many images of a process may still be read, and how many bytes of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    bytes: usize,
    images: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { bytes: MAX_BYTES, images: MAX_IMAGES }
    }
}

impl Room {
    /// An image of so many bytes has gone.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.images += 1;
    }
}

/// The images of a process, and what could not be read of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FoundImages {
    /// Those that were read.
    pub(crate) images: Vec<FoundImage>,
    /// Where the code of others begins, which were left out: they are too many or too large, or none of Wasmtime's.
    pub(crate) left_out: Vec<usize>,
}

impl FoundImages {
    /// Finds the images in these mappings of a process. Code at the addresses in `known` is left out.
    ///
    /// An image has its header, its machine code and the rest in this order, without a gap. Only the code can be executed, so it is a mapping
    /// of its own. The kernel makes one mapping of the rest of an image and the header of the next one, if these lie side by side.
    pub(crate) fn find(
        process: &Process,
        mappings: &[Mapping],
        room: &mut Room,
        known: impl Fn(usize) -> bool,
    ) -> Self {
        let mut found = Self::default();
        for (number, code) in mappings.iter().enumerate() {
            if !code.is_executable || known(code.range.start) {
                continue;
            }
            let Some((address, header)) = header_before(process, &mappings[..=number]) else { continue };
            let end = end_of_neighbors(&mappings[number..]);
            let length = length(&header).filter(|length| *length <= (end - address).min(room.bytes));
            let Some(length) = length.filter(|_| room.images > 0) else {
                found.left_out.push(code.range.start);
                continue;
            };
            room.bytes -= length;
            room.images -= 1;
            match read(process, address, length, code) {
                Some(image) => found.images.push(image),
                None => {
                    room.give_back(length);
                    found.left_out.push(code.range.start);
                }
            }
        }
        found
    }
}

/// Returns whether one of these mappings is code of an image. It reads next to nothing.
pub(crate) fn has_image(process: &Process, mappings: &[Mapping]) -> bool {
    let is_code = |number: &usize| mappings[*number].is_executable;
    (0..mappings.len()).filter(is_code).any(|number| header_before(process, &mappings[..=number]).is_some())
}

/// Finds the header of the image whose code is the last one of these mappings, and its address.
fn header_before(process: &Process, mappings: &[Mapping]) -> Option<(usize, [u8; HEADER])> {
    let [.., before, code] = mappings else { return None };
    let is_head = before.is_readable && !before.is_executable && before.range.end == code.range.start;
    // Reading a device may change something.
    let is_device = ["/dev/", "/sys/"].iter().any(|devices| before.name.starts_with(devices));
    if !is_head || is_device && !before.name.starts_with("/dev/shm/") {
        return None;
    }
    // A file is mapped from its beginning.
    let pages = match before.is_anonymous() {
        true => before.range.start.max(before.range.end.saturating_sub(MAX_HEAD))..before.range.end,
        false => before.range.start..before.range.start + 1,
    };
    pages.step_by(PAGE).rev().find_map(|address| {
        let mut header = [0; HEADER];
        (process.read(address, &mut header) && is_image(&header)).then_some((address, header))
    })
}

fn is_image(header: &[u8; HEADER]) -> bool {
    header.starts_with(&ELF) && header[OS_ABI.0] == OS_ABI.1
}

/// Where the mappings end that follow the first one without a gap.
fn end_of_neighbors(mappings: &[Mapping]) -> usize {
    let mut end = mappings[0].range.end;
    for next in &mappings[1..] {
        if next.range.start != end {
            break;
        }
        end = next.range.end;
    }
    end
}

/// The length of an image: its table of sections is the last thing in it.
fn length(header: &[u8; HEADER]) -> Option<usize> {
    let table = u64::from_le_bytes(header[40..48].try_into().ok()?);
    let sections = u16::from_le_bytes(header[60..62].try_into().ok()?);
    usize::try_from(table).ok()?.checked_add(usize::from(sections) * HEADER)
}

/// Reads the image at `address`. `None` if its machine code is not what is mapped as `code`.
fn read(process: &Process, address: usize, length: usize, code: &Mapping) -> Option<FoundImage> {
    let mut bytes = vec![0; length];
    process.read(address, &mut bytes).then_some(())?;
    let image = CompiledImage::parse(&bytes)?;
    let release = release(image.section(".wasmtime.engine")?)?;
    (address.checked_add(image.text().start)? == code.range.start).then_some(())?;
    let name = code.name.rsplit('/').next().filter(|_| !code.is_anonymous()).unwrap_or_default().to_owned();
    Some(FoundImage { image: MappedImage { bytes: Arc::new(bytes), address, modules: Vec::new() }, release, name })
}

impl FoundImage {
    /// Returns the names of its modules. Untrusted text.
    pub(crate) fn module_names(&self) -> Vec<String> {
        self.image.parse().map_or_else(Vec::new, |image| stand_in::names(&image, &self.name))
    }

    /// Returns the addresses of its code.
    #[cfg(test)]
    fn text(&self) -> std::ops::Range<usize> {
        let text = self.image.parse().unwrap().text();
        self.image.address + text.start..self.image.address + text.end
    }
}

/// The release in the section `.wasmtime.engine`: a byte that says how it is kept, then its length and itself. (`append_compiler_info`
/// in Wasmtime's `engine/serialization.rs`; so in all releases from 24 to 50.) What is shown on a terminal has nothing else in it.
fn release(section: &[u8]) -> Option<String> {
    let [_, length, rest @ ..] = section else { return None };
    let release = str::from_utf8(rest.get(..usize::from(*length))?).ok()?;
    let is_release = release.starts_with(|first: char| first.is_ascii_digit())
        && release.chars().all(|char| char.is_ascii_alphanumeric() || ['.', '+', '-'].contains(&char));
    is_release.then(|| release.to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use object::write::{Object, Symbol, SymbolSection};
    use object::{
        Architecture, BinaryFormat, Endianness, FileFlags, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
    };
    use std::hint::black_box;
    use std::ops::Range;

    /// An image as Wasmtime makes it, with a page of code, of which each symbol has 16 bytes.
    pub(crate) fn image(symbols: &[&str]) -> Vec<u8> {
        let symbols = (0..).step_by(16).zip(symbols).map(|(start, name)| (*name, start..start + 16));
        image_of(&symbols.collect::<Vec<_>>())
    }

    /// An image with symbols at these places of its code, all of which calls what a register says.
    pub(crate) fn image_of(symbols: &[(&str, Range<u64>)]) -> Vec<u8> {
        let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        object.flags = FileFlags::Elf { os_abi: OS_ABI.1, abi_version: 0, e_flags: 0 };
        let engine = object.add_section(Vec::new(), b".wasmtime.engine".to_vec(), SectionKind::ReadOnlyData);
        object.append_section_data(engine, b"\0\x0648.0.8", 1);
        let text = object.add_section(Vec::new(), b".text".to_vec(), SectionKind::Text);
        let call: &[u8] = if cfg!(target_arch = "aarch64") { &[0, 1, 0x3f, 0xd6] } else { &[0xff, 0xd0] };
        object.append_section_data(text, &call.repeat(PAGE / call.len()), PAGE as u64);
        for (name, range) in symbols {
            object.add_symbol(Symbol {
                name: name.as_bytes().to_vec(),
                value: range.start,
                size: range.end - range.start,
                kind: SymbolKind::Text,
                scope: SymbolScope::Compilation,
                weak: false,
                section: SymbolSection::Section(text),
                flags: SymbolFlags::None,
            });
        }
        object.write().unwrap()
    }

    fn mapping(range: Range<usize>, is_executable: bool) -> Mapping {
        Mapping { range, is_readable: true, is_executable, offset: 0, file: ((0, 0), 0), name: String::new() }
    }

    /// Memory with images side by side, a page of something else before and behind them, and the mappings as the kernel shows them: it makes
    /// one of the rest of an image and the header of the next.
    fn neighbors(image: &[u8], count: usize) -> (Vec<u8>, Vec<Mapping>, Vec<Range<usize>>) {
        let text = CompiledImage::parse(image).unwrap().text();
        let length = image.len().next_multiple_of(PAGE);
        let mut memory = vec![0; (count + 3) * length];
        let start = memory.as_ptr().addr().next_multiple_of(PAGE);
        let first = start + PAGE;
        let at = |number: usize| first + number * length;
        let code = |number: usize| at(number) + text.start..at(number) + text.end;
        let mut mappings = vec![mapping(start..code(0).start, false)];
        for number in 0..count {
            let from = at(number) - memory.as_ptr().addr();
            memory[from..from + image.len()].copy_from_slice(image);
            // The compiler does not see that it is read.
            black_box(&mut memory);
            let next = if number + 1 < count { code(number + 1).start } else { at(count) + PAGE };
            mappings.extend([mapping(code(number), true), mapping(code(number).end..next, false)]);
        }
        (memory, mappings, (0..count).map(code).collect())
    }

    #[test]
    fn images_that_share_mappings_are_found() {
        let own = Process::open(std::process::id() as i32).unwrap();
        let (memory, mappings, codes) = neighbors(&image(&["wasm[0]::function[0]"]), 3);
        let find = |room: &mut Room, known: Option<usize>| {
            let found = FoundImages::find(&own, &mappings, room, |address| Some(address) == known);
            let codes: Vec<_> = found.images.iter().map(FoundImage::text).collect();
            (codes, found.left_out.len())
        };
        assert_eq!(find(&mut Room::default(), None), (codes.clone(), 0));
        assert_eq!(find(&mut Room::default(), Some(codes[1].start)), (vec![codes[0].clone(), codes[2].clone()], 0));
        // What was read before counts.
        let mut room = Room { images: 4, ..Room::default() };
        assert_eq!((find(&mut room, None).1, find(&mut room, None)), (0, (codes[..1].to_vec(), 2)));
        black_box(memory);
    }

    #[test]
    fn an_image_whose_code_is_elsewhere_is_left_out() {
        let own = Process::open(std::process::id() as i32).unwrap();
        let (memory, mut mappings, _) = neighbors(&image(&[]), 1);
        mappings[1].range.start += PAGE;
        mappings[0].range.end += PAGE;
        let find = |mappings: &[Mapping]| FoundImages::find(&own, mappings, &mut Room::default(), |_| false);
        let found = find(&mappings);
        assert_eq!((found.images.len(), found.left_out.len()), (0, 1));
        mappings[0].name = "/dev/uio0".to_owned();
        assert_eq!(find(&mappings).left_out, [0; 0]);
        black_box(memory);
    }

    #[test]
    fn code_that_an_image_does_not_have_is_not_believed() {
        let functions = [0..64, 16..32, 16..4096].map(|range| ("wasm[0]::function[0]", range));
        let mut bytes = image_of(&functions);
        let pieces = CompiledImage::parse(&bytes).unwrap().pieces();
        assert_eq!(pieces.into_iter().map(|(_, range)| range).collect::<Vec<_>>(), [0..16, 16..4096]);
        // The third section of the table, of which the fifth word is the length.
        let table = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        let size = table + 2 * HEADER + 32;
        assert_eq!(bytes[size..][..8], (PAGE as u64).to_le_bytes());
        bytes[size..][..8].copy_from_slice(&(1_u64 << 62).to_le_bytes());
        assert!(CompiledImage::parse(&bytes).is_none());
    }

    #[test]
    fn an_image_without_places_is_that_of_no_file() {
        let bytes = Arc::new(image(&["wasm[0]::function[0]"]));
        let modules = stand_in::modules(&CompiledImage::parse(&bytes).unwrap(), "", &mut 10).unwrap();
        for modules in [Vec::new(), modules] {
            let image = MappedImage { bytes: bytes.clone(), address: 0, modules };
            assert!(!image.was_compiled_from_modules(), "{image:?}");
        }
    }

    #[test]
    fn releases_are_read() {
        assert_eq!(release(b"\0\x0230 and more").as_deref(), Some("30"));
        assert_eq!(release(b"\0\x0630.0.0x86_64").as_deref(), Some("30.0.0"));
        for bad in [&b"\0\x09too"[..], b"", b"\0", b"\0\x02xx", b"\0\x0530\x1b[m"] {
            assert_eq!(release(bad), None);
        }
    }

    #[test]
    fn an_image_that_says_it_is_longer_than_its_mappings_is_left_out() {
        let mut header = [0; HEADER];
        header[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(length(&header).filter(|length| *length < 1 << 40), None);
        assert_eq!(end_of_neighbors(&[mapping(1..2, false), mapping(2..5, true), mapping(6..7, false)]), 5);
    }
}
