//! What a module's first memory and its tables hold before any of it runs: the contents of its active segments.

use std::ops::Range;
use wasmparser::{
    BinaryReaderError, ConstExpr, DataKind, ElementItems, ElementKind, MemoryType, Operator, Parser, Payload, TypeRef,
};
use wlprof_plugin::OutOfBounds;

/// The size of a page of memory that has no other.
const PAGE_SIZE_LOG2: u32 = 16;

/// The contents of a module's active segments. Segments whose place is not a constant are left out.
#[derive(Debug, Default)]
pub(super) struct Initial {
    /// Size in bytes of the first memory.
    memory_size: u64,
    data: Vec<Data>,
    elements: Vec<Elements>,
}

#[derive(Debug)]
struct Data {
    address: u64,
    /// Where its bytes lie in the module.
    bytes: Range<usize>,
}

#[derive(Debug)]
struct Elements {
    table: u32,
    first: u64,
    /// `None` for what is null, or no function by a constant.
    functions: Vec<Option<u32>>,
}

impl Initial {
    /// The address and the bytes of each segment of data, in `module`.
    pub(super) fn segments<'m>(&self, module: &'m [u8]) -> impl Iterator<Item = (u64, &'m [u8])> {
        self.data.iter().filter_map(|data| Some((data.address, module.get(data.bytes.clone())?)))
    }

    /// Reads the segments of a module. Behind what is malformed nothing is read: the engine refuses such modules.
    pub(super) fn read(module: &[u8]) -> Self {
        let mut initial = Self::default();
        let mut memories = Vec::new();
        for payload in Parser::new(0).parse_all(module) {
            let Ok(payload) = payload else { break };
            if initial.take(payload, &mut memories).is_err() {
                break;
            }
        }
        initial.memory_size = memories.first().map_or(0, size);
        initial
    }

    fn take(&mut self, payload: Payload<'_>, memories: &mut Vec<MemoryType>) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    if let TypeRef::Memory(memory) = import?.ty {
                        memories.push(memory);
                    }
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    memories.push(memory?);
                }
            }
            Payload::DataSection(section) => {
                for data in section {
                    let data = data?;
                    if let DataKind::Active { memory_index: 0, offset_expr } = data.kind
                        && let (Some(address), false) = (number(&offset_expr), data.data.is_empty())
                    {
                        // A segment ends with its bytes.
                        let bytes = data.range.end - data.data.len()..data.range.end;
                        self.data.push(Data { address, bytes });
                    }
                }
            }
            Payload::ElementSection(section) => {
                for element in section {
                    let element = element?;
                    let ElementKind::Active { table_index, offset_expr } = element.kind else { continue };
                    let Some(first) = number(&offset_expr) else { continue };
                    let functions = match element.items {
                        ElementItems::Functions(indices) => indices.into_iter().map(|index| index.map(Some)).collect(),
                        ElementItems::Expressions(_, items) => {
                            items.into_iter().map(|item| item.map(|item| function(&item))).collect()
                        }
                    };
                    let (table, functions): (_, Result<_, BinaryReaderError>) = (table_index.unwrap_or(0), functions);
                    self.elements.push(Elements { table, first, functions: functions? });
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Fills `buffer` with what the first memory of `module`, the one that was read, holds at `address`.
    pub(super) fn data(&self, module: &[u8], address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        self.check(address, buffer)?;
        buffer.fill(0);
        self.put_data(module, address, buffer);
        Ok(())
    }

    /// Whether the memory has so much at `address`.
    pub(super) fn check(&self, address: u64, buffer: &[u8]) -> Result<(), OutOfBounds> {
        let end = address.checked_add(buffer.len() as u64).filter(|end| *end <= self.memory_size);
        end.map(|_| ()).ok_or(OutOfBounds)
    }

    /// Puts what the segments of `module`, the one that was read, have at `address` into `buffer`.
    pub(super) fn put_data(&self, module: &[u8], address: u64, buffer: &mut [u8]) {
        let end = address.saturating_add(buffer.len() as u64);
        // Where segments overlap the last one stays.
        for segment in &self.data {
            let bytes = module.get(segment.bytes.clone()).unwrap_or_default();
            let segment_end = segment.address.saturating_add(bytes.len() as u64);
            let (from, to) = (address.max(segment.address), end.min(segment_end));
            if from < to {
                let within = |start: u64| (from - start) as usize..(to - start) as usize;
                buffer[within(address)].copy_from_slice(&bytes[within(segment.address)]);
            }
        }
    }

    /// The function that is element `element` of table `table`.
    pub(super) fn table_function(&self, table: u32, element: u64) -> Option<u32> {
        let at = |segment: &Elements| {
            let index = element.checked_sub(segment.first).filter(|_| segment.table == table)?;
            segment.functions.get(usize::try_from(index).ok()?).copied()
        };
        self.elements.iter().rev().find_map(at)?
    }
}

/// Size of a memory in bytes.
fn size(memory: &MemoryType) -> u64 {
    1_u64
        .checked_shl(memory.page_size_log2.unwrap_or(PAGE_SIZE_LOG2))
        .map_or(0, |page| memory.initial.saturating_mul(page))
}

/// The number that a constant expression is, if it is no more than one.
fn number(expression: &ConstExpr<'_>) -> Option<u64> {
    Some(match only_operator(expression)? {
        Operator::I32Const { value } => u64::from(value as u32),
        Operator::I64Const { value } => value as u64,
        _ => return None,
    })
}

/// The function that a constant expression refers to.
fn function(expression: &ConstExpr<'_>) -> Option<u32> {
    match only_operator(expression)? {
        Operator::RefFunc { function_index } => Some(function_index),
        _ => None,
    }
}

fn only_operator<'a>(expression: &ConstExpr<'a>) -> Option<Operator<'a>> {
    let mut operators = expression.get_operators_reader();
    let operator = operators.read().ok()?;
    matches!(operators.read(), Ok(Operator::End)).then_some(operator)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"(module
        (import "env" "base" (global $base i32))
        (import "env" "log" (func $log))
        (memory 1) (memory $other 1) (table $t 10 funcref) (table $u 4 funcref)
        (data (i32.const 8) "abcdef") (data (i32.const 10) "XY") (data "passive")
        (data (global.get $base) "elsewhere") (data (memory $other) (i32.const 0) "other")
        (data (i32.const 65534) "zz")
        (func $f) (func $g)
        (elem (i32.const 1) $f $g $log) (elem (i32.const 2) $f)
        (elem (table $u) (i32.const 3) funcref (ref.func $g)) (elem (i32.const 7) funcref (ref.null func)))"#;

    #[test]
    fn memory_holds_its_active_segments_and_zeroes() {
        let module = wat::parse_str(TEXT).unwrap();
        let initial = Initial::read(&module);
        let read = |address, length| {
            let mut buffer = vec![1; length];
            initial.data(&module, address, &mut buffer).map(|()| buffer)
        };
        assert_eq!(read(6, 10).unwrap(), b"\0\0abXYef\0\0");
        assert_eq!(read(9, 2).unwrap(), b"bX");
        assert_eq!(read(0, 5).unwrap(), [0; 5]);
        assert_eq!(read(65_533, 3).unwrap(), b"\0zz");
        assert_eq!(read(65_536, 0).unwrap(), b"");
        assert_eq!(read(65_534, 3), Err(OutOfBounds));
        assert_eq!(read(u64::MAX, 2), Err(OutOfBounds));
    }

    #[test]
    fn tables_hold_the_functions_of_their_segments() {
        let initial = Initial::read(&wat::parse_str(TEXT).unwrap());
        let table = |table| (0..10).map(|element| initial.table_function(table, element)).collect::<Vec<_>>();
        assert_eq!(table(0), [None, Some(1), Some(1), Some(0), None, None, None, None, None, None]);
        assert_eq!(table(1)[..4], [None, None, None, Some(2)]);
        assert_eq!(initial.table_function(2, 0), None);
        assert_eq!(initial.table_function(0, u64::MAX), None);
    }

    #[test]
    fn what_is_cut_short_is_read_as_far_as_it_goes() {
        let module = wat::parse_str(TEXT).unwrap();
        for end in 0..module.len() {
            let cut = &module[..end];
            let initial = Initial::read(cut);
            let _ = initial.data(cut, 0, &mut [0; 100]);
        }
    }
}
