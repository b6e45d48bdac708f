//! A WebAssembly module, or a component with several: what their bytes say.

#![forbid(unsafe_code)]

mod among;
mod binary;
mod checks;
mod component;
mod component_items;
mod component_names;
mod core_instances;
mod debug_file;
mod image;
mod initial;
mod offset_map;
mod position_index;
mod read;
mod sections;
mod source_map;

pub use among::{Among, among};
pub use binary::{ModuleError, read_module};
pub use checks::Checks;
pub use component::core_module_ranges;
pub use component::core_modules;
pub use image::{InComponent, ModuleImage, STAND_IN_SECTION};
pub use offset_map::OffsetMap;
pub use offset_map::Stretch;
pub use position_index::PositionIndex;
pub use read::file_name;
pub use read::{Binary, parse_binary, read_binary};
pub use sections::{ImageError, IndexSpaces};
