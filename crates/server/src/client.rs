//! A client of one request: what the command line asks a running server.

use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a running server is and who asks.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Server {
    /// The server's applications listener
    #[arg(long, global = true, value_name = "URL", env = "MILLSTREAM_SERVER", default_value = "http://127.0.0.1:8000")]
    server: String,
    /// API token; needed where tokens are configured
    #[arg(long, global = true, value_name = "TOKEN", env = "MILLSTREAM_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Tenant
    #[arg(long, global = true, value_name = "TENANT", default_value = "default")]
    tenant: String,
}

impl Server {
    /// The tenant in which requests act.
    pub(crate) fn tenant(&self) -> &str {
        &self.tenant
    }

    /// [`Server::send`] with POST.
    pub(crate) async fn post(&self, path: &str, body: String, accept: &str) -> anyhow::Result<Response<Incoming>> {
        self.send(Method::POST, path, body, accept).await
    }

    /// Sends `body`, if there is any, as JSON; the answer has arrived up to its head.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: String,
        accept: &str,
    ) -> anyhow::Result<Response<Incoming>> {
        let uri: Uri = self.server.parse().with_context(|| format!("--server {} is no URL", self.server))?;
        let (Some(host), Some("http")) = (uri.host(), uri.scheme_str()) else {
            bail!("--server {}: use http://HOST:PORT", self.server);
        };
        let address = format!("{host}:{}", uri.port_u16().unwrap_or(80));
        let socket = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&address))
            .await
            .with_context(|| format!("no answer from {address} within {CONNECT_TIMEOUT:?}"))?
            .with_context(|| format!("cannot connect to {address}; is 'millstream serve' running there?"))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &address)
            .header(ACCEPT, accept)
            .header("Fiware-Service", &self.tenant);
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        Ok(sender.send_request(request.body(Full::new(Bytes::from(body)))?).await?)
    }
}

/// One server-sent event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) data: String,
}

/// Reads server-sent events from an answer.
pub(crate) struct Events {
    body: Incoming,
    waiting: Waiting,
}

impl Events {
    pub(crate) fn of(answer: Response<Incoming>) -> Self {
        Self { body: answer.into_body(), waiting: Waiting::default() }
    }

    /// The next event; `None` at the end of the answer.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Event>> {
        loop {
            while let Some(block) = self.waiting.next_block() {
                let text = std::str::from_utf8(&block).context("event is not UTF-8")?;
                if let Some(event) = parse_event(text) {
                    return Ok(Some(event));
                }
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame.context("the server broke off")?.into_data() {
                        self.waiting.bytes.extend_from_slice(&data);
                    }
                }
                None => return Ok(None),
            }
        }
    }
}

/// What has arrived and was not taken. Each byte is looked at once, and moved only as the buffer grows.
#[derive(Default)]
struct Waiting {
    bytes: BytesMut,
    /// No block ends before here.
    searched: usize,
}

impl Waiting {
    /// The lines up to the next empty one, and that; `None` if they have not all arrived.
    fn next_block(&mut self) -> Option<BytesMut> {
        let end = self.bytes[self.searched..].windows(2).position(|two| two == b"\n\n");
        let Some(end) = end else {
            self.searched = self.bytes.len().saturating_sub(1);
            return None;
        };
        let block = self.bytes.split_to(self.searched + end + 2);
        self.searched = 0;
        Some(block)
    }
}

/// The event in one block of lines; `None` if it is a comment only.
fn parse_event(text: &str) -> Option<Event> {
    let mut name = String::from("message");
    let mut data: Option<String> = None;
    for line in text.lines() {
        if let Some(value) = line.strip_prefix("event: ") {
            value.clone_into(&mut name);
        } else if let Some(value) = line.strip_prefix("data: ") {
            let data = data.get_or_insert_default();
            if !data.is_empty() {
                data.push('\n');
            }
            data.push_str(value);
        }
    }
    data.map(|data| Event { name, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looking at all that waits whenever more arrives would take minutes for this.
    #[test]
    fn an_event_of_many_pieces_is_looked_through_once() {
        let mut waiting = Waiting::default();
        let piece = [b'x'; 1_000];
        for _ in 0..50_000 {
            waiting.bytes.extend_from_slice(&piece);
            assert!(waiting.next_block().is_none());
        }
        waiting.bytes.extend_from_slice(b"\n");
        assert!(waiting.next_block().is_none());
        waiting.bytes.extend_from_slice(b"\nnext\n\n");
        assert_eq!(waiting.next_block().unwrap().len(), 50_000_002);
        assert_eq!(waiting.next_block().unwrap(), b"next\n\n"[..]);
        assert!(waiting.next_block().is_none());
    }

    #[test]
    fn comments_are_passed_over_and_lines_of_data_are_joined() {
        assert_eq!(parse_event(": still here\n"), None);
        let event = parse_event("id: 7\nevent: rows\ndata: {\ndata: }\n").unwrap();
        assert_eq!(event, Event { name: "rows".into(), data: "{\n}".into() });
    }
}
