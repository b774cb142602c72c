// SPDX-License-Identifier: GPL-2.0-only
//! The pure core of the Hearth scheduler: facts about tasks and CPUs go in, decisions come out.
//!
//! **Determinism.** The core is a function of its input. It never reads a clock (time is an argument), never sleeps, does
//! no I/O, starts no thread, iterates over no unordered map and draws no random number that was not seeded. After
//! [`dispatcher::Dispatcher::new`] it allocates nothing. So the same events give the same decisions, byte for byte,
//! in a test, in the simulator, and under a real kernel; a recorded stream replays to what happened.
//!
//! # Modules, in reading order
//!
//! - [`ids`], [`cpuset`], [`topology`]: names for things, and the machine as a value;
//! - [`event`], [`reason`]: the whole interface: facts in, decisions and their reasons out;
//! - [`limits`]: every bound on one page;
//! - [`policy`]: what a policy is; [`policy::fifo`] is the one to copy; [`view`] is what a policy sees;
//! - [`lifecycle`]: the life of a task as a table;
//! - [`dispatcher`]: from a wakeup to a decision; it keeps its beliefs about CPUs in `machine` (idle maps, lines),
//!   about tasks in `tasks` (rows, affinity), and about who waits in `queues`, which stand on `ordered` (queues in
//!   a shared table) and `tournament` (who is smallest);
//! - [`warmth`], [`completion`]: what a move costs and when a CPU will be free, for policies that need it, from the costs in
//!   [`profile`]; both stand on [`decay`] and on histograms of run lengths ([`completion::histogram`]);
//! - [`stats`]: what it counts; [`checked`]: a policy under observation; [`record`]: a run as text, and its replay;
//! - [`policy::vtime`], [`policy::registry`]: a policy with a memory, and policies by name;
//! - [`doctor`]: what a machine lacks to attach; the exit codes that all programs share.

#![forbid(unsafe_code)]

pub mod checked;
pub mod completion;
pub mod cpuset;
pub mod decay;
pub mod dispatcher;
pub mod doctor;
pub mod event;
pub mod ids;
pub mod lifecycle;
pub mod limits;
mod machine;
mod ordered;
pub mod policy;
pub mod profile;
mod queues;
pub mod reason;
pub mod record;
pub mod sim;
pub mod stats;
mod tasks;
pub mod topology;
mod tournament;
pub mod view;
pub mod warmth;
