//! Where the runtime's structures keep what we read: data, one row a release.
//!
//! Measured by `go build -a -work -x runtime` with `GOOS=wasip1 GOARCH=wasm`, which writes every offset the assembler
//! may use into `go_asm.h`; `goid`, `atomicstatus`, `curg`, `startpc` and `waitreason` were confirmed in running guests
//! of all seven releases. They differ from amd64's: wasm's signal set is empty.
//!
//! A row is believed only after [`Layout::fits`] held in the running guest; if it does not, as with a patched toolchain
//! or a later release, the other rows are tried.

use wlprof_plugin::{GuestMemory, OutOfBounds};

/// `g.m`, in all releases.
const G_M: u64 = 48;
/// `g.sched.sp`, in all releases.
const G_SCHED_SP: u64 = 56;
/// `g.sched.pc`, in all releases.
const G_SCHED_PC: u64 = 64;
/// `m.g0`, in all releases.
const M_G0: u64 = 0;
/// `_Grunning`.
const RUNNING: u32 = 2;
/// `_Gscan`, a bit on top of the status.
const SCAN: u32 = 0x1000;

/// The first release whose goroutines say themselves when they are to wake.
const FIRST_WITH_SLEEP_WHEN: u32 = 23;
/// `timer.nextwhen`, before that.
const TIMER_NEXTWHEN: u64 = 56;

/// So much of a `g` has all that is read of it.
const G_READ: usize = 384;

/// What a goroutine that does not run says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    pub(crate) status: u32,
    pub(crate) waitreason: u8,
    timer: u64,
    sleep_when: u64,
}

/// Offsets of one release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    minor: u32,
    status: u64,
    goid: u64,
    waitreason: u64,
    startpc: u64,
    labels: u64,
    m_curg: u64,
    /// `moduledata.gofunc`, which inline trees are counted from.
    pub(crate) gofunc: u64,
    /// Whether `g.labels` is a Go map, as it was until 1.23, or a list.
    pub(crate) labels_are_a_map: bool,
}

macro_rules! row {
    ($minor:literal: $status:literal $goid:literal $waitreason:literal $startpc:literal $labels:literal
     $curg:literal $gofunc:literal $map:literal) => {
        Layout {
            minor: $minor,
            status: $status,
            goid: $goid,
            waitreason: $waitreason,
            startpc: $startpc,
            labels: $labels,
            m_curg: $curg,
            gofunc: $gofunc,
            labels_are_a_map: $map,
        }
    };
}

/// All releases known.
#[rustfmt::skip]
pub(crate) const LAYOUTS: [Layout; 7] = [
    //  status goid waitreason startpc labels curg gofunc
    row!(21: 144 152 176 296 344 144 320 true),
    row!(22: 144 152 176 296 344 144 320 true),
    row!(23: 152 160 184 304 352 144 320 true),
    row!(24: 152 160 184 304 352 144 320 false),
    row!(25: 144 152 176 296 344 136 320 false),
    row!(26: 144 152 176 304 352 136 320 false),
    row!(27: 144 152 176 304 352 136 344 false),
];

/// The oldest and the newest release with a row.
pub(crate) const SUPPORTED: (u32, u32) = (21, 27);

/// The row of a release; the newest for a later one.
pub(crate) fn layout(minor: Option<u32>) -> Layout {
    let newest = LAYOUTS[LAYOUTS.len() - 1];
    LAYOUTS.into_iter().find(|layout| Some(layout.minor) == minor).unwrap_or(newest)
}

type Read<T> = Result<T, OutOfBounds>;

/// A `g`, the runtime's record of a goroutine, by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct G(pub(crate) u64);

/// The `m`, the thread that runs goroutine `g`.
fn m(guest: &dyn GuestMemory, g: G) -> Read<u64> {
    guest.read_u64(g.0.wrapping_add(G_M))
}

/// Whether `g` is the scheduler's own, whose stack `systemstack` and `mcall` switch to.
pub(crate) fn is_g0(guest: &dyn GuestMemory, g: G) -> Read<bool> {
    Ok(guest.read_u64(m(guest, g)?.wrapping_add(M_G0))? == g.0)
}

/// Stack pointer and pc that a goroutine will go on with when it is next scheduled.
pub(crate) fn scheduled(guest: &dyn GuestMemory, g: G) -> Read<(u64, u64)> {
    Ok((guest.read_u64(g.0.wrapping_add(G_SCHED_SP))?, guest.read_u64(g.0.wrapping_add(G_SCHED_PC))?))
}

impl Layout {
    /// Whether `g`, not the scheduler's own, is a running goroutine under this row.
    pub(crate) fn fits(&self, guest: &dyn GuestMemory, g: G) -> bool {
        let holds = || -> Read<bool> {
            let goid = self.goid(guest, g)?;
            Ok(self.curg(guest, g)? == Some(g) && self.status(guest, g)? == RUNNING && goid != 0 && goid < 1 << 40)
        };
        holds().unwrap_or(false)
    }

    /// The goroutine that runs on the thread of `g`; `None` while the scheduler looks for one.
    pub(crate) fn curg(&self, guest: &dyn GuestMemory, g: G) -> Read<Option<G>> {
        let curg = guest.read_u64(m(guest, g)?.wrapping_add(self.m_curg))?;
        Ok((curg != 0).then_some(G(curg)))
    }

    pub(crate) fn goid(&self, guest: &dyn GuestMemory, g: G) -> Read<u64> {
        guest.read_u64(g.0.wrapping_add(self.goid))
    }

    pub(crate) fn status(&self, guest: &dyn GuestMemory, g: G) -> Read<u32> {
        Ok(guest.read_u32(g.0.wrapping_add(self.status))? & !SCAN)
    }

    pub(crate) fn waitreason(&self, guest: &dyn GuestMemory, g: G) -> Read<u8> {
        guest.read_u8(g.0.wrapping_add(self.waitreason))
    }

    /// Number of the goroutine that started `g`, and the pc that the `go` statement returned to. Both are 0 for the
    /// first goroutine.
    pub(crate) fn creator(&self, guest: &dyn GuestMemory, g: G) -> Read<(u64, u64)> {
        // `parentGoid`, `gopc`, `ancestors` and `startpc` follow each other in all releases.
        let startpc = g.0.wrapping_add(self.startpc);
        Ok((guest.read_u64(startpc.wrapping_sub(24))?, guest.read_u64(startpc.wrapping_sub(16))?))
    }

    /// What a goroutine that does not run says of itself, in one read.
    pub(crate) fn rest(&self, guest: &dyn GuestMemory, g: G) -> Read<Rest> {
        let mut bytes = [0; G_READ];
        guest.read(g.0, &mut bytes)?;
        let word = |at: u64| bytes[at as usize..].first_chunk().copied().map_or(0, u64::from_le_bytes);
        Ok(Rest {
            status: word(self.status) as u32 & !SCAN,
            waitreason: bytes[self.waitreason as usize],
            // `timer` follows `labels` in all releases, and `sleepWhen` that.
            timer: word(self.labels + 8),
            sleep_when: word(self.labels + 16),
        })
    }

    /// When the sleep of a goroutine ends, in nanoseconds of the runtime's clock; `None` if it does not say.
    pub(crate) fn sleeps_until(&self, guest: &dyn GuestMemory, rest: &Rest) -> Option<u64> {
        let until = match (self.minor, rest.timer) {
            (FIRST_WITH_SLEEP_WHEN.., _) => rest.sleep_when,
            (_, 0) => 0,
            (_, timer) => guest.read_u64(timer.wrapping_add(TIMER_NEXTWHEN)).ok()?,
        };
        Some(until).filter(|until| *until > 0)
    }

    /// What `pprof.Do` and `pprof.SetGoroutineLabels` left there.
    pub(crate) fn labels(&self, guest: &dyn GuestMemory, g: G) -> Read<u64> {
        guest.read_u64(g.0.wrapping_add(self.labels))
    }
}
