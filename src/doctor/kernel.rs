// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's version and how it was built.

use super::{ExtState, Finding, Roots, read_text};
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// First mainline kernel with sched_ext.
const FIRST: KernelVersion = KernelVersion { major: 6, minor: 12 };

/// Which mainline kernel brought what Hearth makes use of, and what it does without.
/// Functions are looked for by name instead (see the table in `btf.rs`): these are changes of behaviour.
const FEATURES: [(KernelVersion, &str, &str); 3] = [
    (
        KernelVersion { major: 6, minor: 15 },
        "sched_ext's own event counters",
        "its counters are not shown beside ours",
    ),
    (
        KernelVersion { major: 7, minor: 0 },
        "the deadline server for sched_ext tasks",
        "a real-time hog can starve a CPU's pinned tasks for longer",
    ),
    (
        KernelVersion { major: 7, minor: 1 },
        "a scx_bpf_dsq_peek that never misses a waiting task",
        "the age of waiting tasks is found by iterating",
    ),
];

/// Besides CONFIG_SCHED_CLASS_EXT, which `/sys/kernel/sched_ext` proves better.
const NEEDED_OPTIONS: [&str; 3] = ["CONFIG_BPF_SYSCALL", "CONFIG_BPF_JIT", "CONFIG_DEBUG_INFO_BTF"];

const OTHER_KERNEL: &str = "boot a kernel that has it (Debian's 7.x kernels do), or use `cargo xtask lab`";

/// Upper bound for an unpacked `/proc/config.gz`; real ones are below 0.5 MB.
const MAX_CONFIG_BYTES: u64 = 8 << 20;

/// A kernel version as far as features go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    /// 7 of 7.3.4.
    pub major: u32,
    /// 3 of 7.3.4.
    pub minor: u32,
}

impl KernelVersion {
    /// Reads the front of a release such as `7.3.4+deb13-cloud-amd64` or `6.12-rc1`.
    #[must_use]
    pub fn parse(release: &str) -> Option<KernelVersion> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        Some(KernelVersion { major: numbers.next()?.parse().ok()?, minor: numbers.next()?.parse().ok()? })
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What is known about the running kernel.
pub(super) struct Kernel {
    pub release: String,
    version: Option<KernelVersion>,
    realtime: bool,
    config: Option<BTreeMap<String, String>>,
}

impl Kernel {
    pub fn read(roots: &Roots) -> Kernel {
        let sys = roots.proc.join("sys/kernel");
        let release = read_text(&sys.join("osrelease")).unwrap_or_default();
        let realtime = read_text(&sys.join("version")).is_some_and(|version| is_realtime(&version));
        let version = KernelVersion::parse(&release);
        Kernel { version, realtime, config: read_config(roots, &release), release }
    }

    /// Whether an option is built in; none if the configuration cannot be read.
    pub fn option(&self, name: &str) -> Option<bool> {
        self.config.as_ref().map(|config| config.get(name).is_some_and(|value| value == "y"))
    }

    pub fn check_version(&self, has_types: bool) -> Finding {
        let Some(version) = self.version else {
            return Finding::note(
                "kernel",
                format!("the kernel's version is not known ({:?})", self.release),
                format!("{FIRST} is the first with sched_ext"),
                "",
            );
        };
        if version < FIRST && !has_types {
            return Finding::missing(
                "kernel",
                format!("the kernel is {}, and {FIRST} is the first with sched_ext", self.release),
                "",
                OTHER_KERNEL,
            );
        }
        Finding::ok("kernel", format!("{} ({FIRST} or newer is needed)", self.release))
    }

    pub fn check_sched_ext(&self, state: &ExtState) -> Finding {
        if *state == ExtState::Absent {
            let why = match self.option("CONFIG_SCHED_CLASS_EXT") {
                Some(true) => {
                    "CONFIG_SCHED_CLASS_EXT is on, yet there is no /sys/kernel/sched_ext: is /sys mounted?"
                }
                Some(false) => {
                    "there is no /sys/kernel/sched_ext, and its configuration has CONFIG_SCHED_CLASS_EXT off"
                }
                None => "there is no /sys/kernel/sched_ext; its configuration cannot be read",
            };
            return Finding::missing("sched_ext", "the kernel has no sched_ext", why, OTHER_KERNEL);
        }
        if self.realtime {
            return Finding::note(
                "sched_ext",
                "present, but this is a realtime kernel (PREEMPT_RT)",
                "some of them show sched_ext and refuse every scheduler (EOPNOTSUPP)",
                "boot a kernel without PREEMPT_RT if loading fails",
            );
        }
        Finding::ok("sched_ext", "present")
    }

    pub fn check_config(&self) -> Finding {
        if self.config.is_none() {
            return Finding::note(
                "config",
                "the kernel's configuration cannot be read",
                format!("neither /boot/config-{} nor /proc/config.gz is there", self.release),
                "Hearth does not need it; some BPF programs do: `modprobe configs` shows it on many kernels",
            );
        }
        let off: Vec<&str> =
            NEEDED_OPTIONS.into_iter().filter(|name| self.option(name) == Some(false)).collect();
        if off.is_empty() {
            return Finding::ok("config", "BPF, its compiler and type information are built in");
        }
        Finding::missing(
            "config",
            format!("the kernel was built without {}", off.join(", ")),
            "",
            OTHER_KERNEL,
        )
    }

    pub fn check_jit(&self, proc: &Path) -> Option<Finding> {
        let off = read_text(&proc.join("sys/net/core/bpf_jit_enable"))? == "0";
        off.then(|| {
            Finding::missing(
                "jit",
                "the BPF compiler of the kernel is switched off",
                "scheduler programs are never interpreted",
                "sysctl -w net.core.bpf_jit_enable=1",
            )
        })
    }

    /// What newer kernels would add. Silent for those that cannot attach anyway.
    pub fn check_features(&self) -> Vec<Finding> {
        let Some(version) = self.version.filter(|version| *version >= FIRST) else {
            return Vec::new();
        };
        let absent = FEATURES.iter().filter(|(since, ..)| version < *since);
        absent
            .map(|(since, what, without)| {
                Finding::note(
                    "feature",
                    format!("not in this kernel: {what} (since {since})"),
                    format!("without: {without}"),
                    "",
                )
            })
            .collect()
    }
}

pub(super) fn is_realtime(version: &str) -> bool {
    version.contains("PREEMPT_RT")
}

fn read_config(roots: &Roots, release: &str) -> Option<BTreeMap<String, String>> {
    let text = fs::read_to_string(roots.boot.join(format!("config-{release}"))).ok().or_else(|| {
        let mut text = String::new();
        let packed = File::open(roots.proc.join("config.gz")).ok()?;
        GzDecoder::new(packed).take(MAX_CONFIG_BYTES).read_to_string(&mut text).ok()?;
        Some(text)
    })?;
    let options =
        text.lines().filter(|line| line.starts_with("CONFIG_")).filter_map(|line| line.split_once('='));
    let options: BTreeMap<String, String> =
        options.map(|(name, value)| (name.to_string(), value.trim().to_string())).collect();
    // An empty or foreign file says nothing about the kernel.
    (!options.is_empty()).then_some(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_distributions_write_them() {
        for (release, expected) in [
            ("7.3.4+deb13-cloud-amd64", Some((7, 3))),
            ("6.12-rc1", Some((6, 12))),
            ("6.18.44-fc-v782", Some((6, 18))),
            ("", None),
            ("next", None),
            ("7", None),
        ] {
            let expected = expected.map(|(major, minor)| KernelVersion { major, minor });
            assert_eq!(KernelVersion::parse(release), expected, "{release:?}");
        }
        assert!(KernelVersion { major: 7, minor: 1 } > KernelVersion { major: 6, minor: 19 });
    }
}
