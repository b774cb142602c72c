// SPDX-License-Identifier: GPL-2.0-only
//! Whether KVM really runs a stock kernel here: the device may be there (nested, restricted) and still not work.

use super::Settings;
use super::boot::{Accel, End, Machine};
use super::image::Image;
use super::results;
use super::scenario::{Clock, Scenario};
use super::topology::Topology;
use crate::fail::cannot;
use crate::kernel::Kernel;
use crate::paths;
use crate::ui::Step;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::time::Duration;

/// A working KVM boots in about two seconds.
const PROBE_LIMIT: Duration = Duration::from_secs(15);

/// Whether boots under the real clock use KVM.
pub fn wanted(settings: &Settings) -> Result<bool> {
    match settings.accel {
        Accel::Tcg => Ok(false),
        Accel::Auto => works(&settings.kernel),
        Accel::Kvm if works(&settings.kernel)? => Ok(true),
        Accel::Kvm => Err(cannot("KVM does not boot this kernel here: use --accel tcg")),
    }
}

/// Boots once with KVM, and remembers the answer for this host and kernel.
fn works(kernel: &Kernel) -> Result<bool> {
    let device = std::fs::File::options().read(true).write(true).open("/dev/kvm");
    if device.is_err() {
        return Ok(false);
    }
    let memo = paths::cache()?.join("kvm-probe");
    let host = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let question = format!("{} {}", host.trim(), kernel.image.display());
    let known = std::fs::read_to_string(&memo).unwrap_or_default();
    if let Some(answer) = known.strip_prefix(&question) {
        return Ok(answer.trim() == "yes");
    }
    let answer = probe(kernel)?;
    let text = format!("{question} {}\n", if answer { "yes" } else { "no" });
    std::fs::write(&memo, text).with_context(|| format!("cannot write {}", memo.display()))?;
    Ok(answer)
}

fn probe(kernel: &Kernel) -> Result<bool> {
    let _step = Step::start("probing KVM with a short boot");
    let scratch = paths::scratch("kvm-")?;
    let initrd: PathBuf = scratch.path().join("initrd.cpio");
    let mut image = Image::base(kernel)?;
    image.add_scenario(&Scenario::parse("probe", "true\n")?, &[]);
    image.write(&initrd)?;
    let machine = Machine {
        kernel,
        topology: Topology { llcs: 1, cores: 2, threads: 1 },
        clock: Clock::Real,
        kvm: true,
        memory_mib: 512,
        append: "",
        seed: 1,
        timeout: PROBE_LIMIT,
        verbose: false,
    };
    let boot = machine.boot(&initrd, scratch.path())?;
    let parsed = results::parse(&boot.results);
    Ok(boot.end == End::ByItself && parsed.end == Some(0) && parsed.faults(&boot.console).is_empty())
}
