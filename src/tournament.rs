// SPDX-License-Identifier: GPL-2.0-only
//! A tournament over a fixed row of numbers: who has the smallest, in a range or over all?
//!
//! Every number plays its neighbour, the winner plays on, and the champion stands at the top: reading the smallest
//! of all costs one look, changing one number repeats the matches on its way up (8 for 256 CPUs), and a match
//! whose winner did not change ends the way early.

/// A row of keys with the winner (smallest key, then lowest position) of every match kept.
#[derive(Clone, Debug)]
pub(crate) struct Tournament {
    /// Players at the bottom level, a power of two.
    width: usize,
    /// `tree[1]` is the champion, the matches of node `i` are at `2i` and `2i + 1`, players are from `width` on.
    tree: Vec<Entry>,
}

/// A key and where it is, in one number that orders by key, then position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry(u64);

const NOBODY: Entry = Entry(u64::MAX);

impl Entry {
    pub fn new(key: u32, pos: usize) -> Self {
        Entry(u64::from(key) << 32 | pos as u64)
    }

    #[inline]
    pub fn key(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    pub fn pos(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }
}

impl Tournament {
    /// `players` keys, all 0.
    pub fn new(players: usize) -> Self {
        let width = players.next_power_of_two();
        let mut tree = vec![NOBODY; 2 * width];
        for (pos, entry) in tree[width..width + players].iter_mut().enumerate() {
            *entry = Entry::new(0, pos);
        }
        for node in (1..width).rev() {
            tree[node] = tree[2 * node].min(tree[2 * node + 1]);
        }
        Self { width, tree }
    }

    /// The key at `pos`.
    #[inline]
    pub fn get(&self, pos: usize) -> u32 {
        self.tree[self.width + pos].key()
    }

    /// Changes the key at `pos`.
    #[inline]
    pub fn set(&mut self, pos: usize, key: u32) {
        let mut node = self.width + pos;
        let mut winner = Entry::new(key, pos);
        let tree = self.tree.as_mut_slice();
        while tree[node] != winner {
            tree[node] = winner;
            if node == 1 {
                break;
            }
            winner = winner.min(tree[node ^ 1]);
            node /= 2;
        }
    }

    /// The winner over all.
    #[inline]
    pub fn min(&self) -> Entry {
        self.tree[1]
    }

    /// The winner among the positions `range` (which is not empty).
    #[inline]
    pub fn min_in(&self, range: std::ops::Range<usize>) -> Entry {
        let (mut low, mut high) = (self.width + range.start, self.width + range.end);
        let mut best = NOBODY;
        while low < high {
            if low % 2 == 1 {
                best = best.min(self.tree[low]);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                best = best.min(self.tree[high]);
            }
            low /= 2;
            high /= 2;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_player_always_wins() {
        let mut t = Tournament::new(1);
        t.set(0, 7);
        assert_eq!((t.min(), t.min_in(0..1), t.get(0)), (Entry::new(7, 0), t.min(), 7));
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_search(
            players in 1usize..70, changes in prop::collection::vec((0usize..70, 0u32..9), 0..80), a in 0usize..70, b in 0usize..70,
        ) {
            let mut plain = vec![0u32; players];
            let mut t = Tournament::new(players);
            for (pos, key) in changes {
                plain[pos % players] = key;
                t.set(pos % players, key);
            }
            let best = |range: std::ops::Range<usize>| {
                range.map(|pos| Entry::new(plain[pos], pos)).min().unwrap()
            };
            let (low, high) = ((a % players).min(b % players), (a % players).max(b % players) + 1);
            prop_assert_eq!(t.min(), best(0..players));
            prop_assert_eq!(t.min_in(low..high), best(low..high));
        }
    }
}
