// SPDX-License-Identifier: GPL-2.0-only
//! The true state of the caches: how much of each task's state each place still holds, and what the rest costs.
//!
//! Per level a task has a *deficit* d in a place: the share of its state that is not there (1 - warmth). Running for X of
//! work fills: d becomes d * exp(-X / tau), tau = R / beta; the run takes X plus the sum of R * d * (1 - exp(-X / tau))
//! (R: cost of a full refill, beta: slowdown while cold). Foreign pressure u pushes out: 1 - d becomes (1 - d) * exp(-u). The
//! pressure of a run is its length over the level's eviction time, times the share of the level that the task's state
//! takes up. An idle place keeps everything. Core levels (L1, L2, TLB, predictor) are remembered for the last
//! [`SLOTS`] cores of each task; the LLC per domain and key, where a key is a task or a table that a group shares.
//!
//! Bandwidth: a run's refill and memory stalls are stretched by 1 / (1 - u), u being the use of its domain's and node's
//! bandwidth when it starts: steady traffic of those who run, and refills of the last moments. So a refill costs its
//! neighbours. (Judged at the start of a run; a run under way is not slowed by those who start later.)

use super::scenario::{Caches, Level, Memory};
use crate::ids::Nanos;

/// Cores that are remembered for each task.
const SLOTS: usize = 6;
/// Core levels; the LLC follows them.
const CORE_LEVELS: usize = 4;
/// All levels.
pub(crate) const LEVELS: usize = CORE_LEVELS + 1;
const LLC: usize = CORE_LEVELS;
/// Highest use of a bandwidth that counts: a refill is stretched five times at most.
const MAX_USE: f64 = 0.8;
/// Below this a deficit, or a cost in nanoseconds, is nothing.
const TINY: f64 = 1e-9;

/// What a group's tasks are to the caches, worked out once.
#[derive(Clone, Debug)]
pub(crate) struct Footprint {
    /// Cost of a full refill after eviction, and after a move, in nanoseconds.
    refill_ns: [f64; LEVELS],
    moved_ns: [f64; LEVELS],
    /// 1 / tau for each.
    fill: [f64; LEVELS],
    fill_moved: [f64; LEVELS],
    /// Pressure on others per nanosecond.
    evict: [f64; LEVELS],
    /// Bytes of a full LLC refill, and per nanosecond of warm work.
    llc_bytes: f64,
    bytes_per_ns: f64,
    stall: f64,
    percpu_ns: f64,
}

impl Footprint {
    pub fn new(memory: &Memory, caches: &Caches) -> Self {
        let llc_kb = if memory.table_kb > 0.0 { memory.table_kb } else { memory.wss_kb };
        let pages_kb = if memory.hot_pages > 0.0 { memory.hot_pages * 4.0 } else { memory.wss_kb };
        let uses = [memory.wss_kb, memory.wss_kb, pages_kb, memory.code_kb, llc_kb];
        let mut f = Self {
            refill_ns: [0.0; LEVELS],
            moved_ns: [0.0; LEVELS],
            fill: [0.0; LEVELS],
            fill_moved: [0.0; LEVELS],
            evict: [0.0; LEVELS],
            llc_bytes: 0.0,
            bytes_per_ns: 0.0,
            stall: memory.stall_pct / 100.0,
            percpu_ns: memory.percpu_ns as f64,
        };
        for (i, (_, level)) in caches.levels().into_iter().enumerate() {
            let held_kb = uses[i].min(level.size_kb);
            let entries = held_kb * 1024.0 / f64::from(level.entry_b);
            // Predictors are trained one branch at a time; everything else overlaps.
            let overlap = if i == 3 { 1.0 } else { memory.mlp };
            f.refill_ns[i] = entries * level.miss_ns / overlap;
            f.moved_ns[i] = entries * level.moved_ns / overlap;
            f.fill[i] = rate(level, f.refill_ns[i]);
            f.fill_moved[i] = rate(level, f.moved_ns[i]);
            if level.size_kb > 0.0 {
                f.evict[i] = held_kb / level.size_kb / (level.evict_us * 1000.0);
            }
        }
        let llc = &caches.llc;
        if llc.size_kb > 0.0 {
            f.llc_bytes = llc_kb.min(llc.size_kb) * 1024.0;
            if llc.miss_ns > 0.0 {
                f.bytes_per_ns = f.stall * memory.mlp * f64::from(llc.entry_b) / llc.miss_ns;
            }
        }
        f
    }
}

/// 1 / tau = beta / R; 0 if there is nothing to fill.
fn rate(level: &Level, refill_ns: f64) -> f64 {
    if refill_ns > TINY { level.cold_slowdown / refill_ns } else { 0.0 }
}

/// What a stretch of work on a CPU costs, fixed when it begins: wall(X) = k X + sum of r (1 - exp(-X fill)).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Course {
    k: f64,
    r: [f64; LEVELS],
    fill: [f64; LEVELS],
    /// Paid whatever the length: per-CPU state left behind.
    fixed_ns: f64,
    /// What it found: 1 - paid refill / full refill.
    pub warmth: f64,
}

impl Course {
    /// Wall time of `work`.
    pub fn wall_ns(&self, work: Nanos) -> f64 {
        self.k * work as f64 + self.refill_ns(work)
    }

    /// The part of it that is refill.
    pub fn refill_ns(&self, work: Nanos) -> f64 {
        let x = work as f64;
        let parts = (0..LEVELS).map(|i| match self.r[i] {
            r if r > TINY => r * (1.0 - libm::exp(-x * self.fill[i])),
            _ => 0.0,
        });
        self.fixed_ns + parts.sum::<f64>()
    }

    /// The work done in `wall_ns`: Newton's method from below, where the concave curve makes it converge without overshoot.
    pub fn work_in(&self, wall_ns: Nanos) -> f64 {
        let wall = (wall_ns as f64 - self.fixed_ns).max(0.0);
        let slope_0 = self.k + (0..LEVELS).map(|i| self.r[i] * self.fill[i]).sum::<f64>();
        let mut x = wall / slope_0;
        for _ in 0..60 {
            let (mut value, mut slope) = (self.k * x, self.k);
            for i in 0..LEVELS {
                if self.r[i] > TINY {
                    let e = libm::exp(-x * self.fill[i]);
                    value += self.r[i] * (1.0 - e);
                    slope += self.r[i] * self.fill[i] * e;
                }
            }
            let step = (wall - value) / slope;
            x += step;
            if step.abs() < 0.01 {
                break;
            }
        }
        x.max(0.0)
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    core: u32,
    /// When the task left it (for throwing out the oldest).
    left_ns: Nanos,
    deficit: [f64; CORE_LEVELS],
    /// The core's pressure clocks when it left.
    seen: [f64; CORE_LEVELS],
}

const NO_CORE: u32 = u32::MAX;
const NO_SLOT: Slot =
    Slot { core: NO_CORE, left_ns: 0, deficit: [1.0; CORE_LEVELS], seen: [0.0; CORE_LEVELS] };

/// A pressure clock: runs at the sum of its users' rates.
#[derive(Clone, Copy, Debug)]
struct Clock<const N: usize> {
    value: [f64; N],
    rate: [f64; N],
    users: u32,
    at: Nanos,
}

impl<const N: usize> Clock<N> {
    fn new(at: Nanos) -> Self {
        Self { value: [0.0; N], rate: [0.0; N], users: 0, at }
    }

    #[inline]
    fn advance(&mut self, now: Nanos) {
        let dt = (now - self.at) as f64;
        self.at = now;
        if self.users > 0 && dt > 0.0 {
            for i in 0..N {
                self.value[i] += self.rate[i] * dt;
            }
        }
    }

    #[inline]
    fn join(&mut self, rate: &[f64]) {
        self.users += 1;
        for (mine, more) in self.rate.iter_mut().zip(rate) {
            *mine += more;
        }
    }

    #[inline]
    fn leave(&mut self, rate: &[f64]) {
        self.users -= 1;
        for (mine, less) in self.rate.iter_mut().zip(rate) {
            // Alone again: no rounding error stays behind.
            *mine = if self.users == 0 { 0.0 } else { (*mine - less).max(0.0) };
        }
    }
}

/// What an LLC domain holds of one key.
#[derive(Clone, Copy, Debug)]
struct Share {
    deficit: f64,
    /// Foreign pressure seen so far: the domain's clock less the key's own.
    seen: f64,
    own: Clock<1>,
}

/// Traffic over a link.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    steady: f64,
    users: u32,
    burst_bytes: f64,
    at: Nanos,
}

/// The caches of the machine.
#[derive(Debug)]
pub(crate) struct CacheState {
    /// Nothing costs anything: skip it all.
    pub off: bool,
    footprints: Vec<Footprint>,
    core_of: Vec<u32>,
    llc_of: Vec<u32>,
    node_of: Vec<u32>,
    llcs: usize,
    cores: Vec<Clock<CORE_LEVELS>>,
    domains: Vec<Clock<1>>,
    slots: Vec<[Slot; SLOTS]>,
    /// The core and domain each task ran in last.
    last_core: Vec<u32>,
    last_llc: Vec<u32>,
    last_cpu: Vec<u32>,
    shares: Vec<Share>,
    key_of: Vec<u32>,
    links: Vec<Link>,
    llc_gb_per_s: f64,
    node_gb_per_s: f64,
    window_ns: f64,
}

/// Which place a CPU is part of, for each CPU.
pub(crate) struct Places {
    pub core_of: Vec<u32>,
    pub llc_of: Vec<u32>,
    pub node_of: Vec<u32>,
}

impl CacheState {
    /// `keys`: number of shared tables; tasks have keys of their own behind them.
    pub fn new(
        caches: &Caches,
        places: &Places,
        footprints: Vec<Footprint>,
        max_tasks: usize,
        keys: usize,
    ) -> Self {
        let count = |of: &[u32]| of.iter().max().map_or(0, |&m| m as usize + 1);
        let (cores, llcs, nodes) = (count(&places.core_of), count(&places.llc_of), count(&places.node_of));
        let off = caches.levels().iter().all(|(_, level)| level.size_kb <= 0.0)
            && footprints.iter().all(|f| f.percpu_ns <= 0.0);
        let share = Share { deficit: 1.0, seen: 0.0, own: Clock::new(0) };
        let (tasks, shares) = if off { (0, 0) } else { (max_tasks, (keys + max_tasks) * llcs) };
        Self {
            off,
            footprints,
            core_of: places.core_of.clone(),
            llc_of: places.llc_of.clone(),
            node_of: places.node_of.clone(),
            llcs,
            cores: vec![Clock::new(0); cores],
            domains: vec![Clock::new(0); llcs],
            slots: vec![[NO_SLOT; SLOTS]; tasks],
            last_core: vec![NO_CORE; tasks],
            last_llc: vec![NO_CORE; tasks],
            last_cpu: vec![NO_CORE; tasks],
            shares: vec![share; shares],
            key_of: vec![0; tasks],
            links: vec![Link::default(); llcs + nodes],
            llc_gb_per_s: caches.llc_gb_per_s,
            node_gb_per_s: caches.node_gb_per_s,
            window_ns: caches.bandwidth_window_us * 1000.0,
        }
    }

    /// A new task in this row: nothing of it is anywhere, but for the table it shares (`key`).
    pub fn born(&mut self, task: u32, key: u32, shared: bool) {
        if self.off {
            return;
        }
        let t = task as usize;
        self.slots[t] = [NO_SLOT; SLOTS];
        self.last_core[t] = NO_CORE;
        self.last_llc[t] = NO_CORE;
        self.last_cpu[t] = NO_CORE;
        self.key_of[t] = key;
        if !shared {
            for llc in 0..self.llcs {
                let i = key as usize * self.llcs + llc;
                let (now, clock) = (self.domains[llc].at, &self.domains[llc]);
                let seen = clock.value[0];
                self.shares[i] = Share { deficit: 1.0, seen, own: Clock::new(now) };
            }
        }
    }

    /// What the core levels lack of a task at `now`.
    fn core_deficits(&self, task: u32, core: u32, now: Nanos) -> [f64; CORE_LEVELS] {
        let Some(slot) = self.slots[task as usize].iter().find(|slot| slot.core == core) else {
            return [1.0; CORE_LEVELS];
        };
        let mut clock = self.cores[core as usize];
        clock.advance(now);
        std::array::from_fn(|i| evicted(slot.deficit[i], clock.value[i] - slot.seen[i]))
    }

    fn llc_deficit(&self, task: u32, llc: u32, now: Nanos) -> f64 {
        let share = &self.shares[self.key_of[task as usize] as usize * self.llcs + llc as usize];
        let (mut domain, mut own) = (self.domains[llc as usize], share.own);
        domain.advance(now);
        own.advance(now);
        evicted(share.deficit, domain.value[0] - own.value[0] - share.seen)
    }

    /// How a task of `group` would fare on a CPU from `now` on.
    pub fn course(&self, task: u32, group: u32, cpu: u32, now: Nanos, speed: f64) -> Course {
        let mut course = Course { k: 1.0 / speed, warmth: 1.0, ..Course::default() };
        if self.off {
            return course;
        }
        let f = &self.footprints[group as usize];
        let t = task as usize;
        let (core, llc) = (self.core_of[cpu as usize], self.llc_of[cpu as usize]);
        let deficits = self.core_deficits(task, core, now);
        let moved_core = self.last_core[t] != core;
        let moved_llc = self.last_llc[t] != llc && self.last_llc[t] != NO_CORE;
        let stretch = self.stretch(cpu, now);
        let (mut full, mut paid) = (0.0, 0.0);
        let llc_deficit = self.llc_deficit(task, llc, now);
        for (i, d) in deficits.into_iter().chain([llc_deficit]).enumerate() {
            let moved = if i == LLC { moved_llc } else { moved_core };
            let (r, fill) =
                if moved { (f.moved_ns[i], f.fill_moved[i]) } else { (f.refill_ns[i], f.fill[i]) };
            full += r;
            paid += r * d;
            course.r[i] = r * d * if i == LLC || i == 1 { stretch } else { 1.0 };
            course.fill[i] = fill;
        }
        course.k += f.stall * (stretch - 1.0);
        if self.last_cpu[t] != cpu && self.last_cpu[t] != NO_CORE {
            course.fixed_ns = f.percpu_ns;
        }
        full += f.percpu_ns;
        paid += course.fixed_ns;
        course.warmth = if full > TINY { 1.0 - paid / full } else { 1.0 };
        course
    }

    /// How much longer a fetch takes now than on a quiet machine.
    fn stretch(&self, cpu: u32, now: Nanos) -> f64 {
        let llc = self.llc_of[cpu as usize] as usize;
        let node = self.node_of[cpu as usize] as usize;
        let mut most = 0.0f64;
        for (link, limit) in [(llc, self.llc_gb_per_s), (self.llcs + node, self.node_gb_per_s)] {
            if limit > 0.0 {
                let link = &self.links[link];
                let burst = link.burst_bytes * decay((now - link.at) as f64 / self.window_ns);
                most = most.max((link.steady + burst / self.window_ns) / limit);
            }
        }
        1.0 / (1.0 - most.min(MAX_USE))
    }

    /// A stretch of `work` begins: pressure and traffic start.
    pub fn begin(&mut self, task: u32, group: u32, cpu: u32, now: Nanos, course: &Course, work: Nanos) {
        if self.off {
            return;
        }
        let (core, llc) = (self.core_of[cpu as usize] as usize, self.llc_of[cpu as usize] as usize);
        let f = &self.footprints[group as usize];
        self.cores[core].advance(now);
        self.cores[core].join(&f.evict[..CORE_LEVELS]);
        self.domains[llc].advance(now);
        self.domains[llc].join(&f.evict[LLC..]);
        let share = &mut self.shares[self.key_of[task as usize] as usize * self.llcs + llc];
        share.own.advance(now);
        share.own.join(&f.evict[LLC..]);
        let node = self.llcs + self.node_of[cpu as usize] as usize;
        let full =
            if course.r[LLC] > TINY { 1.0 - libm::exp(-(work as f64) * course.fill[LLC]) } else { 0.0 };
        let lacking = if f.refill_ns[LLC] > TINY {
            (course.r[LLC] / f.moved_ns[LLC].max(f.refill_ns[LLC])).min(1.0)
        } else {
            0.0
        };
        let bytes = f.llc_bytes * lacking * full;
        for link in [llc, node] {
            let link = &mut self.links[link];
            if bytes > 1.0 {
                link.burst_bytes = link.burst_bytes * decay((now - link.at) as f64 / self.window_ns) + bytes;
                link.at = now;
            }
            link.steady += f.bytes_per_ns;
            link.users += 1;
        }
    }

    /// It ends after `work`: what was filled, what others pushed out meanwhile.
    pub fn end(&mut self, task: u32, group: u32, cpu: u32, begun: Nanos, now: Nanos, work: Nanos) {
        if self.off {
            return;
        }
        let (core, llc) = (self.core_of[cpu as usize], self.llc_of[cpu as usize]);
        let f = &self.footprints[group as usize];
        let x = work as f64;
        let t = task as usize;
        let moved_core = self.last_core[t] != core;
        let moved_llc = self.last_llc[t] != llc && self.last_llc[t] != NO_CORE;
        // What it found, foreign pressure during the run included.
        let before = self.core_deficits_without(task, group, core, begun, now);
        let clock = &mut self.cores[core as usize];
        clock.advance(now);
        clock.leave(&f.evict[..CORE_LEVELS]);
        let seen = clock.value;
        let fill = if moved_core { &f.fill_moved } else { &f.fill };
        let slot = slot_for(&mut self.slots[t], core);
        for i in 0..CORE_LEVELS {
            slot.deficit[i] = filled(before[i], x * fill[i]);
        }
        slot.core = core;
        slot.seen = seen;
        slot.left_ns = now;
        let domain = &mut self.domains[llc as usize];
        domain.advance(now);
        domain.leave(&f.evict[LLC..]);
        let share = &mut self.shares[self.key_of[t] as usize * self.llcs + llc as usize];
        share.own.advance(now);
        share.own.leave(&f.evict[LLC..]);
        let foreign = domain.value[0] - share.own.value[0];
        let fill = if moved_llc { f.fill_moved[LLC] } else { f.fill[LLC] };
        share.deficit = filled(evicted(share.deficit, foreign - share.seen), x * fill);
        share.seen = foreign;
        let node = self.llcs + self.node_of[cpu as usize] as usize;
        for link in [llc as usize, node] {
            let link = &mut self.links[link];
            link.users -= 1;
            link.steady = if link.users == 0 { 0.0 } else { (link.steady - f.bytes_per_ns).max(0.0) };
        }
        self.last_core[t] = core;
        self.last_llc[t] = llc;
        self.last_cpu[t] = cpu;
    }

    /// The core deficits at `now` without the pressure of the task's own run since `begun`.
    fn core_deficits_without(
        &self,
        task: u32,
        group: u32,
        core: u32,
        begun: Nanos,
        now: Nanos,
    ) -> [f64; CORE_LEVELS] {
        let Some(slot) = self.slots[task as usize].iter().find(|slot| slot.core == core) else {
            return [1.0; CORE_LEVELS];
        };
        let mut clock = self.cores[core as usize];
        clock.advance(now);
        let own = &self.footprints[group as usize].evict;
        let dt = (now - begun) as f64;
        std::array::from_fn(|i| {
            evicted(slot.deficit[i], (clock.value[i] - slot.seen[i] - own[i] * dt).max(0.0))
        })
    }
}

/// exp(-x), where hardly anything is left after 40.
#[inline]
fn decay(x: f64) -> f64 {
    if x <= 0.0 {
        1.0
    } else if x < 40.0 {
        libm::exp(-x)
    } else {
        0.0
    }
}

/// A deficit after foreign pressure.
#[inline]
fn evicted(deficit: f64, pressure: f64) -> f64 {
    if pressure < TINY || deficit >= 1.0 { deficit } else { 1.0 - (1.0 - deficit) * decay(pressure) }
}

/// A deficit after filling for `x` time constants.
#[inline]
fn filled(deficit: f64, x: f64) -> f64 {
    if x <= 0.0 || deficit < TINY { deficit } else { deficit * decay(x) }
}

/// The slot of a core, or the one that was left longest ago.
fn slot_for(slots: &mut [Slot; SLOTS], core: u32) -> &mut Slot {
    let mut found = 0;
    for i in 0..SLOTS {
        if slots[i].core == core {
            found = i;
            break;
        }
        let (a, b) = (&slots[i], &slots[found]);
        let (free_a, free_b) = (a.core == NO_CORE, b.core == NO_CORE);
        if free_a && !free_b || free_a == free_b && a.left_ns < b.left_ns {
            found = i;
        }
    }
    &mut slots[found]
}
