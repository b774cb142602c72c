// SPDX-License-Identifier: GPL-2.0-only
//! What a simulation found, and who may watch it run.

use crate::dispatcher::Config;
use crate::event::{Command, Event, Outcome, Runnable};
use crate::ids::{CpuId, Nanos, TaskId};
use crate::stats::Stats;
use crate::topology::Topology;
use crate::view::View;
use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest latency that is told apart; longer ones count as this and as [`Latency::clamped`].
const MAX_NS: u64 = 100_000_000_000;

/// Latencies in nanoseconds: three significant digits. As JSON: count, mean, usual percentiles, and all buckets, from
/// which it is read back exactly.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
    /// Values beyond what is told apart.
    pub clamped: u64,
}

impl Latency {
    /// Nothing yet.
    ///
    /// # Panics
    /// Never: the bounds are constants that the histogram accepts.
    #[must_use]
    pub fn new() -> Self {
        match Histogram::new_with_bounds(1, MAX_NS, 3) {
            Ok(histogram) => Self { histogram, clamped: 0 },
            Err(e) => unreachable!("constant bounds: {e}"),
        }
    }

    /// Notes one.
    #[inline]
    pub fn record(&mut self, ns: Nanos) {
        self.clamped += u64::from(ns > MAX_NS);
        self.histogram.saturating_record(ns);
    }

    /// Takes in what another has seen.
    pub fn merge(&mut self, other: &Latency) {
        self.clamped += other.clamped;
        for value in other.histogram.iter_recorded() {
            self.histogram.saturating_record_n(value.value_iterated_to(), value.count_at_value());
        }
    }

    /// The histogram.
    #[must_use]
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The value below which `percent` of 100 lie.
    #[must_use]
    pub fn percentile_ns(&self, percent: f64) -> Nanos {
        self.histogram.value_at_percentile(percent)
    }

    /// The mean, from the buckets.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.histogram.mean()
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Latency {
    fn eq(&self, other: &Self) -> bool {
        self.clamped == other.clamped && self.histogram == other.histogram
    }
}

/// [`Latency`] as it is written.
#[derive(Serialize, Deserialize)]
struct LatencyJson {
    count: u64,
    mean_ns: f64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    p99_9_ns: u64,
    max_ns: u64,
    clamped: u64,
    /// Value and count.
    buckets: Vec<(u64, u64)>,
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        LatencyJson {
            count: self.count(),
            mean_ns: self.mean_ns(),
            p50_ns: self.percentile_ns(50.0),
            p90_ns: self.percentile_ns(90.0),
            p99_ns: self.percentile_ns(99.0),
            p99_9_ns: self.percentile_ns(99.9),
            max_ns: self.histogram.max(),
            clamped: self.clamped,
            buckets: self
                .histogram
                .iter_recorded()
                .map(|value| (value.value_iterated_to(), value.count_at_value()))
                .collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = LatencyJson::deserialize(deserializer)?;
        let mut latency = Latency::new();
        latency.clamped = json.clamped;
        for (value, count) in json.buckets {
            latency.histogram.saturating_record_n(value, count);
        }
        Ok(latency)
    }
}

/// What one group of tasks (or the workers of one service) went through.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupResult {
    /// Its name in the scenario.
    pub name: String,
    /// From a wakeup until the task runs.
    pub wakeup: Latency,
    /// From intended start until the answer (services only).
    pub request: Latency,
    /// Requests answered.
    pub requests: u64,
    /// Requests turned away because the service was full.
    pub rejected: u64,
    /// Runs of its tasks (from getting a CPU until leaving it).
    pub runs: u64,
    /// Work done, in full-speed warm-cache CPU time.
    pub work_ns: Nanos,
    /// CPU time used for it.
    pub cpu_ns: Nanos,
    /// Of that: for fetching state again.
    pub refill_ns: Nanos,
    /// Tasks that exited.
    pub exits: u64,
}

/// Moves between CPUs, counted when a task starts to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migrations {
    /// On the CPU of the run before.
    pub same_cpu: u64,
    /// On another of the same LLC domain.
    pub within_llc: u64,
    /// In another LLC domain.
    pub across_llc: u64,
}

/// How much worse wakeups went than the better of waiting and moving, by true costs: when the dispatcher read the record of
/// a sampled wakeup, the true wait for each allowed CPU (what runs and waits there) plus the true refill there was worked
/// out, as if nothing else happened; the smallest of these is the best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Regret {
    /// Wakeups looked at.
    pub samples: u64,
    /// Their wait and refill, as it came.
    pub actual_ns: u64,
    /// The best there was.
    pub best_ns: u64,
    /// Sum of the differences where it came worse than the best.
    pub regret_ns: u64,
}

impl Regret {
    /// Mean regret of a wakeup.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.regret_ns as f64 / (self.samples.max(1)) as f64
    }
}

/// One CPU's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuResult {
    /// Its number.
    pub cpu: u32,
    /// Ran tasks (switching included).
    pub busy_ns: Nanos,
    /// Held by a higher class.
    pub held_ns: Nanos,
    /// Taken by the dispatcher.
    pub dispatcher_ns: Nanos,
}

/// What happened in the kernel and to the dispatcher, faults included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Engine events: agenda entries, records, status readings, commits, starts and stops.
    pub events: u64,
    /// Turns of the dispatcher.
    pub rounds: u64,
    /// Wakeups (of tasks that slept).
    pub wakeups: u64,
    /// Records written.
    pub records: u64,
    /// Tasks that went to FALLBACK because the ring was full.
    pub ring_full: u64,
    /// Slices of lone tasks extended.
    pub extended: u64,
    /// Takeovers.
    pub takeovers: u64,
    /// Rescans after a takeover or a known loss.
    pub rescans: u64,
    /// Waiting tasks told of again.
    pub pings: u64,
    /// Tasks rescued to FALLBACK.
    pub rescued: u64,
    /// Times the scheduler was attached anew.
    pub restarts: u64,
    /// Faults that were injected: records and exits lost, retries, bypasses.
    pub faults: u64,
    /// Random changes: affinity, weight, exits, forks.
    pub meddled: u64,
    /// Tasks that were preempted by a decision or a higher class.
    pub preempted: u64,
}

/// Broken promises of the policy, by kind (see [`crate::checked::Violations`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promises {
    /// All kinds together.
    pub total: u64,
    /// A CPU that is not online or not allowed.
    pub cpu: u64,
    /// A slice or a wait out of bounds.
    pub bounds: u64,
    /// Told to run on a CPU that is not idle.
    pub not_idle: u64,
    /// Told to wait beside an idle CPU.
    pub idle_left: u64,
    /// A wrong pick.
    pub pick: u64,
}

/// One run of one policy on one scenario with one seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The scenario's name.
    pub scenario: String,
    /// The policy's name.
    pub policy: String,
    /// The seed.
    pub seed: u64,
    /// Simulated time measured (without the warm-up).
    pub measured_ns: Nanos,
    /// All groups and services together.
    pub total: GroupResult,
    /// Each, in the scenario's order: task groups, then services.
    pub groups: Vec<GroupResult>,
    /// Moves.
    pub migrations: Migrations,
    /// Against the better of wait and migrate.
    pub regret: Regret,
    /// Each CPU of the machine.
    pub cpus: Vec<CpuResult>,
    /// Longest time that a task waited for a CPU.
    pub max_wait_ns: Nanos,
    /// What happened, warm-up included.
    pub counts: Counts,
    /// Broken promises, warm-up included.
    pub promises: Promises,
    /// What the dispatcher counted, warm-up included (of the last one, if it was attached anew).
    pub stats: Stats,
    /// Work asked for: by phases and requests that began.
    pub work_in_ns: Nanos,
    /// Work done, left over at the end, and lost with tasks that were made to exit: together the work asked for.
    pub work_out_ns: [Nanos; 3],
}

impl RunResult {
    /// Share of the CPUs' time that ran tasks, 0 to 1.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        let busy: u64 = self.cpus.iter().map(|cpu| cpu.busy_ns).sum();
        busy as f64 / (self.measured_ns.max(1) as f64 * self.cpus.len().max(1) as f64)
    }

    /// Answers per second of simulated time.
    #[must_use]
    pub fn requests_per_s(&self) -> f64 {
        self.total.requests as f64 * 1e9 / self.measured_ns.max(1) as f64
    }

    /// Mean time a wakeup spends fetching state again.
    #[must_use]
    pub fn refill_per_wakeup_ns(&self) -> f64 {
        self.total.refill_ns as f64 / self.total.wakeup.count().max(1) as f64
    }
}

/// A run of a task on a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Who.
    pub task: TaskId,
    /// Row in [`RunResult::groups`].
    pub group: u32,
    /// Where.
    pub cpu: CpuId,
    /// When it got the CPU.
    pub start_ns: Nanos,
    /// When it left it.
    pub end_ns: Nanos,
    /// How long it had waited before.
    pub waited_ns: Nanos,
    /// What it found of its state at the start: share of the full refill that it did not have to pay, 0 to 1.
    pub warmth: f64,
    /// Time spent fetching state.
    pub refill_ns: Nanos,
    /// Work done.
    pub work_ns: Nanos,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Row in [`RunResult::groups`].
    pub group: u32,
    /// When it was to start.
    pub intended_ns: Nanos,
    /// When a worker began with it.
    pub begun_ns: Nanos,
    /// When it was answered.
    pub done_ns: Nanos,
    /// CPU time that it asked for.
    pub demand_ns: Nanos,
}

/// Watches a run. Every method does nothing by default, and costs nothing then.
pub trait Observer {
    /// Does anybody look? If not, nothing is gathered for the hooks.
    const ACTIVE: bool = true;

    /// The daemon attaches: a new dispatcher is made from these.
    fn attached(&mut self, config: &Config, machine: &Topology) {
        let _ = (config, machine);
    }

    /// A call of [`Dispatcher::handle`](crate::dispatcher::Dispatcher::handle).
    fn handed(&mut self, now: Nanos, event: &Event) {
        let _ = (now, event);
    }

    /// A call of [`Dispatcher::poll`](crate::dispatcher::Dispatcher::poll), and what it returned.
    fn asked(&mut self, now: Nanos, command: Option<&Command>) {
        let _ = (now, command);
    }

    /// A call of [`Dispatcher::committed`](crate::dispatcher::Dispatcher::committed).
    fn settled(&mut self, now: Nanos, command: &Command, outcome: Outcome) {
        let _ = (now, command, outcome);
    }

    /// A task got a CPU at `now`, having waited for `waited_ns`; `warmth` as in [`Run::warmth`].
    fn started(&mut self, now: Nanos, task: TaskId, group: u32, cpu: CpuId, waited_ns: Nanos, warmth: f64) {
        let _ = (now, task, group, cpu, waited_ns, warmth);
    }

    /// A task left its CPU.
    fn stopped(&mut self, run: &Run) {
        let _ = run;
    }

    /// The dispatcher read that a task wants a CPU.
    fn runnable(&mut self, now: Nanos, runnable: &Runnable) {
        let _ = (now, runnable);
    }

    /// The dispatcher decided; `view` is what it knew then (the decision itself included).
    fn polled(&mut self, now: Nanos, command: &Command, view: &View) {
        let _ = (now, command, view);
    }

    /// A decision took effect, or not. `runnable` is the last one read for that task.
    fn decided(&mut self, now: Nanos, runnable: &Runnable, command: &Command, outcome: Outcome) {
        let _ = (now, runnable, command, outcome);
    }

    /// A request was answered.
    fn answered(&mut self, request: &Request) {
        let _ = request;
    }

    /// A higher class took a CPU or gave it back.
    fn held(&mut self, now: Nanos, cpu: CpuId, held: bool) {
        let _ = (now, cpu, held);
    }

    /// The kernel side took over (true), or the dispatcher leads again.
    fn takeover(&mut self, now: Nanos, on: bool) {
        let _ = (now, on);
    }
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    const ACTIVE: bool = false;
}
