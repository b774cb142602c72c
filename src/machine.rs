// SPDX-License-Identifier: GPL-2.0-only
//! What the dispatcher believes about every CPU: who is on it, who waits for it, is it idle.
//!
//! A belief starts from the last reading of the CPU's status words and is corrected by what the dispatcher itself did
//! since: a decision on its way takes the CPU at once, so that two tasks woken together never get the same idle CPU.

use crate::cpuset::{clear, first_and, first_and3, ones, set, test, words_for};
use crate::event::CpuStatus;
use crate::ids::{CpuId, LlcId, Nanos, TaskId};
use crate::reason::Reason;
use crate::tasks::List;
use crate::topology::Topology;
use crate::tournament::{Entry, Tournament};

/// A CPU that a higher class holds is worse than any line (but better than none).
const HELD: u32 = 1 << 20;
/// The dispatcher's own CPU is worse still, unless a penalty is configured.
const AVOIDED: u32 = 1 << 24;

/// No place in the tournament: the CPU is not online.
const OFFLINE: u32 = u32::MAX;

/// One CPU.
#[derive(Clone, Debug)]
pub(crate) struct CpuRow {
    /// The task on it and since when, by the last reading.
    pub curr: Option<TaskId>,
    pub since_ns: Nanos,
    /// A higher class holds it (not counted: the dispatcher on its own CPU).
    held: bool,
    /// Something runs there, or a higher class holds it (on its own CPU the dispatcher is that class).
    occupied: bool,
    idle: bool,
    /// Tasks in its own queue: the last reading, corrected by what was done since.
    pub depth: u32,
    /// Decisions for it that the kernel has not answered yet.
    pub in_flight: u32,
    /// Tasks that wait in the ordered queue of this one CPU.
    pub pinned: u32,
    /// Its line, oldest first: tasks committed to its own queue and not seen leaving it.
    pub line: List,
    /// What makes it worse than its line tells; 0: it is an ordinary CPU.
    handicap: u32,
    /// Its key in the tournament: what is ahead of a new task, and the handicap.
    key: u32,
    llc: u32,
    core: u32,
    /// Its place in the tournament.
    pos: u32,
    /// Its part of [`Machine::waiters`].
    counted: u32,
}

impl CpuRow {
    /// Tasks of the line that have someone before them.
    #[inline]
    pub fn waiters(&self) -> u32 {
        self.line.len().saturating_sub(u32::from(!self.occupied))
    }

    /// Does something run there, or does a higher class hold it?
    #[inline]
    pub fn is_occupied(&self) -> bool {
        self.occupied
    }

    /// Tasks that a new one would have before it, the running one included.
    #[inline]
    pub fn ahead(&self) -> u32 {
        self.depth + self.in_flight + u32::from(self.occupied)
    }
}

/// One LLC domain.
#[derive(Clone, Debug)]
struct LlcRow {
    mask: Vec<u64>,
    /// Its CPUs' places in the tournament.
    range: std::ops::Range<usize>,
    /// Its CPUs, the dispatcher's own not counted.
    cpus: u32,
}

/// All CPUs.
#[derive(Debug)]
pub(crate) struct Machine {
    pub topology: Topology,
    pub cpus: Vec<CpuRow>,
    pub online: Vec<u64>,
    /// CPUs with nothing to do (never the dispatcher's own).
    pub idle: Vec<u64>,
    idle_cpus: u32,
    /// Tasks in lines that have someone before them, on all CPUs.
    pub waiters: u32,
    /// CPUs whose whole core is idle.
    pub idle_core: Vec<u64>,
    /// Idle CPUs of each core.
    core_idle_cpus: Vec<u32>,
    llcs: Vec<LlcRow>,
    loads: Tournament,
    cpu_at: Vec<CpuId>,
    dispatcher: Option<CpuId>,
    penalty: u32,
}

impl Machine {
    /// A machine of idle CPUs. `dispatcher` is the CPU that the dispatcher runs on, with its penalty.
    pub fn new(topology: Topology, dispatcher: Option<CpuId>, penalty: Option<u32>) -> Self {
        let words = words_for(topology.id_limit);
        let dispatcher = dispatcher.filter(|&cpu| topology.cpu(cpu).is_some() && topology.cpus.len() > 1);
        let mut machine = Self {
            cpus: vec![EMPTY_ROW; topology.id_limit as usize],
            online: vec![0; words],
            idle: vec![0; words],
            idle_cpus: 0,
            waiters: 0,
            idle_core: vec![0; words],
            core_idle_cpus: vec![0; topology.cores.len()],
            llcs: Vec::with_capacity(topology.llcs.len()),
            loads: Tournament::new(topology.cpus.len()),
            cpu_at: Vec::with_capacity(topology.cpus.len()),
            dispatcher,
            penalty: penalty.map_or(AVOIDED, |n| n.min(AVOIDED)),
            topology,
        };
        for llc in &machine.topology.llcs {
            let mut mask = vec![0; words];
            let start = machine.cpu_at.len();
            for &cpu in &llc.cpus {
                set(&mut mask, cpu.idx());
                set(&mut machine.online, cpu.idx());
                let row = &mut machine.cpus[cpu.idx()];
                row.pos = machine.cpu_at.len() as u32;
                row.llc = llc.id.0;
                row.core = machine.topology.cpu(cpu).map_or(0, |c| c.core);
                machine.cpu_at.push(cpu);
            }
            let own = llc.cpus.iter().filter(|&&cpu| Some(cpu) == dispatcher).count();
            let cpus = (llc.cpus.len() - own) as u32;
            machine.llcs.push(LlcRow { mask, range: start..machine.cpu_at.len(), cpus });
        }
        for pos in 0..machine.cpu_at.len() {
            let cpu = machine.cpu_at[pos];
            machine.cpus[cpu.idx()].handicap = if Some(cpu) == dispatcher { machine.penalty } else { 0 };
            machine.refresh(cpu);
        }
        machine
    }

    /// A new reading of an online CPU's status words; [`Machine::refresh`] follows. Returns who ran there before.
    #[inline]
    pub fn set_status(&mut self, status: &CpuStatus) -> Option<TaskId> {
        let own = self.is_dispatcher(status.cpu);
        let penalty = self.penalty;
        let row = &mut self.cpus[status.cpu.idx()];
        let before = std::mem::replace(&mut row.curr, status.curr);
        let held = status.held && !own;
        row.since_ns = status.since_ns;
        row.held = held;
        row.depth = status.depth;
        row.occupied = status.curr.is_some() || status.other || held;
        row.handicap = if held { HELD } else { 0 } + if own { penalty } else { 0 };
        before
    }

    #[inline]
    pub fn is_online(&self, cpu: CpuId) -> bool {
        test(&self.online, cpu.idx())
    }

    #[inline]
    pub fn is_idle(&self, cpu: CpuId) -> bool {
        test(&self.idle, cpu.idx())
    }

    /// Is this the dispatcher's own CPU, on a machine that has others?
    #[inline]
    pub fn is_dispatcher(&self, cpu: CpuId) -> bool {
        self.dispatcher == Some(cpu)
    }

    /// The dispatcher's own CPU, on a machine that has others.
    #[inline]
    pub fn dispatcher(&self) -> Option<CpuId> {
        self.dispatcher
    }

    /// How many more tasks must wait elsewhere before the dispatcher's CPU is used; none: never.
    #[inline]
    pub fn dispatcher_penalty(&self) -> Option<u32> {
        (self.penalty < AVOIDED).then_some(self.penalty)
    }

    /// Does a higher class hold it? (On its own CPU the dispatcher is that class.)
    #[inline]
    pub fn is_held(&self, cpu: CpuId) -> bool {
        self.cpus[cpu.idx()].held
    }

    /// Is it online, not held, not the dispatcher's own?
    #[inline]
    pub fn is_ordinary(&self, cpu: CpuId) -> bool {
        self.cpus.get(cpu.idx()).is_some_and(|row| row.handicap == 0 && row.pos != OFFLINE)
    }

    /// Nothing runs there, nothing waits, nothing is on its way.
    #[inline]
    pub fn is_vacant(&self, cpu: CpuId) -> bool {
        let row = &self.cpus[cpu.idx()];
        row.ahead() == 0 && row.pos != OFFLINE
    }

    /// The LLC domain of an online CPU.
    #[inline]
    pub fn llc_of(&self, cpu: CpuId) -> Option<LlcId> {
        let row = self.cpus.get(cpu.idx())?;
        (row.pos != OFFLINE).then_some(LlcId(row.llc))
    }

    #[inline]
    pub fn llc_mask(&self, llc: LlcId) -> &[u64] {
        &self.llcs[llc.idx()].mask
    }

    /// CPUs of the domain that tasks are placed on (all but the dispatcher's own).
    #[inline]
    pub fn llc_cpus(&self, llc: LlcId) -> u32 {
        self.llcs[llc.idx()].cpus
    }

    /// To be called after any change to a CPU's row: keeps the idle maps and the tournament true. Says whether the CPU
    /// is vacant.
    #[inline]
    pub fn refresh(&mut self, cpu: CpuId) -> bool {
        let row = &mut self.cpus[cpu.idx()];
        if row.pos == OFFLINE {
            return false;
        }
        let waiters = row.waiters();
        self.waiters = self.waiters + waiters - row.counted;
        row.counted = waiters;
        let ahead = row.ahead();
        let key = ahead + row.pinned + row.handicap;
        if key != row.key {
            row.key = key;
            self.loads.set(row.pos as usize, key);
        }
        let idle = ahead == 0 && self.dispatcher != Some(cpu);
        if idle != row.idle {
            row.idle = idle;
            self.set_idle(cpu, idle);
        }
        ahead == 0
    }

    fn set_idle(&mut self, cpu: CpuId, idle: bool) {
        let core = self.cpus[cpu.idx()].core;
        let siblings = self.topology.core_cpus(core);
        let count = &mut self.core_idle_cpus[core as usize];
        if idle {
            set(&mut self.idle, cpu.idx());
            self.idle_cpus += 1;
            *count += 1;
            if *count as usize == siblings.len() {
                siblings.iter().for_each(|c| set(&mut self.idle_core, c.idx()));
            }
        } else {
            clear(&mut self.idle, cpu.idx());
            self.idle_cpus -= 1;
            if *count as usize == siblings.len() {
                siblings.iter().for_each(|c| clear(&mut self.idle_core, c.idx()));
            }
            *count -= 1;
        }
    }

    /// Is no CPU idle?
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.idle_cpus == 0
    }

    /// The idle CPU that is nearest to `prev`, among `allowed`.
    pub fn idle_near(&self, prev: CpuId, allowed: &[u64]) -> Option<(CpuId, Reason)> {
        if self.is_idle(prev) && test(allowed, prev.idx()) {
            return Some((prev, Reason::PrevIdle));
        }
        if let Some(llc) = self.llc_of(prev) {
            let mask = self.llc_mask(llc);
            let cpu =
                first_and3(&self.idle_core, mask, allowed).or_else(|| first_and3(&self.idle, mask, allowed));
            if let Some(cpu) = cpu {
                return Some((cpu, Reason::LlcIdle));
            }
        }
        let cpu = first_and(&self.idle_core, allowed).or_else(|| first_and(&self.idle, allowed))?;
        Some((cpu, Reason::RemoteIdle))
    }

    /// The CPU with the shortest line among `allowed` (none: all), and how many are ahead there.
    /// On a tie the previous CPU wins, then its domain, then the lowest place.
    #[inline]
    pub fn shortest_line(&self, prev: CpuId, allowed: Option<&[u64]>) -> (CpuId, u32) {
        let prev_row = self.cpus.get(prev.idx()).filter(|row| row.pos != OFFLINE);
        let best = match allowed {
            None => self.shortest(prev_row),
            Some(allowed) => self.shortest_allowed(prev_row, allowed),
        };
        let cpu = self.cpu_at[best.pos()];
        (cpu, self.cpus[cpu.idx()].ahead())
    }

    #[inline]
    fn shortest(&self, prev: Option<&CpuRow>) -> Entry {
        let best = self.loads.min();
        let Some(prev) = prev else { return best };
        if prev.key == best.key() {
            return Entry::new(prev.key, prev.pos as usize);
        }
        let near = self.loads.min_in(self.llcs[prev.llc as usize].range.clone());
        if near.key() == best.key() { near } else { best }
    }

    fn shortest_allowed(&self, prev: Option<&CpuRow>, allowed: &[u64]) -> Entry {
        let rows = ones(allowed).map(|cpu| &self.cpus[cpu.idx()]).filter(|row| row.pos != OFFLINE);
        let best = rows.min_by_key(|row| {
            let away = prev.map_or(0, |prev| u32::from(prev.pos != row.pos) + u32::from(prev.llc != row.llc));
            (row.key, away, row.pos)
        });
        best.map_or(self.loads.min(), |row| Entry::new(row.key, row.pos as usize))
    }
}

const EMPTY_ROW: CpuRow = CpuRow {
    curr: None,
    since_ns: 0,
    held: false,
    occupied: false,
    idle: false,
    depth: 0,
    in_flight: 0,
    pinned: 0,
    line: List::EMPTY,
    handicap: 0,
    key: 0,
    llc: 0,
    core: 0,
    pos: OFFLINE,
    counted: 0,
};
