// SPDX-License-Identifier: GPL-2.0-only
//! `cargo xtask setup`: installs what is missing, and is quiet when nothing is.

pub mod apt;
pub mod needs;
pub mod packages;

use crate::fail::{cannot, failed};
use crate::kernel::KernelArgs;
use crate::ui::Step;
use crate::{paths, proc};
use anyhow::{Context, Result};
use apt::Apt;
use needs::{Need, QEMU_PACKAGE};
use std::process::Command;

/// Options of `setup`.
#[derive(clap::Args, Debug, Default)]
pub struct SetupArgs {
    /// Install nothing: only say what is missing (exit code 3 if anything is)
    #[arg(long)]
    pub check: bool,
    /// Only the distribution's packages: no kernel, no crates (what the printed sudo command runs)
    #[arg(long)]
    pub packages_only: bool,
    /// Look for a newer kernel even if one is here
    #[arg(long, conflicts_with_all = ["kernel", "packages_only"])]
    pub refresh: bool,
    #[command(flatten)]
    pub kernel: KernelArgs,
}

/// What a machine lacks.
struct Missing {
    packages: Vec<&'static Need>,
    kernel: bool,
    crates: bool,
    components: Vec<&'static str>,
}

impl Missing {
    fn find(args: &SetupArgs) -> Result<Self> {
        let packages = needs::missing();
        if args.packages_only {
            return Ok(Self { packages, kernel: false, crates: false, components: Vec::new() });
        }
        std::thread::scope(|scope| {
            // Each of these starts a program and waits for it.
            let crates = scope.spawn(crates_missing);
            let components = scope.spawn(components_missing);
            let kernel = args.refresh || args.kernel.find()?.is_none();
            let crates = crates.join().unwrap_or(true);
            Ok(Self { packages, kernel, crates, components: components.join().unwrap_or_default() })
        })
    }

    fn is_empty(&self) -> bool {
        self.packages.is_empty() && !self.kernel && !self.crates && self.components.is_empty()
    }

    /// One line per kind, for `--check` and for a machine that is offline.
    fn lines(&self, args: &SetupArgs) -> String {
        let mut lines = Vec::new();
        if !self.packages.is_empty() {
            lines.push(format!("packages: {}", self.package_names().join(" ")));
        }
        if self.kernel {
            lines.push(format!("kernel: {}", args.kernel.wanted()));
        }
        if !self.components.is_empty() {
            lines.push(format!("Rust components: {}", self.components.join(" ")));
        }
        if self.crates {
            lines.push("crates: those of Cargo.lock, from the crate registry (`cargo fetch`)".to_string());
        }
        lines.join("\n  ")
    }

    fn package_names(&self) -> Vec<&'static str> {
        self.packages.iter().map(|need| need.package).collect()
    }
}

/// Runs `setup`.
pub fn run(args: &SetupArgs) -> Result<()> {
    let missing = Missing::find(args)?;
    if missing.is_empty() {
        return Ok(());
    }
    let wanted = missing.lines(args);
    if args.check {
        return Err(cannot(format!("missing here:\n  {wanted}")));
    }
    install_all(&missing, args)
        .map_err(|error| cannot(format!("{error:#}\nsetup needed (and needs the network for):\n  {wanted}")))
}

/// Installs whatever the build and the lab need; used by `demo` and `test`.
pub fn ensure(kernel: &KernelArgs) -> Result<()> {
    run(&SetupArgs { kernel: kernel.clone(), ..SetupArgs::default() })
}

fn install_all(missing: &Missing, args: &SetupArgs) -> Result<()> {
    if !missing.packages.is_empty() {
        install_packages(&missing.package_names())?;
    }
    for component in &missing.components {
        let _step = Step::start(format!("adding the Rust component {component}"));
        proc::stdout(Command::new("rustup").args(["component", "add", component]))?;
    }
    if missing.kernel {
        let kernel = args.kernel.obtain(args.refresh)?;
        eprintln!("kernel for the lab: {}", kernel.image.display());
    }
    if missing.crates {
        let _step = Step::start("fetching crates");
        let output = proc::capture(Command::new("cargo").arg("fetch").current_dir(paths::workspace()))?;
        if !output.status.success() {
            return Err(failed(format!("cargo fetch failed:\n{}", output.tail(6))));
        }
    }
    Ok(())
}

fn install_packages(names: &[&str]) -> Result<()> {
    if !apt::available() {
        return Err(cannot(format!(
            "this system has no apt: install the equivalents of {}",
            names.join(" ")
        )));
    }
    if !proc::is_root() {
        let exe = std::env::current_exe().context("cannot find this program's own path")?;
        let command = format!("sudo {} setup --packages-only", exe.display());
        return Err(cannot(format!(
            "packages are missing; as root this would install them:\n\n  {command}\n"
        )));
    }
    let system = Apt::system();
    if apt::lists_are_empty() {
        let _step = Step::start("fetching the package lists");
        system.update()?;
    }
    let plain: Vec<&str> = names.iter().copied().filter(|name| *name != QEMU_PACKAGE).collect();
    if !plain.is_empty() {
        let _step = Step::start(format!("installing {}", plain.join(" ")));
        // Lists that are there may be old: a second try with fresh ones.
        system.install(&plain).or_else(|_| system.update().and_then(|()| system.install(&plain)))?;
    }
    if names.contains(&QEMU_PACKAGE) {
        install_qemu(&system)?;
    }
    let left: Vec<&str> = needs::missing().iter().map(|need| need.package).collect();
    if left.is_empty() {
        return Ok(());
    }
    Err(failed(format!("still missing after installing: {}", left.join(" "))))
}

/// Debian 12's own QEMU is too old: there it comes from backports, without adding that suite to the system.
fn install_qemu(system: &Apt) -> Result<()> {
    let os_release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let _step = Step::start(format!("installing {QEMU_PACKAGE}"));
    if codename(&os_release) != Some("bookworm") {
        return system
            .install(&[QEMU_PACKAGE])
            .or_else(|_| system.update().and_then(|()| system.install(&[QEMU_PACKAGE])));
    }
    let scratch = paths::scratch("apt-")?;
    let backports = Apt::private(scratch.path(), "bookworm-backports", true)?;
    backports.update()?;
    backports.install(&["-t", "bookworm-backports", QEMU_PACKAGE])
}

fn codename(os_release: &str) -> Option<&str> {
    os_release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .map(|name| name.trim_matches('"'))
}

/// Whether building would have to download crates.
fn crates_missing() -> bool {
    let root = paths::workspace();
    if !root.join("Cargo.lock").is_file() {
        return true;
    }
    let mut fetch = Command::new("cargo");
    fetch.args(["fetch", "--offline", "--locked", "--quiet"]).current_dir(root);
    !proc::capture(&mut fetch).is_ok_and(|output| output.status.success())
}

/// Rust components that `cargo xtask test` uses and that rustup could add.
fn components_missing() -> Vec<&'static str> {
    if proc::which("rustup").is_none() {
        return Vec::new();
    }
    // rustup's own stand-ins are always in PATH: only the toolchain's directory tells.
    let mut ask = Command::new("rustc");
    let Ok(sysroot) = proc::stdout(ask.args(["--print", "sysroot"])) else { return Vec::new() };
    let bin = std::path::Path::new(sysroot.trim()).join("bin");
    let components = [("rustfmt", "rustfmt"), ("cargo-clippy", "clippy")];
    components
        .into_iter()
        .filter(|(file, _)| !bin.join(file).exists())
        .map(|(_, component)| component)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codenames() {
        assert_eq!(codename("ID=debian\nVERSION_CODENAME=bookworm\n"), Some("bookworm"));
        assert_eq!(codename("VERSION_CODENAME=\"trixie\""), Some("trixie"));
        assert_eq!(codename("ID=debian\n"), None);
    }

    #[test]
    fn offline_text_names_every_kind() {
        let packages = vec![&needs::NEEDS[0]];
        let missing = Missing { packages, kernel: true, crates: true, components: vec!["clippy"] };
        let text = missing.lines(&SetupArgs::default());
        for word in ["packages: gcc", "kernel: the newest", "trixie-backports", "crates:", "clippy"] {
            assert!(text.contains(word), "{word} not in {text}");
        }
    }
}
