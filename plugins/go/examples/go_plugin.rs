//! The Go plugin as a dynamic library. wlprof has it built in; the tests load it to see that nothing is lost on the way.

use wlprof_go::Go;

wlprof_plugin::export_plugin!("go" => Go);
