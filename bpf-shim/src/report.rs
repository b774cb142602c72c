// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's numbers as one JSON object: the shim's counters, the dispatcher's own, the kernel's events.
//!
//! Everything that shows numbers (`--stats`, `--json`, the socket, the exit report) shows this object or a line made
//! from it (`line.rs`).

use crate::driver::Counts;
use crate::sys;
use crate::wire::{NR_STATS, STAT_NAMES};
use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use hearth::ids::Nanos;
use hearth::stats::Stats;
use hearth::topology::Topology;
use libbpf_rs::{MapCore, MapFlags};
use serde_json::{Map, Value, json};

/// The kernel's own counters of the scheduler that is attached.
const EVENTS: &str = "/sys/kernel/sched_ext/root/events";

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
}

/// The middle, the tail and the end of a distribution, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread {
    p50: u64,
    p99: u64,
    max: u64,
}

impl Spread {
    fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            max: histogram.max(),
        }
    }
}

/// What the dispatcher thread says about itself: plain data, so that handing it over allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    core: Stats,
    sleeps: u64,
    turns: u64,
    commits: u64,
    resumes: u64,
    resume_max_ns: Nanos,
    records: u64,
    notice_ns: Spread,
    commit_ns: Spread,
    cpu_ns: Nanos,
    page_faults: u64,
}

/// The dispatcher thread's use of the machine, counted from when it began to dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    cpu_ns: Nanos,
    page_faults: u64,
}

impl Meter {
    /// Counts from now. To be called, like [`Self::snapshot`], on the dispatcher thread.
    pub fn start() -> Self {
        Self { cpu_ns: sys::thread_cpu_ns(), page_faults: sys::thread_faults() }
    }

    /// The thread's numbers now.
    pub fn snapshot(&self, core: &Stats, driver: &Counts) -> Snapshot {
        Snapshot {
            core: core.clone(),
            sleeps: driver.sleeps,
            turns: driver.turns,
            commits: driver.commits,
            resumes: driver.resumes,
            resume_max_ns: driver.resume_max_ns,
            records: driver.records,
            notice_ns: Spread::of(&driver.notice_ns),
            commit_ns: Spread::of(&driver.commit_ns),
            cpu_ns: sys::thread_cpu_ns().saturating_sub(self.cpu_ns),
            page_faults: sys::thread_faults().saturating_sub(self.page_faults),
        }
    }
}

/// What does not change while attached.
#[derive(Clone, Debug)]
pub struct Facts {
    policy: String,
    kernel: String,
    cpus: usize,
    llcs: usize,
    real_time: bool,
    began_ns: Nanos,
}

impl Facts {
    /// The facts of an attachment that begins now.
    #[must_use]
    pub fn new(policy: &str, topology: &Topology, real_time: bool) -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            policy: policy.into(),
            kernel: kernel.trim().into(),
            cpus: topology.cpus.len(),
            llcs: topology.llcs.len(),
            real_time,
            began_ns: sys::now_ns(),
        }
    }
}

/// The whole picture: totals since the attachment began, then every counter by name.
#[must_use]
pub fn json(facts: &Facts, shim: &Counters, dispatcher: &Snapshot, events: &Value) -> Value {
    let all: Map<String, Value> =
        STAT_NAMES.iter().zip(&shim.0).map(|(name, value)| ((*name).to_string(), json!(value))).collect();
    let now = sys::now_ns();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "policy": facts.policy,
        "kernel": facts.kernel,
        "cpus": facts.cpus,
        "llcs": facts.llcs,
        "at_ns": now,
        "attached_ms": now.saturating_sub(facts.began_ns) / 1_000_000,
        "forwarded": shim.sum("forwarded_"),
        "fallback": shim.sum("fallback_"),
        "in_kernel": shim.sum("in_kernel_"),
        "bypassed": shim.get("bypassed"),
        "decided": dispatcher.core.decisions,
        "committed": shim.get("committed"),
        "recalled": shim.get("recalled"),
        "retried": shim.get("retried"),
        "stale": shim.get("stale"),
        "taken_over": shim.get("taken_over"),
        "migrations_llc": shim.get("migrations_llc"),
        "migrations_cross_llc": shim.get("migrations_cross_llc"),
        "shim": all,
        "core": dispatcher.core,
        "dispatcher": {
            "sleeps": dispatcher.sleeps,
            "turns": dispatcher.turns,
            "commits": dispatcher.commits,
            "resumes": dispatcher.resumes,
            "resume_max_us": dispatcher.resume_max_ns / 1000,
            "records": dispatcher.records,
            "notice_p50_ns": dispatcher.notice_ns.p50,
            "notice_p99_ns": dispatcher.notice_ns.p99,
            "notice_max_ns": dispatcher.notice_ns.max,
            "commit_p50_ns": dispatcher.commit_ns.p50,
            "commit_p99_ns": dispatcher.commit_ns.p99,
            "commit_max_ns": dispatcher.commit_ns.max,
            "page_faults": dispatcher.page_faults,
            "cpu_us": dispatcher.cpu_ns / 1000,
            "real_time": facts.real_time,
        },
        "events": events,
    })
}

/// The kernel's counters by name; null where there are none (old kernels, or the scheduler has ended).
#[must_use]
pub fn events() -> Value {
    std::fs::read_to_string(EVENTS).map_or(Value::Null, |text| parse_events(&text))
}

fn parse_events(text: &str) -> Value {
    let pairs = text.lines().filter_map(|line| {
        let (name, count) = line.split_once(char::is_whitespace)?;
        Some((name.to_string(), json!(count.trim().parse::<i64>().ok()?)))
    });
    Value::Object(pairs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_as_the_kernel_prints_them() {
        let text = "SCX_EV_SELECT_CPU_FALLBACK 0\nSCX_EV_BYPASS_ACTIVATE 12\nnonsense\nX y\n";
        assert_eq!(
            parse_events(text),
            json!({"SCX_EV_SELECT_CPU_FALLBACK": 0, "SCX_EV_BYPASS_ACTIVATE": 12})
        );
    }

    #[test]
    fn counters_are_grouped_by_prefix_and_all_shown() {
        let mut counters = Counters([0; NR_STATS]);
        for (i, name) in STAT_NAMES.iter().enumerate() {
            counters.0[i] = if name.starts_with("forwarded_") { 10 } else { 1 };
        }
        let facts = Facts::new("fifo", &Topology::grid(2, 2, 1), true);
        let value = json(&facts, &counters, &Snapshot::default(), &Value::Null);
        assert_eq!(value["forwarded"], 50);
        assert_eq!(value["fallback"], 3);
        assert_eq!(value["shim"].as_object().unwrap().len(), NR_STATS);
        assert_eq!((&value["cpus"], &value["llcs"]), (&json!(4), &json!(2)));
    }
}
