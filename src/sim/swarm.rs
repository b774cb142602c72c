// SPDX-License-Identifier: GPL-2.0-only
//! Random scenarios under random faults, from a seed. Which kinds of load and fault there are at all is drawn too: a run with
//! everything at once hides what a run with one of them shows.
//!
//! Two phases: faults happen until [`FAULTS_MS`]; then they end, what they left behind is rescanned, and from
//! [`SETTLED_MS`] on every task must get its turn within a bound.

use super::result::{RunResult, Unobserved};
use super::rng::{Purpose, Stream};
use super::scenario::{
    Arrivals, Closed, Dist, Fork, Hotplug, Interference, Late, Loop, Phase, Plain, Queueing, Rate, Scenario,
    Service, TaskGroup, To, Wait, Who,
};
use super::{Options, Sabotage, SimError, run_with};
use crate::dispatcher::Config;
use crate::policy::registry::PolicySpec;

/// Until when faults happen.
pub const FAULTS_MS: f64 = 150.0;
/// From when every task must run within a bound.
pub const SETTLED_MS: f64 = 300.0;
/// The end.
pub const END_MS: f64 = 900.0;

/// The scenario of a seed.
#[must_use]
pub fn scenario(seed: u64) -> Scenario {
    let mut swarm = Swarm { rng: Stream::new(seed, Purpose::Swarm, 0, 0), scenario: Scenario::default() };
    swarm.scenario.name = format!("swarm-{seed}");
    swarm.scenario.duration_ms = END_MS;
    swarm.scenario.warmup_ms = 0.0;
    swarm.machine();
    swarm.load();
    swarm.dispatcher();
    swarm.faults();
    swarm.scenario
}

/// Runs the scenario of a seed under a policy, with a planted bug or none.
///
/// # Errors
/// If something happened that must not.
pub fn run(seed: u64, policy: &PolicySpec, sabotage: Option<Sabotage>) -> Result<RunResult, SimError> {
    let options = Options { sabotage, bounded_from_ns: Some((SETTLED_MS * 1e6) as u64) };
    let build = |config: &mut Config| (policy.build)(config);
    run_with(&scenario(seed), build, seed, options, &mut Unobserved)
}

struct Swarm {
    rng: Stream,
    scenario: Scenario,
}

impl Swarm {
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.rng.below(high - low + 1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.rng.below(n) == 0
    }

    fn us(&mut self, low: u64, high: u64) -> f64 {
        self.between(low, high) as f64
    }

    fn machine(&mut self) {
        let m = &mut self.scenario.machine;
        m.llcs = 1 + self.rng.below(3) as u32;
        m.cores_per_llc = 1 + self.rng.below(3) as u32;
        m.threads_per_core = 1 + self.rng.below(2) as u32;
        if self.rng.below(3) == 0 {
            m.capacities = vec![1024, 600];
        }
        if self.rng.below(2) == 0 {
            self.scenario.caches = super::scenario::Caches::none();
        }
    }

    fn time(&mut self, low: u64, high: u64) -> Dist {
        let us = self.us(low, high);
        match self.rng.below(5) {
            0 => Dist::FixedUs(us),
            1 => Dist::UniformUs([us / 2.0, us * 1.5]),
            2 => Dist::Bimodal { short_us: us / 2.0, long_us: us * 10.0, long_pct: 5.0 },
            3 => Dist::Pareto { mean_us: us, alpha: 1.5, cap_us: us * 100.0 },
            _ => Dist::ExpUs(us),
        }
    }

    /// Some CPUs, as a list; empty: all.
    fn some_cpus(&mut self) -> String {
        let cpus = self.scenario.machine.cpus();
        if self.one_in(2) {
            return String::new();
        }
        let mut list: Vec<String> =
            (0..cpus).filter(|_| self.rng.below(2) == 0).map(|cpu| cpu.to_string()).collect();
        if list.is_empty() {
            list.push(self.rng.below(u64::from(cpus)).to_string());
        }
        list.join(",")
    }

    fn group(&mut self, name: &str, count: u64, phases: Vec<Phase>) -> usize {
        let cpus = self.some_cpus();
        let weight = if self.one_in(3) { self.between(10, 300) as u32 } else { 100 };
        let start = Dist::UniformUs([0.0, self.rng.below(20_000) as f64]);
        self.scenario.task.push(TaskGroup {
            name: name.into(),
            count: count as u32,
            weight,
            cpus,
            start,
            phases,
            ..TaskGroup::default()
        });
        self.scenario.task.len() - 1
    }

    fn load(&mut self) {
        let (run, sleep) = (self.time(50, 4000), self.time(500, 4000));
        let count = self.between(1, 8);
        self.group("mixed", count, vec![Phase::Run(run), Phase::Sleep(sleep)]);
        if self.one_in(2) {
            let count = self.between(1, 4);
            self.group("hog", count, vec![Phase::Run(Dist::FixedUs(3.0e9))]);
        }
        if self.one_in(3) {
            let (run, sleep) = (self.time(100, 500), self.time(500, 2000));
            self.group("yields", 2, vec![Phase::Run(run), Phase::Yield(Plain {}), Phase::Sleep(sleep)]);
        }
        if self.one_in(3) {
            self.pairs();
        }
        if self.one_in(3) {
            self.pipe();
        }
        if self.one_in(3) {
            self.forks();
        }
        if self.one_in(3) {
            let (run, sleep) = (self.time(20, 200), self.time(2000, 8000));
            let i = self.group("kworker", 1, vec![Phase::Run(run), Phase::Sleep(sleep)]);
            self.scenario.task[i].per_cpu = true;
        }
        if self.one_in(2) {
            self.service();
        }
    }

    fn pairs(&mut self) {
        let to = To { to: "server".into(), who: Who::Pair };
        let (run, think) = (self.time(20, 500), self.time(500, 2000));
        let answer = vec![Phase::Wait(Wait { all: self.one_in(2) }), Phase::Run(run), Phase::Reply(Plain {})];
        let count = self.between(1, 3);
        self.group("client", count, vec![Phase::Call(to), Phase::Sleep(think)]);
        self.group("server", 1, answer);
    }

    fn pipe(&mut self) {
        let to = To { to: "reader".into(), who: if self.one_in(2) { Who::All } else { Who::Next } };
        let (write, read, pause) = (self.time(10, 100), self.time(10, 200), self.time(1000, 4000));
        let burst = vec![Phase::Run(write), Phase::Send(to)];
        let count = self.between(1, 9) as u32;
        self.group("writer", 2, vec![Phase::Loop(Loop { count, phases: burst }), Phase::Sleep(pause)]);
        let i = self.group("reader", 2, vec![Phase::Wait(Wait { all: false }), Phase::Run(read)]);
        self.scenario.task[i].inbox = self.rng.below(4) as u32;
    }

    fn forks(&mut self) {
        let (run, pause, child) = (self.time(50, 200), self.time(2000, 20_000), self.time(50, 2000));
        let count = self.between(1, 6) as u32;
        let fork = Phase::Fork(Fork { group: "child".into(), count });
        self.group("parent", 1, vec![Phase::Run(run), fork, Phase::Sleep(pause)]);
        let i = self.group("child", 0, vec![Phase::Run(child)]);
        self.scenario.task[i].rounds = self.between(1, 3) as u32;
    }

    fn service(&mut self) {
        let queueing = [Queueing::Shared, Queueing::SharedLifo, Queueing::Bound, Queueing::TaskPerRequest];
        let queueing = queueing[self.rng.below(4) as usize];
        let load_pct = Some(self.us(5, 40));
        let arrivals = if self.one_in(2) {
            Arrivals::Poisson(Rate { per_s: None, load_pct })
        } else {
            Arrivals::Closed(Closed { clients: self.between(1, 6) as u32, think: self.time(500, 2000) })
        };
        let (cpus, workers, demand) = (self.some_cpus(), self.between(1, 6) as u32, self.time(100, 1000));
        let limited = queueing == Queueing::TaskPerRequest || self.one_in(3);
        self.scenario.service.push(Service {
            name: "service".into(),
            workers,
            cpus,
            demand,
            arrivals,
            queueing,
            limit: if limited { 20 } else { 0 },
            ..Service::default()
        });
    }

    fn dispatcher(&mut self) {
        let cpus = u64::from(self.scenario.machine.cpus());
        let slice_us = self.between(500, 5000);
        let line_wait_us = if self.one_in(3) { self.between(200, 20_000) } else { 1000 };
        let (own, shared) = (self.one_in(3), self.one_in(2));
        let cpu = self.rng.below(cpus) as u32;
        let penalty = self.rng.below(3) as u32;
        let ring_records = if self.one_in(3) { self.between(1, 12) as u32 } else { 65_536 };
        let d = &mut self.scenario.dispatcher;
        d.slice_us = slice_us;
        d.line_wait_us = line_wait_us;
        d.ideal = self.rng.below(4) == 0;
        d.cpu = own.then_some(cpu);
        d.share_penalty = (own && shared).then_some(penalty);
        d.ring_records = ring_records;
        d.restart_ms = 5.0;
        if self.rng.below(3) == 0 {
            d.per_decision_ns *= 1 + self.rng.below(40);
            d.message_ns *= 1 + self.rng.below(20);
        }
    }

    fn faults(&mut self) {
        if self.one_in(3) {
            let (at_ms, for_ms) = (self.us(1, 100), self.us(1, 40));
            self.scenario.dispatcher.late.push(Late { at_ms, for_ms });
        }
        if self.one_in(4) {
            let (every, for_how_long) = (self.time(5000, 40_000), self.time(1000, 15_000));
            self.scenario.dispatcher.late_every = Some(every);
            self.scenario.dispatcher.late_for = for_how_long;
        }
        if self.one_in(20) {
            self.scenario.dispatcher.dead_at_ms = Some(self.us(1, 140));
        }
        if self.one_in(3) {
            let (cpus, busy, idle) = (self.some_cpus(), self.time(100, 4000), self.time(2000, 20_000));
            self.scenario.interference.push(Interference { cpus, busy, idle });
        }
        if self.one_in(4) && self.scenario.machine.cpus() > 1 {
            let cpu = self.rng.below(u64::from(self.scenario.machine.cpus())) as u32;
            let at_ms = self.us(5, 60);
            let back_ms = at_ms + self.us(0, 60);
            self.scenario.hotplug.push(Hotplug { at_ms, cpu, online: false });
            self.scenario.hotplug.push(Hotplug { at_ms: back_ms, cpu, online: true });
        }
        let mut some = |most: f64| if self.rng.below(3) == 0 { self.rng.unit() * most } else { 0.0 };
        let f = &mut self.scenario.faults;
        f.until_ms = FAULTS_MS;
        f.lose_record_pct = some(4.0);
        f.lose_exit_pct = some(40.0);
        f.retry_pct = some(20.0);
        f.bypass_pct = some(20.0);
        f.affinity_per_s = some(2000.0);
        f.weight_per_s = some(200.0);
        f.exits_per_s = some(30.0);
        f.forks_per_s = some(100.0);
    }
}
