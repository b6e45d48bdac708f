//! Options of what is pushed to a server.

use crate::failure::{FAILED, Failure};
use crate::say;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use wlprof_push::Push;
#[cfg(target_os = "linux")]
use wlprof_push::Resource;
use wlprof_recording::View;
use wlprof_show::escape;

/// Bytes in a mebibyte.
const MIB: u64 = 1 << 20;

/// How large a queue on disk may be, unless the user says so, and at most.
const DEFAULT_MIB: &str = "64";
const MAX_MIB: u64 = 1 << 20;

/// What is pushed, and where.
#[derive(Args)]
pub(crate) struct PushOptions {
    /// Push profiles to a server while the guest runs
    ///
    /// pyroscope://HOST, otlp+http://HOST, otlp+grpc://HOST or parca://HOST; with an s behind it (pyroscopes://) by TLS. `otlp` and
    /// `pyroscope` take the address of the environment.
    #[arg(long, value_name = "URL", help_heading = "Push")]
    pub(crate) push: Option<String>,
    /// How often a profile is pushed, such as 15s or 1m [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = interval, hide_short_help = true, help_heading = "Push")]
    push_interval: Option<Duration>,
    /// Resource attribute of the profiles, by OpenTelemetry's names (`deployment.environment.name=staging`); may repeat
    #[arg(long, value_name = "NAME=VALUE", value_parser = attribute, hide_short_help = true, help_heading = "Push")]
    push_resource: Vec<(String, String)>,
    /// Labels of samples that are pushed. Servers make a series of each set of texts
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', hide_short_help = true, help_heading = "Push")]
    push_labels: Vec<String>,
    /// Push as this tenant (X-Scope-OrgID)
    #[arg(long, value_name = "ID", hide_short_help = true, help_heading = "Push")]
    push_tenant: Option<String>,
    /// File with headers for the server, one `Name: value` on a line: credentials
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = "Push")]
    push_headers: Option<PathBuf>,
    /// File with the certificates of those that may have signed the server's (PEM)
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = "Push")]
    push_ca: Option<PathBuf>,
    /// Keep what no server has taken in this folder, up to so many MiB for each process [default: in memory, 64 MiB]
    #[arg(long, value_name = "DIR[,MIB]", hide_short_help = true, help_heading = "Push")]
    push_queue: Option<String>,
}

impl PushOptions {
    /// Returns whether anything is pushed: `OTEL_SDK_DISABLED` may say otherwise.
    pub(crate) fn is_on(&self) -> bool {
        self.push.as_deref().is_some_and(|address| !wlprof_push::is_disabled(address))
    }

    /// Reads what is to be pushed where, if it is, of a service that is called `service` unless the environment names it, with the frames of `view`.
    pub(crate) fn push(&self, service: &str, view: View) -> Result<Option<Push>, Failure> {
        let Some(address) = &self.push else { return self.check_unused().map(|()| None) };
        let failed = |error: String| Failure::new(FAILED, format!("--push: {error}"));
        let mut push = Push::to(address).map_err(failed)?.view(view);
        push = self.push_interval.into_iter().fold(push, Push::every);
        push = push.labels(self.push_labels.iter().map(|name| name.trim()));
        push = self.push_resource.iter().fold(push, |push, (name, value)| push.resource(name, value));
        push = if service.is_empty() { push } else { push.service(service) };
        if let Some(file) = &self.push_headers {
            push = push.headers_of(file).map_err(failed)?;
        }
        if let Some(tenant) = &self.push_tenant {
            push = push.tenant(tenant).map_err(failed)?;
        }
        if let Some(file) = &self.push_ca {
            push = push.roots_of(file);
        }
        if let Some(queue) = &self.push_queue {
            let (folder, mib) = queue.rsplit_once(',').unwrap_or((queue, DEFAULT_MIB));
            let mib = mib.parse::<u64>().ok().filter(|mib| (1..=MAX_MIB).contains(mib) && !folder.is_empty());
            let mib = mib.ok_or_else(|| failed(format!("--push-queue {queue}: expected DIR or DIR,MIB")))?;
            push = push.queue_in(folder.as_ref()).queue_bytes(mib * MIB);
        }
        if push.is_disabled() {
            say::line(format_args!("note: OTEL_SDK_DISABLED is set, so nothing is pushed"));
            return Ok(None);
        }
        Ok(Some(push.saying(|what| say::line(format_args!("wlprof: push: {}", escape::single_line(what))))))
    }

    /// Adds what the user says of what is pushed to what is known of a process, which may not take the place or the room of it.
    #[cfg(target_os = "linux")]
    pub(crate) fn with_attributes(&self, of_process: Resource) -> Resource {
        let mut resource = Resource::default();
        self.push_resource.iter().for_each(|(name, value)| resource.set(name, value));
        for (name, value) in of_process.attributes() {
            if resource.get(name).is_none() {
                resource.set(name, value);
            }
        }
        resource
    }

    /// Refuses options that say how to push where nothing is pushed.
    fn check_unused(&self) -> Result<(), Failure> {
        let given = [
            (self.push_interval.is_some(), "--push-interval"),
            (!self.push_resource.is_empty(), "--push-resource"),
            (!self.push_labels.is_empty(), "--push-labels"),
            (self.push_tenant.is_some(), "--push-tenant"),
            (self.push_headers.is_some(), "--push-headers"),
            (self.push_ca.is_some(), "--push-ca"),
            (self.push_queue.is_some(), "--push-queue"),
        ];
        match given.iter().find(|(is_given, _)| *is_given) {
            Some((_, name)) => Err(Failure::new(FAILED, format!("{name} is for --push URL"))),
            None => Ok(()),
        }
    }
}

fn attribute(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    let (name, value) = pair.ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn interval(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let seconds = match unit {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => 0.0,
    };
    let seconds =
        number.parse::<f64>().ok().map(|number| number * seconds).filter(|time| (1.0..=1800.0).contains(time));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected 1s to 30m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_units() {
        let seconds = |text: &str| interval(text).map(|interval| interval.as_secs_f64());
        assert_eq!(["15s", "90", "1.5m", "0.5h"].map(|text| seconds(text).unwrap()), [15.0, 90.0, 90.0, 1800.0]);
        for text in ["", "s", "0s", "2h", "15ms", "-1s", "NaN", "15x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
