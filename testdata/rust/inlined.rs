//! Proves Rust names, line numbers and inlining: nearly all time is on the line marked HOT, in
//! `lab::Table::mix_cell`, inlined through a closure into the generic `lab::mix_row`, inlined into
//! `lab::mix`; `lab::cold` costs about a tenth of it.

mod lab {
    pub const CELLS: usize = 4096;

    pub struct Table {
        pub cells: [u32; CELLS],
    }

    impl Table {
        #[inline(always)]
        fn mix_cell(&mut self, i: usize, key: u32) {
            self.cells[i % CELLS] = (self.cells[(i * 7 + key as usize) % CELLS] ^ self.cells[i % CELLS].wrapping_add(key)).wrapping_mul(2654435761); // HOT
        }
    }

    #[inline(always)]
    fn mix_row<F: FnMut(usize)>(start: usize, mut mix_cell: F) {
        for i in start..start + 64 {
            mix_cell(i);
        }
    }

    #[inline(never)]
    pub fn mix(table: &mut Table, key: u32) {
        for row in 0..CELLS / 64 {
            mix_row(
                row * 64,
                #[inline(always)]
                |i| table.mix_cell(i, key),
            );
        }
    }

    #[inline(never)]
    pub fn cold(table: &Table, key: u32) -> u32 {
        let mut sum = key;
        for i in 0..CELLS / 8 {
            sum = (sum ^ table.cells[i * 8]).wrapping_mul(2654435761); // COLD
        }
        sum
    }
}

fn main() {
    let multiplier: u32 = std::env::args().nth(1).map_or(1, |text| text.parse().unwrap());
    let mut table = Box::new(lab::Table { cells: [0; lab::CELLS] });
    let mut sum = 1;
    for _ in 0..150_000 * multiplier {
        lab::mix(&mut table, sum);
        sum = lab::cold(&table, sum);
    }
    println!("inlined {sum:08x}");
}
