// SPDX-License-Identifier: GPL-2.0-only
//! Messages on standard error: a short time, colour only for a terminal.

use crate::sys;
use std::fmt;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

struct Clock;

impl FormatTime for Clock {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        let (hour, minute, second) = sys::local_time();
        write!(w, "{hour:02}:{minute:02}:{second:02}")
    }
}

/// Starts it; `level` is the least severe one that is shown.
pub fn start(level: &str) {
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(level))
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(colour)
        .with_timer(Clock)
        .init();
}
