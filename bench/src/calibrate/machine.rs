// SPDX-License-Identifier: GPL-2.0-only
//! What must be known about the machine before it is measured: caches, which CPUs to use, and what may spoil the figures.

use super::options::Options;
use crate::{Failure, host};
use hearth::ids::CpuId;
use hearth::topology::{SYSFS_ROOT, Topology, format_cpu_list, parse_cpu_list};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Sizes of the caches that one CPU sees, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Caches {
    /// First-level data cache.
    pub l1_bytes: usize,
    /// Second level; private to a core where there is a third.
    pub l2_bytes: usize,
    /// The last level.
    pub llc_bytes: usize,
    /// Whether the second level is below the last one.
    pub private_l2: bool,
    /// Whether the kernel told all of them; if not, some are usual sizes.
    pub known: bool,
}

/// Usual sizes, for machines (most often virtual ones) that do not tell.
const USUAL: Caches =
    Caches { l1_bytes: 32 << 10, l2_bytes: 1 << 20, llc_bytes: 32 << 20, private_l2: true, known: false };

impl Caches {
    /// Reads them from a CPU's directory in sysfs.
    pub fn read(cpu_dir: &Path) -> Self {
        let level = |wanted: &str| {
            (0..8).map(|index| cpu_dir.join(format!("cache/index{index}"))).find_map(|dir| {
                let text = |file: &str| fs::read_to_string(dir.join(file)).ok();
                let is = text("level")?.trim() == wanted && text("type")?.trim() != "Instruction";
                if is { parse_size(text("size")?.trim()) } else { None }
            })
        };
        let (l1, l2, l3) = (level("1"), level("2"), level("3"));
        let l2_bytes = l2.unwrap_or(USUAL.l2_bytes);
        // With a second but no third level, the second is the last.
        let llc_bytes = l3.or(l2).unwrap_or(USUAL.llc_bytes);
        Self {
            l1_bytes: l1.unwrap_or(USUAL.l1_bytes),
            l2_bytes,
            llc_bytes,
            private_l2: llc_bytes > l2_bytes,
            known: l1.is_some() && l2.is_some(),
        }
    }
}

/// "48K", "2048K", "32M", "65536".
fn parse_size(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let shift = match text.strip_prefix(digits)? {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.parse::<usize>().ok().filter(|&size| size > 0)?.checked_mul(1 << shift)
}

/// The CPUs that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cpus {
    /// Where everything is measured that one CPU can show.
    pub home: usize,
    /// Another core of the same LLC domain.
    pub near: Option<usize>,
    /// A CPU of another LLC domain.
    pub far: Option<usize>,
}

impl Cpus {
    /// Chooses among `usable`: home is the last CPU of the first domain that has a second core, since low numbers serve
    /// most interrupts.
    pub fn choose(topology: &Topology, usable: &[usize]) -> Option<Self> {
        let cpus: Vec<_> = topology.cpus.iter().filter(|cpu| usable.contains(&cpu.id.idx())).collect();
        let near = |home: &hearth::topology::Cpu| {
            cpus.iter().rev().find(|cpu| cpu.llc == home.llc && cpu.core != home.core).map(|cpu| cpu.id.idx())
        };
        let first = cpus.iter().find(|cpu| near(cpu).is_some()).or(cpus.first())?;
        let home = cpus.iter().rev().find(|cpu| cpu.llc == first.llc)?;
        let far = cpus.iter().rev().find(|cpu| cpu.llc != home.llc).map(|cpu| cpu.id.idx());
        Some(Self { home: home.id.idx(), near: near(home), far })
    }
}

/// The machine, and how this process may use it.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The processor's own name.
    pub model: String,
    /// The kernel's release.
    pub kernel: String,
    /// The caches of the home CPU.
    pub caches: Caches,
    /// The chosen CPUs.
    pub cpus: Cpus,
    /// LLC domains of the whole machine.
    pub llcs: usize,
    /// What may spoil the figures, and what cannot be measured here, known before the start.
    pub warnings: Vec<String>,
}

impl Machine {
    /// Looks at the machine.
    ///
    /// # Errors
    /// If its CPUs cannot be read, or `--cpus` names one that this process may not use.
    pub fn read(options: &Options) -> Result<Self, Failure> {
        let topology =
            Topology::from_sysfs(Path::new(SYSFS_ROOT)).map_err(|e| Failure::machine(e.to_string()))?;
        let allowed: Vec<usize> = core_affinity::get_core_ids()
            .unwrap_or_default()
            .into_iter()
            .map(|core| core.id)
            .filter(|&id| u32::try_from(id).is_ok_and(|id| topology.cpu(CpuId(id)).is_some()))
            .collect();
        let usable = match &options.cpus {
            Some(list) => asked_for(list, &allowed)?,
            None => allowed.clone(),
        };
        let cpus = Cpus::choose(&topology, &usable).ok_or_else(|| {
            Failure::machine("the kernel names no CPU that this process may use".to_owned())
        })?;
        let caches = Caches::read(&Path::new(SYSFS_ROOT).join(format!("cpu/cpu{}", cpus.home)));
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let mut warnings = missing(&topology, &caches, &cpus, usable.len());
        if allowed.len() < topology.cpus.len() {
            warnings.push(format!(
                "only CPUs {} of {} are allowed to this process (pinned, or in a cpuset)",
                list(&allowed),
                topology.cpus.len()
            ));
        }
        if cpuinfo_field(&cpuinfo, "flags")
            .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"))
        {
            warnings.push(
                "virtual machine: cache sizes may be wrong, page walks and wakeups are dearer than on bare metal, and \
                 other guests share the LLC"
                    .to_owned(),
            );
        }
        warnings.extend(governor_warning(cpus.home));
        let model = cpuinfo_field(&cpuinfo, "model name").unwrap_or("unknown CPU").to_owned();
        Ok(Self { model, kernel: host::kernel_release(), caches, cpus, llcs: topology.llcs.len(), warnings })
    }
}

fn asked_for(list_text: &str, allowed: &[usize]) -> Result<Vec<usize>, Failure> {
    let asked = parse_cpu_list(list_text).map_err(|e| Failure::usage(format!("--cpus {list_text}: {e}")))?;
    let asked: Vec<usize> = asked.into_iter().map(CpuId::idx).collect();
    if asked.is_empty() {
        return Err(Failure::usage("--cpus names no CPU".to_owned()));
    }
    match asked.iter().find(|id| !allowed.contains(id)) {
        Some(id) => Err(Failure::usage(format!(
            "--cpus {list_text}: CPU {id} is offline or not allowed to this process; allowed are {}",
            list(allowed)
        ))),
        None => Ok(asked),
    }
}

fn list(cpus: &[usize]) -> String {
    let ids: Vec<CpuId> = cpus.iter().filter_map(|&id| u32::try_from(id).ok()).map(CpuId).collect();
    format_cpu_list(&ids)
}

/// What this machine, or the choice of CPUs, cannot show.
fn missing(topology: &Topology, caches: &Caches, cpus: &Cpus, usable: usize) -> Vec<String> {
    let mut warnings = Vec::new();
    if usable == 1 {
        warnings.push("a single CPU: migrations and wakeups across CPUs are not measured".to_owned());
    } else if cpus.near.is_none() {
        warnings
            .push("no second core in the LLC domain: migration within a domain is not measured".to_owned());
    }
    if usable > 1 && cpus.far.is_none() {
        let why =
            if topology.llcs.len() == 1 { "the machine has one" } else { "the usable CPUs are all in one" };
        warnings.push(format!("no second LLC domain ({why}): migration across domains is not measured"));
    }
    if !caches.known {
        warnings.push(
            "the kernel does not tell the sizes of all caches: usual ones are assumed (32 KB, 1 MB, 32 MB)"
                .to_owned(),
        );
    }
    if !caches.private_l2 {
        warnings.push(
            "no cache level below the last but L1: the level L2 keeps the built-in's numbers".to_owned(),
        );
    }
    warnings
}

fn governor_warning(cpu: usize) -> Option<String> {
    let path = format!("{SYSFS_ROOT}/cpu/cpu{cpu}/cpufreq/scaling_governor");
    let governor = fs::read_to_string(path).ok()?.trim().to_owned();
    (governor != "performance").then(|| {
        format!("frequency governor {governor}: the clock rate may change during the measurement (\"performance\" is steadier)")
    })
}

fn cpuinfo_field<'a>(cpuinfo: &'a str, key: &str) -> Option<&'a str> {
    cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// Times of one CPU from /proc/stat, in the kernel's ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTimes {
    total: u64,
    steal: u64,
}

impl CpuTimes {
    /// The times of `cpu` so far.
    pub fn read(cpu: usize) -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?, cpu)
    }

    fn parse(stat: &str, cpu: usize) -> Option<Self> {
        let name = format!("cpu{cpu} ");
        let fields = stat.lines().find_map(|line| line.strip_prefix(&name))?;
        // user nice system idle iowait irq softirq steal; guest times are part of user.
        let ticks: Vec<u64> =
            fields.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { total: ticks.iter().sum(), steal: ticks.get(7).copied().unwrap_or(0) })
    }

    /// Percent of the time since `before` that the hypervisor gave to others.
    pub fn steal_pct(self, before: Self) -> f64 {
        let total = self.total.saturating_sub(before.total).max(1);
        self.steal.saturating_sub(before.steal) as f64 * 100.0 / total as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearth::topology::FULL_CAPACITY;

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_size("48K"), Some(48 << 10));
        assert_eq!(parse_size("32M"), Some(32 << 20));
        assert_eq!(parse_size("64"), Some(64));
        for bad in ["", "K", "12X", "0K", "KK", "99999999999999999999G"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn caches_come_from_sysfs_or_are_usual() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Caches::read(dir.path()), USUAL);
        let levels = [("1", "Data", "48K"), ("1", "Instruction", "64K"), ("2", "Unified", "2048K")];
        for (index, (level, kind, size)) in levels.iter().enumerate() {
            let index = dir.path().join(format!("cache/index{index}"));
            fs::create_dir_all(&index).unwrap();
            for (file, text) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(index.join(file), format!("{text}\n")).unwrap();
            }
        }
        let caches = Caches::read(dir.path());
        assert_eq!((caches.l1_bytes, caches.l2_bytes, caches.llc_bytes), (48 << 10, 2 << 20, 2 << 20));
        assert!(caches.known && !caches.private_l2);
    }

    fn chosen(topology: &Topology, usable: &[usize]) -> (usize, Option<usize>, Option<usize>) {
        let cpus = Cpus::choose(topology, usable).unwrap();
        (cpus.home, cpus.near, cpus.far)
    }

    #[test]
    fn near_is_another_core_and_far_another_domain() {
        let chiplets = Topology::grid(2, 2, 2);
        assert_eq!(chosen(&chiplets, &[0, 1, 2, 3, 4, 5, 6, 7]), (3, Some(1), Some(7)));
        assert_eq!(chosen(&chiplets, &[0, 1]), (1, None, None), "siblings share everything");
        assert_eq!(chosen(&chiplets, &[5]), (5, None, None));
        assert_eq!(chosen(&chiplets, &[0, 4, 6]), (6, Some(4), Some(0)), "the domain with two cores is home");
        assert_eq!(Cpus::choose(&chiplets, &[99]), None);
    }

    #[test]
    fn what_is_missing_is_said() {
        let one = Topology::builder().llc().cores(1, 1, FULL_CAPACITY).build().unwrap();
        let cpus = Cpus::choose(&one, &[0]).unwrap();
        assert!(missing(&one, &USUAL, &cpus, 1)[0].starts_with("a single CPU"));
        let two = Topology::grid(1, 2, 1);
        let warnings = missing(&two, &USUAL, &Cpus::choose(&two, &[0, 1]).unwrap(), 2).join("\n");
        assert!(warnings.contains("no second LLC domain (the machine has one)"), "{warnings}");
        assert!(warnings.contains("does not tell the sizes"), "{warnings}");
    }

    #[test]
    fn steal_is_a_share_of_the_time_between() {
        let before = CpuTimes::parse("cpu  9 9\ncpu1 10 0 10 70 0 0 0 10 5 0\n", 1).unwrap();
        let after = CpuTimes::parse("cpu1 60 0 10 70 0 0 0 60 5 0\n", 1).unwrap();
        assert_eq!((before.total, before.steal), (100, 10));
        assert!((after.steal_pct(before) - 50.0).abs() < 1e-9);
        assert_eq!(CpuTimes::parse("cpu1 10 0\n", 2), None);
    }

    #[test]
    fn cpus_that_are_not_allowed_are_refused() {
        assert_eq!(asked_for("0,2", &[0, 1, 2]).unwrap(), [0, 2]);
        for bad in ["7", "x", ""] {
            assert_eq!(asked_for(bad, &[0, 1]).unwrap_err().code(), crate::USAGE, "{bad}");
        }
    }
}
