// SPDX-License-Identifier: GPL-2.0-only
//! The machine of a scenario: CPUs, what switching and waking cost, and its caches.

use super::Problem;
use crate::limits::MAX_CPUS;
use crate::topology::{FULL_CAPACITY, Topology};
use serde::{Deserialize, Serialize};

/// The CPUs. `preset` names a machine of [`PRESETS`]; keys beside it change that machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Machine {
    /// Where the other keys come from (empty: from the defaults).
    pub preset: String,
    /// NUMA nodes; the domains are dealt out evenly.
    pub nodes: u32,
    /// Last-level-cache domains.
    pub llcs: u32,
    /// Physical cores of each domain.
    pub cores_per_llc: u32,
    /// CPUs of each core (SMT siblings have numbers next to each other).
    pub threads_per_core: u32,
    /// Relative speed of each core, 1 to 1024, in order (empty: all 1024; shorter: repeated).
    pub capacities: Vec<u32>,
}

/// Machines by name: name, nodes, domains, cores per domain, threads.
pub const PRESETS: &[(&str, u32, u32, u32, u32)] = &[
    ("lab", 1, 2, 2, 1),            // the lab's guest: 4 CPUs in 2 domains
    ("desktop-8", 1, 1, 8, 1),      // one chiplet
    ("chiplets-16", 1, 2, 8, 1),    // two chiplets of 8
    ("chiplets-64", 1, 8, 8, 1),    // a server socket of 8 chiplets of 8 cores
    ("monolithic-32", 1, 1, 32, 1), // one cache for all
    ("dual-socket-128", 2, 16, 8, 1),
];

impl Default for Machine {
    fn default() -> Self {
        Self {
            preset: String::new(),
            nodes: 1,
            llcs: 2,
            cores_per_llc: 4,
            threads_per_core: 1,
            capacities: Vec::new(),
        }
    }
}

impl Machine {
    pub(super) fn preset(name: &str) -> Option<Self> {
        let &(name, nodes, llcs, cores_per_llc, threads_per_core) =
            PRESETS.iter().find(|preset| preset.0 == name)?;
        Some(Self {
            preset: name.into(),
            nodes,
            llcs,
            cores_per_llc,
            threads_per_core,
            capacities: Vec::new(),
        })
    }

    /// How many CPUs it has.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.llcs.saturating_mul(self.cores_per_llc).saturating_mul(self.threads_per_core)
    }

    /// The machine as a value, without the CPUs of `offline`.
    ///
    /// # Errors
    /// If nothing is left, or the numbers are out of range.
    pub fn topology(&self, offline: &[u32]) -> Result<Topology, Problem> {
        let wrong = |what: String| Problem::new("machine", what);
        let mut cpus = Vec::new();
        let mut llcs: Vec<crate::topology::Llc> = Vec::new();
        let mut cores: Vec<Vec<crate::ids::CpuId>> = Vec::new();
        for llc in 0..self.llcs {
            let mut here = Vec::new();
            for core in 0..self.cores_per_llc {
                let number = llc * self.cores_per_llc + core;
                let capacity = match self.capacities.len() {
                    0 => FULL_CAPACITY,
                    n => self.capacities[number as usize % n],
                };
                let first = number * self.threads_per_core;
                let online: Vec<_> = (first..first + self.threads_per_core)
                    .filter(|id| !offline.contains(id))
                    .map(crate::ids::CpuId)
                    .collect();
                for &id in &online {
                    cpus.push(crate::topology::Cpu {
                        id,
                        core: cores.len() as u32,
                        llc: crate::ids::LlcId(llcs.len() as u32),
                        node: llc * self.nodes / self.llcs,
                        capacity,
                    });
                }
                here.extend_from_slice(&online);
                if !online.is_empty() {
                    cores.push(online);
                }
            }
            if !here.is_empty() {
                llcs.push(crate::topology::Llc { id: crate::ids::LlcId(llcs.len() as u32), cpus: here });
            }
        }
        let topology = Topology { cpus, llcs, cores, id_limit: self.cpus() };
        topology.check().map_err(|e| wrong(e.to_string()))?;
        Ok(topology)
    }

    pub(super) fn check(&self) -> Result<(), Problem> {
        let sizes = [
            ("machine.nodes", self.nodes),
            ("machine.llcs", self.llcs),
            ("machine.cores_per_llc", self.cores_per_llc),
            ("machine.threads_per_core", self.threads_per_core),
        ];
        if let Some((key, _)) = sizes.iter().find(|(_, n)| *n == 0) {
            return Err(Problem::new(key, "is 0: give at least 1"));
        }
        if self.cpus() as usize > MAX_CPUS {
            return Err(Problem::new(
                "machine",
                format!("{} CPUs: at most {MAX_CPUS} are possible", self.cpus()),
            ));
        }
        if self.nodes > self.llcs {
            return Err(Problem::new("machine.nodes", "more nodes than LLC domains: give fewer"));
        }
        if let Some(c) = self.capacities.iter().find(|c| !(1..=FULL_CAPACITY).contains(*c)) {
            return Err(Problem::new("machine.capacities", format!("{c}: give 1 to {FULL_CAPACITY}")));
        }
        Ok(())
    }
}

/// What the machine charges for switching and waking, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// From one task to another on a CPU. 600: ghOSt measured 410 to 600 (algorithms 6.3).
    pub switch_ns: u64,
    /// From a decision until an idle CPU has noticed it. 1000 on bare metal, 20,000 in a virtual machine (6.3).
    pub wake_ipi_ns: u64,
    /// CPU time that a task pays for each task that it wakes.
    pub wake_call_ns: u64,
    /// Speed of a CPU while its SMT sibling is busy (judged when a run starts), in percent.
    pub smt_speed_pct: u32,
}

impl Default for Costs {
    fn default() -> Self {
        Self { switch_ns: 600, wake_ipi_ns: 1000, wake_call_ns: 500, smt_speed_pct: 65 }
    }
}

/// One kind of state that a run needs and others push out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Level {
    /// How much it holds (the reach of a TLB). 0: there is no such level.
    pub size_kb: f64,
    /// Bytes per entry.
    pub entry_b: u32,
    /// To fetch one entry again that was pushed out here, without overlap, in nanoseconds.
    pub miss_ns: f64,
    /// The same when the task ran on another core (for the LLC: in another domain) before.
    pub moved_ns: f64,
    /// How much slower a task runs while nothing of it is there (0.5: half as fast again); with the cost of a full
    /// refill it gives the time constant of filling: refill / slowdown.
    pub cold_slowdown: f64,
    /// Time in which a task that uses all of it pushes out all but 1/e of what others have there.
    pub evict_us: f64,
}

impl Default for Level {
    fn default() -> Self {
        Self { size_kb: 0.0, entry_b: 64, miss_ns: 0.0, moved_ns: 0.0, cold_slowdown: 0.5, evict_us: 1000.0 }
    }
}

/// The machine's caches as they are; what a policy believes about them is another matter.
/// `profile` is `zen-chiplet`, `monolithic` or `none`; keys beside it change that profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Caches {
    /// Where the other keys come from.
    pub profile: String,
    /// First level, per core.
    pub l1: Level,
    /// Second level, per core.
    pub l2: Level,
    /// Address translation, per core; its entries are pages.
    pub tlb: Level,
    /// Branch predictors, per core; `size_kb` is code.
    pub predictor: Level,
    /// Last level, per domain.
    pub llc: Level,
    /// Memory bandwidth of a NUMA node, in bytes per nanosecond (GB/s). 0: no limit.
    pub node_gb_per_s: f64,
    /// Bandwidth between one LLC domain and everything beyond it. 0: no limit.
    pub llc_gb_per_s: f64,
    /// How far back traffic counts when the next run's share is judged.
    pub bandwidth_window_us: f64,
}

impl Default for Caches {
    fn default() -> Self {
        Self::zen_chiplet()
    }
}

impl Caches {
    /// The names that `profile` takes.
    pub const PROFILES: [&'static str; 3] = ["zen-chiplet", "monolithic", "none"];

    pub(super) fn profile(name: &str) -> Option<Self> {
        match name {
            "zen-chiplet" => Some(Self::zen_chiplet()),
            "monolithic" => Some(Self::monolithic()),
            "none" => Some(Self::none()),
            _ => None,
        }
    }

    /// Eight cores behind 32 MB. Latencies per line as measured on a Zen 5 guest (algorithms 6.2: L1 1.5, L2 3.8, own lines
    /// from L3 8 to 12, from another core of the same L3 20 to 21, memory 72 to 75, another chiplet 100 and more);
    /// a line's `miss_ns` is what it costs beyond the level above. Slowdowns and eviction times: 6.2 and 6.3, proposed there.
    #[must_use]
    pub fn zen_chiplet() -> Self {
        let level = |size_kb, entry_b, miss_ns, moved_ns, cold_slowdown, evict_us| Level {
            size_kb,
            entry_b,
            miss_ns,
            moved_ns,
            cold_slowdown,
            evict_us,
        };
        Self {
            profile: "zen-chiplet".into(),
            l1: level(32.0, 64, 2.3, 2.3, 0.5, 40.0),
            l2: level(1024.0, 64, 6.2, 16.7, 0.6, 1000.0),
            // 3072 entries; a walk costs 7 to 30 ns (6.3).
            tlb: level(12_288.0, 4096, 20.0, 20.0, 0.2, 3000.0),
            // 6.3: slowdown 0.1 for 50 us of a task with 32 KB of code: 512 lines of 10 ns.
            predictor: level(64.0, 64, 10.0, 10.0, 0.1, 200.0),
            llc: level(32_768.0, 64, 63.0, 100.0, 0.5, 6500.0),
            // DDR5, 12 channels; one chiplet's link.
            node_gb_per_s: 460.0,
            llc_gb_per_s: 64.0,
            bandwidth_window_us: 50.0,
        }
    }

    /// One last-level cache for all cores, further away and larger.
    #[must_use]
    pub fn monolithic() -> Self {
        let zen = Self::zen_chiplet();
        Self {
            profile: "monolithic".into(),
            // A mesh: about 20 ns more to the last level than inside a chiplet (50 cycles against about 70 and more).
            l2: Level { size_kb: 2048.0, miss_ns: 16.0, moved_ns: 26.0, ..zen.l2 },
            llc: Level { size_kb: 107_520.0, miss_ns: 55.0, moved_ns: 120.0, ..zen.llc },
            node_gb_per_s: 300.0,
            llc_gb_per_s: 0.0,
            ..zen
        }
    }

    /// No state to lose: every run takes what its work takes.
    #[must_use]
    pub fn none() -> Self {
        let no = Level::default();
        Self {
            profile: "none".into(),
            l1: no.clone(),
            l2: no.clone(),
            tlb: no.clone(),
            predictor: no.clone(),
            llc: no,
            node_gb_per_s: 0.0,
            llc_gb_per_s: 0.0,
            bandwidth_window_us: 50.0,
        }
    }

    /// The levels with their names, in the order of `sim::cache`.
    #[must_use]
    pub fn levels(&self) -> [(&'static str, &Level); 5] {
        [
            ("l1", &self.l1),
            ("l2", &self.l2),
            ("tlb", &self.tlb),
            ("predictor", &self.predictor),
            ("llc", &self.llc),
        ]
    }

    pub(super) fn check(&self) -> Result<(), Problem> {
        for (name, level) in self.levels() {
            let numbers = [
                ("size_kb", level.size_kb, 0.0),
                ("entry_b", f64::from(level.entry_b), 1.0),
                ("miss_ns", level.miss_ns, 0.0),
                ("moved_ns", level.moved_ns, 0.0),
                ("cold_slowdown", level.cold_slowdown, 0.001),
                ("evict_us", level.evict_us, 0.001),
            ];
            for (key, value, least) in numbers {
                if !value.is_finite() || value < least {
                    let key = format!("caches.{name}.{key}");
                    return Err(Problem::new(&key, format!("{value}: give a number of at least {least}")));
                }
            }
        }
        let rest = [
            ("caches.node_gb_per_s", self.node_gb_per_s, 0.0),
            ("caches.llc_gb_per_s", self.llc_gb_per_s, 0.0),
            ("caches.bandwidth_window_us", self.bandwidth_window_us, 0.001),
        ];
        match rest.iter().find(|(_, value, least)| !value.is_finite() || value < least) {
            Some((key, value, least)) => {
                Err(Problem::new(key, format!("{value}: give a number of at least {least}")))
            }
            None => Ok(()),
        }
    }
}
