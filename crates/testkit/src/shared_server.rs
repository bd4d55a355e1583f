//! A running server that the tests of one program share, each in a tenant of its own.
//!
//! Owner: the test program. Invariants
//! - No two tests of a program get the same tenant, so that they do not see each other and run in any order.
//! - The server and its data end with the program, however that ends: a shell beside the server holds the other end of a
//!   pipe and ends both when the pipe breaks.
//!
//! Not here: servers that a test stops, kills, fills or reads the figures of; such a test starts a [`Process`].
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Process, Server, Target, ask, binary};

/// Runs the program in `$@`, and when nobody holds its own standard input any more, ends it and removes the directory `$0`.
const GUARD: &str = r#""$@" </dev/null & server=$!
trap '' INT TERM
exec >&- 2>&-
read -r end
kill -9 "$server"; wait; rm -rf -- "$0""#;

/// A server with settings that many tests want; it starts when the first of them asks for a tenant.
#[derive(Debug)]
pub struct SharedServer {
    arguments: &'static [&'static str],
    /// The secret of an administrator of every tenant, where callers have to log in.
    token: Option<&'static str>,
    running: OnceLock<Process>,
    tenants: AtomicU32,
}

impl SharedServer {
    /// A server that starts with these arguments, and the secret of an administrator of every tenant if callers have to log
    /// in.
    pub const fn new(arguments: &'static [&'static str], token: Option<&'static str>) -> Self {
        Self { arguments, token, running: OnceLock::new(), tenants: AtomicU32::new(0) }
    }

    /// Creates a tenant that no other test has.
    pub fn tenant(&'static self) -> TestTenant {
        let process = self.running.get_or_init(|| start(self.arguments));
        let name: &str = format!("test_{}", self.tenants.fetch_add(1, Ordering::Relaxed)).leak();
        let bearer = self.token.map(|token| format!("Bearer {token}"));
        let login: Vec<_> = bearer.iter().map(|bearer| ("Authorization", bearer.as_str())).collect();
        let created = ask(process.applications, "POST", &format!("/v1/tenants/{name}"), &login, b"");
        assert_eq!(created.status, 201, "{}", created.text());
        let applications = Target { address: process.applications, tenant: Some(name) };
        let Process { devices, kafka, mqtt, redis, .. } = *process;
        TestTenant { applications, devices, kafka, mqtt, redis }
    }
}

fn start(arguments: &[&str]) -> Process {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("millstream-shared-{}-{number}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let mut guard = Command::new("sh");
    guard.args(["-c", GUARD]).arg(&dir).arg(binary()).stdin(Stdio::piped());
    Process::start_by(guard, &dir, arguments)
}

/// A tenant of a shared server that one test has for itself.
#[derive(Debug, Clone, Copy)]
pub struct TestTenant {
    applications: Target,
    devices: SocketAddr,
    kafka: SocketAddr,
    mqtt: SocketAddr,
    redis: SocketAddr,
}

impl Server for TestTenant {
    fn applications(&self) -> Target {
        self.applications
    }

    fn devices(&self) -> SocketAddr {
        self.devices
    }

    fn kafka(&self) -> SocketAddr {
        self.kafka
    }

    fn mqtt(&self) -> SocketAddr {
        self.mqtt
    }

    fn redis(&self) -> SocketAddr {
        self.redis
    }
}
