//! Runs the `wlprof` command on real guests and looks at what it leaves: exit code, output, profile.
//!
//! One binary for all of it, because linking Wasmtime takes longer than most of the tests. It is Linux's own, as are the programs
//! that it compares with; `cargo xtask test --target` has it run the command of another platform.

#![cfg(target_os = "linux")]

mod as_wasmtime_run;
mod assembly;
mod attach;
mod attach_live;
mod bad_input;
mod bad_modules;
mod behaviour;
mod bench;
mod browser;
mod cli;
mod clock;
mod compared;
mod compiling;
mod components;
mod contained;
mod dynamic;
mod embedded_heaps;
mod embedding;
mod escape;
mod go;
mod go_calls;
mod go_heap;
mod grants;
mod graph;
mod guest;
mod heap;
mod heap_faults;
mod heap_profile;
mod host_calls;
mod hosts;
mod http;
mod inside;
mod inside_host_frames;
#[cfg(target_os = "linux")]
mod inside_hosts;
mod interruption;
mod languages;
mod last_call;
mod layout;
mod library;
mod lines;
mod live;
mod memory;
mod misbehaving;
mod output;
mod page;
mod perf;
mod plugin_abi;
mod plugin_heaps;
mod plugin_kit;
mod pprof;
mod push;
mod python;
mod python_resumed;
mod quickjs;
mod real_guests;
mod running;
mod sampled;
mod sections;
mod serve;
mod serve_turns;
mod shares;
mod sleepers;
mod small_heaps;
mod source_map;
mod sources;
mod speedscope;
mod spidermonkey;
mod stacks;
mod stores;
mod stress;
mod table;
mod terminal_width;
mod tested;
mod top;
mod tutorial;
mod view;
mod waiting;
mod world;
