// SPDX-License-Identifier: GPL-2.0-only
//! Phases as a flat list of steps with jumps.

use super::scenario::{Dist, Phase, Problem, Scenario, Who};
use super::task::MAX_DEPTH;

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Run(Dist),
    Sleep(Dist),
    Wait {
        all: bool,
    },
    Send {
        group: u32,
        who: Who,
    },
    Call {
        group: u32,
        who: Who,
    },
    Reply,
    LoopStart {
        count: u32,
        depth: u8,
        end: u32,
    },
    LoopEnd {
        depth: u8,
        start: u32,
    },
    Fork {
        group: u32,
        count: u32,
    },
    Yield,
    Exit,
    /// From the top again, or the end after the last round.
    Again,
    /// Serve requests (workers).
    Serve,
}

/// The program of a task group.
pub(crate) fn compile(phases: &[Phase], scenario: &Scenario) -> Result<Vec<Op>, Problem> {
    let mut ops = Vec::new();
    add(phases, scenario, 0, &mut ops)?;
    ops.push(Op::Again);
    Ok(ops)
}

fn add(phases: &[Phase], scenario: &Scenario, depth: u8, ops: &mut Vec<Op>) -> Result<(), Problem> {
    if depth as usize >= MAX_DEPTH {
        return Err(Problem::new("task.phases", format!("more than {MAX_DEPTH} loops inside one another")));
    }
    let group = |name: &str| scenario.task.iter().position(|group| group.name == name).unwrap_or(0) as u32;
    for phase in phases {
        match phase {
            Phase::Run(dist) => ops.push(Op::Run(dist.clone())),
            Phase::Sleep(dist) => ops.push(Op::Sleep(dist.clone())),
            Phase::Wait(wait) => ops.push(Op::Wait { all: wait.all }),
            Phase::Send(to) => ops.push(Op::Send { group: group(&to.to), who: to.who }),
            Phase::Call(to) => ops.push(Op::Call { group: group(&to.to), who: to.who }),
            Phase::Reply(_) => ops.push(Op::Reply),
            Phase::Fork(fork) => ops.push(Op::Fork { group: group(&fork.group), count: fork.count }),
            Phase::Yield(_) => ops.push(Op::Yield),
            Phase::Exit(_) => ops.push(Op::Exit),
            Phase::Loop(inner) => {
                let start = ops.len() as u32;
                ops.push(Op::LoopStart { count: inner.count, depth, end: 0 });
                add(&inner.phases, scenario, depth + 1, ops)?;
                let end = ops.len() as u32;
                ops.push(Op::LoopEnd { depth, start });
                ops[start as usize] = Op::LoopStart { count: inner.count, depth, end };
            }
        }
    }
    Ok(())
}
