// SPDX-License-Identifier: GPL-2.0-only
//! Statistics for whoever asks: a Unix stream socket that sends each client one line of JSON a second.
//!
//! Nothing a client does can hold up the daemon: writes do not block, and a client that does not keep up is dropped.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use tracing::debug;

/// Clients at a time; more are turned away.
const MAX_CLIENTS: usize = 16;

/// The socket and who listens.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    clients: Vec<UnixStream>,
}

impl Server {
    /// Makes the socket, for root only. A socket that a dead process left is replaced; one that answers is somebody's.
    pub fn new(path: &Path) -> io::Result<Self> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let listener = match UnixListener::bind(path) {
            Err(e) if e.kind() == ErrorKind::AddrInUse => {
                if !is_stale(path) {
                    return Err(e);
                }
                fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            result => result?,
        };
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path: path.to_path_buf(), clients: Vec::with_capacity(MAX_CLIENTS) })
    }

    /// Lets in who waits; whether anybody listens now.
    pub fn accept(&mut self) -> bool {
        // Each round takes one from the queue, and the queue is bounded by the kernel.
        while let Ok((client, _)) = self.listener.accept() {
            if self.clients.len() < MAX_CLIENTS && client.set_nonblocking(true).is_ok() {
                self.clients.push(client);
            } else {
                debug!("turned a statistics client away: {MAX_CLIENTS} are served already");
            }
        }
        !self.clients.is_empty()
    }

    /// Sends a line to all, and drops those that do not take all of it at once.
    pub fn send(&mut self, line: &str) {
        let mut bytes = Vec::with_capacity(line.len() + 1);
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
        self.clients.retain_mut(|client| client.write(&bytes).is_ok_and(|written| written == bytes.len()));
    }
}

/// A socket at which nobody listens. (A plain file refuses connections as well, and is not ours to remove.)
fn is_stale(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_file(&self.path) {
            debug!("cannot remove {}: {e}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    fn temporary() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/stats.sock");
        (dir, path)
    }

    #[test]
    fn each_client_gets_each_line() {
        let (_dir, path) = temporary();
        let mut server = Server::new(&path).unwrap();
        assert!(!server.accept());
        let clients: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
        assert!(server.accept());
        server.send("{\"a\":1}");
        server.send("{\"a\":2}");
        for client in clients {
            let lines: Vec<_> = BufReader::new(client).lines().take(2).map(Result::unwrap).collect();
            assert_eq!(lines, ["{\"a\":1}", "{\"a\":2}"]);
        }
    }

    #[test]
    fn c19_a_client_that_does_not_read_is_dropped_and_never_waited_for() {
        let (_dir, path) = temporary();
        let mut server = Server::new(&path).unwrap();
        let stopped = UnixStream::connect(&path).unwrap();
        assert!(server.accept());
        let line = "x".repeat(4000);
        let mut sent = 0;
        while server.accept() {
            server.send(&line);
            sent += 1;
            assert!(sent < 10_000, "it is never dropped");
        }
        drop(stopped);
    }

    #[test]
    fn clients_that_leave_and_clients_too_many() {
        let (_dir, path) = temporary();
        let mut server = Server::new(&path).unwrap();
        let clients: Vec<_> = (0..MAX_CLIENTS + 3).map(|_| UnixStream::connect(&path).unwrap()).collect();
        server.accept();
        assert_eq!(server.clients.len(), MAX_CLIENTS);
        drop(clients);
        server.send("{}");
        assert!(!server.accept());
    }

    #[test]
    fn c57_a_stale_socket_is_replaced_and_a_live_one_is_respected() {
        let (_dir, path) = temporary();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Closed without removal: what a killed process leaves.
        drop(UnixListener::bind(&path).unwrap());
        let first = Server::new(&path).unwrap();
        assert_eq!(Server::new(&path).err().unwrap().kind(), ErrorKind::AddrInUse);
        assert!(UnixStream::connect(&path).is_ok(), "the first survives the second");
        drop(first);
        assert!(!path.exists());
        fs::write(&path, "a file of somebody").unwrap();
        assert!(Server::new(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a file of somebody");
    }

    #[test]
    fn only_the_owner_may_connect() {
        let (_dir, path) = temporary();
        let _server = Server::new(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
