// SPDX-License-Identifier: GPL-2.0-only
//! The exit codes that all of Hearth's programs share.

/// How a program ended, as scripts see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It did what it was asked to.
    Ok = 0,
    /// A check or a threshold failed, or something unforeseen went wrong.
    Failed = 1,
    /// The command line or a configuration makes no sense.
    Usage = 2,
    /// This machine cannot: kernel, rights or a program is missing.
    Unsupported = 3,
    /// The kernel ended the scheduler.
    Ejected = 4,
    /// Another scheduler is attached.
    Busy = 5,
    /// The policy broke a rule or panicked.
    Policy = 6,
}

impl Exit {
    /// The table for `--help`.
    pub const HELP: &str = "Exit codes:
  0  ok
  1  a check failed, or an unforeseen error
  2  usage: the command line makes no sense
  3  this machine cannot: kernel, rights or a program is missing
  4  ejected: the kernel ended the scheduler (the reason is printed)
  5  someone else is attached
  6  the policy failed";

    /// The number that the shell sees.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}
