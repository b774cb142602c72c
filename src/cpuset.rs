// SPDX-License-Identifier: GPL-2.0-only
//! A set of CPUs: a bitmap sized for the machine.

use crate::ids::CpuId;
use serde::{Deserialize, Serialize};

/// A set of CPUs by kernel number. Setting or testing never allocates once the set has its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSet {
    words: Vec<u64>,
}

impl CpuSet {
    /// An empty set for CPU ids below `id_limit`.
    #[must_use]
    pub fn with_limit(id_limit: u32) -> Self {
        Self { words: vec![0; words_for(id_limit)] }
    }

    /// The set whose bitmap is `words`: bit `b` of word `w` is CPU `64 * w + b`.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Self {
        Self { words: words.to_vec() }
    }

    /// The set of `cpus`, sized for ids below `id_limit`; ids beyond it are left out.
    #[must_use]
    pub fn of(id_limit: u32, cpus: impl IntoIterator<Item = CpuId>) -> Self {
        let mut set = Self::with_limit(id_limit);
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }

    /// Adds a CPU. False if it was there already, or is beyond the set's limit.
    pub fn insert(&mut self, cpu: CpuId) -> bool {
        let fits = cpu.idx() / 64 < self.words.len();
        let added = fits && !test(&self.words, cpu.idx());
        if added {
            set(&mut self.words, cpu.idx());
        }
        added
    }

    /// Takes a CPU out. False if it was not there.
    pub fn remove(&mut self, cpu: CpuId) -> bool {
        let there = self.contains(cpu);
        if there {
            clear(&mut self.words, cpu.idx());
        }
        there
    }

    /// Is the CPU in the set? (Any id may be asked for.)
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        test(&self.words, cpu.idx())
    }

    /// The lowest CPU that is in both sets.
    #[must_use]
    pub fn first_common(&self, other: &CpuSet) -> Option<CpuId> {
        first_and(&self.words, &other.words)
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        ones(&self.words)
    }

    /// Is no CPU in the set?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }

    /// How many CPUs are in the set.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.words.iter().map(|w| w.count_ones()).sum()
    }

    /// The bitmap, to be filled in place: for a driver that reads masks without allocating.
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// Does the set hold every CPU of `other`?
    #[must_use]
    pub fn is_superset(&self, other: &CpuSet) -> bool {
        other.words.iter().enumerate().all(|(i, w)| w & !self.words.get(i).copied().unwrap_or(0) == 0)
    }

    /// The bitmap itself.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

/// Words of a bitmap for ids below `id_limit`; at least one.
pub(crate) fn words_for(id_limit: u32) -> usize {
    (id_limit as usize).div_ceil(64).max(1)
}

/// Is bit `i` set? False beyond the end.
#[inline]
pub(crate) fn test(words: &[u64], i: usize) -> bool {
    words.get(i / 64).is_some_and(|w| w >> (i % 64) & 1 == 1)
}

/// Sets bit `i`, which must exist.
#[inline]
pub(crate) fn set(words: &mut [u64], i: usize) {
    words[i / 64] |= 1 << (i % 64);
}

/// Clears bit `i`, which must exist.
#[inline]
pub(crate) fn clear(words: &mut [u64], i: usize) {
    words[i / 64] &= !(1 << (i % 64));
}

/// The lowest bit that is set in both bitmaps.
#[inline]
pub(crate) fn first_and(a: &[u64], b: &[u64]) -> Option<CpuId> {
    a.iter().zip(b).enumerate().find_map(|(w, (x, y))| bit_of(w, x & y))
}

/// The lowest bit that is set in all three bitmaps.
#[inline]
pub(crate) fn first_and3(a: &[u64], b: &[u64], c: &[u64]) -> Option<CpuId> {
    a.iter().zip(b).zip(c).enumerate().find_map(|(w, ((x, y), z))| bit_of(w, x & y & z))
}

/// The bits that are set, ascending.
pub(crate) fn ones(words: &[u64]) -> impl Iterator<Item = CpuId> + '_ {
    words.iter().enumerate().flat_map(|(w, &word)| {
        let mut rest = word;
        std::iter::from_fn(move || {
            let cpu = bit_of(w, rest)?;
            rest &= rest - 1;
            Some(cpu)
        })
    })
}

/// The lowest set bit of the word at position `w`, as a CPU.
#[inline]
fn bit_of(w: usize, word: u64) -> Option<CpuId> {
    (word != 0).then(|| CpuId(w as u32 * 64 + word.trailing_zeros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let mut set = CpuSet::with_limit(130);
        assert!(set.is_empty());
        for id in [0, 63, 64, 129] {
            assert!(set.insert(CpuId(id)));
            assert!(!set.insert(CpuId(id)), "second insert of {id}");
        }
        assert_eq!(set.count(), 4);
        assert_eq!(set.iter().map(|c| c.0).collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert!(set.remove(CpuId(63)) && !set.remove(CpuId(63)));
        assert!(!set.contains(CpuId(63)) && set.contains(CpuId(64)));
        assert_eq!(set.words(), CpuSet::from_words(set.words()).words());
    }

    #[test]
    fn ids_beyond_the_limit_are_never_in() {
        let mut set = CpuSet::with_limit(8);
        assert!(!set.insert(CpuId(u32::MAX)) && !set.insert(CpuId(64)));
        assert!(!set.contains(CpuId(u32::MAX)) && !set.remove(CpuId(u32::MAX)));
    }

    #[test]
    fn the_first_common_cpu_is_the_lowest() {
        let a = CpuSet::of(256, [3, 70, 200].map(CpuId));
        let b = CpuSet::of(256, [4, 70, 200].map(CpuId));
        assert_eq!(a.first_common(&b), Some(CpuId(70)));
        assert_eq!(a.first_common(&CpuSet::of(64, [CpuId(5)])), None);
        assert_eq!(first_and3(a.words(), b.words(), &[0, 0, 0, u64::MAX]), Some(CpuId(200)));
    }
}
