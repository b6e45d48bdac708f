//! Walks of made-up guests: what stacks become, and that nothing in memory can make a walk hang, panic or go on for long.

use crate::synthetic::{
    CONTEXT, Guest, LOOP, NATIVE, OTHER, RUNTIME, SIZE, STACK_POINTER, nameless_walker, walker, wasm,
};
use crate::{layout::Layout, walker::JavaScriptWalker};
use wlprof_plugin::{FrameKey, FrameSink, Program, SinkEntry, SourceFrame, Truncation, Walker};

/// A walk, with frames as `name:line` or `#index`.
fn walk(walker: &mut JavaScriptWalker, guest: &Guest, functions: &[u32]) -> (Vec<String>, Result<(), Truncation>) {
    let mut out = FrameSink::new();
    let end = walker.walk(&guest.frozen, &wasm(functions), &mut out);
    let mut name = |entry| match entry {
        SinkEntry::Wasm(index) => format!("#{index}"),
        SinkEntry::Elided => panic!("nothing is left out"),
        SinkEntry::Own(key) => {
            let mut frames = Vec::new();
            walker.program().symbolize(FrameKey::Own(key), &mut frames);
            let frame = frames.pop().unwrap();
            frame.line.map_or_else(|| frame.function.clone(), |line| format!("{}:{line}", frame.function))
        }
    };
    (out.entries().map(&mut name).collect(), end)
}

/// What is shown of the function that runs.
fn shown(walker: &mut JavaScriptWalker, guest: &Guest) -> (Vec<SourceFrame>, Result<(), Truncation>) {
    let (mut out, mut frames) = (FrameSink::new(), Vec::new());
    let end = walker.walk(&guest.frozen, &wasm(&[LOOP]), &mut out);
    for entry in out.entries() {
        if let SinkEntry::Own(key) = entry {
            walker.program().symbolize(FrameKey::Own(key), &mut frames);
        }
    }
    (frames, end)
}

/// A guest in which `inner` was called by native code that `outer` called.
fn nested() -> Guest {
    let mut guest = Guest::new();
    let (outer, map, inner) = (guest.function("outer", false), guest.function("map", true), guest.function("", false));
    guest.run(&[(inner, 0), (map, 0), (outer, 51)]);
    guest
}

/// The wasm stack of that guest. Native functions are called through a loop of their own.
const NESTED: [u32; 5] = [LOOP, OTHER, NATIVE, LOOP, LOOP];

#[test]
fn frames_stand_where_their_code_runs() {
    let (guest, mut walker) = (nested(), walker());
    let whole = ["<anonymous>:10", "#1", "map", "#3", "outer:12"].map(str::to_owned).to_vec();
    assert_eq!(walk(&mut walker, &guest, &NESTED), (whole, Ok(())));
    // Another function is being called.
    let (frames, end) = walk(&mut walker, &guest, &[LOOP, LOOP, OTHER, NATIVE, LOOP, LOOP, OTHER]);
    assert_eq!((frames.join(" ").as_str(), end), ("#0 <anonymous>:10 #2 map #4 outer:12 #6", Ok(())));
    for other in [&[LOOP, LOOP][..], &[LOOP, LOOP, LOOP], &[LOOP; 5], &[OTHER]] {
        let (frames, end) = walk(&mut walker, &guest, other);
        assert!(frames.join(" ").ends_with("<anonymous>:10 map outer:12"), "{frames:?}");
        assert_eq!(end, Err(Truncation::Inconsistent));
    }
    let (frames, end) = walk(&mut walker, &guest, &[]);
    assert_eq!((frames.len(), end), (3, Ok(())));
}

#[test]
fn a_walk_that_may_not_allocate_leaves_new_functions_for_later() {
    let (guest, mut walker) = (nested(), walker());
    let mut out = FrameSink::new();
    out.set_may_allocate(false);
    assert_eq!(walker.walk(&guest.frozen, &wasm(&NESTED), &mut out), Err(Truncation::WouldAllocate));
    assert!(out.is_empty());
    assert_eq!(walk(&mut walker, &guest, &NESTED).1, Ok(()));
    assert_eq!(walker.walk(&guest.frozen, &wasm(&NESTED), &mut out), Ok(()));
    assert_eq!(out.len(), 5);
}

#[test]
fn functions_put_in_the_place_of_others_are_told_apart() {
    for text in ["app.js", "outer", "outer that has a name longer than what is read at once of it", &"long".repeat(200)]
    {
        let mut guest = Guest::new();
        let outer = guest.function(if text == "app.js" { "outer" } else { text }, false);
        guest.run(&[(outer, 51)]);
        let (mut walker, mut before) = (walker(), Vec::new());
        let start = guest.frozen.memory.windows(text.len()).position(|bytes| bytes == text.as_bytes()).unwrap();
        for at in start..start + text.len() {
            guest.frozen.memory[at] ^= 2;
            let (frames, _) = shown(&mut walker, &guest);
            assert_ne!(frames, before, "byte {at} of {text}");
            assert_eq!(frames, shown(&mut crate::synthetic::walker(), &guest).0);
            before = frames;
        }
    }
}

#[test]
fn functions_that_differ_in_a_line_are_told_apart() {
    let mut guest = Guest::new();
    let outer = guest.function("outer", false);
    // A byte of code an entry, all on one line until they are changed.
    let lines = guest.set_lines(outer, &[1 + 5 + 1, 0].repeat(128));
    guest.run(&[(outer, 60)]);
    let mut walker = walker();
    assert_eq!(walk(&mut walker, &guest, &[LOOP]).0, ["outer:10"]);
    for entry in 0..59 {
        guest.frozen.memory[lines as usize + 2 * entry] += 1;
        assert_eq!(walk(&mut walker, &guest, &[LOOP]).0, [format!("outer:{}", 11 + entry)], "entry {entry}");
    }
}

#[test]
fn a_guest_that_runs_nothing_has_no_stack() {
    let mut walker = walker();
    assert_eq!(walk(&mut walker, &Guest::new(), &[OTHER]), (Vec::new(), Err(Truncation::NoStack)));
    let mut guest = nested();
    let _ = walk(&mut walker, &guest, &NESTED);
    guest.word(RUNTIME + Layout::NG_0_16.runtime.current_stack_frame, 0);
    assert_eq!(walk(&mut walker, &guest, &[OTHER]), (vec!["#0".to_owned()], Ok(())));
    // The runtime is freed, and another made elsewhere is not known yet.
    guest.word(CONTEXT + Layout::NG_0_16.context.rt, 0);
    assert_eq!(walk(&mut walker, &guest, &[OTHER]), (Vec::new(), Err(Truncation::NoStack)));
}

/// Has the function that `nested` runs use another runtime.
fn use_another(guest: &mut Guest) {
    let (runtime, context) = (0x4000, 0x5000);
    guest.make_runtime(runtime, context);
    let sandboxed = guest.function("sandboxed", false);
    guest.set_realm(sandboxed, context);
    guest.run_in(runtime, STACK_POINTER + 8, &[(sandboxed, 0), (sandboxed, 20)]);
    let outer = guest.function("outer", false);
    guest.run_in(RUNTIME, STACK_POINTER + 0x100, &[(outer, 51)]);
}

#[test]
fn runtimes_that_use_each_other_are_one_stack() {
    let (mut guest, mut walker) = (nested(), walker());
    assert_eq!(walk(&mut walker, &guest, &NESTED).1, Ok(()));
    use_another(&mut guest);
    // What is not known is looked for as soon as frames are missing.
    assert_eq!(walk(&mut walker, &guest, &[LOOP, LOOP, OTHER, LOOP]).1, Err(Truncation::Inconsistent));
    let whole = ["sandboxed:10", "sandboxed:10", "#2", "outer:12"].map(str::to_owned).to_vec();
    assert_eq!(walk(&mut walker, &guest, &[LOOP, LOOP, OTHER, LOOP]), (whole, Ok(())));
}

#[test]
fn without_names_other_runtimes_are_looked_for_more_often() {
    let (mut guest, mut walker) = (nested(), nameless_walker());
    assert_eq!(walk(&mut walker, &guest, &NESTED).0.len(), 3);
    use_another(&mut guest);
    let mut walks = (0..64).map(|_| walk(&mut walker, &guest, &[LOOP, LOOP, OTHER, LOOP]).0.join(" "));
    let found = walks.position(|frames| frames == "sandboxed:10 sandboxed:10 outer:12");
    assert!(found.is_some_and(|walks| walks < 8), "after {found:?} walks");
}

#[test]
fn cycles_end() {
    for length in 1..=3 {
        let mut guest = nested();
        let mut walker = walker();
        let last = STACK_POINTER + 0x20 + 0x40 * (length - 1);
        guest.word(last, STACK_POINTER + 0x20);
        let (frames, end) = walk(&mut walker, &guest, &NESTED);
        assert!(frames.len() < 20 && end == Err(Truncation::Cycle), "{frames:?} {end:?}");
    }
    let mut guest = nested();
    guest.word(CONTEXT + Layout::NG_0_16.context.link + 4, CONTEXT + Layout::NG_0_16.context.link);
    assert_eq!(walk(&mut walker(), &guest, &NESTED).1, Err(Truncation::NoStack));
}

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % below
    }
}

#[test]
fn damaged_memory_ends_walks_soon() {
    let mut numbers = Numbers(1);
    let whole = nested();
    let used: Vec<usize> = (0..SIZE / 4).filter(|&at| whole.frozen.memory[4 * at..4 * at + 4] != [0; 4]).collect();
    let words = [0, 1, 3, 0x7fff_ffff, u32::MAX, 1 << 30, RUNTIME, CONTEXT, STACK_POINTER + 0x20, SIZE as u32 - 2];
    let mut walker = walker();
    for round in 0..30_000 {
        let mut guest = nested();
        for _ in 0..=numbers.next(3) {
            // A word of something, mostly, or any.
            let at = if numbers.next(4) > 0 { used[numbers.next(used.len())] } else { numbers.next(SIZE / 4) };
            let value = match numbers.next(3) {
                0 => words[numbers.next(words.len())],
                1 => numbers.next(SIZE) as u32,
                _ => numbers.next(1 << 31) as u32,
            };
            guest.word(4 * at as u32, value);
        }
        if round % 10 == 0 {
            guest.frozen.memory.truncate(numbers.next(SIZE));
        }
        if round % 3 == 0 {
            walker = crate::synthetic::walker();
        }
        let mut out = FrameSink::new();
        out.set_may_allocate(round % 7 != 0);
        let _ = walker.walk(&guest.frozen, &wasm(&NESTED), &mut out);
        assert!(guest.read() < 4 << 20, "round {round}: {} bytes", guest.read());
        for entry in out.entries() {
            if let SinkEntry::Own(key) = entry {
                walker.program().symbolize(FrameKey::Own(key), &mut Vec::new());
            }
        }
    }
}

#[test]
fn memory_of_noise_ends_walks_soon() {
    let mut numbers = Numbers(2);
    for round in 0..300 {
        let mut guest = nested();
        let start = [0, STACK_POINTER as usize, RUNTIME as usize][round % 3];
        let tag = round % 2 == 0;
        for (index, word) in guest.frozen.memory[start..].as_chunks_mut::<4>().0.iter_mut().enumerate() {
            // Objects all over the stack.
            let value = if tag && index % 2 == 1 { u32::MAX } else { numbers.next(SIZE) as u32 & !7 };
            *word = value.to_le_bytes();
        }
        let mut walker = walker();
        let _ = walker.walk(&guest.frozen, &wasm(&NESTED), &mut FrameSink::new());
        assert!(guest.read() < 4 << 20, "{} bytes", guest.read());
    }
}
