// SPDX-License-Identifier: GPL-2.0-only
//! Errors that carry an exit code.
//!
//! Everything here returns `anyhow::Result`; an error made by one of these functions decides the exit code of the
//! process wherever it sits in the chain. Any other error ends with code 1.

use std::fmt;

/// A check failed, or the work could not be finished.
pub const FAILED: u8 = 1;
/// The command line (or a scenario's header) is wrong.
pub const USAGE: u8 = 2;
/// This machine lacks something; the message says what and how to get it.
pub const CANNOT: u8 = 3;

/// An error with the exit code that it stands for.
#[derive(Debug)]
pub struct Fail {
    code: u8,
    message: String,
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fail {}

/// An error that ends the process with [`FAILED`].
pub fn failed(message: impl Into<String>) -> anyhow::Error {
    Fail { code: FAILED, message: message.into() }.into()
}

/// An error that ends the process with [`USAGE`].
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Fail { code: USAGE, message: message.into() }.into()
}

/// An error that ends the process with [`CANNOT`].
pub fn cannot(message: impl Into<String>) -> anyhow::Error {
    Fail { code: CANNOT, message: message.into() }.into()
}

/// The exit code that an error stands for.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<Fail>().map_or(FAILED, |fail| fail.code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn code_survives_context() {
        let error = Err::<(), _>(cannot("no qemu")).context("booting").unwrap_err();
        assert_eq!(exit_code(&error), CANNOT);
        assert_eq!(exit_code(&anyhow::anyhow!("plain")), FAILED);
    }
}
