// SPDX-License-Identifier: GPL-2.0-only
//! Shall the daemon attach again? A CPU that comes or goes ends the scheduler with the kernel's request to read the
//! machine anew; a machine whose CPUs never rest must not keep us at it for ever.

use std::time::Duration;

/// Restarts in a row before giving up.
pub const MAX_IN_A_ROW: u32 = 10;

/// An attachment that held for longer than this was a good one: counting begins anew.
const GOOD_AFTER: Duration = Duration::from_secs(1);

/// What to do after an attachment has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read the machine and attach again.
    Again,
    /// It is over.
    Over,
    /// It would go on for ever.
    GiveUp,
}

/// Counts restarts.
#[derive(Debug, Default)]
pub struct Restarts {
    in_a_row: u32,
}

impl Restarts {
    /// Decides. `wanted`: the kernel asked for a restart; `lived`: how long it was attached; `told_to_stop`: somebody
    /// wants the daemon to end.
    pub fn next(&mut self, wanted: bool, lived: Duration, told_to_stop: bool) -> Next {
        if !wanted || told_to_stop {
            return Next::Over;
        }
        if lived >= GOOD_AFTER {
            self.in_a_row = 0;
        }
        self.in_a_row += 1;
        if self.in_a_row > MAX_IN_A_ROW { Next::GiveUp } else { Next::Again }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::ExitInfo;
    use hearth::doctor::Exit;

    const SOON: Duration = Duration::from_millis(30);

    /// A kernel whose hotplug sequence moves on between reading and attaching, so often.
    fn mock_kernel(changes: u32) -> (u32, Next) {
        let mut restarts = Restarts::default();
        let mut attached = 0;
        loop {
            attached += 1;
            let info = if attached <= changes {
                ExitInfo { kind: 66, code: 1 << 48 | 1 << 32, ..ExitInfo::default() }
            } else {
                ExitInfo { kind: 64, ..ExitInfo::default() }
            };
            match restarts.next(info.wants_restart(), SOON, false) {
                Next::Again => {}
                next => return (attached, next),
            }
        }
    }

    #[test]
    fn c55_a_cpu_that_came_meanwhile_means_a_second_attach() {
        assert_eq!(mock_kernel(0), (1, Next::Over));
        assert_eq!(mock_kernel(1), (2, Next::Over));
        assert_eq!(mock_kernel(10), (11, Next::Over));
    }

    #[test]
    fn c55_the_same_answer_for_ever_is_given_up() {
        assert_eq!(mock_kernel(u32::MAX), (11, Next::GiveUp));
    }

    #[test]
    fn c55_other_ends_are_not_restarted() {
        for (kind, exit) in [(64, Exit::Ok), (67, Exit::Ok), (1024, Exit::Ejected), (1026, Exit::Ejected)] {
            let info = ExitInfo { kind, ..ExitInfo::default() };
            assert_eq!(Restarts::default().next(info.wants_restart(), SOON, false), Next::Over, "{kind}");
            assert_eq!(info.exit(), exit, "{kind}");
        }
    }

    #[test]
    fn a_good_attachment_starts_the_count_anew() {
        let mut restarts = Restarts::default();
        for round in 0..5 * MAX_IN_A_ROW {
            let lived = if round % 5 == 0 { GOOD_AFTER } else { SOON };
            assert_eq!(restarts.next(true, lived, false), Next::Again);
        }
    }

    #[test]
    fn told_to_stop_comes_first() {
        assert_eq!(Restarts::default().next(true, SOON, true), Next::Over);
    }
}
