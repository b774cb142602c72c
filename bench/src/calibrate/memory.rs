// SPDX-License-Identifier: GPL-2.0-only
//! The memory that probes walk, and the ways to walk it.
//!
//! A [`Set`] is a power of two of cache lines that form one closed chain in random order. It can be laid out packed, or
//! with one line on each 4 KiB page. Every walk returns a value that depends on what it read, so that the compiler
//! cannot leave it out.

use memmap2::{Advice, MmapMut};
use std::hint::black_box;
use std::io;

/// Bytes of a cache line on all machines that are supported.
pub const LINE: usize = 64;
/// Bytes of a base page.
pub const PAGE: usize = 4096;
const LINES_PER_PAGE: usize = PAGE / LINE;
/// Bytes of a huge page on x86-64 and on arm64 with 4 KiB pages.
const HUGE_PAGE: usize = 2 << 20;

/// Which pages a buffer is asked to have. The kernel may not obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// 4 KiB pages.
    Small,
    /// Transparent huge pages.
    Huge,
}

/// How the lines of a set lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One after the other.
    Packed,
    /// One on each page, at changing places within it, so that they do not fight for the same cache sets.
    Spread,
}

/// How a set is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// Each address depends on the line before: one miss at a time.
    Chase,
    /// In scattered order, addresses known in advance: as many misses at a time as the CPU can have.
    Scatter,
    /// In ascending order: the prefetchers help as well.
    Stream,
}

impl Pattern {
    /// All patterns, costliest first.
    pub const ALL: [Self; 3] = [Self::Chase, Self::Scatter, Self::Stream];

    /// The name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chase => "chase",
            Self::Scatter => "random",
            Self::Stream => "stream",
        }
    }
}

/// Memory that begins at a huge page's border.
#[derive(Debug)]
struct Buffer {
    map: MmapMut,
    start: usize,
    bytes: usize,
}

impl Buffer {
    fn new(bytes: usize, pages: Pages) -> io::Result<Self> {
        let map = MmapMut::map_anon(bytes.next_multiple_of(HUGE_PAGE) + HUGE_PAGE)?;
        // A kernel without transparent huge pages refuses the advice, and then has small pages: see `huge_bytes`.
        let _ = map.advise(if pages == Pages::Huge { Advice::HugePage } else { Advice::NoHugePage });
        let start = map.as_ptr().align_offset(HUGE_PAGE);
        Ok(Self { map, start, bytes })
    }

    fn bytes(&self) -> &[u8] {
        &self.map[self.start..self.start + self.bytes]
    }

    fn lines(&self) -> &[[u8; LINE]] {
        self.bytes().as_chunks().0
    }

    fn lines_mut(&mut self) -> &mut [[u8; LINE]] {
        self.map[self.start..self.start + self.bytes].as_chunks_mut().0
    }
}

/// A working set.
#[derive(Debug)]
pub struct Set {
    buffer: Buffer,
    lines: usize,
    layout: Layout,
    at: usize,
    rng: u64,
}

impl Set {
    /// A set of `lines` cache lines, a power of two.
    ///
    /// # Errors
    /// If the kernel has no memory for it.
    pub fn new(lines: usize, layout: Layout, pages: Pages) -> io::Result<Self> {
        let lines = lines.next_power_of_two();
        let bytes = if layout == Layout::Spread { lines * PAGE } else { lines * LINE };
        let mut set = Self { buffer: Buffer::new(bytes, pages)?, lines, layout, at: 0, rng: lines as u64 };
        set.link();
        Ok(set)
    }

    /// Writes the chain: a random cycle through all lines (Sattolo's shuffle).
    fn link(&mut self) {
        let mut order: Vec<usize> = (0..self.lines).collect();
        for last in (1..self.lines).rev() {
            order.swap(last, self.random() as usize % last);
        }
        for (k, &next) in order.iter().enumerate() {
            let (row, next) = (self.row(k), self.row(next) as u32);
            self.buffer.lines_mut()[row][..4].copy_from_slice(&next.to_le_bytes());
        }
        self.at = self.row(0);
    }

    /// The place in the buffer of the set's `k`-th line.
    fn row(&self, k: usize) -> usize {
        match self.layout {
            Layout::Packed => k,
            Layout::Spread => k * LINES_PER_PAGE + (k * 7) % LINES_PER_PAGE,
        }
    }

    fn random(&mut self) -> u64 {
        self.rng = step(self.rng);
        self.rng >> 33
    }

    /// Cache lines in the set.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// All of its memory, for flushing.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    /// Where its memory lies.
    pub fn addresses(&self) -> std::ops::Range<usize> {
        let start = self.bytes().as_ptr().addr();
        start..start + self.bytes().len()
    }

    /// Reads every line once.
    pub fn pass(&mut self, pattern: Pattern) {
        match pattern {
            Pattern::Chase => self.chase(self.lines),
            Pattern::Scatter => self.scatter(),
            Pattern::Stream => self.stream(),
        }
    }

    /// Follows the chain for `steps` lines, from where the last call stopped.
    pub fn chase(&mut self, steps: usize) {
        let lines = self.buffer.lines();
        let mut at = self.at;
        for _ in 0..steps {
            at = next(&lines[at]);
        }
        self.at = black_box(at);
    }

    /// Reads every line once, in an order that neither data nor prefetchers decide: steps of a large odd number.
    fn scatter(&self) {
        let lines = self.buffer.lines();
        // An odd step near the golden section visits all of a power of two, and neighbours in time are far in space.
        let step = (self.lines * 618 / 1000) | 1;
        let (mut k, mut sum) = (0, 0);
        for _ in 0..self.lines {
            sum ^= next(&lines[self.row(k)]);
            k = (k + step) & (self.lines - 1);
        }
        black_box(sum);
    }

    fn stream(&self) {
        let lines = self.buffer.lines();
        black_box((0..self.lines).fold(0, |sum, k| sum ^ next(&lines[self.row(k)])));
    }

    /// Reads `count` lines in ascending order, from the `from`-th on, around and around.
    pub fn stream_part(&self, from: usize, count: usize) {
        let lines = self.buffer.lines();
        black_box((from..from + count).fold(0, |sum, k| sum ^ next(&lines[self.row(k & (self.lines - 1))])));
    }

    /// Reads `count` lines at random, with repetition; each address waits for the line before.
    pub fn wander(&mut self, count: usize) {
        let lines = self.buffer.lines();
        let mut state = self.rng;
        for _ in 0..count {
            let line = &lines[self.row((state >> 33) as usize & (self.lines - 1))];
            // These four bytes are zero, which the CPU does not know: the next address waits for them.
            state = step(state ^ u64::from(u32::from_le_bytes([line[4], line[5], line[6], line[7]])));
        }
        self.rng = black_box(state);
    }

    /// Writes to every line, so that no other CPU has a valid copy.
    pub fn dirty(&mut self) {
        for k in 0..self.lines {
            let row = self.row(k);
            let line = &mut self.buffer.lines_mut()[row];
            line[8] = line[8].wrapping_add(1);
        }
    }
}

/// One step of a linear congruential generator (Knuth's MMIX constants): a multiplication is all it costs.
fn step(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

fn next(line: &[u8; LINE]) -> usize {
    u32::from_le_bytes([line[0], line[1], line[2], line[3]]) as usize
}

/// Pages that were never written: all of them are the kernel's one zero page, so reading them takes places in the TLB
/// and, but for the page tables, none in the caches.
#[derive(Debug)]
pub struct ZeroPages {
    buffer: Buffer,
    at: usize,
}

impl ZeroPages {
    /// `pages` of them.
    ///
    /// # Errors
    /// If the kernel has no address space for them.
    pub fn new(pages: usize) -> io::Result<Self> {
        let mut zero = Self { buffer: Buffer::new(pages * PAGE, Pages::Small)?, at: 0 };
        zero.touch(pages);
        Ok(zero)
    }

    /// How many there are.
    pub fn pages(&self) -> usize {
        self.buffer.bytes / PAGE
    }

    /// Reads a byte of each of the next `count` pages.
    pub fn touch(&mut self, count: usize) {
        let pages: &[[u8; PAGE]] = self.buffer.bytes().as_chunks().0;
        for _ in 0..count {
            self.at = (self.at + 1) % pages.len();
            black_box(pages[self.at][0]);
        }
    }
}

/// How many bytes of `[from, to)` are on huge pages, from the text of /proc/self/smaps.
pub fn huge_bytes(smaps: &str, from: usize, to: usize) -> usize {
    let (mut inside, mut sum) = (false, 0);
    for line in smaps.lines() {
        if let Some((start, end)) = mapping(line) {
            inside = start < to && from < end;
        } else if let (true, Some(size)) = (inside, line.strip_prefix("AnonHugePages:")) {
            let kib: Option<usize> = size.split_whitespace().next().and_then(|kib| kib.parse().ok());
            sum += kib.unwrap_or(0) * 1024;
        }
    }
    sum
}

/// "7f00-7fff rw-p ..." is the head of a mapping.
fn mapping(line: &str) -> Option<(usize, usize)> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_visits_every_line_once() {
        for layout in [Layout::Packed, Layout::Spread] {
            let set = Set::new(512, layout, Pages::Small).unwrap();
            let mut seen = vec![false; set.buffer.lines().len()];
            let mut at = set.row(0);
            for _ in 0..512 {
                assert!(!std::mem::replace(&mut seen[at], true), "{layout:?}: {at} twice");
                at = next(&set.buffer.lines()[at]);
            }
            assert_eq!(at, set.row(0), "{layout:?}: closed");
            assert!((0..512).all(|k| seen[set.row(k)]), "{layout:?}");
        }
    }

    #[test]
    fn scattered_steps_visit_every_line_once() {
        for lines in [2_usize, 256, 8192] {
            let step = (lines * 618 / 1000) | 1;
            let mut rows: Vec<usize> = (0..lines).map(|i| (i * step) & (lines - 1)).collect();
            rows.sort_unstable();
            assert!(rows.into_iter().eq(0..lines));
        }
    }

    #[test]
    fn a_spread_set_has_one_line_on_each_page() {
        let set = Set::new(256, Layout::Spread, Pages::Small).unwrap();
        assert!((0..256).all(|k| set.row(k) / LINES_PER_PAGE == k));
        assert!((1..64).all(|k| set.row(k) % LINES_PER_PAGE != set.row(0)), "not all in the same cache set");
    }

    #[test]
    fn wandering_reads_what_writing_leaves_alone() {
        let mut set = Set::new(64, Layout::Packed, Pages::Small).unwrap();
        for _ in 0..300 {
            set.dirty();
        }
        let rng = set.rng;
        set.wander(3);
        assert_eq!(set.rng, step(step(step(rng))), "the bytes that addresses wait for are zero");
    }

    #[test]
    fn huge_pages_are_counted_within_the_range() {
        let smaps = "1000-3000 rw-p 0 00:00 0\nAnonHugePages:      2048 kB\n\
                     3000-5000 rw-p 0 00:00 0\nRss: 1 kB\nAnonHugePages:      4096 kB\n";
        assert_eq!(huge_bytes(smaps, 0x1000, 0x2000), 2 << 20);
        assert_eq!(huge_bytes(smaps, 0x4000, 0x4001), 4 << 20);
        assert_eq!(huge_bytes(smaps, 0x5000, 0x6000), 0);
    }
}
