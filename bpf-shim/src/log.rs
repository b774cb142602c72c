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

/// Starts it; `level` is the least severe one that is shown. What scx_utils finds out about the kernel at each load is
/// for those who ask for more.
pub fn start(level: &str) {
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter(level)))
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(colour)
        .with_timer(Clock)
        .init();
}

fn filter(level: &str) -> String {
    let helper = if level == "info" { "warn" } else { level };
    format!("{level},scx_utils={helper}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normal_run_is_not_told_about_helpers() {
        assert_eq!(filter("info"), "info,scx_utils=warn");
        assert_eq!(filter("debug"), "debug,scx_utils=debug");
        assert_eq!(EnvFilter::new(filter("error")).to_string(), "scx_utils=error,error");
    }
}
