// SPDX-License-Identifier: GPL-2.0-only
//! What is kept and said after the kernel has thrown us out: the whole record in a file, the main facts on screen.

use crate::exit::ExitInfo;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where records are kept, or else the directory for temporary files.
const LOG_DIR: &str = "/var/log/hearth";

/// Records kept in [`LOG_DIR`]: a service that is restarted for ever must not fill the disk.
const MAX_KEPT: usize = 20;

/// Saves the record and answers with what to tell: facts, where the file is, what to do if it is cut off.
#[must_use]
pub fn save_and_describe(info: &ExitInfo, report: &Value, dump_len: u32) -> String {
    let mut told = info.summary();
    let log_dir = Path::new(LOG_DIR);
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let name = format!("scx_hearth-{seconds}-{}.txt", std::process::id());
    let saved = save(log_dir, &name, info, report)
        .inspect(|_| prune(log_dir))
        .or_else(|_| save(&std::env::temp_dir(), &name, info, report));
    match saved {
        Ok(path) => told += &format!("\n  record  {} (the kernel's dump is in it)", path.display()),
        Err(e) => {
            told += &format!(
                "\n  record  cannot be saved ({e}); the kernel's dump:\n{}",
                String::from_utf8_lossy(&info.dump)
            );
        }
    }
    if info.cut_off() {
        told +=
            &format!("\n  The dump is cut off: --exit-dump-len {} gives it more room.", more_room(dump_len));
    }
    told
}

/// Four times as much, up to what the option takes.
fn more_room(dump_len: u32) -> u32 {
    dump_len.max(32_768).saturating_mul(4).min(16 << 20)
}

/// Writes the record into a new file in a directory.
fn save(dir: &Path, name: &str, info: &ExitInfo, report: &Value) -> io::Result<PathBuf> {
    fs::create_dir_all(dir)?;
    let path = dir.join(name);
    // New, and for us only: in a directory that all may write to, the name may be a trap.
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
    let head = format!(
        "scx_hearth {}\nkind: {} ({})\nexit code: {:#x}\nreason: {}\nmessage: {}\n\nstatistics: {report}\n\n",
        env!("CARGO_PKG_VERSION"),
        info.kind,
        info.kind_text(),
        info.code,
        info.reason,
        info.message,
    );
    let written = file.write_all(head.as_bytes()).and_then(|()| file.write_all(&info.dump));
    // Half a record on a full disk helps nobody and keeps the disk full.
    written.inspect_err(|_| drop(fs::remove_file(&path))).map(|()| path)
}

/// Removes all but the newest. Names begin with the time, so they sort by age.
fn prune(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let mut records: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("scx_hearth-")))
        .collect();
    records.sort();
    for old in records.iter().rev().skip(MAX_KEPT) {
        drop(fs::remove_file(old));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c63_the_record_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let mut dump = b"CPU 0   : nr_run=1\n R \xff\xfe[7] -30000ms\n".repeat(800);
        dump.extend_from_slice(b"\n~~~~ TRUNCATED ~~~~\n");
        let info = ExitInfo::new(1026, 0, b"", b"\xff\xfe[7] failed to run for 30.000s\0", &dump);
        let path = save(&dir.path().join("new"), "name", &info, &json!({"forwarded": 1})).unwrap();
        let bytes = fs::read(path).unwrap();
        assert!(bytes.ends_with(&dump));
        let head = String::from_utf8_lossy(&bytes[..bytes.len() - dump.len()]).into_owned();
        assert!(
            head.contains("1026") && head.contains("failed to run") && head.contains("\"forwarded\":1"),
            "{head}"
        );
    }

    #[test]
    fn c63_a_cut_off_dump_comes_with_a_hint() {
        assert_eq!(more_room(0), 131_072);
        assert_eq!(more_room(262_144), 1_048_576);
        assert_eq!(more_room(16 << 20), 16 << 20);
    }

    #[test]
    fn an_existing_file_is_never_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let info = ExitInfo::default();
        let first = save(dir.path(), "name", &info, &Value::Null).unwrap();
        fs::write(&first, "mine").unwrap();
        let second = save(dir.path(), "name", &info, &Value::Null);
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&first).unwrap(), "mine");
    }

    #[test]
    fn c56_records_do_not_fill_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("notes.txt"), "").unwrap();
        for second in 1000..1000 + MAX_KEPT + 5 {
            fs::write(dir.path().join(format!("scx_hearth-{second}-1.txt")), "").unwrap();
        }
        prune(dir.path());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), MAX_KEPT + 1);
        assert!(dir.path().join("notes.txt").exists());
        assert!(!dir.path().join("scx_hearth-1004-1.txt").exists());
        assert!(dir.path().join("scx_hearth-1005-1.txt").exists());
    }
}
