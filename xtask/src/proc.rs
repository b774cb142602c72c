// SPDX-License-Identifier: GPL-2.0-only
//! Child processes: found, run with captured output, and ended when the user interrupts.

use crate::fail::failed;
use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// How often a waiting loop looks at its child and at the interrupt flag.
pub const POLL: Duration = Duration::from_millis(20);

/// Time between the request to end and the end by force: a daemon that is attached detaches meanwhile.
const GRACE: Duration = Duration::from_secs(3);

/// A command whose output is captured and that wrote nothing for this long hangs: the longest silence of a good run, a
/// crate that compiles or a test that runs, is a fifth of it on two cores.
const SILENCE: Duration = Duration::from_mins(10);

/// From here on Ctrl-C, SIGTERM and SIGHUP only set a flag: whoever waits for a child ends it and unwinds, so that
/// temporary files are removed.
pub fn catch_interrupts() -> Result<()> {
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed))
        .context("cannot install the Ctrl-C handler")
}

/// Whether the user asked to stop.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// A child and its own children: all are ended when the value is dropped before the child ended.
pub struct Guard(Child);

impl Guard {
    /// Starts the command; the error names the program.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        Ok(Self(command.process_group(0).spawn().with_context(|| format!("cannot start {name}"))?))
    }

    /// The exit status, once there is one.
    pub fn poll(&mut self) -> Result<Option<ExitStatus>> {
        self.0.try_wait().context("cannot wait for a child process")
    }

    /// Waits until the child ends or the user interrupts.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.wait_while(|| Ok(()))
    }

    /// Waits as long as the check has nothing against it.
    fn wait_while(&mut self, mut check: impl FnMut() -> Result<()>) -> Result<ExitStatus> {
        loop {
            check()?;
            let status = self.poll()?;
            if let Some(status) = status.filter(ExitStatus::success) {
                return Ok(status);
            }
            // The signal that ends us may end the child first: a moment decides whose end this is.
            std::thread::sleep(POLL);
            if interrupted() {
                return Err(failed("interrupted"));
            }
            if let Some(status) = status {
                return Ok(status);
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let group = Pid::from_raw(self.0.id().cast_signed());
            let _ = killpg(group, Signal::SIGTERM);
            let start = Instant::now();
            // The child that has ended must be waited for, or the group never is empty.
            while (matches!(self.0.try_wait(), Ok(None)) || killpg(group, None).is_ok())
                && start.elapsed() < GRACE
            {
                std::thread::sleep(POLL);
            }
            let _ = killpg(group, Signal::SIGKILL);
            let _ = self.0.wait();
        }
    }
}

/// What a finished command left behind.
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output and standard error, interleaved as they were written.
    pub text: String,
}

impl Output {
    /// The last `count` lines.
    pub fn tail(&self, count: usize) -> String {
        tail(&self.text, count)
    }

    /// The part of cargo's output that says why it failed: not what compiled, nor the tests that passed.
    pub fn why(&self) -> String {
        let noise = |line: &&str| {
            let line = line.trim();
            let progress = ["Compiling ", "Running ", "Downloading ", "Downloaded ", "Updating "];
            line.is_empty() || line.ends_with("... ok") || progress.iter().any(|word| line.starts_with(word))
        };
        let lines: Vec<&str> = self.text.lines().filter(|line| !noise(line)).collect();
        tail(&lines.join("\n"), WHY_LINES)
    }
}

/// Lines of a failed command's output that are shown.
const WHY_LINES: usize = 60;

/// The last `count` lines of a text.
pub fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Runs a command to its end with both outputs captured together. One that falls silent for [`SILENCE`] is ended; the
/// error has its last lines.
pub fn capture(command: &mut Command) -> Result<Output> {
    capture_unless_silent(command, SILENCE)
}

fn capture_unless_silent(command: &mut Command, limit: Duration) -> Result<Output> {
    // A file rather than pipes: one stream in the written order, and nothing to drain while waiting.
    let log = tempfile::tempfile().context("cannot create a temporary file")?;
    let clone = |log: &File| log.try_clone().context("cannot share a temporary file");
    command.stdin(Stdio::null()).stdout(clone(&log)?).stderr(clone(&log)?);
    let (mut seen, mut since) = (0, Instant::now());
    let status = Guard::spawn(command)?.wait_while(|| {
        let len = log.metadata().context("cannot look at a child's output")?.len();
        if len != seen {
            (seen, since) = (len, Instant::now());
        } else if since.elapsed() > limit {
            let last = tail(&text_of(&log)?, WHY_LINES);
            let name = command.get_program().to_string_lossy().into_owned();
            return Err(failed(format!(
                "{name} wrote nothing for {limit:?}: it hangs. Its last lines:\n{last}"
            )));
        }
        Ok(())
    })?;
    Ok(Output { status, text: text_of(&log)? })
}

/// All that was written to a log.
fn text_of(mut log: &File) -> Result<String> {
    let mut bytes = Vec::new();
    // The offset is the child's as well, which appends: it stands at the end again after the reading.
    log.seek(SeekFrom::Start(0))
        .and_then(|_| log.read_to_end(&mut bytes))
        .context("cannot read a child's output")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Standard output of a command that must succeed; standard error is shown only in the error.
pub fn stdout(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {name}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(format!(
        "{name} failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

/// The path of a program: looked up in `PATH`, then in the system directories that a user's `PATH` often lacks.
pub fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let candidates = std::env::split_paths(&path).chain(system).map(|dir| dir.join(name));
    candidates.into_iter().find(|path| is_executable(path))
}

/// Whether the path is a file that may be executed.
pub fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Whether this process runs with effective user id 0.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    Path::new("/proc/self").metadata().is_ok_and(|meta| meta.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_keeps_order_and_status() {
        let output = capture(Command::new("sh").args(["-c", "echo a; echo b >&2; echo c; exit 7"])).unwrap();
        assert_eq!((output.text.as_str(), output.status.code()), ("a\nb\nc\n", Some(7)));
        assert_eq!(output.tail(2), "b\nc");
    }

    #[test]
    fn why_leaves_progress_out() {
        let text =
            "echo '   Compiling x'; echo 'test a ... ok'; echo; echo 'test b ... FAILED'; echo why; exit 1";
        let output = capture(Command::new("sh").args(["-c", text])).unwrap();
        assert_eq!(output.why(), "test b ... FAILED\nwhy");
    }

    #[test]
    fn a_silent_command_is_ended_with_all_that_it_started() {
        let pid = tempfile::NamedTempFile::new().unwrap();
        let script = format!("echo last words; sleep 600 & echo $! > {}; wait", pid.path().display());
        let limit = Duration::from_millis(300);
        let error = capture_unless_silent(Command::new("sh").args(["-c", &script]), limit).err().unwrap();
        assert!(
            error.to_string().contains("sh wrote nothing") && error.to_string().ends_with("last words"),
            "{error}"
        );
        let pid = std::fs::read_to_string(pid.path()).unwrap();
        let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
    }

    #[test]
    fn a_failing_command_is_named() {
        let error = stdout(Command::new("sh").args(["-c", "echo why >&2; exit 1"])).unwrap_err().to_string();
        assert!(error.contains("sh failed") && error.contains("why"), "{error}");
        assert!(which("no-such-program-anywhere").is_none());
    }

    #[test]
    fn a_dropped_guard_ends_its_child() {
        let guard = Guard::spawn(Command::new("sleep").arg("600")).unwrap();
        let pid = guard.0.id();
        drop(guard);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
