// SPDX-License-Identifier: GPL-2.0-only
//! One daemon at a time, and nothing that a killed one leaves behind is in the way of the next.
//!
//! The lock is the kernel's own (flock): it ends with the process that holds it, however that ends. Where the directory
//! cannot be made the daemon goes without, since the kernel takes one scheduler at a time anyway.

use crate::failure::Failure;
use anyhow::anyhow;
use hearth::doctor::Exit;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tracing::{debug, warn};

/// Where a running daemon keeps its files.
pub const RUN_DIR: &str = "/run/hearth";

/// The claim to be the only daemon, held as long as this lives.
pub struct Instance {
    dir: PathBuf,
    /// The lock ends when this is closed.
    _lock: Option<File>,
}

impl Instance {
    /// Claims the directory, or says who has it.
    pub fn claim(dir: &Path) -> Result<Self, Failure> {
        let path = dir.join("lock");
        let open = || {
            fs::create_dir_all(dir)?;
            File::options().create(true).write(true).truncate(false).open(&path)
        };
        let lock = match open() {
            Ok(file) => match file.try_lock() {
                Ok(()) => {
                    let pid = file.set_len(0).and_then(|()| writeln!(&file, "{}", std::process::id()));
                    if let Err(e) = pid {
                        debug!("cannot write {}: {e}", path.display());
                    }
                    Some(file)
                }
                Err(TryLockError::WouldBlock) => {
                    let pid = fs::read_to_string(&path).unwrap_or_default();
                    let error = anyhow!(
                        "another scx_hearth is running (process {}): end it first; nothing was changed",
                        pid.trim()
                    );
                    return Err(Failure::new(Exit::Busy, error));
                }
                Err(TryLockError::Error(e)) => without(&path, &e),
            },
            Err(e) => without(&path, &e),
        };
        Ok(Self { dir: dir.to_path_buf(), _lock: lock })
    }

    /// Remembers the value of a setting in a file, so that it survives a kill.
    pub fn remember(&self, name: &str, value: &str) -> io::Result<()> {
        fs::write(self.dir.join(name), value)
    }

    /// What a killed daemon remembered.
    pub fn remembered(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.dir.join(name)).ok()?;
        Some(text.trim().to_string()).filter(|value| !value.is_empty())
    }

    /// The setting is as it was.
    pub fn forget(&self, name: &str) {
        if let Err(e) = fs::remove_file(self.dir.join(name))
            && e.kind() != io::ErrorKind::NotFound
        {
            warn!("cannot remove {}: {e}", self.dir.join(name).display());
        }
    }
}

fn without(path: &Path, e: &io::Error) -> Option<File> {
    warn!("goes on without a lock file: {}: {e}", path.display());
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c57_the_second_is_refused_and_the_first_keeps_its_claim() {
        let dir = tempfile::tempdir().unwrap();
        let first = Instance::claim(dir.path()).unwrap();
        let second = Instance::claim(dir.path()).err().unwrap();
        assert_eq!(second.exit, Exit::Busy);
        assert!(second.error.to_string().contains(&std::process::id().to_string()), "{}", second.error);
        assert!(Instance::claim(dir.path()).is_err());
        drop(first);
        assert!(Instance::claim(dir.path()).is_ok());
    }

    #[test]
    fn c57_the_lock_file_of_a_dead_process_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("lock"), "4194304000\n").unwrap();
        let ours = Instance::claim(dir.path()).unwrap();
        let pid = fs::read_to_string(dir.path().join("lock")).unwrap();
        assert_eq!(pid.trim(), std::process::id().to_string());
        drop(ours);
    }

    #[test]
    fn c58_what_is_remembered_survives_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let killed = Instance::claim(dir.path()).unwrap();
        assert_eq!(killed.remembered("setting"), None);
        killed.remember("setting", "1\n").unwrap();
        drop(killed);
        let next = Instance::claim(dir.path()).unwrap();
        assert_eq!(next.remembered("setting").as_deref(), Some("1"));
        next.forget("setting");
        next.forget("setting");
        assert_eq!(next.remembered("setting"), None);
    }

    #[test]
    fn c59_goes_on_where_no_directory_can_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(Instance::claim(&file.join("below")).is_ok());
    }
}
