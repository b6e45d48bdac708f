//! A WebAssembly module, or a component with several: what their bytes say.

mod among;
mod binary;
mod checks;
mod compiled;
mod compiled_from;
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
pub(crate) use checks::Checks;
pub use compiled::{Compiled, GuestCode};
pub(crate) use compiled_from::was_compiled_from;
pub(crate) use component::core_module_ranges;
pub use component::core_modules;
pub use image::{InComponent, ModuleImage};
pub use offset_map::OffsetMap;
pub(crate) use offset_map::Stretch;
pub(crate) use position_index::PositionIndex;
#[cfg(feature = "wasi")]
pub(crate) use read::file_name;
pub use read::{Binary, read_binary};
pub use sections::{ImageError, IndexSpaces};
