//! The compiled images in a process: each module and each component lies there as one ELF file, mapped whole.

use crate::maps::Mapping;
use crate::process::Process;
use crate::stand_in;
use std::ops::Range;
use std::sync::Arc;
use wlprof_module::ModuleImage;
use wlprof_plugin::ModuleView;
use wlprof_walk::{CompiledImage, MappedImage};

/// What such an image begins with.
const ELF: [u8; 4] = *b"\x7fELF";

/// Where its header says which system it is for, and what Wasmtime writes there (`ELFOSABI_WASMTIME`).
const OS_ABI: (usize, u8) = (7, 200);

/// Length of the header of a 64-bit ELF file, and of each entry in its table of sections.
const HEADER: usize = 64;

/// Bytes of all images that are read of a process.
const MAX_BYTES: usize = 1 << 30;

/// Images that are read of a process.
const MAX_IMAGES: usize = 10_000;

/// A compiled image that was found in a process.
#[derive(Clone, Debug)]
pub struct FoundImage {
    /// The image, with a module for each that it was compiled from.
    pub image: MappedImage,
    /// The release of Wasmtime that compiled it, as in `48.0.0`, or only the first number of it.
    pub release: String,
    /// The addresses of the machine code.
    pub text: Range<usize>,
}

/// The images of a process, and what could not be read of them.
#[derive(Clone, Debug, Default)]
pub struct FoundImages {
    /// Those that were read.
    pub images: Vec<FoundImage>,
    /// How many were left out, since they are too many or too large or are none of Wasmtime's.
    pub left_out: usize,
}

impl FoundImages {
    /// Finds the images in these mappings of a process. Those at the addresses in `known` are left out.
    pub fn find(process: &Process, mappings: &[Mapping], known: impl Fn(usize) -> bool) -> Self {
        let mut found = Self::default();
        let mut bytes = 0;
        for (number, mapping) in mappings.iter().enumerate() {
            if !mapping.is_readable || known(mapping.range.start) {
                continue;
            }
            let mut header = [0; HEADER];
            if !process.read(mapping.range.start, &mut header) || !is_image(&header) {
                continue;
            }
            let room = end_of_neighbors(&mappings[number..]) - mapping.range.start;
            let length = length(&header).filter(|length| *length <= room && bytes + length <= MAX_BYTES);
            let image =
                length.filter(|_| found.images.len() < MAX_IMAGES).and_then(|length| read(process, mapping, length));
            match image {
                Some(image) => {
                    bytes += image.image.bytes.as_ref().as_ref().len();
                    found.images.push(image);
                }
                None => found.left_out += 1,
            }
        }
        found
    }
}

impl FoundImages {
    /// Returns the names of the modules, in the order in which they lie in memory. Untrusted text.
    pub fn module_names(&self) -> Vec<String> {
        let modules = self.images.iter().flat_map(|found| &found.image.modules);
        modules.map(|module| module.name().to_owned()).collect()
    }
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

fn read(process: &Process, mapping: &Mapping, length: usize) -> Option<FoundImage> {
    let mut bytes = vec![0; length];
    process.read(mapping.range.start, &mut bytes).then_some(())?;
    let (release, text, modules) = parse(&bytes, &mapping.name)?;
    let address = mapping.range.start;
    let image = MappedImage { bytes: Arc::new(bytes), address, modules };
    Some(FoundImage { image, release, text: address + text.start..address + text.end })
}

fn parse(bytes: &[u8], file: &str) -> Option<(String, Range<usize>, Vec<Arc<ModuleImage>>)> {
    let image = CompiledImage::parse(bytes)?;
    let release = release(image.section(".wasmtime.engine")?)?;
    // One that was compiled beforehand is mapped from its file.
    let name = file.rsplit('/').next().filter(|name| !name.is_empty() && !name.starts_with('['));
    let modules = stand_in::modules(&image, name.unwrap_or("wasm"));
    Some((release, image.text(), modules))
}

/// The release in the section `.wasmtime.engine`: a byte that says how it is kept, then its length and itself. (`append_compiler_info`
/// in Wasmtime's `engine/serialization.rs`; so in all releases from 24 to 50.)
fn release(section: &[u8]) -> Option<String> {
    let [_, length, rest @ ..] = section else { return None };
    let release = str::from_utf8(rest.get(..usize::from(*length))?).ok()?;
    release.starts_with(|first: char| first.is_ascii_digit()).then(|| release.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        assert_eq!(release(b"\0\x0230 and more").as_deref(), Some("30"));
        assert_eq!(release(b"\0\x0630.0.0x86_64").as_deref(), Some("30.0.0"));
        for bad in [&b"\0\x09too"[..], b"", b"\0", b"\0\x02xx"] {
            assert_eq!(release(bad), None);
        }
    }

    #[test]
    fn an_image_that_says_it_is_longer_than_its_mappings_is_left_out() {
        let mut header = [0; HEADER];
        header[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(length(&header).filter(|length| *length < 1 << 40), None);
        let mapping = |start: usize, end: usize| Mapping {
            range: start..end,
            is_readable: true,
            is_executable: false,
            name: String::new(),
        };
        assert_eq!(end_of_neighbors(&[mapping(1, 2), mapping(2, 5), mapping(6, 7)]), 5);
    }
}
