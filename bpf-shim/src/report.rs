// SPDX-License-Identifier: GPL-2.0-only
//! Statistics: the shim's counters and the dispatcher's own, as a line for people and as JSON for scripts.

use crate::driver::Counts;
use crate::wire::{NR_STATS, STAT_NAMES};
use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags};
use serde_json::{Map, Value, json};

/// The shim's counters, summed over CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters(pub [u64; NR_STATS]);

impl Counters {
    /// Reads them from the shim's map.
    pub fn read(map: &impl MapCore) -> Result<Self> {
        let cpus = map
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .context("cannot read the shim's counters")?
            .unwrap_or_default();
        let mut sum = [0u64; NR_STATS];
        for cpu in &cpus {
            for (total, bytes) in sum.iter_mut().zip(cpu.chunks_exact(8)) {
                *total += u64::from_ne_bytes(bytes.try_into()?);
            }
        }
        Ok(Self(sum))
    }

    /// Nothing counted yet.
    #[must_use]
    pub fn zero() -> Self {
        Self([0; NR_STATS])
    }

    /// One counter by its JSON name; 0 for an unknown name.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        STAT_NAMES.iter().position(|n| *n == name).map_or(0, |i| self.0[i])
    }

    /// All that start with a prefix, added up.
    #[must_use]
    pub fn sum(&self, prefix: &str) -> u64 {
        STAT_NAMES.iter().zip(&self.0).filter(|(n, _)| n.starts_with(prefix)).map(|(_, v)| v).sum()
    }

    /// Tasks that were sent to the dispatcher.
    #[must_use]
    pub fn forwarded(&self) -> u64 {
        self.sum("forwarded_")
    }

    /// What has been counted since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].saturating_sub(before.0[i])))
    }
}

/// The whole picture as JSON: totals, then every counter by name.
#[must_use]
pub fn json(
    policy: &str,
    topology: &hearth::topology::Topology,
    shim: &Counters,
    core: &hearth::stats::Stats,
    driver: &Counts,
) -> Value {
    let mut all = Map::new();
    for (name, value) in STAT_NAMES.iter().zip(&shim.0) {
        all.insert((*name).to_string(), json!(value));
    }
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "policy": policy,
        "kernel": kernel.trim(),
        "cpus": topology.cpus.len(),
        "llcs": topology.llcs.len(),
        "forwarded": shim.forwarded(),
        "fallback": shim.sum("fallback_"),
        "in_kernel": shim.sum("in_kernel_"),
        "bypassed": shim.get("bypassed"),
        "decided": core.decisions,
        "committed": shim.get("committed"),
        "recalled": shim.get("recalled"),
        "retried": shim.get("retried"),
        "stale": shim.get("stale"),
        "taken_over": shim.get("taken_over"),
        "migrations_llc": shim.get("migrations_llc"),
        "migrations_cross_llc": shim.get("migrations_cross_llc"),
        "shim": Value::Object(all),
        "core": core,
        "dispatcher": {
            "sleeps": driver.sleeps,
            "turns": driver.turns,
            "commits": driver.commits,
            "resumes": driver.resumes,
            "resume_max_us": driver.resume_max_ns / 1000,
            "records": driver.records,
        },
    })
}

/// One line for people: what happened since `before`.
#[must_use]
pub fn line(now: &Counters, before: &Counters) -> String {
    let d = now.since(before);
    format!(
        "forwarded {:>8}  committed {:>8}  retried {:>4}  stale {:>4}  recalled {:>5}  fallback {:>5}  in kernel {:>6}  bypassed {:>4}  taken over {:>5}  migrations {:>6} in LLC, {:>5} across",
        d.forwarded(),
        d.get("committed"),
        d.get("retried"),
        d.get("stale"),
        d.get("recalled"),
        d.sum("fallback_"),
        d.sum("in_kernel_"),
        d.get("bypassed"),
        d.get("taken_over"),
        d.get("migrations_llc"),
        d.get("migrations_cross_llc"),
    )
}
