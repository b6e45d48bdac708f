//! Prints the offsets that a row of the table of layouts needs, from the DWARF of a CPython: `layout PYTHON.wasm`.
//! Members that a release does not have are printed as `-`.

#[path = "../tests/structures/mod.rs"]
mod structures;

/// Structure and member, as CPython's headers name them in one release or another.
const MEMBERS: &[(&str, &str)] = &[
    ("pyruntimestate", "debug_offsets"),
    ("pyruntimestate", "interpreters.head"),
    ("pyruntimestate", "interpreters.main"),
    ("pyruntimestate", "_main_interpreter"),
    ("pyruntimestate", "ceval.gil.last_holder"),
    ("_is", "next"),
    ("_is", "tstate_head"),
    ("_is", "threads.head"),
    ("_is", "_gil.last_holder"),
    ("_is", "gc.collecting"),
    ("_ts", "next"),
    ("_ts", "interp"),
    ("_ts", "cframe"),
    ("_ts", "current_frame"),
    ("_PyThreadStateImpl", "asyncio_tasks_head"),
    ("_PyCFrame", "current_frame"),
    ("_PyCFrame", "previous"),
    ("_PyInterpreterFrame", "f_code"),
    ("_PyInterpreterFrame", "f_executable"),
    ("_PyInterpreterFrame", "previous"),
    ("_PyInterpreterFrame", "prev_instr"),
    ("_PyInterpreterFrame", "instr_ptr"),
    ("_PyInterpreterFrame", "is_entry"),
    ("_PyInterpreterFrame", "owner"),
    ("_PyInterpreterFrame", "stackpointer"),
    ("_PyGenObject", "gi_frame_state"),
    ("_PyGenObject", "gi_iframe"),
    ("TaskObj", "task_fut_waiter"),
    ("TaskObj", "task_coro"),
    ("TaskObj", "task_node"),
    ("PyCodeObject", "ob_base.ob_size"),
    ("PyCodeObject", "co_consts"),
    ("PyCodeObject", "co_names"),
    ("PyCodeObject", "co_exceptiontable"),
    ("PyCodeObject", "co_firstlineno"),
    ("PyCodeObject", "co_filename"),
    ("PyCodeObject", "co_name"),
    ("PyCodeObject", "co_qualname"),
    ("PyCodeObject", "co_linetable"),
    ("PyCodeObject", "co_code_adaptive"),
    ("PyBytesObject", "ob_base.ob_size"),
    ("PyBytesObject", "ob_sval"),
    ("PyASCIIObject", "length"),
    ("PyASCIIObject", "state"),
    ("PyASCIIObject", "state.kind"),
    ("PyASCIIObject", "state.compact"),
    ("PyASCIIObject", "state.ascii"),
    ("PyUnicodeObject", "data"),
];

const SIZES: &[&str] =
    &["pyruntimestate", "_is", "_ts", "_PyInterpreterFrame", "PyCodeObject", "PyASCIIObject", "PyCompactUnicodeObject"];

fn main() {
    let path = std::env::args().nth(1).expect("usage: layout PYTHON.wasm");
    let module = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let structures = structures::Structures::read(&module);
    let text = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    for (structure, member) in MEMBERS {
        println!("{structure}.{member} {}", text(structures.offset(structure, member)));
    }
    for structure in SIZES {
        println!("sizeof({structure}) {}", text(structures.size(structure)));
    }
}
