// SPDX-License-Identifier: GPL-2.0-only
//! The few Linux calls that the standard library does not offer. All `unsafe` of this package is here.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Sleeps until `word` is woken, unless it no longer holds `expected`.
///
/// Returns also on a signal, on `timeout`, or for no reason at all: the caller looks at the word again.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let limit = timeout.map(|t| libc::timespec {
        tv_sec: libc::time_t::try_from(t.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    let limit_ptr = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `word` is a live, aligned 32-bit value for the whole call, `limit_ptr` is null or points at `limit`,
    // which outlives the call. The kernel only reads both.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            limit_ptr,
        );
    }
}

/// Wakes at most `threads` threads that sleep on `word`.
pub fn futex_wake(word: &AtomicU32, threads: i32) {
    // SAFETY: the kernel uses the address of `word` as a key only; the reference keeps it valid.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, threads);
    }
}

/// Kernel id of the CPU that runs the caller at this moment.
pub fn current_cpu() -> usize {
    // SAFETY: sched_getcpu takes no arguments and touches no memory of ours.
    let cpu = unsafe { libc::sched_getcpu() };
    // It fails only on kernels without getcpu; one lock for all is then still correct.
    usize::try_from(cpu).unwrap_or(0)
}

/// Kernel id of the calling thread.
pub fn thread_id() -> u32 {
    // SAFETY: gettid takes no arguments and cannot fail.
    let tid = unsafe { libc::gettid() };
    tid.unsigned_abs()
}

/// Lets a thread of this process run on these CPUs only.
///
/// # Errors
/// The kernel's refusal, for example for a set without a CPU that exists; "invalid input" for ids that no set holds.
pub fn set_affinity(tid: u32, cpus: &[usize]) -> io::Result<()> {
    let tid = libc::pid_t::try_from(tid).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        if cpu >= size_of::<libc::cpu_set_t>() * 8 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: `cpu` is within the set, as just checked.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: the kernel reads `set`, whose size is given, and nothing else.
    match unsafe { libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How often the calling thread lost its CPU so far, by its own will or not.
pub fn context_switches() -> u64 {
    // SAFETY: an all-zero rusage is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a live rusage that the kernel fills.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    // It cannot fail with these arguments; zeroes would only mean that no disturbance is seen.
    usage.ru_nvcsw.unsigned_abs() + usage.ru_nivcsw.unsigned_abs()
}

/// CPU time that the calling thread has used so far.
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live timespec that the kernel fills. It cannot fail with this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Throws every cache line of `bytes` out of all caches of the machine.
#[cfg(target_arch = "x86_64")]
pub fn flush(bytes: &[u8]) {
    use std::arch::x86_64::{_mm_clflush, _mm_mfence};
    for line in bytes.chunks(64) {
        // SAFETY: the address lies in a live slice; flushing changes no content. Every x86-64 CPU has CLFLUSH.
        unsafe { _mm_clflush(line.as_ptr()) };
    }
    // SAFETY: a fence touches no memory. Every x86-64 CPU has MFENCE.
    unsafe { _mm_mfence() };
}

/// 0 until a request to end arrives, then the number of the signal.
static END_SIGNAL: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_end_signal(signal: libc::c_int) {
    // Only an atomic store and a raw system call: both are allowed in a signal handler.
    END_SIGNAL.store(signal.unsigned_abs(), Ordering::Release);
    futex_wake(&END_SIGNAL, i32::MAX);
}

/// From now on the first Ctrl-C or SIGTERM is a request to end early; a second one ends the process at once.
///
/// # Errors
/// When the kernel refuses the handler.
pub fn catch_end_signals() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: an all-zero sigaction is a valid value (empty mask, no flags, default action).
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_end_signal as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
        // SAFETY: `action` is fully initialised and its handler is async-signal-safe; no old action is asked for.
        if unsafe { libc::sigaction(signal, &action, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// True once the user asked to end early.
pub fn end_requested() -> bool {
    END_SIGNAL.load(Ordering::Acquire) != 0
}

/// Sleeps for `time`, or until the user asks to end early.
pub fn sleep_unless_ended(time: Duration) {
    futex_wait(&END_SIGNAL, 0, Some(time));
}
