// SPDX-License-Identifier: GPL-2.0-only
//! Starts the other programs of Hearth, the way git starts its own, so that users see one command.

use super::complain;
use anyhow::Result;
use hearth::doctor::Exit;
use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Becomes the program `name` (signals and the exit code are then its own); returns only if that fails.
pub fn exec(name: &str, args: &[OsString]) -> Result<Exit> {
    let own = env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent);
    let Some(program) = find(name, beside) else {
        let place = beside.map_or("this program".into(), |dir| dir.display().to_string());
        complain(&format!(
            "{name} is neither in {place} nor in PATH; build it with `cargo build --release -p {name}` \
             (scx_hearth needs clang and libelf: `cargo xtask setup` installs them)"
        ));
        return Ok(Exit::Unsupported);
    };
    let e = Command::new(&program).args(args).exec();
    complain(&format!("cannot start {}: {e}", program.display()));
    Ok(Exit::Unsupported)
}

/// Beside this program first: what was built together belongs together.
fn find(name: &str, beside: Option<&Path>) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = beside.map(Path::to_path_buf).into_iter().chain(env::split_paths(&path));
    dirs.map(|dir| dir.join(name)).find(|program| program.is_file())
}
