// SPDX-License-Identifier: GPL-2.0-only
//! The engine: everything that a run consists of, and the loop that lets time pass.
//!
//! The parts: `load` (what tasks and clients do), `cpu` (starting and stopping), `kernel` (queues, commits), `takeover`
//! (the shim's timer), `driver` (the dispatcher's loop), `world` (what comes from outside), `audit` (what must hold).

use super::agenda::{Agenda, Alarm};
use super::audit::Audit;
use super::cache::{CacheState, Footprint, Places};
use super::cpu::Cpu;
use super::driver::DriverState;
use super::kernel::Record;
use super::lists::{Links, List};
use super::load::Load;
use super::metrics::Metrics;
use super::result::{Observer, RunResult};
use super::rng::{Purpose, Stream};
use super::sabotage::Sabotage;
use super::scenario::{Problem, Scenario};
use super::task::Task;
use crate::checked::{Checked, OnViolation};
use crate::cpuset::CpuSet;
use crate::dispatcher::{Config, Dispatcher};
use crate::ids::{CpuId, Nanos};
use crate::policy::Policy;
use crate::topology::Topology;
use std::collections::VecDeque;

/// The clock does not start at 0: a time of 0 would hide what forgets to set one.
pub(crate) const EPOCH_NS: Nanos = 1_000_000_000;

/// How a run differs from a plain one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A planted bug.
    pub sabotage: Option<Sabotage>,
    /// From then on (since the start) every task that waits gets its turn in the time that all others take for two slices
    /// each. None: only the kernel's watchdog is a bound.
    pub bounded_from_ns: Option<Nanos>,
}

/// Why a run has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// The scenario cannot be simulated.
    #[error("{0}")]
    Scenario(#[from] Problem),
    /// Something happened that must not.
    #[error("scenario {scenario}, policy {policy}, seed {seed}: {}", findings.join("; "))]
    Broken {
        /// Which scenario.
        scenario: String,
        /// Which policy.
        policy: String,
        /// Which seed.
        seed: u64,
        /// What, and when.
        findings: Vec<String>,
    },
}

pub(crate) struct Engine<'a, P: Policy, O: Observer, B: Fn(&mut Config) -> P> {
    pub scenario: &'a Scenario,
    pub options: Options,
    pub build: B,
    pub observer: &'a mut O,
    pub config: Config,
    /// All CPUs, and those that are online now.
    pub machine: Topology,
    pub offline: Vec<u32>,
    pub now: Nanos,
    pub end: Nanos,
    pub agenda: Agenda,
    pub tasks: Vec<Task>,
    pub free_rows: Vec<u32>,
    pub alive: u32,
    /// Allowed CPUs, a row per task.
    pub masks: Vec<CpuSet>,
    pub links: Links,
    /// Lists of callers and senders.
    pub calls: Links,
    pub cpus: Vec<Cpu>,
    pub hold: Vec<List>,
    pub held_tasks: u32,
    pub fallback: List,
    pub ring: VecDeque<Record>,
    pub caches: CacheState,
    pub load: Load,
    pub driver: DriverState,
    pub dispatcher: Option<Dispatcher<Checked<P>>>,
    pub takeover_since: Option<Nanos>,
    pub tick_on: bool,
    pub tick_epoch: u32,
    pub faults_on: bool,
    pub fault_stream: Stream,
    pub hogs: Vec<super::world::Hog>,
    pub metrics: Metrics,
    pub audit: Audit,
    /// Work asked for, and lost with tasks that were made to exit.
    pub work_in: Nanos,
    pub work_done: Nanos,
    pub work_lost: Nanos,
    pub seed: u64,
}

fn ms(ms: f64) -> Nanos {
    (ms * 1e6) as Nanos
}

impl<'a, P: Policy, O: Observer, B: Fn(&mut Config) -> P> Engine<'a, P, O, B> {
    pub fn new(
        scenario: &'a Scenario,
        build: B,
        seed: u64,
        options: Options,
        observer: &'a mut O,
    ) -> Result<Self, SimError> {
        scenario.check()?;
        let machine = scenario.machine.topology(&[])?;
        let max_tasks = scenario.max_tasks();
        let mut config = Config {
            max_tasks,
            slice_ns: scenario.dispatcher.slice_us * 1000,
            line_wait_ns: scenario.dispatcher.line_wait_us * 1000,
            dispatcher_cpu: scenario.dispatcher.cpu.map(CpuId),
            dispatcher_cpu_penalty: scenario.dispatcher.share_penalty,
            ..Config::default()
        };
        let places = Places {
            core_of: machine.cpus.iter().map(|cpu| cpu.core).collect(),
            llc_of: machine.cpus.iter().map(|cpu| cpu.llc.0).collect(),
            node_of: machine.cpus.iter().map(|cpu| cpu.node).collect(),
        };
        let load = Load::new(scenario, &machine, seed)?;
        let footprints: Vec<Footprint> =
            load.memories().map(|memory| Footprint::new(memory, &scenario.caches)).collect();
        let groups = load.groups.len();
        let caches = CacheState::new(&scenario.caches, &places, footprints, max_tasks, groups);
        let cpus = machine.cpus.iter().map(|cpu| Cpu::new(cpu.capacity)).collect();
        let policy = Checked::new(build(&mut config), OnViolation::Count);
        observer.attached(&config, &machine);
        let dispatcher = Dispatcher::new(machine.clone(), config.clone(), policy);
        let id_limit = machine.id_limit;
        let mut engine = Self {
            scenario,
            options,
            observer,
            now: EPOCH_NS,
            end: EPOCH_NS + ms(scenario.warmup_ms) + ms(scenario.duration_ms),
            agenda: Agenda::with_capacity(4 * max_tasks.min(4096) + 4 * machine.cpus.len()),
            tasks: (0..max_tasks as u32).map(Task::free).collect(),
            free_rows: (0..max_tasks as u32).rev().collect(),
            alive: 0,
            masks: vec![CpuSet::with_limit(id_limit); max_tasks],
            links: Links::new(max_tasks),
            calls: Links::new(max_tasks),
            cpus,
            hold: vec![List::EMPTY; machine.llcs.len()],
            held_tasks: 0,
            fallback: List::EMPTY,
            ring: VecDeque::with_capacity(scenario.dispatcher.ring_records.min(65_536) as usize),
            caches,
            driver: DriverState::new(scenario, &machine, seed),
            dispatcher: Some(dispatcher),
            takeover_since: None,
            tick_on: false,
            tick_epoch: 0,
            faults_on: true,
            fault_stream: Stream::new(seed, Purpose::Fault, 0, 0),
            hogs: Vec::new(),
            metrics: Metrics::new(&load.names(), machine.cpus.len()),
            audit: Audit::default(),
            work_in: 0,
            work_done: 0,
            work_lost: 0,
            seed,
            load,
            offline: Vec::new(),
            machine,
            config,
            build,
        };
        engine.begin();
        Ok(engine)
    }

    fn begin(&mut self) {
        self.agenda.add(EPOCH_NS + ms(self.scenario.warmup_ms), Alarm::Measure);
        self.begin_load();
        self.begin_world();
    }

    /// Runs to the end.
    pub fn run(mut self) -> Result<RunResult, SimError> {
        while let Some((at, alarm)) = self.agenda.next(self.end) {
            debug_assert!(at >= self.now, "time runs backwards");
            self.now = at;
            self.metrics.counts.events += 1;
            self.ring_the_bell(alarm);
            if self.audit.is_hopeless() {
                break;
            }
        }
        self.now = self.end;
        self.finish()
    }

    #[inline]
    fn ring_the_bell(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Stop { cpu, epoch } => {
                if self.cpus[cpu as usize].epoch == epoch {
                    self.stop_due(cpu);
                }
            }
            Alarm::Look { cpu } => {
                self.cpus[cpu as usize].look_pending = false;
                self.look(cpu);
            }
            Alarm::Wake { task, epoch } => {
                let t = &self.tasks[task as usize];
                if t.wake_epoch == epoch && t.alive {
                    self.wake_now(task);
                }
            }
            Alarm::Arrive { service } => self.arrive(service),
            Alarm::Ask { service, client } => self.client_asks(service, client),
            Alarm::Round => self.round_due(),
            Alarm::RoundEnd => self.round_end(),
            Alarm::Doze { epoch } => self.doze(epoch),
            Alarm::Tick { epoch } => {
                if self.tick_epoch == epoch {
                    self.tick();
                }
            }
            Alarm::Hog { hog } => self.hog(hog),
            Alarm::Hotplug { entry } => self.hotplug(entry),
            Alarm::Attach { epoch } => self.attach(epoch),
            Alarm::Late { entry } => self.late(entry),
            Alarm::LateAtRandom => self.late_at_random(),
            Alarm::Meddle { kind } => self.meddle(kind),
            Alarm::Heal => self.heal(),
            Alarm::Measure => self.measure(),
        }
    }

    fn measure(&mut self) {
        let now = self.now;
        let busy: Vec<Nanos> = self.cpus.iter().map(|cpu| cpu.busy_until(now)).collect();
        for (row, cpu) in self.cpus.iter_mut().enumerate() {
            cpu.held_total_ns = 0;
            cpu.dispatcher_ns = 0;
            cpu.held_since_ns = cpu.held.then_some(now);
            self.metrics.busy_before[row] = busy[row];
        }
        self.metrics.begin(now);
    }

    fn finish(mut self) -> Result<RunResult, SimError> {
        self.audit_end();
        let policy = self.dispatcher.as_ref().map_or("none", |d| d.policy().name());
        if !self.audit.findings.is_empty() {
            return Err(SimError::Broken {
                scenario: self.scenario.name.clone(),
                policy: policy.into(),
                seed: self.seed,
                findings: self.audit.findings,
            });
        }
        let left = self.tasks.iter().filter(|t| t.alive).map(|t| t.work_left_ns + t.debt_ns).sum();
        let policy = policy.to_string();
        let mut result = self.metrics.result(&self.cpus, self.now);
        result.scenario.clone_from(&self.scenario.name);
        result.policy = policy;
        result.seed = self.seed;
        result.work_in_ns = self.work_in;
        result.work_out_ns = [self.work_done, left, self.work_lost];
        if let Some(d) = &self.dispatcher {
            result.stats = d.stats().clone();
            result.promises = super::metrics::promises(d.policy().violations());
        }
        Ok(result)
    }

    /// Something must not be: noted with the moment.
    #[cold]
    pub fn finding(&mut self, what: String) {
        let at = self.now;
        self.audit.note(at, &what);
    }

    #[inline]
    pub fn sabotaged(&self, by: Sabotage) -> bool {
        self.options.sabotage == Some(by)
    }

    #[inline]
    pub fn may_use(&self, task: u32, cpu: u32) -> bool {
        !self.tasks[task as usize].restricted || self.masks[task as usize].contains(CpuId(cpu))
    }
}
