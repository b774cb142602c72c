// SPDX-License-Identifier: GPL-2.0-only
//! What happens when: a heap of future moments. Equal times go in the order in which they were put in.

use crate::ids::Nanos;

/// Something that happens at a moment. Entries that are no longer wanted carry an old epoch and are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// What runs on a CPU is done, or its slice is.
    Stop {
        cpu: u32,
        epoch: u32,
    },
    /// A CPU looks at its queue (it was kicked, or the dispatcher has left it).
    Look {
        cpu: u32,
    },
    /// A task's sleep ends, or a wakeup reaches it.
    Wake {
        task: u32,
        epoch: u32,
    },
    /// A request comes.
    Arrive {
        service: u32,
    },
    /// A client asks.
    Ask {
        service: u32,
        client: u32,
    },
    /// The dispatcher's turn begins, or ends with its commits; or it goes to sleep.
    Round,
    RoundEnd,
    Doze {
        epoch: u32,
    },
    /// The shim's timer.
    Tick {
        epoch: u32,
    },
    /// A higher class takes a CPU or leaves it.
    Hog {
        hog: u32,
    },
    /// A CPU comes or goes; then the daemon attaches again.
    Hotplug {
        entry: u32,
    },
    Attach {
        epoch: u32,
    },
    /// The dispatcher stops for a while.
    Late {
        entry: u32,
    },
    LateAtRandom,
    /// A random change of this kind.
    Meddle {
        kind: u32,
    },
    /// Faults end.
    Heal,
    /// Measuring begins.
    Measure,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Nanos,
    order: u64,
    alarm: Alarm,
}

impl Entry {
    #[inline]
    fn before(&self, other: &Self) -> bool {
        (self.at, self.order) < (other.at, other.order)
    }
}

/// A heap with four children to a node: half the depth of a binary one, and siblings share cache lines.
#[derive(Debug)]
pub(crate) struct Agenda {
    heap: Vec<Entry>,
    order: u64,
}

impl Agenda {
    pub fn with_capacity(entries: usize) -> Self {
        Self { heap: Vec::with_capacity(entries), order: 0 }
    }

    #[inline]
    pub fn add(&mut self, at: Nanos, alarm: Alarm) {
        self.order += 1;
        let entry = Entry { at, order: self.order, alarm };
        let mut i = self.heap.len();
        self.heap.push(entry);
        while i > 0 {
            let parent = (i - 1) / 4;
            if !entry.before(&self.heap[parent]) {
                break;
            }
            self.heap[i] = self.heap[parent];
            i = parent;
        }
        self.heap[i] = entry;
    }

    /// Takes the next one, if it is not after `until`.
    #[inline]
    pub fn next(&mut self, until: Nanos) -> Option<(Nanos, Alarm)> {
        let first = *self.heap.first().filter(|entry| entry.at <= until)?;
        let last = self.heap.pop()?;
        if !self.heap.is_empty() {
            self.sink(last);
        }
        Some((first.at, first.alarm))
    }

    /// Puts `entry` in at the top, which is free.
    #[inline]
    fn sink(&mut self, entry: Entry) {
        let heap = self.heap.as_mut_slice();
        let len = heap.len();
        let mut i = 0;
        loop {
            let first = 4 * i + 1;
            if first >= len {
                break;
            }
            let mut least = first;
            for child in first + 1..(first + 4).min(len) {
                if heap[child].before(&heap[least]) {
                    least = child;
                }
            }
            if !heap[least].before(&entry) {
                break;
            }
            heap[i] = heap[least];
            i = least;
        }
        heap[i] = entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_before_its_time() {
        let mut agenda = Agenda::with_capacity(1);
        agenda.add(5, Alarm::Round);
        assert_eq!(agenda.next(4), None);
        assert_eq!(agenda.next(5), Some((5, Alarm::Round)));
    }

    #[test]
    fn by_time_and_then_by_arrival() {
        let mut agenda = Agenda::with_capacity(4);
        let mut random = 1u64;
        let mut expected = Vec::new();
        for i in 0..1000u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = random >> 58;
            agenda.add(at, Alarm::Look { cpu: i });
            expected.push((at, i));
        }
        expected.sort();
        for (at, cpu) in expected {
            assert_eq!(agenda.next(u64::MAX), Some((at, Alarm::Look { cpu })));
        }
        assert_eq!(agenda.next(u64::MAX), None);
    }
}
