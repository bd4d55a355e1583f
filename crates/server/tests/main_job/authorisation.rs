//! The matrix of permissions: every route and every Redis command that the server declares, asked by every role, in the own and
//! in another tenant.

use std::fmt::Write as _;

use millstream_testkit::{Process, Raw, open};
use serde_json::Value;

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

/// A command of Redis's protocol, as the server declares it.
struct RedisCommand {
    /// With as many arguments as it takes at least.
    call: Vec<String>,
    /// The least role that may run it, from reader to admin; `None` if it needs no login.
    least_role: Option<usize>,
}

const REDIS_ROLES: [&str; 3] = ["reader", "writer", "admin"];

/// The commands in an answer to COMMAND, and their subcommands.
fn redis_commands(declared: &Value) -> Vec<RedisCommand> {
    let mut found = Vec::new();
    for command in declared.as_array().unwrap() {
        let (name, subcommands) = (command[0].as_str().unwrap(), redis_commands(&command[9]));
        let flags: Vec<&str> = command[2].as_array().unwrap().iter().map(|flag| flag.as_str().unwrap()).collect();
        let least_role = match name {
            _ if flags.contains(&"no_auth") => None,
            _ if flags.contains(&"admin") => Some(2),
            // It changes no key, and others get it.
            "publish" => Some(1),
            _ => Some(usize::from(flags.contains(&"write"))),
        };
        let arguments = command[1].as_i64().unwrap().unsigned_abs() as usize;
        let mut call: Vec<String> = name.split('|').map(str::to_owned).collect();
        call.resize(arguments.max(call.len()), "x".to_owned());
        // A command with subcommands is its subcommands, unless it runs without.
        if subcommands.is_empty() || arguments == 1 {
            found.push(RedisCommand { call, least_role });
        }
        found.extend(subcommands);
    }
    found
}

#[test]
fn every_redis_command_is_run_for_those_who_have_its_role_and_reaches_no_other_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let root = make(&process, "", &every_role("root", "*"));
    let of_role = REDIS_ROLES.map(|role| {
        (role.to_owned(), make(&process, &root, &serde_json::json!({"name": role, "tenant": "acme", "roles": [role]})))
    });
    let connect = |(name, secret): &(String, String)| {
        let mut client = Raw::connect(process.redis);
        assert_eq!(client.redis(&["AUTH", name, secret]), "+OK");
        client
    };
    // A key, a channel and a client of another tenant, under the names that the commands use.
    let foreign = ("foreign".to_owned(), make(&process, &root, &every_role("foreign", "other")));
    let mut other = connect(&foreign);
    assert_eq!(other.redis(&["SET", "x", "foreign-value"]), "+OK");
    assert_eq!(other.redis(&["CLIENT", "SETNAME", "foreign-client"]), "+OK");
    let mut subscriber = connect(&foreign);
    for channel in ["x", "foreign-channel"] {
        assert_eq!(subscriber.redis_answer(&["SUBSCRIBE", channel])[1], channel);
    }
    let commands = redis_commands(&connect(&of_role[0]).redis_answer(&["COMMAND"]));
    assert!(commands.len() > 140, "{} commands", commands.len());
    let mut wrong = String::new();
    for RedisCommand { call, least_role } in &commands {
        let call: Vec<&str> = call.iter().map(String::as_str).collect();
        // What QUIT and SUBSCRIBE do to a connection does not matter: each command has its own.
        let unknown = Raw::connect(process.redis).redis_answer(&call).to_string();
        if least_role.is_some() && !unknown.contains("NOAUTH") {
            writeln!(wrong, "{call:?} by nobody: {unknown}").unwrap();
        }
        for (rank, caller) in of_role.iter().enumerate() {
            let answer = connect(caller).redis_answer(&call).to_string();
            let is_refused = least_role.is_some_and(|least| rank < least);
            if answer.starts_with("\"-NOPERM") != is_refused || answer.contains("foreign") {
                writeln!(wrong, "{call:?} by {}: {answer}", caller.0).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(other.redis_answer(&["GET", "x"]), "foreign-value");
    // The first message that it gets is its own tenant's.
    assert_eq!(other.redis(&["PUBLISH", "x", "own"]), ":1");
    assert_eq!(subscriber.redis_reply(), serde_json::json!(["message", "x", "own"]));
    process.stop();
}
