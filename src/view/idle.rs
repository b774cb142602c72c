// SPDX-License-Identifier: GPL-2.0-only
//! Idle CPUs one after the other, nearest first, without a list of them.

use super::View;
use crate::event::Runnable;
use crate::ids::{CpuId, LlcId};

/// One pass over the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// The previous CPU.
    Previous,
    /// The domain: CPUs whose whole core is idle, then those with a busy SMT sibling.
    Near {
        whole: bool,
    },
    /// All other domains, in the same way.
    Far {
        whole: bool,
    },
    Over,
}

/// The idle CPUs that a task may use: its previous one, those of a domain, the rest.
#[derive(Clone, Debug)]
pub struct IdleCpus<'a> {
    idle: &'a [u64],
    idle_core: &'a [u64],
    allowed: &'a [u64],
    domain: &'a [u64],
    previous: CpuId,
    elsewhere: bool,
    pass: Pass,
    next_word: usize,
    /// What is left of the word before that.
    bits: u64,
}

impl View<'_> {
    /// The idle CPUs that the task may use, nearest first: its previous CPU; then those of the same LLC domain; then all others.
    /// Each time those whose SMT siblings are idle too come first.
    #[must_use]
    pub fn idle_cpus(&self, task: &Runnable) -> IdleCpus<'_> {
        let domain = self.llc_of(task.prev_cpu).map_or(&[][..], |llc| self.machine.llc_mask(llc));
        self.idle_from(task, domain, true)
    }

    /// The idle CPUs of a domain that the task may use: its previous CPU if it is one, those whose SMT siblings are idle too, the
    /// rest.
    #[must_use]
    pub fn idle_in(&self, llc: LlcId, task: &Runnable) -> IdleCpus<'_> {
        let known = llc.idx() < self.machine.topology.llcs.len();
        let domain = if known { self.machine.llc_mask(llc) } else { &[] };
        self.idle_from(task, domain, false)
    }

    fn idle_from<'a>(&'a self, task: &Runnable, domain: &'a [u64], elsewhere: bool) -> IdleCpus<'a> {
        let allowed = self.restricted(task.task).map_or(&self.machine.idle[..], |(allowed, _)| allowed);
        IdleCpus {
            idle: &self.machine.idle,
            idle_core: &self.machine.idle_core,
            allowed,
            domain,
            previous: task.prev_cpu,
            elsewhere,
            pass: if self.machine.is_busy() { Pass::Over } else { Pass::Previous },
            next_word: 0,
            bits: 0,
        }
    }
}

impl IdleCpus<'_> {
    /// The CPUs of a word that belong to this pass.
    fn word_of(&self, word: usize) -> u64 {
        let at = |words: &[u64]| words.get(word).copied().unwrap_or(0);
        let usable = at(self.idle) & at(self.allowed);
        let previous = if self.previous.idx() / 64 == word { 1 << (self.previous.0 % 64) } else { 0 };
        let of_core = |whole: bool| if whole { at(self.idle_core) } else { !at(self.idle_core) };
        match self.pass {
            Pass::Previous if self.elsewhere => usable & previous,
            Pass::Previous => usable & previous & at(self.domain),
            Pass::Near { whole } => usable & !previous & at(self.domain) & of_core(whole),
            Pass::Far { whole } => usable & !previous & !at(self.domain) & of_core(whole),
            Pass::Over => 0,
        }
    }

    fn next_pass(&mut self) {
        self.next_word = 0;
        self.pass = match self.pass {
            Pass::Previous => Pass::Near { whole: true },
            Pass::Near { whole: true } => Pass::Near { whole: false },
            Pass::Near { whole: false } if self.elsewhere => Pass::Far { whole: true },
            Pass::Far { whole: true } => Pass::Far { whole: false },
            Pass::Near { .. } | Pass::Far { .. } | Pass::Over => Pass::Over,
        };
    }
}

impl Iterator for IdleCpus<'_> {
    type Item = CpuId;

    fn next(&mut self) -> Option<CpuId> {
        while self.bits == 0 {
            if self.pass == Pass::Over {
                return None;
            }
            if self.next_word == self.idle.len() {
                self.next_pass();
            } else {
                self.bits = self.word_of(self.next_word);
                self.next_word += 1;
            }
        }
        let bit = self.bits.trailing_zeros();
        self.bits &= self.bits - 1;
        Some(CpuId((self.next_word as u32 - 1) * 64 + bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpuset::CpuSet;
    use crate::dispatcher::{Config, Dispatcher};
    use crate::event::{CpuStatus, Event};
    use crate::ids::TaskId;
    use crate::policy::fifo::Fifo;
    use crate::topology::Topology;

    const TASK: TaskId = TaskId { idx: 0, generation: 1 };

    /// Two domains of two cores of two siblings; 0 (and so half of core 0) and 6 are busy.
    fn machine(allowed: Option<&[u32]>) -> Dispatcher<Fifo> {
        let config = Config { max_tasks: 4, ..Config::default() };
        let policy = Fifo::new(&config);
        let mut d = Dispatcher::new(Topology::grid(2, 2, 2), config, policy);
        for cpu in [0, 6] {
            let status = CpuStatus {
                cpu: CpuId(cpu),
                curr: None,
                other: true,
                held: false,
                since_ns: 1,
                slice_ns: 1,
                busy_ns: 0,
                depth: 0,
            };
            d.handle(1, &Event::Cpu(status));
        }
        if let Some(allowed) = allowed {
            let cpus = CpuSet::of(8, allowed.iter().map(|&cpu| CpuId(cpu)));
            d.handle(1, &Event::Affinity(TASK, cpus));
        }
        d
    }

    fn woken(prev: u32) -> Runnable {
        Runnable { prev_cpu: CpuId(prev), ..crate::tasks::Row::born(TASK).fact }
    }

    fn ids(cpus: IdleCpus<'_>) -> Vec<u32> {
        cpus.map(|cpu| cpu.0).collect()
    }

    #[test]
    fn nearest_first() {
        let d = machine(None);
        assert_eq!(ids(d.view().idle_cpus(&woken(1))), [1, 2, 3, 4, 5, 7]);
        assert_eq!(ids(d.view().idle_cpus(&woken(0))), [2, 3, 1, 4, 5, 7]);
        assert_eq!(ids(d.view().idle_cpus(&woken(7))), [7, 4, 5, 2, 3, 1]);
        assert_eq!(ids(d.view().idle_cpus(&woken(u32::MAX))), [2, 3, 4, 5, 1, 7]);
    }

    #[test]
    fn of_one_domain() {
        let d = machine(None);
        assert_eq!(ids(d.view().idle_in(LlcId(1), &woken(1))), [4, 5, 7]);
        assert_eq!(ids(d.view().idle_in(LlcId(0), &woken(3))), [3, 2, 1]);
        assert!(ids(d.view().idle_in(LlcId(9), &woken(3))).is_empty());
    }

    #[test]
    fn only_what_is_allowed() {
        let d = machine(Some(&[0, 1, 4, 6]));
        assert_eq!(ids(d.view().idle_cpus(&woken(7))), [4, 1]);
        assert_eq!(ids(d.view().idle_in(LlcId(0), &woken(7))), [1]);
    }
}
