//! Where members of QuickJS's structures lie: from the guest's own debug information, else from a table.
//!
//! Structures and members are called as in `quickjs.c`; JavaScript values are boxed into NaNs, as they are on all 32-bit
//! machines.

use wlprof_plugin::ModuleView;

/// Offsets in bytes, sizes and constants of one build of QuickJS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub(crate) runtime: RuntimeLayout,
    pub(crate) context: ContextLayout,
    pub(crate) frame: FrameLayout,
    pub(crate) object: ObjectLayout,
    pub(crate) shape: ShapeLayout,
    pub(crate) bytecode: BytecodeLayout,
    pub(crate) string: StringLayout,
    pub(crate) classes: Classes,
}

/// `JSRuntime`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeLayout {
    pub(crate) atom_size: u32,
    pub(crate) atom_array: u32,
    pub(crate) context_list: u32,
    pub(crate) current_stack_frame: u32,
}

/// `JSContext`, and the links of lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContextLayout {
    pub(crate) rt: u32,
    pub(crate) link: u32,
    pub(crate) list_prev: u32,
    pub(crate) list_next: u32,
}

/// `JSStackFrame`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FrameLayout {
    pub(crate) prev_frame: u32,
    pub(crate) cur_func: u32,
    pub(crate) cur_pc: u32,
}

/// `JSObject`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectLayout {
    pub(crate) class_id: u32,
    pub(crate) shape: u32,
    pub(crate) prop: u32,
    /// Of functions in bytecode.
    pub(crate) function_bytecode: u32,
    /// Of native functions.
    pub(crate) realm: u32,
}

/// `JSShape`, `JSShapeProperty` and `JSProperty`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShapeLayout {
    pub(crate) prop_hash_mask: u32,
    pub(crate) prop_count: u32,
    pub(crate) properties: Properties,
    pub(crate) property_size: u32,
    pub(crate) atom: u32,
    pub(crate) flags: Bits,
    pub(crate) value_size: u32,
}

/// Where the properties of a shape begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Properties {
    /// After the hash table, which is at this offset and has one word more than the mask says.
    AfterHashTable(u32),
    /// At this offset: the hash table lies before the shape.
    At(u32),
}

/// `JSFunctionBytecode`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BytecodeLayout {
    pub(crate) byte_code_buf: u32,
    pub(crate) byte_code_len: u32,
    pub(crate) realm: u32,
    pub(crate) filename: u32,
    pub(crate) line_num: u32,
    pub(crate) col_num: u32,
    pub(crate) pc2line_len: u32,
    pub(crate) pc2line_buf: u32,
}

/// `JSString`, which atoms are as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StringLayout {
    pub(crate) size: u32,
    pub(crate) len: Bits,
    pub(crate) is_wide_char: Bits,
    /// `None` in releases in which all strings have their characters behind them.
    pub(crate) kind: Option<Bits>,
}

/// Classes of functions that have stack frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Classes {
    pub(crate) bytecode: [u16; 4],
    /// `JS_CLASS_C_FUNCTION`, the only one whose objects know their realm.
    pub(crate) c_function: u16,
    /// What else is native.
    pub(crate) native: [u16; 2],
}

/// A bit-field, as part of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    /// Offset of the word.
    pub(crate) word: u32,
    pub(crate) shift: u32,
    pub(crate) width: u32,
}

impl Bits {
    /// The field's value, of that word.
    pub(crate) fn of(self, word: u32) -> u32 {
        let mask = 1_u32.checked_shl(self.width).map_or(u32::MAX, |bit| bit - 1);
        word.checked_shr(self.shift).unwrap_or(0) & mask
    }
}

impl Layout {
    /// QuickJS-ng 0.16, for wasm32: what `zig cc` 0.15.2 (LLVM 20) says in the debug information of 0.16.2. A test of the
    /// plugin compares the two.
    pub const NG_0_16: Self = Self {
        runtime: RuntimeLayout { atom_size: 0x22c, atom_array: 0x238, context_list: 0x24c, current_stack_frame: 0x28c },
        context: ContextLayout { rt: 8, link: 12, list_prev: 0, list_next: 4 },
        frame: FrameLayout { prev_frame: 0, cur_func: 8, cur_pc: 28 },
        object: ObjectLayout { class_id: 10, shape: 12, prop: 16, function_bytecode: 24, realm: 24 },
        shape: ShapeLayout {
            prop_hash_mask: 16,
            prop_count: 24,
            properties: Properties::AfterHashTable(40),
            property_size: 8,
            atom: 4,
            flags: Bits { word: 0, shift: 26, width: 6 },
            value_size: 8,
        },
        bytecode: BytecodeLayout {
            byte_code_buf: 12,
            byte_code_len: 16,
            realm: 48,
            filename: 56,
            line_num: 60,
            col_num: 64,
            pc2line_len: 72,
            pc2line_buf: 76,
        },
        string: StringLayout {
            size: 16,
            len: Bits { word: 0, shift: 0, width: 31 },
            is_wide_char: Bits { word: 0, shift: 31, width: 1 },
            kind: Some(Bits { word: 4, shift: 28, width: 2 }),
        },
        classes: Classes { bytecode: [13, 17, 55, 59], c_function: 12, native: [15, 16] },
    };

    /// The layout that the module's debug information describes. `None` if it has none, or lacks something: then it is a
    /// QuickJS that keeps its stacks in another way.
    pub fn from_debug_info(view: &dyn ModuleView) -> Option<Self> {
        let at = |structure: &str, member: &str| u32::try_from(view.member(structure, member)?.offset).ok();
        let size = |name: &str| u32::try_from(view.type_size(name)?).ok();
        let class = |name: &str| u16::try_from(view.enumerator(name)?).ok();
        let bits = |structure: &str, member: &str| bits(view, structure, member);
        if size("JSValue")? != 8 {
            return None;
        }
        Some(Self {
            runtime: RuntimeLayout {
                atom_size: at("JSRuntime", "atom_size")?,
                atom_array: at("JSRuntime", "atom_array")?,
                context_list: at("JSRuntime", "context_list")?,
                current_stack_frame: at("JSRuntime", "current_stack_frame")?,
            },
            context: ContextLayout {
                rt: at("JSContext", "rt")?,
                link: at("JSContext", "link")?,
                list_prev: at("list_head", "prev")?,
                list_next: at("list_head", "next")?,
            },
            frame: FrameLayout {
                prev_frame: at("JSStackFrame", "prev_frame")?,
                cur_func: at("JSStackFrame", "cur_func")?,
                cur_pc: at("JSStackFrame", "cur_pc")?,
            },
            object: ObjectLayout {
                class_id: at("JSObject", "class_id")?,
                shape: at("JSObject", "shape")?,
                prop: at("JSObject", "prop")?,
                function_bytecode: at("JSObject", "u.func.function_bytecode")?,
                realm: at("JSObject", "u.cfunc.realm")?,
            },
            shape: ShapeLayout {
                prop_hash_mask: at("JSShape", "prop_hash_mask")?,
                prop_count: at("JSShape", "prop_count")?,
                properties: match at("JSShape", "prop") {
                    Some(offset) => Properties::At(offset),
                    None => Properties::AfterHashTable(at("JSShape", "hash_table")?),
                },
                property_size: size("JSShapeProperty")?,
                atom: at("JSShapeProperty", "atom")?,
                flags: bits("JSShapeProperty", "flags")?,
                value_size: size("JSProperty")?,
            },
            bytecode: BytecodeLayout {
                byte_code_buf: at("JSFunctionBytecode", "byte_code_buf")?,
                byte_code_len: at("JSFunctionBytecode", "byte_code_len")?,
                realm: at("JSFunctionBytecode", "realm")?,
                filename: at("JSFunctionBytecode", "filename")?,
                line_num: at("JSFunctionBytecode", "line_num")?,
                col_num: at("JSFunctionBytecode", "col_num")?,
                pc2line_len: at("JSFunctionBytecode", "pc2line_len")?,
                pc2line_buf: at("JSFunctionBytecode", "pc2line_buf")?,
            },
            string: StringLayout {
                size: size("JSString")?,
                len: bits("JSString", "len")?,
                is_wide_char: bits("JSString", "is_wide_char")?,
                kind: bits("JSString", "kind"),
            },
            classes: Classes {
                bytecode: [
                    class("JS_CLASS_BYTECODE_FUNCTION")?,
                    class("JS_CLASS_GENERATOR_FUNCTION")?,
                    class("JS_CLASS_ASYNC_FUNCTION")?,
                    class("JS_CLASS_ASYNC_GENERATOR_FUNCTION")?,
                ],
                c_function: class("JS_CLASS_C_FUNCTION")?,
                // The second is younger than the first; without it, its number is nobody's.
                native: [class("JS_CLASS_C_FUNCTION_DATA")?, class("JS_CLASS_C_CLOSURE").unwrap_or(u16::MAX)],
            },
        })
    }
}

/// A bit-field, wherever the compiler counts its storage unit from.
fn bits(view: &dyn ModuleView, structure: &str, member: &str) -> Option<Bits> {
    let found = view.member(structure, member)?;
    let within = found.bits?;
    let first = u32::try_from(found.offset).ok()?.checked_mul(8)?.checked_add(within.start)?;
    let bits = Bits { word: first / 32 * 4, shift: first % 32, width: within.end.checked_sub(within.start)? };
    (bits.width > 0 && bits.shift + bits.width <= 32).then_some(bits)
}
