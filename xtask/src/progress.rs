//! One line on standard error for each step, with the time since the program started.

use std::fmt::{self, Display};
use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

fn since_start() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Prints one line.
pub(crate) fn say(line: impl Display) {
    eprintln!("[{:6.1} s] {line}", since_start().as_secs_f64());
}

/// The cost of some work so far: the time that passed, and the CPU time of the programs that it ran.
pub(crate) struct Cost {
    started: Instant,
    /// CPU time of the programs before it. `None` where there is no `/proc`.
    cpu_before: Option<Duration>,
}

impl Cost {
    /// Begins to count.
    pub(crate) fn begin() -> Self {
        Self { started: Instant::now(), cpu_before: cpu_time_of_ended_children() }
    }
}

impl Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} s", self.started.elapsed().as_secs_f64())?;
        match (cpu_time_of_ended_children(), self.cpu_before) {
            (Some(now), Some(before)) => write!(f, ", {:.0} s of CPU time", (now - before).as_secs_f64()),
            _ => Ok(()),
        }
    }
}

/// Fields 16 and 17 of `/proc/self/stat` (proc(5)), in hundredths of a second on any Linux. The name before them may have spaces.
fn cpu_time_of_ended_children() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(13)?.parse::<u64>().ok()? + fields.get(14)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(10 * ticks))
}

/// A step that is under way.
pub(crate) struct Step {
    name: String,
    started: Instant,
}

impl Step {
    /// Begins a step without a word, for those that usually take no time to speak of.
    pub(crate) fn quietly(name: impl Into<String>) -> Self {
        since_start();
        Self { name: name.into(), started: Instant::now() }
    }

    /// Begins a step that takes a while, and says so.
    pub(crate) fn announced(name: impl Into<String>) -> Self {
        let step = Self::quietly(name);
        say(format_args!("{} …", step.name));
        step
    }

    /// Says that the step is done and how long it took.
    pub(crate) fn done(self) {
        say(format_args!("{}: {:.1} s", self.name, self.started.elapsed().as_secs_f64()));
    }
}
