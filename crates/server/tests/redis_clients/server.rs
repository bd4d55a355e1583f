//! The clients' peer: `millstream serve`, or the Redis that `MILLSTREAM_RESP_ADDRESS=HOST:PORT` names. The checks hold
//! against a real Redis, too, which shows that they ask for what clients get there; its data are lost.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use millstream_testkit::resp::{Connection, command};
use millstream_testkit::{Process, eventually, own_addresses};
use tempfile::TempDir;

/// Names a Redis that runs already.
const OTHER_SERVER: &str = "MILLSTREAM_RESP_ADDRESS";
/// Beyond what any check waits for; a client that hangs is ended.
const PATIENCE_S: &str = "300";

/// One test at a time has the Redis that runs already.
static OTHER_SERVER_IN_USE: Mutex<()> = Mutex::new(());

/// A server that speaks Redis's protocol.
pub(crate) struct Server {
    pub(crate) address: String,
    /// Ended, and its data removed, at the end of the test.
    own: Option<(Process, TempDir)>,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        if let Ok(address) = std::env::var(OTHER_SERVER) {
            let turn = OTHER_SERVER_IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
            let emptied = Connection::open(&address).unwrap().ask(&command(&["FLUSHALL"])).unwrap();
            assert!(emptied.is("+OK"), "{}", emptied.shown());
            return Self { address, own: None, _turn: Some(turn) };
        }
        let dir = tempfile::tempdir().unwrap();
        let process = Process::start_on(dir.path(), &[]);
        let address = process.redis.to_string();
        Self { address, own: Some((process, dir)), _turn: None }
    }

    /// The process behind the address; `None` if it is another's.
    pub(crate) fn process(&self) -> Option<&Process> {
        self.own.as_ref().map(|(process, _)| process)
    }

    pub(crate) fn host_and_port(&self) -> (&str, &str) {
        self.address.rsplit_once(':').unwrap()
    }

    /// Runs a program that is given the address and says `ok` at its end.
    pub(crate) fn run(&self, mut program: Command) {
        let said = output(program.arg(&self.address), "");
        assert!(said.lines().last().is_some_and(|line| line.starts_with("ok ")), "{program:?} said {said:?}");
    }

    /// `redis-cli` with these arguments and this input; answers what it prints.
    pub(crate) fn redis_cli(&self, arguments: &[&str], input: &str) -> String {
        let (host, port) = self.host_and_port();
        output(patient("redis-cli").args(["-h", host, "-p", port]).args(arguments), input)
    }
}

/// A `redis-server` of this test; ended when dropped.
pub(crate) struct Redis {
    child: Child,
    pub(crate) address: SocketAddr,
    _dir: TempDir,
}

impl Redis {
    /// Starts with these lines of configuration and returns once it answers.
    pub(crate) fn start(configuration: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [address, _] = own_addresses();
        let file = dir.path().join("redis.conf");
        let own = format!(
            "bind {}\nport {}\nsave \"\"\nappendonly no\nenable-debug-command yes\n",
            address.ip(),
            address.port()
        );
        std::fs::write(&file, own + configuration).unwrap();
        let mut redis = Command::new("redis-server");
        redis.arg(&file).current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = redis.spawn().expect("redis-server is missing: run scripts/setup-clients");
        eventually("redis-server to answer", || {
            assert!(child.try_wait().unwrap().is_none(), "redis-server has ended; its configuration: {configuration}");
            Connection::open(&address.to_string())
                .and_then(|mut connection| connection.ask(&command(&["PING"])))
                .is_ok_and(|reply| reply.is("+PONG"))
        });
        Self { child, address, _dir: dir }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The long checks run where this variable is set: `make test-all` sets it.
pub(crate) fn long_checks_run() -> bool {
    std::env::var_os("MILLSTREAM_REDIS_ALL").is_some()
}

/// The directory of this test program's sources.
pub(crate) fn beside(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis_clients").join(file)
}

/// A program that is ended when it hangs.
pub(crate) fn patient(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", PATIENCE_S]).arg(program.as_ref());
    command
}

pub(crate) fn output(command: &mut Command, input: &str) -> String {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{said}\n{complained}");
    assert!(complained.is_empty(), "{command:?} complained: {complained}");
    said.into_owned()
}
