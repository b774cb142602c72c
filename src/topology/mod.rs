// SPDX-License-Identifier: GPL-2.0-only
//! The machine as a value: CPUs, SMT siblings, LLC domains, NUMA nodes, capacities. Read from sysfs, or built by hand.
//!
//! A topology holds only CPUs that are online; a CPU number is an id, never a row (numbers may have gaps). It is read
//! once and does not change: when a CPU comes or goes, the kernel ends the scheduler and the machine is read again.

mod build;
mod cpulist;
mod show;
mod sysfs;

pub use build::Builder;
pub use cpulist::{format_cpu_list, parse_cpu_list, read_cpu_list};
pub use sysfs::SYSFS_ROOT;

use crate::ids::{CpuId, LlcId};
use crate::limits::MAX_CPUS;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Capacity of the fastest CPU of a machine; the kernel's own scale (SCHED_CAPACITY_SCALE).
pub const FULL_CAPACITY: u32 = 1024;

/// One online CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// The kernel's number.
    pub id: CpuId,
    /// Physical core, numbered densely over the machine: a row of [`Topology::cores`].
    pub core: u32,
    /// Its last-level-cache domain.
    pub llc: LlcId,
    /// NUMA node as the kernel numbers it.
    pub node: u32,
    /// Relative speed: 1024 is the fastest CPU of the machine, never 0.
    pub capacity: u32,
}

/// A last-level-cache domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Llc {
    /// Its number, equal to its row.
    pub id: LlcId,
    /// Its online CPUs, ascending.
    pub cpus: Vec<CpuId>,
}

/// The machine: only CPUs that are online. Ids may have gaps; rows of [`Topology::cpus`] do not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Online CPUs, ascending by id.
    pub cpus: Vec<Cpu>,
    /// LLC domains, ascending by their lowest CPU.
    pub llcs: Vec<Llc>,
    /// The online CPUs of each physical core (SMT siblings), ascending; cores ascend by their lowest CPU.
    pub cores: Vec<Vec<CpuId>>,
    /// One more than the highest possible CPU id: the size of tables that are indexed by id.
    pub id_limit: u32,
}

/// Why a machine could not be read or built.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// A file without which nothing is known about the machine.
    #[error("cannot read {}: is this a directory like /sys/devices/system?", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file that should hold a CPU list holds something else.
    #[error("{}: {what}", path.display())]
    CpuList {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The machine is larger than the tables.
    #[error(
        "CPU numbers up to {} are possible here, and {} CPUs are supported: boot with a smaller possible_cpus=",
        .id_limit.saturating_sub(1),
        MAX_CPUS
    )]
    TooManyCpus {
        /// One more than the highest possible CPU number.
        id_limit: u32,
    },
    /// Parts of a topology contradict each other.
    #[error("invalid topology: {0}")]
    Invalid(String),
}

impl Topology {
    /// A regular machine of `llcs` LLC domains with `cores_per_llc` cores of `threads` CPUs each, numbered from 0:
    /// siblings next to each other, as QEMU numbers them. One NUMA node, full capacity.
    ///
    /// # Panics
    /// If an argument is 0 or the product is above [`MAX_CPUS`]; use [`Topology::builder`] for numbers that come from outside.
    #[must_use]
    pub fn grid(llcs: u32, cores_per_llc: u32, threads: u32) -> Topology {
        let mut builder = Topology::builder();
        for _ in 0..llcs {
            builder = builder.llc().cores(cores_per_llc, threads, FULL_CAPACITY);
        }
        match builder.build() {
            Ok(topology) => topology,
            Err(e) => panic!("grid({llcs}, {cores_per_llc}, {threads}): {e}"),
        }
    }

    /// Starts a machine built by hand.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The CPU with this number, if it is online.
    #[must_use]
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        // Most machines have no gaps: the row is the id.
        match self.cpus.get(id.idx()) {
            Some(cpu) if cpu.id == id => Some(cpu),
            _ => self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok().map(|row| &self.cpus[row]),
        }
    }

    /// The LLC domain of a CPU, if it is online.
    #[must_use]
    pub fn llc_of(&self, id: CpuId) -> Option<LlcId> {
        self.cpu(id).map(|cpu| cpu.llc)
    }

    /// The online CPUs of an LLC domain, ascending; none for an unknown domain.
    #[must_use]
    pub fn llc_cpus(&self, id: LlcId) -> &[CpuId] {
        self.llcs.get(id.idx()).map_or(&[], |llc| &llc.cpus)
    }

    /// The online CPUs of a physical core, ascending; none for an unknown core.
    #[must_use]
    pub fn core_cpus(&self, core: u32) -> &[CpuId] {
        self.cores.get(core as usize).map_or(&[], Vec::as_slice)
    }

    /// The online CPUs that share a core with this one, itself included, ascending; none if it is not online.
    #[must_use]
    pub fn siblings(&self, id: CpuId) -> &[CpuId] {
        self.cpu(id).map_or(&[], |cpu| self.core_cpus(cpu.core))
    }

    /// Whether every CPU is at full speed relative to the others.
    #[must_use]
    pub fn is_symmetric(&self) -> bool {
        self.cpus.windows(2).all(|pair| pair[0].capacity == pair[1].capacity)
    }

    /// Verifies what everything else relies on. Call it on a topology that came from outside (a file, a recording).
    ///
    /// # Errors
    /// [`TopologyError::TooManyCpus`], or [`TopologyError::Invalid`] with the first contradiction found.
    pub fn check(&self) -> Result<(), TopologyError> {
        if self.id_limit as usize > MAX_CPUS {
            return Err(TopologyError::TooManyCpus { id_limit: self.id_limit });
        }
        self.check_cpus()?;
        let llcs = self.llcs.iter().map(|llc| llc.cpus.as_slice());
        check_partition("LLC domain", &self.cpus, llcs, |cpu| cpu.llc.0)?;
        let cores = self.cores.iter().map(Vec::as_slice);
        check_partition("core", &self.cpus, cores, |cpu| cpu.core)?;
        if let Some(row) = (0..self.llcs.len()).find(|&row| self.llcs[row].id.idx() != row) {
            return invalid(format!("LLC domain in row {row} is numbered {}", self.llcs[row].id.0));
        }
        for core in &self.cores {
            if core.iter().any(|&id| self.llc_of(id) != self.llc_of(core[0])) {
                return invalid(format!("the core of CPU {} spans two LLC domains", core[0].0));
            }
        }
        Ok(())
    }

    fn check_cpus(&self) -> Result<(), TopologyError> {
        let Some(last) = self.cpus.last() else {
            return invalid("no CPU".into());
        };
        if let Some(pair) = self.cpus.windows(2).find(|pair| pair[0].id >= pair[1].id) {
            return invalid(format!("CPU {} comes after CPU {}", pair[1].id.0, pair[0].id.0));
        }
        if last.id.0 >= self.id_limit {
            return invalid(format!(
                "CPU {} is online, but only {} ids are possible",
                last.id.0, self.id_limit
            ));
        }
        match self.cpus.iter().find(|cpu| !(1..=FULL_CAPACITY).contains(&cpu.capacity)) {
            Some(cpu) => {
                invalid(format!("CPU {} has capacity {}, not 1 to {FULL_CAPACITY}", cpu.id.0, cpu.capacity))
            }
            None => Ok(()),
        }
    }
}

fn invalid(what: String) -> Result<(), TopologyError> {
    Err(TopologyError::Invalid(what))
}

/// Every CPU is in exactly the group that it names; groups are not empty, ascend inside and by their lowest CPU.
fn check_partition<'a>(
    kind: &str,
    cpus: &[Cpu],
    groups: impl Iterator<Item = &'a [CpuId]>,
    group_of: impl Fn(&Cpu) -> u32,
) -> Result<(), TopologyError> {
    let mut members = 0;
    let mut lowest = None;
    for (row, group) in groups.enumerate() {
        let Some(&first) = group.first() else {
            return invalid(format!("{kind} {row} has no CPU"));
        };
        if lowest >= Some(first) || group.windows(2).any(|pair| pair[0] >= pair[1]) {
            return invalid(format!("{kind} {row} is not in ascending order"));
        }
        lowest = Some(first);
        members += group.len();
        for id in group {
            let named =
                cpus.binary_search_by_key(id, |cpu| cpu.id).ok().map(|cpu| group_of(&cpus[cpu]) as usize);
            if named != Some(row) {
                return invalid(format!("{kind} {row} lists CPU {}, which is not in it", id.0));
            }
        }
    }
    if members != cpus.len() {
        return invalid(format!("{} of {} CPUs are in no {kind}", cpus.len() - members, cpus.len()));
    }
    Ok(())
}
