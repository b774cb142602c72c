// SPDX-License-Identifier: GPL-2.0-only
//! Other schedulers to compare with, built from the crate registry on request.

use crate::fail::{failed, usage};
use crate::ui::Step;
use crate::{paths, proc};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of every peer: the release that the tables in `docs/` were measured with.
const PEER_VERSION: &str = "1.1.4";
/// The crates that may be named without a path.
const PEERS: &[&str] = &["scx_rustland", "scx_rlfifo", "scx_lavd", "scx_bpfland", "scx_rusty"];

/// The program of a peer: `name` is a path, or one of the known crates, which is built on first use.
pub fn obtain(name: &str) -> Result<PathBuf> {
    if name.contains('/') {
        let path = Path::new(name);
        return if proc::is_executable(path) {
            Ok(path.to_path_buf())
        } else {
            Err(usage(format!("{name} is no program")))
        };
    }
    if !PEERS.contains(&name) {
        return Err(usage(format!("unknown peer '{name}': use a path, or one of {}", PEERS.join(", "))));
    }
    let root = paths::cache()?.join("peers").join(PEER_VERSION);
    let program = root.join("bin").join(name);
    // cargo puts the program there in one rename, once it is complete.
    if !proc::is_executable(&program) {
        build(name, &root)?;
    }
    Ok(program)
}

fn build(name: &str, root: &Path) -> Result<()> {
    let _step = Step::start(format!("building {name} {PEER_VERSION} (once, a few minutes)"));
    std::fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
    let mut command = Command::new("cargo");
    command.args(["install", "--locked", "--version", PEER_VERSION, "--root"]).arg(root).arg(name);
    // One target directory for all peers: most of their dependencies are the same.
    command.env("CARGO_TARGET_DIR", root.join("target")).env("BPF_CLANG", "clang-19");
    command.current_dir(root);
    let output = proc::capture(&mut command)?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(format!("cannot build {name} (needs the crate registry):\n{}", output.why())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_and_bad_paths_are_refused() {
        assert!(obtain("scx_nothing").unwrap_err().to_string().contains("scx_rustland"));
        assert!(obtain("/no/such/scx_x").is_err());
        assert_eq!(obtain("/bin/sh").unwrap(), Path::new("/bin/sh"));
    }
}
