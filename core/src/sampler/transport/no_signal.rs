//! The signal sampler where there is none: it says what it needs.

use crate::sampler::options::SamplerOptions;
use crate::sampler::running::Transport;

/// Says what it needs.
///
/// # Errors
/// Always.
pub(in crate::sampler) fn check() -> wasmtime::Result<()> {
    wasmtime::bail!("it needs Linux on x86-64 or aarch64")
}

/// Makes nothing.
///
/// # Errors
/// Always.
pub(in crate::sampler) fn transport(
    _options: &SamplerOptions,
    _by_ticker: bool,
) -> wasmtime::Result<Box<dyn Transport>> {
    Err(check().unwrap_err())
}

/// Nothing is asked where there is no signal sampler.
pub(in crate::sampler) fn needs_ticker() -> bool {
    false
}
