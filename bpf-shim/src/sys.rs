// SPDX-License-Identifier: GPL-2.0-only
//! The few system calls that no crate of ours wraps. All `unsafe` of the daemon lives here, in `ring.rs` and in
//! `tables.rs`.

use anyhow::{Context, Result, bail};
use hearth::ids::Nanos;
use libbpf_rs::libbpf_sys;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Now, on the clock that the shim stamps with (`bpf_ktime_get_ns`).
#[must_use]
pub fn now_ns() -> Nanos {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec for the call to fill; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec.unsigned_abs() * 1_000_000_000 + ts.tv_nsec.unsigned_abs()
}

/// How [`become_real_time`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// SCHED_FIFO at this priority.
    Fifo(i32),
    /// The kernel refused (a real-time budget of zero in this control group, or no privilege): an ordinary
    /// sched_ext task on the shim's in-kernel path.
    Ordinary,
}

/// Makes the calling thread SCHED_FIFO, with children that do not inherit it and a limit on CPU time without a
/// blocking call, so that a runaway dispatcher gets a signal instead of the machine.
pub fn become_real_time(priority: i32) -> Class {
    // Attaching runs in this class as well and takes long on an emulated machine: seconds, where the dispatcher
    // blocks at least every 100 ms.
    let limit = libc::rlimit { rlim_cur: 4_000_000, rlim_max: 5_000_000 };
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: both structs are valid for the calls; pid 0 is the calling thread.
    unsafe {
        libc::setrlimit(libc::RLIMIT_RTTIME, &limit);
        if libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &param) == 0 {
            Class::Fifo(priority)
        } else {
            Class::Ordinary
        }
    }
}

/// Ends what [`become_real_time`] began.
pub fn become_ordinary() {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: a valid struct; pid 0 is the calling thread. Leaving a real-time class is always allowed.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &param) };
}

/// Raises the limit of locked memory, which older kernels charge BPF maps to. Failing is not fatal.
pub fn unlimit_memlock() -> bool {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is a valid rlimit for the call.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) == 0 }
}

/// The CPUs that a thread may run on, as a bitmap that is wide enough for every machine we take.
pub struct Affinity([u64; hearth::limits::MAX_CPUS / 64]);

impl Affinity {
    /// That of the calling thread.
    #[must_use]
    pub fn current() -> Option<Self> {
        let mut mask = [0; hearth::limits::MAX_CPUS / 64];
        // SAFETY: the kernel writes at most the size that it is told; pid 0 is the calling thread.
        let ok = unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) == 0 };
        ok.then_some(Self(mask))
    }

    /// Gives it to the calling thread.
    pub fn restore(&self) {
        // SAFETY: the kernel reads at most the size that it is told; pid 0 is the calling thread. It fails only if
        // none of the CPUs is left, and then the thread stays where it is.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), self.0.as_ptr().cast()) };
    }
}

/// Locks what is in memory and what will be. False: not permitted, nothing is locked.
pub fn lock_all() -> bool {
    // SAFETY: no pointers involved.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) == 0 }
}

/// Hour, minute and second of the local time.
#[must_use]
pub fn local_time() -> (i32, i32, i32) {
    // SAFETY: tm is plain old data with a pointer that may be null; all-zero is a valid value.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: a null pointer is allowed for time(); both structs are valid for localtime_r.
    unsafe {
        let now = libc::time(std::ptr::null_mut());
        libc::localtime_r(&now, &mut tm);
    }
    (tm.tm_hour, tm.tm_min, tm.tm_sec)
}

/// Blocks until `fd` is readable, a signal arrives, or the time is over.
pub fn wait_readable(fd: BorrowedFd, timeout: Nanos) {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let ts = libc::timespec {
        tv_sec: i64::try_from(timeout / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (timeout % 1_000_000_000).cast_signed(),
    };
    // SAFETY: one valid pollfd, a valid timespec, no signal mask.
    unsafe { libc::ppoll(&mut poll, 1, &ts, std::ptr::null()) };
}

/// Runs a SEC("syscall") program once. One system call, no allocation; libbpf's wrapper would check its options anew
/// each time, for five times the instructions.
pub fn run_program(program: BorrowedFd) -> Result<()> {
    let mut attr = libbpf_sys::bpf_attr::default();
    attr.test = libbpf_sys::bpf_attr__bindgen_ty_7 {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        ..Default::default()
    };
    // SAFETY: `attr` is a zeroed bpf_attr with the fields of this command set, and lives through the call, which is told
    // the size of those fields; the program takes no context.
    let err = unsafe {
        let bytes = size_of_val(&attr.test);
        libc::syscall(libc::SYS_bpf, libbpf_sys::BPF_PROG_RUN, &raw mut attr, bytes)
    };
    if err != 0 {
        return Err(io::Error::last_os_error()).context("running a shim program failed");
    }
    // SAFETY: the command that was run is the one that fills this member.
    if unsafe { attr.test.retval }.cast_signed() < 0 {
        bail!("the shim is no longer attached");
    }
    Ok(())
}

/// Page faults (minor + major) of the calling thread so far.
#[must_use]
pub fn thread_faults() -> u64 {
    // SAFETY: rusage is plain old data, for which all-zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for the call to fill.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    usage.ru_minflt.unsigned_abs() + usage.ru_majflt.unsigned_abs()
}

/// CPU time of the calling thread so far.
#[must_use]
pub fn thread_cpu_ns() -> Nanos {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut ts) };
    ts.tv_sec.unsigned_abs() * 1_000_000_000 + ts.tv_nsec.unsigned_abs()
}
