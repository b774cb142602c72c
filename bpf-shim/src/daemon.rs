// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's life: what the options ask for; before attaching, the machine and our rights on it; after an
//! attachment, again or the end, and the exit code.

use crate::attach::{self, Ended};
use crate::failure::Failure;
use crate::instance::{Instance, RUN_DIR};
use crate::monitor::Monitor;
use crate::opts::Opts;
use crate::restart::{MAX_IN_A_ROW, Next, Restarts};
use crate::{dump, line, log, memory, output};
use anyhow::{Context, Result, anyhow};
use hearth::doctor::{Exit, Preflight, Roots};
use hearth::policy::registry;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::info;

/// Does what the options say; the exit code.
pub fn main(opts: &Opts) -> Result<Exit, Failure> {
    if opts.version {
        return print(&format!("scx_hearth {} ({})", env!("CARGO_PKG_VERSION"), env!("HEARTH_BUILD")));
    }
    if opts.list_policies {
        let rows: Vec<_> = registry::list().map(|spec| format!("{:<12} {}", spec.name, spec.about)).collect();
        return print(&rows.join("\n"));
    }
    if let Some(seconds) = opts.monitor {
        return monitor(opts, Duration::from_secs(seconds));
    }
    registry::Choice::parse(&opts.policy).map_err(|e| Failure::new(Exit::Usage, anyhow!(e)))?;
    log::start(&opts.log_level);
    let preflight = Preflight::quick(&Roots::default());
    if let Some(refusal) = preflight.refusal() {
        return Err(Failure::new(preflight.exit(), anyhow!(refusal)));
    }
    if opts.check {
        return attach::check(opts);
    }
    // Only now is anything changed.
    let instance = Instance::claim(Path::new(RUN_DIR))?;
    let stop = stop_on_signal(true)?;
    let _locked = memory::lock(&instance);
    attach_until_over(opts, &stop)
}

fn print(text: &str) -> Result<Exit, Failure> {
    output::print(text).map_err(|e| Failure::new(Exit::Failed, e))?;
    Ok(Exit::Ok)
}

fn monitor(opts: &Opts, every: Duration) -> Result<Exit, Failure> {
    let stop = stop_on_signal(false)?;
    Monitor { socket: &opts.socket, every, json: opts.json, stop: &stop }.run()
}

/// A flag that Ctrl-C and `kill` set. `twice_ends`: the second one ends the process at once, and the kernel then
/// detaches it by itself.
fn stop_on_signal(twice_ends: bool) -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        if twice_ends {
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))
                .context("cannot catch signals")
                .map_err(Failure::unsupported)?;
        }
        flag::register(signal, Arc::clone(&stop))
            .context("cannot catch signals")
            .map_err(Failure::unsupported)?;
    }
    Ok(stop)
}

fn attach_until_over(opts: &Opts, stop: &AtomicBool) -> Result<Exit, Failure> {
    let mut restarts = Restarts::default();
    let mut shim = None;
    let mut again = false;
    loop {
        let ended = attach::once(opts, stop, again, &mut shim)?;
        again = true;
        let wanted = ended.fault.is_none() && ended.info.wants_restart();
        match restarts.next(wanted, ended.lived, stop.load(Ordering::Relaxed)) {
            Next::Again => info!("a CPU came or went: reading the machine again"),
            Next::Over => return conclude(opts, ended),
            Next::GiveUp => {
                let error =
                    anyhow!("CPUs keep coming and going: gave up after {MAX_IN_A_ROW} restarts in a row");
                return Err(Failure::unsupported(error));
            }
        }
    }
}

/// The last words, and the exit code.
fn conclude(opts: &Opts, ended: Ended) -> Result<Exit, Failure> {
    let totals = line::totals(&ended.report);
    if let Some(fault) = ended.fault {
        info!("detached; in all: {totals}");
        return Err(fault);
    }
    if ended.info.exit() == Exit::Ok {
        info!("{}; in all: {totals}", ended.info);
        return Ok(Exit::Ok);
    }
    let told = dump::save_and_describe(&ended.info, &ended.report, opts.exit_dump_len);
    Err(Failure::new(
        ended.info.exit(),
        anyhow!("ejected by the kernel: {}\n{told}\n  in all  {totals}", ended.info),
    ))
}
