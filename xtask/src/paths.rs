// SPDX-License-Identifier: GPL-2.0-only
//! Where things are: the workspace, the build results and the cache.

use anyhow::{Context, Result, anyhow};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    // `cargo run` names the package directory; a binary started by hand falls back to where it was built.
    let package =
        std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_string());
    Path::new(&package).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// The directory of scenario scripts.
pub fn scenarios() -> PathBuf {
    workspace().join("xtask/scenarios")
}

/// Cargo's target directory: the one this very binary was built into, so that every way to set it is honoured.
pub fn target() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("cannot find this program's own path")?;
    let profile_dir = exe.parent().and_then(Path::parent);
    profile_dir
        .map(Path::to_path_buf)
        .ok_or_else(|| anyhow!("{} is not inside a target directory", exe.display()))
}

/// `$HEARTH_CACHE`, else `$XDG_CACHE_HOME/hearth`, else `~/.cache/hearth`; created when missing.
pub fn cache() -> Result<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let dir = var("HEARTH_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|base| base.join("hearth")))
        .or_else(|| var("HOME").map(|home| home.join(".cache/hearth")))
        .ok_or_else(|| anyhow!("neither HEARTH_CACHE, XDG_CACHE_HOME nor HOME is set: set HEARTH_CACHE"))?;
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create the cache {}", dir.display()))?;
    // Programs run with other working directories; relative cache paths would move with them.
    dir.canonicalize().with_context(|| format!("cannot resolve the cache {}", dir.display()))
}

/// What a killed run leaves behind is removed after this time.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// A fresh directory inside the cache that is removed when the value is dropped.
pub fn scratch(prefix: &str) -> Result<tempfile::TempDir> {
    let base = cache()?.join("tmp");
    std::fs::create_dir_all(&base).with_context(|| format!("cannot create {}", base.display()))?;
    remove_stale(&base, STALE);
    let made = tempfile::Builder::new().prefix(prefix).tempdir_in(&base);
    made.with_context(|| format!("cannot create a directory in {}", base.display()))
}

fn remove_stale(base: &Path, age: Duration) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|meta| meta.modified());
        if modified.is_ok_and(|time| time.elapsed().is_ok_and(|elapsed| elapsed > age)) {
            // A best effort: the next run tries again.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_leftovers_go() {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir(base.path().join("boot-x")).unwrap();
        remove_stale(base.path(), STALE);
        assert!(base.path().join("boot-x").exists());
        std::thread::sleep(Duration::from_millis(5));
        remove_stale(base.path(), Duration::ZERO);
        assert!(!base.path().join("boot-x").exists());
    }
}
