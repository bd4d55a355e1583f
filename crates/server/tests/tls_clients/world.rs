//! A server with TLS on every listener, and what its clients need.

use std::path::Path;
use std::process::{Command, Output};

use millstream_testkit::{Authority, PATIENCE, Signed, TlsServer, eventually};

/// A server with TLS on every listener.
pub(crate) struct World {
    pub(crate) server: TlsServer,
}

impl World {
    /// A server that is called `localhost`, with these arguments besides.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self { server: TlsServer::start(arguments) }
    }

    /// The same with another certificate.
    pub(crate) fn start_with(authority: Authority, signed: &Signed, arguments: &[&str]) -> Self {
        Self { server: TlsServer::start_with(authority, signed, arguments) }
    }

    pub(crate) fn port(&self, listener: &str) -> String {
        self.server.addresses[listener].port().to_string()
    }

    /// A file of the server's directory.
    pub(crate) fn file(&self, name: &str) -> String {
        self.server.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// The file of the authority.
    pub(crate) fn ca(&self) -> String {
        self.file("ca.crt")
    }

    /// The file of an authority that has signed nothing here.
    pub(crate) fn foreign_ca(&self) -> String {
        std::fs::write(self.file("foreign.crt"), Authority::new("foreign").pem()).unwrap();
        self.file("foreign.crt")
    }

    /// The URL of a path on a listener with TLS.
    pub(crate) fn url(&self, listener: &str, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port(&format!("{listener}-tls")))
    }

    /// Registers a device with a password over HTTPS.
    pub(crate) fn register(&self, device: &str) {
        let credentials =
            format!(r#"[{{"type":"hashed-password","auth-id":"{device}","secrets":[{{"pwd-plain":"pw"}}]}}]"#);
        let json = ["-H", "Content-Type: application/json"];
        for (method, path, body) in [("POST", "devices", "{}"), ("PUT", "credentials", credentials.as_str())] {
            let url = self.url("applications", &format!("/v1/{path}/default/{device}"));
            let arguments = ["-sS", "--fail-with-body", "--cacert", &self.ca(), "-X", method, "-d", body, &url];
            succeeded(&run("curl", &[&arguments[..], &json].concat(), ""));
        }
    }

    /// A request to the registry, which has to succeed.
    pub(crate) fn registry(&self, method: &str, path: &str, body: &str) -> String {
        let (url, ca) = (self.url("applications", &format!("/v1/{path}")), self.ca());
        let json = "Content-Type: application/json";
        let arguments = ["-sS", "--fail-with-body", "--cacert", &ca, "-X", method, "-d", body, "-H", json, &url];
        succeeded(&run("curl", &arguments, ""))
    }

    /// Makes a tenant that trusts certificates of this authority.
    pub(crate) fn trust(&self, tenant: &str, authority: &Authority) {
        self.registry("POST", &format!("tenants/{tenant}"), &trusting(authority, "", ""));
    }

    /// Registers a device that logs in by a certificate with this subject.
    pub(crate) fn register_subject(&self, tenant: &str, device: &str, subject: &str) {
        self.registry("POST", &format!("devices/{tenant}/{device}"), "{}");
        let credentials = format!(r#"[{{"type":"x509-cert","auth-id":"{subject}","secrets":[{{}}]}}]"#);
        self.registry("PUT", &format!("credentials/{tenant}/{device}"), &credentials);
    }

    /// The value of a metric; 0 if there is none of this name with these labels.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let url = format!("http://{}/metrics", self.server.addresses["applications"]);
        let text = succeeded(&run("curl", &["-sS", "--fail-with-body", &url], ""));
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse::<f64>().unwrap() as u64)
    }

    /// The number of handshakes of a listener that have failed for this reason.
    pub(crate) fn failed_handshakes(&self, listener: &str, reason: &str) -> u64 {
        let labels = format!("{{listener=\"{listener}\",reason=\"{reason}\"}}");
        self.metric(&format!("millstream_tls_handshake_failures_total{labels}"))
    }

    /// Waits until the log has a line with all of these parts.
    pub(crate) fn logs(&self, parts: &[&str]) {
        let has_line = || self.server.log().lines().any(|line| parts.iter().all(|part| line.contains(part)));
        eventually(&format!("a line with {parts:?} in the log"), has_line);
    }

    /// A record's values in a topic, from its beginning.
    pub(crate) fn records(&self, topic: &str) -> String {
        let url = self.url("applications", &format!("/api/streams/{topic}?from=earliest&until=latest"));
        let tenant = format!("Fiware-Service: {}", topic.split_once('.').map_or("default", |(_, tenant)| tenant));
        let headers = ["-H", "Accept: text/event-stream", "-H", &tenant];
        let get = ["-sS", "--fail-with-body", "--cacert", &self.ca(), &url];
        succeeded(&run("curl", &[&get[..], &headers].concat(), ""))
    }
}

/// The body of a tenant that trusts this authority, with more members in the entry.
pub(crate) fn trusting(authority: &Authority, more: &str, of_tenant: &str) -> String {
    let cert = authority.pem().replace('\n', "\\n");
    format!(r#"{{"trusted-ca":[{{"cert":"{cert}"{more}}}]{of_tenant}}}"#)
}

/// Runs a program of `scripts/setup-clients` with this text as its input; one that hangs is ended.
pub(crate) fn run(program: &str, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", &PATIENCE.as_secs().to_string(), program]).args(arguments);
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, input.as_bytes()).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    command.stdin(file).output().unwrap()
}

/// The output of a program that must have ended well.
pub(crate) fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, said(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The output and complaints of a program that must have failed.
pub(crate) fn failed(output: &Output) -> String {
    assert!(!output.status.success(), "{}", said(output));
    said(output)
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The path of a file that `Signed::write` has made.
pub(crate) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
