// SPDX-License-Identifier: GPL-2.0-only
//! The load of a scenario: tasks with phases, services with requests, and what takes CPUs away.

use super::{Dist, Problem};
use serde::{Deserialize, Serialize};

/// What a task keeps in caches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    /// Its hot set.
    pub wss_kb: f64,
    /// Pages that the hot set is spread over (0: as many as it fills; objects of a heap touch far more).
    pub hot_pages: f64,
    /// Code that it runs.
    pub code_kb: f64,
    /// A table that all tasks of the group share in the last-level cache (0: none).
    pub table_kb: f64,
    /// Misses under way at once: 1 for pointer chasing, 6 is common (algorithms 6.2: 4 to 8).
    pub mlp: f64,
    /// Share of a warm run that waits for memory, and so grows when neighbours use up the bandwidth.
    pub stall_pct: f64,
    /// Per-CPU user-space state (allocator and rseq caches): what a run pays on a CPU other than its last.
    pub percpu_ns: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            wss_kb: 64.0,
            hot_pages: 0.0,
            code_kb: 16.0,
            table_kb: 0.0,
            mlp: 6.0,
            stall_pct: 0.0,
            percpu_ns: 0,
        }
    }
}

/// Which tasks of a group a message goes to. "Set" is explained at [`TaskGroup::sets`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// The member with the sender's own number in the set.
    #[default]
    Pair,
    /// One after the other.
    Next,
    /// All of the set.
    All,
}

/// Where a message goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct To {
    /// Name of a task group.
    pub to: String,
    /// Which of it.
    #[serde(default)]
    pub who: Who,
}

/// How a task takes messages from its inbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wait {
    /// Take all that are there, not one.
    pub all: bool,
}

/// Nothing to say about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plain {}

/// New tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// Name of a task group.
    pub group: String,
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
}

/// Something several times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loop {
    /// How often.
    pub count: u32,
    /// What.
    pub phases: Vec<Phase>,
}

/// One step of a task's life. After the last comes the first again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Phase {
    /// Computes for so long (on a full-speed CPU, with warm caches).
    Run(Dist),
    /// Sleeps for so long.
    Sleep(Dist),
    /// Takes a message from its inbox; sleeps while there is none.
    Wait(Wait),
    /// Puts a message into an inbox; sleeps while that is full.
    Send(To),
    /// Sends, and sleeps until answered.
    Call(To),
    /// Answers everyone whose call it took last.
    Reply(Plain),
    /// Does something several times.
    Loop(Loop),
    /// Starts new tasks.
    Fork(Fork),
    /// Gives the CPU away.
    Yield(Plain),
    /// Ends.
    Exit(Plain),
}

/// Tasks that live the same life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskGroup {
    /// Its name in results and messages.
    pub name: String,
    /// Tasks in each set that exist from the start (0: they are forked by others).
    pub count: u32,
    /// Independent copies: messages go to members of the sender's own set.
    pub sets: u32,
    /// One task per CPU, bound to it, instead of `count`.
    pub per_cpu: bool,
    /// Scheduling weight: 100 is nice 0.
    pub weight: u32,
    /// CPUs that they may use, as a list ("0-3,8"; empty: all).
    pub cpus: String,
    /// Their cgroup.
    pub cgroup: u64,
    /// What they keep in caches.
    pub memory: Memory,
    /// Messages that an inbox holds before senders sleep (0: any number).
    pub inbox: u32,
    /// When each of them starts.
    pub start: Dist,
    /// What they do.
    pub phases: Vec<Phase>,
    /// Rounds of the phases before it exits (0: it never does).
    pub rounds: u32,
}

impl Default for TaskGroup {
    fn default() -> Self {
        Self {
            name: String::new(),
            count: 1,
            sets: 1,
            per_cpu: false,
            weight: 100,
            cpus: String::new(),
            cgroup: 1,
            memory: Memory::default(),
            inbox: 0,
            start: Dist::FixedUs(0.0),
            phases: Vec::new(),
            rounds: 0,
        }
    }
}

/// How often something comes: one of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rate {
    /// Per second.
    pub per_s: Option<f64>,
    /// So many that their service takes this share of the CPUs that the workers may use.
    pub load_pct: Option<f64>,
}

/// Requests in bursts, of this rate on average.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bursty {
    /// Average per second, or
    #[serde(default)]
    pub per_s: Option<f64>,
    /// average share of the CPUs.
    #[serde(default)]
    pub load_pct: Option<f64>,
    /// How long requests come (Poisson).
    pub on: Dist,
    /// How long none comes.
    pub off: Dist,
}

/// Clients that wait for the answer before they ask again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Closed {
    /// How many.
    pub clients: u32,
    /// From an answer to the next question.
    pub think: Dist,
}

/// Clients that ask at a pace, but never before the last answer (a rate limit per connection).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paced {
    /// How many.
    pub clients: u32,
    /// All of them together: per second, or
    #[serde(default)]
    pub per_s: Option<f64>,
    /// as a share of the CPUs.
    #[serde(default)]
    pub load_pct: Option<f64>,
}

/// Where requests come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrivals {
    /// Independent, at random.
    Poisson(Rate),
    /// Evenly spaced.
    Fixed(Rate),
    /// On and off.
    Bursty(Bursty),
    /// A closed loop.
    Closed(Closed),
    /// A closed loop with a pace (intervals are exponential).
    Paced(Paced),
}

/// Which worker a request goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queueing {
    /// One queue for all workers; of the idle ones the longest idle is woken.
    #[default]
    Shared,
    /// One queue for all workers; of the idle ones the last to become idle is woken.
    SharedLifo,
    /// Every connection belongs to a worker, as in memcached; each worker has its own queue.
    Bound,
    /// No workers: every request is a new task that exits with it.
    TaskPerRequest,
}

/// A service: requests, and worker tasks that serve them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// Its name in results.
    pub name: String,
    /// Worker tasks (0: as many as CPUs that they may use).
    pub workers: u32,
    /// Scheduling weight: 100 is nice 0.
    pub weight: u32,
    /// CPUs that the workers may use, as a list (empty: all).
    pub cpus: String,
    /// Their cgroup.
    pub cgroup: u64,
    /// What they keep in caches.
    pub memory: Memory,
    /// CPU time of a request (on a full-speed CPU, with warm caches).
    pub demand: Dist,
    /// Where requests come from.
    pub arrivals: Arrivals,
    /// Which worker gets them.
    pub queueing: Queueing,
    /// Connections of an open loop, for `bound` (0: four per worker). Clients are connections of their own.
    pub connections: u32,
    /// Requests in the system, those in service included, before more are turned away (0: no limit).
    pub limit: u32,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            name: String::new(),
            workers: 0,
            weight: 100,
            cpus: String::new(),
            cgroup: 1,
            memory: Memory::default(),
            demand: Dist::ExpUs(50.0),
            arrivals: Arrivals::Poisson(Rate { per_s: None, load_pct: Some(50.0) }),
            queueing: Queueing::Shared,
            connections: 0,
            limit: 0,
        }
    }
}

/// A higher scheduling class (real time) takes CPUs now and then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interference {
    /// Which CPUs, each on its own, as a list (empty: all).
    #[serde(default)]
    pub cpus: String,
    /// How long it holds one.
    pub busy: Dist,
    /// How long it leaves it alone.
    pub idle: Dist,
}

/// A CPU goes or comes back. The kernel then ends the scheduler, and the daemon reads the machine and attaches anew.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hotplug {
    /// When.
    pub at_ms: f64,
    /// Which.
    pub cpu: u32,
    /// Comes (true) or goes.
    pub online: bool,
}

fn one() -> u32 {
    1
}

impl Memory {
    pub(super) fn check(&self, key: &str) -> Result<(), Problem> {
        let numbers = [
            ("wss_kb", self.wss_kb, 0.0, 1e9),
            ("hot_pages", self.hot_pages, 0.0, 1e9),
            ("code_kb", self.code_kb, 0.0, 1e6),
            ("table_kb", self.table_kb, 0.0, 1e9),
            ("mlp", self.mlp, 1.0, 1000.0),
            ("stall_pct", self.stall_pct, 0.0, 100.0),
        ];
        match numbers.iter().find(|(_, v, least, most)| !v.is_finite() || v < least || v > most) {
            Some((name, value, least, most)) => {
                let key = format!("{key}.memory.{name}");
                Err(Problem::new(&key, format!("{value}: give a number from {least} to {most}")))
            }
            None => Ok(()),
        }
    }
}

impl Arrivals {
    /// The rate, for those that have one.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        match self {
            Arrivals::Poisson(rate) | Arrivals::Fixed(rate) => Some(*rate),
            Arrivals::Bursty(b) => Some(Rate { per_s: b.per_s, load_pct: b.load_pct }),
            Arrivals::Paced(p) => Some(Rate { per_s: p.per_s, load_pct: p.load_pct }),
            Arrivals::Closed(_) => None,
        }
    }

    /// How many clients there are, if it is a closed loop.
    #[must_use]
    pub fn clients(&self) -> Option<u32> {
        match self {
            Arrivals::Closed(closed) => Some(closed.clients),
            Arrivals::Paced(paced) => Some(paced.clients),
            _ => None,
        }
    }

    pub(super) fn check(&self, key: &str) -> Result<(), Problem> {
        if let Some(rate) = self.rate() {
            let given = match (rate.per_s, rate.load_pct) {
                (Some(v), None) | (None, Some(v)) => v,
                _ => return Err(Problem::new(key, "give either per_s or load_pct")),
            };
            if !given.is_finite() || given <= 0.0 || given > 1e9 {
                return Err(Problem::new(key, format!("a rate of {given}: give one above 0 and up to 1e9")));
            }
        }
        match self {
            Arrivals::Bursty(b) => {
                b.on.check(&format!("{key}.bursty.on"))?;
                b.off.check(&format!("{key}.bursty.off"))?;
                if b.on.mean_ns() <= 0.0 {
                    return Err(Problem::new(&format!("{key}.bursty.on"), "is 0: give a time above 0"));
                }
            }
            Arrivals::Closed(closed) => closed.think.check(&format!("{key}.closed.think"))?,
            _ => {}
        }
        match self.clients() {
            Some(n) if !(1..=1_000_000).contains(&n) => {
                Err(Problem::new(key, format!("{n} clients: give 1 to 1000000")))
            }
            _ => Ok(()),
        }
    }
}
