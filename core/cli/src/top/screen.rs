//! Draws a picture: a heading, the table, the keys.

use super::rows::{Of, Row, Rows};
use super::snapshots::Picture;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table, TableState};
use wlprof::sampler::Activity;
use wlprof_recording::{Clock, count_of};
use wlprof_show::escape::single_line;
use wlprof_show::table::{seconds, shown};

const KEYS: &str = "f functions l lines t threads  s sort  a all/now  space freeze  w write  q quit";
/// Cells of a share, as in `100.0 ±10.2 %`, of time, and of the bar.
const SHARE_CELLS: u16 = 13;
const TIME_CELLS: u16 = 8;
const BAR_CELLS: u16 = 10;
/// Without this many cells there is no bar.
const BAR_FROM_CELLS: u16 = 90;

/// What is drawn, and how.
#[derive(Default)]
pub(super) struct Shows {
    pub(super) of: Of,
    pub(super) by_total: bool,
    pub(super) is_frozen: bool,
    /// The first row that is seen.
    pub(super) scrolled: usize,
    /// What was said last.
    pub(super) said: String,
    /// How the guest has ended.
    pub(super) ended: Option<String>,
}

/// The lines above the table.
pub(super) struct Heading {
    guest: String,
    /// What it does while it goes on.
    state: &'static str,
}

impl Heading {
    /// For this guest.
    pub(super) fn new(name: &str, arguments: &[String]) -> Self {
        let words: Vec<&str> = std::iter::once(name).chain(arguments.iter().map(String::as_str)).collect();
        Self { guest: single_line(&words.join(" ")), state: "runs for" }
    }

    /// For process `pid`, which may have run for long.
    #[cfg(target_os = "linux")]
    pub(super) fn of_process(pid: i32) -> Self {
        Self { guest: format!("process {pid}"), state: "sampled for" }
    }

    /// Which guest it is, what it does, and what the picture is of. `before` is what it had come to at the picture before.
    fn lines(&self, picture: Option<&Picture>, before: Option<&Activity>, shows: &Shows) -> [String; 3] {
        let Some(Picture { recording, is_whole, activity }) = picture else {
            let state = shows.ended.as_deref().unwrap_or("has begun");
            return [format!("{}: {state}", self.guest), "no samples yet".to_owned(), String::new()];
        };
        let seconds = |ns: u64| ns as f64 / 1e9;
        let state = match &shows.ended {
            Some(how) => how.clone(),
            None if shows.is_frozen => "frozen picture of".to_owned(),
            None => self.state.to_owned(),
        };
        let wall_ns = |activity: &Activity| activity.duration_ns;
        let since = before.map_or((0, 0), |before| (before.cpu_ns, wall_ns(before)));
        let (cpu_ns, passed_ns) = (activity.cpu_ns.saturating_sub(since.0), wall_ns(activity).saturating_sub(since.1));
        let now = match &shows.ended {
            Some(_) => String::new(),
            None => format!(", {:.0} % now", 100.0 * cpu_ns as f64 / passed_ns.max(1) as f64),
        };
        let memory = match activity.memory_bytes {
            0 => String::new(),
            bytes => format!("   memory {:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        };
        let first = format!(
            "{}: {state} {:.1} s   CPU {:.1} s{now}{memory}",
            self.guest,
            seconds(wall_ns(activity)),
            seconds(activity.cpu_ns),
        );
        let meta = &recording.meta;
        let (base_ns, clock) = match meta.clock {
            Clock::Cpu => (meta.cpu_ns, "CPU"),
            Clock::Wall => (meta.duration_ns, "wall"),
        };
        let what =
            if *is_whole { "the whole run".to_owned() } else { format!("the last {:.0} s", seconds(meta.duration_ns)) };
        let samples = count_of(recording.draws().count() as u64, "sample");
        let second = format!(
            "{what}: {samples} in {:.1} s of {clock} time, {:.1} % without; ±: 95 % bound",
            seconds(base_ns),
            100.0 * meta.unsampled_ns as f64 / base_ns.max(1) as f64,
        );
        [first, second, meta.notes.first().map_or_else(String::new, |note| format!("note: {}", single_line(note)))]
    }
}

/// Draws it. `rows` are sorted.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    heading: &Heading,
    picture: Option<&Picture>,
    before: Option<&Activity>,
    rows: &Rows,
    shows: &Shows,
) {
    let [above, table, said, below] =
        Layout::vertical([Constraint::Length(3), Constraint::Min(1), Constraint::Length(1), Constraint::Length(1)])
            .areas(frame.area());
    let lines = heading.lines(picture, before, shows).map(Line::from);
    frame.render_widget(Paragraph::new(lines.to_vec()), above);
    let has_bar = frame.area().width >= BAR_FROM_CELLS;
    let mut state = TableState::default().with_offset(shows.scrolled.min(rows.rows.len().saturating_sub(1)));
    frame.render_stateful_widget(of_rows(rows, shows, has_bar), table, &mut state);
    frame.render_widget(Paragraph::new(single_line(&shows.said)), said);
    frame.render_widget(Paragraph::new(KEYS).style(Style::new().add_modifier(Modifier::REVERSED)), below);
}

fn of_rows(rows: &Rows, shows: &Shows, has_bar: bool) -> Table<'static> {
    let what = match shows.of {
        Of::Functions => "function",
        Of::Lines => "line",
        Of::Threads => "thread",
    };
    let count = rows.rows.len();
    let what = format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let marked = |name: &str, is_sorted_by: bool| if is_sorted_by { format!("{name} ▼") } else { name.to_owned() };
    let right = |text: String| Cell::new(Line::from(text).right_aligned());
    let bar_cells = if has_bar { BAR_CELLS } else { 0 };
    let header = [
        right(marked("self", !shows.by_total)),
        right(marked("total", shows.by_total)),
        right("time".to_owned()),
        Cell::new(""),
        Cell::new(what),
        Cell::new(""),
    ];
    let row = |row: &Row| {
        let [own, total] = [row.self_time, row.total_time].map(|time| time.share_of(rows.all));
        let (bar, time) = if shows.by_total { (total, row.total_time) } else { (own, row.self_time) };
        let cells = (bar.percent / 100.0 * f64::from(bar_cells)).round() as usize;
        TableRow::new([
            right(shown(own)),
            right(shown(total)),
            right(seconds(time.ns)),
            Cell::new("█".repeat(cells)),
            Cell::new(row.name.clone()),
            Cell::new(row.place.trim().to_owned()),
        ])
    };
    let widths = [
        Constraint::Length(SHARE_CELLS),
        Constraint::Length(SHARE_CELLS),
        Constraint::Length(TIME_CELLS),
        Constraint::Length(bar_cells),
        Constraint::Fill(3),
        Constraint::Fill(2),
    ];
    Table::new(rows.rows.iter().map(row), widths)
        .header(TableRow::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
}
