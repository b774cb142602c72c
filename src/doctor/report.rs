// SPDX-License-Identifier: GPL-2.0-only
//! What a preflight found, and how people read it.

use super::Exit;
use serde::Serialize;
use std::fmt;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Attaches all the same; something is slower, absent or unknown.
    Note,
    /// Cannot attach.
    Missing,
    /// Cannot attach as long as another scheduler is.
    Busy,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Short stable name for scripts.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What is so.
    pub what: String,
    /// Why that matters, or how it is known; may be empty.
    pub why: String,
    /// What to do about it; empty if there is nothing to do.
    pub mend: String,
}

impl Finding {
    pub(super) fn ok(id: &'static str, what: impl Into<String>) -> Finding {
        Finding { id, severity: Severity::Ok, what: what.into(), why: String::new(), mend: String::new() }
    }

    pub(super) fn note(
        id: &'static str,
        what: impl Into<String>,
        why: impl Into<String>,
        mend: impl Into<String>,
    ) -> Finding {
        Finding { id, severity: Severity::Note, what: what.into(), why: why.into(), mend: mend.into() }
    }

    pub(super) fn missing(
        id: &'static str,
        what: impl Into<String>,
        why: impl Into<String>,
        mend: impl Into<String>,
    ) -> Finding {
        Finding { id, severity: Severity::Missing, what: what.into(), why: why.into(), mend: mend.into() }
    }
}

/// Everything a preflight found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The kernel's release (`uname -r`); empty if unknown.
    pub kernel: String,
    /// A short picture of the machine, if it could be read.
    pub machine: Option<String>,
    /// The sched_ext scheduler that is attached now.
    pub scheduler: Option<String>,
    /// What was looked at, in the order in which it is needed.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing stands in the way.
    #[must_use]
    pub fn can_attach(&self) -> bool {
        self.exit() == Exit::Ok
    }

    /// [`Exit::Ok`], [`Exit::Busy`] if another scheduler is attached, else [`Exit::Unsupported`].
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self.findings.iter().map(|finding| finding.severity).max() {
            Some(Severity::Busy) => Exit::Busy,
            Some(Severity::Missing) => Exit::Unsupported,
            _ => Exit::Ok,
        }
    }

    /// What stands in the way, all of it in one message for standard error; none if nothing does.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        if self.can_attach() {
            return None;
        }
        let head = match self.exit() {
            Exit::Busy => "another scheduler is attached",
            _ => "this machine cannot attach a scheduler",
        };
        let mut message = head.to_string();
        for finding in self.obstacles() {
            let why = if finding.why.is_empty() { String::new() } else { format!(" ({})", finding.why) };
            message += &format!("\n  - {}{why}\n    {}", finding.what, finding.mend);
        }
        message += "\n`hearth doctor` shows the whole picture.";
        Some(message)
    }

    fn obstacles(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity >= Severity::Missing)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let mark = match finding.severity {
                Severity::Ok => "ok",
                Severity::Note => "note",
                Severity::Missing => "MISSING",
                Severity::Busy => "BUSY",
            };
            writeln!(f, "{mark:<8} {:<12} {}", finding.id, finding.what)?;
            for (label, text) in [("why:", &finding.why), ("do:", &finding.mend)] {
                if !text.is_empty() {
                    writeln!(f, "{:<21} {label:<4} {text}", "")?;
                }
            }
        }
        writeln!(f)?;
        if self.can_attach() {
            return write!(f, "Hearth can attach to this kernel: start it with `hearth run`.");
        }
        let names: Vec<&str> = self.obstacles().map(|finding| finding.id).collect();
        match self.exit() {
            Exit::Busy => writeln!(
                f,
                "Someone else is attached; Hearth would not touch it. In the way: {}.",
                names.join(", ")
            )?,
            _ => writeln!(f, "Hearth cannot attach here. In the way: {}.", names.join(", "))?,
        }
        write!(
            f,
            "Works here all the same: `cargo xtask lab` (boots a kernel that can, in QEMU), `hearth bench` (load\n\
             generators and their reports), `hearth topology`, `hearth policies`."
        )
    }
}
