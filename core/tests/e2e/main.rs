//! End-to-end tests: the real binary on real guests. One test binary, because linking Wasmtime takes a while.

mod lines;
mod sampled;
mod shares;
mod stacks;
