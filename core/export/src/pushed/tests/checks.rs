//! Encodes and decodes pushed profiles, checks their tables, and adds up their values by function.

use crate::otlp::{otlp_request, proto as otlp};
use crate::pprof::{proto as pprof, pushed_pprof};
use crate::pushed::KeptLabels;
use crate::pushed::limits::{MAX_DEPTH, MAX_TEXT, bounded_text};
use flate2::read::GzDecoder;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Read;
use wlprof_recording::{
    Category, Frame, Function, Line, Meta, Module, Origin, Recording, Sample, Stack, State, Store, Thread, example,
};

/// Of each function, by name and file: values at its leaf, and of all stacks that it is on.
pub(super) type Totals = BTreeMap<(String, String), (i64, i64)>;

fn add(totals: &mut Totals, leaf_first: Vec<(String, String)>, value: i64) {
    if value == 0 {
        return;
    }
    totals.entry(leaf_first[0].clone()).or_default().0 += value;
    let distinct: BTreeSet<_> = leaf_first.into_iter().collect();
    distinct.into_iter().for_each(|function| totals.entry(function).or_default().1 += value);
}

pub(super) fn of_otlp(request: &otlp::ExportProfilesServiceRequest, sample_type: &str) -> Totals {
    let tables = request.dictionary.as_ref().unwrap();
    let text = |place: i32| &*tables.string_table[place as usize];
    let mut totals = Totals::new();
    for profile in request.resource_profiles.iter().flat_map(|of| &of.scope_profiles).flat_map(|of| &of.profiles) {
        if text(profile.sample_type.unwrap().type_strindex) != sample_type {
            continue;
        }
        for sample in &profile.samples {
            let locations = tables.stack_table[sample.stack_index as usize].location_indices.iter();
            let lines = locations.flat_map(|location| &tables.location_table[*location as usize].lines);
            let functions = lines.map(|line| &tables.function_table[line.function_index as usize]);
            let names = functions.map(|of| (text(of.name_strindex).to_owned(), text(of.filename_strindex).to_owned()));
            add(&mut totals, names.collect(), sample.values[0]);
        }
    }
    totals
}

pub(super) fn of_pprof(profile: &pprof::Profile, sample_type: &str) -> Totals {
    let text = |place: i64| &*profile.string_table[place as usize];
    let place = profile.sample_type.iter().position(|of| text(of.r#type) == sample_type).unwrap();
    let mut totals = Totals::new();
    for sample in &profile.sample {
        let lines = sample.location_id.iter().flat_map(|id| &profile.location[*id as usize - 1].line);
        let functions = lines.map(|line| &profile.function[line.function_id as usize - 1]);
        let names = functions.map(|of| (text(of.name).to_owned(), text(of.filename).to_owned()));
        add(&mut totals, names.collect(), sample.value[place]);
    }
    totals
}

pub(super) fn of_recording(recording: &Recording, sample_type: &str) -> Totals {
    let mut totals = Totals::new();
    let names = |stack| -> Vec<(String, String)> {
        let file = |file: &str| if file.is_empty() { String::new() } else { bounded_text(file).into_owned() };
        let functions = recording.lines_of(stack).map(|line| &recording.functions[line.function as usize]);
        functions
            .map(|of| (bounded_text(&of.name).into_owned(), file(of.file.as_deref().unwrap_or_default())))
            .collect()
    };
    if recording.part.is_none() {
        for sample in recording.samples() {
            let value = if sample_type == "samples" { 1 } else { sample.period_ns as i64 };
            add(&mut totals, names(sample.stack), value);
        }
    }
    let heaps = recording.stores.iter().filter(|_| recording.part.is_some()).filter_map(|store| store.heap.as_ref());
    for site in heaps.flat_map(|heap| &heap.sites) {
        let [allocated, held] = [site.totals.allocated, site.totals.held];
        let value = match sample_type {
            "alloc_objects" => allocated.blocks,
            "alloc_space" => allocated.bytes,
            "inuse_objects" => held.blocks,
            _ => held.bytes,
        };
        add(&mut totals, names(site.stack), value.round() as i64);
    }
    totals
}

pub(super) fn request(recordings: &[&Recording], kept: &KeptLabels) -> otlp::ExportProfilesServiceRequest {
    let resource = [("service.name", "shop"), ("process.pid", "17"), ("service.name", "other shop")];
    let resource = resource.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let bytes = otlp_request(recordings, &resource, kept);
    let request = otlp::ExportProfilesServiceRequest::decode(&*bytes).unwrap();
    check_otlp(&request);
    request
}

pub(super) fn profile(recording: &Recording, kept: &KeptLabels) -> pprof::Profile {
    let pushed = pushed_pprof(recording, kept);
    let mut bytes = Vec::new();
    GzDecoder::new(&*pushed.bytes).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), pushed.uncompressed);
    let profile = pprof::Profile::decode(&*bytes).unwrap();
    assert_eq!(profile.sample.len(), pushed.rows);
    check_pprof(&profile);
    profile
}

/// Marks what is referred to.
fn mark(used: &mut [bool], places: impl IntoIterator<Item = i32>) {
    places.into_iter().for_each(|place| used[place as usize] = true);
}

fn check_distinct<T>(what: &str, items: &[T], key: impl Fn(&T) -> String) {
    let distinct: HashSet<String> = items.iter().map(key).collect();
    assert_eq!(distinct.len(), items.len(), "{what} has something twice");
}

/// Checks a message by the rules of OTLP's conformance checker: zero elements, indices, orphans, duplicates, and the shape of samples.
fn check_otlp(request: &otlp::ExportProfilesServiceRequest) {
    let tables = request.dictionary.as_ref().unwrap();
    assert_eq!(tables.mapping_table[0], otlp::Mapping::default());
    assert_eq!(tables.location_table[0], otlp::Location::default());
    assert_eq!(tables.function_table[0], otlp::Function::default());
    assert_eq!(tables.link_table[0], otlp::Link { trace_id: vec![0; 16], span_id: vec![0; 8] });
    assert_eq!(tables.string_table[0], "");
    assert_eq!(tables.attribute_table[0], otlp::KeyValueAndUnit::default());
    assert_eq!(tables.stack_table[0], otlp::Stack::default());

    let used = |count: usize| {
        let mut used = vec![false; count];
        used[0] = true;
        used
    };
    let mut strings = used(tables.string_table.len());
    let mut attributes = used(tables.attribute_table.len());
    let mut mappings = used(tables.mapping_table.len());
    let mut functions = used(tables.function_table.len());
    let mut locations = used(tables.location_table.len());
    let mut stacks = used(tables.stack_table.len());
    let mut links = used(tables.link_table.len());
    let check_keys = |indices: &[i32]| {
        let keys: HashSet<i32> = indices.iter().map(|at| tables.attribute_table[*at as usize].key_strindex).collect();
        assert_eq!(keys.len(), indices.len(), "a key is there twice");
    };
    let mut ids = HashSet::new();
    for profile in request.resource_profiles.iter().flat_map(|of| &of.scope_profiles).flat_map(|of| &of.profiles) {
        for value_type in [profile.sample_type.unwrap(), profile.period_type.unwrap()] {
            mark(&mut strings, [value_type.type_strindex, value_type.unit_strindex]);
        }
        assert!(profile.profile_id.len() == 16 && profile.profile_id != [0; 16]);
        assert!(ids.insert(&profile.profile_id), "two profiles have one id");
        let identity = |sample: &otlp::Sample| format!("{sample:?}").split("values").next().unwrap().to_owned();
        check_distinct("samples", &profile.samples, identity);
        for sample in &profile.samples {
            assert!(sample.values.len() == 1 && sample.values[0] != 0 && sample.stack_index != 0);
            mark(&mut stacks, [sample.stack_index]);
            mark(&mut links, [sample.link_index]);
            mark(&mut attributes, sample.attribute_indices.iter().copied());
            check_keys(&sample.attribute_indices);
        }
    }
    for stack in &tables.stack_table[1..] {
        assert!((1..=MAX_DEPTH).contains(&stack.location_indices.len()));
        assert!(!stack.location_indices.contains(&0));
        mark(&mut locations, stack.location_indices.iter().copied());
    }
    for location in &tables.location_table[1..] {
        assert!(location.lines.iter().all(|line| line.function_index != 0 && line.line >= 0 && line.column >= 0));
        let mapping = &tables.mapping_table[location.mapping_index as usize];
        assert!(location.address == 0 || (mapping.memory_start..mapping.memory_limit).contains(&location.address));
        mark(&mut mappings, [location.mapping_index]);
        mark(&mut functions, location.lines.iter().map(|line| line.function_index));
        mark(&mut attributes, location.attribute_indices.iter().copied());
        check_keys(&location.attribute_indices);
    }
    for mapping in &tables.mapping_table[1..] {
        mark(&mut strings, [mapping.filename_strindex]);
        mark(&mut attributes, mapping.attribute_indices.iter().copied());
    }
    for function in &tables.function_table {
        mark(&mut strings, [function.name_strindex, function.system_name_strindex, function.filename_strindex]);
    }
    for attribute in &tables.attribute_table {
        mark(&mut strings, [attribute.key_strindex, attribute.unit_strindex]);
    }
    for link in &tables.link_table {
        assert_eq!((link.trace_id.len(), link.span_id.len()), (16, 8));
    }
    let all = [strings, attributes, mappings, functions, locations, stacks, links];
    assert!(all.iter().all(|used| !used.contains(&false)), "an orphan: {all:?} of {tables:?}");
    check_distinct("strings", &tables.string_table, Clone::clone);
    check_distinct("attributes", &tables.attribute_table, |item| format!("{item:?}"));
    check_distinct("mappings", &tables.mapping_table, |item| format!("{item:?}"));
    check_distinct("functions", &tables.function_table, |item| format!("{item:?}"));
    check_distinct("locations", &tables.location_table, |item| format!("{item:?}"));
    check_distinct("stacks", &tables.stack_table, |item| format!("{item:?}"));
    check_distinct("links", &tables.link_table, |item| format!("{item:?}"));
    assert!(
        tables.string_table.iter().all(|text| text.chars().count() <= MAX_TEXT && !text.contains(char::is_control))
    );
}

/// Checks ids, which count from 1, and that nothing is there without a sample.
fn check_pprof(profile: &pprof::Profile) {
    let is_sequential = |ids: Vec<u64>| ids.iter().zip(1..).all(|(id, number)| *id == number);
    assert!(is_sequential(profile.mapping.iter().map(|item| item.id).collect()));
    assert!(is_sequential(profile.location.iter().map(|item| item.id).collect()));
    assert!(is_sequential(profile.function.iter().map(|item| item.id).collect()));
    let locations: HashSet<u64> = profile.sample.iter().flat_map(|sample| sample.location_id.clone()).collect();
    let mappings: HashSet<u64> = profile.location.iter().map(|location| location.mapping_id).collect();
    let lines = profile.location.iter().flat_map(|location| &location.line);
    let functions: HashSet<u64> = lines.map(|line| line.function_id).collect();
    assert_eq!(
        [locations.len(), mappings.len(), functions.len()],
        [profile.location.len(), profile.mapping.len(), profile.function.len()]
    );
    assert!(!locations.contains(&0) && !mappings.contains(&0) && !functions.contains(&0));
    let values = profile.sample.iter().all(|sample| sample.value.len() == profile.sample_type.len());
    assert!(values && profile.sample.iter().all(|sample| (1..=MAX_DEPTH).contains(&sample.location_id.len())));
    check_distinct("samples", &profile.sample, |sample| format!("{:?} {:?}", sample.location_id, sample.label));
    check_distinct("texts", &profile.string_table, Clone::clone);
    assert!(
        profile.string_table.iter().all(|text| text.chars().count() <= MAX_TEXT && !text.contains(char::is_control))
    );
}

/// A recording of a module whose frames have these functions, and of these stacks of frames, root first, each with a sample. Each sample
/// has the set of labels of its number, if there is one.
pub(super) fn made_up(
    functions: &[(&str, Option<&str>)],
    stacks: &[Vec<u32>],
    label_sets: &[&[(&str, &str)]],
) -> Recording {
    let function = |&(name, file): &(&str, Option<&str>)| Function {
        name: name.to_owned(),
        linkage_name: None,
        file: file.map(str::to_owned),
        line: None,
        category: Category::User,
        module: Some(0),
    };
    let frame = |function: u32| Frame {
        origin: Origin::Language { module: 0, key: function.into() },
        lines: vec![Line { function, line: Some(1), column: None }],
    };
    let mut recording = Recording {
        meta: Meta { duration_ns: 1_000_000_000, allowed_hz: 100.0, ..Meta::default() },
        modules: vec![Module { name: "app.wasm".to_owned(), build_id: "c0ffee".to_owned() }],
        functions: functions.iter().map(function).collect(),
        frames: (0..functions.len() as u32).map(frame).collect(),
        stacks: Vec::new(),
        label_sets: Vec::new(),
        stores: vec![Store::default()],
        threads: Vec::new(),
        ..example()
    };
    let mut samples = Vec::new();
    for (number, frames) in (0..).zip(stacks) {
        for (depth, frame) in frames.iter().enumerate() {
            let parent = (depth > 0).then(|| recording.stacks.len() as u32 - 1);
            recording.stacks.push(Stack { parent, frame: *frame });
        }
        let stack = recording.stacks.len() as u32 - 1;
        let labels = (number < label_sets.len() as u32).then_some(number);
        let time_ns = u64::from(number);
        samples.push(Sample { time_ns, period_ns: 10, cpu_delta_ns: 10, stack, state: State::Guest, labels });
    }
    let owned = |set: &&[(&str, &str)]| set.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    recording.label_sets = label_sets.iter().map(owned).collect();
    recording.threads = vec![Thread { samples: samples.into_iter().collect(), ..Thread::default() }];
    recording
}
