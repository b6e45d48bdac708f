//! What stands above the table: how much was seen of what, and what of the time was not.

use super::rows::{ENTERING, RETURNED, shown};
use crate::escape::single_line;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use wlprof_recording::{
    Clock, INSTANCE, LanguageTruncation, Recording, SelectionShare, State, Totals, Truncation, Weight, count_of,
};

/// What `±` means.
const BOUND: &str = "± is the 95 % bound of what sampling can tell";
/// What is lost is told from this part on: it could be seen in a table with one decimal.
pub(super) const TOLD: f64 = 0.001;
/// Likewise of stacks without the language's frames: a runtime takes some time to start.
const TOLD_WITHOUT: f64 = 0.01;
/// Of the time that no sample stands for, more: sampling begins and ends somewhere between two samples.
const TOLD_UNSAMPLED: f64 = 0.005;

/// Writes it.
pub(super) fn write(
    recording: &Recording,
    totals: &Totals,
    selected: Option<&SelectionShare>,
    text: &mut String,
) -> fmt::Result {
    let meta = &recording.meta;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let (base_ns, clock) = match meta.clock {
        Clock::Cpu => (meta.cpu_ns, "CPU"),
        Clock::Wall => (meta.duration_ns, "wall"),
    };
    // Nothing is known of the rest of such a process.
    let whose = if ["attach", "inside"].contains(&&*meta.sampler) { " of guests" } else { "" };
    let samples = recording.ticks.sampled;
    writeln!(
        text,
        "{}: {} in {:.2} s ({:.2} s CPU{whose}), {:.0} a second of {clock} time; they cover {:.1} % of it",
        single_line(&meta.guest),
        count_of(samples, "sample"),
        seconds(meta.duration_ns),
        seconds(meta.cpu_ns),
        samples as f64 / seconds(base_ns).max(1e-9),
        100.0 * (1.0 - unsampled(recording, selected)),
    )?;
    if let Some(SelectionShare { share, by, places: [guest, host, waiting], .. }) = selected {
        let [guest, host, waiting] = [guest, host, waiting].map(|place| shown(*place));
        match meta.clock {
            Clock::Cpu => writeln!(text, "host {host} ({BOUND})")?,
            Clock::Wall => writeln!(text, "guest {guest}, host {host}, waiting {waiting} ({BOUND})")?,
        }
        writeln!(text, "shown is {} of that: {}; the shares below are of it", shown(*share), single_line(by))?;
    } else if samples > 0 {
        let share = |weight: Weight| shown(weight.share_of(totals.all));
        if totals.blocked.ns > 0 {
            let (guest, host) = places(recording);
            write!(text, "guest {}, host {}, waiting {}", share(guest), share(host), share(totals.blocked))?;
        } else {
            write!(text, "host {}", share(totals.host))?;
        }
        writeln!(text, " ({BOUND})")?;
    }
    doubts(totals).iter().try_for_each(|doubt| writeln!(text, "{doubt}"))?;
    losses(recording, selected).iter().try_for_each(|loss| writeln!(text, "{loss}"))?;
    if !recording.ticks.balanced() {
        // A defect of wlprof's; better seen than hidden.
        let ticks = &recording.ticks;
        writeln!(text, "{} ticks not accounted for", ticks.fired.abs_diff(ticks.accounted()))?;
    }
    labels(recording, totals, text)
}

/// Time in the guest's code, and in the host's without waiting.
fn places(recording: &Recording) -> (Weight, Weight) {
    let of = |is_meant: fn(State) -> bool| {
        let mut weight = Weight::default();
        recording.draws().filter(|draw| is_meant(draw.state)).for_each(|draw| weight.add_draw(draw.period_ns));
        weight
    };
    (of(State::is_guest), of(|state| state == State::Host))
}

/// The part of the time that no sample stands for.
fn unsampled(recording: &Recording, selected: Option<&SelectionShare>) -> f64 {
    let sampled = selected.map_or_else(
        || recording.samples().map(|sample| sample.period_ns).fold(0, u64::saturating_add),
        |selected| selected.all_ns,
    );
    let unsampled = recording.meta.unsampled_ns as f64;
    let all = unsampled + sampled as f64;
    if all > 0.0 { unsampled / all } else { 0.0 }
}

/// How much of the time may be another function's than that which it is shown for, beside what `±` says: a sentence each.
fn doubts(totals: &Totals) -> Vec<String> {
    let told = |weight: Weight, what: &str| {
        let share = weight.share_of(totals.all);
        (share.percent >= 100.0 * TOLD).then(|| format!("{:.1} % of the time {what}", share.percent))
    };
    let entering =
        format!("was spent before the function began ({ENTERING}): by its caller, or by what that had called");
    let returned = format!("may be of functions that the one it is shown for ({RETURNED}) had called");
    [told(totals.entering, &entering), told(totals.returned, &returned)].into_iter().flatten().collect()
}

/// What was lost, why, and what that means for the shares: a sentence each.
fn losses(recording: &Recording, selected: Option<&SelectionShare>) -> Vec<String> {
    let mut losses = Vec::new();
    let unsampled = unsampled(recording, selected);
    let allowed_hz = recording.meta.allowed_hz.max(1.0);
    if recording.ticks.sampled > 0
        && unsampled > TOLD_UNSAMPLED
        && recording.meta.unsampled_ns as f64 > 4e9 / allowed_hz
    {
        let percent = 100.0 * unsampled;
        losses.push(format!(
            "no sample stands for {percent:.1} % of the time, because {}: a share may be off by up to {percent:.1} points more",
            why_unsampled(recording),
        ));
    }
    let of_samples = |count: u64| count as f64 / recording.ticks.sampled.max(1) as f64;
    let is_without = |reason: &Truncation| matches!(reason, Truncation::Language(LanguageTruncation::NoStack));
    let (without, cut): (Vec<_>, Vec<_>) =
        recording.truncated.iter().copied().partition(|(reason, _)| is_without(reason));
    let part = of_samples(cut.iter().map(|(_, count)| count).sum());
    if let Some((reason, _)) = cut.iter().max_by_key(|(reason, count)| (*count, std::cmp::Reverse(*reason)))
        && part >= TOLD
    {
        losses.push(format!(
            "{:.1} % of the stacks are not whole ({}): totals of functions that called may be too low by as much",
            100.0 * part.min(1.0),
            describe(*reason),
        ));
    }
    let part = of_samples(without.iter().map(|(_, count)| count).sum());
    if part >= TOLD_WITHOUT {
        losses.push(format!(
            "{:.1} % of the stacks have only the runtime's frames: no stack of the language was found, as while it starts or ends",
            100.0 * part.min(1.0),
        ));
    }
    losses
}

/// What most of the ticks that are no samples say of why.
fn why_unsampled(recording: &Recording) -> &'static str {
    let ticks = &recording.ticks;
    let is_by_epochs = recording.meta.sampler == "epoch";
    let reasons = [
        (ticks.ring_full, "samples came faster than they could be recorded"),
        (ticks.unrecorded, "samples could not be written"),
        (ticks.woke, "the guest woke while it was being read"),
        (ticks.late, "wlprof was kept from looking in time"),
        (ticks.coalesced, if is_by_epochs { "the guest came to no check in time" } else { "signals came late" }),
    ];
    let most = reasons.into_iter().rev().max_by_key(|(count, _)| *count).filter(|(count, _)| *count > 0);
    most.map_or("the guest was interrupted too late, or ran where it cannot be", |(_, reason)| reason)
}

/// Why a stack is incomplete.
pub(super) fn describe(reason: Truncation) -> String {
    match reason {
        Truncation::TooDeep => "deeper than a sample holds".into(),
        Truncation::BrokenChain => "with a broken chain of frames".into(),
        Truncation::TooMany => "beyond the distinct stacks that a recording holds".into(),
        Truncation::Language(reason) => format!("language: {reason}"),
    }
}

/// What samples belong to by the language's account, as in `state=python 61.0 ±1.2 %, state=gc 3.0 ±0.4 %`: a line for each of the
/// first few labels. Numbers of goroutines are left out: there are too many. So is a component's instance if none but that was seen.
fn labels(recording: &Recording, totals: &Totals, text: &mut String) -> fmt::Result {
    const NAMES: usize = 4;
    const VALUES: usize = 6;
    let mut sums = BTreeMap::<&str, BTreeMap<&str, Weight>>::new();
    for draw in recording.draws() {
        let labels = draw.labels.and_then(|set| recording.label_sets.get(set as usize));
        for (name, value) in labels.into_iter().flatten().filter(|(name, _)| name != "goroutine") {
            sums.entry(name).or_default().entry(value).or_default().add_draw(draw.period_ns);
        }
    }
    let tells = |(name, values): &(&str, BTreeMap<&str, Weight>)| *name != INSTANCE || values.len() > 1;
    for (name, values) in sums.into_iter().filter(tells).take(NAMES) {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by_key(|(_, weight)| std::cmp::Reverse(weight.ns));
        let share = |(value, weight): &(&str, Weight)| {
            format!("{}={} {}", single_line(name), single_line(value), shown(weight.share_of(totals.all)))
        };
        let shares: Vec<String> = values.iter().take(VALUES).map(share).collect();
        let more = values.len().saturating_sub(VALUES);
        let more = if more == 0 { String::new() } else { format!(", {more} more") };
        writeln!(text, "{}{more}", shares.join(", "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_recording::{Selection, TickCounts, example};

    fn head(recording: &Recording) -> String {
        let mut text = String::new();
        write(recording, &Totals::of(recording), None, &mut text).unwrap();
        text
    }

    #[test]
    fn it_says_what_was_seen_and_what_was_not() {
        let mut recording = example();
        let text = head(&recording);
        assert!(text.starts_with("app.wasm: 11 samples in 0.02 s (0.01 s CPU), 537 a second of wall time; "), "{text}");
        assert!(text.contains("\nguest 76.9 ±") && text.contains("waiting 7.7 ±"), "{text}");
        assert!(text.contains("27.3 % of the stacks are not whole (language: in host code): "), "{text}");
        assert!(!text.contains("because"), "1.2 ms are no more than a period: {text}");
        assert!(!text.contains("tick"), "{text}");
        recording.meta.unsampled_ns = 13_000_000;
        recording.ticks = TickCounts { ring_full: 5, fired: 22, ..recording.ticks };
        let text = head(&recording);
        let loss = "no sample stands for 50.0 % of the time, because samples came faster than they could be recorded: a share \
                    may be off by up to 50.0 points more\n";
        assert!(text.contains(loss) && text.contains("they cover 50.0 % of it"), "{text}");
        recording.ticks.fired += 1;
        assert!(head(&recording).contains("1 ticks not accounted for"));
        recording.truncated.push((Truncation::Language(LanguageTruncation::NoStack), 4));
        let text = head(&recording);
        assert!(text.contains("27.3 % of the stacks are not whole (language: in host code): "), "{text}");
        assert!(text.contains("36.4 % of the stacks have only the runtime's frames: "), "{text}");
    }

    #[test]
    fn labels_stand_with_their_values() {
        let text = head(&example());
        assert!(text.contains("\nstate=python ") && !text.contains("goroutine"), "{text}");
    }

    #[test]
    fn it_says_how_much_of_the_time_may_be_another_functions() {
        let text = head(&example());
        let entering =
            "\n7.7 % of the time was spent before the function began (†): by its caller, or by what that had called\n";
        let returned = "\n7.7 % of the time may be of functions that the one it is shown for (‡) had called\n";
        assert!(text.contains(entering) && text.contains(returned), "{text}");
    }

    #[test]
    fn a_part_of_the_samples_says_how_much_of_the_time_all_cover() {
        let mut recording = example();
        recording.meta.unsampled_ns = 13_000_000;
        let of_all = head(&recording);
        let all = of_all.lines().next().unwrap();
        for focus in ["main", "nothing is called so"] {
            let selection = Selection { focus: vec![focus.to_owned()], ..Selection::default() };
            let (part, selected) = recording.clone().select(&selection).unwrap();
            let mut text = String::new();
            write(&part, &Totals::of(&part), selected.as_ref(), &mut text).unwrap();
            assert_eq!(text.lines().next(), Some(all), "{focus}: {text}");
        }
    }
}
