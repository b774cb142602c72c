// SPDX-License-Identifier: GPL-2.0-only
//! The monitor against daemons that are absent, die, are of another version, or are none (case C61).

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

struct Watching {
    child: Child,
    out: BufReader<ChildStdout>,
}

fn watch(socket: &Path, more: &[&str]) -> Watching {
    let mut child = Command::new(env!("CARGO_BIN_EXE_scx_hearth"))
        .args(["--monitor", "1", "--socket"])
        .arg(socket)
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    Watching { child, out }
}

impl Watching {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().into()
    }

    /// Ends it as Ctrl-C does; its exit code and what it said.
    fn interrupt(mut self) -> (Option<i32>, String) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

fn socket() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stats.sock");
    (dir, path)
}

fn accept(listener: &UnixListener) -> UnixStream {
    listener.accept().unwrap().0
}

fn report(second: u64, forwarded: &str) -> String {
    format!(
        "{{\"at_ns\":{},\"policy\":\"fifo\",\"cpus\":4,\"forwarded\":{forwarded}}}\n",
        second * 1_000_000_000
    )
}

#[test]
fn c61_before_the_daemon_and_after_its_death() {
    let (_dir, path) = socket();
    let mut watching = watch(&path, &[]);
    std::thread::sleep(Duration::from_millis(300));

    let listener = UnixListener::bind(&path).unwrap();
    let mut daemon = accept(&listener);
    daemon.write_all(report(1, "100").as_bytes()).unwrap();
    let first = watching.line();
    assert!(
        first.starts_with("policy fifo, kernel -, 4 CPUs; so far: forwarded 100, committed -"),
        "{first}"
    );
    std::thread::sleep(Duration::from_millis(600));
    daemon.write_all(report(2, "350").as_bytes()).unwrap();
    let second = watching.line();
    assert!(second.starts_with("forwarded   250/s  committed       -"), "{second}");

    // Killed; the next one counts from 0.
    drop(daemon);
    let mut daemon = accept(&listener);
    daemon.write_all(report(9, "18446744073709551615").as_bytes()).unwrap();
    assert!(watching.line().contains("forwarded 18.4E"));
    let (code, said) = watching.interrupt();
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(
        lines[0].starts_with("no Hearth is running") && lines[1].starts_with("the daemon has ended"),
        "{said}"
    );
}

#[test]
fn c61_nonsense_is_not_shown_and_tried_again() {
    let (_dir, path) = socket();
    let listener = UnixListener::bind(&path).unwrap();
    let mut watching = watch(&path, &[]);
    for nonsense in
        [&b"\xff\xfe\n"[..], b"[1, 2]\n", b"{\"forwarded\": nan}\n", b"HTTP/1.1 400 Bad Request\r\n"]
    {
        accept(&listener).write_all(nonsense).unwrap();
    }
    accept(&listener).write_all(b"{\"forwarded\": null, \"unknown\": {\"a\": []}}\n").unwrap();
    let line = watching.line();
    assert!(line.starts_with("policy -, kernel -, - CPUs; so far: forwarded -"), "{line}");
    let (code, said) = watching.interrupt();
    assert_eq!(code, Some(0));
    assert_eq!(said.matches("no Hearth; trying again").count(), 4, "{said}");
}

#[test]
fn json_lines_are_passed_on() {
    let (_dir, path) = socket();
    let listener = UnixListener::bind(&path).unwrap();
    let mut watching = watch(&path, &["--json"]);
    accept(&listener).write_all(report(1, "100").as_bytes()).unwrap();
    let value: serde_json::Value = serde_json::from_str(&watching.line()).unwrap();
    assert_eq!(value["forwarded"], 100);
    assert_eq!(watching.interrupt().0, Some(0));
}

#[test]
fn a_reader_that_goes_away_ends_it() {
    let (_dir, path) = socket();
    let listener = UnixListener::bind(&path).unwrap();
    let Watching { mut child, out } = watch(&path, &["--json"]);
    let mut daemon = accept(&listener);
    drop(out);
    daemon.write_all(report(1, "1").as_bytes()).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while child.try_wait().unwrap().is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(child.try_wait().unwrap().and_then(|status| status.code()), Some(0));
}

#[test]
fn c61_a_socket_of_another_user() {
    let (dir, path) = socket();
    let _listener = UnixListener::bind(&path).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(dir.path(), private).unwrap();
    // As root, become somebody else; as anybody else there is no socket of another user to try.
    let daemon = env!("CARGO_BIN_EXE_scx_hearth");
    let command = ["--reuid=65534", "--regid=65534", "--clear-groups", daemon, "--monitor", "1", "--socket"];
    let Ok(output) = Command::new("setpriv").args(command).arg(&path).output() else {
        return eprintln!("setpriv is not there: not tested");
    };
    let said = String::from_utf8(output.stderr).unwrap();
    if said.starts_with("setpriv:") {
        return eprintln!("not tested: {said}");
    }
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("run the monitor as root"), "{said}");
}
