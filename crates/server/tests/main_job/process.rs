//! The real binary as a process, and a client of one request a connection.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// A running `millstream serve`; killed when dropped.
pub(crate) struct Process {
    child: Child,
    pub(crate) applications: SocketAddr,
    pub(crate) devices: SocketAddr,
    pub(crate) kafka: SocketAddr,
    #[allow(dead_code, reason = "only the tests with MQTT clients connect to it")]
    pub(crate) mqtt: SocketAddr,
    /// The address of the listener for Redis clients.
    #[allow(dead_code, reason = "only the tests with Redis clients connect to it")]
    pub(crate) redis: SocketAddr,
}

/// Two addresses that no other process listens on or calls from: each process has a loopback address of its own, while
/// the system gives ports of 127.0.0.1.
pub(crate) fn own_addresses() -> [SocketAddr; 2] {
    static NEXT_PORT: AtomicU16 = AtomicU16::new(20_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let address = [127, high | 0x80, middle, low];
    [(); 2].map(|()| SocketAddr::from((address, NEXT_PORT.fetch_add(1, Ordering::Relaxed))))
}

pub(crate) fn millstream() -> Command {
    Command::new(env!("CARGO_BIN_EXE_millstream"))
}

/// SIGTERM; waits for an orderly end.
pub(crate) fn terminate(server: &mut Child) {
    let told = Command::new("kill").args(["-TERM", &server.id().to_string()]).status().unwrap();
    assert!(told.success());
    let status = server.wait().unwrap();
    assert!(status.success(), "{status}");
}

impl Process {
    pub(crate) fn start(data_dir: &Path) -> Self {
        Self::start_on(data_dir, &[])
    }

    /// Starts with these arguments and returns once it listens.
    pub(crate) fn start_on(data_dir: &Path, arguments: &[&str]) -> Self {
        Self::start_by(millstream(), data_dir, arguments)
    }

    /// The same, by a command to which the program's arguments are added.
    pub(crate) fn start_by(program: Command, data_dir: &Path, arguments: &[&str]) -> Self {
        Self::start_at(program, data_dir, [SocketAddr::from(([127, 0, 0, 1], 0)); 2], arguments)
    }

    /// The same, with the addresses for applications and for devices over HTTP.
    pub(crate) fn start_at(
        mut program: Command,
        data_dir: &Path,
        [applications, devices]: [SocketAddr; 2],
        arguments: &[&str],
    ) -> Self {
        let mut child = program
            .arg("serve")
            .arg("--data-dir")
            .arg(data_dir)
            .args(["--listen-applications", &applications.to_string()])
            .args(["--listen-devices-http", &devices.to_string()])
            .args(["--listen-kafka", "127.0.0.1:0", "--listen-devices-mqtt", "127.0.0.1:0"])
            .args(["--listen-redis", "127.0.0.1:0"])
            .args(["--set", "logging.level=warn"])
            // A disk that stalls under other tests must not refuse a message.
            .args(["--set", "connect.http.send_timeout_ms=60000", "--set", "connect.mqtt.send_timeout_ms=60000"])
            .args(["--set", "connect.http.request_timeout_ms=60000", "--set", "context.timeout_ms=60000"])
            .args(arguments)
            .current_dir(data_dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut listening = |name: &str| -> SocketAddr {
            let line = lines.next().expect("the server says where it listens before it ends").unwrap();
            let rest = line.strip_prefix("listening ").unwrap_or_else(|| panic!("unexpected line {line:?}"));
            let (listener, url) = rest.split_once(' ').unwrap();
            assert_eq!(listener, name);
            url.rsplit("//").next().unwrap().parse().unwrap()
        };
        let (applications, devices) = (listening("applications"), listening("devices-http"));
        let (kafka, mqtt) = (listening("kafka"), listening("devices-mqtt"));
        let redis = listening("redis");
        Self { child, applications, devices, kafka, mqtt, redis }
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, without waiting.
    pub(crate) fn tell_to_stop(&self) {
        let told = Command::new("kill").args(["-TERM", &self.id().to_string()]).status().unwrap();
        assert!(told.success());
    }

    /// SIGTERM; waits for an orderly end.
    pub(crate) fn stop(mut self) {
        terminate(&mut self.child);
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the resident memory of the process, in bytes.
    pub(crate) fn rss_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// Returns the most resident memory that the process has had, in bytes.
    #[allow(dead_code, reason = "only the guards bound it")]
    pub(crate) fn peak_rss_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    fn status_bytes(&self, figure: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(figure)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    pub(crate) fn applications_url(&self) -> String {
        format!("http://{}", self.applications)
    }

    pub(crate) fn devices_url(&self) -> String {
        format!("http://{}", self.devices)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        ask(self.applications, "GET", path, &[], b"")
    }

    pub(crate) fn get_json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Opens a connection and sends a request; the answer is the caller's to read.
fn request(to: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> BufReader<TcpStream> {
    try_request(to, method, path, headers, body).unwrap()
}

fn try_request(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<BufReader<TcpStream>> {
    let mut socket = TcpStream::connect(to)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {to}\r\n");
    if !headers.iter().any(|(name, _)| *name == "Connection") {
        head.push_str("Connection: close\r\n");
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    socket.write_all(head.as_bytes())?;
    socket.write_all(body)?;
    Ok(BufReader::new(socket))
}

/// The status of the answer; `None` if the server goes before it is complete.
pub(crate) fn status(to: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<u16> {
    let mut answer = String::new();
    try_request(to, method, path, headers, body).ok()?.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n")?.0.split(' ').nth(1)?.parse().ok()
}

/// The whole answer; `None` if the server goes before it is complete.
#[allow(dead_code, reason = "the clients' tests do without it")]
pub(crate) fn try_ask(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<Answer> {
    let mut bytes = Vec::new();
    try_request(to, method, path, headers, body).ok()?.read_to_end(&mut bytes).ok()?;
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (status, headers) = read_head(&mut &bytes[..end + 4]);
    Some(Answer { status, headers, body: bytes[end + 4..].to_vec() })
}

pub(crate) fn read_head(reader: &mut impl BufRead) -> (u16, Vec<(String, String)>) {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
    let split = |line: &String| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    (status, lines[1..].iter().filter_map(split).collect())
}

/// Sends a request; the answer's head, and a reader of the rest.
pub(crate) fn open(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> (u16, Vec<(String, String)>, BufReader<TcpStream>) {
    let mut reader = request(to, method, path, headers, body);
    let (status, headers) = read_head(&mut reader);
    (status, headers, reader)
}

pub(crate) fn ask(to: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut reader = request(to, method, path, headers, body);
    let (status, headers) = read_head(&mut reader);
    let mut body = Vec::new();
    let chunked =
        headers.iter().any(|(name, value)| name.eq_ignore_ascii_case("transfer-encoding") && value == "chunked");
    if chunked {
        while let Some(chunk) = read_chunk(&mut reader) {
            body.extend_from_slice(&chunk);
        }
    } else {
        reader.read_to_end(&mut body).unwrap();
    }
    Answer { status, headers, body }
}

/// The next chunk of a chunked answer; `None` at its end.
fn read_chunk(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut size = String::new();
    reader.read_line(&mut size).unwrap();
    let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
    let mut chunk = vec![0; size + 2];
    reader.read_exact(&mut chunk).unwrap();
    chunk.truncate(size);
    (size > 0).then_some(chunk)
}

/// A server-sent event.
#[derive(Debug)]
pub(crate) struct Event {
    /// Empty for events without one.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) data: Value,
}

/// Server-sent events of an answer as they come.
pub(crate) struct Events {
    reader: BufReader<TcpStream>,
    text: String,
}

impl Events {
    pub(crate) fn get(process: &Process, path: &str, headers: &[(&str, &str)]) -> Self {
        let (status, _, mut reader) = open(process.applications, "GET", path, headers, b"");
        if status != 200 {
            let mut refusal = String::new();
            reader.read_to_string(&mut refusal).unwrap();
            panic!("{path}: {status} {refusal}");
        }
        Self { reader, text: String::new() }
    }

    /// The next one; `None` at the end of the answer.
    pub(crate) fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                if let (Some(name), Some(data)) = (field("event: "), field("data: ")) {
                    let id = field("id: ").unwrap_or_default();
                    return Some(Event { id, name, data: serde_json::from_str(&data).unwrap() });
                }
                continue;
            }
            let chunk = read_chunk(&mut self.reader)?;
            self.text.push_str(&String::from_utf8(chunk).unwrap());
        }
    }
}

/// A live query's events as they come.
pub(crate) struct Live {
    reader: BufReader<TcpStream>,
    text: String,
}

impl Live {
    /// Asks; the query is live when this returns.
    pub(crate) fn ask(process: &Process, query: &str) -> Self {
        Self::ask_for(process, &serde_json::json!({"query": query, "deliver": "sse"})).0
    }

    /// As [`Self::ask`], with a whole request; the query's id, too.
    pub(crate) fn ask_for(process: &Process, asked: &Value) -> (Self, String) {
        Self::open(process, "POST", "/api/queries", asked.to_string().as_bytes())
    }

    /// Reads on for a query that is kept.
    pub(crate) fn attach(process: &Process, id: &str) -> Self {
        Self::open(process, "GET", &format!("/api/queries/{id}/results"), b"").0
    }

    fn open(process: &Process, method: &str, path: &str, body: &[u8]) -> (Self, String) {
        let headers = [("Content-Type", "application/json"), ("Accept", "text/event-stream")];
        let mut reader = request(process.applications, method, path, &headers, body);
        let (status, _) = read_head(&mut reader);
        let mut live = Self { reader, text: String::new() };
        if status != 200 {
            let mut refusal = String::new();
            live.reader.read_to_string(&mut refusal).unwrap();
            panic!("{path}: {status} {refusal}");
        }
        let (name, opening) = live.next();
        assert_eq!(name, "meta");
        (live, opening["id"].as_str().unwrap().to_owned())
    }

    fn next(&mut self) -> (String, Value) {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                if let (Some(name), Some(data)) = (field("event: "), field("data: ")) {
                    return (name, serde_json::from_str(&data).unwrap());
                }
                continue;
            }
            let chunk = read_chunk(&mut self.reader).expect("a live query ends with its end event");
            self.text.push_str(&String::from_utf8(chunk).unwrap());
        }
    }

    /// All rows until the query ends, and what was told at its end.
    pub(crate) fn finish(mut self) -> (Vec<Value>, Value) {
        let mut rows = Vec::new();
        loop {
            match self.next() {
                (name, mut data) if name == "rows" => rows.append(data["records"].as_array_mut().unwrap()),
                (name, data) if name == "end" => return (rows, data),
                (name, data) => panic!("unexpected event {name}: {data}"),
            }
        }
    }
}

/// Waits until `holds`; says what was waited for if it takes too long.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
