//! A client of one request: what the command line asks a running server.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use millstream_types::TenantId;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::client_tls::Authorities;

const JSON: &str = "application/json";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The address of a running server, and the caller's tenant and token.
#[derive(Debug, Clone, clap::Args)]
pub struct Server {
    /// The server's applications listener
    #[arg(long, global = true, value_name = "URL", env = "MILLSTREAM_SERVER", default_value = "http://127.0.0.1:8000")]
    server: String,
    /// API token; needed where tokens are configured
    #[arg(long, global = true, value_name = "TOKEN", env = "MILLSTREAM_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Authorities to trust beside those of the system, in PEM, where the URL begins with https://
    #[arg(long, global = true, value_name = "FILE", env = "MILLSTREAM_CA")]
    ca: Option<PathBuf>,
    /// Tenant [default: default]
    #[arg(long, global = true, value_name = "TENANT")]
    tenant: Option<String>,
}

impl Server {
    /// The server at `url`, without a token.
    pub fn at(url: &str, tenant: &str) -> Self {
        Self { server: url.to_owned(), token: None, ca: None, tenant: Some(tenant.to_owned()) }
    }

    /// The tenant in which requests act.
    pub fn tenant(&self) -> &str {
        self.tenant.as_deref().unwrap_or(TenantId::DEFAULT)
    }

    /// Calls [`Server::send`] with the method POST.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn post(&self, path: &str, body: String, accept: &str) -> anyhow::Result<Response<Incoming>> {
        self.send(Method::POST, path, body, accept).await
    }

    /// The same server for a request in another tenant.
    pub(crate) fn of_tenant(&self, tenant: &str) -> Self {
        Self { tenant: Some(tenant.to_owned()), ..self.clone() }
    }

    /// The same server for requests in the tenant that a subcommand's argument names; `--tenant` may not name another.
    pub(crate) fn acting_in(&self, tenant: &str) -> anyhow::Result<Self> {
        match &self.tenant {
            Some(other) if other != tenant => bail!(
                "the argument names the tenant {tenant} and --tenant names {other}; leave --tenant out, or name the same"
            ),
            _ => Ok(self.of_tenant(tenant)),
        }
    }

    /// Asks once; the answer's JSON.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the request; the message is its own.
    pub async fn ask(&self, method: Method, path: &str, body: String) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.answered(method, path, body).await?).context("the server sent no JSON")
    }

    /// Asks once; the answer's JSON, or `None` if there is nothing under the path (404).
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the request; the message is its own.
    pub async fn ask_if_any(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let answer = self.send(Method::GET, path, String::new(), JSON).await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&accepted(answer).await?).context("the server sent no JSON")?))
    }

    /// Asks once with a body of JSON; the body of the answer.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the request; the message is its own.
    pub async fn answered(&self, method: Method, path: &str, body: String) -> anyhow::Result<Bytes> {
        accepted(self.send(method, path, body, JSON).await?).await
    }

    /// Sends `body`, if there is any, as JSON; the answer has arrived up to its head.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: String,
        accept: &str,
    ) -> anyhow::Result<Response<Incoming>> {
        self.send_typed(method, path, Bytes::from(body), JSON, accept).await
    }

    /// Sends `body`, if there is any, as `content_type`; the answer has arrived up to its head.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn send_typed(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        content_type: &str,
        accept: &str,
    ) -> anyhow::Result<Response<Incoming>> {
        let content_type = Some((CONTENT_TYPE.as_str(), content_type)).filter(|_| !body.is_empty());
        let headers: Vec<_> = [(ACCEPT.as_str(), accept)].into_iter().chain(content_type).collect();
        self.request(method, path, body, &headers).await
    }

    /// Sends a request with these headers; the answer has arrived up to its head.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<Response<Incoming>> {
        let uri: Uri = self.server.parse().with_context(|| format!("--server {} is no URL", self.server))?;
        let (host, is_tls) = match (uri.host(), uri.scheme_str()) {
            (Some(host), Some("http")) => (host, false),
            (Some(host), Some("https")) => (host, true),
            _ => bail!("--server {}: use http://HOST:PORT or https://HOST:PORT", self.server),
        };
        let address = format!("{host}:{}", uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 }));
        let socket = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&address))
            .await
            .with_context(|| format!("no answer from {address} within {CONNECT_TIMEOUT:?}"))?
            .with_context(|| format!("cannot connect to {address}; is 'millstream serve' running there?"))?;
        // Behind a reverse proxy the server may be below a path.
        let path = format!("{}{path}", uri.path().trim_end_matches('/'));
        let mut request =
            Request::builder().method(method).uri(path).header(HOST, &address).header("Fiware-Service", self.tenant());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body))?;
        match is_tls {
            true => {
                let authorities = Authorities::read("--ca", self.ca.as_deref())?;
                exchange(authorities.connect(socket, host).await?, request).await
            }
            false => exchange(socket, request).await,
        }
    }
}

/// Sends a request over a fresh connection.
///
/// # Errors
/// The connection breaks, or what answers does not speak HTTP.
pub async fn exchange<S, B>(stream: S, request: Request<B>) -> anyhow::Result<Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data: Send, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

/// The body of an answer that is no refusal.
///
/// # Errors
/// The sentence of a refusal, or the connection breaks.
pub async fn accepted(answer: Response<Incoming>) -> anyhow::Result<Bytes> {
    let status = answer.status();
    let body = answer.into_body().collect().await.context("the server broke off")?.to_bytes();
    if !status.is_success() {
        bail!("{}", refusal(status.as_u16(), &body));
    }
    Ok(body)
}

/// The sentence in a refusal: `description` in NGSI's errors, `error` in all others.
pub(crate) fn refusal(status: u16, problem: &[u8]) -> String {
    let problem: Value = serde_json::from_slice(problem).unwrap_or_default();
    let sentence = problem["description"].as_str().or_else(|| problem["error"].as_str());
    sentence.map_or_else(|| format!("refused with status {status}"), str::to_owned)
}

/// A part of a path or query, every character that means something there by its code.
pub fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b',');
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerEvent {
    /// Empty if the event has none.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) data: String,
}

/// Reads server-sent events from an answer.
pub(crate) struct Events {
    body: Incoming,
    waiting: EventBuffer,
}

impl Events {
    pub(crate) fn of(answer: Response<Incoming>) -> Self {
        Self { body: answer.into_body(), waiting: EventBuffer::default() }
    }

    /// The next event; `None` at the end of the answer.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<ServerEvent>> {
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

/// Reads the lines of JSON of a listing, page after page. The last line of a page has the target of the next as `next`.
pub(crate) struct NdjsonLines<'a> {
    server: &'a Server,
    /// The target of the next page.
    target: Option<String>,
    page: Option<Incoming>,
    waiting: BytesMut,
}

impl<'a> NdjsonLines<'a> {
    pub(crate) fn pages(server: &'a Server, target: String) -> Self {
        Self { server, target: Some(target), page: None, waiting: BytesMut::new() }
    }

    /// The next line; `None` behind the last page.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            let Some(page) = &mut self.page else {
                let Some(target) = self.target.take() else { return Ok(None) };
                let answer = self.server.request(Method::GET, &target, Bytes::new(), &[]).await?;
                if !answer.status().is_success() {
                    accepted(answer).await?;
                    bail!("the server answered neither a listing nor a refusal");
                }
                self.page = Some(answer.into_body());
                continue;
            };
            if let Some(end) = line_end(&self.waiting) {
                let line = self.waiting.split_to(end + 1);
                let line: Value = serde_json::from_slice(&line).context("the server sent no JSON")?;
                if let Some(error) = line["error"].as_str() {
                    bail!("{error}");
                }
                match line.get("next") {
                    Some(next) => {
                        self.target = next.as_str().map(str::to_owned);
                        self.page = None;
                    }
                    None => return Ok(Some(line)),
                }
                continue;
            }
            let Some(frame) = page.frame().await else {
                bail!("the listing was cut: its last line is missing; ask again");
            };
            if let Ok(data) = frame.context("the server broke off")?.into_data() {
                self.waiting.extend_from_slice(&data);
            }
        }
    }
}

/// The place of the first line break.
fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}

/// The bytes that have arrived and were not taken. Each byte is looked at once, and moved only as the buffer grows.
#[derive(Default)]
struct EventBuffer {
    bytes: BytesMut,
    /// No block ends before here.
    searched: usize,
}

impl EventBuffer {
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
fn parse_event(text: &str) -> Option<ServerEvent> {
    let mut id = String::new();
    let mut name = String::from("message");
    let mut data: Option<String> = None;
    for line in text.lines() {
        if let Some(value) = line.strip_prefix("event: ") {
            value.clone_into(&mut name);
        } else if let Some(value) = line.strip_prefix("id: ") {
            value.clone_into(&mut id);
        } else if let Some(value) = line.strip_prefix("data: ") {
            let data = data.get_or_insert_default();
            if !data.is_empty() {
                data.push('\n');
            }
            data.push_str(value);
        }
    }
    data.map(|data| ServerEvent { id, name, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looking at all that waits whenever more arrives would take minutes for this.
    #[test]
    fn an_event_of_many_pieces_is_looked_through_once() {
        let mut waiting = EventBuffer::default();
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
        assert_eq!(event, ServerEvent { id: "7".into(), name: "rows".into(), data: "{\n}".into() });
    }
}
