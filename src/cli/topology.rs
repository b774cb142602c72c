// SPDX-License-Identifier: GPL-2.0-only
//! `hearth topology`: the machine, and apart from it what this process may use of it.
//!
//! A pinned process, or one in a cpuset, must not take its own share for the machine.

use super::{complain, print, print_json};
use anyhow::Result;
use hearth::doctor::Exit;
use hearth::ids::CpuId;
use hearth::topology::{SYSFS_ROOT, Topology, TopologyError, format_cpu_list, parse_cpu_list};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// Arguments of `hearth topology`.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Directory that stands for /sys/devices/system: shows another machine
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// Prints the machine.
pub fn run(args: &Args) -> Result<Exit> {
    let root = args.root.as_deref().unwrap_or(Path::new(SYSFS_ROOT));
    let topology = match Topology::from_sysfs(root) {
        Ok(topology) => topology,
        Err(e) => {
            complain(&e.to_string());
            let wrong_root = args.root.is_some() && !matches!(e, TopologyError::TooManyCpus { .. });
            return Ok(if wrong_root { Exit::Usage } else { Exit::Unsupported });
        }
    };
    let isolated =
        fs::read_to_string(root.join("cpu/isolated")).ok().and_then(|text| parse_cpu_list(&text).ok());
    let isolated = isolated.unwrap_or_default();
    // Another machine has nothing to do with this process.
    let allowed = if args.root.is_none() { allowed_cpus() } else { None };
    if args.json {
        print_json(&json!({
            "picture": topology.to_string(),
            "machine": topology,
            "isolated": isolated,
            "allowed": allowed,
        }))?;
    } else {
        print(&describe(&topology, &isolated, allowed.as_deref()))?;
    }
    Ok(Exit::Ok)
}

fn describe(topology: &Topology, isolated: &[CpuId], allowed: Option<&[CpuId]>) -> String {
    let online: Vec<CpuId> = topology.cpus.iter().map(|cpu| cpu.id).collect();
    let mut text = format!("machine   {topology}\n");
    text += &format!(
        "online    {} ({} of {} possible)",
        format_cpu_list(&online),
        online.len(),
        topology.id_limit
    );
    if !isolated.is_empty() {
        text += &format!(
            "\nisolated  {} (isolcpus: used only by tasks that ask for them)",
            format_cpu_list(isolated)
        );
    }
    if let Some(allowed) = allowed {
        let share = if allowed == online { "all" } else { "pinned, or in a cpuset: the machine is larger" };
        text += &format!("\nallowed   {} to this process ({share})", format_cpu_list(allowed));
    }
    text
}

/// The CPUs that this process may run on.
fn allowed_cpus() -> Option<Vec<CpuId>> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    parse_cpu_list(list).ok()
}
