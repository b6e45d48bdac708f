//! Proves what is read from function bodies against the function table, for every call of every fixture.

use crate::{body::Convention, language::Go, pclntab};
use std::ops::Range;
use wlprof_plugin::testing::TestModule;

const RELEASES: [u32; 2] = [21, 27];
const OTHER_RELEASES: Range<u32> = 22..27;

/// The fixtures of these releases, with symbols and stripped.
fn modules(minors: impl IntoIterator<Item = u32>) -> impl Iterator<Item = (String, TestModule)> {
    let names =
        minors.into_iter().flat_map(|minor| [format!("go-stacks-1.{minor}"), format!("go-stacks-1.{minor}-stripped")]);
    names.map(|name| {
        let module = TestModule::fixture(&name);
        (name, module)
    })
}

#[test]
fn bodies_and_the_function_table_agree() {
    check_bodies(modules(RELEASES));
}

#[test]
fn bodies_and_the_function_table_agree_in_every_other_release() {
    check_bodies(modules(OTHER_RELEASES));
}

fn check_bodies(modules: impl Iterator<Item = (String, TestModule)>) {
    for (name, module) in modules {
        let attached = Go.attach_program(&module).unwrap();
        let code = &mut attached.naming().code;
        let (mut calls, mut known, mut go) = (0, 0, 0);
        for index in 0..code.table.len() {
            let function = code.table.function(index).unwrap();
            let what = format!("{name}: {}", code.table.name(&function).unwrap());
            let body = code.body(index).unwrap();
            if body.convention != Convention::Go {
                continue;
            }
            go += 1;
            for call in &body.calls {
                let Some(return_pc) = call.return_pc else { continue };
                calls += 1;
                let (after, at) = (pclntab::block(return_pc), body.block(call.offset));
                // A call is in the block before the one it returns to, but `morestack` starts the function again.
                assert_eq!(at + u32::from(after != 0), after, "{what} at {}", call.offset);
                // What switches stacks sets SP to what nothing here can know.
                let Some(depth) = body.state(call.offset).depth else { continue };
                let size = code.table.frame_size(&function, at).unwrap();
                // The tables say what is below the return address; the call has pushed one more.
                assert_eq!(depth, i32::try_from(size).unwrap() + 8, "{what} at {}", call.offset);
                known += 1;
            }
        }
        assert!(go > 1000 && calls > 8000 && known + 8 > calls, "{name}: {go} functions, {known} of {calls} calls");
        assert!(code.moduledata.gofunc.is_some(), "{name} has inlined calls");
    }
}

#[test]
fn every_function_has_the_name_the_linker_gave_it() {
    check_names(modules(RELEASES));
}

#[test]
fn every_function_has_the_name_the_linker_gave_it_in_every_other_release() {
    check_names(modules(OTHER_RELEASES));
}

fn check_names(modules: impl Iterator<Item = (String, TestModule)>) {
    for (name, module) in modules {
        let attached = Go.attach_program(&module).unwrap();
        let code = &mut attached.naming().code;
        assert_eq!(module.names.is_empty(), name.ends_with("-stripped"), "{name}");
        for index in 0..code.table.len() {
            let function = code.table.function(index).unwrap();
            let found = code.table.name(&function).unwrap();
            assert!(!found.is_empty());
            let Some(linker) = module.names.get(&(index + module.imports.len() as u32)) else { continue };
            // The name section has `_` for every run of characters that are not of a word.
            let mangled: String = found
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '.' { c } else { '_' })
                .collect();
            let squeeze = |text: &str| text.split('_').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_");
            assert_eq!(squeeze(&mangled), squeeze(linker), "{name}");
        }
    }
}
