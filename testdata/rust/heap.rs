//! Allocates in the ways that Rust has, and counts what it does, by the function that does it: what an allocation profiler
//! has to find. Prints of each function: its name, allocations, their bytes, and what of both is still held at the end.
//! Takes the number of rounds.

#[repr(align(64))]
struct Aligned([u8; 192]);

enum Kept {
    Bytes(Vec<u8>),
    Numbers(Box<[u64; 20]>),
    Aligned(Box<Aligned>),
    Text(String),
}

impl Kept {
    /// How many bytes its block has.
    fn size(&self) -> usize {
        match self {
            Kept::Bytes(bytes) => bytes.capacity(),
            Kept::Numbers(numbers) => size_of_val(&**numbers),
            Kept::Aligned(aligned) => size_of_val(&aligned.0),
            Kept::Text(text) => text.capacity(),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Site {
    allocations: usize,
    bytes: usize,
    blocks_held: usize,
    bytes_held: usize,
}

const SITES: [&str; 6] = ["by_capacity", "by_zeroed", "by_box", "by_aligned", "by_clone", "by_reserve"];

struct Guest {
    kept: Vec<Option<(Kept, usize)>>,
    sites: [Site; SITES.len()],
    random: u32,
}

impl Guest {
    fn below(&mut self, end: u32) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        (self.random % end) as usize
    }

    fn count(&mut self, size: usize, site: usize) {
        let site = &mut self.sites[site];
        site.allocations += 1;
        site.bytes += size;
        site.blocks_held += 1;
        site.bytes_held += size;
    }

    fn forget(&mut self, size: usize, site: usize) {
        self.sites[site].blocks_held -= 1;
        self.sites[site].bytes_held -= size;
    }

    /// Keeps a block in a place whose last block goes.
    fn keep(&mut self, kept: Kept, site: usize) {
        self.count(kept.size(), site);
        let place = self.below(256);
        if let Some((last, site)) = self.kept[place].replace((kept, site)) {
            self.forget(last.size(), site);
        }
    }

    #[inline(never)]
    fn by_capacity(&mut self, size: usize) {
        self.keep(Kept::Bytes(Vec::with_capacity(size)), 0);
    }

    #[inline(never)]
    fn by_zeroed(&mut self, size: usize) {
        self.keep(Kept::Bytes(vec![0; size]), 1);
    }

    #[inline(never)]
    fn by_box(&mut self, size: usize) {
        self.keep(Kept::Numbers(Box::new([size as u64; 20])), 2);
    }

    #[inline(never)]
    fn by_aligned(&mut self, size: usize) {
        self.keep(Kept::Aligned(Box::new(Aligned([size as u8; 192]))), 3);
    }

    #[inline(never)]
    fn by_clone(&mut self, text: &str) {
        self.keep(Kept::Text(text.to_owned()), 4);
    }

    /// Makes a block of others larger, in place or not.
    #[inline(never)]
    fn by_reserve(&mut self, more: usize) {
        let place = self.below(256);
        let Some((Kept::Bytes(mut bytes), site)) = self.kept[place].take_if(|kept| matches!(kept.0, Kept::Bytes(_))) else {
            return;
        };
        self.forget(bytes.capacity(), site);
        bytes.resize(bytes.capacity(), 1);
        bytes.reserve(more);
        self.count(bytes.capacity(), 5);
        self.kept[place] = Some((Kept::Bytes(bytes), 5));
    }
}

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(1000, |rounds| rounds.parse().unwrap());
    let text = "x".repeat(20_000);
    let kept = (0..256).map(|_| None).collect();
    let mut guest = Guest { kept, sites: Default::default(), random: 12345 };
    for _ in 0..rounds {
        let most = if guest.below(20) == 0 { 20_000 } else { 200 };
        let size = 1 + guest.below(most);
        match guest.below(6) {
            0 => guest.by_capacity(size),
            1 => guest.by_zeroed(size),
            2 => guest.by_box(size),
            3 => guest.by_aligned(size),
            4 => guest.by_clone(&text[..size]),
            _ => guest.by_reserve(size),
        }
    }
    for (name, site) in SITES.iter().zip(&guest.sites) {
        println!("{name} {} {} {} {}", site.allocations, site.bytes, site.blocks_held, site.bytes_held);
    }
    std::process::exit(0);
}
