//! The programs that `cargo xtask fleet` compares servers with do so rightly: they are tried without the servers.

use super::receiver::python;
use crate::guest::{fixture, output};
use crate::tested::wlprof;

#[test]
fn what_servers_have_stored_is_compared_function_by_function() {
    let mut check = python("check_stored.py");
    check.arg(wlprof().get_program()).arg(fixture("c-shares.wasm")).arg("2");
    let ran = output(&mut check);
    assert!(ran.code == Some(0) && ran.stdout.contains("messages are compared rightly"), "{ran:?}");
}
