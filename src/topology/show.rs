// SPDX-License-Identifier: GPL-2.0-only
//! A short picture of the machine for people.

use super::{FULL_CAPACITY, Llc, Topology, format_cpu_list};
use crate::ids::CpuId;
use std::collections::BTreeMap;
use std::fmt;

/// Above this many CPUs a domain is drawn as a CPU list, not CPU by CPU.
const DRAWN_CPUS: usize = 32;

/// Above this many domains only the first ones are drawn.
const DRAWN_LLCS: usize = 16;

/// Above this many different capacities only the highest ones are listed.
const DRAWN_SPEEDS: usize = 4;

/// `2 LLC domains x 2 cores: [0 1] [2 3]`; SMT siblings are joined by commas: `[0,1 2,3]`.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_shape(f)?;
        write!(f, ":")?;
        for llc in self.llcs.iter().take(DRAWN_LLCS) {
            write!(f, " [{}]", self.draw(&llc.cpus))?;
        }
        if self.llcs.len() > DRAWN_LLCS {
            write!(f, " and {} more", self.llcs.len() - DRAWN_LLCS)?;
        }
        self.write_extras(f)
    }
}

impl Topology {
    /// Regular machines as a product, others as counts.
    fn write_shape(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let llcs = self.llcs.len();
        let cores_of = |llc: &Llc| self.leaders(&llc.cpus).count();
        let cores = self.llcs.first().map_or(0, cores_of);
        let threads = self.cores.first().map_or(0, Vec::len);
        let regular = self.llcs.iter().all(|llc| cores_of(llc) == cores)
            && self.cores.iter().all(|core| core.len() == threads);
        write!(f, "{}", plural(llcs, "LLC domain"))?;
        if regular {
            write!(f, " x {}", plural(cores, "core"))?;
            return if threads > 1 { write!(f, " x {threads} threads") } else { Ok(()) };
        }
        write!(f, ", {}, {}", plural(self.cores.len(), "core"), plural(self.cpus.len(), "CPU"))
    }

    /// The first CPU of each core among `cpus` (a core lies in one domain).
    fn leaders<'a>(&'a self, cpus: &'a [CpuId]) -> impl Iterator<Item = CpuId> + 'a {
        cpus.iter().copied().filter(|&id| self.siblings(id).first() == Some(&id))
    }

    fn draw(&self, cpus: &[CpuId]) -> String {
        if self.cpus.len() > DRAWN_CPUS {
            return format_cpu_list(cpus);
        }
        let core = |id| self.siblings(id).iter().map(|id| id.0.to_string()).collect::<Vec<_>>().join(",");
        self.leaders(cpus).map(core).collect::<Vec<_>>().join(" ")
    }

    /// What most machines do not have: several nodes, unequal CPUs.
    fn write_extras(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut nodes: Vec<u32> = self.cpus.iter().map(|cpu| cpu.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.len() > 1 {
            write!(f, "; {} NUMA nodes", nodes.len())?;
        }
        let mut speeds: BTreeMap<u32, usize> = BTreeMap::new();
        for cpu in &self.cpus {
            *speeds.entry(cpu.capacity).or_default() += 1;
        }
        if speeds.keys().ne([FULL_CAPACITY].iter()) {
            let drawn = speeds.iter().rev().take(DRAWN_SPEEDS);
            let drawn: Vec<String> = drawn.map(|(capacity, cpus)| format!("{cpus} of {capacity}")).collect();
            write!(f, "; capacities: {}", drawn.join(", "))?;
            if speeds.len() > DRAWN_SPEEDS {
                write!(f, " and {} more", speeds.len() - DRAWN_SPEEDS)?;
            }
        }
        Ok(())
    }
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
