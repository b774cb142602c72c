// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's life: check the machine, lock memory, load, attach, dispatch, detach, report; again after a hotplug.

use crate::driver::{Counts, Driver, End};
use crate::exit::{Code, ExitInfo};
use crate::loader::{Shim, dispatcher_cpu};
use crate::opts::Opts;
use crate::report::{self, Counters};
use crate::sys;
use anyhow::{Context, Error, Result, anyhow};
use crossbeam::queue::ArrayQueue;
use hearth::dispatcher::{Config, Dispatcher};
use hearth::policy::Policy;
use hearth::policy::registry;
use hearth::stats::Stats;
use hearth::topology::Topology;
use libbpf_rs::MapHandle;
use scx_rustland_core::ALLOCATOR;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::{info, warn};

/// Real-time priority of the dispatcher: above what people give their own programs, below the kernel's interrupt
/// threads (50).
const DISPATCHER_PRIORITY: i32 = 49;

/// Hotplug restarts in a row, each within [`RESTART_WINDOW`] of the one before, before giving up.
const MAX_RESTARTS: u32 = 10;
const RESTART_WINDOW: Duration = Duration::from_secs(1);

/// An error and the exit code it means.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: Code,
    /// What went wrong, and what to do.
    pub error: Error,
}

impl Failure {
    fn new(code: Code, error: Error) -> Self {
        Self { code, error }
    }
}

fn cannot(error: Error) -> Failure {
    Failure::new(Code::Cannot, error)
}

/// Does what the options say; returns the exit code.
pub fn main(opts: &Opts) -> Result<Code, Failure> {
    if opts.version {
        println!("scx_hearth {}", env!("CARGO_PKG_VERSION"));
        return Ok(Code::Ok);
    }
    if opts.list_policies {
        for spec in registry::list() {
            println!("{:<12} {}", spec.name, spec.about);
        }
        return Ok(Code::Ok);
    }
    registry::find(&opts.policy).ok_or_else(|| {
        Failure::new(Code::Usage, anyhow!("no policy named {:?}: see --list-policies", opts.policy))
    })?;
    start_log(opts);
    if sched_ext_state().as_deref() == Some("enabled") {
        let who = std::fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
        let error = anyhow!("another scheduler is attached ({}): end it first; nothing was changed", who.trim());
        return Err(Failure::new(Code::Busy, error));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends us at once; the kernel then detaches by itself.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("cannot catch signals")
            .map_err(cannot)?;
    }
    if !sys::unlimit_memlock() {
        warn!("cannot raise the limit of locked memory");
    }
    ALLOCATOR.lock_memory();
    let result = attach_again_and_again(opts, &stop);
    ALLOCATOR.unlock_memory();
    result
}

fn start_log(opts: &Opts) {
    let filter = tracing_subscriber::EnvFilter::new(&opts.log_level);
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
}

fn sched_ext_state() -> Option<String> {
    std::fs::read_to_string("/sys/kernel/sched_ext/state").ok().map(|s| s.trim().to_string())
}

fn attach_again_and_again(opts: &Opts, stop: &Arc<AtomicBool>) -> Result<Code, Failure> {
    let mut restarts = 0;
    loop {
        let began = std::time::Instant::now();
        let info = attach_once(opts, stop)?;
        if !info.wants_restart() || stop.load(Ordering::Relaxed) {
            if !info.dump.is_empty() {
                eprintln!("{}", info.dump);
            }
            return match info.code() {
                Code::Ok => {
                    info!("{info}");
                    Ok(Code::Ok)
                }
                code => Err(Failure::new(code, anyhow!("ejected by the kernel: {info}"))),
            };
        }
        restarts = if began.elapsed() < RESTART_WINDOW { restarts + 1 } else { 0 };
        if restarts >= MAX_RESTARTS {
            let error = anyhow!("CPUs keep coming and going: gave up after {restarts} restarts in a row");
            return Err(Failure::new(Code::Cannot, error));
        }
        info!("a CPU came or went: reading the machine again");
    }
}

/// One attachment, from reading the machine to the final report.
fn attach_once(opts: &Opts, stop: &AtomicBool) -> Result<ExitInfo, Failure> {
    let topology = Topology::from_sysfs(Path::new("/sys/devices/system")).map_err(|e| cannot(e.into()))?;
    let home = dispatcher_cpu(opts, &topology).map_err(|e| Failure::new(Code::Usage, e))?;
    let mut object = MaybeUninit::uninit();
    let mut shim = Shim::load(&mut object, opts, &topology).map_err(cannot)?;
    if opts.check {
        println!("the shim loads on this kernel: {topology}");
        return Ok(ExitInfo::default());
    }
    let config = Config {
        slice_ns: opts.slice_us * 1000,
        dispatcher_cpu: Some(home),
        dispatcher_cpu_penalty: opts.share_cpu,
        ..Config::default()
    };
    let spec = registry::find(&opts.policy).ok_or_else(|| cannot(anyhow!("the policy has vanished")))?;
    let core = Dispatcher::new(topology.clone(), config.clone(), (spec.build)(&config));
    let shared = shim.share(opts, &topology).map_err(cannot)?;
    let snapshots = Arc::new(ArrayQueue::new(1));
    let printer = opts.stats.map(|seconds| {
        let counters = shim.counters().map_err(cannot)?;
        Ok(start_printer(Duration::from_secs(seconds), counters, opts, &topology, Arc::clone(&snapshots)))
    });
    let printer = printer.transpose()?;
    if !core_affinity::set_for_current(core_affinity::CoreId { id: home.idx() }) {
        warn!("cannot pin the dispatcher to CPU {}", home.0);
    }
    let class = sys::become_real_time(DISPATCHER_PRIORITY);
    if class == sys::Class::Ordinary {
        warn!("no real-time budget here: the dispatcher runs as an ordinary task and may be late under load");
    }
    let mut driver = Driver::new(core, shared, opts.spin_us * 1000, opts.fault_late_us, stop);
    shim.attach().map_err(cannot)?;
    info!("attached: policy {}, {topology}, dispatcher on CPU {}", opts.policy, home.0);

    let faults = sys::thread_faults();
    let cpu_ns = sys::thread_cpu_ns();
    let end = catch_unwind(AssertUnwindSafe(|| driver.run(|core, counts| offer(&snapshots, core, counts))));
    let faults = sys::thread_faults() - faults;
    let cpu_ns = sys::thread_cpu_ns() - cpu_ns;
    // Detach first, talk later: until then every task waits for us.
    let counters = Counters::read(&shim.counters().map_err(cannot)?);
    let info = shim.detach();
    sys::become_ordinary();
    if let Some(printer) = printer {
        printer.stop();
    }
    if let Ok(counters) = counters {
        let mut json =
            report::json(&opts.policy, &topology, &counters, driver.core().stats(), &driver.counts());
        json["dispatcher"]["page_faults"] = faults.into();
        json["dispatcher"]["cpu_us"] = (cpu_ns / 1000).into();
        json["dispatcher"]["real_time"] = (class != sys::Class::Ordinary).into();
        if opts.json {
            println!("{json}");
        } else {
            info!("in all: {}", report::line(&counters, &Counters::zero()));
        }
    }
    match end {
        Ok(Ok(End::Asked | End::Detached)) => Ok(info),
        Ok(Err(error)) => Err(Failure::new(Code::Ejected, error)),
        Err(panic) => Err(Failure::new(Code::Policy, anyhow!("the policy failed: {}", panic_text(&*panic)))),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}

type Snapshot = (Stats, Counts);

/// Leaves the newest numbers where the printer finds them; never waits.
fn offer<P: Policy>(queue: &ArrayQueue<Snapshot>, core: &Dispatcher<P>, counts: &Counts) {
    if queue.is_empty() {
        drop(queue.push((core.stats().clone(), *counts)));
    }
}

/// The statistics thread.
struct Printer {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Printer {
    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        drop(self.thread.join());
    }
}

fn start_printer(
    every: Duration,
    map: MapHandle,
    opts: &Opts,
    topology: &Topology,
    snapshots: Arc<ArrayQueue<Snapshot>>,
) -> Printer {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let (as_json, policy, topology) = (opts.json, opts.policy.clone(), topology.clone());
    let thread = std::thread::spawn(move || {
        let mut before = Counters::zero();
        while !stopped.load(Ordering::Relaxed) {
            std::thread::park_timeout(every);
            let Ok(now) = Counters::read(&map) else { return };
            if as_json {
                let (core, counts) = snapshots.pop().unwrap_or_default();
                println!("{}", report::json(&policy, &topology, &now, &core, &counts));
            } else {
                println!("{}", report::line(&now, &before));
            }
            before = now;
        }
    });
    Printer { stop, thread }
}
