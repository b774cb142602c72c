// SPDX-License-Identifier: GPL-2.0-only
//! Nest: work is kept on few CPUs, which stay warm (and clocked up), and spreads only when they are all busy.
//!
//! From the paper of that name (Lawall et al., EuroSys 2022) by way of scx_nest, with its defaults. The *primary* nest holds the
//! CPUs in use, the *reserve* a few that were used lately. A task takes the first idle one of: the CPU it is attached to (it ran
//! there twice in a row) and its previous CPU, both if they are primary; any primary; any in reserve, which makes it primary;
//! any, which puts it into the reserve, or makes it primary if the task has missed the nest `impatient` times in a row. A
//! primary CPU that has been idle for `remove_us` falls back to the reserve, or out of the nest if the reserve is full.
//!
//! Tasks that find nothing idle wait by virtual time, as in [`vtime`](super::vtime), without its preemption.
//!
//! Simplified: a CPU's idle time is looked at when somebody looks for a CPU, by no timer; a dying task does not take its CPU out
//! of the nest at once; queues are per domain, not one for all.

use super::params::Param;
use super::vtime::Vtime;
use super::{Pick, Placement, Policy};
use crate::cpuset::{clear, set, test};
use crate::dispatcher::Config;
use crate::event::Runnable;
use crate::ids::{CpuId, Nanos, TaskId};
use crate::limits::MAX_CPUS;
use crate::reason::Reason;
use crate::view::View;

const REMOVE_US: Param = Param {
    name: "remove_us",
    about: "how long a primary CPU may be idle (scx_nest -d: 2000)",
    default: 2_000,
    range: 1..=10_000_000,
};
const RESERVE_CPUS: Param = Param {
    name: "reserve_cpus",
    about: "CPUs in reserve at most (scx_nest -m: 5)",
    default: 5,
    range: 0..=4096,
};
const IMPATIENT: Param = Param {
    name: "impatient",
    about: "misses in a row that make a task's next CPU primary; 0: never (scx_nest -i: 2)",
    default: 2,
    range: 0..=255,
};
const SLICE_US: Param = Param {
    name: "slice_us",
    about: "the slice (scx_nest -s: 20000)",
    default: 20_000,
    range: 50..=1_000_000,
};

/// What can be set.
pub const PARAMS: &[Param] = &[REMOVE_US, RESERVE_CPUS, IMPATIENT, SLICE_US];

#[derive(Clone, Copy, Debug)]
struct Row {
    attached: CpuId,
    misses: u8,
}

const NOWHERE: CpuId = CpuId(u32::MAX);
const NEW: Row = Row { attached: NOWHERE, misses: 0 };

/// Work is kept on few CPUs.
#[derive(Clone, Debug)]
pub struct Nest {
    order: Vtime,
    slice_ns: Nanos,
    remove_ns: Nanos,
    reserve_cpus: u32,
    impatient: u8,
    primary: Vec<u64>,
    reserve: Vec<u64>,
    reserved: u32,
    idle_since_ns: Vec<Nanos>,
    rows: Vec<Row>,
}

impl Nest {
    /// With the parameters of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let get = |param| config.params.get(param);
        let slice_ns = get(&SLICE_US) * 1000;
        Self {
            order: Vtime::new(&Config { slice_ns, ..config.clone() }),
            slice_ns,
            remove_ns: get(&REMOVE_US) * 1000,
            reserve_cpus: get(&RESERVE_CPUS) as u32,
            impatient: get(&IMPATIENT) as u8,
            primary: vec![0; MAX_CPUS / 64],
            reserve: vec![0; MAX_CPUS / 64],
            reserved: 0,
            idle_since_ns: vec![0; MAX_CPUS],
            rows: vec![NEW; config.max_tasks],
        }
    }

    /// Is this CPU primary? One that has been idle for too long is not any more.
    fn is_primary(&mut self, now: Nanos, cpu: CpuId) -> bool {
        if !test(&self.primary, cpu.idx()) {
            return false;
        }
        if now.saturating_sub(self.idle_since_ns[cpu.idx()]) <= self.remove_ns {
            return true;
        }
        clear(&mut self.primary, cpu.idx());
        self.put_in_reserve(cpu);
        false
    }

    fn put_in_reserve(&mut self, cpu: CpuId) {
        if self.reserved < self.reserve_cpus && !test(&self.reserve, cpu.idx()) {
            set(&mut self.reserve, cpu.idx());
            self.reserved += 1;
        }
    }

    fn make_primary(&mut self, cpu: CpuId) {
        set(&mut self.primary, cpu.idx());
        if test(&self.reserve, cpu.idx()) {
            clear(&mut self.reserve, cpu.idx());
            self.reserved -= 1;
        }
    }

    /// The idle CPU that the task gets, and whether it was in the nest.
    fn choose(&mut self, now: Nanos, task: &Runnable, view: &View) -> Option<(CpuId, bool)> {
        let row = task.task.row();
        for cpu in [self.rows[row].attached, task.prev_cpu] {
            let idle = view.is_idle(cpu) && view.is_usable(task.task, cpu);
            if idle && self.is_primary(now, cpu) {
                self.rows[row].misses = 0;
                return Some((cpu, true));
            }
        }
        if let Some(cpu) = view.idle_cpus(task).find(|&cpu| self.is_primary(now, cpu)) {
            self.rows[row].misses = 0;
            return Some((cpu, true));
        }
        let misses = self.rows[row].misses + 1;
        let impatient = self.impatient > 0 && misses >= self.impatient;
        self.rows[row].misses = if impatient { 0 } else { misses };
        let reserve = view.idle_cpus(task).find(|&cpu| test(&self.reserve, cpu.idx()));
        if let Some(cpu) = reserve {
            self.make_primary(cpu);
            return Some((cpu, true));
        }
        let cpu = view.idle_cpus(task).next()?;
        if impatient {
            self.make_primary(cpu)
        } else {
            self.put_in_reserve(cpu)
        }
        Some((cpu, false))
    }
}

impl Policy for Nest {
    fn name(&self) -> &'static str {
        "nest"
    }

    fn charge(&mut self, now: Nanos, task: &Runnable, view: &View) {
        self.order.charge(now, task, view);
    }

    fn idled(&mut self, _now: Nanos, cpu: CpuId, _last: TaskId, since_ns: Nanos, _view: &View) {
        self.idle_since_ns[cpu.idx()] = since_ns;
    }

    fn place(&mut self, now: Nanos, task: &Runnable, view: &View) -> Placement {
        let order = self.order.join(task, view);
        match self.choose(now, task, view).filter(|&(cpu, _)| !view.has_waiters(cpu)) {
            Some((cpu, known)) => {
                if cpu == task.prev_cpu {
                    self.rows[task.task.row()].attached = cpu;
                }
                self.order.starts(task.task, cpu, view);
                let reason = match (cpu == task.prev_cpu, known) {
                    (true, _) => Reason::PrevIdle,
                    (false, true) => Reason::Nest,
                    (false, false) if view.llc_of(cpu) == view.llc_of(task.prev_cpu) => Reason::LlcIdle,
                    (false, false) => Reason::RemoteIdle,
                };
                Placement::Run { cpu, slice_ns: self.slice_ns, preempt: false, reason }
            }
            None => order,
        }
    }

    fn pick(&mut self, now: Nanos, cpu: CpuId, waiting: &[TaskId], view: &View) -> Pick {
        self.order.pick(now, cpu, waiting, view)
    }

    fn forget(&mut self, task: TaskId) {
        self.rows[task.row()] = NEW;
        self.order.forget(task);
    }
}
