// SPDX-License-Identifier: GPL-2.0-only
//! The kernel that the lab boots: a given file, the host's own, or one from the distribution's packages.

use crate::fail::{cannot, failed, usage};
use crate::setup::apt::{self, Apt};
use crate::setup::packages::{self, KernelPackages};
use crate::ui::Step;
use crate::{paths, proc};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The suite whose kernel is used unless another is asked for: the oldest one with sched_ext enabled.
const DEFAULT_SUITE: &str = "trixie-backports";
/// The option without which no kernel is of use here.
const SCHED_EXT: &str = "CONFIG_SCHED_CLASS_EXT=y";
/// Check sums of a cached kernel, and the fastest tool for them that every system has.
const SUMS: &str = "B2SUMS";
const SUM_TOOL: &str = "b2sum";
/// The kernel as an ELF file: an emulated guest would spend seconds on decompressing itself.
const UNPACKED: &str = "vmlinux";

/// Which kernel to boot.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct KernelArgs {
    /// Kernel image to boot (default: the host's if it has sched_ext, else one from the distribution's packages)
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// Configuration of that kernel; programs with Kconfig externs need it
    #[arg(long, value_name = "FILE", requires = "kernel")]
    pub kernel_config: Option<PathBuf>,
    /// Take the kernel from this suite of the distribution (for example trixie-backports, sid)
    #[arg(long, value_name = "SUITE", conflicts_with = "kernel")]
    pub kernel_suite: Option<String>,
    /// Take the newest kernel of this series from the packages (for example 7.2)
    #[arg(long, value_name = "SERIES", conflicts_with = "kernel")]
    pub kernel_series: Option<String>,
}

/// A kernel image and, if known, its configuration.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// A bzImage, or the ELF file inside one.
    pub image: PathBuf,
    /// The configuration it was built with.
    pub config: Option<PathBuf>,
}

impl KernelArgs {
    /// The kernel, if it is here already.
    pub fn find(&self) -> Result<Option<Kernel>> {
        if let Some(image) = &self.kernel {
            return given(image, self.kernel_config.clone()).map(Some);
        }
        if self.kernel_suite.is_none()
            && self.kernel_series.is_none()
            && let Some(kernel) = host()
        {
            return Ok(Some(kernel));
        }
        cached(&self.cache_dir()?)
    }

    /// The kernel, or an error that says how to get it.
    pub fn require(&self) -> Result<Kernel> {
        let hint = "no kernel for the lab: run `cargo xtask setup` (or give one with --kernel FILE)";
        self.find()?.ok_or_else(|| cannot(hint))
    }

    /// The kernel, downloaded if it is not here yet (or if `refresh` asks for the newest).
    pub fn obtain(&self, refresh: bool) -> Result<Kernel> {
        if !refresh && let Some(kernel) = self.find()? {
            return Ok(kernel);
        }
        download(&self.cache_dir()?, self.suite(), self.kernel_series.as_deref())
    }

    /// What would be downloaded, for a machine that cannot.
    pub fn wanted(&self) -> String {
        let series =
            self.kernel_series.as_deref().map(|series| format!(" of series {series}")).unwrap_or_default();
        format!("the newest linux-image-cloud-amd64{series} of Debian {}", self.suite())
    }

    fn suite(&self) -> &str {
        self.kernel_suite.as_deref().unwrap_or(DEFAULT_SUITE)
    }

    fn cache_dir(&self) -> Result<PathBuf> {
        let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || ".-_+".contains(c));
        let series = self.kernel_series.as_deref().unwrap_or("newest");
        if !plain(self.suite()) || !plain(series) {
            return Err(usage("--kernel-suite and --kernel-series take a plain name such as sid or 7.2"));
        }
        Ok(paths::cache()?.join("kernel").join(self.suite()).join(series))
    }
}

fn given(image: &Path, config: Option<PathBuf>) -> Result<Kernel> {
    for file in std::iter::once(image).chain(config.as_deref()) {
        if !file.is_file() {
            return Err(usage(format!("{} is not a file", file.display())));
        }
    }
    let absolute =
        |path: &Path| path.canonicalize().with_context(|| format!("cannot resolve {}", path.display()));
    let config = config.as_deref().map(absolute).transpose()?;
    Ok(Kernel { image: absolute(image)?, config })
}

/// The running kernel's image, if it is readable and has sched_ext.
fn host() -> Option<Kernel> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let config = PathBuf::from(format!("/boot/config-{}", release.trim()));
    let image = PathBuf::from(format!("/boot/vmlinuz-{}", release.trim()));
    let text = std::fs::read_to_string(&config).ok()?;
    std::fs::File::open(&image).ok()?;
    text.lines().any(|line| line == SCHED_EXT).then_some(Kernel { image, config: Some(config) })
}

/// The kernel in a cache directory; a damaged one counts as absent.
fn cached(dir: &Path) -> Result<Option<Kernel>> {
    if !dir.join(SUMS).is_file() {
        return Ok(None);
    }
    let check = Command::new(SUM_TOOL).args(["--check", "--status", SUMS]).current_dir(dir).status();
    if !check.context("cannot start b2sum")?.success() {
        eprintln!("note: the cached kernel in {} is damaged, it will be fetched again", dir.display());
        return Ok(None);
    }
    let unpacked = dir.join(UNPACKED);
    let image = if unpacked.exists() { unpacked } else { dir.join("vmlinuz") };
    Ok(Some(Kernel { image, config: Some(dir.join("config")) }))
}

/// Downloads the newest kernel through apt and puts it into the cache in one rename.
fn download(dir: &Path, suite: &str, series: Option<&str>) -> Result<Kernel> {
    if !apt::available() {
        return Err(cannot("this system has no apt to download a kernel with: give one with --kernel FILE"));
    }
    let step = Step::start(format!("looking for a kernel in {suite}"));
    let scratch = paths::scratch("kernel-")?;
    let apt = Apt::private(&scratch.path().join("apt"), suite, false)?;
    apt.update().map_err(|error| cannot(format!("cannot read the package lists of {suite}: {error:#}")))?;
    let found = packages::resolve(&apt.packages_index()?, series)
        .ok_or_else(|| failed(format!("{suite} has no such kernel package")))?;
    step.update(format!("downloading kernel {}", found.release));
    let ready = scratch.path().join("ready");
    unpack(&apt, &found, scratch.path(), &ready)?;
    drop(step);
    let parent = dir.parent().unwrap_or(dir);
    std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    if dir.exists() {
        std::fs::remove_dir_all(dir).with_context(|| format!("cannot replace {}", dir.display()))?;
    }
    std::fs::rename(&ready, dir).with_context(|| format!("cannot move the kernel to {}", dir.display()))?;
    cached(dir)?.ok_or_else(|| failed("the downloaded kernel does not verify: is the disk full?"))
}

/// Downloads and extracts the packages; leaves `vmlinuz`, `config`, `release`, [`SUMS`] and perhaps [`UNPACKED`] in `ready`.
fn unpack(apt: &Apt, found: &KernelPackages, scratch: &Path, ready: &Path) -> Result<()> {
    let (debs, tree) = (scratch.join("debs"), scratch.join("tree"));
    for dir in [&debs, &tree, &ready.to_path_buf()] {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    let names: Vec<&str> = found.names.iter().map(String::as_str).collect();
    apt.download(&names, &debs)?;
    for deb in std::fs::read_dir(&debs).context("cannot list the downloads")?.flatten() {
        proc::stdout(Command::new("dpkg-deb").arg("--extract").arg(deb.path()).arg(&tree))?;
    }
    for name in ["vmlinuz", "config"] {
        let from =
            find_file(&tree, name).ok_or_else(|| failed(format!("no {name} in {}", names.join(", "))))?;
        std::fs::copy(&from, ready.join(name)).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let config =
        std::fs::read_to_string(ready.join("config")).context("cannot read the kernel's configuration")?;
    let has = |option: &str| config.lines().any(|line| line == option);
    if !has(SCHED_EXT) {
        return Err(failed(format!("kernel {} was built without sched_ext", found.release)));
    }
    let mut files = vec!["vmlinuz", "config"];
    if has("CONFIG_PVH=y") && decompress(&ready.join("vmlinuz"), &ready.join(UNPACKED))? {
        files.push(UNPACKED);
    }
    std::fs::write(ready.join("release"), format!("{}\n", found.release))
        .context("cannot write the release")?;
    let sums = proc::stdout(Command::new(SUM_TOOL).args(files).current_dir(ready))?;
    std::fs::write(ready.join(SUMS), sums).context("cannot write the check sums")
}

/// Unpacks the ELF file in a bzImage; false where it is packed in a way that the tools here do not know.
fn decompress(image: &Path, elf: &Path) -> Result<bool> {
    let bytes = std::fs::read(image).with_context(|| format!("cannot read {}", image.display()))?;
    let Some(packed) = payload(&bytes).filter(|packed| packed.starts_with(ZSTD_MAGIC)) else {
        return Ok(false);
    };
    let source = elf.with_extension("zst");
    std::fs::write(&source, packed).with_context(|| format!("cannot write {}", source.display()))?;
    let output = Command::new("zstd").args(["-dqf", "-o"]).args([elf, &source]).output();
    std::fs::remove_file(&source).with_context(|| format!("cannot remove {}", source.display()))?;
    if output.is_ok_and(|output| output.status.success()) {
        return Ok(true);
    }
    let _ = std::fs::remove_file(elf);
    Ok(false)
}

const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The compressed kernel in a bzImage, by the fields of the x86 boot protocol (`setup_sects`, `payload_offset`,
/// `payload_length`, all in the kernel's Documentation/arch/x86/boot.rst).
fn payload(image: &[u8]) -> Option<&[u8]> {
    const SECTOR: usize = 512;
    // The build appends the unpacked size, which is no part of the compressed stream.
    const SIZE_BYTES: usize = 4;
    let word = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let setup = (usize::from(*image.get(0x1f1)?) + 1) * SECTOR;
    let start = setup.checked_add(word(0x248)?)?;
    let end = start.checked_add(word(0x24c)?)?.checked_sub(SIZE_BYTES)?;
    image.get(start..end)
}

/// The first file called `name` or `name-…` under `dir`.
fn find_file(dir: &Path, name: &str) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    let fits = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        path.is_file() && (file == name || file.strip_prefix(name).is_some_and(|rest| rest.starts_with('-')))
    };
    let here = entries.iter().find(|path| fits(path)).cloned();
    here.or_else(|| {
        entries.iter().filter(|path| path.is_dir() && !path.is_symlink()).find_map(|sub| find_file(sub, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_cache_counts_as_absent() {
        let dir = tempfile::tempdir().unwrap();
        assert!(cached(dir.path()).unwrap().is_none());
        std::fs::write(dir.path().join("vmlinuz"), "kernel").unwrap();
        let sums = proc::stdout(Command::new(SUM_TOOL).arg("vmlinuz").current_dir(dir.path())).unwrap();
        std::fs::write(dir.path().join(SUMS), sums).unwrap();
        assert!(cached(dir.path()).unwrap().is_some());
        std::fs::write(dir.path().join("vmlinuz"), "kern").unwrap();
        assert!(cached(dir.path()).unwrap().is_none());
    }

    #[test]
    fn files_are_found_by_name_or_with_a_release() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("boot/configure")).unwrap();
        std::fs::write(dir.path().join("boot/config-7.3"), "").unwrap();
        std::fs::write(dir.path().join("boot/vmlinuzx"), "").unwrap();
        assert!(find_file(dir.path(), "config").unwrap().ends_with("boot/config-7.3"));
        assert_eq!(find_file(dir.path(), "vmlinuz"), None);
    }

    #[test]
    fn the_payload_is_found_by_the_boot_protocol() {
        let mut image = vec![0; 2 * 512 + 16];
        assert_eq!(payload(&image), None);
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x1f1] = 1;
        image[0x248] = 2;
        image[0x24c] = 8;
        image[1026..1034].copy_from_slice(b"datasize");
        assert_eq!(payload(&image), Some(&b"data"[..]));
        image[0x24c] = 255;
        assert_eq!(payload(&image), None);
        assert_eq!(payload(&[]), None);
    }

    #[test]
    fn names_cannot_leave_the_cache() {
        let args = KernelArgs { kernel_suite: Some("../../etc".to_string()), ..KernelArgs::default() };
        assert!(args.find().is_err());
    }
}
