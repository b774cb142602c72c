// SPDX-License-Identifier: GPL-2.0-only
//! Which ordered queue a task waits in: that of an LLC domain, or of a single CPU.
//!
//! A task waits in its previous CPU's LLC domain if it may use all of that domain, in another domain that it may use
//! all of otherwise, and if there is none, at the single allowed CPU with the shortest line.

use crate::cpuset::{clear, set};
use crate::ids::{CpuId, LlcId};
use crate::machine::Machine;
use crate::ordered::{NONE, Ordered};
use crate::tasks::{List, Tasks};
use crate::tournament::Tournament;

/// One waiter per CPU, in the units that domains are compared in.
const WAITER_PER_CPU: u32 = 64;

/// The queues of all domains (first) and of all single CPUs (behind them).
#[derive(Debug)]
pub(crate) struct Queues {
    pub ordered: Ordered,
    /// Each queue once more, by arrival: it shows who starves.
    arrivals: Vec<List>,
    llcs: usize,
    /// Waiters per CPU of each domain.
    crowd: Tournament,
    /// Single-CPU queues with someone in it who may run elsewhere too.
    pub movable: Vec<u64>,
    movable_count: Vec<u32>,
    pub waiting: u32,
    /// Of those: in the queue of one CPU or domain by the policy's wish.
    pub sticky: u32,
}

impl Queues {
    pub fn new(machine: &Machine, max_tasks: usize) -> Self {
        let (llcs, cpus) = (machine.topology.llcs.len(), machine.cpus.len());
        let mut crowd = Tournament::new(llcs);
        for llc in &machine.topology.llcs {
            if machine.llc_cpus(llc.id) == 0 {
                crowd.set(llc.id.idx(), u32::MAX); // the dispatcher's own CPU alone: not for everybody
            }
        }
        Self {
            ordered: Ordered::new(llcs + cpus, max_tasks),
            arrivals: vec![List::EMPTY; llcs + cpus],
            llcs,
            crowd,
            movable: vec![0; machine.online.len()],
            movable_count: vec![0; cpus],
            waiting: 0,
            sticky: 0,
        }
    }

    /// How many queues there are.
    pub fn count(&self) -> usize {
        self.llcs + self.movable_count.len()
    }

    /// How many CPUs serve a queue.
    #[inline]
    pub fn cpus_of(&self, queue: usize, machine: &Machine) -> u32 {
        if queue < self.llcs { machine.llc_cpus(LlcId(queue as u32)).max(1) } else { 1 }
    }

    /// The domain that a queue belongs to.
    #[inline]
    pub fn llc_of(&self, queue: usize, machine: &Machine) -> Option<LlcId> {
        if queue < self.llcs {
            Some(LlcId(queue as u32))
        } else {
            machine.llc_of(CpuId((queue - self.llcs) as u32))
        }
    }

    #[inline]
    pub fn of_llc(llc: LlcId) -> usize {
        llc.idx()
    }

    #[inline]
    pub fn of_cpu(&self, cpu: CpuId) -> usize {
        self.llcs + cpu.idx()
    }

    /// The CPU whose queue it is; none: a domain's.
    #[inline]
    pub fn cpu_of(&self, queue: usize) -> Option<CpuId> {
        queue.checked_sub(self.llcs).map(|cpu| CpuId(cpu as u32))
    }

    /// The queue that a task would wait in now.
    #[inline]
    pub fn home(&self, row: u32, tasks: &Tasks, machine: &Machine) -> usize {
        let prev = tasks.rows[row as usize].fact.prev_cpu;
        let Some(allowed) = tasks.restriction(row) else {
            return self.least_crowded(machine.llc_of(prev));
        };
        let covered = |llc: LlcId| self.covers(row, llc, tasks, machine);
        let near = machine.llc_of(prev).filter(|&llc| covered(llc));
        let any = || {
            let llcs = machine.topology.llcs.iter().map(|llc| llc.id).filter(|&llc| covered(llc));
            llcs.min_by_key(|llc| self.crowd.get(llc.idx()))
        };
        match near.or_else(any) {
            Some(llc) => Self::of_llc(llc),
            None => self.of_cpu(machine.shortest_line(prev, Some(allowed)).0),
        }
    }

    /// The previous domain, unless another is shorter by more than a waiter per CPU.
    #[inline]
    fn least_crowded(&self, prev: Option<LlcId>) -> usize {
        let least = self.crowd.min();
        match prev.map(|llc| (llc, self.crowd.get(llc.idx()))) {
            Some((llc, crowd)) if crowd <= least.key().saturating_add(WAITER_PER_CPU) && crowd < u32::MAX => {
                Self::of_llc(llc)
            }
            _ => least.pos(),
        }
    }

    /// May the task wait in the queue of this domain: may it use all of the domain?
    pub fn covers(&self, row: u32, llc: LlcId, tasks: &Tasks, machine: &Machine) -> bool {
        machine.llc_cpus(llc) > 0
            && tasks.restriction(row).is_none_or(|allowed| {
                machine.llc_mask(llc).iter().zip(allowed).all(|(mask, a)| mask & !a == 0)
            })
    }

    /// Puts a task into a queue.
    pub fn insert(&mut self, row: u32, queue: usize, order: u64, tasks: &mut Tasks, machine: &mut Machine) {
        self.ordered.insert(queue, row, order);
        tasks.rows[row as usize].queue = queue as u32;
        self.arrivals[queue].push(row, &mut tasks.rows);
        self.waiting += 1;
        self.counted(queue, row, tasks, machine, true);
    }

    /// Takes a task out of the queue it is in.
    pub fn remove(&mut self, row: u32, tasks: &mut Tasks, machine: &mut Machine) {
        let queue = std::mem::replace(&mut tasks.rows[row as usize].queue, NONE);
        debug_assert_ne!(queue, NONE, "row {row} is in no queue");
        self.ordered.remove(queue as usize, row);
        self.arrivals[queue as usize].remove(row, &mut tasks.rows);
        self.waiting -= 1;
        self.counted(queue as usize, row, tasks, machine, false);
    }

    /// Who has been in a queue for longest.
    #[inline]
    pub fn oldest(&self, queue: usize) -> Option<u32> {
        self.arrivals[queue].first()
    }

    fn counted(&mut self, queue: usize, row: u32, tasks: &Tasks, machine: &mut Machine, joined: bool) {
        let r = &tasks.rows[row as usize];
        if r.sticky {
            self.sticky = if joined { self.sticky + 1 } else { self.sticky - 1 };
        }
        if queue < self.llcs {
            let cpus = machine.llc_cpus(LlcId(queue as u32)).max(1);
            self.crowd.set(queue, self.ordered.len(queue).saturating_mul(WAITER_PER_CPU) / cpus);
            return;
        }
        let cpu = CpuId((queue - self.llcs) as u32);
        machine.cpus[cpu.idx()].pinned = self.ordered.len(queue);
        machine.refresh(cpu);
        if r.allowed_cpus > 1 || !r.restricted {
            let count = &mut self.movable_count[cpu.idx()];
            *count = if joined { *count + 1 } else { *count - 1 };
            if *count > 0 { set(&mut self.movable, cpu.idx()) } else { clear(&mut self.movable, cpu.idx()) }
        }
    }
}
