//! What stops a guest so that it can be read, a file or a folder for each way. Each implements `Transport` of
//! `running/threads.rs`. `SamplerKind::resolve` says which works here, and `at_work.rs` makes it.

pub(super) mod epoch;
#[cfg_attr(not(all(target_os = "linux", any(target_arch = "aarch64", target_arch = "x86_64"))), path = "no_signal.rs")]
pub(super) mod signal;
pub(super) mod ticker;

use super::options::SamplerKind;

impl SamplerKind {
    /// Which sampler [`SamplerKind::Auto`] is on this machine: signal, or epoch and the reason. To be asked before the
    /// guest is compiled, since the epoch sampler needs its checks.
    ///
    /// # Errors
    /// If the signal sampler is asked for by name and does not work here.
    pub fn resolve(self) -> wasmtime::Result<(Self, Option<String>)> {
        self.resolve_with(signal::check)
    }

    fn resolve_with(
        self,
        signal_works: impl FnOnce() -> wasmtime::Result<()>,
    ) -> wasmtime::Result<(Self, Option<String>)> {
        match self {
            Self::Epoch => Ok((Self::Epoch, None)),
            Self::Signal => signal_works().map(|()| (Self::Signal, None)),
            Self::Auto => Ok(match signal_works() {
                Ok(()) => (Self::Signal, None),
                Err(error) => (Self::Epoch, Some(format!("the signal sampler does not work here: {error:#}"))),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_falls_back_with_the_reason_and_a_named_sampler_fails_with_it() {
        let broken = || Err(wasmtime::format_err!("memory is elsewhere"));
        let (kind, note) = SamplerKind::Auto.resolve_with(broken).unwrap();
        assert_eq!(kind, SamplerKind::Epoch);
        assert!(note.unwrap().contains("memory is elsewhere"));
        assert!(SamplerKind::Signal.resolve_with(broken).is_err());
        assert_eq!(SamplerKind::Auto.resolve_with(|| Ok(())).unwrap(), (SamplerKind::Signal, None));
    }
}
