//! What keys do, and when the screen is drawn anew.

use super::ENOUGH;
use super::display::Quit;
use super::rows::{Of, Rows};
use super::screen::{Heading, Shows, draw};
use super::snapshots::{News, Order, Picture};
use super::terminal::Screen;
use crate::os::signals::SIGINT;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;
use wlprof::sampler::Activity;
use wlprof_recording::View;

/// How soon news are seen.
const LOOK: Duration = Duration::from_millis(50);
/// Rows that a page is.
const PAGE: usize = 10;

/// Shows pictures, and does what keys say.
pub(super) struct Viewer {
    pub(super) heading: Heading,
    pub(super) view: View,
    pub(super) orders: Sender<Order>,
    pub(super) news: Receiver<News>,
    pub(super) quit: Quit,
}

/// What is on the screen.
#[derive(Default)]
struct ScreenState {
    shows: Shows,
    wants_whole: bool,
    picture: Option<Box<Picture>>,
    /// What the guest had come to at the picture before.
    before: Option<Activity>,
    rows: Rows,
}

impl Viewer {
    /// Shows pictures until the user has seen enough.
    pub(super) fn run(self, mut screen: Screen) -> io::Result<()> {
        let mut seen = ScreenState::default();
        let mut is_changed = true;
        loop {
            if is_changed {
                let ScreenState { shows, picture, before, rows, .. } = &seen;
                screen.draw(|frame| draw(frame, &self.heading, picture.as_deref(), before.as_ref(), rows, shows))?;
            }
            is_changed = false;
            screen.check()?;
            // Without waiting: were the terminal to go meanwhile, crossterm would read its end again and again.
            if !event::poll(Duration::ZERO)? {
                std::thread::sleep(LOOK);
            } else {
                match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        if self.press(key, &mut seen).is_break() {
                            return Ok(());
                        }
                        is_changed = true;
                    }
                    Event::Resize(..) => is_changed = true,
                    _ => {}
                }
            }
            for news in self.news.try_iter() {
                is_changed = true;
                if self.hear(news, &mut seen).is_break() {
                    return Ok(());
                }
            }
        }
    }

    fn press(&self, key: KeyEvent, seen: &mut ScreenState) -> ControlFlow<()> {
        let ScreenState { shows, .. } = seen;
        let mut of = None;
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return self.end(seen, SIGINT),
            KeyCode::Char('q') => return self.end(seen, ENOUGH),
            KeyCode::Char('f') => of = Some(Of::Functions),
            KeyCode::Char('l') => of = Some(Of::Lines),
            KeyCode::Char('t') => of = Some(Of::Threads),
            KeyCode::Char('s') => {
                shows.by_total = !shows.by_total;
                seen.rows.sort(shows.by_total);
            }
            KeyCode::Char('a') if shows.ended.is_none() => {
                seen.wants_whole = !seen.wants_whole;
                self.order(Order::Whole(seen.wants_whole));
            }
            KeyCode::Char(' ') if shows.ended.is_none() => {
                shows.is_frozen = !shows.is_frozen;
                self.order(Order::Freeze(shows.is_frozen));
            }
            KeyCode::Char('w') => {
                shows.said = "writing…".to_owned();
                self.order(Order::Write);
            }
            KeyCode::Down => shows.scrolled += 1,
            KeyCode::Up => shows.scrolled = shows.scrolled.saturating_sub(1),
            KeyCode::PageDown => shows.scrolled += PAGE,
            KeyCode::PageUp => shows.scrolled = shows.scrolled.saturating_sub(PAGE),
            KeyCode::Home => shows.scrolled = 0,
            _ => {}
        }
        if let Some(of) = of {
            (shows.of, shows.scrolled) = (of, 0);
            self.add_up(seen);
        }
        seen.shows.scrolled = seen.shows.scrolled.min(seen.rows.rows.len().saturating_sub(1));
        ControlFlow::Continue(())
    }

    /// Ends the run if it goes on; then there will be news of that.
    fn end(&self, seen: &ScreenState, reason: i32) -> ControlFlow<()> {
        (self.quit)(reason);
        if seen.shows.ended.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn hear(&self, news: News, seen: &mut ScreenState) -> ControlFlow<()> {
        match news {
            News::Picture(picture) => {
                seen.before = seen.picture.take().map(|before| before.activity);
                seen.picture = Some(picture);
                self.add_up(seen);
            }
            News::Said(said) => seen.shows.said = said,
            News::Ended(how) => (seen.shows.ended, seen.shows.is_frozen) = (Some(how), false),
            News::Quit => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn add_up(&self, seen: &mut ScreenState) {
        if let Some(picture) = &seen.picture {
            seen.rows = Rows::of(&picture.recording, seen.shows.of, self.view);
            seen.rows.sort(seen.shows.by_total);
        }
    }

    fn order(&self, order: Order) {
        // What takes pictures ends after this.
        let _ = self.orders.send(order);
    }
}
