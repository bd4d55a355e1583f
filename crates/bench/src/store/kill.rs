//! kill -9 in the middle of writes that must be synced: after a start, every key whose write was acknowledged must
//! be there with its value.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::server::StoreServer;
use super::values::{Values, key, push_put};
use super::{CONNECTIONS, StoreBench};
use crate::cores::Cores;
use crate::findings::Findings;

const BUCKET: &str = "kill";
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A keep-alive connection with one request in flight.
struct KeepAliveConnection {
    socket: BufReader<TcpStream>,
    line: String,
}

impl KeepAliveConnection {
    fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { socket: BufReader::new(socket), line: String::new() })
    }

    /// Sends a request and returns status and body of its answer.
    fn exchange(&mut self, request: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        self.socket.get_mut().write_all(request)?;
        let (mut status, mut length) = (None, 0);
        loop {
            self.line.clear();
            if self.socket.read_line(&mut self.line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = self.line.trim_end();
            if line.is_empty() {
                break;
            }
            if status.is_none() {
                status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
            } else if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        self.socket.read_exact(&mut body)?;
        let status = status.ok_or_else(|| io::Error::other("an answer without a status"))?;
        Ok((status, body))
    }
}

/// Acknowledged writes that a restart does not show.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lost {
    missing: u64,
    /// There, but with other bytes.
    changed: u64,
}

/// The writes of one connection.
#[derive(Debug, Default)]
struct Writes {
    /// Numbers whose writes were acknowledged.
    acknowledged: Vec<u64>,
    refused: u64,
    first_refusal: Option<String>,
}

/// Stores values over a connection, each number once, until the server has gone.
fn write_until_it_ends(address: SocketAddr, values: &Values, next: &AtomicU64) -> Writes {
    let mut writes = Writes::default();
    let Ok(mut connection) = KeepAliveConnection::open(address) else { return writes };
    let mut request = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        request.clear();
        push_put(BUCKET, &key(number), "synced", values.get(number), &mut request);
        match connection.exchange(&request) {
            Ok((200..300, _)) => writes.acknowledged.push(number),
            Ok((status, body)) => {
                writes.refused += 1;
                let refusal = || format!("{status}: {}", String::from_utf8_lossy(&body));
                writes.first_refusal.get_or_insert_with(refusal);
            }
            // The server has been killed.
            Err(_) => return writes,
        }
    }
}

fn lost(address: SocketAddr, values: &Values, acknowledged: &[u64]) -> anyhow::Result<Lost> {
    let mut connection = KeepAliveConnection::open(address)?;
    let mut lost = Lost::default();
    for &number in acknowledged {
        let request = format!("GET /kv/{BUCKET}/{} HTTP/1.1\r\nHost: localhost\r\n\r\n", key(number));
        match connection.exchange(request.as_bytes())? {
            (200, body) if body == values.get(number) => {}
            (200, _) => lost.changed += 1,
            (404, _) => lost.missing += 1,
            (status, body) => anyhow::bail!("a read was answered {status}: {}", String::from_utf8_lossy(&body)),
        }
    }
    Ok(lost)
}

impl StoreBench {
    pub(super) fn measure_kills(&self, findings: &mut Findings) -> anyhow::Result<()> {
        let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
        let (values, next) = (Values::random(), AtomicU64::new(0));
        let (mut acknowledged, mut refused, mut first_refusal) = (Vec::new(), 0, None);
        let mut writing = Duration::ZERO;
        let mut server = StoreServer::open(dir.path(), &Cores::shared())?;
        server.put_bucket(BUCKET, &json!({}))?;
        for kill in 0..self.plan.kills {
            eprintln!("kill -9 during writes, {} of {}", kill + 1, self.plan.kills);
            let (address, began) = (server.applications, Instant::now());
            let before = acknowledged.len();
            std::thread::scope(|scope| {
                let writer = || write_until_it_ends(address, &values, &next);
                let writers: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(writer)).collect();
                std::thread::sleep(self.plan.kill_after);
                // The process is ended by SIGKILL.
                drop(server);
                for writer in writers {
                    let writes = writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))?;
                    acknowledged.extend(writes.acknowledged);
                    refused += writes.refused;
                    first_refusal = first_refusal.take().or(writes.first_refusal);
                }
                anyhow::Ok(())
            })?;
            writing += began.elapsed();
            let refusal = first_refusal.as_deref().unwrap_or_default();
            ensure!(
                acknowledged.len() > before,
                "no write was acknowledged before the kill, {refused} refused: {refusal}"
            );
            server = StoreServer::open(dir.path(), &Cores::shared())?;
            // All that was ever acknowledged, not only what came before this kill.
            let lost = lost(server.applications, &values, &acknowledged)?;
            ensure!(
                lost == Lost::default(),
                "{} of {} acknowledged keys are missing and {} have another value after kill -9 number {}",
                lost.missing,
                acknowledged.len(),
                lost.changed,
                kill + 1,
            );
        }
        let unanswered = next.into_inner() - acknowledged.len() as u64;
        let own = json!({
            "server": "millstream serve, a process of its own, default configuration",
            "cores_of": Cores::shared().to_string(),
            "connections": CONNECTIONS, "loop": "closed", "value_bytes": [1_024, 5_120], "ack": "synced",
            "kills": self.plan.kills, "acknowledged": acknowledged.len(), "not_acknowledged": unanswered,
            "acknowledged_and_lost": 0, "first_refusal": first_refusal,
        });
        let mut case = self.case("kill -9 during PUT 1–5 KiB, synced", own);
        case.rate_per_s = acknowledged.len() as f64 / writing.as_secs_f64();
        case.errors = refused;
        findings.cases.push(case);
        findings.notes.push(format!(
            "kill -9 during PUT at synced, {} times: 0 of {} acknowledged keys lost or changed.",
            self.plan.kills,
            acknowledged.len(),
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Answers each GET on one connection with the next of `answers`.
    fn answering(answers: Vec<Vec<u8>>) -> (SocketAddr, std::thread::JoinHandle<io::Result<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let mut reader = BufReader::new(listener.accept()?.0);
            for answer in answers {
                let mut line = String::new();
                while line != "\r\n" {
                    line.clear();
                    reader.read_line(&mut line)?;
                }
                reader.get_mut().write_all(&answer)?;
            }
            Ok(())
        });
        (address, serving)
    }

    fn answer(status: &str, body: &[u8]) -> Vec<u8> {
        let head = format!("HTTP/1.1 {status}\r\nETag: \"1\"\r\ncontent-length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }

    #[test]
    fn missing_and_changed_values_are_told_from_those_that_are_there() {
        let values = Values::random();
        let answers =
            vec![answer("200 OK", values.get(0)), answer("404 Not Found", b"{}"), answer("200 OK", values.get(7))];
        let (address, serving) = answering(answers);
        assert_eq!(lost(address, &values, &[0, 1, 2]).unwrap(), Lost { missing: 1, changed: 1 });
        serving.join().unwrap().unwrap();
    }

    #[test]
    fn only_what_was_acknowledged_counts_and_the_end_of_the_server_ends_the_writer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let mut reader = BufReader::new(listener.accept()?.0);
            for status in ["201 Created", "503 Service Unavailable", "200 OK"] {
                let (mut line, mut length) = (String::new(), 0);
                while line != "\r\n" {
                    line.clear();
                    reader.read_line(&mut line)?;
                    if let Some(value) = line.strip_prefix("Content-Length: ") {
                        length = value.trim().parse().map_err(io::Error::other)?;
                    }
                }
                io::copy(&mut reader.by_ref().take(length), &mut io::sink())?;
                reader.get_mut().write_all(&answer(status, b"{}"))?;
            }
            io::Result::Ok(())
        });
        let writes = write_until_it_ends(address, &Values::random(), &AtomicU64::new(10));
        assert_eq!((writes.acknowledged, writes.refused), (vec![10, 12], 1));
        assert_eq!(writes.first_refusal.as_deref(), Some("503: {}"));
        serving.join().unwrap().unwrap();
    }
}
