//! Components: run as `wasmtime run` does, walked across the components in them, named by each of their modules.

use crate::guest::{Place, fixture};
use crate::sampled::{are_few, marked_line};
use std::collections::{BTreeMap, BTreeSet};
use wasmtime::component::Linker;
use wasmtime::{Config, Engine, Store};
use wlprof::recording::{Origin, Recording, StackId, State};
use wlprof::{Attach, Profiler};

/// Runs a component, and gives what was recorded.
fn profile(guest: &str, options: &[&str], arguments: &[&str]) -> Recording {
    let place = Place::new();
    let guest = fixture(guest);
    let own = ["-q", "-o", "x.wlprof"].iter().chain(options).copied();
    let ran = place.run(own.chain([guest.to_str().unwrap()]).chain(arguments.iter().copied()));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    place.recording("x.wlprof")
}

/// The functions of each sample in wasm, root first.
fn stacks(recording: &Recording) -> Vec<Vec<&str>> {
    let in_wasm = recording.samples().filter(|sample| sample.state == State::Guest);
    in_wasm.map(|sample| names(recording, sample.stack)).collect()
}

/// The functions of a stack, root first.
fn names(recording: &Recording, stack: StackId) -> Vec<&str> {
    let lines = recording.lines_of(stack);
    let mut names: Vec<&str> = lines.map(|line| &*recording.functions[line.function as usize].name).collect();
    names.reverse();
    names
}

#[test]
fn a_stack_goes_through_all_components_and_what_joins_them() {
    // It runs for a moment, which the usual rate may see a few times only.
    let recording = profile("component-fused.wat", &["--rate", "5000", "--max-overhead", "100"], &[]);
    let whole = [
        "run",
        "recurse",
        "recurse",
        "recurse",
        "recurse",
        "recurse",
        "recurse",
        "[component adapter]",
        "forward",
        "[component adapter]",
        "work",
        "hash",
    ];
    let stacks = stacks(&recording);
    assert!(stacks.len() > 20, "{}", stacks.len());
    for stack in &stacks {
        // What an adapter calls beside: where the string goes, and what is told that it was read.
        let called = stack.strip_suffix(&["realloc"]).or_else(|| stack.strip_suffix(&["post"]));
        let called = called.filter(|called| called.last() == Some(&"[component adapter]"));
        assert!(whole.starts_with(called.unwrap_or(stack)), "{stack:?}");
    }
    assert!(stacks.iter().any(|stack| stack.len() == whole.len()));
    assert!(recording.truncated.is_empty(), "{:?}", recording.truncated);
    let modules: Vec<&str> = recording.modules.iter().map(|module| &*module.name).collect();
    assert_eq!(modules, ["inner", "libc", "middle", "libc", "main"]);
}

#[test]
fn samples_say_in_which_instance_of_the_component_they_are() {
    let place = Place::new();
    let guest = fixture("component-fused.wat");
    let ran = place.run(["-o", "x.wlprof", "-o", "x.pb.gz", guest.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let heading = ran.stderr.lines().find(|line| line.starts_with("instance=")).unwrap_or(&ran.stderr);
    assert!(["inner", "main", "middle"].iter().all(|name| heading.contains(&format!("instance={name} "))), "{heading}");
    let recording = place.recording("x.wlprof");
    for sample in recording.samples().filter(|sample| sample.state == State::Guest) {
        let labels = sample.labels.map_or(&[][..], |set| &recording.label_sets[set as usize]);
        let names = names(&recording, sample.stack);
        // What joins them works for the one that calls.
        let innermost = names.iter().rfind(|name| **name != "[component adapter]").unwrap();
        let expected = match *innermost {
            "run" | "recurse" => "main",
            "forward" => "middle",
            "work" | "hash" | "post" => "inner",
            // Both have one.
            "realloc" => continue,
            other => panic!("{other}"),
        };
        assert_eq!(labels, [("instance".to_owned(), expected.to_owned())], "{names:?}");
    }
    // Where there is one there is nothing to tell.
    let alone = profile("component-c-shares.wasm", &[], &["1"]);
    assert!(alone.samples().all(|sample| sample.labels.is_none()));
}

#[test]
fn a_component_that_is_made_several_times_is_in_no_instance_that_can_be_told() {
    let place = Place::new();
    let text = r#"(component
        (component $worker
            (core module $m (func $work (export "work") (local $n i32)
                (local.set $n (i32.const 30000000))
                (loop $l (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))))
            (core instance $i (instantiate $m))
            (func (export "work") (canon lift (core func $i "work"))))
        (component $program (import "one" (func $one)) (import "two" (func $two))
            (core func $one (canon lower (func $one))) (core func $two (canon lower (func $two)))
            (core module $main (import "a" "one" (func $one)) (import "a" "two" (func $two))
                (func $spin (param $n i32)
                    (loop $l (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))
                (func (export "run") (result i32)
                    (call $one) (call $two) (call $spin (i32.const 30000000)) (i32.const 0)))
            (core instance $i (instantiate $main (with "a"
                (instance (export "one" (func $one)) (export "two" (func $two))))))
            (func (export "run") (result (result)) (canon lift (core func $i "run"))))
        (core module $other (func nop))
        (core instance (instantiate $other))
        (instance $one (instantiate $worker)) (instance $two (instantiate $worker))
        (instance $main (instantiate $program (with "one" (func $one "work")) (with "two" (func $two "work"))))
        (instance $commands (export "run" (func $main "run")))
        (export "wasi:cli/run@0.2.0" (instance $commands)))"#;
    place.file("twice.wat", text);
    let ran = place.run(["-q", "--rate=2000", "-o", "x.wlprof", "twice.wat"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let recording = place.recording("x.wlprof");
    let mut seen = BTreeSet::new();
    for sample in recording.samples().filter(|sample| sample.state == State::Guest) {
        let instance = sample.labels.map(|set| &*recording.label_sets[set as usize][0].1);
        let leaf = *names(&recording, sample.stack).last().unwrap();
        match leaf {
            "work" => assert_eq!(instance, None),
            "spin" => assert_eq!(instance, Some("main")),
            _ => {}
        }
        seen.insert(leaf);
    }
    assert!(seen.contains("work") && seen.contains("spin"), "{seen:?}");
}

#[test]
fn libraries_of_a_python_component_are_told_apart() {
    let place = Place::new();
    // The interpreter, and `memchr` of the C library.
    let script = "data = b'x' * 1000000\nfor _ in range(3000): data.find(b'y')\nprint(sum(sum(i * i for i in range(300)) for _ in range(3000)))";
    place.file("app.py", script);
    let guest = fixture("component-python-3.14.wasm");
    let ran = place.run(["-o", "x.wlprof", "--dir", ".", guest.to_str().unwrap(), "app.py"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let heading = ran.stderr.lines().find(|line| line.starts_with("instance="));
    assert!(heading.is_some_and(|heading| heading.contains("libpython3.14.so ")), "{}", ran.stderr);
}

#[test]
fn lines_of_a_component_are_those_of_its_module() {
    let [module, component] = ["c-shares.wasm", "component-c-shares.wasm"].map(|guest| profile(guest, &[], &["2"]));
    let lines = |recording: &Recording| -> BTreeSet<(String, String, u32)> {
        let samples = recording.samples().filter(|sample| sample.state == State::Guest);
        let leaves = samples.filter_map(|sample| recording.lines_of(sample.stack).next());
        // A few instructions are of no line. Whether a sample is at one of those is left to chance.
        let known = |line: wlprof::recording::Line| {
            let function = &recording.functions[line.function as usize];
            Some((function.name.to_string(), function.file.clone().unwrap_or_default().to_string(), line.line?))
        };
        leaves.filter_map(known).filter(|(name, ..)| ["heavy", "light"].contains(&name.as_str())).collect()
    };
    let [of_module, of_component] = [&module, &component].map(lines);
    assert!(of_module.len() >= 2, "{of_module:?}");
    assert_eq!(of_module, of_component);
    // Of what the component was made with nothing is to be said.
    assert_eq!(component.meta.notes, module.meta.notes);
}

#[test]
fn calls_of_the_host_have_the_names_of_its_interfaces() {
    let recording = profile("component-c-hosty.wasm", &["--rate=5000", "--clock=wall"], &[]);
    let mut called = calls_of_the_host(&recording);
    // A thread that had to wait for a processor did so in a function of the guest's.
    called.retain(|name| name.contains([':', '.', '[', ' ']));
    // On its way into the host it is not known yet what is called through a table.
    called.remove("[host function called indirectly]");
    assert!(called.iter().all(|name| name.starts_with("wasi:") || name.starts_with("wasm.")), "{called:?}");
    // It sleeps for 200 ms in all. The call goes through a function that stands in for the host's.
    let polls = recording
        .samples()
        .filter(|sample| names(&recording, sample.stack).last().is_some_and(|leaf| leaf.ends_with("poll")));
    let polled_ns: u64 = polls.map(|sample| sample.period_ns).sum();
    assert!(polled_ns > 150_000_000, "{polled_ns}: {called:?}");
}

#[test]
fn a_task_that_is_suspended_waits_on_its_stack() {
    let recording = profile("component-async.wat", &["--clock=wall"], &[]);
    let waiting = recording.samples().filter(|sample| sample.state == State::Blocked);
    let waits: BTreeSet<Vec<&str>> = waiting.map(|sample| names(&recording, sample.stack)).collect();
    let wait = ["run", "turn", "rest", "wasi:clocks/monotonic-clock@0.3.0.wait-for"];
    assert!(waits.contains(&wait[..]), "{waits:?}");
    // A thread that had to wait for a processor did so anywhere, between two turns of the task in the host's code.
    let anywhere =
        |names: &[&str]| wait[..2].starts_with(names) || names.starts_with(&wait[..2]) || names == ["[host]"];
    assert!(waits.iter().all(|names| anywhere(names)), "{waits:?}");
    let all_ns: u64 = recording.samples().map(|sample| sample.period_ns).sum();
    let resting = recording.samples().filter(|sample| names(&recording, sample.stack) == wait);
    let resting_ns: u64 = resting.map(|sample| sample.period_ns).sum();
    // 20 times 10 ms, and what a wait takes to end. The rest of the time is its own.
    assert!((150_000_000..=all_ns).contains(&resting_ns), "{resting_ns} of {all_ns}");
}

/// A task of Python's leaves no wasm behind where it waits: its coroutines are read.
#[test]
fn suspended_tasks_of_python_wait_on_their_lines() {
    let recording = profile("component-python-async.wasm", &["--clock=wall", "-Shttp"], &[]);
    let waiting_line = marked_line("python/async/app.py", "await monotonic_clock.wait_for(milliseconds * 1_000_000)");
    let working_lines = ["alpha", "beta"].map(|name| {
        let call = format!("return await turns(in_{name}, rounds)");
        (name, Some(marked_line("python/async/app.py", &call)))
    });
    let mut waits = BTreeMap::<&str, u64>::new();
    let awaiting = ("state".to_owned(), "awaiting".to_owned());
    for sample in recording.samples() {
        if !sample.labels.is_some_and(|labels| recording.label_sets[labels as usize].contains(&awaiting)) {
            continue;
        }
        let lines: Vec<_> = recording.lines_of(sample.stack).collect();
        let lines = lines.iter().map(|line| (&*recording.functions[line.function as usize].name, line.line));
        // Root first.
        let lines: Vec<_> = lines.rev().collect();
        let names: Vec<&str> = lines.iter().map(|(name, _)| *name).collect();
        assert!(working_lines.contains(&lines[0]), "{lines:?}");
        assert_eq!(names[1..5], ["turns", "rest", "wait_for", "await_result"], "{names:?}");
        assert_eq!(lines[2].1, Some(waiting_line), "{lines:?}");
        *waits.entry(names[0]).or_default() += sample.period_ns;
    }
    // 60 times 5 ms in all, of which 40 times both wait.
    println!("{waits:?}, {:?} of {}", recording.truncated, recording.ticks.sampled);
    let waited_ns: u64 = waits.values().sum();
    assert!(waits.len() == 2 && waited_ns > 150_000_000, "{waits:?}");
    // What comes after the run is in no task any more.
    assert!(are_few(recording.truncated.iter().map(|(_, count)| count).sum(), recording.ticks.sampled, 0.1));
}

#[test]
fn python_and_the_rust_that_it_calls_are_in_one_stack() {
    let place = Place::new();
    let guest = fixture("component-python-calls-rust.wasm");
    let options = ["-q", "--rate=5000", "--max-overhead=100", "--frames=merged", "-o", "x.wlprof"];
    let ran = place.run(options.into_iter().chain([guest.to_str().unwrap()]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // By Python's own account, root first; without the name of the class.
    let said: BTreeSet<&str> = ran.stdout.lines().collect();
    assert_eq!(said.len(), 3, "{said:?}");
    let recording = place.recording("x.wlprof");
    let rust = |name: &str, text| (name.to_owned(), Some(marked_line("rust/library/library.rs", text)));
    let calling = rust("sum", "    all_rounds(rounds)");
    let working = rust("library::all_rounds", "(0..rounds).fold(1, |value, _| one_round(value));");
    let mut seen = BTreeMap::<String, usize>::new();
    for sample in recording.samples() {
        let frames: Vec<_> = recording.frames_of(sample.stack).collect();
        let Some(adapter) = frames.iter().position(|frame| frame.origin == Origin::Adapter) else { continue };
        let named =
            |line: &wlprof::recording::Line| (recording.functions[line.function as usize].name.to_string(), line.line);
        // From the adapter inwards.
        let inner: Vec<_> =
            frames[..adapter].iter().rev().flat_map(|frame| frame.lines.iter().rev().map(named)).collect();
        assert!(inner.len() < 2 || inner[0] == calling, "{inner:?}");
        if inner.len() > 4 {
            assert_eq!(inner[1].0, working.0, "{inner:?}");
            assert!(inner.contains(&working), "{inner:?}");
        }
        let python = frames[adapter..].iter().filter(|frame| matches!(frame.origin, Origin::Language { .. }));
        let python: Vec<_> = python.map(|frame| named(&frame.lines[0])).collect();
        let Some(((import, _), python)) = python.split_first() else { continue };
        // What was generated for the import.
        assert_eq!(import, "sum");
        let stack =
            python.iter().rev().map(|(name, line)| format!("{}:{}", name.rsplit('.').next().unwrap(), line.unwrap()));
        *seen.entry(stack.collect::<Vec<_>>().join(" ")).or_default() += 1;
    }
    println!("{seen:?}, {:?} of {}", recording.truncated, recording.ticks.sampled);
    assert!(seen.keys().all(|stack| said.contains(&**stack)), "{seen:?} and {said:?}");
    assert_eq!(seen.len(), said.len(), "{seen:?}");
    assert!(seen.values().sum::<usize>() > 50, "{seen:?}");
}

/// What the host did in samples that wasm called it in.
fn calls_of_the_host(recording: &Recording) -> BTreeSet<&str> {
    let in_host = recording.samples().filter(|sample| sample.state != State::Guest);
    let names = in_host.filter_map(|sample| {
        let mut lines = recording.lines_of(sample.stack);
        let leaf = lines.next()?;
        // Without wasm it is before or after the run.
        lines.next().map(|_| &*recording.functions[leaf.function as usize].name)
    });
    names.collect()
}

#[test]
fn the_size_of_a_components_memory_is_that_of_its_module() {
    let sizes = ["c-shares.wasm", "component-c-shares.wasm"].map(|guest| {
        let recording = profile(guest, &[], &["1"]);
        recording.stores[0].memory.iter().map(|size| size.bytes).max()
    });
    // What the component is made with has its own in it: some pages.
    let [module, component] = sizes.map(|size| size.expect("it has a memory"));
    assert!((module..=module + (1 << 20)).contains(&component), "{module} and {component}");
}

#[test]
fn embedders_see_components() {
    for is_async in [false, true] {
        let mut config = Config::new();
        wlprof::configure(&mut config);
        let engine = Engine::new(&config).unwrap();
        let profiler = Profiler::builder().rate_hz(1000.0).start(&engine).unwrap();
        let bytes = std::fs::read(fixture("component-fused.wat")).unwrap();
        let component = profiler.load_component("fused", &bytes).unwrap();
        let mut store = Store::new(&engine, ());
        let attached = profiler.attach(&mut store, Attach::named("fused")).unwrap();
        let linker = Linker::new(&engine);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let instance = match is_async {
            true => runtime.block_on(linker.instantiate_async(&mut store, &component)),
            false => linker.instantiate(&mut store, &component),
        };
        let instance = instance.unwrap();
        attached.component_instantiated(&mut store).unwrap();
        let interface = instance.get_export_index(&mut store, None, "wasi:cli/run@0.2.0").unwrap();
        let run = instance.get_export_index(&mut store, Some(&interface), "run").unwrap();
        let run = instance.get_typed_func::<(), (Result<(), ()>,)>(&mut store, run).unwrap();
        // How many samples a run has depends on the machine.
        let is_of_work = |stack: &Vec<&str>| stack.ends_with(&["[component adapter]", "work", "hash"]);
        let recording = (0..1000).find_map(|_| {
            let returned = match is_async {
                true => runtime.block_on(run.call_async(&mut store, ())),
                false => run.call(&mut store, ()),
            };
            assert_eq!(returned.unwrap(), (Ok(()),));
            let snapshot = profiler.snapshot().unwrap();
            let stacks = stacks(snapshot.recording());
            (stacks.len() > 50 && stacks.iter().any(is_of_work)).then(|| snapshot.recording().clone())
        });
        let recording = recording.expect("it is sampled");
        let stacks = stacks(&recording);
        assert!(stacks.iter().all(|stack| stack.starts_with(&["run"])), "{stacks:?}");
        assert!(recording.truncated.is_empty(), "{:?}", recording.truncated);
        // The first that there is: `inner`'s.
        assert!(recording.stores[0].memory.iter().all(|size| size.bytes == 2 << 16), "{:?}", recording.stores[0]);
        assert_eq!(recording.stores[0].memory.len(), 1);
        drop(store);
        profiler.remove_component(&component);
    }
}

#[test]
fn what_is_no_command_is_refused_with_what_it_lacks() {
    let place = Place::new();
    place.file("empty.wat", "(component)");
    place.file(
        "named.wat",
        r#"(component (core module $m (func (export "f"))) (core instance $i (instantiate $m))
        (func (export "greet") (canon lift (core func $i "f"))))"#,
    );
    place.file("host.wat", r#"(component (import "acme:shop/log@1.0.0" (instance (export "log" (func)))))"#);
    // It has code that no engine takes: nothing is compiled before all that is missing is named.
    let log = |interface: &str| format!(r#"(import "{interface}" (instance (export "log" (func))))"#);
    place.file(
        "two.wat",
        format!(
            r#"(component {} {} (core module $m (func (export "f") i32.const 1)))"#,
            log("acme:shop/log@1.0.0"),
            log("acme:till/log")
        ),
    );
    let handler = fixture("handler-c.wasm");
    let handler = handler.to_str().unwrap();
    let command = fixture("component-c-calls.wasm");
    let command = command.to_str().unwrap();
    let cases: [(&[&str], &[&str]); 10] = [
        (&["empty.wat"], &["empty.wat", "exports no `wasi:cli/run`", "exports: none"]),
        (&["named.wat"], &["exports no `wasi:cli/run`", "greet", "docs/embedding.md"]),
        (&["host.wat"], &["acme:shop/log@1.0.0", "provided: WASI 0.2", "wac plug"]),
        (&["two.wat"], &["does not provide: acme:shop/log@1.0.0, acme:till/log (provided"]),
        (&["--invoke=log()", "two.wat"], &["does not provide: acme:shop/log@1.0.0, acme:till/log (provided"]),
        (&[handler], &["wasi:http/incoming-handler", "run it with `wlprof serve`"]),
        (&["serve", command], &["no `wasi:http` handler", "without `serve`"]),
        (&["--invoke=greet", "named.wat"], &["--invoke", "'name("]),
        (&["--invoke=meet()", "named.wat"], &["no function `meet`"]),
        (&["--invoke=greet(1)", "named.wat"], &["--invoke", "'name("]),
    ];
    for (arguments, told) in cases {
        let ran = place.run(arguments);
        assert_eq!(ran.code, Some(126), "{}", ran.stderr);
        assert!(told.iter().all(|told| ran.stderr.contains(told)), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn every_cut_of_a_component_is_refused() {
    let place = Place::new();
    let whole = std::fs::read(fixture("component-c-calls.wasm")).unwrap();
    for part in 1..20 {
        let cut = place.file("cut.wasm", &whole[..whole.len() * part / 20]);
        let ran = place.run(["-q", cut.to_str().unwrap()]);
        assert_eq!(ran.code, Some(126), "{part}: {}", ran.stderr);
    }
}
