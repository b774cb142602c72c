// SPDX-License-Identifier: GPL-2.0-only
//! A simulated machine and kernel that drive the same [`crate::dispatcher::Dispatcher`] as the daemon does,
//! deterministically: same scenario, policy and seed, same bytes.

pub mod result;
pub mod scenario;
