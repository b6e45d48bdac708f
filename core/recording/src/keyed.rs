//! The hasher of tables that a guest fills and that are looked up for each frame of each sample: several times as fast as the
//! standard library's.

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// See [`keyed`].
pub type Keyed = SeedableRandomState;

/// A hasher with keys that the guest does not know, so that it cannot have all it chooses fall into one place. All of them are
/// random: with the ones that foldhash has by default there are values that hide what stands before them, whatever the others
/// are.
pub fn keyed() -> Keyed {
    static SHARED: OnceLock<SharedSeed> = OnceLock::new();
    // The standard library's come from the system.
    let random = || RandomState::new().hash_one(0);
    SeedableRandomState::with_seed(random(), SHARED.get_or_init(|| SharedSeed::from_u64(random())))
}
