// SPDX-License-Identifier: GPL-2.0-only
//! How the scheduler ended: the kernel's record, read and put into words.

use hearth::doctor::Exit;
use serde_json::{Value, json};
use std::fmt;

/// sched_ext's exit kinds that matter here (enum scx_exit_kind, a stable interface).
mod kind {
    pub const UNREG: i32 = 64;
    pub const UNREG_BPF: i32 = 65;
    pub const UNREG_KERN: i32 = 66;
    pub const SYSRQ: i32 = 67;
    pub const ERROR: i32 = 1024;
    pub const ERROR_BPF: i32 = 1025;
    pub const ERROR_STALL: i32 = 1026;
}

/// sched_ext's restart code: the action bit "restart" (enum scx_exit_code).
const ACT_RESTART: i64 = 1 << 48;

/// What the kernel puts at the end of a dump that did not fit.
const TRUNCATED: &[u8] = b"~~~~ TRUNCATED ~~~~";

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
    /// The debug dump, ours and the kernel's, byte for byte: it has the names of tasks in it, which may be any bytes.
    pub dump: Vec<u8>,
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&b| b == 0).next().unwrap_or_default()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(until_nul(bytes)).into_owned()
}

impl ExitInfo {
    /// From the shim's record. Text may hold anything: task names are any bytes.
    #[must_use]
    pub fn new(kind: i32, code: i64, reason: &[u8], message: &[u8], dump: &[u8]) -> Self {
        Self { kind, code, reason: text(reason), message: text(message), dump: until_nul(dump).to_vec() }
    }

    /// A CPU came or went before we could attach: the answer that the kernel gives when it is the one to notice.
    #[must_use]
    pub fn stale_machine() -> Self {
        let reason = "a CPU came or went while the machine was being read".into();
        Self { kind: kind::UNREG_KERN, code: ACT_RESTART, reason, ..Self::default() }
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
    pub fn exit(&self) -> Exit {
        if self.wanted() { Exit::Ok } else { Exit::Ejected }
    }

    /// The kind of end in words.
    #[must_use]
    pub fn kind_text(&self) -> String {
        match self.kind {
            0 => "not ended".into(),
            kind::UNREG => "ended by us".into(),
            kind::UNREG_BPF => "ended by the shim".into(),
            kind::UNREG_KERN => "ended by the kernel, without fault".into(),
            kind::SYSRQ => "ended by SysRq-S".into(),
            kind::ERROR => "the kernel found an error".into(),
            kind::ERROR_BPF => "the shim reported an error".into(),
            kind::ERROR_STALL => "a runnable task was not run (watchdog)".into(),
            other => format!("kind {other}"),
        }
    }

    /// The dump did not fit into the space that it was given.
    #[must_use]
    pub fn cut_off(&self) -> bool {
        self.dump.trim_ascii_end().ends_with(TRUNCATED)
    }

    /// The main facts, one per line, as far as the record has them: kind, task, CPU, wait.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut lines = format!("  kind    {}", self.kind_text());
        let task = task_in(&self.message);
        if let Some(task) = task {
            lines += &format!("\n  task    {task}");
        }
        if let Some(cpu) = task.and_then(|task| cpu_of(task, &String::from_utf8_lossy(&self.dump))) {
            lines += &format!("\n  CPU     {cpu}");
        }
        if let Some(wait) = wait_in(&self.message) {
            lines += &format!("\n  waited  {wait}");
        }
        lines
    }

    /// For scripts.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "kind": self.kind,
            "kind_text": self.kind_text(),
            "code": self.code,
            "reason": self.reason,
            "message": self.message,
            "dump_bytes": self.dump.len(),
            "dump_cut_off": self.cut_off(),
        })
    }
}

/// `name[pid]` in a message such as `name[pid] failed to run for 30.012s`. Names may hold spaces and brackets.
fn task_in(message: &str) -> Option<&str> {
    let (task, _) = message.split_once(" failed to run for ")?;
    task.ends_with(']').then_some(task)
}

/// `30.012s` in the same message.
fn wait_in(message: &str) -> Option<&str> {
    let (_, wait) = message.split_once(" failed to run for ")?;
    wait.split_whitespace().next()
}

/// The kernel lists waiting tasks below a line for their CPU: `CPU 3   : nr_run=1 ...`, then ` R name[pid] -30012ms`.
fn cpu_of(task: &str, dump: &str) -> Option<u32> {
    let mut cpu = None;
    for line in dump.lines() {
        let line = line.trim_start();
        if let Some(rest) = line.strip_prefix("CPU ") {
            let id = rest.split(':').next().and_then(|id| id.trim().parse().ok());
            cpu = id.or(cpu);
        } else if line.starts_with("R ") && line[2..].trim_start_matches('*').starts_with(task) {
            return cpu;
        }
    }
    None
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

    fn stall(dump: &[u8]) -> ExitInfo {
        ExitInfo::new(1026, 0, b"runnable task stall\0", b"\xffna me[7] failed to run for 30.012s\0", dump)
    }

    #[test]
    fn c63_dump_cut_off_and_not_utf8_is_kept_whole() {
        let mut dump = vec![b'x'; 32 * 1024 - 64];
        dump.extend_from_slice(b"\xff\xfe...\n\n~~~~ TRUNCATED ~~~~\n");
        let whole = dump.clone();
        dump.resize(32 * 1024, 0);
        let info = ExitInfo::new(1026, 0, b"\0", b"\xffname[7] failed to run for 30.012s\0", &dump);
        assert_eq!(info.dump, whole);
        assert!(info.cut_off());
        assert!(info.message.contains("name[7] failed to run"));
        assert!(info.to_string().starts_with("no reason given: "), "{info}");
        assert_eq!(info.exit(), Exit::Ejected);
    }

    #[test]
    fn c63_summary_has_kind_task_cpu_and_wait() {
        let info = stall(
            b"CPU states\n----------\n\nCPU 2   : nr_run=1 flags=0x1\n\n R other[8] -1ms\nCPU 3   : nr_run=1\n  \
              curr=swapper/3[0]\n\n R \xffna me[7] -30012ms\n      scx_state/flags=3/0x1\n",
        );
        assert!(!info.cut_off());
        let summary = info.summary();
        for part in ["(watchdog)", "task    \u{fffd}na me[7]", "CPU     3", "waited  30.012s"] {
            assert!(summary.contains(part), "{part:?} is not in\n{summary}");
        }
    }

    #[test]
    fn c63_what_is_not_known_is_not_in_the_summary() {
        assert_eq!(stall(b"").summary().lines().count(), 3);
        assert_eq!(ExitInfo { kind: 1025, ..ExitInfo::default() }.summary().lines().count(), 1);
        let odd = ExitInfo { kind: 1024, message: "] failed to run for ".into(), ..ExitInfo::default() };
        assert_eq!(odd.summary().lines().count(), 2);
        assert_eq!(ExitInfo { kind: 9999, ..ExitInfo::default() }.kind_text(), "kind 9999");
    }

    #[test]
    fn c55_ends_are_told_apart() {
        let unreg = ExitInfo { kind: 64, ..ExitInfo::default() };
        assert!(unreg.wanted() && !unreg.wants_restart());
        let hotplug = ExitInfo { kind: 66, code: ACT_RESTART | 1 << 32, ..ExitInfo::default() };
        assert!(hotplug.wants_restart() && ExitInfo::stale_machine().wants_restart());
        for kind in [1024, 1025, 1026] {
            let error = ExitInfo { kind, code: ACT_RESTART, ..ExitInfo::default() };
            assert_eq!(error.exit(), Exit::Ejected);
            assert!(!error.wants_restart());
        }
    }
}
