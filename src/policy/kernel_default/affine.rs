// SPDX-License-Identifier: GPL-2.0-only
//! Where a woken task is put: near the waker or near where it was, on an idle CPU of that domain if there is one.

use crate::event::Runnable;
use crate::ids::{CpuId, Nanos, TaskId};
use crate::reason::Reason;
use crate::view::View;

/// A task's count of switches between those it wakes is halved once in this time.
const FLIP_DECAY_NS: Nanos = 1_000_000_000;
/// The previous CPU's load counts for this much, in percent: half of a domain's imbalance allowance of 117.
const PREV_LOAD_PCT: u32 = 108;

#[derive(Clone, Copy, Debug)]
struct Row {
    /// How often it woke another one than the time before.
    flips: u32,
    last_wakee: u32,
    decayed_ns: Nanos,
    /// The CPU before the previous one.
    recent: CpuId,
}

const NEW: Row = Row { flips: 0, last_wakee: u32::MAX, decayed_ns: 0, recent: CpuId(u32::MAX) };

/// Who wakes whom.
#[derive(Clone, Debug)]
pub(super) struct Affine {
    sync: bool,
    rows: Vec<Row>,
}

impl Affine {
    pub fn new(max_tasks: usize, sync: bool) -> Self {
        Self { sync, rows: vec![NEW; max_tasks] }
    }

    /// Counts a wakeup for the waker.
    pub fn woken_by(&mut self, now: Nanos, task: &Runnable) {
        let Some(waker) = self.rows.get_mut(task.waker_row as usize) else { return };
        if now.saturating_sub(waker.decayed_ns) > FLIP_DECAY_NS {
            waker.flips /= 2;
            waker.decayed_ns = now;
        }
        if waker.last_wakee != task.task.idx {
            waker.last_wakee = task.task.idx;
            waker.flips += 1;
        }
    }

    /// Does the waker wake so many others that pulling them all to it would crowd its domain?
    fn is_wide(&self, task: &Runnable, domain_cpus: u32) -> bool {
        let flips = |row: u32| self.rows.get(row as usize).map_or(0, |row| row.flips);
        let (a, b) = (flips(task.waker_row), flips(task.task.idx));
        let (more, less) = (a.max(b), a.min(b));
        less >= domain_cpus && more >= less * domain_cpus
    }

    /// The CPU that the search for an idle one starts from: the waker's or the previous one.
    fn target(&self, task: &Runnable, view: &View) -> CpuId {
        let prev = task.prev_cpu;
        let Some(this) = view.where_is(task.waker_row) else { return prev };
        let domain_cpus = view.llc_of(this).map_or(1, |llc| view.llc_cpus(llc));
        if this == prev || !view.is_usable(task.task, this) || self.is_wide(task, domain_cpus) {
            return prev;
        }
        let near = view.llc_of(this) == view.llc_of(prev);
        if near && view.is_idle(this) && !view.is_idle(prev) {
            return this;
        }
        if self.sync && view.ahead(this) == 1 {
            return this;
        }
        if view.is_idle(prev) {
            return prev;
        }
        let this_load = (view.ahead(this) + 1).saturating_sub(u32::from(self.sync)) * 100;
        if this_load < view.ahead(prev) * PREV_LOAD_PCT { this } else { prev }
    }

    /// The CPU that a woken task goes to, and why.
    pub fn select(&mut self, _now: Nanos, task: &Runnable, view: &View) -> (CpuId, Reason) {
        let target = self.target(task, view);
        let prev = task.prev_cpu;
        let recent = std::mem::replace(&mut self.rows[task.task.row()].recent, prev);
        let near = |cpu: CpuId| view.llc_of(cpu) == view.llc_of(target);
        let idle = |cpu: CpuId| view.is_usable(task.task, cpu) && view.is_idle(cpu);
        let cpu = if idle(target) {
            target
        } else if near(prev) && idle(prev) {
            prev
        } else if recent.0 != u32::MAX && near(recent) && idle(recent) {
            recent
        } else {
            let whole = view.idle_behind(task.task, target, true);
            whole.or_else(|| view.idle_behind(task.task, target, false)).unwrap_or(target)
        };
        let reason = match () {
            () if cpu == prev => Reason::PrevIdle,
            () if target != prev => Reason::NearWaker,
            () => Reason::LlcIdle,
        };
        (cpu, reason)
    }

    pub fn forget(&mut self, task: TaskId) {
        self.rows[task.row()] = NEW;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Row as TaskRow;

    #[test]
    fn who_wakes_many_in_turn_is_wide() {
        let mut affine = Affine::new(100, false);
        let woken = |task: u32, waker: u32| Runnable {
            waker_row: waker,
            ..TaskRow::born(TaskId { idx: task, generation: 1 }).fact
        };
        // 0 wakes 10 to 29 in turn; each of them wakes 0 and 1 in turn.
        for _ in 0..8 {
            for task in 10..30 {
                affine.woken_by(1, &woken(task, 0));
                affine.woken_by(1, &woken(0, task));
                affine.woken_by(1, &woken(1, task));
            }
        }
        // 160 flips against 16: wide in a domain of 8, not in one of 32.
        assert!(affine.is_wide(&woken(10, 0), 8));
        assert!(!affine.is_wide(&woken(10, 0), 32));
        assert!(!affine.is_wide(&woken(50, 51), 8));
        // A second later: half.
        affine.woken_by(FLIP_DECAY_NS + 2, &woken(29, 0));
        assert_eq!(affine.rows[0].flips, 80);
    }
}
