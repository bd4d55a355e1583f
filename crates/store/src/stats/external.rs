//! External providers: other programs on this machine that answer JSON in time.

use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Categories, FigureSink, Provider};
use crate::ExternalProvider;
use crate::config::ExternalPlace;

/// Largest answer of an external provider.
const ANSWER_MAX_BYTES: usize = 1 << 20;

/// A program that has a part in the statistics.
pub(super) struct External {
    name: String,
    place: ExternalPlace,
    deadline: Duration,
}

impl External {
    /// # Errors
    /// The fault in the settings.
    pub(super) fn new(settings: &ExternalProvider) -> Result<Self, String> {
        let deadline = Duration::from_millis(settings.deadline_ms.max(1));
        Ok(Self { name: settings.name.clone(), place: settings.place()?, deadline })
    }

    fn ask(&self) -> Result<Value, String> {
        let end = Instant::now() + self.deadline;
        let answer = match &self.place {
            ExternalPlace::Socket(path) => {
                let socket = UnixStream::connect(path).map_err(|error| format!("{}: {error}", path.display()))?;
                read_to_end(socket, end, UnixStream::set_read_timeout)?
            }
            ExternalPlace::Http { address, path } => {
                let mut socket = TcpStream::connect_timeout(address, self.deadline)
                    .map_err(|error| format!("http://{address}: {error}"))?;
                // Version 1.0, so that the answer ends with the connection and has no chunks.
                let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: application/json\r\n\r\n");
                socket.write_all(request.as_bytes()).map_err(|error| format!("http://{address}: {error}"))?;
                body(read_to_end(socket, end, TcpStream::set_read_timeout)?)?
            }
        };
        serde_json::from_slice(&answer).map_err(|error| format!("its answer is no JSON: {error}"))
    }
}

/// The body of a successful answer.
fn body(answer: Vec<u8>) -> Result<Vec<u8>, String> {
    let end = memchr::memmem::find(&answer, b"\r\n\r\n").ok_or("its answer has no end of the headers")?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let line = head.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some("200") => Ok(answer[end + 4..].to_vec()),
        _ => Err(format!("it answered \"{line}\"")),
    }
}

fn read_to_end<S: Read>(
    mut socket: S,
    end: Instant,
    set_timeout: impl Fn(&S, Option<Duration>) -> std::io::Result<()>,
) -> Result<Vec<u8>, String> {
    let mut answer = Vec::new();
    let mut part = vec![0; 16 << 10];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("its answer did not end in time".to_owned());
        }
        let read = set_timeout(&socket, Some(left)).and_then(|()| socket.read(&mut part));
        match read.map_err(|error| format!("its answer did not come: {error}"))? {
            0 => return Ok(answer),
            read => answer.extend_from_slice(&part[..read]),
        }
        if answer.len() > ANSWER_MAX_BYTES {
            return Err(format!("its answer has more than {ANSWER_MAX_BYTES} bytes"));
        }
    }
}

impl Provider for External {
    fn name(&self) -> &str {
        &self.name
    }

    fn categories(&self) -> Categories {
        Categories::STATS
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    fn collect(&self, sink: &mut FigureSink) {
        // It may tell figures of any tenant.
        if !sink.sees_every_tenant() {
            sink.set("error", "shown only to callers that act in every tenant");
            return;
        }
        match self.ask() {
            Ok(Value::Object(members)) => members.into_iter().for_each(|(name, value)| sink.set(&name, value)),
            Ok(other) => sink.set("value", other),
            Err(error) => sink.set("error", error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use serde_json::json;

    use super::*;
    use crate::stats::Scope;

    fn collected(url: String, deadline_ms: u64) -> Value {
        let provider = External::new(&ExternalProvider { name: "other".to_owned(), url, deadline_ms }).unwrap();
        let mut sink = FigureSink::new(Categories::ALL, &Scope::EVERY_TENANT);
        provider.collect(&mut sink);
        Value::Object(sink.members)
    }

    #[test]
    fn answers_over_http_are_taken_or_told() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\nA: b\r\n\r\n{\"disks\": 3}", json!({"disks": 3})),
            ("HTTP/1.0 200 OK\r\n\r\n[1]", json!({"value": [1]})),
            ("HTTP/1.0 500 No\r\n\r\n{}", json!({"error": "it answered \"HTTP/1.0 500 No\""})),
            ("HTTP/1.0 200 OK\r\n", json!({"error": "its answer has no end of the headers"})),
            ("", json!({"error": "its answer has no end of the headers"})),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/figures", listener.local_addr().unwrap());
            let server = std::thread::spawn(move || {
                let (mut socket, _) = listener.accept().unwrap();
                let mut request = [0; 1_024];
                let read = socket.read(&mut request).unwrap();
                socket.write_all(answer.as_bytes()).unwrap();
                String::from_utf8_lossy(&request[..read]).into_owned()
            });
            assert_eq!(collected(url, 60_000), expected);
            assert!(server.join().unwrap().starts_with("GET /figures HTTP/1.0\r\n"));
        }
    }

    #[test]
    fn answers_over_a_unix_socket_are_taken_or_told() {
        let dir = tempfile::tempdir().unwrap();
        for (number, (answer, expected)) in
            [("{\"disks\": 3}", json!({"disks": 3})), ("{", Value::Null)].into_iter().enumerate()
        {
            let path = dir.path().join(number.to_string());
            let listener = UnixListener::bind(&path).unwrap();
            let server = std::thread::spawn(move || {
                listener.accept().unwrap().0.write_all(answer.as_bytes()).unwrap();
            });
            let told = collected(path.to_str().unwrap().to_owned(), 60_000);
            server.join().unwrap();
            match expected {
                Value::Null => assert!(told["error"].as_str().unwrap().contains("is no JSON"), "{told}"),
                expected => assert_eq!(told, expected),
            }
        }
    }

    #[test]
    fn one_that_is_not_there_or_silent_is_told() {
        let told = collected("/nowhere/at/all.sock".to_owned(), 1_000);
        assert!(told["error"].as_str().unwrap().contains("/nowhere/at/all.sock"), "{told}");
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let told = collected(format!("http://{}", silent.local_addr().unwrap()), 30);
        assert!(told["error"].as_str().unwrap().contains("did not"), "{told}");
    }

    #[test]
    fn only_callers_in_every_tenant_see_other_programs() {
        let settings =
            ExternalProvider { name: "other".to_owned(), url: "/nowhere.sock".to_owned(), deadline_ms: 1_000 };
        let mut sink = FigureSink::new(Categories::ALL, &Scope { tenant: Some(millstream_types::TenantId::default()) });
        External::new(&settings).unwrap().collect(&mut sink);
        assert_eq!(sink.members["error"], "shown only to callers that act in every tenant");
    }
}
