// SPDX-License-Identifier: GPL-2.0-only
//! Reads the machine from sysfs.
//!
//! Only `cpu/online` must exist. Everything else is missing on some real machine (phantom CPUs, guests without cache
//! files, boards without an L3, kernels without NUMA), and has a fallback.

use super::build::assemble;
use super::{Cpu, FULL_CAPACITY, Topology, TopologyError, parse_cpu_list, read_cpu_list};
use crate::ids::{CpuId, LlcId};
use crate::limits::MAX_CPUS;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where the kernel shows the machine.
pub const SYSFS_ROOT: &str = "/sys/devices/system";

/// A cache below this level is private to a core everywhere: no domain to keep tasks in.
const MIN_LLC_LEVEL: u32 = 2;

impl Topology {
    /// Reads the machine from `root`, a directory that stands for [`SYSFS_ROOT`] (`cpu/` and `node/` below it).
    ///
    /// An LLC domain is the CPUs that share the highest cache level with a readable `shared_cpu_list`; a CPU without
    /// one shares a domain with the others of its package that have none.
    /// SMT siblings come from the sibling lists alone: `core_id` repeats in every cluster on some machines.
    ///
    /// # Errors
    /// If the list of online CPUs cannot be read, or the machine has more possible CPUs than [`MAX_CPUS`].
    pub fn from_sysfs(root: &Path) -> Result<Topology, TopologyError> {
        let cpu_root = root.join("cpu");
        let online = read_cpu_list(&cpu_root.join("online"))?;
        let id_limit = id_limit(&cpu_root, &online)?;

        let dir = |id: CpuId| cpu_root.join(format!("cpu{}", id.0));
        let package: BTreeMap<CpuId, i64> = online.iter().map(|&id| (id, package_of(&dir(id)))).collect();
        let caches: BTreeMap<CpuId, Vec<CpuId>> =
            online.iter().filter_map(|&id| Some((id, last_level_cache(&dir(id))?))).collect();
        let llc = partition(&online, |id| match caches.get(&id) {
            Some(shared) => shared.clone(),
            None => {
                let alike = |o: &CpuId| !caches.contains_key(o) && package.get(o) == package.get(&id);
                online.iter().copied().filter(alike).collect()
            }
        });
        // A core lies in one domain by definition; some emulated machines claim otherwise.
        let core = partition(&online, |id| {
            let mut siblings = siblings_of(&dir(id));
            siblings.retain(|other| llc.get(other) == llc.get(&id));
            siblings
        });
        let node = nodes(&root.join("node"));

        let row = |map: &BTreeMap<CpuId, u32>, id: CpuId| map.get(&id).copied().unwrap_or(0);
        let cpus = online.iter().map(|&id| Cpu {
            id,
            core: row(&core, id),
            llc: LlcId(row(&llc, id)),
            node: row(&node, id),
            capacity: capacity_of(&dir(id)),
        });
        assemble(cpus.collect(), id_limit)
    }
}

/// One more than the highest id that any list names. `possible` may be missing in a container's sysfs.
fn id_limit(cpu_root: &Path, online: &[CpuId]) -> Result<u32, TopologyError> {
    let possible = match read_cpu_list(&cpu_root.join("possible")) {
        Err(TopologyError::Read { .. }) => Vec::new(),
        other => other?,
    };
    let highest = possible.last().max(online.last()).map_or(0, |id| id.0);
    let id_limit = highest.saturating_add(1);
    if id_limit as usize > MAX_CPUS {
        return Err(TopologyError::TooManyCpus { id_limit });
    }
    Ok(id_limit)
}

/// Numbers groups of CPUs densely by their lowest CPU. Where two CPUs disagree about their group, the lower one's
/// word counts, so that every CPU ends up in exactly one group.
fn partition(online: &[CpuId], group: impl Fn(CpuId) -> Vec<CpuId>) -> BTreeMap<CpuId, u32> {
    let mut rows: BTreeMap<CpuId, u32> = BTreeMap::new();
    let mut next = 0;
    for &id in online {
        if rows.contains_key(&id) {
            continue;
        }
        rows.insert(id, next);
        for other in group(id) {
            if online.binary_search(&other).is_ok() {
                rows.entry(other).or_insert(next);
            }
        }
        next += 1;
    }
    rows
}

/// The CPUs that share the highest cache level with this one.
fn last_level_cache(cpu_dir: &Path) -> Option<Vec<CpuId>> {
    let indexes = fs::read_dir(cpu_dir.join("cache")).ok()?;
    let caches = indexes.filter_map(|entry| {
        let dir = entry.ok()?.path();
        let level: u32 = number(&dir.join("level"))?;
        let shared = list(&dir.join("shared_cpu_list"))?;
        (level >= MIN_LLC_LEVEL).then_some((level, shared))
    });
    caches.max_by_key(|(level, shared)| (*level, shared.len())).map(|(_, shared)| shared)
}

/// The CPUs of the same core, or none where the kernel does not say. `thread_siblings_list` is the older name.
fn siblings_of(cpu_dir: &Path) -> Vec<CpuId> {
    let topology = cpu_dir.join("topology");
    list(&topology.join("core_cpus_list"))
        .or_else(|| list(&topology.join("thread_siblings_list")))
        .unwrap_or_default()
}

/// The package number; -1 where unknown, which is also what the kernel itself says on some boards.
fn package_of(cpu_dir: &Path) -> i64 {
    number(&cpu_dir.join("topology/physical_package_id")).unwrap_or(-1)
}

/// A CPU that came up late can show capacity 0 for a while: taken as full, since the number is a divisor.
fn capacity_of(cpu_dir: &Path) -> u32 {
    match number(&cpu_dir.join("cpu_capacity")) {
        Some(capacity) if capacity > 0 => FULL_CAPACITY.min(capacity),
        _ => FULL_CAPACITY,
    }
}

/// The NUMA node of each CPU; empty on kernels without NUMA. Nodes without CPUs (memory only) have an empty list.
fn nodes(node_root: &Path) -> BTreeMap<CpuId, u32> {
    let mut nodes = BTreeMap::new();
    let Ok(entries) = fs::read_dir(node_root) else {
        return nodes;
    };
    for dir in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if let Some(node) = node_number(&dir) {
            let cpus = list(&dir.join("cpulist")).unwrap_or_default();
            nodes.extend(cpus.into_iter().map(|id| (id, node)));
        }
    }
    nodes
}

fn node_number(dir: &Path) -> Option<u32> {
    dir.file_name()?.to_str()?.strip_prefix("node")?.parse().ok()
}

fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    read(path)?.trim_matches(|c: char| c == '\0' || c.is_whitespace()).parse().ok()
}

fn list(path: &Path) -> Option<Vec<CpuId>> {
    parse_cpu_list(&read(path)?).ok()
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}
