//! Both formats of pushed profiles, of the same recordings: they have the same sums, and tables that are whole.

mod checks;

use super::limits::MAX_DEPTH;
use super::{KeptLabels, MAX_SERIES};
use crate::otlp::proto as otlp;
use crate::pprof::proto as pprof;
use checks::{Totals, made_up, of_otlp, of_pprof, of_recording, profile, request};
use std::collections::BTreeMap;
use wlprof_recording::{HeapPart, Recording, example};

#[test]
fn sums_by_function_are_those_of_the_recording() {
    let kept = KeptLabels::new(["state", "goroutine", "thread"]);
    let time = example();
    let memory = example().of_memory(HeapPart::Allocated);
    for (recording, types) in [
        (&time, &["samples", "wall"][..]),
        (&memory, &["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]),
    ] {
        let request = request(&[recording], &kept);
        let profiles = &request.resource_profiles[0].scope_profiles[0].profiles;
        assert_eq!(profiles.len(), types.len());
        let profile = profile(recording, &kept);
        assert_eq!(profile.sample_type.len(), types.len());
        for sample_type in types {
            let expected = of_recording(recording, sample_type);
            assert!(!expected.is_empty());
            assert_eq!(of_otlp(&request, sample_type), expected, "{sample_type}");
            assert_eq!(of_pprof(&profile, sample_type), expected, "{sample_type}");
        }
    }
    let both = request(&[&time, &memory], &kept);
    assert_eq!(both.resource_profiles[0].scope_profiles[0].profiles.len(), 6);
    assert_eq!(of_otlp(&both, "wall"), of_recording(&time, "wall"));
    assert_eq!(of_otlp(&both, "inuse_space"), of_recording(&memory, "inuse_space"));
}

#[test]
fn halves_add_up_in_both_formats() {
    let kept = KeptLabels::default();
    for (recording, sample_type) in [(example(), "wall"), (example().of_memory(HeapPart::Held), "alloc_space")] {
        let halves = recording.halves().unwrap();
        let request = request(&halves.each_ref(), &kept);
        assert_eq!(of_otlp(&request, sample_type), of_recording(&recording, sample_type));
        let mut sums = Totals::new();
        for (function, (own, all)) in halves.iter().flat_map(|half| of_pprof(&profile(half, &kept), sample_type)) {
            let sum = sums.entry(function).or_default();
            *sum = (sum.0 + own, sum.1 + all);
        }
        assert_eq!(sums, of_recording(&recording, sample_type));
    }
}

#[test]
fn a_message_says_where_it_is_from() {
    let recording = example();
    let request = request(&[&recording], &KeptLabels::default());
    let of_resource = &request.resource_profiles[0];
    let resource = of_resource.resource.as_ref().unwrap();
    let value = |value| Some(otlp::AnyValue { value: Some(value) });
    let attributes: Vec<_> = resource.attributes.iter().map(|of| (&*of.key, of.value.clone())).collect();
    let name = value(otlp::Value::String("other shop".to_owned()));
    assert_eq!(attributes, [("process.pid", value(otlp::Value::Int(17))), ("service.name", name)]);
    let scope = of_resource.scope_profiles[0].scope.as_ref().unwrap();
    assert_eq!((&*scope.name, &*scope.version), ("wlprof", env!("CARGO_PKG_VERSION")));
    let profile = &of_resource.scope_profiles[0].profiles[0];
    assert_eq!(profile.time_unix_nano, 1_750_000_000_123_000_000);
    assert_eq!((profile.duration_nano, profile.period), (20_500_000, 1_230_769));
}

#[test]
fn profile_ids_follow_from_what_is_encoded() {
    let ids = |recordings: &[&Recording]| -> Vec<Vec<u8>> {
        let request = request(recordings, &KeptLabels::default());
        request.resource_profiles[0].scope_profiles[0].profiles.iter().map(|of| of.profile_id.clone()).collect()
    };
    let recording = example();
    let [first, second] = example().of_memory(HeapPart::Held).halves().unwrap();
    assert_eq!(ids(&[&recording]), ids(&[&recording]));
    assert_eq!(ids(&[&first, &recording])[4..], ids(&[&recording]), "others do not matter");
    // That no two are equal is checked of every message.
    assert_eq!(ids(&[&recording, &first, &second]).len(), 10);
}

#[test]
fn frames_have_kinds_and_modules_their_addresses() {
    let recording = example();
    let request = request(&[&recording], &KeptLabels::default());
    let tables = request.dictionary.as_ref().unwrap();
    let text = |place: i32| &*tables.string_table[place as usize];
    let value = |indices: &[i32]| -> Vec<String> {
        let attributes = indices.iter().map(|at| &tables.attribute_table[*at as usize]);
        attributes.map(|of| format!("{} {:?}", text(of.key_strindex), of.value.as_ref().unwrap().value)).collect()
    };
    let kind = |name: &str| {
        let is_its =
            |line: &otlp::Line| text(tables.function_table[line.function_index as usize].name_strindex) == name;
        let location = tables.location_table.iter().find(|location| location.lines.last().is_some_and(is_its));
        let location = location.unwrap();
        (value(&location.attribute_indices).join(""), location.mapping_index != 0, location.address != 0)
    };
    let of = |kind: &str| format!("profile.frame.type Some(String({kind:?}))");
    assert_eq!(kind("shapes::outer"), (of("wasm"), true, true));
    assert_eq!(kind("Shop.price.<locals>.<genexpr>"), (of("cpython"), true, false));
    assert_eq!(kind("wasi_snapshot_preview1.fd_write"), (of("native"), false, false));
    assert_eq!(kind("[truncated]"), (String::new(), false, false));
    let app = tables.mapping_table.iter().find(|mapping| text(mapping.filename_strindex) == "app.wasm").unwrap();
    assert_eq!((app.memory_start, app.memory_limit), (2 << 32, 3 << 32), "as pprof has it");
    assert_eq!(value(&app.attribute_indices), ["process.executable.build_id.gnu Some(String(\"00c0ffee\"))"]);
    let go = made_up(&[("main.main", Some("/app/main.go")), ("eval", None)], &[vec![0], vec![1]], &[]);
    let tables = self::request(&[&go], &KeptLabels::default()).dictionary.unwrap();
    let kinds: Vec<_> = tables.attribute_table[1..].iter().map(|of| of.value.clone().unwrap().value.unwrap()).collect();
    let text = |text: &str| otlp::Value::String(text.to_owned());
    assert_eq!(kinds, [text("c0ffee"), text("go"), text("wasm")]);
}

#[test]
fn rows_are_of_labels_that_are_kept() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00F067AA0BA902B7";
    let sets: [&[(&str, &str)]; 5] = [
        &[("request", "GET /"), ("goroutine", "7"), ("other", "a")],
        &[("request", "GET /"), ("goroutine", "7"), ("other", "b")],
        &[("request", "GET /"), ("goroutine", "8")],
        &[("trace_id", TRACE), ("span_id", SPAN), ("other", "a")],
        &[("trace_id", TRACE), ("span_id", "none")],
    ];
    let recording = made_up(&[("main", None)], &vec![vec![0]; 5], &sets);
    let labels = |names: &[&str]| -> Vec<String> {
        let kept = KeptLabels::new(names.iter().copied());
        let profile = profile(&recording, &kept);
        let text = |place: i64| &*profile.string_table[place as usize];
        let label = |label: &pprof::Label| match label.num_unit {
            0 => format!("{}={}", text(label.key), text(label.str)),
            unit => format!("{}={}{}", text(label.key), label.num, text(unit)),
        };
        let row = |sample: &pprof::Sample| {
            let labels: Vec<String> = sample.label.iter().map(label).collect();
            format!("{} {}", sample.value[1], labels.join(" "))
        };
        profile.sample.iter().map(row).collect()
    };
    let span = format!("10 trace_id={TRACE} span_id={}", SPAN.to_lowercase());
    assert_eq!(labels(&[]), ["40 ", &span]);
    let of_requests = ["20 goroutine=7count request=GET /", "10 goroutine=8count request=GET /", &span, "10 "];
    assert_eq!(labels(&["goroutine", "request"]), of_requests);

    let kept = KeptLabels::new(["goroutine", "request"]);
    let request = request(&[&recording], &kept);
    let tables = request.dictionary.unwrap();
    let values: Vec<_> =
        tables.attribute_table[1..].iter().map(|of| of.value.clone().unwrap().value.unwrap()).collect();
    assert!(values.contains(&otlp::Value::Int(7)) && values.contains(&otlp::Value::String("GET /".to_owned())));
    assert_eq!(tables.link_table.len(), 2);
    assert_eq!((tables.link_table[1].trace_id[0], tables.link_table[1].span_id[1]), (0x4b, 0xf0));
    assert!(!tables.string_table.iter().any(|text| text == "trace_id" || text == TRACE));
    let samples = &request.resource_profiles[0].scope_profiles[0].profiles[0].samples;
    let links: Vec<(i32, i64)> = samples.iter().map(|sample| (sample.link_index, sample.values[0])).collect();
    assert_eq!(links, [(0, 2), (0, 1), (1, 1), (0, 1)]);
}

#[test]
fn labels_of_stores_are_those_of_memory() {
    let mut recording = example();
    recording.stores[0].labels = vec![("tenant".to_owned(), "a".to_owned())];
    let memory = recording.of_memory(HeapPart::Held);
    let profile = profile(&memory, &KeptLabels::new(["tenant"]));
    assert!(profile.sample.iter().all(|sample| sample.label.len() == 1));
    assert!(
        request(&[&memory], &KeptLabels::new(["tenant"])).dictionary.unwrap().string_table.contains(&"tenant".into())
    );
}

#[test]
fn long_texts_and_deep_stacks_are_cut() {
    let long = "é\n".repeat(35_000);
    let deep: Vec<u32> = [0].into_iter().chain(std::iter::repeat_n(1, 4998)).chain([2]).collect();
    let functions = [("root", None), ("recursive", Some(&*long)), ("leaf", None), (&*long, None)];
    let labels: &[(&str, &str)] = &[("path", &long)];
    let recording = made_up(&functions, &[deep, vec![3]], &[labels, labels]);
    let kept = KeptLabels::new(["path"]);
    let own = |totals: Totals| -> BTreeMap<String, (i64, i64)> {
        totals.into_iter().map(|((name, _), values)| (name.chars().take(9).collect(), values)).collect()
    };
    let expected = [("[elided]", (0, 1)), ("leaf", (1, 1)), ("recursive", (0, 1)), ("root", (0, 1))];
    let mut expected: BTreeMap<String, _> = expected.map(|(name, values)| (name.to_owned(), values)).into();
    expected.insert("é é é é é".to_owned(), (1, 1));
    let request = request(&[&recording], &kept);
    assert_eq!(own(of_otlp(&request, "samples")), expected);
    let profile = profile(&recording, &kept);
    assert_eq!(own(of_pprof(&profile, "samples")), expected);
    let depth = profile.sample.iter().map(|sample| sample.location_id.len()).max();
    assert_eq!(depth, Some(MAX_DEPTH));
    let longest = profile.string_table.iter().max_by_key(|text| text.len()).unwrap();
    assert!(longest.ends_with('…') && longest.len() < 65_535);
}

#[test]
fn stacks_that_are_cut_to_the_same_are_one_row() {
    let stack = |depth| std::iter::repeat_n(0, depth).collect();
    let recording = made_up(&[("recursive", None)], &[stack(3000), stack(4000), stack(1000)], &[]);
    let kept = KeptLabels::default();
    assert_eq!(profile(&recording, &kept).sample.len(), 2);
    assert_eq!(of_otlp(&request(&[&recording], &kept), "samples").values().map(|of| of.0).sum::<i64>(), 3);
}

#[test]
fn series_are_bounded_in_both_formats() {
    let count = MAX_SERIES + 500;
    let paths: Vec<String> = (0..count).map(|path| format!("/{path}")).collect();
    let sets: Vec<[(&str, &str); 1]> = paths.iter().map(|path| [("path", &**path)]).collect();
    let sets: Vec<&[(&str, &str)]> = sets.iter().map(|set| &set[..]).collect();
    let recording = made_up(&[("main", None)], &vec![vec![0]; count], &sets);
    let kept = KeptLabels::new(["path"]);
    let profile = profile(&recording, &kept);
    assert_eq!(profile.sample.len(), MAX_SERIES + 1);
    assert!(kept.is_full());
    assert_eq!(profile.sample.iter().map(|sample| sample.value[0]).max(), Some(500));
    let request = request(&[&recording], &kept);
    let samples = &request.resource_profiles[0].scope_profiles[0].profiles[0].samples;
    assert_eq!(samples.len(), MAX_SERIES + 1);
}

#[test]
fn a_recording_without_samples_has_profiles_without_samples() {
    let recording = made_up(&[], &[], &[]);
    let kept = KeptLabels::default();
    assert!(profile(&recording, &kept).sample.is_empty());
    let request = request(&[&recording], &kept);
    assert_eq!(request.resource_profiles[0].scope_profiles[0].profiles.len(), 2);
}
