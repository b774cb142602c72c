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
