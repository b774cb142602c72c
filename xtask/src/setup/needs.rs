// SPDX-License-Identifier: GPL-2.0-only
//! What the project needs from the machine, how to see that it is there, and which Debian package brings it.

use crate::proc;
use std::path::Path;
use std::process::Command;

/// The oldest QEMU that survives a scheduler being attached twice under multi-threaded emulation; 7.2 does not.
pub const QEMU_MAJOR_MIN: u32 = 10;
/// The emulator of the lab.
pub const QEMU: &str = "qemu-system-x86_64";
/// The package of [`QEMU`].
pub const QEMU_PACKAGE: &str = "qemu-system-x86";

/// One thing that must be present.
pub struct Need {
    /// Debian's package that brings it.
    pub package: &'static str,
    test: Test,
}

enum Test {
    Program(&'static str),
    /// Any of these files: headers and libraries have no program to look for.
    File(&'static [&'static str]),
    StaticBusybox,
    LibClang,
    Qemu,
}

/// Everything, in the order in which a build and then the lab would miss it.
pub const NEEDS: &[Need] = &[
    Need { package: "gcc", test: Test::Program("cc") },
    Need { package: "make", test: Test::Program("make") },
    Need { package: "libc6-dev", test: Test::File(&["/usr/include/stdio.h"]) },
    Need { package: "pkg-config", test: Test::Program("pkg-config") },
    Need { package: "clang-19", test: Test::Program("clang-19") },
    Need { package: "libclang-19-dev", test: Test::LibClang },
    Need { package: "libelf-dev", test: Test::File(&["/usr/include/libelf.h"]) },
    Need { package: "zlib1g-dev", test: Test::File(&["/usr/include/zlib.h"]) },
    Need { package: "libzstd-dev", test: Test::File(&["/usr/include/zstd.h"]) },
    Need { package: "libseccomp-dev", test: Test::File(&["/usr/include/seccomp.h"]) },
    Need { package: "busybox-static", test: Test::StaticBusybox },
    Need { package: "util-linux", test: Test::Program("chrt") },
    Need { package: "zstd", test: Test::Program("zstd") },
    Need { package: "stress-ng", test: Test::Program("stress-ng") },
    Need { package: "rt-tests", test: Test::Program("hackbench") },
    Need { package: "valgrind", test: Test::Program("valgrind") },
    Need { package: QEMU_PACKAGE, test: Test::Qemu },
];

impl Need {
    /// Whether the machine has it.
    pub fn is_met(&self) -> bool {
        match self.test {
            Test::Program(name) => proc::which(name).is_some(),
            Test::File(files) => files.iter().any(|file| Path::new(file).exists()),
            Test::StaticBusybox => proc::which("busybox").is_some_and(|path| is_static(&path)),
            Test::LibClang => Path::new("/usr/lib/llvm-19/lib/libclang.so").exists(),
            Test::Qemu => qemu_is_recent(),
        }
    }
}

/// The needs that the machine does not meet.
pub fn missing() -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| !need.is_met()).collect()
}

/// Whether the emulator is there and recent enough.
pub fn qemu_is_recent() -> bool {
    let Some(path) = proc::which(QEMU) else { return false };
    let text = proc::stdout(Command::new(path).arg("--version")).unwrap_or_default();
    qemu_major(&text).is_some_and(|major| major >= QEMU_MAJOR_MIN)
}

fn qemu_major(version: &str) -> Option<u32> {
    let number = version.split_once("version ")?.1;
    number.split('.').next()?.parse().ok()
}

/// Whether a program runs where no library is: no dynamic loader is named in its head.
fn is_static(path: &Path) -> bool {
    // The program interpreter's path stands right behind the headers.
    let Ok(bytes) = std::fs::read(path) else { return false };
    let head = &bytes[..bytes.len().min(4096)];
    head.starts_with(b"\x7fELF") && !head.windows(b"/ld-linux".len()).any(|window| window == b"/ld-linux")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_qemu() {
        assert_eq!(
            qemu_major("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2+deb13u1~bpo12+1)"),
            Some(10)
        );
        assert_eq!(qemu_major("QEMU emulator version 7.2.17 (Debian 1:7.2+dfsg-7)"), Some(7));
        assert_eq!(qemu_major("nonsense"), None);
    }

    #[test]
    fn a_dynamic_program_and_a_script_are_not_static() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        assert!(is_static(&file("static", b"\x7fELF....plain")));
        assert!(!is_static(&file("dynamic", b"\x7fELF..../lib64/ld-linux-x86-64.so.2\0")));
        assert!(!is_static(&file("script", b"#!/bin/sh")));
    }
}
