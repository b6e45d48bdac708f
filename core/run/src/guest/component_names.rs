//! Reads the names that a component imports and exports from its types, without compiling it.

use wasmtime_environ::wasmparser::component_types::ComponentEntityType;
use wasmtime_environ::wasmparser::{Parser, Payload, ValidPayload, Validator, WasmFeatures};
use wlprof_wasi::ComponentNames;

/// Reads a component. `None` if it is not valid: the engine says why.
pub(super) fn component_names(bytes: &[u8]) -> Option<ComponentNames> {
    let mut validator = Validator::new_with_features(WasmFeatures::all());
    let (mut imports, mut exports, mut types) = (Vec::new(), Vec::new(), None);
    // How many components and modules are open in the whole.
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.ok()?;
        match &payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section.clone() {
                    imports.push(import.ok()?.name.name);
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section.clone() {
                    exports.push(export.ok()?.name.name.to_owned());
                }
            }
            _ => {}
        }
        // The bodies of functions are left to the engine.
        if let ValidPayload::End(of_component) = validator.payload(&payload).ok()? {
            types = Some(of_component);
        }
    }
    let types = types?;
    let functions = |name: &str| match types.component_item_for_import(name)?.ty {
        ComponentEntityType::Func(_) => Some((None, vec![name.to_owned()])),
        ComponentEntityType::Instance(instance) => {
            let exports = types[instance].exports.iter();
            let functions = exports.filter(|(_, item)| matches!(item.ty, ComponentEntityType::Func(_)));
            Some((Some(name.to_owned()), functions.map(|(function, _)| function.clone()).collect()))
        }
        // Wasmtime compares these.
        _ => None,
    };
    Some(ComponentNames { imports: imports.into_iter().filter_map(functions).collect(), exports })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_whole_and_not_of_what_lies_in_it() {
        let text = r#"(component
            (component (import "inner" (func)) (export "inner" (func 0)))
            (import "acme:shop/types@1.0.0" (instance (type $u u32) (export "price" (type (eq $u)))))
            (import "acme:shop/log@1.0.0" (instance (export "log" (func)) (export "level" (func (result u32)))))
            (import "plain" (func))
            (core module $m (func (export "f") i32.const 1))
            (export "again" (func 0)))"#;
        let names = component_names(&wat::parse_str(text).unwrap()).unwrap();
        let function = |name: &str| name.to_owned();
        assert_eq!(
            names.imports,
            [
                (Some("acme:shop/types@1.0.0".to_owned()), Vec::new()),
                (Some("acme:shop/log@1.0.0".to_owned()), vec![function("log"), function("level")]),
                (None, vec![function("plain")]),
            ]
        );
        assert_eq!(names.exports, ["again"]);
        assert!(component_names(b"\0asm").is_none());
    }
}
