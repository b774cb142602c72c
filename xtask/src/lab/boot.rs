// SPDX-License-Identifier: GPL-2.0-only
//! One boot of a guest, under a watchdog: it ends by itself, or is ended.

use super::scenario::Clock;
use super::topology::Topology;
use crate::fail::{cannot, failed};
use crate::kernel::Kernel;
use crate::proc::{self, Guard};
use crate::setup::needs;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// An Intel model that shows one L3 cache per socket under emulation.
const CPU_MODEL: &str = "Skylake-Server-v5";
/// A panic or a reboot ends the emulator. Without `notests` the kernel tests its ciphers in the background for the first
/// seconds after boot, on several CPUs: boots are slower, and first measurements worthless.
const CMDLINE: &str = "console=ttyS0 quiet panic=-1 nokaslr log_buf_len=4M cryptomgr.notests";
const CONSOLE: &str = "console.log";
const RESULTS: &str = "results.log";

/// How instructions of the guest are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Accel {
    /// KVM where a probe boot shows that it works, else emulation
    Auto,
    /// Emulation
    Tcg,
    /// KVM, which needs --clock real
    Kvm,
}

/// The machine of one boot.
pub struct Machine<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// CPUs and caches.
    pub topology: Topology,
    /// What the guest's clock follows.
    pub clock: Clock,
    /// Emulation or KVM.
    pub kvm: bool,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Additions to the kernel's command line.
    pub append: &'a str,
    /// Seed of the guest's random numbers: under the virtual clock, boots with the same seed and image are identical.
    pub seed: u32,
    /// Wall-clock limit.
    pub timeout: Duration,
    /// Show the console while it runs.
    pub verbose: bool,
}

/// How a boot ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The guest powered off or rebooted; what it said tells whether all went well.
    ByItself,
    /// The emulator failed; its words.
    Emulator(String),
    /// The watchdog ended it.
    TimedOut,
}

/// What a boot left behind.
pub struct Boot {
    /// How it ended.
    pub end: End,
    /// The first serial port: kernel and scripts.
    pub console: String,
    /// The second serial port: results only.
    pub results: String,
    /// Wall-clock time.
    pub wall: Duration,
}

impl Machine<'_> {
    fn command(&self, initrd: &Path, dir: &Path) -> Result<Command> {
        let qemu = proc::which(needs::QEMU).ok_or_else(|| cannot("no QEMU: run `cargo xtask setup`"))?;
        // The kernel ends the emulator should this process be killed before it can.
        let mut command = match proc::which("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL"]).arg(qemu);
                command
            }
            None => Command::new(qemu),
        };
        command.args(["-M", "q35", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.args(["-cpu", if self.kvm { "host" } else { CPU_MODEL }, "-smp", &self.topology.smp()]);
        command.args(["-m", &format!("{}M", self.memory_mib)]);
        match (self.kvm, self.clock) {
            (true, _) => command.args(["-accel", "kvm"]),
            (false, Clock::Real) => command.args(["-accel", "tcg,thread=multi"]),
            // One instruction is 2 ns, idle time is skipped.
            (false, Clock::Virtual) => command
                .args(["-accel", "tcg", "-icount", "shift=1,sleep=off"])
                .args(["-rtc", "base=2026-01-01,clock=vm", "-seed", &self.seed.to_string()]),
        };
        command.args(["-serial", &format!("file:{CONSOLE}"), "-serial", &format!("file:{RESULTS}")]);
        command.arg("-kernel").arg(&self.kernel.image).arg("-initrd").arg(initrd);
        command.args(["-append", format!("{CMDLINE} {}", self.append).trim_end()]);
        command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }

    /// Boots and waits for the end. `dir` receives the logs.
    pub fn boot(&self, initrd: &Path, dir: &Path) -> Result<Boot> {
        let start = Instant::now();
        let said = dir.join("qemu.log");
        let log = File::create(&said).with_context(|| format!("cannot create {}", said.display()))?;
        let mut command = self.command(initrd, dir)?;
        let mut child = Guard::spawn(command.stderr(log))?;
        let mut shown = self.verbose.then(|| Tail::new(dir));
        let end = loop {
            if let Some(tail) = &mut shown {
                tail.show();
            }
            if let Some(status) = child.poll()? {
                break if status.success() { End::ByItself } else { End::Emulator(emulator_words(&said)) };
            }
            if proc::interrupted() {
                return Err(failed("interrupted"));
            }
            if start.elapsed() > self.timeout {
                break End::TimedOut;
            }
            std::thread::sleep(proc::POLL);
        };
        // Ended before the logs are read, so that they are whole.
        drop(child);
        if let Some(tail) = &mut shown {
            tail.show();
        }
        let read = |name: &str| clean(&std::fs::read(dir.join(name)).unwrap_or_default());
        Ok(Boot { end, console: read(CONSOLE), results: read(RESULTS), wall: start.elapsed() })
    }
}

/// Text of a serial port: no carriage returns, no terminal control.
fn clean(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect()
}

/// What the emulator said, without its remarks on CPU features that emulation lacks.
fn emulator_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("TCG doesn't support")).collect();
    proc::tail(&lines.join("\n"), 5)
}

/// Copies what a growing console log gained to standard output.
struct Tail {
    path: std::path::PathBuf,
    file: Option<File>,
}

impl Tail {
    fn new(dir: &Path) -> Self {
        Self { path: dir.join(CONSOLE), file: None }
    }

    fn show(&mut self) {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let mut bytes = Vec::new();
        if let Some(file) = &mut self.file {
            // Only a view: the log itself is read again at the end.
            let _ = file.read_to_end(&mut bytes);
            let _ = std::io::stdout().write_all(clean(&bytes).as_bytes());
            let _ = std::io::stdout().flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_text_is_cleaned() {
        assert_eq!(clean(b"a\x1bc\r\n\tb\xff\n"), "ac\n\tb\u{fffd}\n");
    }
}
