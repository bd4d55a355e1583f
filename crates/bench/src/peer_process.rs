//! A peer as a child process on loopback.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// Time within which a peer must listen.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Directory of Debian's servers, which PATH often lacks.
const SERVERS_DIR: &str = "/usr/sbin";

/// A running peer; ended when dropped.
#[derive(Debug)]
pub(crate) struct PeerProcess {
    child: Child,
    pub(crate) name: String,
}

impl PeerProcess {
    /// Runs `command` until it listens on `address`.
    pub(crate) fn start(mut command: Command, name: String, address: SocketAddr) -> anyhow::Result<Self> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.with_context(|| format!("cannot start {name}"))?;
        let mut running = Self { child, name };
        running.wait_until_it_listens(address)?;
        Ok(running)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_it_listens(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended ({status}) before it listened; see its output above", self.name);
            }
            if begin.elapsed() > START_TIMEOUT {
                bail!("{} does not listen on {address} after {} s", self.name, START_TIMEOUT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// An address on loopback that is free now, for peers that cannot choose one and report it.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).context("no port is free")
}

/// Finds a program of the Debian package `package`.
pub(crate) fn find(program: &str, package: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from(SERVERS_DIR)]);
    let found = dirs.map(|dir| dir.join(program)).find(|file| file.is_file());
    found.with_context(|| format!("there is no {program}; install it, for instance: apt-get install {package}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named_with_the_remedy() {
        let error = find("no-such-server", "such-package").unwrap_err().to_string();
        assert!(error.contains("no-such-server") && error.contains("apt-get install such-package"), "{error}");
    }
}
