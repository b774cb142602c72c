// SPDX-License-Identifier: GPL-2.0-only
//! `cargo xtask demo`: the main job, end to end, on this host if it can or else in the lab.

use crate::daemon::Stats;
use crate::fail::{cannot, failed};
use crate::kernel::KernelArgs;
use crate::lab::boot::{Boot, End};
use crate::lab::report::{BootReport, Report};
use crate::lab::scenario::{Clock, Scenario};
use crate::lab::table::{self, Cell};
use crate::lab::{self, Settings};
use crate::proc::{self, Guard};
use crate::ui::Step;
use crate::{build, paths, setup};
use anyhow::{Context, Result};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Options of `demo`.
#[derive(clap::Args, Debug)]
pub struct DemoArgs {
    /// Run in the lab even if this host could run it
    #[arg(long)]
    lab: bool,
    #[command(flatten)]
    kernel: KernelArgs,
}

/// Runs `demo`.
pub fn run(args: &DemoArgs) -> Result<()> {
    setup::ensure(&args.kernel)?;
    build::release(&build::PROGRAMS)?;
    let scenario = Scenario::named("demo")?;
    let own_kernel = args.kernel.kernel.is_some() || args.kernel.kernel_suite.is_some();
    let reason =
        if args.lab || own_kernel { Some("the lab was asked for".to_string()) } else { host_lacks() };
    let Some(reason) = reason else {
        let report = on_host(&scenario)?;
        return show(&report, "this host");
    };
    println!("In the lab, since {reason}.\n");
    lab::require_tools()?;
    let mut settings = Settings::new(args.kernel.require()?);
    settings.build = false;
    show(&lab::run_scenario(&scenario, &settings)?, "QEMU")
}

/// Why the demo cannot run on this host; nothing if it can.
fn host_lacks() -> Option<String> {
    let state = std::fs::read_to_string("/sys/kernel/sched_ext/state");
    match state.as_deref().map(str::trim) {
        Err(_) => Some("this host's kernel has no sched_ext".to_string()),
        Ok(_) if !proc::is_root() => Some("only root can attach a scheduler to this host".to_string()),
        Ok("disabled") if Path::new("/sys/kernel/btf/vmlinux").exists() => None,
        Ok("disabled") => Some("this host's kernel does not describe its types (BTF)".to_string()),
        Ok(state) => Some(format!("another scheduler holds this host (sched_ext is {state})")),
    }
}

/// The scenario on the running kernel, with the same library and the same result lines as in a guest.
fn on_host(scenario: &Scenario) -> Result<Report> {
    let step = Step::start("running on this host");
    let scratch = paths::scratch("demo-")?;
    let create =
        |name: &str| File::create(scratch.path().join(name)).with_context(|| format!("cannot create {name}"));
    let read = |name: &str| std::fs::read_to_string(scratch.path().join(name)).unwrap_or_default();
    let console = create("console")?;
    let library = paths::scenarios();
    let script = "exec 3>results; echo \"BEGIN $(uname -r)\" >&3; (. \"$1/lib.sh\"; . \"$1/demo.sh\"); echo \"END $?\" >&3";
    let search = std::env::join_paths([paths::target()?.join("release"), "/usr/bin".into(), "/bin".into()])
        .context("a path of this project holds a colon")?;
    let mut command = Command::new("sh");
    command.args(["-u", "-c", script, "sh"]).arg(library).current_dir(scratch.path()).env("PATH", search);
    command.stdin(Stdio::null()).stdout(console.try_clone().context("cannot share a file")?).stderr(console);
    let start = Instant::now();
    let status = Guard::spawn(&mut command)?.wait()?;
    drop(step);
    let end =
        if status.success() { End::ByItself } else { End::Emulator(format!("the script failed: {status}")) };
    let boot = Boot { end, console: read("console"), results: read("results"), wall: start.elapsed() };
    let scenario = Scenario { clock: Clock::Real, ..scenario.clone() };
    let cpus = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
    let topology = format!("{}", cpus.min(255)).parse()?;
    let report = BootReport::new(&scenario, topology, false, 1, &boot);
    Ok(Report { scenario: scenario.name, skipped: None, boots: vec![report] })
}

/// Prints the report, or why there is none.
fn show(report: &Report, place: &str) -> Result<()> {
    if let Some(reason) = &report.skipped {
        return Err(cannot(reason.clone()));
    }
    let rows = report.rows();
    let stats = rows.iter().find_map(Stats::of);
    let (Some(stats), Some(boot), true) = (stats, report.boots.first(), report.passed()) else {
        report.print();
        return Err(failed("the demo failed"));
    };
    println!("{}", text(boot, place, &stats, &table::medians(&rows)));
    Ok(())
}

fn text(boot: &BootReport, place: &str, stats: &Stats, cells: &[Cell]) -> String {
    let (cpus, llcs) = stats.machine();
    let clock = match boot.clock {
        "virtual" => "virtual clock: latencies are instruction paths, 2 ns each; caches are not modelled",
        _ => "real clock",
    };
    let latencies: String = cells
        .iter()
        .map(|cell| {
            let name = if cell.sched == "default" {
                "the kernel's default".into()
            } else {
                format!("hearth, {}", stats.policy())
            };
            let [p50, p99, p999] = cell.median;
            format!("  {name:<24}{p50:>7.0} us{p99:>8.0} us{p999:>8.0} us\n")
        })
        .collect();
    let [wakeups, others, migrations] = stats.lines();
    let release = build::program("hearth").map(|path| path.display().to_string()).unwrap_or_default();
    format!(
        "Hearth scheduled a real kernel through its user-space dispatcher, and gave it back.\n
  kernel      {} on {place} ({clock})
  machine     {cpus} CPUs in {llcs} LLC domains
  load        schbench: one thread wakes 4 workers for 1 s under each scheduler\n
  {:<24}{:>10}{:>11}{:>11}
{latencies}
  wakeups     {wakeups}
              {others}
  migrations  {migrations}\n
Next:
  cargo xtask lab compare --with scx_rustland   the same beside another scheduler, with more load
  cargo xtask lab --list                        everything else that the lab can show
  {release} doctor   what this machine lacks to attach Hearth to it",
        boot.kernel, "wakeup latency", "p50", "p99", "p99.9",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_newcomer_finds_every_fact() {
        let scenario = Scenario::parse("demo", "true\n").unwrap();
        let results = r#"BEGIN 7.3.4
RESULT {"kind":"schbench","sched":"default","threads":4,"run":1,"p50_us":21,"p99_us":500,"p999_us":787}
RESULT {"kind":"schbench","sched":"hearth","threads":4,"run":1,"p50_us":75,"p99_us":419,"p999_us":729}
RESULT {"kind":"hearth","policy":"fifo","cpus":4,"llcs":2,"forwarded":6699,"decided":6851,"committed":6698,"migrations_llc":748,"migrations_cross_llc":530}
END 0
"#;
        let boot = Boot {
            end: End::ByItself,
            console: String::new(),
            results: results.into(),
            wall: Duration::ZERO,
        };
        let report = BootReport::new(&scenario, "2x2".parse().unwrap(), false, 1, &boot);
        let report = Report { scenario: "demo".into(), skipped: None, boots: vec![report] };
        let rows = report.rows();
        let stats = rows.iter().find_map(Stats::of).unwrap();
        let text = text(&report.boots[0], "QEMU", &stats, &table::medians(&rows));
        for part in [
            "7.3.4 on QEMU (virtual clock",
            "4 CPUs in 2 LLC domains",
            "the kernel's default         21 us     500 us     787 us",
            "hearth, fifo                 75 us     419 us     729 us",
            "6,699 forwarded to the dispatcher, 6,851 decided, 6,698 committed",
            "748 within an LLC domain, 530 across domains",
            "cargo xtask lab compare",
        ] {
            assert!(text.contains(part), "{part} not in\n{text}");
        }
        assert_eq!(text.matches("hearth, fifo").count(), 1, "statistics are no measurement:\n{text}");
    }
}
