// SPDX-License-Identifier: GPL-2.0-only
//! Hearth's load generators. They work under any Linux scheduler and need no privileges.
//!
//! - [`schbench`]: wakeup and request latency, with the threads and figures of schbench
//! - [`affinity_race`]: changes of affinity against wakeups, and a check of where threads run
//! - [`calibrate`]: what losing cached state costs on this machine, written as a profile
//! - [`hist`]: latency histograms with schbench's arithmetic
//! - [`gate`], [`clock`]: the wakeup that is measured, and the clock it is measured with
//! - [`host`]: what a report says about the machine
//! - [`sys`]: Linux calls; the only place with `unsafe`

#![deny(unsafe_code)]

pub mod affinity_race;
pub mod calibrate;
pub mod clock;
pub mod gate;
pub mod hist;
pub mod host;
pub mod schbench;
#[allow(unsafe_code)]
pub mod sys;

use std::fmt;

/// Exit code: a check failed, or a run is incomplete.
pub const FAILED: u8 = 1;
/// Exit code: options that make no sense.
pub const USAGE: u8 = 2;
/// Exit code: this machine cannot do it.
pub const MACHINE: u8 = 3;

/// Why a command ends, and with which exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    cause: anyhow::Error,
}

impl Failure {
    /// The run failed.
    pub fn failed(message: String) -> Self {
        anyhow::Error::msg(message).into()
    }

    /// The user must change the command line.
    pub fn usage(message: String) -> Self {
        Self { code: USAGE, cause: anyhow::Error::msg(message) }
    }

    /// The same command line may work on another machine.
    pub fn machine(message: String) -> Self {
        Self { code: MACHINE, cause: anyhow::Error::msg(message) }
    }

    /// The process's exit code.
    pub fn code(&self) -> u8 {
        self.code
    }
}

impl From<anyhow::Error> for Failure {
    fn from(cause: anyhow::Error) -> Self {
        Self { code: FAILED, cause }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.cause)
    }
}
