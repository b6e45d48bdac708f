//! What came of the runs: a line for each in a file like that of Faasm's runner, and a line for each row of the spec for people.

use super::Times;
use super::spec::Row;
use std::fmt::Write;
use std::io;
use std::time::Duration;
use wlprof_show::escape;

/// The first line of Faasm's files.
const HEADER: [&str; 5] = ["User", "Function", "Return value", "Execution (us)", "Reset (us)"];

/// Writes the file as runs end.
pub(super) struct Results<W: io::Write>(csv::Writer<W>);

impl<W: io::Write> Results<W> {
    pub(super) fn begin(out: W) -> io::Result<Self> {
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record(HEADER)?;
        writer.flush()?;
        Ok(Self(writer))
    }

    /// Adds a run. It is in the file when this returns.
    pub(super) fn add(&mut self, row: &Row, times: &Times) -> io::Result<()> {
        let fields = [
            row.guest.clone(),
            row.call.clone(),
            times.returned.clone(),
            microseconds(times.execution),
            microseconds(times.reset),
        ];
        self.0.write_record(fields)?;
        self.0.flush()
    }
}

/// With nanoseconds, as three digits.
fn microseconds(time: Duration) -> String {
    let nanoseconds = time.as_nanos();
    format!("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
}

/// The table of all rows.
pub(super) fn table(rows: &[(Row, Vec<Times>)]) -> String {
    let mut text = format!(
        "{:>6} {:>6} {:>11} {:>11} {:>11} {:>11} {:>7} {:>11}  {}\n",
        "runs", "failed", "min", "median", "p95", "max", "spread", "reset", "guest"
    );
    for (row, runs) in rows {
        let failed = runs.iter().filter(|times| times.failed).count();
        let execution = Distribution::of(runs.iter().map(|times| times.execution));
        let reset = Distribution::of(runs.iter().map(|times| times.reset));
        let [min, median, p95, max, reset] =
            [execution.at(0), execution.at(50), execution.at(95), execution.at(100), reset.at(50)].map(microseconds);
        let spread = format!("{:.1}%", execution.spread_percent());
        let name = escape::single_line(format!("{} {}", row.guest, row.call).trim_end());
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:>6} {failed:>6} {min:>11} {median:>11} {p95:>11} {max:>11} {spread:>7} {reset:>11}  {name}",
            runs.len()
        );
    }
    text.push_str(
        "Times are microseconds of execution, each that of a run; reset is the median of making a new instance.\n\
         Spread: how far the middle half of the runs lie apart (p75 - p25), in percent of the median.\n",
    );
    text
}

/// Times in order.
struct Distribution(Vec<Duration>);

impl Distribution {
    fn of(times: impl Iterator<Item = Duration>) -> Self {
        let mut times: Vec<_> = times.collect();
        times.sort_unstable();
        Self(times)
    }

    /// The least time that `percent` of all are not above. So it is the time of a run, and not one between two.
    fn at(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    fn spread_percent(&self) -> f64 {
        let width = self.at(75).saturating_sub(self.at(25));
        100.0 * width.as_secs_f64() / self.at(50).as_secs_f64().max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(returned: &str, execution_ns: u64, failed: bool) -> Times {
        let (execution, reset) = (Duration::from_nanos(execution_ns), Duration::from_nanos(7_050));
        Times { returned: returned.to_owned(), failed, execution, reset }
    }

    fn row(guest: &str, call: &str) -> Row {
        Row { line: 1, guest: guest.to_owned(), call: call.to_owned(), runs: 1, input: String::new() }
    }

    #[test]
    fn the_file_is_as_faasms() {
        let mut out = Vec::new();
        let mut results = Results::begin(&mut out).unwrap();
        results.add(&row("a.wasm", "fib 30"), &times("0", 1_234_567, false)).unwrap();
        results.add(&row("b,c.wasm", ""), &times("134", 1, true)).unwrap();
        drop(results);
        let expected = "User,Function,Return value,Execution (us),Reset (us)\na.wasm,fib 30,0,1234.567,7.050\n\
                        \"b,c.wasm\",,134,0.001,7.050\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn quantiles_are_times_of_runs() {
        let distribution = Distribution::of((1..=20).rev().map(Duration::from_secs));
        let at = |percent| distribution.at(percent).as_secs();
        assert_eq!([at(0), at(25), at(50), at(75), at(95), at(100)], [1, 5, 10, 15, 19, 20]);
        assert_eq!(distribution.spread_percent(), 100.0);
        let one = Distribution::of([Duration::from_secs(3)].into_iter());
        assert_eq!((one.at(0), one.at(50), one.at(100)), (one.at(0), one.at(0), one.at(0)));
        assert_eq!(one.spread_percent(), 0.0);
    }

    #[test]
    fn the_table_has_a_line_for_each_row() {
        let runs = vec![times("0", 1_000, false), times("134", 3_000, true), times("0", 2_000, false)];
        let text = table(&[(row("a\x1b.wasm", "x"), runs)]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["runs", "failed", "min", "median", "p95", "max", "spread", "reset", "guest"]);
        assert_eq!(lines[1], ["3", "1", "1.000", "2.000", "3.000", "3.000", "100.0%", "7.050", "a\\u{1b}.wasm", "x"]);
    }
}
