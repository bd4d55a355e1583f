//! Peers of the suite, as Debian packages them, on loopback with our configuration: nginx, which answers
//! 202 and stores nothing, and Mosquitto without persistence.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::cores::Cores;
use crate::peer_process::{PeerProcess, find, free_address};

/// A peer that runs beside Millstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ConnectPeer {
    /// An nginx that answers every request with 202
    Nginx,
    /// A Mosquitto without persistence and logins
    Mosquitto,
}

/// A running peer and its URL.
#[derive(Debug)]
pub(super) struct RunningPeer {
    pub(super) process: PeerProcess,
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
            // One process, so that it accounts for all CPU time.
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

    /// Starts the peer with its files in `dir`; it listens when this returns.
    pub(super) fn start(self, dir: &Path, cores: &Cores) -> anyhow::Result<RunningPeer> {
        let program = find(self.program(), self.program())?;
        let dir = dir.join(self.program());
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        // Neither peer can choose a free port and report it.
        let address = free_address()?;
        let file = dir.join("configuration");
        fs::write(&file, self.configuration(address.port()))
            .with_context(|| format!("cannot write {}", file.display()))?;
        let mut command = cores.server_command(&program);
        command.current_dir(&dir).arg("-c").arg(&file);
        if self == Self::Nginx {
            command.arg("-p").arg(&dir);
        }
        let name = format!("{} {}", self.program(), version(self, &program));
        let process = PeerProcess::start(command, name, address)?;
        Ok(RunningPeer { process, url: format!("{}://{address}", self.scheme()) })
    }
}

/// Returns the version that the program prints; empty if it cannot be parsed.
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
}
