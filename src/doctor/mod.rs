// SPDX-License-Identifier: GPL-2.0-only
//! Can Hearth attach to the running kernel, and if not, what exactly is missing?
//!
//! [`Preflight::run`] only reads files below [`Roots`] and changes nothing. `hearth doctor` prints it; the daemon
//! calls [`Preflight::quick`] before it loads anything. It must never refuse a machine that could attach: what it
//! cannot find out is a note, and the loader has its own say ([`explain_load_error`]).

mod btf;
mod exit;
mod kernel;
mod load_error;
mod report;
mod rights;
mod state;

pub use exit::Exit;
pub use kernel::KernelVersion;
pub use load_error::{Hint, explain_load_error};
pub use report::{Finding, Report, Severity};
pub use state::ExtState;

use crate::topology::{Topology, TopologyError};
use std::path::{Path, PathBuf};

/// Where the kernel's files are looked for.
#[derive(Clone, Debug)]
pub struct Roots {
    /// Stands for `/sys`.
    pub sysfs: PathBuf,
    /// Stands for `/proc`.
    pub proc: PathBuf,
    /// Stands for `/boot`.
    pub boot: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Roots { sysfs: "/sys".into(), proc: "/proc".into(), boot: "/boot".into() }
    }
}

/// The check before anything is loaded.
pub struct Preflight;

impl Preflight {
    /// Looks at the machine and says what is there, what is missing and how to mend it.
    #[must_use]
    pub fn run(roots: &Roots) -> Report {
        Self::look(roots, btf::check)
    }

    /// The same without a look into the kernel's type information. Reading that takes more memory than the daemon's
    /// arena has, and the loader compares it in any case.
    #[must_use]
    pub fn quick(roots: &Roots) -> Report {
        Self::look(roots, btf::check_present)
    }

    fn look(roots: &Roots, check_types: fn(&Path) -> Vec<Finding>) -> Report {
        let kernel = kernel::Kernel::read(roots);
        let state = ExtState::read(&roots.sysfs);
        let topology = Topology::from_sysfs(&roots.sysfs.join("devices/system"));
        let types = check_types(&roots.sysfs.join("kernel/btf/vmlinux"));
        // Some vendors carry sched_ext in an older kernel: its own type information knows better than its number.
        let has_types =
            state != ExtState::Absent && types.iter().all(|finding| finding.severity < Severity::Missing);

        let mut findings = vec![kernel.check_version(has_types), kernel.check_sched_ext(&state)];
        findings.push(kernel.check_config());
        findings.extend(kernel.check_jit(&roots.proc));
        findings.extend(types);
        findings.extend(kernel.check_features());
        findings.push(check_machine(&topology));
        findings.extend(rights::check(&roots.proc));
        findings.extend(rights::check_lockdown(&roots.sysfs));
        findings.extend(rights::check_real_time(roots, kernel.option("CONFIG_RT_GROUP_SCHED")));
        findings.extend(state.check());
        Report {
            kernel: kernel.release,
            machine: topology.ok().map(|topology| topology.to_string()),
            scheduler: state.scheduler().map(str::to_string),
            findings,
        }
    }
}

fn check_machine(topology: &Result<Topology, TopologyError>) -> Finding {
    match topology {
        Ok(topology) => Finding::ok("machine", topology.to_string()),
        Err(e @ TopologyError::TooManyCpus { .. }) => Finding::missing(
            "machine",
            "the machine has more CPUs than Hearth's tables",
            e.to_string(),
            "boot with possible_cpus=4096 or less on the kernel's command line",
        ),
        Err(e) => Finding::missing(
            "machine",
            "the machine cannot be read",
            e.to_string(),
            "make /sys visible: mount -t sysfs sysfs /sys",
        ),
    }
}

/// The trimmed text of a small kernel file; none if it cannot be read.
fn read_text(path: &Path) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_matches(|c: char| c == '\0' || c.is_whitespace()).to_string())
}
