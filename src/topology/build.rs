// SPDX-License-Identifier: GPL-2.0-only
//! Machines built by hand: for tests, the simulator and teaching.

use super::{Cpu, Llc, Topology, TopologyError};
use crate::ids::{CpuId, LlcId};
use crate::limits::MAX_CPUS;

/// Builds a [`Topology`] from left to right: open a domain, add cores to it, open the next one.
///
/// ```
/// use hearth::topology::Topology;
/// // A hybrid: two fast cores with SMT, then four slow ones behind a cache of their own.
/// let machine = Topology::builder().llc().cores(2, 2, 1024).llc().cores(4, 1, 600).build().unwrap();
/// assert_eq!(machine.cpus.len(), 8);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    cpus: Vec<Cpu>,
    llcs: u32,
    nodes: u32,
    cores: u32,
    next_id: u32,
    possible_cpus: u32,
    broken: Option<String>,
}

impl Builder {
    /// Opens the next LLC domain; the cores that follow are in it.
    #[must_use]
    pub fn llc(mut self) -> Self {
        self.llcs += 1;
        self
    }

    /// Opens the next NUMA node; the domains that follow are in it. Not needed on a machine with one node.
    #[must_use]
    pub fn node(mut self) -> Self {
        self.nodes += 1;
        self
    }

    /// Adds `count` cores of `threads` CPUs each to the domain opened last. `capacity` is 1 to 1024 (the fastest).
    #[must_use]
    pub fn cores(mut self, count: u32, threads: u32, capacity: u32) -> Self {
        if self.llcs == 0 {
            self.broken = Some("cores were added before the first LLC domain".into());
        }
        let added = u64::from(count) * u64::from(threads);
        if u64::from(self.next_id) + added > MAX_CPUS as u64 {
            self.broken = Some(format!("more than {MAX_CPUS} CPUs"));
        } else if added == 0 {
            self.broken = Some("no CPU in a domain: cores and threads must be at least 1".into());
        }
        if self.broken.is_some() {
            return self;
        }
        for _ in 0..count {
            for _ in 0..threads {
                self.cpus.push(Cpu {
                    id: CpuId(self.next_id),
                    core: self.cores,
                    llc: LlcId(self.llcs - 1),
                    node: self.nodes.saturating_sub(1),
                    capacity,
                });
                self.next_id += 1;
            }
            self.cores += 1;
        }
        self
    }

    /// Leaves out the next `count` CPU numbers, as if those CPUs were offline.
    #[must_use]
    pub fn offline(mut self, count: u32) -> Self {
        self.next_id = self.next_id.saturating_add(count);
        self
    }

    /// Makes `count` CPU numbers possible, of which only those added so far and later exist.
    #[must_use]
    pub fn possible(mut self, count: u32) -> Self {
        self.possible_cpus = count;
        self
    }

    /// The machine.
    ///
    /// # Errors
    /// [`TopologyError::Invalid`] if it has no CPU, an empty domain or a capacity out of bounds;
    /// [`TopologyError::TooManyCpus`] above [`MAX_CPUS`] possible CPUs.
    pub fn build(self) -> Result<Topology, TopologyError> {
        if let Some(what) = self.broken {
            return Err(TopologyError::Invalid(what));
        }
        assemble(self.cpus, self.possible_cpus.max(self.next_id))
    }
}

/// Completes a topology from its CPUs (ascending ids, domains and cores numbered by their lowest CPU) and checks it.
pub(super) fn assemble(cpus: Vec<Cpu>, id_limit: u32) -> Result<Topology, TopologyError> {
    let mut llcs: Vec<Llc> = Vec::new();
    let mut cores: Vec<Vec<CpuId>> = Vec::new();
    for cpu in &cpus {
        while llcs.len() <= cpu.llc.idx() {
            llcs.push(Llc { id: LlcId(llcs.len() as u32), cpus: Vec::new() });
        }
        llcs[cpu.llc.idx()].cpus.push(cpu.id);
        while cores.len() <= cpu.core as usize {
            cores.push(Vec::new());
        }
        cores[cpu.core as usize].push(cpu.id);
    }
    let topology = Topology { cpus, llcs, cores, id_limit };
    topology.check()?;
    Ok(topology)
}
