// SPDX-License-Identifier: GPL-2.0-only
//! How the scheduler ended, and the exit code that says so.

use std::fmt;

/// Exit codes of the daemon, the same in every Hearth tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Ended as asked.
    Ok = 0,
    /// A check failed.
    Check = 1,
    /// Wrong usage.
    Usage = 2,
    /// This machine cannot.
    Cannot = 3,
    /// The kernel ejected us.
    Ejected = 4,
    /// Another scheduler is attached.
    Busy = 5,
    /// The policy failed.
    Policy = 6,
}

/// sched_ext's exit kinds that matter here (enum scx_exit_kind, a stable interface).
mod kind {
    pub const UNREG: i32 = 64;
    pub const UNREG_KERN: i32 = 66;
    pub const SYSRQ: i32 = 67;
}

/// sched_ext's restart code: reason bits and action bits (enum scx_exit_code).
const ACT_RESTART: i64 = 1 << 48;

/// What the kernel reported when the scheduler ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitInfo {
    /// enum scx_exit_kind; 0: it has not ended.
    pub kind: i32,
    /// The exit code of a voluntary end.
    pub code: i64,
    /// Why, in the kernel's words.
    pub reason: String,
    /// Details.
    pub message: String,
    /// The debug dump, ours and the kernel's.
    pub dump: String,
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

impl ExitInfo {
    /// From the shim's record. Text may hold anything: task names are any bytes.
    #[must_use]
    pub fn new(kind: i32, code: i64, reason: &[u8], message: &[u8], dump: &[u8]) -> Self {
        Self { kind, code, reason: text(reason), message: text(message), dump: text(dump) }
    }

    /// The kernel asks for a restart: a CPU came or went.
    #[must_use]
    pub fn wants_restart(&self) -> bool {
        (kind::UNREG..=kind::UNREG_KERN).contains(&self.kind) && self.code & ACT_RESTART != 0
    }

    /// Was this the end that somebody asked for (us, the user, SysRq-S)?
    #[must_use]
    pub fn wanted(&self) -> bool {
        self.kind <= kind::SYSRQ
    }

    /// The exit code for this end.
    #[must_use]
    pub fn code(&self) -> Code {
        if self.wanted() { Code::Ok } else { Code::Ejected }
    }
}

impl fmt::Display for ExitInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            0 => write!(f, "detached"),
            kind::SYSRQ => write!(f, "detached by SysRq-S"),
            _ => {
                let reason = if self.reason.is_empty() { "no reason given" } else { &self.reason };
                write!(f, "{reason}")?;
                if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c63_dump_cut_off_and_not_utf8_is_kept_whole() {
        let mut dump = vec![b'x'; 32 * 1024 - 8];
        dump.extend_from_slice(b"\xff\xfe...\0");
        let info = ExitInfo::new(1026, 0, b"\0", b"runnable task stall (\xffname[7] failed to run)\0", &dump);
        assert_eq!(info.dump.chars().count(), 32 * 1024 - 8 + 5);
        assert!(info.message.contains("[7] failed to run"));
        assert!(info.to_string().starts_with("no reason given: runnable task stall"));
        assert_eq!(info.code(), Code::Ejected);
    }

    #[test]
    fn c55_ends_are_told_apart() {
        let unreg = ExitInfo { kind: 64, ..ExitInfo::default() };
        assert!(unreg.wanted() && !unreg.wants_restart());
        let hotplug = ExitInfo { kind: 66, code: ACT_RESTART | 1 << 32, ..ExitInfo::default() };
        assert!(hotplug.wants_restart());
        let error = ExitInfo { kind: 1024, ..ExitInfo::default() };
        assert_eq!(error.code(), Code::Ejected);
        let stall = ExitInfo { kind: 1026, ..ExitInfo::default() };
        assert_eq!(stall.code(), Code::Ejected);
        assert!(!stall.wants_restart());
    }
}
