// SPDX-License-Identifier: GPL-2.0-only
//! Options of `hearth-bench calibrate`.

use std::path::PathBuf;
use std::time::Duration;

/// Below this even the cheapest measurements get too few samples.
const MIN_SECONDS: u64 = 2;
const MAX_SECONDS: u64 = 3600;

/// Measure what losing cached state costs on this machine, and write a profile
///
/// Pinned threads measure passes over working sets (warm, after another walked its own memory on that CPU, after a migration,
/// from DRAM), how fast an antagonist evicts a level, how fast it fills again, TLB misses, context switches and wakeups. No
/// privileges are needed; the machine should be idle. Ctrl-C ends it and writes nothing. What the numbers mean:
/// docs/calibrate.md.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Seconds to measure
    #[arg(long, value_name = "N", default_value = "40")]
    #[arg(value_parser = clap::value_parser!(u64).range(MIN_SECONDS..=MAX_SECONDS))]
    pub seconds: u64,

    /// Where to write the profile
    #[arg(long, value_name = "FILE", default_value = "hearth-profile.toml")]
    pub out: PathBuf,

    /// Overwrite the file if it is there
    #[arg(long)]
    pub force: bool,

    /// CPUs that may be used, for example 2,4-7 [default: all that this process may use]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,

    /// Print JSON instead of the table
    #[arg(long)]
    pub json: bool,
}

/// Measurements that take tens of milliseconds each are left out of runs shorter than this.
const LONG_RUN: Duration = Duration::from_secs(10);

impl Options {
    /// How long to measure.
    pub fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// Whether there is time for the largest working sets and for the eviction of the last level.
    pub fn has_time_for_llc(&self) -> bool {
        self.time() >= LONG_RUN
    }
}
