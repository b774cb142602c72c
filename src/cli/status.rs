// SPDX-License-Identifier: GPL-2.0-only
//! `hearth status`: who schedules this machine now, in the kernel's own words.
//!
//! Not from a file that a daemon wrote: a daemon that was ejected or killed cannot correct it.

use super::{print, print_json};
use anyhow::Result;
use hearth::doctor::Exit;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Arguments of `hearth status`.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 Hearth is attached, 1 nobody is, 3 this kernel has no sched_ext, \
                        5 another scheduler is attached.")]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Directory that stands for /sys
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    sysfs: PathBuf,
}

/// What the kernel says.
struct Status {
    /// enabled, disabled, enabling, disabling; none without sched_ext.
    state: Option<String>,
    /// The attached scheduler's name for itself.
    ops: Option<String>,
    /// Whether it schedules all ordinary tasks, or only those that ask for it.
    all_tasks: Option<bool>,
    /// Tasks that were refused.
    rejected: Option<u64>,
    /// How often a scheduler was attached since boot.
    attached_times: Option<u64>,
}

impl Status {
    fn read(sysfs: &Path) -> Status {
        let dir = sysfs.join("kernel/sched_ext");
        let text = |name: &str| {
            let bytes = std::fs::read(dir.join(name)).ok()?;
            Some(String::from_utf8_lossy(&bytes).trim().to_string()).filter(|text| !text.is_empty())
        };
        let number = |name: &str| text(name)?.parse::<u64>().ok();
        Status {
            state: text("state"),
            ops: text("root/ops"),
            all_tasks: number("switch_all").map(|all| all != 0),
            rejected: number("nr_rejected"),
            attached_times: number("enable_seq"),
        }
    }

    fn hearth(&self) -> bool {
        let named = |name: &str| name == "hearth" || name.starts_with("hearth_");
        self.ops.as_deref().is_some_and(named)
    }

    fn exit(&self) -> Exit {
        match self.state.as_deref() {
            None => Exit::Unsupported,
            Some("disabled") => Exit::Failed,
            Some(_) if self.hearth() => Exit::Ok,
            Some(_) => Exit::Busy,
        }
    }

    fn describe(&self) -> String {
        let Some(state) = &self.state else {
            return "This kernel has no sched_ext: its own scheduler is in charge. See `hearth doctor`."
                .into();
        };
        if state == "disabled" {
            return "The kernel's own scheduler is in charge (sched_ext: disabled).".into();
        }
        let who = self.ops.as_deref().unwrap_or("a scheduler without a name");
        let ours = if self.hearth() { "" } else { ", which is not Hearth" };
        let mut text = format!("{who} is in charge{ours} (sched_ext: {state}).");
        if let Some(all) = self.all_tasks {
            let tasks = if all { "all ordinary tasks" } else { "only tasks that ask for it (SCHED_EXT)" };
            text += &format!("\nIt schedules {tasks}.");
        }
        if let Some(rejected) = self.rejected.filter(|count| *count > 0) {
            text += &format!("\nIt refused {rejected} tasks.");
        }
        text
    }
}

/// Prints who is in charge.
pub fn run(args: &Args) -> Result<Exit> {
    let status = Status::read(&args.sysfs);
    if args.json {
        print_json(&json!({
            "state": status.state,
            "ops": status.ops,
            "hearth": status.hearth(),
            "all_tasks": status.all_tasks,
            "rejected": status.rejected,
            "attached_times": status.attached_times,
        }))?;
    } else {
        print(&status.describe())?;
    }
    Ok(status.exit())
}
