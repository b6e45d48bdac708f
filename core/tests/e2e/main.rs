//! Runs the `wlprof` command on real guests and looks at what it leaves: exit code, output, profile.
//!
//! One binary for all of it, because linking Wasmtime takes longer than most of the tests.

mod as_wasmtime_run;
mod bad_input;
mod bad_modules;
mod behaviour;
mod cli;
mod clock;
mod compared;
mod contained;
mod dynamic;
mod escape;
mod go;
mod go_calls;
mod grants;
mod guest;
mod host_calls;
mod http;
mod interruption;
mod languages;
mod last_call;
mod layout;
mod library;
mod lines;
mod live;
mod misbehaving;
mod output;
mod page;
mod perf;
mod plugin_abi;
mod plugin_kit;
mod pprof;
mod python;
mod quickjs;
mod running;
mod sampled;
mod sections;
mod shares;
mod sources;
mod speedscope;
mod stacks;
mod stores;
mod table;
mod tutorial;
mod waiting;
mod world;
