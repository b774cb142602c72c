// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the shim with clang and generates its skeleton and the wire-format bindings.

fn main() -> anyhow::Result<()> {
    println!("cargo:rerun-if-changed=src/bpf");
    scx_cargo::BpfBuilder::new()
        .map_err(|e| {
            anyhow::anyhow!("cannot build the BPF shim: {e:#}. Needs clang >= 17 and libelf: run `cargo xtask setup`")
        })?
        .enable_intf("src/bpf/shim.h", "bpf_intf.rs")
        .enable_skel("src/bpf/shim.bpf.c", "bpf")
        .build()
}
