//! Detection and attachment.

use crate::{
    detect::{self, Evidence},
    layout::Layout,
    linking::LinkPlaces,
    program::JavaScriptProgram,
    roles::Roles,
};
use std::sync::Arc;
use wlprof_plugin::{AttachError, Detection, Language, ModuleView, Program};

/// What can be walked, for those who bring something else.
const SUPPORTED: &str = "QuickJS-ng 0.16, others with DWARF";

/// JavaScript, on QuickJS.
#[derive(Clone, Copy, Debug, Default)]
pub struct JavaScript;

impl JavaScript {
    /// The layout of the QuickJS in a module: what its debug information says, else that of the table, if it is for it.
    fn layout(view: &dyn ModuleView, evidence: &Evidence) -> Option<Layout> {
        Layout::from_debug_info(view).or_else(|| evidence.is_ng_0_16.then_some(Layout::NG_0_16))
    }
}

impl Language for JavaScript {
    fn name(&self) -> &str {
        "javascript"
    }

    fn detect(&self, view: &dyn ModuleView) -> Detection {
        let Some(evidence) = detect::detect(view.bytes()) else { return Detection::No };
        if Self::layout(view, &evidence).is_some() {
            Detection::Yes(evidence.found)
        } else {
            Detection::Unsupported { found: evidence.found, supported: SUPPORTED.to_owned() }
        }
    }

    fn attach(&self, view: &dyn ModuleView) -> Result<Arc<dyn Program>, AttachError> {
        let Some(evidence) = detect::detect(view.bytes()) else {
            return Err(AttachError("this is not QuickJS".to_owned()));
        };
        let Some(layout) = Self::layout(view, &evidence) else {
            return Err(AttachError(format!("unsupported {} (supported: {SUPPORTED})", evidence.found)));
        };
        // Linkers make the stack pointer the first global.
        let stack_pointer = view.global_named("__stack_pointer").unwrap_or(0);
        let linking = LinkPlaces::new(view.bytes(), &layout);
        Ok(Arc::new(JavaScriptProgram::new(layout, evidence.name_atom, Roles::new(view), linking, stack_pointer)))
    }
}
