//! A module among those that work on the same memory: what plugins see of a program that is several modules.

use super::image::ModuleImage;
use std::borrow::Borrow;
use std::ops::Range;
use wlprof_plugin::{FunctionImport, Member, ModuleView, OutOfBounds};

/// A module with its siblings.
pub struct Among<'a> {
    module: &'a ModuleImage,
    siblings: Vec<&'a ModuleImage>,
    /// How many of them come before it.
    before: usize,
}

/// Module `number` of those of a component, or the one that there is, as plugins see it; `None` past the end.
pub fn among<I: Borrow<ModuleImage>>(modules: &[I], number: usize) -> Option<Among<'_>> {
    let module = modules.get(number)?.borrow();
    let before = module.siblings().partition_point(|sibling| (*sibling as usize) < number);
    let siblings = module.siblings().iter().filter_map(|sibling| Some(modules.get(*sibling as usize)?.borrow()));
    Some(Among { module, siblings: siblings.collect(), before })
}

impl ModuleView for Among<'_> {
    fn name(&self) -> &str {
        self.module.name()
    }

    fn bytes(&self) -> &[u8] {
        self.module.bytes()
    }

    fn custom_section(&self, name: &str) -> Option<&[u8]> {
        self.module.custom_section(name)
    }

    fn function_imports(&self) -> &[FunctionImport] {
        self.module.function_imports()
    }

    fn function_body(&self, index: u32) -> Option<Range<u32>> {
        self.module.function_body(index)
    }

    fn function_name(&self, index: u32) -> Option<&str> {
        self.module.function_name(index)
    }

    fn global_named(&self, name: &str) -> Option<u32> {
        self.module.global_named(name)
    }

    fn function_named(&self, name: &str) -> Option<u32> {
        self.module.function_named(name)
    }

    fn table_function(&self, table: u32, element: u64) -> Option<u32> {
        self.module.table_function(table, element)
    }

    fn initial_data(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        let (before, behind) = self.siblings.split_at(self.before.min(self.siblings.len()));
        // In the order of the file, which is mostly that in which they are instantiated: the last one's data stays.
        let all = || before.iter().chain([&self.module]).chain(behind);
        // Whoever imports a memory says how large it is at least.
        if !all().any(|module| module.initial().check(address, buffer).is_ok()) {
            return Err(OutOfBounds);
        }
        buffer.fill(0);
        all().for_each(|module| module.initial().put_data(module.bytes(), address, buffer));
        Ok(())
    }

    fn code_hash(&self) -> Option<&[u8; 32]> {
        self.module.code_hash()
    }

    fn siblings(&self) -> Vec<&dyn ModuleView> {
        self.siblings.iter().map(|sibling| *sibling as &dyn ModuleView).collect()
    }

    fn variable_address(&self, name: &str) -> Option<u64> {
        self.module.variable_address(name)
    }

    fn member(&self, structure: &str, member: &str) -> Option<Member> {
        self.module.member(structure, member)
    }

    fn type_size(&self, name: &str) -> Option<u64> {
        self.module.type_size(name)
    }

    fn enumerator(&self, name: &str) -> Option<i64> {
        self.module.enumerator(name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::component::core_modules;
    use super::*;

    #[test]
    fn memory_holds_what_all_modules_have_put_there() {
        let text = r#"(component
            (core module $owner (memory (export "memory") 1) (data (i32.const 4) "owner"))
            (core module $library (import "env" "memory" (memory 0)) (data (i32.const 6) "XY") (data (i32.const 10) "library"))
            (core module $other (memory 1) (data (i32.const 0) "other"))
            (core instance $owner (instantiate $owner))
            (core instance (instantiate $library (with "env" (instance $owner))))
            (core instance (instantiate $other)))"#;
        let modules = core_modules(&wat::parse_str(text).unwrap(), "x").unwrap();
        for number in 0..2 {
            let module = among(&modules, number).unwrap();
            let mut buffer = [1; 16];
            module.initial_data(2, &mut buffer).unwrap();
            assert_eq!(&buffer, b"\0\0owXYr\0library\0");
            assert_eq!(module.initial_data(65_536, &mut [0]), Err(OutOfBounds));
            let siblings: Vec<String> = module.siblings().iter().map(|sibling| sibling.name().to_owned()).collect();
            assert_eq!(siblings, [["library", "owner"][number]]);
        }
        assert!(among(&modules, 2).unwrap().siblings().is_empty() && among(&modules, 3).is_none());
    }
}
