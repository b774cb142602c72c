// SPDX-License-Identifier: GPL-2.0-only
//! Services: where requests come from, which worker gets them, and when they are answered.

use super::agenda::Alarm;
use super::engine::Engine;
use super::lists::NONE;
use super::load::Next;
use super::result::Observer;
use super::rng::{Purpose, Stream};
use super::scenario::{Arrivals, Queueing, Rate, Scenario, Service};
use super::task::{Block, Req};
use crate::dispatcher::Config;
use crate::event::NO_ROW;
use crate::ids::Nanos;
use crate::policy::Policy;
use crate::topology::{FULL_CAPACITY, Topology};
use std::collections::VecDeque;

/// A client of a closed loop.
#[derive(Clone, Debug)]
struct Client {
    stream: Stream,
    asked_ns: Nanos,
}

/// A service as it runs.
#[derive(Debug)]
pub(crate) struct ServiceState {
    group: u32,
    queueing: Queueing,
    limit: u32,
    in_system: u32,
    /// One queue, or one per worker.
    queues: Vec<VecDeque<Req>>,
    /// Workers that wait for a request (shared queues).
    idle: VecDeque<u32>,
    connections: u32,
    arrival_stream: Stream,
    demand_stream: Stream,
    connection_stream: Stream,
    clients: Vec<Client>,
    /// Mean time between arrivals; of bursts: while they last.
    gap_ns: f64,
    /// The end of the present burst.
    burst_end_ns: Nanos,
    /// Mean time between two requests of a paced client.
    pace_ns: f64,
}

impl ServiceState {
    pub fn new(
        service: &Service,
        group: u32,
        workers: u32,
        cpus: &[u32],
        scenario: &Scenario,
        machine: &Topology,
        seed: u64,
    ) -> Self {
        let stream = |purpose, b| Stream::new(seed, purpose, u64::from(group), b);
        let clients = service.arrivals.clients().unwrap_or(0);
        let per_s = service
            .arrivals
            .rate()
            .map_or(1.0, |rate| requests_per_s(&rate, service, cpus, scenario, machine));
        let share = match &service.arrivals {
            Arrivals::Bursty(b) => b.on.mean_ns() / (b.on.mean_ns() + b.off.mean_ns()),
            _ => 1.0,
        };
        let bound = service.queueing == Queueing::Bound;
        Self {
            group,
            queueing: service.queueing,
            limit: service.limit,
            in_system: 0,
            queues: vec![VecDeque::with_capacity(64); if bound { workers as usize } else { 1 }],
            idle: VecDeque::with_capacity(workers as usize),
            connections: match service.connections {
                0 => 4 * workers.max(1),
                n => n,
            },
            arrival_stream: stream(Purpose::Arrivals, 0),
            demand_stream: stream(Purpose::Demand, 0),
            connection_stream: stream(Purpose::Connection, 0),
            clients: (0..clients)
                .map(|i| Client { stream: stream(Purpose::Client, u64::from(i)), asked_ns: 0 })
                .collect(),
            gap_ns: 1e9 / per_s * share,
            burst_end_ns: 0,
            pace_ns: f64::from(clients) * 1e9 / per_s,
        }
    }
}

/// The rate, from a share of the CPUs that the workers may use (less the dispatcher's own, if it is its alone).
fn requests_per_s(
    rate: &Rate,
    service: &Service,
    cpus: &[u32],
    scenario: &Scenario,
    machine: &Topology,
) -> f64 {
    if let Some(per_s) = rate.per_s {
        return per_s;
    }
    let d = &scenario.dispatcher;
    let own = d.cpu.filter(|_| d.share_penalty.is_none());
    let capacity: u32 = cpus
        .iter()
        .filter(|&&cpu| Some(cpu) != own || cpus.len() == 1)
        .map(|&cpu| machine.cpus[cpu as usize].capacity)
        .sum();
    let cpus = f64::from(capacity) / f64::from(FULL_CAPACITY);
    rate.load_pct.unwrap_or(50.0) / 100.0 * cpus * 1e9 / service.demand.mean_ns()
}

impl<P: Policy, O: Observer, B: Fn(&mut Config) -> P> Engine<'_, P, O, B> {
    pub fn begin_services(&mut self) {
        for service in 0..self.load.services.len() as u32 {
            let group = self.load.services[service as usize].group;
            for i in 0..self.load.groups[group as usize].members.len() {
                let worker = self.load.groups[group as usize].members[i];
                if worker != NONE {
                    self.load.services[service as usize].idle.push_back(worker);
                }
            }
            match self.scenario.service[service as usize].arrivals {
                Arrivals::Closed(_) | Arrivals::Paced(_) => {
                    for client in 0..self.load.services[service as usize].clients.len() as u32 {
                        self.ask_later(service, client);
                    }
                }
                _ => self.next_arrival(service),
            }
        }
    }

    /// Sets the alarm for the next request of an open loop.
    fn next_arrival(&mut self, service: u32) {
        let s = &mut self.load.services[service as usize];
        let at = match &self.scenario.service[service as usize].arrivals {
            Arrivals::Fixed(_) => self.now as f64 + s.gap_ns,
            Arrivals::Bursty(bursty) => {
                let mut gap = s.arrival_stream.exp(s.gap_ns);
                let mut at = self.now as f64;
                while at + gap > s.burst_end_ns as f64 {
                    gap -= (s.burst_end_ns as f64 - at).max(0.0);
                    let off = if s.burst_end_ns == 0 { 0 } else { s.arrival_stream.draw(&bursty.off) };
                    at = (s.burst_end_ns.max(at as Nanos) + off) as f64;
                    s.burst_end_ns = at as Nanos + s.arrival_stream.draw(&bursty.on).max(1);
                }
                at + gap
            }
            _ => self.now as f64 + s.arrival_stream.exp(s.gap_ns),
        };
        self.agenda.add((at + 0.5) as Nanos, Alarm::Arrive { service });
    }

    pub fn arrive(&mut self, service: u32) {
        self.next_arrival(service);
        let s = &mut self.load.services[service as usize];
        let demand_ns = s.demand_stream.draw(&self.scenario.service[service as usize].demand).max(1);
        let connection = s.connection_stream.below(u64::from(s.connections)) as u32;
        let request = Req { intended_ns: self.now, begun_ns: 0, demand_ns, client: NONE };
        self.request(service, request, connection);
    }

    pub fn client_asks(&mut self, service: u32, client: u32) {
        let now = self.now;
        let demand = &self.scenario.service[service as usize].demand;
        let c = &mut self.load.services[service as usize].clients[client as usize];
        c.asked_ns = now;
        let demand_ns = c.stream.draw(demand).max(1);
        let request = Req { intended_ns: now, begun_ns: 0, demand_ns, client };
        self.request(service, request, client);
    }

    /// A client has its answer: when does it ask again?
    fn ask_later(&mut self, service: u32, client: u32) {
        let s = &mut self.load.services[service as usize];
        let pace_ns = s.pace_ns;
        let c = &mut s.clients[client as usize];
        let at = match &self.scenario.service[service as usize].arrivals {
            Arrivals::Closed(closed) => self.now + c.stream.draw(&closed.think),
            _ => {
                let since = if c.asked_ns == 0 { self.now } else { c.asked_ns };
                (since + c.stream.exp(pace_ns) as Nanos).max(self.now)
            }
        };
        self.agenda.add(at, Alarm::Ask { service, client });
    }

    fn request(&mut self, service: u32, request: Req, connection: u32) {
        let s = &mut self.load.services[service as usize];
        if s.limit > 0 && s.in_system >= s.limit {
            return self.turn_away(service, request);
        }
        s.in_system += 1;
        let group = s.group;
        match s.queueing {
            Queueing::TaskPerRequest => {
                let number = self.load.groups[group as usize].born;
                match self.spawn(group, number) {
                    Some(task) => self.begin_task(task, request),
                    None => {
                        self.load.services[service as usize].in_system -= 1;
                        self.turn_away(service, request);
                    }
                }
            }
            Queueing::Bound => {
                let worker = connection as usize % s.queues.len();
                s.queues[worker].push_back(request);
                let task = self.load.groups[group as usize].members[worker];
                if task != NONE && self.tasks[task as usize].block == Block::Work {
                    self.wake_worker(task);
                }
            }
            Queueing::Shared | Queueing::SharedLifo => {
                s.queues[0].push_back(request);
                let lifo = s.queueing == Queueing::SharedLifo;
                let worker = if lifo { s.idle.pop_back() } else { s.idle.pop_front() };
                if let Some(worker) = worker {
                    self.wake_worker(worker);
                }
            }
        }
    }

    fn turn_away(&mut self, service: u32, request: Req) {
        let group = self.load.services[service as usize].group;
        self.metrics.rejected(group);
        if request.client != NONE {
            // A full service refuses at once; its client does not ask again in the same moment.
            self.ask_later(service, request.client);
        }
    }

    fn begin_task(&mut self, task: u32, request: Req) {
        let t = &mut self.tasks[task as usize];
        t.request = Some(request);
        t.work_left_ns = request.demand_ns;
        t.expected_ns = request.demand_ns;
        t.woken_ns = self.now;
        self.work_in += request.demand_ns;
        self.wake_now(task);
    }

    fn wake_worker(&mut self, worker: u32) {
        let t = &mut self.tasks[worker as usize];
        t.woken_ns = self.now;
        t.waker_row = NO_ROW;
        self.wake_now(worker);
    }

    /// The queue that a worker serves.
    fn queue_of(&self, task: u32) -> (usize, usize) {
        let t = &self.tasks[task as usize];
        let service = self.load.groups[t.group as usize].service.unwrap_or(0) as usize;
        let bound = self.load.services[service].queueing == Queueing::Bound;
        (service, if bound { t.member as usize } else { 0 })
    }

    /// What a woken worker will have to do, as far as one can tell.
    pub fn foresee_request(&mut self, task: u32) {
        let (service, queue) = self.queue_of(task);
        let next = self.load.services[service].queues[queue].front().map(|r| r.demand_ns);
        let t = &mut self.tasks[task as usize];
        if t.request.is_none() {
            t.expected_ns = next.unwrap_or(0);
        }
    }

    /// A worker on its CPU takes the next request, or waits for one.
    pub fn advance_worker(&mut self, task: u32) -> Next {
        let (service, queue) = self.queue_of(task);
        let s = &mut self.load.services[service];
        if s.queueing == Queueing::TaskPerRequest {
            return Next::Exit;
        }
        let Some(mut request) = s.queues[queue].pop_front() else {
            if s.queueing != Queueing::Bound {
                s.idle.push_back(task);
            }
            return Next::Block(Block::Work);
        };
        request.begun_ns = self.now;
        self.work_in += request.demand_ns;
        let t = &mut self.tasks[task as usize];
        t.request = Some(request);
        t.expected_ns = request.demand_ns;
        Next::Run(request.demand_ns)
    }

    /// A stretch of work is done: if it was a request's, that is answered.
    pub fn work_is_done(&mut self, task: u32) {
        let t = &mut self.tasks[task as usize];
        if t.work_left_ns > 0 {
            return;
        }
        t.expected_ns = 0;
        let Some(request) = t.request.take() else { return };
        let group = t.group;
        self.note_answer(group, &request);
        let service = self.load.groups[group as usize].service.unwrap_or(0);
        self.load.services[service as usize].in_system -= 1;
        if request.client != NONE {
            self.ask_later(service, request.client);
        }
    }

    /// A worker is made to exit: its request is lost, its client asks again; its connections have no worker any more.
    pub fn worker_is_lost(&mut self, task: u32) {
        let Some(service) = self.load.groups[self.tasks[task as usize].group as usize].service else {
            return;
        };
        let request = self.tasks[task as usize].request.take();
        let s = &mut self.load.services[service as usize];
        s.idle.retain(|&worker| worker != task);
        if let Some(request) = request {
            s.in_system -= 1;
            if request.client != NONE {
                self.ask_later(service, request.client);
            }
        }
    }
}
