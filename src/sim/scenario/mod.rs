// SPDX-License-Identifier: GPL-2.0-only
//! A scenario: machine, costs, load and faults of a simulation, as a TOML file says them.
//!
//! [`Scenario::parse`] reads one; `sets` are changes from the command line (`machine.llcs=4`, `task.web.weight=50`: members
//! of a list by name or number). Unknown keys and values out of range are refused with the key's name and what to do.

mod dist;
mod load;
mod machine;
mod set;

pub use dist::Dist;
pub use load::{
    Arrivals, Bursty, Closed, Fork, Hotplug, Interference, Loop, Memory, Paced, Phase, Plain, Queueing, Rate,
    Service, TaskGroup, To, Wait, Who,
};
pub use machine::{Caches, Costs, Level, Machine, PRESETS};

use crate::ids::Nanos;
use crate::limits::{LINE_WAIT_NS, MAX_TASKS, SLICE_NS, TAKEOVER_LIMIT_NS};
use crate::topology::parse_cpu_list;
use serde::{Deserialize, Serialize};

/// What is wrong with a scenario: one line that names the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct Problem {
    /// Where.
    pub key: String,
    /// What is wrong and what to do.
    pub what: String,
}

impl Problem {
    pub(crate) fn new(key: &str, what: impl Into<String>) -> Self {
        Self { key: key.into(), what: what.into() }
    }
}

/// A scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it is, in a line.
    pub about: String,
    /// What it teaches.
    pub lesson: String,
    /// How long is measured.
    pub duration_ms: f64,
    /// How long it runs before that.
    pub warmup_ms: f64,
    /// CPUs.
    pub machine: Machine,
    /// Switching and waking.
    pub costs: Costs,
    /// Cache levels.
    pub caches: Caches,
    /// The dispatcher and the shim.
    pub dispatcher: DispatcherCosts,
    /// Tasks.
    pub task: Vec<TaskGroup>,
    /// Services.
    pub service: Vec<Service>,
    /// Real-time tasks that take CPUs.
    pub interference: Vec<Interference>,
    /// CPUs that come and go.
    pub hotplug: Vec<Hotplug>,
    /// Things that go wrong at random.
    pub faults: Faults,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: String::new(),
            about: String::new(),
            lesson: String::new(),
            duration_ms: 1000.0,
            warmup_ms: 100.0,
            machine: Machine::default(),
            costs: Costs::default(),
            caches: Caches::default(),
            dispatcher: DispatcherCosts::default(),
            task: Vec::new(),
            service: Vec::new(),
            interference: Vec::new(),
            hotplug: Vec::new(),
            faults: Faults::default(),
        }
    }
}

/// The dispatcher's loop and what it costs. `ideal = true`: nothing costs anything, a decision follows its cause at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DispatcherCosts {
    /// All costs below (and those of switching and waking) are 0.
    pub ideal: bool,
    /// The CPU that it runs on; none: one that is not part of this machine.
    pub cpu: Option<u32>,
    /// That CPU counts as having so many waiters more; none: it takes only tasks that have no other.
    pub share_penalty: Option<u32>,
    /// Slice of the policies.
    pub slice_us: u64,
    /// How long a task may wait in a line before a better place is looked for.
    pub line_wait_us: u64,
    /// From a record until a sleeping dispatcher reads it.
    pub message_ns: u64,
    /// The same while it still looks at the ring.
    pub notice_ns: u64,
    /// How long it looks at the ring after the last work.
    pub spin_us: u64,
    /// Reading one changed status word.
    pub per_status_ns: u64,
    /// Reading one record.
    pub per_record_ns: u64,
    /// One decision.
    pub per_decision_ns: u64,
    /// One commit call, and each decision in it.
    pub commit_ns: u64,
    /// See [`DispatcherCosts::commit_ns`].
    pub per_commit_ns: u64,
    /// Records that the ring holds.
    pub ring_records: u32,
    /// How old what waits for a decision may get before the kernel side takes over.
    pub takeover_us: u64,
    /// From the end of the scheduler (a CPU went or came) until the daemon is attached again.
    pub restart_ms: f64,
    /// It does nothing for so long, at these times.
    pub late: Vec<Late>,
    /// It is late at random.
    pub late_every: Option<Dist>,
    /// For how long then.
    pub late_for: Dist,
    /// From then on it does nothing at all.
    pub dead_at_ms: Option<f64>,
}

impl Default for DispatcherCosts {
    /// The daemon's own loop: spin, batch and limits as in the daemon; a sleeping thread is woken in about 5 us; records
    /// and decisions at what the core's benchmark takes on current hardware (about 0.4 us together), the commit call about
    /// 1 us. (ghOSt on bare metal: 0.3 us to a spinning agent, 1.8 us from there to a remote CPU; algorithms 7.4.)
    fn default() -> Self {
        Self {
            ideal: false,
            cpu: None,
            share_penalty: None,
            slice_us: 5000,
            line_wait_us: LINE_WAIT_NS / 1000,
            message_ns: 5000,
            notice_ns: 300,
            spin_us: 50,
            per_status_ns: 50,
            per_record_ns: 100,
            per_decision_ns: 250,
            commit_ns: 600,
            per_commit_ns: 300,
            ring_records: 65_536,
            takeover_us: TAKEOVER_LIMIT_NS / 1000,
            restart_ms: 100.0,
            late: Vec::new(),
            late_every: None,
            late_for: Dist::FixedUs(0.0),
            dead_at_ms: None,
        }
    }
}

/// The dispatcher does nothing for a while.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Late {
    /// From when.
    pub at_ms: f64,
    /// For how long.
    pub for_ms: f64,
}

/// Things that go wrong, or just happen, at random.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// No fault after this (0: until the end). What they left behind is put right by a rescan then.
    pub until_ms: f64,
    /// RUNNABLE records that are lost, the loss being known.
    pub lose_record_pct: f64,
    /// Exit records that are lost, the loss not being known.
    pub lose_exit_pct: f64,
    /// Commits that find the insertion of their task still under way.
    pub retry_pct: f64,
    /// Wakeups that the kernel side serves by itself on an idle CPU.
    pub bypass_pct: f64,
    /// Changes of a random task's allowed CPUs.
    pub affinity_per_s: f64,
    /// Changes of a random task's weight.
    pub weight_per_s: f64,
    /// Exits of a random task.
    pub exits_per_s: f64,
    /// New tasks, each of a random group.
    pub forks_per_s: f64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            until_ms: 0.0,
            lose_record_pct: 0.0,
            lose_exit_pct: 0.0,
            retry_pct: 0.0,
            bypass_pct: 0.0,
            affinity_per_s: 0.0,
            weight_per_s: 0.0,
            exits_per_s: 0.0,
            forks_per_s: 0.0,
        }
    }
}

impl Scenario {
    /// Reads a scenario from TOML text, changed by `sets` (each `key=value`, the key a dotted path).
    ///
    /// # Errors
    /// The first thing that is wrong, with its key.
    pub fn parse(text: &str, sets: &[String]) -> Result<Self, Problem> {
        let mut table: toml::Table =
            text.parse().map_err(|e: toml::de::Error| Problem::new("TOML", one_line(&e.to_string())))?;
        for set in sets {
            set::apply(&mut table, set)?;
        }
        set::fill_in(&mut table, "machine", "preset", |name| {
            let preset = Machine::preset(name);
            let known: Vec<_> = PRESETS.iter().map(|preset| preset.0).collect();
            preset.map(toml::Table::try_from).ok_or(known.join(", "))
        })?;
        set::fill_in(&mut table, "caches", "profile", |name| {
            Caches::profile(name).map(toml::Table::try_from).ok_or(Caches::PROFILES.join(", "))
        })?;
        let scenario: Scenario = serde_path(toml::Value::Table(table))?;
        scenario.check()?;
        Ok(scenario)
    }

    /// The scenario as TOML, with every key.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn to_toml(&self) -> Result<String, Problem> {
        toml::to_string(self).map_err(|e| Problem::new("TOML", one_line(&e.to_string())))
    }

    /// Verifies what the simulator relies on.
    ///
    /// # Errors
    /// The first thing that is wrong, with its key.
    pub fn check(&self) -> Result<(), Problem> {
        for (key, value, least) in
            [("duration_ms", self.duration_ms, 0.001), ("warmup_ms", self.warmup_ms, 0.0)]
        {
            if !value.is_finite() || !(least..=MAX_MS).contains(&value) {
                return Err(Problem::new(key, format!("{value}: give {least} to {MAX_MS}")));
            }
        }
        self.machine.check()?;
        self.caches.check()?;
        if !(1..=100).contains(&self.costs.smt_speed_pct) {
            return Err(Problem::new("costs.smt_speed_pct", "give 1 to 100"));
        }
        self.dispatcher.check(self.machine.cpus())?;
        for (i, group) in self.task.iter().enumerate() {
            self.check_group(&format!("task.{i}"), group)?;
        }
        for (i, service) in self.service.iter().enumerate() {
            self.check_service(&format!("service.{i}"), service)?;
        }
        if self.task.is_empty() && self.service.is_empty() {
            return Err(Problem::new("task", "there is no load: add a [[task]] or a [[service]]"));
        }
        if self.max_tasks() > MAX_TASKS {
            let what = format!("{} tasks: at most {MAX_TASKS} are possible", self.max_tasks());
            return Err(Problem::new("task", what));
        }
        for (i, other) in self.interference.iter().enumerate() {
            let key = format!("interference.{i}");
            self.cpus(&key, &other.cpus)?;
            other.busy.check(&format!("{key}.busy"))?;
            other.idle.check(&format!("{key}.idle"))?;
            if other.busy.mean_ns() + other.idle.mean_ns() < 1000.0 {
                return Err(Problem::new(&key, "busy and idle together are below 1 us: give longer ones"));
            }
        }
        self.check_hotplug()?;
        self.faults.check()
    }

    /// The CPUs that a list names (an empty one: all).
    ///
    /// # Errors
    /// If it is no list, or names a CPU that the machine does not have.
    pub fn cpus(&self, key: &str, list: &str) -> Result<Vec<u32>, Problem> {
        let limit = self.machine.cpus();
        if list.is_empty() {
            return Ok((0..limit).collect());
        }
        let key = format!("{key}.cpus");
        let cpus = parse_cpu_list(list).map_err(|e| Problem::new(&key, format!("{list:?}: {e}")))?;
        let cpus: Vec<u32> = cpus.iter().map(|cpu| cpu.0).collect();
        match cpus.iter().find(|&&cpu| cpu >= limit) {
            Some(cpu) => {
                Err(Problem::new(&key, format!("CPU {cpu}: the machine has CPUs 0 to {}", limit - 1)))
            }
            None if cpus.is_empty() => Err(Problem::new(&key, "names no CPU: leave it out for all")),
            None => Ok(cpus),
        }
    }

    /// How many tasks there can be at once.
    #[must_use]
    pub fn max_tasks(&self) -> usize {
        let cpus = self.machine.cpus() as usize;
        let groups = self.task.iter().map(|group| {
            let each = if group.per_cpu { cpus } else { group.count as usize };
            each.saturating_mul(group.sets as usize)
        });
        let services = self.service.iter().map(|service| match (service.queueing, service.workers) {
            (Queueing::TaskPerRequest, _) => match service.limit {
                0 => MAX_FORKED,
                limit => limit as usize,
            },
            (_, 0) => cpus,
            (_, workers) => workers as usize,
        });
        let forks = self.task.iter().any(|group| forks(&group.phases)) || self.faults.forks_per_s > 0.0;
        groups.chain(services).fold(0, usize::saturating_add).saturating_add(if forks {
            MAX_FORKED
        } else {
            0
        })
    }

    fn check_group(&self, key: &str, group: &TaskGroup) -> Result<(), Problem> {
        self.check_name(key, &group.name)?;
        if group.sets == 0 {
            return Err(Problem::new(&format!("{key}.sets"), "is 0: give at least 1"));
        }
        check_weight(key, group.weight)?;
        self.cpus(key, &group.cpus)?;
        group.memory.check(key)?;
        group.start.check(&format!("{key}.start"))?;
        if group.phases.is_empty() {
            return Err(Problem::new(&format!("{key}.phases"), "is empty: say what the tasks do"));
        }
        let takes_time = self.check_phases(&format!("{key}.phases"), &group.phases)?;
        if !takes_time {
            let what = "no phase takes time: add a run of more than 0, a sleep, a wait or an exit";
            return Err(Problem::new(&format!("{key}.phases"), what));
        }
        Ok(())
    }

    fn check_name(&self, key: &str, name: &str) -> Result<(), Problem> {
        let names = self.task.iter().map(|g| &g.name).chain(self.service.iter().map(|s| &s.name));
        match names.filter(|other| *other == name).count() {
            _ if name.is_empty() => Err(Problem::new(&format!("{key}.name"), "is missing: give one")),
            0 | 1 => Ok(()),
            _ => Err(Problem::new(&format!("{key}.name"), format!("{name:?} is used twice: give another"))),
        }
    }

    /// Says whether a round of the phases certainly takes time, or ends the task.
    fn check_phases(&self, key: &str, phases: &[Phase]) -> Result<bool, Problem> {
        let mut takes_time = false;
        for (i, phase) in phases.iter().enumerate() {
            let key = format!("{key}.{i}");
            match phase {
                Phase::Run(dist) | Phase::Sleep(dist) => {
                    dist.check(&key)?;
                    takes_time |= dist.mean_ns() >= 1.0;
                }
                Phase::Wait(_) | Phase::Call(To { .. }) | Phase::Exit(_) | Phase::Yield(_) => {
                    takes_time = true
                }
                Phase::Reply(_) => {}
                Phase::Send(to) => self.check_group_name(&key, &to.to)?,
                Phase::Fork(fork) => self.check_group_name(&key, &fork.group)?,
                Phase::Loop(inner) => {
                    takes_time |=
                        self.check_phases(&format!("{key}.loop"), &inner.phases)? && inner.count > 0;
                }
            }
            if let Phase::Call(to) = phase {
                self.check_group_name(&key, &to.to)?;
            }
        }
        Ok(takes_time)
    }

    fn check_group_name(&self, key: &str, name: &str) -> Result<(), Problem> {
        if self.task.iter().any(|group| group.name == name) {
            return Ok(());
        }
        let known: Vec<_> = self.task.iter().map(|group| group.name.as_str()).collect();
        Err(Problem::new(key, format!("there is no task group {name:?}; there are: {}", known.join(", "))))
    }

    fn check_service(&self, key: &str, service: &Service) -> Result<(), Problem> {
        self.check_name(key, &service.name)?;
        check_weight(key, service.weight)?;
        self.cpus(key, &service.cpus)?;
        service.memory.check(key)?;
        service.demand.check(&format!("{key}.demand"))?;
        if service.demand.mean_ns() < 1.0 {
            return Err(Problem::new(&format!("{key}.demand"), "is 0: a request takes time"));
        }
        service.arrivals.check(&format!("{key}.arrivals"))
    }

    fn check_hotplug(&self) -> Result<(), Problem> {
        let mut offline = Vec::new();
        let mut last = 0.0;
        for (i, plug) in self.hotplug.iter().enumerate() {
            let key = format!("hotplug.{i}");
            if plug.cpu >= self.machine.cpus() {
                return Err(Problem::new(&key, format!("the machine has no CPU {}", plug.cpu)));
            }
            if !plug.at_ms.is_finite() || plug.at_ms < last {
                return Err(Problem::new(&key, "put the entries in order of at_ms"));
            }
            last = plug.at_ms;
            offline.retain(|cpu| *cpu != plug.cpu);
            if !plug.online {
                offline.push(plug.cpu);
            }
            self.machine.topology(&offline).map_err(|e| Problem::new(&key, e.what))?;
        }
        Ok(())
    }
}

impl DispatcherCosts {
    fn check(&self, cpus: u32) -> Result<(), Problem> {
        let slice_ns: Nanos = self.slice_us.saturating_mul(1000);
        if !SLICE_NS.contains(&slice_ns) {
            let (low, high) = (SLICE_NS.start() / 1000, SLICE_NS.end() / 1000);
            let what = format!("{}: give {low} to {high}", self.slice_us);
            return Err(Problem::new("dispatcher.slice_us", what));
        }
        if self.cpu.is_some_and(|cpu| cpu >= cpus) {
            return Err(Problem::new("dispatcher.cpu", "the machine has no such CPU"));
        }
        if self.ring_records == 0 || self.line_wait_us == 0 || self.takeover_us == 0 {
            return Err(Problem::new(
                "dispatcher",
                "ring_records, line_wait_us and takeover_us are at least 1",
            ));
        }
        if self.line_wait_us > 1_000_000 {
            return Err(Problem::new("dispatcher.line_wait_us", "give at most 1000000"));
        }
        self.late_for.check("dispatcher.late_for")?;
        if let Some(every) = &self.late_every {
            every.check("dispatcher.late_every")?;
            if every.mean_ns() < 1000.0 {
                return Err(Problem::new("dispatcher.late_every", "give at least 1 us"));
            }
        }
        let times = self.late.iter().flat_map(|late| [late.at_ms, late.for_ms]);
        for time in times.chain(self.dead_at_ms).chain([self.restart_ms]) {
            if !(0.0..=MAX_MS).contains(&time) {
                return Err(Problem::new("dispatcher", format!("a time of {time} ms: give 0 to {MAX_MS}")));
            }
        }
        Ok(())
    }
}

impl Faults {
    fn check(&self) -> Result<(), Problem> {
        let numbers = [
            ("until_ms", self.until_ms, MAX_MS),
            ("lose_record_pct", self.lose_record_pct, 100.0),
            ("lose_exit_pct", self.lose_exit_pct, 100.0),
            ("retry_pct", self.retry_pct, 90.0),
            ("bypass_pct", self.bypass_pct, 100.0),
            ("affinity_per_s", self.affinity_per_s, 1e5),
            ("weight_per_s", self.weight_per_s, 1e5),
            ("exits_per_s", self.exits_per_s, 1e5),
            ("forks_per_s", self.forks_per_s, 1e5),
        ];
        match numbers.iter().find(|(_, v, most)| !(0.0..=*most).contains(v)) {
            Some((name, value, most)) => {
                Err(Problem::new(&format!("faults.{name}"), format!("{value}: give 0 to {most}")))
            }
            None => Ok(()),
        }
    }
}

/// An hour.
const MAX_MS: f64 = 3.6e6;

/// Forked tasks that live at once.
const MAX_FORKED: usize = 8192;

fn forks(phases: &[Phase]) -> bool {
    phases.iter().any(|phase| match phase {
        Phase::Fork(_) => true,
        Phase::Loop(inner) => forks(&inner.phases),
        _ => false,
    })
}

fn check_weight(key: &str, weight: u32) -> Result<(), Problem> {
    if (1..=10_000).contains(&weight) {
        return Ok(());
    }
    Err(Problem::new(&format!("{key}.weight"), format!("{weight}: give 1 to 10000 (100 is nice 0)")))
}

fn serde_path(value: toml::Value) -> Result<Scenario, Problem> {
    value.try_into().map_err(|e: toml::de::Error| Problem::new("TOML", one_line(&e.to_string())))
}

/// The parser's message without its picture of the text.
fn one_line(message: &str) -> String {
    message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}
