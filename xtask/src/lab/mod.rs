// SPDX-License-Identifier: GPL-2.0-only
//! `cargo xtask lab`: a stock kernel in QEMU, with a chosen machine, runs a scenario and brings back results.

pub mod boot;
pub mod image;
mod kvm;
mod peers;
pub mod report;
pub mod results;
pub mod scenario;
pub mod table;
pub mod topology;

use crate::fail::{cannot, failed, usage};
use crate::kernel::{Kernel, KernelArgs};
use crate::setup::needs;
use crate::ui::Step;
use crate::{build, paths, proc};
use anyhow::{Context, Result};
use boot::{Accel, Machine};
use image::Image;
use report::{BootReport, Report};
use scenario::{Clock, Scenario};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use topology::Topology;

/// Options of `lab`.
#[derive(clap::Args, Debug)]
pub struct LabArgs {
    /// Scenario to run: a name shown by --list
    #[arg(required_unless_present_any = ["list", "shell_script"])]
    scenario: Option<String>,
    /// List the scenarios
    #[arg(long)]
    list: bool,
    /// Run this shell script as the scenario
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    shell_script: Option<PathBuf>,
    /// Machines: N, LLCSxCORES, LLCSxCORESxTHREADS, or one, small, smt, wide; several with commas
    #[arg(long, value_name = "SHAPE", value_delimiter = ',')]
    topology: Vec<Topology>,
    /// What the guest's clock follows
    #[arg(long, value_enum)]
    clock: Option<Clock>,
    /// Boots on each topology
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    boots: Option<u32>,
    /// Wall-clock limit of one boot, in seconds
    #[arg(long, value_name = "SEC", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// Guest memory in MiB
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(128..))]
    memory: Option<u32>,
    /// Write all results to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Schedulers to compare with, by name (built on first use) or by path
    #[arg(long, value_name = "PEER", value_delimiter = ',')]
    with: Vec<String>,
    /// Put this program into the image (in place of any other of its name)
    #[arg(long, value_name = "FILE")]
    bin: Vec<PathBuf>,
    /// Set a variable for the scenario
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    env: Vec<(String, String)>,
    /// Add to the kernel's command line
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    append: Option<String>,
    /// How guest instructions are executed
    #[arg(long, value_enum, default_value = "auto")]
    accel: Accel,
    /// Keep image and logs for a day, and say where
    #[arg(long)]
    keep: bool,
    /// Show the guest's console while it runs
    #[arg(long)]
    verbose: bool,
    /// Use the programs that are built already
    #[arg(long)]
    no_build: bool,
    #[command(flatten)]
    kernel: KernelArgs,
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("use NAME=VALUE")?;
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain && !name.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok((name.to_string(), value.to_string()));
    }
    Err(format!("'{name}' is no variable name"))
}

/// What a run needs besides the scenario.
pub struct Settings {
    /// The kernel to boot.
    pub kernel: Kernel,
    /// Programs given by hand, by name.
    pub programs: BTreeMap<String, PathBuf>,
    /// Names of the peers, for scenarios that compare.
    pub peers: Vec<String>,
    /// Variables for the script.
    pub variables: Vec<(String, String)>,
    /// How guest instructions are executed.
    pub accel: Accel,
    /// Keep image and logs.
    pub keep: bool,
    /// Show the console.
    pub verbose: bool,
    /// Build our own programs first.
    pub build: bool,
}

impl Settings {
    /// The defaults for a kernel.
    pub fn new(kernel: Kernel) -> Self {
        Self {
            kernel,
            programs: BTreeMap::new(),
            peers: Vec::new(),
            variables: Vec::new(),
            accel: Accel::Auto,
            keep: false,
            verbose: false,
            build: true,
        }
    }
}

/// Runs `lab`.
pub fn run(args: &LabArgs) -> Result<()> {
    if args.list {
        for scenario in scenario::all()? {
            println!("{:<16} {}", scenario.name, scenario.about);
        }
        return Ok(());
    }
    let mut scenario = match (&args.shell_script, &args.scenario) {
        (Some(path), _) => Scenario::read(path)?,
        (None, Some(name)) => Scenario::named(name)?,
        (None, None) => return Err(usage("name a scenario, or use --list")),
    };
    args.adjust(&mut scenario);
    let report = run_scenario(&scenario, &args.settings()?)?;
    report.print();
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report).context("cannot write results as JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(reason) = &report.skipped {
        return Err(cannot(format!("{} cannot run here: {reason}", report.scenario)));
    }
    if report.passed() { Ok(()) } else { Err(failed(format!("{} failed", report.scenario))) }
}

impl LabArgs {
    fn adjust(&self, scenario: &mut Scenario) {
        if !self.topology.is_empty() {
            scenario.topologies.clone_from(&self.topology);
        }
        scenario.clock = self.clock.unwrap_or(scenario.clock);
        scenario.boots = self.boots.unwrap_or(scenario.boots);
        scenario.timeout_s = self.timeout.unwrap_or(scenario.timeout_s);
        scenario.memory_mib = self.memory.unwrap_or(scenario.memory_mib);
        if let Some(append) = &self.append {
            scenario.append = format!("{} {append}", scenario.append);
        }
    }

    fn settings(&self) -> Result<Settings> {
        require_tools()?;
        let mut settings = Settings::new(self.kernel.require()?);
        for name in &self.with {
            let program = peers::obtain(name)?;
            settings.peers.push(add_program(&mut settings.programs, &program));
        }
        for program in &self.bin {
            if !proc::is_executable(program) {
                return Err(usage(format!("--bin {}: no such program", program.display())));
            }
            add_program(&mut settings.programs, program);
        }
        settings.variables.clone_from(&self.env);
        (settings.accel, settings.keep, settings.verbose) = (self.accel, self.keep, self.verbose);
        settings.build = !self.no_build;
        Ok(settings)
    }
}

fn add_program(programs: &mut BTreeMap<String, PathBuf>, path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    programs.insert(name.clone(), path.to_path_buf());
    name
}

/// An error with a hint where the lab's own tools are missing.
pub fn require_tools() -> Result<()> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err(cannot("the lab runs on x86-64 only"));
    }
    if needs::qemu_is_recent() {
        return Ok(());
    }
    Err(cannot(format!(
        "the lab needs {} {} or later: run `cargo xtask setup`",
        needs::QEMU,
        needs::QEMU_MAJOR_MIN
    )))
}

/// Boots the scenario on each of its machines, as often as it wants.
pub fn run_scenario(scenario: &Scenario, settings: &Settings) -> Result<Report> {
    let mut report = Report { scenario: scenario.name.clone(), ..Report::default() };
    let programs = match find_programs(scenario, settings)? {
        Ok(programs) => programs,
        Err(reason) => {
            report.skipped = Some(reason);
            return Ok(report);
        }
    };
    let mut image = Image::base(&settings.kernel)?;
    for program in programs.values() {
        image.add_program(program)?;
    }
    let kvm = scenario.clock == Clock::Real && kvm::wanted(settings)?;
    for &topology in &scenario.topologies {
        for number in 1..=scenario.boots {
            let step =
                Step::start(format!("{} on {topology}, boot {number} of {}", scenario.name, scenario.boots));
            let boot = boot_once(scenario, settings, &mut image, topology, kvm, number)?;
            report.boots.push(BootReport::new(scenario, topology, kvm, number, &boot));
            drop(step);
        }
    }
    Ok(report)
}

fn boot_once(
    scenario: &Scenario,
    settings: &Settings,
    image: &mut Image,
    topology: Topology,
    kvm: bool,
    number: u32,
) -> Result<boot::Boot> {
    let mut scratch = paths::scratch("boot-")?;
    scratch.disable_cleanup(settings.keep);
    let mut variables: Vec<(String, String)> = vec![
        ("LAB_TOPOLOGY".into(), topology.to_string()),
        ("LAB_CPUS".into(), topology.cpus().to_string()),
        ("LAB_LLCS".into(), topology.llcs.to_string()),
        ("LAB_CLOCK".into(), scenario.clock.name().into()),
        ("LAB_BOOT".into(), number.to_string()),
        ("LAB_PEERS".into(), settings.peers.join(" ")),
    ];
    variables.extend(settings.variables.iter().cloned());
    image.add_scenario(scenario, &variables);
    let initrd = scratch.path().join("initrd.cpio");
    image.write(&initrd)?;
    if settings.keep {
        eprintln!("kept for a day: {}", scratch.path().display());
    }
    let machine = Machine {
        kernel: &settings.kernel,
        topology,
        clock: scenario.clock,
        kvm,
        memory_mib: scenario.memory_mib,
        append: &scenario.append,
        seed: number,
        timeout: Duration::from_secs(scenario.timeout_s),
        verbose: settings.verbose,
    };
    machine.boot(&initrd, scratch.path())
}

/// The programs of a scenario: given by hand, our own (built first), or the host's; or the reason why one is missing.
fn find_programs(
    scenario: &Scenario,
    settings: &Settings,
) -> Result<Result<BTreeMap<String, PathBuf>, String>> {
    let mut programs = settings.programs.clone();
    let wanted: Vec<&str> = scenario.needs.iter().map(String::as_str).collect();
    let open: Vec<&str> = wanted.into_iter().filter(|name| !programs.contains_key(*name)).collect();
    let (ours, theirs): (Vec<&str>, Vec<&str>) =
        open.into_iter().partition(|name| build::PROGRAMS.contains(name));
    if settings.build {
        build::release(&ours)?;
    }
    for name in ours {
        let path = build::program(name)?;
        if !proc::is_executable(&path) {
            return Ok(Err(format!("{name} is not built")));
        }
        programs.insert(name.to_string(), path);
    }
    for name in theirs {
        let Some(path) = proc::which(name) else {
            return Ok(Err(format!("no program {name} on this machine")));
        };
        programs.insert(name.to_string(), path);
    }
    Ok(Ok(programs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_from_the_command_line() {
        assert_eq!(parse_variable("RUNS=5=6"), Ok(("RUNS".to_string(), "5=6".to_string())));
        for text in ["RUNS", "=5", "1A=5", "A B=1", "$(x)=1"] {
            assert!(parse_variable(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_missing_program_is_a_reason_and_a_given_one_wins() {
        let scenario = Scenario::parse("x", "# needs: sh no-such-program\n").unwrap();
        let mut settings = Settings::new(Kernel { image: PathBuf::new(), config: None });
        let reason = find_programs(&scenario, &settings).unwrap().unwrap_err();
        assert!(reason.contains("no-such-program"));
        add_program(&mut settings.programs, Path::new("/given/no-such-program"));
        let found = find_programs(&scenario, &settings).unwrap().unwrap();
        assert_eq!(found["no-such-program"], Path::new("/given/no-such-program"));
        assert!(found["sh"].ends_with("sh"));
    }
}
