//! A server that takes the tokens of a provider.

use std::path::Path;

use millstream_testkit::{Answer, Process, ask, millstream};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::provider::{AUDIENCE, Provider};

/// The claims of an application of `tenant` with these roles of the provider.
pub(crate) fn claims(tenant: &str, roles: &[&str]) -> Value {
    json!({"tenant": tenant, "realm_access": {"roles": roles}})
}

/// A provider that knows a program for each role, and some that may do nothing.
pub(crate) fn programs() -> Value {
    let every_role = ["default-roles", "ms-read", "ms-write", "ms-admin"];
    json!({"clients": {
        "reader": {"claims": claims("acme", &["ms-read"])},
        "writer": {"claims": claims("acme", &["ms-write"]), "alg": "ES256"},
        "admin": {"claims": claims("acme", &["ms-admin"])},
        "acme": {"claims": claims("acme", &every_role)},
        "root": {"claims": claims("*", &every_role)},
        "brief": {"claims": claims("acme", &every_role), "ttl": 15},
        "stranger": {"claims": claims("acme", &["default-roles"])},
        "homeless": {"claims": {"realm_access": {"roles": ["ms-read"]}}},
    }})
}

/// The settings of a server with the provider at `issuer`.
pub(crate) fn settings(issuer: &str, more: &str) -> String {
    format!(
        "[oidc]\nissuer = \"{issuer}\"\naudience = \"{AUDIENCE}\"\nclient_id = \"millstream-console\"\n\
         scope = \"openid offline_access\"\ntenant_claim = \"tenant\"\nroles_claim = \"realm_access.roles\"\n\
         clock_skew_s = 0\nkeys_retry_s = 1\n{more}\n\
         [oidc.roles]\nreader = [\"ms-read\"]\nwriter = [\"ms-write\"]\nadmin = [\"ms-admin\", \"realm-admin\"]\n"
    )
}

/// A running server; its log is in a file.
pub(crate) struct World {
    dir: TempDir,
    pub(crate) process: Process,
}

impl World {
    pub(crate) fn start(issuer: &str) -> Self {
        Self::start_with(&settings(issuer, ""))
    }

    pub(crate) fn start_with(settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("millstream.toml");
        std::fs::write(&config, settings).unwrap();
        let process = Self::launch(dir.path(), &config);
        Self { dir, process }
    }

    fn launch(dir: &Path, config: &Path) -> Process {
        let mut program = millstream();
        program.stderr(std::fs::File::create(dir.join("stderr")).unwrap());
        let level = ["--config", config.to_str().unwrap(), "--set", "logging.level=info"];
        Process::start_by(program, dir, &level)
    }

    /// Asks in the caller's own tenant.
    pub(crate) fn call(&self, token: &str, method: &str, path: &str, body: &Value) -> Answer {
        self.call_in(token, None, method, path, body)
    }

    pub(crate) fn call_in(&self, token: &str, tenant: Option<&str>, method: &str, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {token}");
        let mut headers = vec![("Authorization", &*bearer)];
        headers.extend(tenant.map(|tenant| ("Fiware-Service", tenant)));
        let body = if body.is_null() { String::new() } else { body.to_string() };
        if !body.is_empty() {
            headers.push(("Content-Type", "application/json"));
        }
        ask(self.process.applications, method, path, &headers, body.as_bytes())
    }

    /// The status of a request that readers may make.
    pub(crate) fn reads(&self, token: &str) -> u16 {
        self.call(token, "GET", "/api/streams", &Value::Null).status
    }

    /// `true` once the log has a line with this text.
    pub(crate) fn log_lines(&self, text: &str) -> usize {
        let log = std::fs::read_to_string(self.dir.path().join("stderr")).unwrap();
        log.lines().filter(|line| line.contains(text)).count()
    }

    /// The records of the audit trail.
    pub(crate) fn audit(&self, token: &str) -> Vec<Value> {
        let path = "/api/streams/_audit?from=earliest&until=latest&limit=1000";
        let page = self.call(token, "GET", path, &Value::Null);
        assert_eq!(page.status, 200, "{}", page.text());
        page.json()["records"].as_array().unwrap().iter().map(|record| record["value"].clone()).collect()
    }
}

/// A provider with [`programs`], and a server that takes its tokens.
pub(crate) fn start() -> (Provider, World) {
    let provider = Provider::start(&programs());
    let world = World::start(&provider.issuer);
    (provider, world)
}
