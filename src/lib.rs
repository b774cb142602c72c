// SPDX-License-Identifier: GPL-2.0-only
//! The pure core of the Hearth scheduler.

#![forbid(unsafe_code)]

pub mod ids;
pub mod limits;
pub mod topology;
