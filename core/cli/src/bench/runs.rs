//! Runs a guest many times: compiled once, with an instance of its own for each run.

use super::Times;
use std::time::Instant;
use wasmtime::{Instance, InstancePre, Store};
use wlprof::profiler::{Attach, Profiler, StoreHandle};
use wlprof_run::guest::Guest;
use wlprof_wasi::{Exit, GuestState, WasiOptions, call, linker, make_room_for_profiler};

/// What to run.
pub(super) struct Runs<'a> {
    pub(super) guest: &'a Guest,
    pub(super) wasi: WasiOptions,
    /// Function to call instead of the main function.
    pub(super) invoke: Option<String>,
    /// What samples the runs.
    pub(super) profiler: Option<&'a Profiler>,
}

/// An instance that has not been called, or how its start function ended.
type Fresh = (Store<GuestState>, Option<StoreHandle>, Result<Instance, Exit>);

impl Runs<'_> {
    /// Runs it once without counting, and then `runs` times, and tells `each` of every run when it is over.
    ///
    /// # Errors
    /// If it cannot be run, or what `each` fails with.
    pub(super) fn run(&self, runs: u32, mut each: impl FnMut(Times) -> wasmtime::Result<()>) -> wasmtime::Result<()> {
        let module = self.guest.code.compiled.module();
        let module = module.ok_or_else(|| wasmtime::format_err!("components are not run here"))?;
        let pre = linker(&self.guest.engine, &self.wasi.flags)?.instantiate_pre(module)?;
        // As Faasm's runner does: what a first run has to fetch and to map is in no time.
        let preflight = self.fresh(&pre, None)?;
        self.call(preflight)?;
        let mut fresh = self.fresh(&pre, self.profiler)?;
        if let (_, Some(attached), _) = &fresh {
            // The timers of a thread are none of the first run's work either.
            attached.ready_thread();
        }
        for _ in 0..runs {
            let began = Instant::now();
            let (store, exit) = self.call(fresh)?;
            let execution = began.elapsed();
            let began = Instant::now();
            drop(store);
            fresh = self.fresh(&pre, self.profiler)?;
            let reset = began.elapsed();
            let (returned, failed) = returned(exit)?;
            each(Times { returned, failed, execution, reset })?;
        }
        Ok(())
    }

    fn fresh(&self, pre: &InstancePre<GuestState>, profiler: Option<&Profiler>) -> wasmtime::Result<Fresh> {
        let mut store = self.wasi.store(&self.guest.engine)?;
        let attach = |profiler: &Profiler| {
            make_room_for_profiler(&mut store);
            profiler.attach(&mut store, Attach::named(&self.guest.name))
        };
        let attached = profiler.map(attach).transpose()?;
        // A start function runs now, and may end as any other.
        let instance = pre.instantiate(&mut store).map_err(Exit::from_error);
        if let (Some(attached), Ok(instance)) = (&attached, &instance) {
            attached.instantiated(&mut store, instance)?;
        }
        Ok((store, attached, instance))
    }

    fn call(&self, fresh: Fresh) -> wasmtime::Result<(Store<GuestState>, Exit)> {
        let (mut store, _attached, instance) = fresh;
        let parameters = self.wasi.arguments.get(1..).unwrap_or_default();
        let exit = match instance {
            Ok(instance) => call(&mut store, &instance, self.invoke.as_deref(), parameters),
            Err(exit) => exit,
        };
        Ok((store, exit))
    }
}

/// What a run returned, and whether it failed: the code that `wasmtime run` ends with, or results as it prints them.
fn returned(exit: Exit) -> wasmtime::Result<(String, bool)> {
    let code = exit.code();
    match (exit, code) {
        (Exit::NotCallable(error), _) => Err(error),
        (Exit::Returned(results), _) if !results.is_empty() => Ok((results.join(" "), false)),
        (_, code) => Ok((code.unwrap_or_default().to_string(), code != Some(0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasmtime::Trap;

    #[test]
    fn what_a_run_returns_is_its_code_or_its_results() {
        let returned = |exit| returned(exit).unwrap();
        assert_eq!(returned(Exit::Returned(Vec::new())), ("0".into(), false));
        assert_eq!(returned(Exit::Returned(vec!["3".into(), "4.5".into()])), ("3 4.5".into(), false));
        assert_eq!(returned(Exit::Code(0)), ("0".into(), false));
        assert_eq!(returned(Exit::Code(7)), ("7".into(), true));
        assert_eq!(returned(Exit::Trapped(Trap::UnreachableCodeReached.into())), ("134".into(), true));
        assert!(super::returned(Exit::NotCallable(wasmtime::format_err!("no"))).is_err());
    }
}
