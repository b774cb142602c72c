// SPDX-License-Identifier: GPL-2.0-only
//! What a policy can ask about single CPUs and the whole machine beyond who is idle and who waits where.

use super::View;
use crate::event::Runnable;
use crate::ids::{CpuId, LlcId, TaskId};
use crate::lifecycle::State;
use crate::limits::MAX_LOOK_AHEAD;
use crate::reason::Reason;

impl View<'_> {
    /// How many wait, on the whole machine: in ordered queues, or behind another in a CPU's line.
    #[inline]
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.queues.waiting + self.machine.waiters
    }

    /// How many wait in the ordered queue of a CPU alone; its line is not counted.
    #[inline]
    #[must_use]
    pub fn own_queue(&self, cpu: CpuId) -> u32 {
        self.machine.cpus.get(cpu.idx()).map_or(0, |row| row.pinned)
    }

    /// How many wait in the ordered queue of a domain.
    #[inline]
    #[must_use]
    pub fn llc_queue(&self, llc: LlcId) -> u32 {
        if llc.idx() < self.machine.topology.llcs.len() {
            self.queues.ordered.len(crate::queues::Queues::of_llc(llc))
        } else {
            0
        }
    }

    /// How many tasks a new one would have before it on a CPU, the running one and those of its ordered queue included.
    #[inline]
    #[must_use]
    pub fn ahead(&self, cpu: CpuId) -> u32 {
        self.machine.cpus.get(cpu.idx()).map_or(0, |row| row.ahead() + row.pinned)
    }

    /// Is this CPU idle, and are all its SMT siblings?
    #[inline]
    #[must_use]
    pub fn is_core_idle(&self, cpu: CpuId) -> bool {
        crate::cpuset::test(&self.machine.idle_core, cpu.idx())
    }

    /// The nearest idle CPU as [`View::idle_near`] has it, but for one thing: in the previous CPU's domain, a core that is idle
    /// as a whole goes before the previous CPU with a busy SMT sibling.
    #[inline]
    #[must_use]
    pub fn idle_core_near(&self, task: &Runnable) -> Option<(CpuId, Reason)> {
        let near = self.idle_near(task)?;
        if near != (task.prev_cpu, Reason::PrevIdle) || self.is_core_idle(near.0) {
            return Some(near);
        }
        let mask = self.machine.llc_mask(self.llc_of(near.0)?);
        let allowed = self.restricted(task.task).map_or(&self.machine.online[..], |(allowed, _)| allowed);
        let whole = crate::cpuset::first_and3(&self.machine.idle_core, mask, allowed);
        Some(whole.map_or(near, |cpu| (cpu, Reason::LlcIdle)))
    }

    /// The first idle CPU behind `cpu` in its domain that the task may use, in ascending order and around; with `whole`, only
    /// CPUs of cores that are idle as a whole.
    #[must_use]
    pub fn idle_behind(&self, task: TaskId, cpu: CpuId, whole: bool) -> Option<CpuId> {
        let mask = self.machine.llc_mask(self.llc_of(cpu)?);
        let idle = if whole { &self.machine.idle_core } else { &self.machine.idle };
        let allowed = self.restricted(task).map_or(&self.machine.online[..], |(allowed, _)| allowed);
        let (word, bit) = (cpu.idx() / 64, cpu.0 % 64);
        let at = |w: usize| idle[w] & mask[w] & allowed.get(w).copied().unwrap_or(0);
        let above = |w: usize| if w == word { at(w) & !(u64::MAX >> (63 - bit)) } else { at(w) };
        let words = idle.len();
        let first = |w: usize, bits: u64| (bits != 0).then(|| CpuId(w as u32 * 64 + bits.trailing_zeros()));
        (word..words).find_map(|w| first(w, above(w))).or_else(|| (0..=word).find_map(|w| first(w, at(w))))
    }

    /// Where the task of a row runs, or ran last.
    #[must_use]
    pub fn where_is(&self, row: u32) -> Option<CpuId> {
        let row = self.tasks.rows.get(row as usize).filter(|row| row.known)?;
        let running = row.state == State::Running;
        let cpu = if running { CpuId(row.cpu) } else { row.fact.prev_cpu };
        self.machine.is_online(cpu).then_some(cpu)
    }

    /// Who waits for a CPU alone: its line, then its ordered queue, of each the first [`MAX_LOOK_AHEAD`]. What is on its way there
    /// is not in the line yet.
    pub fn waiters_of(&self, cpu: CpuId) -> impl Iterator<Item = TaskId> + '_ {
        let row = self.machine.cpus.get(cpu.idx());
        let line = row.into_iter().flat_map(|row| row.line.iter(&self.tasks.rows)).take(MAX_LOOK_AHEAD);
        let queue = self.queues.of_cpu(cpu);
        let ordered = &self.queues.ordered;
        let first = row.and_then(|_| ordered.first(queue));
        let queued = std::iter::successors(first, move |&at| ordered.next(queue, ordered.key(at)));
        line.chain(queued.take(MAX_LOOK_AHEAD)).map(|row| self.tasks.rows[row as usize].fact.task)
    }

    /// How many CPUs of a domain are idle.
    #[must_use]
    pub fn llc_idle(&self, llc: LlcId) -> u32 {
        if llc.idx() >= self.machine.topology.llcs.len() {
            return 0;
        }
        let words = self.machine.llc_mask(llc).iter().zip(&self.machine.idle);
        words.map(|(mask, idle)| (mask & idle).count_ones()).sum()
    }

    /// Does the task sleep, as far as is known?
    #[must_use]
    pub fn is_asleep(&self, task: TaskId) -> bool {
        self.tasks.find(task).is_some_and(|row| row.state == State::Blocked)
    }

    /// May the task use one CPU only; may it use fewer than all?
    #[must_use]
    pub fn narrowness(&self, task: TaskId) -> (bool, bool) {
        self.restricted(task).map_or((false, false), |(_, one)| (one, true))
    }
}
