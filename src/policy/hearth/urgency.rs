// SPDX-License-Identifier: GPL-2.0-only
//! Who is latency-critical: who sits in the middle of a chain, and more so than others.
//!
//! A task that often wakes others delays them when it is delayed; one that often goes to sleep is waited for by whoever wakes
//! it. So a task is critical if it does both at least `critical_hz` times a second, *and* the product of the two is at least
//! 2^[`OCTAVES`] times the (geometric) average product of all wakeups: where everybody is the same (a pool of workers, pairs
//! that play ping-pong), nobody is critical, and the cost decides.

use crate::event::{Runnable, Why};
use crate::ids::{Nanos, TaskId};
use crate::policy::lavd::criticality::frequency;

/// How far above the average a critical task is, in factors of two.
pub const OCTAVES: u32 = 3;
/// Weight of a wakeup in the average: 1/2^8.
const AVERAGE_SHIFT: u32 = 8;
/// The average has so many bits behind the point.
const POINT_BITS: u32 = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    blocked_ns: Nanos,
    woke_ns: Nanos,
    block_hz: u32,
    wake_hz: u32,
}

/// How often each task sleeps and wakes others.
#[derive(Clone, Debug)]
pub struct Urgency {
    critical_hz: u32,
    rows: Vec<Row>,
    /// Average of the logarithm (to the base of 2) of the product of both frequencies.
    average: u32,
}

impl Urgency {
    /// Nobody is critical with `critical_hz` = 0.
    #[must_use]
    pub fn new(max_tasks: usize, critical_hz: u32) -> Self {
        Self { critical_hz, rows: vec![Row::default(); max_tasks], average: 0 }
    }

    /// The task stopped and is runnable again.
    #[inline]
    pub fn charge(&mut self, now: Nanos, task: &Runnable) {
        if task.why != Why::Woken {
            return;
        }
        if let Some(waker) = self.rows.get_mut(task.waker_row as usize) {
            if waker.woke_ns > 0 && now > waker.woke_ns {
                waker.wake_hz = frequency(waker.wake_hz, now - waker.woke_ns);
            }
            waker.woke_ns = now;
        }
        let blocked_ns = now.saturating_sub(task.slept_ns);
        let row = &mut self.rows[task.task.row()];
        if row.blocked_ns > 0 && blocked_ns > row.blocked_ns {
            row.block_hz = frequency(row.block_hz, blocked_ns - row.blocked_ns);
        }
        row.blocked_ns = blocked_ns;
        let octaves = row.chain_octaves() << POINT_BITS;
        self.average = self.average - (self.average >> AVERAGE_SHIFT) + (octaves >> AVERAGE_SHIFT);
    }

    /// Is the task latency-critical?
    #[inline]
    #[must_use]
    pub fn is_critical(&self, task: TaskId) -> bool {
        let row = &self.rows[task.row()];
        let often = row.block_hz.min(row.wake_hz) >= self.critical_hz;
        let above = row.chain_octaves() << POINT_BITS >= self.average + (OCTAVES << POINT_BITS);
        self.critical_hz > 0 && often && above
    }

    /// The task is gone.
    pub fn forget(&mut self, task: TaskId) {
        self.rows[task.row()] = Row::default();
    }
}

impl Row {
    /// Logarithm of the product of both frequencies, rounded down; at most 38.
    #[inline]
    fn chain_octaves(&self) -> u32 {
        ((u64::from(self.block_hz) * u64::from(self.wake_hz)) | 1).ilog2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn woken(task: u32, waker: u32, slept_ns: Nanos) -> Runnable {
        let fact = crate::tasks::Row::born(TaskId { idx: task, generation: 1 }).fact;
        Runnable { why: Why::Woken, waker_row: waker, slept_ns, ..fact }
    }

    /// A messenger (row 0), woken by an interrupt, wakes 16 workers, one each 100 us.
    fn messenger(critical_hz: u32) -> Urgency {
        let mut urgency = Urgency::new(32, critical_hz);
        for round in 1..2000u64 {
            let now = round * MS / 10;
            urgency.charge(now, &woken(0, u32::MAX, MS / 20));
            urgency.charge(now, &woken(1 + (round % 16) as u32, 0, MS));
        }
        urgency
    }

    #[test]
    fn a_messenger_is_critical_and_its_workers_are_not() {
        let urgency = messenger(1000);
        let id = |idx| TaskId { idx, generation: 1 };
        assert!(urgency.is_critical(id(0)));
        assert!((1..17).all(|worker| !urgency.is_critical(id(worker))));
        assert!(!messenger(0).is_critical(id(0)));
        assert!(!messenger(20_000).is_critical(id(0)));
    }

    #[test]
    fn nobody_is_critical_where_all_are_alike() {
        let mut urgency = Urgency::new(2, 1000);
        for round in 1..2000u64 {
            let (a, b) = ((round % 2) as u32, (round % 2) as u32 ^ 1);
            urgency.charge(round * 10_000, &woken(a, b, 5_000));
        }
        assert!((0..2).all(|idx| !urgency.is_critical(TaskId { idx, generation: 1 })));
    }
}
