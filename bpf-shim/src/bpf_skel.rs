// SPDX-License-Identifier: GPL-2.0-only
//! The generated skeleton of the shim.
#![allow(missing_docs, clippy::all, clippy::pedantic, clippy::restriction)]
include!(concat!(env!("OUT_DIR"), "/bpf_skel.rs"));
