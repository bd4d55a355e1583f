//! Servers that others have written, as Debian packages them, on loopback with a configuration of ours: nginx, which answers
//! 202 and stores nothing, and Mosquitto, which stores nothing either.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::bench::cores::Cores;

/// How long one may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Where Debian puts servers, which is not in everybody's PATH.
const SERVERS_DIR: &str = "/usr/sbin";

/// What runs beside Millstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ConnectPeer {
    /// An nginx that answers every request with 202
    Nginx,
    /// A Mosquitto without persistence and logins
    Mosquitto,
}

/// A running peer; ended when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    pub(super) name: String,
    pub(super) url: String,
}

impl ConnectPeer {
    fn program(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Mosquitto => "mosquitto",
        }
    }

    fn configuration(self, port: u16) -> String {
        match self {
            // One process, so that all of its CPU time is told of one.
            Self::Nginx => format!(
                "daemon off; master_process off; error_log stderr; pid nginx.pid;\n\
                 events {{ worker_connections 4096; }}\n\
                 http {{\n  access_log off; keepalive_requests 1000000000; keepalive_timeout 1h;\n  \
                 client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;\n  \
                 uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n  \
                 server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 202; }} }}\n}}\n"
            ),
            Self::Mosquitto => format!(
                "listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nset_tcp_nodelay true\n\
                 log_type error\nlog_type warning\n"
            ),
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            Self::Nginx => "http",
            Self::Mosquitto => "mqtt",
        }
    }

    /// Starts it with its files in `dir`; it listens when this returns.
    pub(crate) fn start(self, dir: &Path, cores: &Cores) -> anyhow::Result<Running> {
        let program = find(self.program())?;
        let dir = dir.join(self.program());
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        // Neither of them chooses a port by itself and says so.
        let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).context("no port is free")?;
        let file = dir.join("configuration");
        fs::write(&file, self.configuration(address.port()))
            .with_context(|| format!("cannot write {}", file.display()))?;
        let mut command = cores.server_command(&program);
        command.arg("-c").arg(&file);
        if self == Self::Nginx {
            command.arg("-p").arg(&dir);
        }
        let child = command.current_dir(&dir).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.with_context(|| format!("cannot start {}", program.display()))?;
        let mut running = Running {
            child,
            name: format!("{} {}", self.program(), version(self, &program)),
            url: format!("{}://{address}", self.scheme()),
        };
        running.wait_until_it_listens(address)?;
        Ok(running)
    }
}

impl Running {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_it_listens(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} has ended ({status}) before it listened; what it said stands above", self.name);
            }
            if begin.elapsed() > START_TIMEOUT {
                bail!("{} does not listen on {address} after {} s", self.name, START_TIMEOUT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn find(program: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from(SERVERS_DIR)]);
    let found = dirs.map(|dir| dir.join(program)).find(|file| file.is_file());
    found.with_context(|| format!("there is no {program}; install it, for instance: apt-get install {program}"))
}

/// What it says of itself; empty if it says nothing that is understood.
fn version(peer: ConnectPeer, program: &Path) -> String {
    let argument = match peer {
        ConnectPeer::Nginx => "-v",
        ConnectPeer::Mosquitto => "-h",
    };
    let Ok(said) = Command::new(program).arg(argument).output() else { return String::new() };
    let said = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
    let word = said.split(['/', ' ', '\n']).find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    word.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_configuration_listens_on_loopback_only() {
        for peer in [ConnectPeer::Nginx, ConnectPeer::Mosquitto] {
            let text = peer.configuration(4242);
            assert!(text.contains("127.0.0.1") && text.contains("4242"), "{text}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_the_remedy() {
        let error = find("no-such-server").unwrap_err().to_string();
        assert!(error.contains("apt-get install no-such-server"), "{error}");
    }
}
