// SPDX-License-Identifier: GPL-2.0-only
//! One attachment: read the machine, load the shim, attach, dispatch, detach, report.

use crate::driver::{Driver, End};
use crate::exit::ExitInfo;
use crate::failure::Failure;
use crate::loader::{Shim, dispatcher_cpu};
use crate::opts::Opts;
use crate::output;
use crate::report::{self, Counters, Facts, Meter, Snapshot};
use crate::stats::{Statistics, Work};
use crate::stats_server::Server;
use crate::sys;
use anyhow::{Context, anyhow};
use hearth::dispatcher::{Config, Dispatcher};
use hearth::doctor::Exit;
use hearth::ids::CpuId;
use hearth::policy::Policy;
use hearth::policy::registry::{self, AnyPolicy};
use hearth::topology::Topology;
use libbpf_rs::MapHandle;
use serde_json::Value;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// Real-time priority of the dispatcher: above what people give their own programs, below the kernel's interrupt
/// threads (50).
const DISPATCHER_PRIORITY: i32 = 49;

/// How an attachment ended.
pub struct Ended {
    /// What the kernel says.
    pub info: ExitInfo,
    /// The final numbers; null if it never attached.
    pub report: Value,
    /// A fault of ours that ended it.
    pub fault: Option<Failure>,
    /// How long it was attached.
    pub lived: Duration,
}

/// The kernel's count of CPUs that came or went.
fn hotplug_seq() -> Option<String> {
    std::fs::read_to_string("/sys/kernel/sched_ext/hotplug_seq").ok()
}

fn read_machine(opts: &Opts, again: bool) -> Result<(Topology, CpuId), Failure> {
    let topology =
        Topology::from_sysfs(Path::new("/sys/devices/system")).map_err(|e| Failure::unsupported(e.into()))?;
    let home =
        dispatcher_cpu(opts.dispatcher_cpu, &topology, again).map_err(|e| Failure::new(Exit::Usage, e))?;
    Ok((topology, home))
}

/// `--check`: loads the shim, which the kernel then verifies, and lets go of it.
pub fn check(opts: &Opts) -> Result<Exit, Failure> {
    let (topology, _) = read_machine(opts, false)?;
    Shim::load(opts, &topology).map_err(Failure::load)?;
    let line = format!("ok: this kernel takes the shim; machine: {topology}");
    output::print(&line).map_err(|e| Failure::new(Exit::Failed, e))?;
    Ok(Exit::Ok)
}

/// One attachment, from reading the machine to the final numbers. `again`: it is not the first; `kept`: the shim that was
/// attached before, left there for the next time.
pub fn once(opts: &Opts, stop: &AtomicBool, again: bool, kept: &mut Option<Shim>) -> Result<Ended, Failure> {
    let seq = hotplug_seq();
    let (topology, home) = read_machine(opts, again)?;
    let reused = kept.as_ref().is_some_and(|shim| shim.fits(&topology));
    let shim = match kept {
        Some(shim) if shim.fits(&topology) => shim,
        _ => kept.insert(Shim::load(opts, &topology).map_err(Failure::load)?),
    };
    shim.prepare(&topology).map_err(Failure::unsupported)?;
    let core = core(opts, &topology, home)?;
    let shared = shim.share(opts, &topology).map_err(Failure::unsupported)?;
    let counters = shim.counters().map_err(Failure::unsupported)?;
    let mut driver = Driver::new(core, shared, opts.spin_us * 1000, opts.fault_late_us, stop)
        .map_err(Failure::unsupported)?;
    let real_time = sys::become_real_time(DISPATCHER_PRIORITY) != sys::Class::Ordinary;
    if !real_time {
        warn!("no real-time budget here: the dispatcher runs as an ordinary task and may be late under load");
    }
    let facts = Facts::new(&opts.policy, &topology, real_time);
    let statistics = start_statistics(opts, shim, &facts, &topology, home)?;
    let stale = || hotplug_seq() != seq;
    let dispatched = dispatch(shim, &mut driver, &counters, &statistics, home, stale);
    let seen = statistics.stop();
    let dispatched = match dispatched {
        Err(error) if reused => {
            debug!("{error:#}: loading the shim anew");
            *kept = None;
            let (report, lived) = (Value::Null, Duration::ZERO);
            return Ok(Ended { info: ExitInfo::stale_machine(), report, fault: None, lived });
        }
        other => other.map_err(Failure::load)?,
    };

    let events = if dispatched.events.is_null() { seen } else { dispatched.events };
    let report = dispatched.counters.map_or(Value::Null, |counters| {
        let mut report = report::json(&facts, &counters, &dispatched.snapshot, &events);
        report["exit"] = dispatched.info.json();
        report
    });
    if opts.json
        && let Err(e) = output::print(&report.to_string())
    {
        warn!("{e:#}");
    }
    let fault = match dispatched.end {
        Ok(Ok(End::Asked | End::Detached)) => None,
        Ok(Err(error)) => Some(Failure::new(Exit::Failed, error.context("the dispatcher failed"))),
        Err(panic) => Some(Failure::new(Exit::Policy, anyhow!("the policy {} failed: {panic}", opts.policy))),
    };
    Ok(Ended { info: dispatched.info, report, fault, lived: dispatched.lived })
}

fn core(opts: &Opts, topology: &Topology, home: CpuId) -> Result<Dispatcher<AnyPolicy>, Failure> {
    let mut config = Config {
        slice_ns: opts.slice_us * 1000,
        dispatcher_cpu: Some(home),
        dispatcher_cpu_penalty: opts.share_cpu,
        ..Config::default()
    };
    let choice = registry::Choice::parse(&opts.policy).map_err(|e| Failure::new(Exit::Usage, anyhow!(e)))?;
    let policy = choice.build(&mut config);
    Ok(Dispatcher::new(topology.clone(), config, policy))
}

/// What is left of an attachment.
struct Dispatched {
    /// How the dispatcher came back: its own result, or the text of a panic.
    end: Result<anyhow::Result<End>, String>,
    snapshot: Snapshot,
    events: Value,
    counters: anyhow::Result<Counters>,
    info: ExitInfo,
    lived: Duration,
}

/// Attaches, dispatches until the end, detaches. Nothing in between may block, neither on a message nor on a lock:
/// every task waits for us. The error is that of attaching. `stale`: has the machine changed since it was read? From the
/// moment of attaching the kernel itself looks after that.
fn dispatch<P: Policy>(
    shim: &mut Shim,
    driver: &mut Driver<P>,
    counters: &MapHandle,
    statistics: &Statistics,
    home: CpuId,
    stale: impl FnOnce() -> bool,
) -> anyhow::Result<Dispatched> {
    let exchange = statistics.exchange();
    let anywhere = sys::Affinity::current();
    // Only now, and only for as long as needed: threads that are started while pinned are pinned as well.
    if !core_affinity::set_for_current(core_affinity::CoreId { id: home.idx() }) {
        warn!("cannot pin the dispatcher to CPU {}", home.0);
    }
    let dispatched = shim.attach().map(|()| {
        let began = Instant::now();
        statistics.attached();
        let meter = Meter::start();
        let stale = stale();
        let end = if stale {
            Ok(Ok(End::Detached))
        } else {
            contain(|| driver.run(|core, counts| exchange.offer(|| meter.snapshot(core.stats(), counts))))
        };
        let snapshot = meter.snapshot(driver.core().stats(), driver.counts());
        let (events, counters) = (report::events(), Counters::read(counters));
        let ended = shim.detach();
        let info = if stale { ExitInfo::stale_machine() } else { ended };
        Dispatched { end, snapshot, events, counters, info, lived: began.elapsed() }
    });
    sys::become_ordinary();
    if let Some(anywhere) = anywhere {
        anywhere.restore();
    }
    dispatched
}

fn start_statistics(
    opts: &Opts,
    shim: &Shim,
    facts: &Facts,
    topology: &Topology,
    home: CpuId,
) -> Result<Statistics, Failure> {
    let server = Server::new(&opts.socket)
        .inspect_err(|e| warn!("statistics are not served: {}: {e}", opts.socket.display()))
        .ok();
    let work = Work {
        counters: shim.counters().map_err(Failure::unsupported)?,
        facts: facts.clone(),
        server,
        print_every: opts.stats,
        json: opts.json,
        greeting: format!("attached: policy {}, {topology}, dispatcher on CPU {}", opts.policy, home.0),
    };
    Statistics::start(work).context("cannot start the statistics thread").map_err(Failure::unsupported)
}

/// Runs a function that may panic; the error is where and why. Nothing is printed meanwhile: standard error may be a
/// terminal that somebody has stopped, and we are attached.
fn contain<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    let told = Arc::new(Mutex::new(String::new()));
    let (keep, me) = (Arc::clone(&told), thread::current().id());
    let usual = Arc::new(panic::take_hook());
    let others = Arc::clone(&usual);
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() != me {
            others(info);
        } else if let Ok(mut text) = keep.lock() {
            *text = info.to_string().replace('\n', " ");
        }
    }));
    let result = catch_unwind(AssertUnwindSafe(run));
    panic::set_hook(Box::new(move |info| usual(info)));
    result.map_err(|_| told.lock().map(|text| text.clone()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_one_line_with_its_place() {
        assert_eq!(contain(|| 3), Ok(3));
        let text = contain(|| assert!(std::hint::black_box(false), "the policy said no")).unwrap_err();
        assert!(text.contains("the policy said no") && text.contains("attach.rs:"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}
