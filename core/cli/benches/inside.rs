//! What `wlprof-inside` costs a program that answers short requests: CPU time of the whole process, as ratios to rounds without it.
//!
//! Each round answers the same requests in each of three ways, in turn: without a profiler, with one that is paused, and with one that samples
//! at 100 Hz. The medians of the rounds' ratios are printed. `--rounds N` sets how many there are.

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("wlprof-inside is for Linux");
}

#[cfg(target_os = "linux")]
fn main() {
    linux::measure();
}

#[cfg(target_os = "linux")]
mod linux {
    use nix::time::{ClockId, clock_gettime};
    use std::time::{Duration, Instant};
    use wasmtime::{Engine, Linker, Module, Store};
    use wlprof_inside::Profiler;

    /// A request in each of its own store: it works, and calls the host ten times.
    const GUEST: &str = r#"(module
        (import "host" "call" (func $call))
        (func (export "run") (param $rounds i32) (local $left i32) (local $calls i32)
            (local.set $calls (i32.const 10))
            (loop $calls
                (local.set $left (local.get $rounds))
                (loop $work
                    (br_if $work (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
                (call $call)
                (br_if $calls (local.tee $calls (i32.sub (local.get $calls) (i32.const 1)))))))"#;

    struct Host {
        engine: Engine,
        module: Module,
        linker: Linker<()>,
    }

    impl Host {
        fn new() -> Self {
            let engine = Engine::default();
            let module = Module::new(&engine, GUEST).expect("it is a module");
            let mut linker = Linker::new(&engine);
            linker.func_wrap("host", "call", || ()).expect("it is new");
            Self { engine, module, linker }
        }

        fn answer(&self, rounds: i32) {
            let mut store = Store::new(&self.engine, ());
            let instance = self.linker.instantiate(&mut store, &self.module).expect("it has what it imports");
            let run = instance.get_typed_func::<i32, ()>(&mut store, "run").expect("it exports that");
            run.call(&mut store, rounds).expect("it does not trap");
        }

        /// How many rounds a request has that takes `long`.
        fn rounds_of(&self, long: Duration) -> i32 {
            let mut rounds = 100;
            loop {
                let begun = Instant::now();
                (0..20).for_each(|_| self.answer(rounds));
                let took = begun.elapsed() / 20;
                if took >= long {
                    return rounds;
                }
                rounds += rounds / 4;
            }
        }

        /// CPU time of the whole process while so many requests are answered, in seconds.
        fn cpu_s(&self, requests: u32, rounds: i32) -> f64 {
            let before = own_cpu();
            (0..requests).for_each(|_| self.answer(rounds));
            (own_cpu() - before).as_secs_f64()
        }
    }

    /// CPU time of this process.
    fn own_cpu() -> Duration {
        clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("each process has that clock").into()
    }

    pub(super) fn measure() {
        let arguments: Vec<String> = std::env::args().collect();
        let rounds_at = arguments.iter().position(|argument| argument == "--rounds");
        let count = rounds_at.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(21);
        let host = Host::new();
        for long in [Duration::from_micros(30), Duration::from_millis(1)] {
            let rounds = host.rounds_of(long);
            let requests = (Duration::from_secs(1).as_nanos() / long.as_nanos()) as u32;
            let (mut paused, mut sampled) = (Vec::new(), Vec::new());
            for _ in 0..count {
                let without = host.cpu_s(requests, rounds);
                let profiler = Profiler::start().expect("this process may be sampled");
                let window = profiler.window().expect("it samples");
                sampled.push(host.cpu_s(requests, rounds) / without);
                drop(window);
                profiler.pause();
                paused.push(host.cpu_s(requests, rounds) / without);
            }
            println!("requests of {long:?}: paused {}, at 100 Hz {}", spread(paused), spread(sampled));
        }
    }

    /// The median, and the quartiles.
    fn spread(mut ratios: Vec<f64>) -> String {
        ratios.sort_unstable_by(f64::total_cmp);
        let at = |part: usize| ratios[(ratios.len() - 1) * part / 4];
        format!("{:.3} ({:.3} to {:.3})", at(2), at(1), at(3))
    }
}
