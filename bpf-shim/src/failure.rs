// SPDX-License-Identifier: GPL-2.0-only
//! Why the daemon cannot go on, and the exit code that says so.

use anyhow::Error;
use hearth::doctor::{Exit, ExtState, explain_load_error};
use std::io;
use std::path::Path;

/// An error and the exit code it means.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What went wrong, and what to do.
    pub error: Error,
}

impl Failure {
    /// An error that means this exit code.
    pub fn new(exit: Exit, error: Error) -> Self {
        Self { exit, error }
    }

    /// This machine cannot.
    pub fn unsupported(error: Error) -> Self {
        Self::new(Exit::Unsupported, error)
    }

    /// Loading or attaching failed: says what the kernel's number means, which is often not what it says.
    pub fn load(error: Error) -> Self {
        let state = ExtState::read(Path::new("/sys"));
        let version = std::fs::read_to_string("/proc/sys/kernel/version").unwrap_or_default();
        Self::explain(error, &state, &version)
    }

    fn explain(error: Error, state: &ExtState, version: &str) -> Self {
        match (errno(&error), state) {
            (Some(number), _) => {
                let hint = explain_load_error(number, state, version);
                Self::new(hint.exit, error.context(hint.to_string()))
            }
            (None, ExtState::Enabled(name)) => {
                let text =
                    format!("another scheduler, {name}, is attached; end it first; it was not touched");
                Self::new(Exit::Busy, error.context(text))
            }
            (None, _) => Self::unsupported(error),
        }
    }
}

/// The error number in a chain of causes. libbpf-rs keeps it to itself except in its text.
fn errno(error: &Error) -> Option<i32> {
    error.chain().find_map(|cause| {
        cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error).or_else(|| {
            let text = cause.to_string();
            let (_, tail) = text.rsplit_once("(os error ")?;
            tail.split(')').next()?.parse().ok()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    fn libbpf(number: i32) -> Error {
        Err::<(), _>(libbpf_rs::Error::from_raw_os_error(number)).context("cannot load").unwrap_err()
    }

    #[test]
    fn the_number_is_found_wherever_it_is() {
        assert_eq!(errno(&libbpf(16)), Some(16));
        assert_eq!(errno(&io::Error::from_raw_os_error(95).into()), Some(95));
        assert_eq!(errno(&anyhow!("program too large (os error 7): see the log").context("x")), Some(7));
        assert_eq!(errno(&anyhow!("no number (os error x)")), None);
    }

    #[test]
    fn c38_busy_means_another_scheduler_only_if_there_is_one() {
        let other = ExtState::Enabled("other_1.0".into());
        let taken = Failure::explain(libbpf(16), &other, "");
        assert_eq!(taken.exit, Exit::Busy);
        assert!(taken.error.to_string().contains("other_1.0"), "{:#}", taken.error);
        assert_eq!(Failure::explain(libbpf(16), &ExtState::Disabled, "").exit, Exit::Unsupported);
        assert_eq!(
            Failure::explain(libbpf(95), &ExtState::Disabled, "SMP PREEMPT_RT").exit,
            Exit::Unsupported
        );
        // The attach helper looks for itself, and then has no number.
        assert_eq!(Failure::explain(anyhow!("already running"), &other, "").exit, Exit::Busy);
        assert_eq!(Failure::explain(anyhow!("no tracer"), &ExtState::Disabled, "").exit, Exit::Unsupported);
    }

    #[test]
    fn the_cause_stays_in_the_text() {
        let failure = Failure::explain(libbpf(1), &ExtState::Disabled, "");
        assert!(format!("{:#}", failure.error).contains("(os error 1)"), "{:#}", failure.error);
    }
}
