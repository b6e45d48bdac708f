//! `cargo xtask fleet`: guests push to real servers, an OpenTelemetry collector and Parca, built from their published sources.
//!
//! What the servers have stored is compared with what wlprof renders of the same runs. It needs a Go module proxy, which not every machine
//! reaches. Without one nothing is checked, and the task fails.

mod go;
mod runs;
mod server;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::progress::say;

use go::{COLLECTOR, Go, PARCA};
use runs::Runs;
use server::{Server, free_addresses, last_lines};

/// Builds the servers, starts them, pushes to them, and compares what they have.
pub(crate) fn run() -> Result<()> {
    let cache = Cache::open()?;
    let go = Go::get(&cache)?;
    go.reach_proxy()?;
    let (collector, parca) = (go.collector()?, go.parca()?);
    let workplace = cache.workplace("fleet")?;
    let runs = Runs::prepare(&cache, &workplace.path)?;
    check(&runs, &workplace.path, &collector, &parca).with_context(|| {
        let [collector, parca] = ["collector", "parca"].map(|name| last_lines(&workplace.path, name));
        format!("with the servers' last words:\n{collector}{parca}")
    })?;
    say(format_args!("a collector {COLLECTOR} and {PARCA} have stored the CPU time of each function"));
    Ok(())
}

fn check(runs: &Runs<'_>, folder: &Path, collector: &Path, parca: &Path) -> Result<()> {
    let [grpc, http, parca_address] = free_addresses()?;
    let received = folder.join("profiles.json");
    fs::write(folder.join("collector.yaml"), collector_settings(grpc, http, &received))?;
    fs::write(folder.join("parca.yaml"), PARCA_SETTINGS)?;
    let options = ["--config=collector.yaml", "--feature-gates=service.profilesSupport"];
    let collector = Server::start("collector", collector, &options, folder, &[grpc, http])?;
    let options = ["--config-path=parca.yaml", &format!("--http-address={parca_address}")];
    let _parca = Server::start("parca", parca, &options, folder, &[parca_address])?;
    let mut sent = runs.push("http", &format!("otlp+http://{http}"))?;
    sent.extend(runs.push("grpc", &format!("otlp+grpc://{grpc}"))?);
    let sent_to_parca = runs.push("parca", &format!("parca://{parca_address}"))?;
    collector.end()?;
    runs.compare("read_collector.py", &received.display().to_string(), &sent)?;
    runs.compare("read_parca.py", &parca_address.to_string(), &sent_to_parca)
}

fn collector_settings(grpc: SocketAddr, http: SocketAddr, received: &Path) -> String {
    format!(
        "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '{grpc}'}}, http: {{endpoint: '{http}'}}}}}}}}\n\
         exporters: {{debug: {{verbosity: detailed}}, file: {{path: '{}', flush_interval: 100ms}}}}\n\
         service:\n  telemetry: {{metrics: {{level: none}}}}\n  \
         pipelines: {{profiles: {{receivers: [otlp], exporters: [debug, file]}}}}\n",
        received.display()
    )
}

const PARCA_SETTINGS: &str = "object_storage: {bucket: {type: FILESYSTEM, config: {directory: ./parca-data}}}\n";
