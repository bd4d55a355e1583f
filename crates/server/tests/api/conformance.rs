//! schemathesis asks each documented route with good, odd and broken requests. It fails on a status, media type, body or
//! header that is not documented, and on a fault of the server. `scripts/setup-clients` installs it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use millstream_testkit::{Process, millstream};

/// Requests of random content for each route, beside those that try each bound of each parameter.
/// `MILLSTREAM_API_EXAMPLES` asks for another number, and for the bounds as well.
const EXAMPLES: &str = "6";
const SECRET: &str = "a-secret-for-every-tenant-of-the-test";

fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api").join(name)
}

/// The program in the target directory.
fn program() -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_millstream")).ancestors().nth(2).unwrap();
    target.join("api/venv/bin/schemathesis")
}

fn check(process: &Process, listener: SocketAddr, login: &str, dir: &Path) {
    let mut command = Command::new(program());
    command.current_dir(dir).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("PYTHONPATH", beside(""));
    command.env("MILLSTREAM_APPLICATIONS", process.applications_url()).env("MILLSTREAM_TOKEN", SECRET);
    command.arg("--config-file").arg(beside("schemathesis.toml")).arg("run");
    command.args(["--header", &format!("Authorization: {login}")]);
    match std::env::var("MILLSTREAM_API_EXAMPLES") {
        Ok(examples) => command.args(["--phases", "coverage,fuzzing", "--max-examples", &examples]),
        Err(_) => command.args(["--phases", "fuzzing", "--max-examples", EXAMPLES]),
    };
    command.arg(format!("http://{listener}/openapi.json"));
    let output =
        command.output().unwrap_or_else(|error| panic!("{}: {error}; run scripts/setup-clients", program().display()));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    println!("{said}");
}

#[test]
fn each_route_answers_as_the_documents_say() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("millstream.toml");
    let token = format!(
        "[[applications.tokens]]\nname = \"root\"\ntenant = \"*\"\ntoken = \"{SECRET}\"\nroles = [\"reader\", \"writer\", \"admin\"]\n"
    );
    std::fs::write(&config, token).unwrap();
    // Nothing leaves this machine.
    let arguments =
        ["--config", config.to_str().unwrap(), "--set", "context.notifications.allowed_targets=[\"127.0.0.1\"]"];
    let mut program = millstream();
    program.env("MILLSTREAM_CHECK_STATUSES", "1");
    let process = Process::start_by(program, dir.path(), &arguments);
    check(&process, process.applications, &format!("Bearer {SECRET}"), dir.path());
    // thermometer@default:hush
    check(&process, process.devices, "Basic dGhlcm1vbWV0ZXJAZGVmYXVsdDpodXNo", dir.path());
    process.stop();
}
