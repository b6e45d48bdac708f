//! Windows of a run, as somebody asks for them: how long, of what time, and what is made of them.

use super::state::State;
use crate::live_guest::LiveWindow;
use crate::window_profiles::WindowOutput;
use axum::http::StatusCode;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use wlprof_recording::{Clock, HeapPart};

/// The longest window, in seconds: its samples are in memory.
const LONGEST: f64 = 3600.0;

/// How long the guest may take to begin.
const BEGINNING: Duration = Duration::from_secs(5);

/// Why there is no answer, in words for whoever asked.
pub(super) type Refusal = (StatusCode, String);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WindowRequest {
    pub(super) seconds: f64,
    pub(super) clock: Clock,
    /// Of memory, that part of what has been allocated since the guest began.
    pub(super) part: Option<HeapPart>,
}

impl WindowRequest {
    /// Reads `seconds=N` and `clock=cpu|wall` of a query; other fields are others'.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn of_query(query: &str, unless_told: Self) -> Result<Self, Refusal> {
        let mut wanted = unless_told;
        for field in query.split('&') {
            match field.split_once('=') {
                Some(("seconds", text)) => {
                    let seconds = text.parse().ok().filter(|seconds| (0.01..=LONGEST).contains(seconds));
                    let expected = || refuse(&format!("seconds={text}: expected 0.01 to {LONGEST}"));
                    wanted.seconds = seconds.ok_or_else(expected)?;
                }
                Some(("clock", "cpu")) => wanted.clock = Clock::Cpu,
                Some(("clock", "wall")) => wanted.clock = Clock::Wall,
                Some(("clock", text)) => return Err(refuse(&format!("clock={text}: expected cpu or wall"))),
                _ => {}
            }
        }
        Ok(wanted)
    }
}

fn refuse(what: &str) -> Refusal {
    (StatusCode::BAD_REQUEST, format!("{what}\n"))
}

/// Samples as `wanted` and makes that of it. Ends early if the guest does.
pub(super) async fn make(state: Arc<State>, wanted: WindowRequest, made: WindowOutput) -> Result<Vec<u8>, Refusal> {
    let full =
        |_| (StatusCode::SERVICE_UNAVAILABLE, "too many ask at once; ask again when others have gone\n".to_owned());
    if wanted.part.is_some() && !state.profiles_memory {
        return Err((
            StatusCode::NOT_FOUND,
            "memory is not profiled: run the guest with --memory (if it is, its notes say what is in the way)\n"
                .to_owned(),
        ));
    }
    let _open = state.windows.clone().try_acquire_owned().map_err(full)?;
    let mut window = begin(&state, wanted.clock).await?;
    let mut is_over = state.is_over.clone();
    // Either way the window is over.
    let _ = tokio::time::timeout(Duration::from_secs_f64(wanted.seconds), is_over.wait_for(|is_over| *is_over)).await;
    let recording = {
        let window = window.take();
        let recording = move || window.ok_or(io::ErrorKind::Other)?.unnamed();
        blocking(&state.readers, recording).await?
    };
    let shared = state.clone();
    blocking(&state.makers, move || shared.profiles.make(&recording, &shared.guest.images(), &made, wanted.part)).await
}

/// Does `work` where it may take its time, as one of those that `places` has room for. It keeps its place even if nobody waits for it
/// any more.
pub(super) async fn blocking<R: Send + 'static>(
    places: &Arc<Semaphore>,
    work: impl FnOnce() -> io::Result<R> + Send + 'static,
) -> Result<R, Refusal> {
    let failed = |error: String| (StatusCode::INTERNAL_SERVER_ERROR, format!("there is no answer: {error}\n"));
    let place = places.clone().acquire_owned().await.map_err(|error| failed(error.to_string()))?;
    let placed = move || {
        let _place = place;
        work()
    };
    let done = tokio::task::spawn_blocking(placed).await.map_err(|error| failed(error.to_string()))?;
    done.map_err(|error| failed(error.to_string()))
}

/// A window that is open. If nobody waits for it any more, it ends where it may take its time: the recorder may be busy.
struct OpenWindow(Option<Box<dyn LiveWindow>>);

impl OpenWindow {
    fn take(&mut self) -> Option<Box<dyn LiveWindow>> {
        self.0.take()
    }
}

impl Drop for OpenWindow {
    fn drop(&mut self) {
        // Without a runtime the server has been stopped, and nobody waits for this.
        if let (Some(window), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || drop(window));
        }
    }
}

/// Begins a window, of a guest that has begun or is about to.
async fn begin(state: &Arc<State>, clock: Clock) -> Result<OpenWindow, Refusal> {
    let since = Instant::now();
    while !state.guest.has_begun() && since.elapsed() < BEGINNING {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let guest = state.guest.clone();
    let begun =
        tokio::task::spawn_blocking(move || guest.window_of(clock).map(|window| OpenWindow(Some(window)))).await;
    let refused = |reason: String| (StatusCode::CONFLICT, format!("{reason}\n"));
    begun.map_err(|error| refused(error.to_string()))?.map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_say_how_long_and_of_what_time() {
        let default = WindowRequest { seconds: 30.0, clock: Clock::Cpu, part: None };
        let read =
            |query: &str| WindowRequest::of_query(query, default).map_err(|(status, text)| (status.as_u16(), text));
        assert_eq!(read(""), Ok(default));
        assert_eq!(read("gc=1&seconds=0.5"), Ok(WindowRequest { seconds: 0.5, ..default }));
        assert_eq!(read("clock=wall&seconds=2"), Ok(WindowRequest { seconds: 2.0, clock: Clock::Wall, part: None }));
        for query in ["seconds=", "seconds=-1", "seconds=NaN", "seconds=inf", "seconds=1e9", "seconds=0", "clock=x"] {
            let (status, text) = read(query).unwrap_err();
            assert!(status == 400 && text.contains("expected"), "{query}: {text}");
        }
    }
}
