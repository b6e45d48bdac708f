//! As `testdata/plugins/additions.c`, in Rust: a plugin that uses what others rarely do, and says what it was told.

use wlprof_plugin::{
    AttachError, Detection, FrameKey, FrameSink, GuestMemory, Label, Language, ModuleView, OutOfBounds, Program,
    SourceFrame, Truncation, Walker, WasmFrame,
};

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

wlprof_plugin::export_plugin!("additions" => Additions);

struct Additions;

const INNER: u64 = 1;
const OUTER: u64 = 2;
const COLOR: u64 = 10;
const SHAPE: u64 = 11;

impl Language for Additions {
    fn name(&self) -> &str {
        "additions"
    }

    fn detect(&self, _module: &dyn ModuleView) -> Detection {
        Detection::Yes("additions".to_owned())
    }

    fn attach(&self, module: &dyn ModuleView) -> Result<Arc<dyn Program>, AttachError> {
        // The first page of memory with data in it.
        let mut page = vec![0; 4096];
        let mut used =
            |number: &u64| module.initial_data(number * 4096, &mut page).is_err() || page.iter().any(|byte| *byte != 0);
        let number = (0..).find(|number| used(number)).unwrap_or_default();
        let sum: u64 = page.iter().map(|byte| u64::from(*byte)).sum();
        let known = module.function_named("no such function").is_none()
            && module.table_function(0, 0).is_none()
            && module.initial_data(u64::MAX, &mut [0; 4]) == Err(OutOfBounds);
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let said = format!(
            "{} evaluate {} pointer 1 to {} data {number} {sum} hash {}",
            u8::from(known),
            module.function_named("evaluate").unwrap_or_default(),
            module.table_function(0, 1).unwrap_or_default(),
            module.code_hash().map(|hash| hex(hash)).unwrap_or_default(),
        );
        let sibling = |(number, sibling): (u32, &dyn ModuleView)| {
            let base = sibling.global_named("__memory_base").unwrap_or_default();
            format!(" sibling {number} {} {base}", sibling.name())
        };
        let siblings: String = (1..).zip(module.siblings()).map(sibling).collect();
        Ok(Arc::new(Facts { said: said + &siblings, walks: Arc::default() }))
    }
}

struct Facts {
    said: String,
    /// Of all its walkers.
    walks: Arc<AtomicU32>,
}

impl Program for Facts {
    fn walker(&self) -> Option<Box<dyn Walker>> {
        Some(Box::new(Stacks { walks: self.walks.clone() }))
    }

    fn symbolize(&self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        let function = match frame {
            FrameKey::Own(INNER) => "inner",
            FrameKey::Own(_) => "outer",
            FrameKey::Wasm(frame) if frame.is_attached() => return,
            FrameKey::Wasm(WasmFrame { module, function, code_offset }) => {
                let function = format!("{function} in sibling {module} at {code_offset}");
                return out.push(SourceFrame { function, ..SourceFrame::default() });
            }
            FrameKey::Elided => panic!("there is nothing to name"),
        };
        out.push(SourceFrame { function: function.to_owned(), ..SourceFrame::default() });
    }

    fn labels(&self, key: u64, out: &mut Vec<Label>) {
        let (name, value) = if key == COLOR { ("color", "red") } else { ("shape", "round") };
        out.push(Label { name: name.to_owned(), value: value.to_owned() });
    }

    /// The last one says how often the walkers have walked.
    fn warnings(&self) -> Vec<String> {
        vec![self.said.clone(), format!("after {} walks", self.walks.load(Ordering::Relaxed))]
    }
}

struct Stacks {
    walks: Arc<AtomicU32>,
}

impl Walker for Stacks {
    fn walks_without_allocating(&self) -> bool {
        true
    }

    fn walk(&mut self, _guest: &dyn GuestMemory, _wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        self.walks.fetch_add(1, Ordering::Relaxed);
        out.set_labels(COLOR);
        assert!(out.add_labels(SHAPE));
        out.push(INNER)?;
        out.push_elided()?;
        out.push(OUTER)
    }
}
