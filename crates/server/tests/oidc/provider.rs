//! The provider as a process: `oidc_provider.mjs`, which says what it takes.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millstream_testkit::{ask, installed};
use serde_json::Value;

/// The audience of this server.
pub(crate) const AUDIENCE: &str = "urn:millstream:api";

/// A file of this folder.
pub(crate) fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oidc").join(name)
}

/// A running provider; killed when dropped.
pub(crate) struct Provider {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) issuer: String,
}

impl Provider {
    pub(crate) fn start(options: &Value) -> Self {
        let mut child = Command::new("node")
            .arg(beside("oidc_provider.mjs"))
            .arg(options.to_string())
            .env("OIDC_PROVIDER_HOME", installed("oidc/js"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut lines = BufReader::new(output).lines();
        let first = lines.next().expect("the provider listens").unwrap();
        let issuer = first.strip_prefix("issuer ").unwrap().to_owned();
        Self { child, input, lines, issuer }
    }

    fn command(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        self.lines.next().unwrap().unwrap()
    }

    /// Signs with new keys from now on. Returns the id of the first.
    pub(crate) fn rotate(&mut self) -> String {
        self.command("rotate")
    }

    /// A token with this header and these claims, signed by the provider's key.
    pub(crate) fn sign(&mut self, header: &Value, claims: &Value) -> String {
        self.command(&format!("sign {}", serde_json::json!({"header": header, "claims": claims})))
    }

    /// The access token that a program gets with its secret.
    pub(crate) fn token(&self, client: &str) -> String {
        self.token_for(client, AUDIENCE)
    }

    /// The same for another server.
    pub(crate) fn token_for(&self, client: &str, audience: &str) -> String {
        let login = format!("Basic {}", STANDARD.encode(format!("{client}:{client}-secret")));
        let headers = [("Authorization", &*login), ("Content-Type", "application/x-www-form-urlencoded")];
        let body = format!("grant_type=client_credentials&scope=millstream&resource={audience}");
        let answer = ask(self.address(), "POST", "/token", &headers, body.as_bytes());
        assert_eq!(answer.status, 200, "{client}: {}", answer.text());
        answer.json()["access_token"].as_str().unwrap().to_owned()
    }

    fn address(&self) -> SocketAddr {
        self.issuer.rsplit('/').next().unwrap().parse().unwrap()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
