// SPDX-License-Identifier: GPL-2.0-only
//! `hearth sim swarm`: random scenarios under random faults; what fails is printed with its seed.

use crate::cli::{complain, print};
use anyhow::Result;
use hearth::doctor::Exit;
use hearth::policy::registry::{self, PolicySpec};
use hearth::sim::swarm;

/// Arguments of `hearth sim swarm`.
#[derive(clap::Args)]
pub struct Args {
    /// The first seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// How many seeds
    #[arg(long, default_value_t = 100)]
    count: u64,
    /// Only these policies (default: all, one after the other)
    #[arg(long, value_delimiter = ',')]
    policy: Vec<String>,
    /// Print the scenario of the first seed, and do not run it
    #[arg(long)]
    show: bool,
}

/// Runs the seeds.
pub fn run(args: &Args) -> Result<Exit> {
    if args.show {
        print(&swarm::scenario(args.from).to_toml()?)?;
        return Ok(Exit::Ok);
    }
    let named =
        |spec: &&PolicySpec| args.policy.is_empty() || args.policy.iter().any(|name| name == spec.name);
    let policies: Vec<&PolicySpec> = registry::list().filter(named).collect();
    if policies.len() < args.policy.len().max(1) {
        complain("one of the policies does not exist: see `hearth policies`");
        return Ok(Exit::Usage);
    }
    let (mut failed, mut events) = (0, 0);
    for seed in args.from..args.from.saturating_add(args.count) {
        match swarm::run(seed, policies[seed as usize % policies.len()], None) {
            Ok(result) => events += result.counts.events,
            Err(error) => {
                failed += 1;
                print(&error.to_string())?;
            }
        }
    }
    print(&format!("{} seeds from {}: {failed} failed; {events} events", args.count, args.from))?;
    Ok(if failed == 0 { Exit::Ok } else { Exit::Failed })
}
