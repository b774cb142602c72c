// SPDX-License-Identifier: GPL-2.0-only
//! What an error of loading or attaching really means.
//!
//! The kernel answers with a bare number that misleads: EBUSY without any other scheduler, EOPNOTSUPP on a kernel
//! that shows sched_ext files. What the number means depends on the state and on the kind of kernel.

use super::kernel::is_realtime;
use super::{Exit, ExtState};
use std::fmt;

/// An error explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The exit code of a program that ends with this error.
    pub exit: Exit,
    /// What happened, in one line.
    pub what: String,
    /// What to do.
    pub mend: String,
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.mend)
    }
}

const EPERM: i32 = 1;
const E2BIG: i32 = 7;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// Translates the error number (either sign) of a failed load or attach. `state` is what the kernel says about
/// sched_ext right after the failure, `version` is the kernel's version string (`uname -v`).
#[must_use]
pub fn explain_load_error(errno: i32, state: &ExtState, version: &str) -> Hint {
    let errno = errno.saturating_abs();
    match (errno, state) {
        (EPERM, _) => hint(
            Exit::Unsupported,
            "the kernel does not permit this process to load a scheduler",
            "run it as root outside of any container; `hearth doctor` lists what is missing",
        ),
        (_, ExtState::Absent) => hint(
            Exit::Unsupported,
            format!("this kernel was built without sched_ext (error {errno})"),
            "boot a kernel with CONFIG_SCHED_CLASS_EXT, or use `cargo xtask lab`",
        ),
        (EBUSY, ExtState::Enabled(name)) => hint(
            Exit::Busy,
            format!("another scheduler, {name}, is attached"),
            "end it first; it was not touched",
        ),
        (EOPNOTSUPP, _) if is_realtime(version) => hint(
            Exit::Unsupported,
            "this realtime kernel (PREEMPT_RT) shows sched_ext but takes no scheduler",
            "boot a kernel without PREEMPT_RT",
        ),
        (EBUSY, ExtState::Disabled) => hint(
            Exit::Unsupported,
            "the kernel is busy, and not with another scheduler: a function cannot be hooked",
            "boot a kernel with CONFIG_FUNCTION_TRACER and CONFIG_DYNAMIC_FTRACE; without them a hook fails this way",
        ),
        (EOPNOTSUPP, _) => hint(
            Exit::Unsupported,
            "the kernel has sched_ext but not an operation that Hearth uses",
            "check that net.core.bpf_jit_enable is 1, and use a newer kernel; `hearth doctor` compares",
        ),
        (EINVAL, _) => hint(
            Exit::Unsupported,
            "the kernel found the program invalid: a function, a type or its own configuration is not as expected",
            "`hearth doctor` compares the kernel's type information; the log above names the place",
        ),
        (E2BIG, _) => hint(
            Exit::Unsupported,
            "the program is too large or too complex for this kernel's verifier",
            "use a newer kernel, and report this one's version with the log above",
        ),
        (ENOMEM, _) => hint(
            Exit::Unsupported,
            "the kernel has not enough memory for the tables",
            "free memory, or raise the memory limit of this control group",
        ),
        (EACCES, _) => hint(
            Exit::Unsupported,
            "the kernel's verifier refused the program",
            "report this kernel's version with the log above",
        ),
        _ => hint(
            Exit::Failed,
            format!("loading failed: {}", std::io::Error::from_raw_os_error(errno)),
            "`hearth doctor` shows what this kernel offers",
        ),
    }
}

fn hint(exit: Exit, what: impl Into<String>, mend: &str) -> Hint {
    Hint { exit, what: what.into(), mend: mend.into() }
}
