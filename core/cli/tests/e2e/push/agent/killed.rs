//! An agent that is killed, again and again: processes run on, and the next agent goes on with them.

use super::{Agent, Process, SCHEMES, of_service, wait_for_samples};
use crate::guest::Place;
use crate::push::receiver::Receiver;
use crate::push::share::check_shares;
use crate::running::wait_until;
use std::collections::BTreeSet;

/// The threads of a process have no tracer, and none is stopped.
fn is_free(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|entry| entry.unwrap().path());
    let mut texts = threads.filter_map(|thread| std::fs::read_to_string(thread.join("status")).ok());
    texts.all(|text| text.contains("TracerPid:\t0\n") && !text.contains("State:\tT") && !text.contains("State:\tt"))
}

#[test]
fn processes_run_on_when_the_agent_is_killed() {
    let (place, receiver) = (Place::new(), Receiver::start(&[]));
    let mut processes: Vec<Process> =
        super::releases().iter().take(3).map(|release| Process::of_python(&place, release, "python")).collect();
    processes.push(Process::of_wlprof(&place, "wlprof"));
    let options = [&*receiver.push(SCHEMES[0]), "--rate=1000"];
    for _ in 0..10 {
        let mut agent = Agent::start(&place, &options);
        wait_until("all are sampled", || agent.processes() == processes.len());
        agent.end_by("KILL");
        for process in &processes {
            assert!(is_free(process.pid()), "{}", process.service);
            let before = process.cpu_ticks();
            wait_until("it runs on", || process.cpu_ticks() > before + 2);
        }
    }
    let instances = || -> BTreeSet<String> {
        let messages = receiver.messages();
        let of_message = |message: &&super::Message| message.attribute("service_instance_id").map(str::to_owned);
        of_service(&messages, "wlprof").iter().filter_map(of_message).collect()
    };
    // Two agents, and one process.
    for _ in 0..2 {
        let before = receiver.messages().len();
        let mut agent = Agent::start(&place, &options);
        wait_until("windows of the process are taken", || {
            of_service(&receiver.messages()[before..], "wlprof").len() >= 2
        });
        agent.end_by("TERM");
    }
    wait_for_samples(&receiver, &[&processes[3]], 1);
    assert_eq!(instances().len(), 1, "{:?}", instances());
    processes.into_iter().for_each(Process::end);
    let messages = receiver.end();
    check_shares(&of_service(&messages, "python"));
    check_shares(&of_service(&messages, "wlprof"));
}
