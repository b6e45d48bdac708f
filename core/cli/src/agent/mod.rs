//! `wlprof agent`: samples every process of the machine that runs Wasmtime, as they come and go, and pushes their profiles.

mod budget;
mod filter;
mod scan;
mod target;

use super::attach::ProgramCache;
use super::available_plugins::Plugins;
use super::failure::{FAILED, Failure};
use super::http::{ListenAddress, Server};
use super::interrupt::Interrupts;
use super::live;
use super::options::push::PushOptions;
use super::options::sampling::{ClockChoice, parse_overhead};
use super::os::signals::Suspension;
use super::{pushing, say};
use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use budget::Budget;
use clap::Args;
use filter::Pattern;
use scan::Scan;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use target::Target;
use wlprof::languages::Choice;
use wlprof_attach::Options;
use wlprof_push::{LAST_WINDOWS, PushCounts, Pusher, Resource, chance};
use wlprof_recording::View;

/// How often it is looked whether there is something to do.
const TICK: Duration = Duration::from_millis(200);

/// How often it is looked at what the agent took.
const LOOK_AT_BUDGET: Duration = Duration::from_secs(15);

/// How often images are looked for in a process.
const LOOK_FOR_IMAGES: Duration = Duration::from_secs(5);

/// Processes that are sampled at a time: each takes a thread, and three open files for each of its own.
const MAX_PROCESSES: usize = 500;

/// Options of `wlprof agent`.
#[derive(Args)]
pub(super) struct Agent {
    /// Attach only to such processes; may repeat
    ///
    /// A program's name or its whole command, with * for any text; or user:NAME, cgroup:PATH, command:TEXT.
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::parse)]
    include: Vec<Pattern>,
    /// Do not attach to such processes; may repeat
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::parse)]
    exclude: Vec<Pattern>,
    /// Samples a second, at most
    #[arg(long, value_name = "HZ", default_value_t = 19.0, value_parser = super::attach::rate)]
    rate: f64,
    /// What the agent may take of one processor, in percent; the rate is lowered to keep it
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = parse_overhead)]
    max_cpu: f64,
    /// Which time counts
    #[arg(long, value_enum, default_value_t = ClockChoice::Cpu, hide_short_help = true)]
    clock: ClockChoice,
    /// Load a language plugin, a dynamic library; may repeat. Its code runs in wlprof, with all rights of yours
    #[arg(long = "plugin", value_name = "FILE", hide_short_help = true)]
    plugins: Vec<std::path::PathBuf>,
    /// Show counts for Prometheus at http://ADDR:PORT/metrics
    #[arg(long, value_name = "[ADDR:]PORT")]
    listen: Option<ListenAddress>,
    /// Say nothing of processes that come and go
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    pushing: PushOptions,
}

/// What others are shown of the agent.
#[derive(Default)]
struct Shown {
    counts: Mutex<PushCounts>,
    attached: AtomicUsize,
    rate_mhz: AtomicUsize,
}

/// Attaches and pushes until it is interrupted.
pub(super) fn run(agent: &Agent) -> Result<u8, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(FAILED, error);
    let Some(push) = agent.pushing.push("", View::Guest)? else {
        if agent.pushing.push.is_some() {
            return Ok(0);
        }
        return Err(Failure::new(FAILED, "--push says where profiles go; give it, such as --push pyroscope://HOST"));
    };
    let listener = agent.listen.map(live::listen).transpose()?;
    let plugins = Plugins::for_run(&agent.plugins, &Choice::Auto)?;
    let (every, server) = (push.interval(), push.target().to_string());
    let pusher = push.start().map_err(|error| failed(&format!("--push: {error}")))?;
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let interrupted = is_interrupted.clone();
    let interrupts = Interrupts::default();
    interrupts.watch(move |_| interrupted.store(true, Ordering::Relaxed), 1).map_err(|error| failed(&error))?;
    // It goes on at Ctrl-Z: threads that it has stopped would stand still.
    let _suspension = Suspension::caught().map_err(|error| failed(&error))?;
    let shown = Arc::new(Shown::default());
    let metrics = listener.map(|listener| show(listener, &shown)).transpose()?;
    if let Some(metrics) = metrics.as_ref().filter(|_| !agent.quiet) {
        say::line(format_args!("metrics at http://{}/metrics", metrics.address()));
    }
    let mut machine = Machine {
        agent,
        plugins,
        programs: ProgramCache::default(),
        budget: Budget::new(agent.max_cpu / 100.0, agent.rate),
        scan: Scan::default(),
        targets: Vec::new(),
        every,
    };
    let mut is_first = true;
    while !is_interrupted.load(Ordering::Relaxed) {
        machine.look_for_processes();
        if std::mem::take(&mut is_first) && !agent.quiet {
            machine.say_what_was_found();
        }
        machine.close_windows(&pusher);
        machine.budget.keep(LOOK_AT_BUDGET);
        *shown.counts.lock().unwrap_or_else(PoisonError::into_inner) = pusher.counts();
        shown.attached.store(machine.targets.len(), Ordering::Relaxed);
        shown.rate_mhz.store((machine.budget.limit().rate_hz() * 1e3) as usize, Ordering::Relaxed);
        std::thread::sleep(TICK);
    }
    interrupts.run_is_over();
    machine.end(&pusher);
    metrics.into_iter().for_each(Server::stop);
    pushing::say_what_became(&pusher.end(LAST_WINDOWS), &server, agent.quiet);
    Ok(0)
}

/// The processes of this machine that are sampled.
struct Machine<'a> {
    agent: &'a Agent,
    plugins: Plugins,
    programs: ProgramCache,
    budget: Budget,
    scan: Scan,
    targets: Vec<Target>,
    every: Duration,
}

impl Machine<'_> {
    /// Says what may be in the way of finding more.
    fn say_what_was_found(&self) {
        if self.scan.forbidden > 0 {
            say::line(format_args!(
                "not looked into, since this user may not trace them: {} (docs/fleet.md has the rights that do)",
                self.scan.forbidden
            ));
        }
        if self.targets.is_empty() {
            say::line(format_args!("no process runs Wasmtime yet that is to be sampled"));
        }
    }

    fn look_for_processes(&mut self) {
        let Agent { include, exclude, quiet, clock, .. } = self.agent;
        let attached: Vec<i32> = self.targets.iter().map(Target::pid).collect();
        let room = MAX_PROCESSES - attached.len();
        for found in self.scan.next(&attached, include, exclude).into_iter().take(room) {
            let options = Options {
                rate_hz: self.agent.rate,
                clock: clock.clock(),
                look_every: LOOK_FOR_IMAGES,
                limit: Some(self.budget.limit().clone()),
                ..Options::default()
            };
            // Those of one moment are not all closed at one moment.
            let first = self.every.mul_f64(0.1 + 0.9 * chance());
            let of = |resource: Resource| self.agent.pushing.with_attributes(resource);
            match Target::attach(found.pid, &self.plugins, &mut self.programs, options, of, first) {
                Ok(target) => {
                    self.targets.push(target);
                    if !quiet {
                        say::line(format_args!("sampling process {}: {}", found.pid, found.program()));
                    }
                }
                // One that ends meanwhile is no reason to say anything.
                Err(failure) => {
                    if std::path::Path::new(&format!("/proc/{}", found.pid)).exists() && !quiet {
                        say::line(format_args!("wlprof: {}", failure.message));
                    }
                }
            }
        }
    }

    fn close_windows(&mut self, pusher: &Pusher) {
        let (every, pushing, quiet) = (self.every, &self.agent.pushing, self.agent.quiet);
        let of = |resource: Resource| pushing.with_attributes(resource);
        self.targets.retain_mut(|target| {
            let is_over = target.is_over();
            if is_over || Instant::now() >= target.closes {
                // When sampling is over there is nothing more to come.
                let _ = target.close_window(pusher, of, every.mul_f64(0.9 + 0.2 * chance()));
            }
            if is_over && !quiet {
                match target.end() {
                    Some(error) => say::line(format_args!("wlprof: {error}")),
                    None => say::line(format_args!("process {} has ended", target.pid())),
                }
            }
            !is_over
        });
        self.programs.forget_unused();
    }

    /// Closes all windows.
    fn end(mut self, pusher: &Pusher) {
        let pushing = &self.agent.pushing;
        for target in &mut self.targets {
            let _ = target.close_window(pusher, |resource| pushing.with_attributes(resource), self.every);
        }
        // All at once, since each takes a moment.
        self.targets.iter().for_each(Target::interrupt);
    }
}

/// Shows counts at `/metrics`.
fn show(listener: std::net::TcpListener, shown: &Arc<Shown>) -> Result<Server, Failure> {
    let shown = shown.clone();
    let answer = move || {
        let text = text(&shown);
        std::future::ready(([(CONTENT_TYPE, HeaderValue::from_static(METRICS_TYPE))], text))
    };
    let pages = Router::new().route("/metrics", get(answer));
    let server = Server::start(listener, pages, "/metrics  counts for Prometheus and its like (OpenMetrics)\n");
    server.map_err(|error| Failure::new(FAILED, format!("--listen: {error}")))
}

/// The media type of OpenMetrics.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn text(shown: &Shown) -> String {
    let mut text = pushing::metrics(&shown.counts.lock().unwrap_or_else(PoisonError::into_inner));
    let rate = shown.rate_mhz.load(Ordering::Relaxed) as f64 / 1e3;
    let gauges = [
        ("wlprof_agent_processes", "Processes that are sampled.", shown.attached.load(Ordering::Relaxed) as f64),
        ("wlprof_agent_rate_hertz", "Samples a second at most.", rate),
    ];
    for (name, help, value) in gauges {
        text.push_str(&format!("# TYPE {name} gauge\n# HELP {name} {help}\n{name} {value}\n"));
    }
    text.push_str("# EOF\n");
    text
}
