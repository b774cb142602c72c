// SPDX-License-Identifier: GPL-2.0-only
//! What a report says about the machine, and what a run must know about it.

use std::fs;

/// Highest CPU count for which locks are kept when the kernel does not say how many CPUs are possible.
const FALLBACK_CPUS: usize = 4096;

fn line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The kernel's release, as `uname -r` prints it.
pub fn kernel_release() -> String {
    line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned())
}

/// The machine's name.
pub fn hostname() -> String {
    line("/proc/sys/kernel/hostname").unwrap_or_else(|| "unknown".to_owned())
}

/// Name of the attached sched_ext scheduler, or "disabled".
pub fn sched_ext() -> String {
    line("/sys/kernel/sched_ext/root/ops")
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "disabled".to_owned())
}

/// CPUs that the caller may run on: the affinity mask, so `taskset` and cpusets count.
pub fn allowed_cpus() -> usize {
    core_affinity::get_core_ids()
        .map(|ids| ids.len())
        .filter(|&cpus| cpus > 0)
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1)
}

/// One more than the highest CPU id that can ever appear.
pub fn cpu_ids() -> usize {
    line("/sys/devices/system/cpu/possible")
        .and_then(|list| last_id(&list))
        .map_or(FALLBACK_CPUS, |last| last + 1)
}

fn last_id(list: &str) -> Option<usize> {
    list.rsplit([',', '-']).next()?.parse().ok()
}

/// Bytes of memory that can be used without swapping, if the kernel says.
pub fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes: u64 = text
        .lines()
        .find_map(|l| l.strip_prefix("MemAvailable:"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    Some(kilobytes * 1024)
}

/// Average time (us) that the threads of this process waited for a CPU per time they got one; 0 if the kernel keeps no
/// such account (CONFIG_SCHED_INFO) or the threads are gone.
pub fn average_run_delay_us(threads: impl Iterator<Item = u32>) -> u64 {
    let (mut sum_us, mut count) = (0u64, 0u64);
    for tid in threads {
        let account = line(&format!("/proc/self/task/{tid}/schedstat"));
        if let Some(delay_us) = account.as_deref().and_then(run_delay_us) {
            sum_us += delay_us;
            count += 1;
        }
    }
    sum_us.checked_div(count).unwrap_or(0)
}

/// From "run_ns delay_ns slices" the delay per slice in us.
fn run_delay_us(account: &str) -> Option<u64> {
    let mut fields = account.split_whitespace().skip(1).map(str::parse::<u64>);
    let delay_ns = fields.next()?.ok()?;
    let slices = fields.next()?.ok()?;
    Some(delay_ns.checked_div(slices).unwrap_or(0) / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_end_with_their_highest_id() {
        assert_eq!(last_id("0"), Some(0));
        assert_eq!(last_id("0-7"), Some(7));
        assert_eq!(last_id("0-3,8-11"), Some(11));
        assert_eq!(last_id(""), None);
    }

    #[test]
    fn run_delay_is_per_slice() {
        assert_eq!(run_delay_us("900000 3000000 20"), Some(150));
        assert_eq!(run_delay_us("0 0 0"), Some(0));
        assert_eq!(run_delay_us("broken"), None);
    }

    #[test]
    fn this_machine_has_a_cpu() {
        assert!(allowed_cpus() >= 1);
        assert!(cpu_ids() >= allowed_cpus());
    }
}
