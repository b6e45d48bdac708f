//! What the process that makes a profile is told, and what it answers.
//!
//! A request comes on its standard input: a size, the request in postcard's format, then the bytes of modules. Files are
//! told by their descriptors, which it inherits.

use super::super::Settings;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use wlprof_export::{self as export, Exporter};
use wlprof_module::{InComponent, ModuleImage};
use wlprof_plugin::ModuleView;

/// What is to be made.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// Descriptor of the recording.
    pub(super) journal: i32,
    /// Descriptor that the answer goes to.
    pub(super) answer: i32,
    pub(super) outputs: Vec<OutputRequest>,
    pub(super) settings: Settings,
    pub(super) modules: Vec<Module>,
}

/// A file to write.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OutputRequest {
    format: String,
    pub(super) path: PathBuf,
    pub(super) file: i32,
    pub(super) companion: Option<i32>,
}

impl OutputRequest {
    pub(super) fn new(exporter: &dyn Exporter, path: PathBuf, file: i32, companion: Option<i32>) -> Self {
        Self { format: exporter.name().to_owned(), path, file, companion }
    }

    pub(super) fn exporter(&self) -> io::Result<&'static dyn Exporter> {
        export::by_name(&self.format).ok_or_else(|| io::Error::other("there is no such format"))
    }
}

/// A module whose bytes follow, with those of its debug file and its source map.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Module {
    name: String,
    size: u64,
    debug_size: Option<u64>,
    source_map_size: Option<u64>,
    component: InComponent,
}

impl Module {
    pub(super) fn of(image: &ModuleImage) -> Self {
        Self {
            name: image.name().to_owned(),
            size: image.bytes().len() as u64,
            debug_size: image.debug_file().map(|debug| debug.bytes().len() as u64),
            source_map_size: image.source_map().map(|json| json.len() as u64),
            component: image.in_component().clone(),
        }
    }
}

impl Request {
    /// Sends it, with the bytes of `images`, which it was given.
    pub(super) fn send(&self, images: &[Arc<ModuleImage>], out: &mut dyn Write) -> io::Result<()> {
        let request = postcard::to_stdvec(self).map_err(io::Error::other)?;
        out.write_all(&(request.len() as u64).to_le_bytes())?;
        out.write_all(&request)?;
        for image in images {
            out.write_all(image.bytes())?;
            image.debug_file().map_or(Ok(()), |debug| out.write_all(debug.bytes()))?;
            image.source_map().map_or(Ok(()), |json| out.write_all(json))?;
        }
        out.flush()
    }

    /// Receives one, with its modules.
    pub(super) fn receive(input: &mut dyn Read) -> io::Result<(Self, Vec<Arc<ModuleImage>>)> {
        let mut size = [0; 8];
        input.read_exact(&mut size)?;
        let request: Self = postcard::from_bytes(&take(input, u64::from_le_bytes(size))?).map_err(io::Error::other)?;
        let mut images = Vec::new();
        for module in &request.modules {
            let parse = |bytes| ModuleImage::parse(bytes, &module.name).map_err(io::Error::other);
            let mut image = parse(take(input, module.size)?)?;
            if let Some(size) = module.debug_size {
                image.set_debug_file(parse(take(input, size)?)?);
            }
            if let Some(size) = module.source_map_size {
                image.set_source_map(take(input, size)?);
            }
            image.set_in_component(module.component.clone());
            images.push(Arc::new(image));
        }
        Ok((request, images))
    }
}

fn take(input: &mut dyn Read, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(size as usize);
    input.take(size).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == size { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
