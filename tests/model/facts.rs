// SPDX-License-Identifier: GPL-2.0-only
//! Facts made by hand, for tests that need no kernel.

use hearth::checked::{Checked, OnViolation};
use hearth::dispatcher::{Config, Dispatcher};
use hearth::event::{Command, CpuStatus, NO_ROW, Outcome, Runnable, Why};
use hearth::ids::{CpuId, Nanos, TaskId};
use hearth::policy::Policy;
use hearth::policy::registry::{self, AnyPolicy};
use hearth::topology::Topology;

pub const MS: Nanos = 1_000_000;
pub const SECOND: Nanos = 1000 * MS;
pub const SLICE: Nanos = 5 * MS;

pub fn config(max_tasks: usize) -> Config {
    Config { max_tasks, ..Config::default() }
}

/// A dispatcher with a policy by name, checked, that panics when a promise is broken.
pub fn dispatcher(topology: Topology, policy: &str, config: Config) -> Dispatcher<Checked<AnyPolicy>> {
    let policy = (registry::find(policy).unwrap().build)(&config);
    Dispatcher::new(topology, config, Checked::new(policy, OnViolation::Panic))
}

pub fn task(idx: u32, generation: u32) -> TaskId {
    TaskId { idx, generation }
}

pub fn wakeup(task: TaskId, seq: u32, prev_cpu: u32) -> Runnable {
    Runnable {
        task,
        pid: task.idx.wrapping_add(100),
        seq,
        why: Why::Woken,
        prev_cpu: CpuId(prev_cpu),
        ran_ns: 0,
        slept_ns: 0,
        waited_ns: 0,
        left_busy_ns: 0,
        waker_row: NO_ROW,
        weight: 100,
        cgroup: 1,
    }
}

/// A reading of a CPU whose occupant has just started.
pub fn status(cpu: u32, curr: Option<TaskId>, depth: u32) -> CpuStatus {
    CpuStatus {
        cpu: CpuId(cpu),
        curr,
        other: false,
        held: false,
        since_ns: u64::MAX,
        slice_ns: SLICE,
        busy_ns: 0,
        depth,
    }
}

/// Polls until nothing comes, and carries everything out.
pub fn poll_all<P: Policy>(d: &mut Dispatcher<P>, now: Nanos) -> Vec<Command> {
    let commands: Vec<Command> = std::iter::from_fn(|| d.poll(now)).collect();
    for command in &commands {
        d.committed(now, command, Outcome::Done);
    }
    commands
}
