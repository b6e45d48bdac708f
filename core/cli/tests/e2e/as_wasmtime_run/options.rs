//! The options `-O`, `-C`, `-D`, `-W` and `-S`, `--argv0` and `--preload`: what they change, and what they leave.

use super::Ends::{Apart, Both};
use super::{Case, Ends, compare, compare_all, speaking};
use crate::guest::{Place, fixture};

/// Runs the guest of each with each of its options.
fn compare_each(cases: &[(&str, &str, &[&[&str]], Ends)]) {
    let each = cases.iter().flat_map(|(name, guest, options, ends)| {
        options.iter().map(move |options| (*name, Case { guest, options, ..Case::default() }, *ends))
    });
    compare_all(&each.collect::<Vec<_>>());
}

/// A guest that works, has its memory grow, calls through a table and says so.
fn busy() -> String {
    speaking(
        r#"(table 4 funcref) (elem (i32.const 1) $double) (type $number (func (param i32) (result i32)))
        (func $double (type $number) (i32.shl (local.get 0) (i32.const 1)))
        (func (export "_start") (local $left i32)
            (local.set $left (i32.const 1000))
            (loop $more
                (drop (call_indirect (type $number) (local.get $left) (i32.const 1)))
                (br_if $more (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
            (if (i32.ne (memory.grow (i32.const 3)) (i32.const -1)) (then (call $say_main)) (else (call $say_default))))"#,
    )
}

#[test]
fn how_code_is_made_and_kept_changes_no_run() {
    let options: [&[&str]; 30] = [
        &["-Oopt-level=0"],
        &["-Oopt-level=1"],
        &["-Oopt-level=2", "-Wgc=n"],
        &["-Oopt-level=s"],
        &["-Oopt-level=0", "-Ccache=n"],
        &["-Oregalloc-algorithm=single-pass"],
        &["-Omemory-reservation=0"],
        &["-Omemory-reservation=65536,memory-guard-size=65536"],
        &["-Omemory-reservation-for-growth=0"],
        &["-Omemory-may-move=n"],
        &["-Oguard-before-linear-memory=n"],
        &["-Omemory-init-cow=n"],
        &["-Otable-lazy-init=n"],
        &["-Osignals-based-traps=n"],
        &["-Opooling-allocator"],
        &["-Opooling-allocator,pooling-total-memories=3", "-Opooling-total-tables=3"],
        &["-Ccompiler=cranelift"],
        &["-Ccache=n"],
        &["-Cparallel-compilation=n"],
        &["-Ccranelift-debug-verifier"],
        &["-Cnative-unwind-info=n"],
        &["-Ccollector=null"],
        &["-Ccranelift-enable_nan_canonicalization=true"],
        &["-Ddebug-info"],
        &["-Dmax-backtrace=0"],
        &["-Dmax-backtrace=5", "-Daddress-map"],
        &["-Wnan-canonicalization"],
        &["-Wrelaxed-simd-deterministic"],
        &["-Wall-proposals"],
        &["-Wconcurrency-support=n", "-Wcomponent-model-async=n"],
    ];
    compare_each(&[("busy", &busy(), &options, Both(0))]);
}

#[test]
fn limits_are_kept_to() {
    let recursive = r#"(module (func $deep (export "_start") (call $deep) (call $deep)))"#;
    let endless = r#"(module (func (export "_start") (loop $again (br $again))))"#;
    let counting = r#"(module (func (export "_start") (local $left i32) (local.set $left (i32.const 100000))
        (loop $more (br_if $more (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))"#;
    let busy = busy();
    compare_each(&[
        ("fuel", counting, &[&["-Wfuel=1000"]], Both(134)),
        ("fuel enough", counting, &[&["-Wfuel=10000000"]], Both(0)),
        ("fuel for ever", endless, &[&["-Wfuel=100000"]], Both(134)),
        ("stack", recursive, &[&["-Wmax-wasm-stack=65536"], &["-Wmax-wasm-stack=4000000"], &[]], Both(134)),
        ("timeout", endless, &[&["-Wtimeout=200ms"]], Both(134)),
        ("no timeout", counting, &[&["-Wtimeout=1000s"]], Both(0)),
        ("memory", &busy, &[&["-Wmax-memory-size=65536"], &["-Wmax-memory-size=262144"]], Both(0)),
        ("memory for a start", &busy, &[&["-Wmax-memory-size=1000"]], Apart(1, 126)),
        ("memory that traps", &busy, &[&["-Wmax-memory-size=65536,trap-on-grow-failure"]], Both(1)),
        ("instances", &busy, &[&["-Wmax-instances=1"], &["-Wmax-tables=1"], &["-Wmax-memories=1"]], Both(0)),
        (
            "no instances",
            &busy,
            &[&["-Wmax-tables=0"], &["-Wmax-memories=0"], &["-Wmax-table-elements=2"]],
            Apart(1, 126),
        ),
    ]);
}

#[test]
fn proposals_are_there_or_not() {
    let start = |body: &str| format!(r#"(module {body})"#);
    let guests = [
        ("simd", start(r#"(func (export "_start") (drop (v128.const i32x4 1 2 3 4)))"#)),
        (
            "relaxed-simd",
            start(
                r#"(func (export "_start") (drop (i8x16.relaxed_swizzle (v128.const i32x4 1 2 3 4) (v128.const i32x4 0 0 0 0))))"#,
            ),
        ),
        (
            "bulk-memory",
            start(r#"(memory 1) (func (export "_start") (memory.fill (i32.const 0) (i32.const 1) (i32.const 9)))"#),
        ),
        ("multi-memory", start(r#"(memory 1) (memory 1) (func (export "_start"))"#)),
        ("memory64", start(r#"(memory i64 1) (func (export "_start") (i32.store8 (i64.const 5) (i32.const 1)))"#)),
        ("tail-call", start(r#"(func $f) (func (export "_start") (return_call $f))"#)),
        (
            "gc",
            start(
                r#"(type $pair (struct (field i32))) (func (export "_start") (drop (struct.new $pair (i32.const 1))))"#,
            ),
        ),
        ("exceptions", start(r#"(tag $t) (func (export "_start") (block $h (try_table (catch $t $h) (throw $t))))"#)),
        (
            "function-references",
            start(r#"(func $f) (elem declare func $f) (func (export "_start") (call_ref 0 (ref.func $f)))"#),
        ),
        ("extended-const", start(r#"(global i32 (i32.add (i32.const 1) (i32.const 2))) (func (export "_start"))"#)),
        (
            "multi-value",
            start(
                r#"(func $two (result i32 i32) i32.const 1 i32.const 2) (func (export "_start") call $two drop drop)"#,
            ),
        ),
    ];
    for (name, guest) in &guests {
        let [with, without] = ["y", "n"].map(|value| format!("-W{name}={value}"));
        compare_each(&[
            (name, guest, &[&[&with], &["-Wall-proposals"]], Both(0)),
            (name, guest, &[&[&without]], Apart(1, 126)),
        ]);
    }
    let wide =
        start(r#"(func (export "_start") i64.const 1 i64.const 2 i64.const 3 i64.const 4 i64.add128 drop drop)"#);
    compare_each(&[("wide", &wide, &[&["-Wwide-arithmetic"]], Both(0)), ("wide", &wide, &[&[]], Apart(1, 126))]);
}

#[test]
fn imports_that_there_are_not_are_made_up_if_that_is_asked_for() {
    let unused = speaking(r#"(func (export "_start") (call $say_main))"#).replacen(
        "(import",
        r#"(import "env" "log" (func $log (param i32) (result i64))) (import"#,
        1,
    );
    let used = unused.replace("(call $say_main)", "(drop (call $log (i32.const 1))) (call $say_main)");
    let global = unused.replacen("(import", r#"(import "env" "base" (global i32)) (import"#, 1);
    compare_each(&[
        ("unused", &unused, &[&["-Wunknown-imports-trap"], &["-Wunknown-imports-default"]], Both(0)),
        ("used", &used, &[&["-Wunknown-imports-default"]], Both(0)),
        ("used", &used, &[&["-Wunknown-imports-trap"]], Both(1)),
        ("a global", &global, &[&["-Wunknown-imports-default"]], Both(0)),
        ("a global", &global, &[&["-Wunknown-imports-trap"], &[]], Apart(1, 126)),
    ]);
}

#[test]
fn the_world_is_as_large_as_it_is_asked_for() {
    let busy = busy();
    compare_each(&[
        ("cli", &busy, &[&["-Scli"], &["-Scommon"], &["-Spreview2"], &["-Sp3=n"], &["-Shttp=n"]], Both(0)),
        ("streams", &busy, &[&["-Sinherit-stdout=n"], &["-Sinherit-stderr=n"], &["-Sinherit-stdin=n"]], Both(0)),
        ("network", &busy, &[&["-Sinherit-network"], &["-Stcp=n,udp=n"], &["-Sallow-ip-name-lookup"]], Both(0)),
        ("limits", &busy, &[&["-Smax-resources=10"], &["-Shostcall-fuel=1000"], &["-Smax-random-size=10"]], Both(0)),
        ("no cli", &busy, &[&["-Scli=n"]], Apart(1, 126)),
        ("preview 0", &busy, &[&["-Spreview0=n"]], Both(0)),
        ("too old", &busy.replace("wasi_snapshot_preview1", "wasi_unstable"), &[&["-Spreview0=n"]], Apart(1, 126)),
    ]);
    let component = fixture("component-async.wat");
    for (options, ends) in
        [(&["-Sp3"][..], Both(0)), (&["-Sp3=n"], Apart(1, 126)), (&["-Wconcurrency-support=n"], Apart(1, 126))]
    {
        let case = Case { options, ..Case::default() };
        compare(&|_| (), component.to_str().unwrap(), &case, ends).unwrap();
    }
}

#[test]
fn names_and_modules_that_are_given() {
    let library = r#"(module (func (export "three") (result i32) (i32.const 3)))"#;
    let guest = r#"(module (import "library" "three" (func $three (result i32)))
        (func (export "six") (result i32) (i32.add (call $three) (call $three))))"#;
    let prepare = |place: &Place| {
        place.file("library.wat", library);
        place.file("guest.wat", guest);
    };
    let given: &[&str] = &["--preload=library=library.wat", "--invoke=six"];
    let lacking: &[&str] = &["--preload=other=library.wat", "--invoke=six"];
    for (options, ends) in [(given, Both(0)), (lacking, Apart(1, 126))] {
        compare(&prepare, "guest.wat", &Case { options, ..Case::default() }, ends).unwrap();
    }
    let arguments = fixture("rust-mix.wasm");
    let case = Case { options: &["--argv0=another"], ..Case::default() };
    compare(&|_| (), arguments.to_str().unwrap(), &case, Both(0)).unwrap();
}

#[test]
fn modules_that_are_given_have_names_and_lines_in_profiles_and_in_code_for_perf() {
    let place = Place::new();
    place.file(
        "guest.wat",
        r#"(module (import "library" "_start" (func $library)) (memory (export "memory") 1)
        (func $own (export "_start") (call $library)))"#,
    );
    let library = format!("--preload=library={}", fixture("c-shares.wasm").display());
    for functions in ["all", "sampled"] {
        let functions = format!("--jitdump-functions={functions}");
        let ran = place.run(["-q", "-o", "x.wlprof", "--format=jitdump", &functions, &library, "guest.wat"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let recording = place.recording("x.wlprof");
        let heavy: Vec<_> = recording.functions.iter().filter(|function| function.name == "heavy").collect();
        assert!(heavy.len() == 1 && heavy[0].file.as_ref().is_some_and(|file| file.ends_with("shares.c")), "{heavy:?}");
        let names = |stack| recording.lines_of(stack).map(|line| &*recording.functions[line.function as usize].name);
        let in_heavy = recording.samples().find(|sample| names(sample.stack).next() == Some("heavy")).unwrap();
        assert_eq!(names(in_heavy.stack).last(), Some("own"));
        assert!(recording.lines_of(in_heavy.stack).next().unwrap().line.is_some());
        let dump = place.files().into_iter().find(|name| name.starts_with("jit-")).unwrap();
        let code = std::fs::read(place.path(&dump)).unwrap();
        for name in ["heavy\0", "own\0"] {
            assert!(code.windows(name.len()).any(|bytes| bytes == name.as_bytes()), "{functions}: {name}");
        }
        std::fs::remove_file(place.path(&dump)).unwrap();
    }
    let ran = place.run(["--memory", "-o", "x.wlprof", &library, "guest.wat"]);
    assert!(ran.stderr.contains("given with --preload is not profiled: library"), "{}", ran.stderr);
}

#[test]
fn functions_of_components_are_called() {
    let text = r#"(component
        (core module $m (memory (export "memory") 1) (global $end (mut i32) (i32.const 64))
            (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
            (func (export "fail") unreachable)
            (func (export "realloc") (param i32 i32 i32 i32) (result i32)
                (global.get $end) (global.set $end (i32.add (global.get $end) (local.get 3))))
            (func (export "length") (param i32 i32) (result i32) (local.get 1)))
        (core instance $i (instantiate $m))
        (func $add (param "a" u32) (param "b" u32) (result u32) (canon lift (core func $i "add")))
        (alias core export $i "memory" (core memory $memory))
        (alias core export $i "realloc" (core func $realloc))
        (func $length (param "text" string) (result u32)
            (canon lift (core func $i "length") (memory $memory) (realloc $realloc)))
        (func (export "fail") (canon lift (core func $i "fail")))
        (instance $sums (export "add" (func $add)))
        (export "length" (func $length))
        (export "test:sums/sums@1.0.0" (instance $sums)))"#;
    let prepare = |place: &Place| drop(place.file("component.wat", text));
    let cases = [
        ("add(2, 40)", Both(0)),
        ("test:sums/sums.add@1.0.0(1, 2)", Both(0)),
        ("length(\"four\")", Both(0)),
        ("fail()", Both(134)),
        ("add(2)", Apart(1, 126)),
        ("add(2, \"x\")", Apart(1, 126)),
        ("multiply(2, 3)", Apart(1, 126)),
        ("add", Apart(1, 126)),
    ];
    for (call, ends) in cases {
        let option = format!("--invoke={call}");
        compare(&prepare, "component.wat", &Case { options: &[&option], ..Case::default() }, ends)
            .unwrap_or_else(|difference| panic!("{call}: {difference}"));
    }
}

#[test]
fn what_makes_no_sense_in_a_profiler_is_refused_with_the_reason() {
    let place = Place::new();
    place.file("guest.wat", r#"(module (func (export "_start")))"#);
    let refused = [
        ("-Ccompiler=winch", "Cranelift"),
        ("-Cinlining=y", "inlin"),
        ("-Daddress-map=n", "the sampler finds"),
        ("-Dsymbols=n", "the sampler finds"),
        ("-Dguest-debug", "debugged"),
        ("-Dlogging", "logging"),
        ("-Dcoredump=x", "core dump"),
        ("-Wstack-switching", "continuations"),
        ("-Wwmemcheck", "wmemcheck"),
        ("-Snn", "wasmtime run"),
        ("-Scli,common", "older name"),
        ("-Sconfig", "wasmtime run"),
        ("-Skeyvalue", "wasmtime run"),
        ("-Stls", "wasmtime run"),
        ("-Sthreads", "no wasi-threads"),
        ("-Stcplisten=127.0.0.1:0", "no more"),
        ("-Slistenfd", "no more"),
        ("-Spreview2=n", "preview 1"),
        ("-Wnonsense", "nonsense"),
        ("--target=aarch64-unknown-linux-gnu", "Cranelift"),
    ];
    for (option, reason) in refused {
        let ran = place.run([option, "guest.wat"]);
        assert!(ran.code == Some(125) && ran.stderr.contains(reason), "{option}: {ran:?}");
    }
    assert_eq!(place.files(), ["guest.wat"]);
    let ran = place.run(["-Wfuel=100", "--memory", "guest.wat"]);
    assert!(ran.code == Some(125) && ran.stderr.contains("--memory"), "{ran:?}");
}
