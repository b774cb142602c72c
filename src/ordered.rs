// SPDX-License-Identifier: GPL-2.0-only
//! Ordered queues of tasks that share one preallocated table.
//!
//! There is one queue per LLC domain and one per CPU, and any of them may hold all tasks, or none. An array heap for
//! each would need room for all tasks in each: gigabytes on a large machine. So the queues are search trees whose
//! links live in one table with a row per task: a task is in at most one queue, and nothing is ever allocated.
//!
//! A tree also can be walked in order, which look-ahead needs, and which a heap cannot do. The trees are treaps:
//! ordered by key from left to right, and by a scrambled arrival number from top to bottom, which keeps them
//! balanced without rotations to get right. The scramble is a fixed function: same input, same tree.

/// No row.
pub(crate) const NONE: u32 = u32::MAX;

/// The place in a queue: smaller is served first. Arrival numbers are unique, so that keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub order: u64,
    pub arrival: u64,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    key: Key,
    left: u32,
    right: u32,
}

impl Node {
    /// Who is above whom in the tree.
    #[inline]
    fn rank(&self) -> u64 {
        let x = (self.key.arrival ^ 0x5bd1_e995_9e37_79b9).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }
}

/// One queue: a root, and the first row for quick looks.
#[derive(Clone, Copy, Debug)]
struct Queue {
    root: u32,
    first: u32,
    len: u32,
}

/// All queues.
#[derive(Debug)]
pub(crate) struct Ordered {
    nodes: Vec<Node>,
    queues: Vec<Queue>,
    arrivals: u64,
}

impl Ordered {
    /// `queues` empty queues over `rows` rows.
    pub fn new(queues: usize, rows: usize) -> Self {
        let node = Node { key: Key { order: 0, arrival: 0 }, left: NONE, right: NONE };
        Self {
            nodes: vec![node; rows],
            queues: vec![Queue { root: NONE, first: NONE, len: 0 }; queues],
            arrivals: 0,
        }
    }

    /// How many rows wait in a queue.
    #[inline]
    pub fn len(&self, queue: usize) -> u32 {
        self.queues[queue].len
    }

    /// The first row of a queue.
    #[inline]
    pub fn first(&self, queue: usize) -> Option<u32> {
        let first = self.queues[queue].first;
        (first != NONE).then_some(first)
    }

    /// The last row of a queue.
    pub fn last(&self, queue: usize) -> Option<u32> {
        let (mut at, mut last) = (self.queues[queue].root, NONE);
        while at != NONE {
            last = at;
            at = self.nodes[at as usize].right;
        }
        (last != NONE).then_some(last)
    }

    /// The key of a row that waits.
    #[inline]
    pub fn key(&self, row: u32) -> Key {
        self.nodes[row as usize].key
    }

    /// The row behind the one with this key, in order.
    #[inline]
    pub fn next(&self, queue: usize, after: Key) -> Option<u32> {
        let (mut at, mut best) = (self.queues[queue].root, NONE);
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.key > after {
                best = at;
                at = node.left;
            } else {
                at = node.right;
            }
        }
        (best != NONE).then_some(best)
    }

    /// The rows of a queue, in order.
    #[cfg(test)]
    pub fn iter(&self, queue: usize) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.first(queue), move |&row| self.next(queue, self.key(row)))
    }

    /// Puts a row (which waits nowhere) into a queue, behind all of the same `order`.
    pub fn insert(&mut self, queue: usize, row: u32, order: u64) {
        self.arrivals += 1;
        let key = Key { order, arrival: self.arrivals };
        self.nodes[row as usize] = Node { key, left: NONE, right: NONE };
        let rank = self.nodes[row as usize].rank();
        // Walk down to the first node that ranks below the new one ...
        let (mut parent, mut at) = (NONE, self.queues[queue].root);
        while at != NONE && self.nodes[at as usize].rank() > rank {
            parent = at;
            at = self.child(at, key);
        }
        // ... and put the new one there, with that subtree cut in two below it.
        let (left, right) = self.split(at, key);
        self.nodes[row as usize].left = left;
        self.nodes[row as usize].right = right;
        self.set_child(queue, parent, key, row);
        let q = &mut self.queues[queue];
        q.len += 1;
        if q.first == NONE || key < self.nodes[q.first as usize].key {
            q.first = row;
        }
    }

    /// Takes a row out of the queue that it waits in.
    pub fn remove(&mut self, queue: usize, row: u32) {
        let key = self.key(row);
        let successor = if self.queues[queue].first == row { self.next(queue, key) } else { None };
        let (mut parent, mut at) = (NONE, self.queues[queue].root);
        while at != row {
            debug_assert_ne!(at, NONE, "row {row} is not in queue {queue}");
            if at == NONE {
                return;
            }
            parent = at;
            at = self.child(at, key);
        }
        let Node { left, right, .. } = self.nodes[row as usize];
        let joined = self.merge(left, right);
        self.set_child(queue, parent, key, joined);
        let q = &mut self.queues[queue];
        q.len -= 1;
        if q.first == row {
            q.first = successor.unwrap_or(NONE);
        }
    }

    #[inline]
    fn child(&self, node: u32, key: Key) -> u32 {
        let node = &self.nodes[node as usize];
        if key < node.key { node.left } else { node.right }
    }

    #[inline]
    fn set_child(&mut self, queue: usize, parent: u32, key: Key, child: u32) {
        if parent == NONE {
            self.queues[queue].root = child;
            return;
        }
        let parent = &mut self.nodes[parent as usize];
        if key < parent.key {
            parent.left = child;
        } else {
            parent.right = child;
        }
    }

    /// Cuts a subtree into what is before `key` and what is behind it.
    fn split(&mut self, at: u32, key: Key) -> (u32, u32) {
        if at == NONE {
            return (NONE, NONE);
        }
        let node = self.nodes[at as usize];
        if node.key < key {
            let (low, high) = self.split(node.right, key);
            self.nodes[at as usize].right = low;
            (at, high)
        } else {
            let (low, high) = self.split(node.left, key);
            self.nodes[at as usize].left = high;
            (low, at)
        }
    }

    /// Joins two subtrees, all of `low` being before all of `high`.
    fn merge(&mut self, low: u32, high: u32) -> u32 {
        if low == NONE || high == NONE {
            return if low == NONE { high } else { low };
        }
        if self.nodes[low as usize].rank() > self.nodes[high as usize].rank() {
            self.nodes[low as usize].right = self.merge(self.nodes[low as usize].right, high);
            low
        } else {
            self.nodes[high as usize].left = self.merge(low, self.nodes[high as usize].left);
            high
        }
    }

    /// The longest way from a queue's root to a row (for tests of the balance).
    #[cfg(test)]
    fn depth(&self, at: u32) -> usize {
        if at == NONE {
            return 0;
        }
        let node = &self.nodes[at as usize];
        1 + self.depth(node.left).max(self.depth(node.right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn equal_orders_are_served_as_they_arrived() {
        let mut q = Ordered::new(1, 8);
        for row in [5, 1, 7, 0] {
            q.insert(0, row, 9);
        }
        q.insert(0, 3, 8);
        assert_eq!(q.iter(0).collect::<Vec<_>>(), [3, 5, 1, 7, 0]);
    }

    #[test]
    fn trees_stay_shallow_whatever_the_order_of_insertion() {
        let n = 10_000;
        let orders: [fn(u64) -> u64; 4] = [|i| i, |i| 10_000 - i, |_| 5, |i| i * 7919 % 10_007];
        for order in orders {
            let mut q = Ordered::new(1, n);
            for row in 0..n as u32 {
                q.insert(0, row, order(u64::from(row)));
            }
            // 2.5 times the 14 levels of a perfect tree is common for treaps, 5 times never happens.
            assert!(q.depth(q.queues[0].root) < 60, "{}", q.depth(q.queues[0].root));
        }
    }

    proptest! {
        #[test]
        fn agrees_with_an_ordered_map(ops in prop::collection::vec((0u32..40, 0usize..3, 0u64..20), 1..300)) {
            let mut q = Ordered::new(3, 40);
            let mut plain: [BTreeMap<Key, u32>; 3] = Default::default();
            let mut place: BTreeMap<u32, usize> = BTreeMap::new();
            for (row, queue, order) in ops {
                if let Some(old) = place.remove(&row) {
                    plain[old].remove(&q.key(row));
                    q.remove(old, row);
                } else {
                    q.insert(queue, row, order);
                    plain[queue].insert(q.key(row), row);
                    place.insert(row, queue);
                }
                for (i, expect) in plain.iter().enumerate() {
                    prop_assert_eq!(q.iter(i).collect::<Vec<_>>(), expect.values().copied().collect::<Vec<_>>());
                    prop_assert_eq!(q.len(i) as usize, expect.len());
                    prop_assert_eq!(q.last(i), expect.values().last().copied());
                }
            }
        }
    }
}
