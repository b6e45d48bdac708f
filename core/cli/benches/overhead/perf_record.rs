//! `perf record` beside a guest: it samples the guest's thread from outside, by frame pointers.

use anyhow::{Context, Result, bail};
use linux_perf_data::linux_perf_event_reader::EventRecord;
use linux_perf_data::{PerfFileReader, PerfFileRecord};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use tempfile::TempPath;

/// A `perf record` that samples one thread.
pub(crate) struct PerfRecord {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    file: TempPath,
    began: Duration,
}

impl PerfRecord {
    /// Where `cargo xtask bench` puts perf, if it is there and may sample.
    pub(crate) fn program() -> Option<PathBuf> {
        let perf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/perf");
        let mut trial = Command::new(&perf);
        trial.args(["record", "-q", "-e", "cpu-clock:u", "-o", "/dev/null", "true"]);
        let status = trial.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success()).then_some(perf)
    }

    /// Samples the calling thread at this rate. What perf does before its first sample is not counted as its cost.
    pub(crate) fn start(hz: f64) -> Result<Self> {
        let perf = Self::program().context("perf cannot sample")?;
        let file = tempfile::NamedTempFile::new()?.into_temp_path();
        let thread = std::fs::read_link("/proc/thread-self")?;
        let thread = thread.file_name().context("this thread has no number")?;
        // Ids of the builds are looked up in files when all is over.
        let mut command = Command::new(perf);
        command.args(["record", "-q", "-e", "cpu-clock:u", "--call-graph", "fp", "-B", "-N", "-D", "-1"]);
        command.args(["--control", "fd:0,1", "-F", &hz.to_string(), "-o"]).arg(&file).arg("-t").arg(thread);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let commands = child.stdin.take().context("perf's input is no pipe")?;
        let answers = BufReader::new(child.stdout.take().context("perf's output is no pipe")?);
        let mut record = Self { child, commands, answers, file, began: Duration::ZERO };
        record.commands.write_all(b"enable\n")?;
        let mut answer = String::new();
        record.answers.read_line(&mut answer)?;
        // With a zero byte before the second answer.
        if !answer.contains("ack") {
            bail!("perf does not record: {answer:?}");
        }
        record.began = record.cpu()?;
        Ok(record)
    }

    /// Ends it. Gives the samples that it took and the CPU time of its own that it needed.
    pub(crate) fn stop(mut self) -> Result<(u64, Duration)> {
        self.commands.write_all(b"stop\n")?;
        // It closes its output when it has written all. It has not been waited for, so that its times can be read.
        self.answers.read_to_end(&mut Vec::new())?;
        let took = self.cpu()?.saturating_sub(self.began);
        self.child.wait()?;
        Ok((self.samples()?, took))
    }

    /// CPU time of perf so far.
    fn cpu(&self) -> Result<Duration> {
        super::clocks::scheduled(&format!("/proc/{}/schedstat", self.child.id())).map(|(ran, _)| ran)
    }

    fn samples(&self) -> Result<u64> {
        let file = BufReader::new(std::fs::File::open(&self.file)?);
        let PerfFileReader { mut record_iter, mut perf_file } = PerfFileReader::parse_file(file)?;
        let mut samples = 0;
        while let Some(record) = record_iter.next_record(&mut perf_file)? {
            let PerfFileRecord::EventRecord { record, .. } = record else { continue };
            samples += u64::from(matches!(record.parse()?, EventRecord::Sample(_)));
        }
        Ok(samples)
    }
}
