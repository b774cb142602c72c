// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's options, in the habits of sched_ext schedulers.

use clap::Parser;
use hearth::doctor::Exit;
use hearth::limits::{SLICE_NS, TAKEOVER_LIMIT_NS};
use std::path::PathBuf;

const WAY_OUT: &str = "\
To get out: end this process in any way (Ctrl-C, kill, even kill -9), or press SysRq-S. The kernel is back on its
own scheduler at once; no task is lost.";

/// Where a running daemon serves its statistics.
pub const SOCKET: &str = "/run/hearth/stats.sock";

/// Schedules this machine through the Hearth dispatcher until it is interrupted.
#[derive(Clone, Debug, Parser)]
#[command(name = "scx_hearth", disable_version_flag = true, after_help = format!("{}\n\n{WAY_OUT}", Exit::HELP))]
pub struct Opts {
    /// The policy that places tasks, with its parameters: see `hearth policies NAME`.
    #[arg(long, short = 'p', default_value = "fifo", value_name = "NAME[:KEY=VALUE]...")]
    pub policy: String,

    /// List the policies and exit.
    #[arg(long)]
    pub list_policies: bool,

    /// Time slice in microseconds.
    #[arg(long, short = 's', default_value_t = 5000, value_name = "US",
          value_parser = clap::value_parser!(u64).range(SLICE_NS.start() / 1000..=SLICE_NS.end() / 1000))]
    pub slice_us: u64,

    /// Print statistics every SEC seconds while running.
    #[arg(long, value_name = "SEC", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub stats: Option<u64>,

    /// Do not attach: watch the statistics of the Hearth that is running, every SEC seconds, until Ctrl-C.
    #[arg(long, value_name = "SEC", conflicts_with_all = ["stats", "check"],
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub monitor: Option<u64>,

    /// Statistics as JSON, one object per line on standard output: with --stats and --monitor all of them, and at the
    /// end the totals.
    #[arg(long)]
    pub json: bool,

    /// The Unix socket on which statistics are served and watched: one line of JSON a second to each who connects.
    #[arg(long, default_value = SOCKET, value_name = "PATH")]
    pub socket: PathBuf,

    /// Size of the kernel's debug dump in bytes, saved to a file when it ejects us.
    #[arg(long, default_value_t = 262_144, value_name = "N",
          value_parser = clap::value_parser!(u32).range(0..=16_777_216))]
    pub exit_dump_len: u32,

    /// Schedule only tasks that ask for it (SCHED_EXT), not all ordinary ones.
    #[arg(long)]
    pub partial: bool,

    /// Load the shim into the kernel, do not attach, exit: 0 if it would work.
    #[arg(long)]
    pub check: bool,

    /// How much to tell: error, warn, info, debug, trace.
    #[arg(long, default_value = "info", value_name = "LEVEL",
          value_parser = ["error", "warn", "info", "debug", "trace"])]
    pub log_level: String,

    /// Print the version and exit.
    #[arg(long, short = 'V')]
    pub version: bool,

    /// Forward kernel threads to the dispatcher as well.
    #[arg(long)]
    pub forward_kthreads: bool,

    /// The CPU that the dispatcher is pinned to [default: the lowest online CPU].
    #[arg(long, value_name = "CPU")]
    pub dispatcher_cpu: Option<u32>,

    /// How long the dispatcher looks for more work before it sleeps, in microseconds; 0: sleep at once.
    #[arg(long, default_value_t = 50, value_name = "US", value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub spin_us: u64,

    /// Let tasks wait for the dispatcher's CPU as if N more were in line there [default: use it only when a task's
    /// affinity leaves no other CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub share_cpu: Option<u32>,

    /// The age, in microseconds, at which a task that waits for the dispatcher is served by the kernel side.
    #[arg(long, default_value_t = TAKEOVER_LIMIT_NS / 1000, value_name = "US",
          value_parser = clap::value_parser!(u64).range(1000..=500_000))]
    pub takeover_us: u64,

    /// Size of the record ring in KiB, a power of two.
    #[arg(long, default_value_t = 4096, value_name = "KIB", value_parser = ring_kib)]
    pub ring_kib: u32,

    /// Fault injection: delay each commit between check and move by N clock readings.
    #[arg(long, default_value_t = 0, value_name = "N", hide = true)]
    pub fault_commit_delay: u32,

    /// Fault injection: delay each turn of the dispatcher at random by up to US microseconds.
    #[arg(long, default_value_t = 0, value_name = "US", hide = true)]
    pub fault_late_us: u64,
}

fn ring_kib(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(n) if n.is_power_of_two() && (4..=65_536).contains(&n) => Ok(n),
        _ => Err("needs a power of two from 4 to 65536".into()),
    }
}

impl Opts {
    /// Size of the ring in bytes.
    #[must_use]
    pub fn ring_bytes(&self) -> u32 {
        self.ring_kib * 1024
    }

    /// Shall libbpf say what it does?
    #[must_use]
    pub fn verbose_libbpf(&self) -> bool {
        matches!(self.log_level.as_str(), "debug" | "trace")
    }
}
