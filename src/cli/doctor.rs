// SPDX-License-Identifier: GPL-2.0-only
//! `hearth doctor`: can this machine attach, and what is missing?

use super::{print, print_json};
use anyhow::{Context, Result};
use hearth::doctor::{Exit, Preflight, Roots};
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `hearth doctor`.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 can attach, 3 cannot, 5 another scheduler is attached.")]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Directory that stands for /sys
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    sysfs: PathBuf,
    /// Directory that stands for /proc
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc: PathBuf,
    /// Directory that stands for /boot
    #[arg(long, value_name = "DIR", default_value = "/boot")]
    boot: PathBuf,
}

/// Prints the report and answers with its exit code.
pub fn run(args: Args) -> Result<Exit> {
    let report = Preflight::run(&Roots { sysfs: args.sysfs, proc: args.proc, boot: args.boot });
    let exit = report.exit();
    if args.json {
        let mut value = serde_json::to_value(&report).context("cannot write JSON")?;
        value["can_attach"] = json!(report.can_attach());
        value["exit_code"] = json!(exit.code());
        print_json(&value)?;
    } else {
        print(&report.to_string())?;
    }
    Ok(exit)
}
