//! The matrix of permissions: every route that the server declares, asked by every role, in the own and in another tenant.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::process::{Process, open};
use crate::raw::Raw;
use crate::tokens::{every_role, make};

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// An operation as the server documents it.
struct Operation {
    method: String,
    path: String,
    /// `None` if it is public.
    role: Option<String>,
    /// It serves everybody, and refuses credentials that are wrong.
    takes_login: bool,
    is_of_every_tenant: bool,
    keeps_to_scope: bool,
    takes_body: bool,
}

fn operations(process: &Process) -> Vec<Operation> {
    let document = process.get_json("/openapi.json");
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in METHODS.into_iter().filter(|method| methods.get(method).is_some()) {
            let declared = &methods[method];
            let role = declared["x-role"].as_str();
            found.push(Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                role: role.map(|role| role.split(' ').next().unwrap().to_owned()),
                takes_login: declared["security"][0].as_object().is_some_and(serde_json::Map::is_empty),
                is_of_every_tenant: role.is_some_and(|role| role.ends_with("in every tenant")),
                keeps_to_scope: declared["x-keeps-to-scope"] == Value::Bool(true),
                takes_body: declared.get("requestBody").is_some(),
            });
        }
    }
    found
}

/// A caller: its token's secret, its role and whether it acts in every tenant.
struct TestCaller {
    secret: String,
    role: &'static str,
    is_of_every_tenant: bool,
}

impl Operation {
    /// The status when the operation is asked for in `tenant`.
    fn ask(&self, process: &Process, secret: Option<&str>, tenant: &str) -> u16 {
        let mut path = self.path.clone();
        while let (Some(start), Some(end)) = (path.find('{'), path.find('}')) {
            let value = if &path[start..=end] == "{tenant}" { tenant } else { "x" };
            path.replace_range(start..=end, value);
        }
        let bearer = secret.map(|secret| format!("Bearer {secret}"));
        let mut headers = vec![("Fiware-Service", tenant), ("Request-Timeout", "2s")];
        if let Some(bearer) = &bearer {
            headers.push(("Authorization", bearer));
        }
        if self.takes_body {
            headers.push(("Content-Type", "application/json"));
        }
        open(process.applications, &self.method, &path, &headers, if self.takes_body { b"{}" } else { b"" }).0
    }

    fn admits(&self, caller: &TestCaller, is_own_tenant: bool) -> bool {
        let Some(role) = &self.role else { return !self.takes_login || is_own_tenant || caller.is_of_every_tenant };
        let has_role = role == caller.role;
        let reaches = caller.is_of_every_tenant || (is_own_tenant && !self.is_of_every_tenant);
        has_role && reaches
    }
}

#[test]
fn every_route_is_served_to_those_who_have_its_role_and_to_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let operations = operations(&process);
    assert!(operations.len() > 100, "{} operations", operations.len());
    let root = make(&process, "", &every_role("root", "*"));
    let token = |name: &str, tenant: &str, role: &str, topics: Option<&str>| {
        let mut new = serde_json::json!({"name": name, "tenant": tenant, "roles": [role]});
        if let Some(topics) = topics {
            new["topics"] = serde_json::json!([topics]);
        }
        make(&process, &root, &new)
    };
    let mut callers = Vec::new();
    for role in ["reader", "writer", "admin"] {
        for (tenant, is_of_every_tenant) in [("acme", false), ("*", true)] {
            let name = format!("{role}-{is_of_every_tenant}");
            let secret = token(&name, tenant, role, None);
            callers.push(TestCaller { secret, role, is_of_every_tenant });
        }
    }
    let limited =
        ["reader", "writer", "admin"].map(|role| (role, token(&format!("limited-{role}"), "acme", role, Some("y"))));
    let mut wrong = String::new();
    let mut check = |operation: &Operation, who: &str, status: u16, expected: &[u16], is_admitted: bool| {
        let is_right = if is_admitted { !matches!(status, 401 | 403) } else { expected.contains(&status) };
        if !is_right {
            let Operation { method, path, role, .. } = operation;
            writeln!(wrong, "{method} {path} ({role:?}) by {who}: {status}").unwrap();
        }
    };
    for operation in &operations {
        let status = operation.ask(&process, None, "acme");
        check(operation, "nobody", status, &[401], operation.role.is_none());
        for caller in &callers {
            for (tenant, is_own) in [("acme", true), ("other", false)] {
                let status = operation.ask(&process, Some(&caller.secret), tenant);
                let who =
                    format!("{} of {} in {tenant}", caller.role, if caller.is_of_every_tenant { "*" } else { "acme" });
                check(operation, &who, status, &[403], operation.admits(caller, is_own));
            }
        }
        for (role, secret) in &limited {
            // Even what keeps to the limits has no topic or entity for it here, so that only lists are served.
            if operation.role.as_deref() == Some(role) && !operation.keeps_to_scope {
                check(
                    operation,
                    &format!("limited {role}"),
                    operation.ask(&process, Some(secret), "acme"),
                    &[403],
                    false,
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    process.stop();
}

#[test]
fn redis_commands_of_each_class_are_run_for_those_who_have_its_role_and_for_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let root = make(&process, "", &every_role("root", "*"));
    let reads: [&[&str]; 3] = [&["GET", "k"], &["EXISTS", "k"], &["DBSIZE"]];
    let writes: [&[&str]; 3] = [&["SET", "k", "1"], &["DEL", "k"], &["PUBLISH", "c", "m"]];
    let administers: [&[&str]; 3] = [&["CONFIG", "GET", "port"], &["CLIENT", "LIST"], &["SLOWLOG", "LEN"]];
    let connect = |to: SocketAddr| Raw(TcpStream::connect(to).unwrap());
    for (role, rank) in [("reader", 0), ("writer", 1), ("admin", 2)] {
        let secret = make(&process, &root, &serde_json::json!({"name": role, "tenant": "acme", "roles": [role]}));
        for (class, commands) in [reads, writes, administers].iter().enumerate() {
            for command in commands {
                // The rest of a long answer stays unread, so each command has its own connection.
                let mut unknown = connect(process.redis);
                assert!(unknown.redis(command).starts_with("-NOAUTH"), "{command:?}");
                let mut client = connect(process.redis);
                assert_eq!(client.redis(&["AUTH", role, &secret]), "+OK");
                let answer = client.redis(command);
                assert_eq!(!answer.starts_with("-NOPERM"), rank >= class, "{role} {command:?}: {answer}");
            }
        }
    }
    process.stop();
}
