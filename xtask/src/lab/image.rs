// SPDX-License-Identifier: GPL-2.0-only
//! The guest's file system: an initramfs with a static busybox, the programs of a scenario and the libraries they load.

use super::scenario::{LIBRARY, Scenario};
use crate::fail::cannot;
use crate::kernel::Kernel;
use crate::{paths, proc};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The script that the guest's kernel starts, in the directory of scenarios.
pub const INIT: &str = "init.sh";
/// Programs that scenarios may use without naming them.
const ALWAYS: &[&str] = &["chrt", "date"];

/// Entries of the archive by path without leading slash: sorted, so the same input gives the same image.
#[derive(Default)]
pub struct Image {
    entries: BTreeMap<String, Entry>,
}

enum Entry {
    Dir,
    Link(String),
    File { mode: u32, bytes: Vec<u8> },
}

impl Image {
    /// The parts that all scenarios share: busybox, the init script, the library, the kernel's configuration.
    pub fn base(kernel: &Kernel) -> Result<Self> {
        let mut image = Self::default();
        for dir in ["proc", "sys", "dev", "tmp", "run", "root", "var/tmp", "etc", "usr/bin", "lab"] {
            image.add_dir(dir);
        }
        let busybox = proc::which("busybox").ok_or_else(|| cannot("no busybox: run `cargo xtask setup`"))?;
        image.add_file("bin/busybox", 0o755, read(&busybox)?);
        for applet in proc::stdout(Command::new(&busybox).arg("--list"))?.split_whitespace() {
            if applet != "busybox" {
                image.entries.insert(format!("bin/{applet}"), Entry::Link("busybox".to_string()));
            }
        }
        image.add_file(
            "etc/passwd",
            0o644,
            b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n".to_vec(),
        );
        image.add_file("etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n".to_vec());
        image.add_file("etc/hosts", 0o644, b"127.0.0.1 localhost\n".to_vec());
        for (script, target) in [(INIT, "init"), (LIBRARY, "lab/lib.sh")] {
            image.add_file(target, 0o755, read(&paths::scenarios().join(script))?);
        }
        if let Some(config) = &kernel.config {
            image.add_file("boot/config", 0o644, read(config)?);
        }
        for name in ALWAYS {
            let path =
                proc::which(name).ok_or_else(|| cannot(format!("no {name}: run `cargo xtask setup`")))?;
            image.add_program(&path)?;
        }
        Ok(image)
    }

    /// Adds a program to `/usr/bin`, without debug information, and the libraries that it loads.
    pub fn add_program(&mut self, program: &Path) -> Result<()> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.add_file(&format!("usr/bin/{name}"), 0o755, stripped(program)?);
        for library in libraries(program)? {
            let target = library.to_string_lossy().trim_start_matches('/').to_string();
            if !self.entries.contains_key(&target) {
                self.add_file(&target, 0o755, read(&library)?);
            }
        }
        Ok(())
    }

    /// Adds the script of a scenario and the variables that it finds set.
    pub fn add_scenario(&mut self, scenario: &Scenario, variables: &[(String, String)]) {
        let line =
            |(name, value): &(String, String)| format!("export {name}='{}'\n", value.replace('\'', r"'\''"));
        let text: String = variables.iter().map(line).collect();
        self.add_file("lab/env", 0o644, text.into_bytes());
        self.add_file("lab/scenario.sh", 0o755, scenario.script.clone().into_bytes());
    }

    fn add_dir(&mut self, path: &str) {
        let mut so_far = String::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            so_far.push_str(part);
            self.entries.entry(so_far.clone()).or_insert(Entry::Dir);
            so_far.push('/');
        }
    }

    fn add_file(&mut self, path: &str, mode: u32, bytes: Vec<u8>) {
        if let Some((dir, _)) = path.rsplit_once('/') {
            self.add_dir(dir);
        }
        self.entries.insert(path.to_string(), Entry::File { mode, bytes });
    }

    /// Writes the archive. It is not compressed: an emulated guest unpacks it faster this way.
    pub fn write(&self, path: &Path) -> Result<()> {
        let file =
            std::fs::File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        self.pack(std::io::BufWriter::new(file)).with_context(|| format!("cannot write {}", path.display()))
    }

    fn pack<W: std::io::Write>(&self, mut out: W) -> std::io::Result<()> {
        // Sorted paths put every directory before what is in it.
        for (number, (path, entry)) in (1u32..).zip(&self.entries) {
            let (mode, links, bytes): (u32, u32, &[u8]) = match entry {
                Entry::Dir => (0o040755, 2, &[]),
                Entry::Link(target) => (0o120777, 1, target.as_bytes()),
                Entry::File { mode, bytes } => (0o100000 | mode, 1, bytes),
            };
            let head = cpio::newc::Builder::new(path).ino(number).mode(mode).nlink(links);
            let size = u32::try_from(bytes.len())
                .map_err(|_| std::io::Error::other(format!("{path} is too large")))?;
            let mut writer = head.write(out, size);
            std::io::Write::write_all(&mut writer, bytes)?;
            out = writer.finish()?;
        }
        cpio::newc::trailer(out)?.flush()
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The program without debug information, or as it is where `strip` cannot help (a script, say).
fn stripped(program: &Path) -> Result<Vec<u8>> {
    let scratch = paths::scratch("strip-")?;
    let copy = scratch.path().join("program");
    let output = Command::new("strip").arg("-o").arg(&copy).arg(program).output();
    let worked = output.is_ok_and(|output| output.status.success());
    read(if worked { &copy } else { program })
}

/// The shared libraries that a program loads, and its loader; none for a static program or a script.
fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("cannot start ldd")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(lost) = text.lines().find(|line| line.contains("not found")) {
        return Err(cannot(format!("{} lacks a library: {}", program.display(), lost.trim())));
    }
    Ok(parse_ldd(&text))
}

fn parse_ldd(text: &str) -> BTreeSet<PathBuf> {
    // `name => /path (0x…)` and `/path/of/loader (0x…)`; the virtual library has no path.
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    text.lines().filter(|line| line.contains("(0x")).filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_output() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let found: Vec<_> = parse_ldd(text).into_iter().collect();
        let paths = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(found, paths);
        assert!(parse_ldd("\tnot a dynamic executable\n").is_empty());
    }

    #[test]
    fn archive_holds_directories_before_files() {
        let mut image = Image::default();
        image.add_file("usr/bin/x", 0o755, b"hello".to_vec());
        image.entries.insert("bin".to_string(), Entry::Link("usr/bin".to_string()));
        let mut bytes = Vec::new();
        image.pack(&mut bytes).unwrap();
        let mut names = Vec::new();
        let mut rest = &bytes[..];
        loop {
            let reader = cpio::newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            names.push((reader.entry().name().to_string(), reader.entry().mode()));
            rest = reader.finish().unwrap();
        }
        let expected = [("bin", 0o120777), ("usr", 0o040755), ("usr/bin", 0o040755), ("usr/bin/x", 0o100755)];
        assert_eq!(names, expected.map(|(name, mode)| (name.to_string(), mode)));
    }

    #[test]
    fn variables_are_quoted() {
        let mut image = Image::default();
        let scenario = Scenario::parse("x", "true\n").unwrap();
        image.add_scenario(&scenario, &[("A".to_string(), "it's $HOME".to_string())]);
        let Some(Entry::File { bytes, .. }) = image.entries.get("lab/env") else { panic!("no lab/env") };
        assert_eq!(bytes, b"export A='it'\\''s $HOME'\n");
    }
}
