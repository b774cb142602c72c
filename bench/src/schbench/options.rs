// SPDX-License-Identifier: GPL-2.0-only
//! Options of `hearth-bench schbench`, and the bounds they are checked against.

use crate::Failure;
use crate::hist::Recorder;
use crate::host;
use std::path::PathBuf;

/// Most message threads, and most workers of one message thread.
const MAX_THREADS: u64 = 32_768;
/// Most workers in all; Linux allows about this many threads in one process by default.
const MAX_WORKERS: u64 = 32_768;
/// One year.
const MAX_SECONDS: u64 = 31_536_000;
/// 4 GiB a worker.
const MAX_FOOTPRINT_KB: u64 = 4_194_304;
const MAX_OPERATIONS: u64 = 1_000_000;
/// One minute: a request must fit the histogram (67 s).
const MAX_SLEEP_US: u64 = 60_000_000;
/// schbench ignores a warm-up in runs shorter than this.
const SHORT_RUN_S: u64 = 30;

/// A parser for whole numbers in plain digits, with a message that names the bounds.
fn whole(min: u64, max: u64) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let value = text.parse::<u64>().ok().filter(|value| digits && (min..=max).contains(value));
        value.ok_or_else(|| format!("write a whole number from {min} to {max} in plain digits"))
    }
}

/// Wakeup and request latency under load, with the threads and the figures of schbench
///
/// Message threads wake workers; each worker then serves one request (sleep, lock the CPU, multiply matrices, unlock)
/// and asks to be woken again. "Wakeup latency" is the time from the start of a message thread's wake walk until the worker
/// runs; "request latency" is sleep plus work. The report has the format of schbench and goes to standard error.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Message threads; each wakes its own workers
    #[arg(short = 'm', long, value_name = "N", default_value = "1", value_parser = whole(1, MAX_THREADS))]
    #[arg(allow_negative_numbers = true)]
    pub message_threads: u64,

    /// Workers per message thread [default: allowed CPUs / message threads, rounded up]
    #[arg(short = 't', long, value_name = "N", value_parser = whole(1, MAX_THREADS))]
    #[arg(allow_negative_numbers = true)]
    pub threads: Option<u64>,

    /// Seconds to run
    #[arg(short = 'r', long, value_name = "S", default_value = "30", value_parser = whole(1, MAX_SECONDS))]
    #[arg(allow_negative_numbers = true)]
    pub runtime: u64,

    /// Seconds between interim reports; 0: none
    #[arg(short = 'i', long = "intervaltime", value_name = "S", default_value = "10")]
    #[arg(value_parser = whole(0, MAX_SECONDS), allow_negative_numbers = true)]
    pub interval: u64,

    /// Seconds after which all figures start again from zero, over and over; 0: never
    #[arg(short = 'z', long = "zerotime", value_name = "S", default_value = "0")]
    #[arg(value_parser = whole(0, MAX_SECONDS), allow_negative_numbers = true)]
    pub zero: u64,

    /// Seconds at the start of the run that do not count (ignored if -r is below 30, as schbench does)
    #[arg(short = 'w', long = "warmuptime", value_name = "S", default_value = "0")]
    #[arg(value_parser = whole(0, MAX_SECONDS), allow_negative_numbers = true)]
    pub warmup: u64,

    /// Memory (KiB) that the matrices of one worker fill; sets their side
    #[arg(short = 'F', long = "cache_footprint", alias = "cache-footprint", value_name = "KIB")]
    #[arg(default_value = "256", value_parser = whole(0, MAX_FOOTPRINT_KB), allow_negative_numbers = true)]
    pub cache_footprint: u64,

    /// Matrix multiplications per request; 0: none, a pure wakeup test
    #[arg(short = 'n', long, value_name = "N", default_value = "5", value_parser = whole(0, MAX_OPERATIONS))]
    #[arg(allow_negative_numbers = true)]
    pub operations: u64,

    /// Microseconds each request sleeps before it works; 0: no sleep at all
    #[arg(short = 's', long = "sleep_usec", alias = "sleep-usec", value_name = "US")]
    #[arg(default_value = "100", value_parser = whole(0, MAX_SLEEP_US), allow_negative_numbers = true)]
    pub sleep_us: u64,

    /// Work without holding the lock of the CPU
    #[arg(short = 'L', long)]
    pub no_locking: bool,

    /// Also write the final figures as JSON in schbench's shape; "-" is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Name of the run, for the JSON file
    #[arg(short = 'J', long, value_name = "NAME")]
    pub jobname: Option<String>,

    /// Print one line of JSON with the figures that scripts need to standard output
    #[arg(long)]
    pub summary_json: bool,

    /// Measure without schbench's oddities: count 0 us samples, obey -w in short runs, leave the first (always zero)
    /// rps sample out, and average the rps over the counted time only
    #[arg(long)]
    pub no_quirks: bool,
}

impl Options {
    /// Workers per message thread.
    pub fn workers_each(&self) -> u64 {
        self.threads.unwrap_or_else(|| (host::allowed_cpus() as u64).div_ceil(self.message_threads))
    }

    /// Rows of the three square matrices of u64 that fill the footprint.
    pub fn matrix_side(&self) -> usize {
        let cells = self.cache_footprint * 1024 / 3 / size_of::<u64>() as u64;
        cells.isqrt() as usize
    }

    /// Seconds of warm-up that will really be left out.
    pub fn warmup_s(&self) -> u64 {
        if self.runtime < SHORT_RUN_S && !self.no_quirks { 0 } else { self.warmup }
    }

    /// What the user should know about these options before the run.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.warmup != self.warmup_s() {
            notes.push(format!(
                "-w {} is ignored because -r {} is below {SHORT_RUN_S}, as schbench does; --no-quirks obeys it",
                self.warmup, self.runtime
            ));
        }
        notes
    }

    /// Checks what no single option shows.
    ///
    /// # Errors
    /// Usage errors for combinations that make no sense, and "this machine cannot" for more memory than there is.
    pub fn check(&self) -> Result<(), Failure> {
        let workers = self.workers_each() * self.message_threads;
        if workers > MAX_WORKERS {
            return Err(Failure::usage(format!(
                "-m {} times -t {} is {workers} workers; {MAX_WORKERS} is the most",
                self.message_threads,
                self.workers_each()
            )));
        }
        if self.warmup_s() >= self.runtime {
            return Err(Failure::usage(format!(
                "-w {} leaves nothing of -r {} to measure; use a longer run or a shorter warm-up",
                self.warmup, self.runtime
            )));
        }
        if self.summary_json && self.json.as_deref().is_some_and(|path| path.as_os_str() == "-") {
            return Err(Failure::usage(
                "-j - and --summary-json both want standard output; give -j a file".to_owned(),
            ));
        }
        let need = workers * (self.cache_footprint * 1024 + 2 * Recorder::BYTES);
        match host::available_memory() {
            Some(have) if need > have => Err(Failure::machine(format!(
                "{workers} workers need {} MiB and this machine has {} MiB free; lower -F, -m or -t",
                need >> 20,
                have >> 20
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn parse(args: &[&str]) -> Options {
        Cli::try_parse_from([&["x"], args].concat()).unwrap().options
    }

    #[test]
    fn matrix_side_follows_the_footprint() {
        for (kib, side) in [(256, 104), (0, 0), (1, 6), (1024, 209)] {
            let options = parse(&["-F", &kib.to_string()]);
            assert_eq!(options.matrix_side(), side, "{kib} KiB");
        }
    }

    #[test]
    fn all_long_names_of_schbench_work() {
        let options = parse(&[
            "--message-threads",
            "2",
            "--threads",
            "3",
            "--runtime",
            "40",
            "--intervaltime",
            "4",
            "--zerotime",
            "5",
            "--warmuptime",
            "6",
            "--cache_footprint",
            "7",
            "--operations",
            "8",
            "--sleep_usec",
            "9",
            "--no-locking",
            "--json",
            "f",
            "--jobname",
            "j",
        ]);
        assert_eq!((options.message_threads, options.threads, options.runtime), (2, Some(3), 40));
        assert_eq!((options.interval, options.zero, options.warmup), (4, 5, 6));
        assert_eq!((options.cache_footprint, options.operations, options.sleep_us), (7, 8, 9));
        assert!(options.no_locking && options.json.is_some());
        assert_eq!(options.jobname.as_deref(), Some("j"));
        assert_eq!(parse(&["--cache-footprint", "7", "--sleep-usec", "9"]).cache_footprint, 7);
    }

    #[test]
    fn default_workers_cover_the_allowed_cpus() {
        let cpus = host::allowed_cpus() as u64;
        assert_eq!(parse(&[]).workers_each(), cpus);
        assert_eq!(parse(&["-m", "32768"]).workers_each(), 1);
        assert_eq!(parse(&["-m", "2"]).workers_each(), cpus.div_ceil(2));
    }

    #[test]
    fn a_warmup_of_a_short_run_is_ignored_aloud() {
        let options = parse(&["-w", "5", "-r", "20"]);
        assert_eq!((options.warmup_s(), options.notes().len()), (0, 1));
        let options = parse(&["-w", "5", "-r", "20", "--no-quirks"]);
        assert_eq!((options.warmup_s(), options.notes().len()), (5, 0));
        assert_eq!(parse(&["-w", "5"]).warmup_s(), 5);
    }

    #[test]
    fn impossible_combinations_are_refused() {
        for args in [
            &["-m", "32768", "-t", "2"][..],
            &["-w", "30"],
            &["-w", "9", "-r", "9", "--no-quirks"],
            &["-j", "-", "--summary-json"],
        ] {
            assert_eq!(parse(args).check().unwrap_err().code(), crate::USAGE, "{args:?}");
        }
        let huge = parse(&["-t", "32768", "-F", "4194304"]);
        assert_eq!(huge.check().unwrap_err().code(), crate::MACHINE);
    }
}
