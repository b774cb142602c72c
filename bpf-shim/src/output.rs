// SPDX-License-Identifier: GPL-2.0-only
//! Lines on standard output and standard error. A reader that has gone away (`| head`) has seen enough: no error and no panic.

use anyhow::{Context, Result};
use std::io::{ErrorKind, Write};

/// Whether anybody still reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The line went out.
    There,
    /// The other end of the pipe is closed.
    Gone,
}

/// Prints a line.
pub fn print(line: &str) -> Result<Reader> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(e) => Err(e).context("cannot write to standard output"),
    }
}

/// Says a line on standard error; nobody is left to tell if that is closed.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
