// SPDX-License-Identifier: GPL-2.0-only
//! Builds the project's own programs.

use crate::fail::failed;
use crate::ui::Step;
use crate::{paths, proc};
use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

/// The project's programs; each has the name of its package.
pub const PROGRAMS: [&str; 3] = ["scx_hearth", "hearth", "hearth-bench"];

/// Where a program of ours is once it is built.
pub fn program(name: &str) -> Result<PathBuf> {
    Ok(paths::target()?.join("release").join(name))
}

/// A cargo command in the workspace, with the compiler that the BPF part wants.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(paths::workspace());
    if std::env::var_os("BPF_CLANG").is_none() {
        command.env("BPF_CLANG", "clang-19");
    }
    command
}

/// Builds programs of ours with optimisation; cargo does nothing where nothing changed.
pub fn release(names: &[&str]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let _step = Step::start(format!("building {}", names.join(", ")));
    let mut command = cargo(&["build", "--release"]);
    for name in names {
        command.args(["-p", name, "--bin", name]);
    }
    command.arg("--target-dir").arg(paths::target()?);
    let output = proc::capture(&mut command)?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(format!("the build of {} failed:\n{}", names.join(", "), output.why())))
}
