// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the shim with clang and generates its skeleton and the wire-format bindings.
//!
//! Whatever is missing ends the build with one line that names it. (The libraries that are built before this script
//! need the same tools and say it their own way; `cargo xtask` looks for all of them first.)

use std::env;
use std::panic;
use std::process::{Command, ExitCode};

/// Newest first. Below 18 clang lacks the BPF instruction set that the headers ask for.
const CLANGS: [&str; 6] = ["clang-22", "clang-21", "clang-20", "clang-19", "clang-18", "clang"];

fn main() -> ExitCode {
    // The whole directory: the shim's parts are included by its one source file.
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-env-changed=BPF_CLANG");
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("cargo::error={what}");
            eprintln!("error: {what}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let (clang, version) = find_clang()?;
    // SAFETY: a build script has one thread until it starts others, and this one has not.
    unsafe { env::set_var("BPF_CLANG", &clang) };
    let profile = env::var("PROFILE").unwrap_or_default();
    let target = env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=HEARTH_BUILD={profile}, {target}, shim by clang {version}");

    // bindgen panics when it finds no libclang.
    let built = panic::catch_unwind(|| {
        scx_cargo::BpfBuilder::new()?
            .enable_intf("src/bpf/shim.h", "bpf_intf.rs")
            .enable_skel("src/bpf/shim.bpf.c", "bpf")
            .build()
    });
    match built {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) => {
            // The compiler's own words, with its lines as they are.
            eprintln!("{e:#}");
            Err(format!("the BPF shim cannot be built with {clang} {version}: {e}"))
        }
        Err(_) => {
            Err("the bindings need libclang of the same version as clang (Debian: libclang-19-dev) and \
                       libelf (libelf-dev): run `cargo xtask setup`"
                .into())
        }
    }
}

/// The compiler that the environment names, else the newest that is there, and its version.
fn find_clang() -> Result<(String, String), String> {
    if let Ok(name) = env::var("BPF_CLANG") {
        return version(&name).map(|version| (name.clone(), version)).ok_or_else(|| {
            format!("BPF_CLANG names {name:?}, which is no clang that runs here: run `cargo xtask setup`")
        });
    }
    CLANGS
        .into_iter()
        .find_map(|name| Some((name.to_string(), version(name)?)))
        .ok_or_else(|| "clang (18 or newer) is not in PATH: run `cargo xtask setup`".into())
}

fn version(clang: &str) -> Option<String> {
    let output =
        Command::new(clang).arg("--version").output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, rest) = text.split_once("clang version ")?;
    Some(rest.split_whitespace().next()?.to_string())
}
