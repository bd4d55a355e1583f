//! One keep-alive HTTP/1.1 connection of a client that sends one request at a time, as a device does.
//!
//! Always true
//! - A request whose outcome is unknown is never sent again; the caller decides ([`RequestFailure::may_have_applied`]).
//! - A request that never left (the server had closed the idle connection) is sent once more over a new connection.
//! - The connection's driving task ends with the connection.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::transport::{ClientTls, connect};
use crate::{Error, RequestFailure};

/// Longest response that is read; a longer one counts as a lost connection.
const ANSWER_MAX_BYTES: usize = 1 << 20;

/// Header with the quality of service of telemetry.
pub(crate) const QOS_LEVEL: HeaderName = HeaderName::from_static("qos-level");

/// URL scheme of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Mqtt,
}

impl Scheme {
    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Mqtt => "mqtt",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Mqtt => 1883,
        }
    }

    /// The scheme of the same protocol over TLS, and its port.
    fn secured(self) -> (&'static str, u16) {
        match self {
            Self::Http => ("https", 443),
            Self::Mqtt => ("mqtts", 8883),
        }
    }
}

/// Address of a server and the timeout of its requests.
#[derive(Debug, Clone)]
pub(crate) struct ServerTarget {
    pub(crate) address: String,
    host: HeaderValue,
    /// Time from sending a request to its complete response.
    pub(crate) request_timeout: Duration,
    /// The handshake that begins a connection, if the server is called by TLS.
    pub(crate) tls: Option<ClientTls>,
}

impl ServerTarget {
    /// The server behind a `SCHEME://host:port` URL that was given with `option`.
    pub(crate) fn parse(
        option: &'static str,
        scheme: Scheme,
        url: &str,
        request_timeout: Duration,
    ) -> Result<Self, Error> {
        Self::read(option, (scheme.name(), scheme.default_port()), url, request_timeout)
    }

    /// The same, also over TLS to a server whose authority is in the file `ca`.
    pub(crate) fn parse_with_ca(
        option: &'static str,
        scheme: Scheme,
        url: &str,
        request_timeout: Duration,
        ca: Option<&Path>,
    ) -> Result<Self, Error> {
        let (name, port) = scheme.secured();
        if url.split_once("://").is_none_or(|(given, _)| given != name) {
            return Self::parse(option, scheme, url, request_timeout);
        }
        let target = Self::read(option, (name, port), url, request_timeout)?;
        let Some(ca) = ca else {
            let rule = format!("{name}:// needs the authority of the server's certificate; name its file with --ca");
            return Err(Error::Option { option, value: url.to_owned(), rule });
        };
        let host = target.address.rsplit_once(':').map_or("", |(host, _)| host);
        let tls = ClientTls::new(host, ca)?;
        Ok(Self { tls: Some(tls), ..target })
    }

    fn read(
        option: &'static str,
        (name, default_port): (&str, u16),
        url: &str,
        request_timeout: Duration,
    ) -> Result<Self, Error> {
        let refuse = |rule: String| Error::Option { option, value: url.to_owned(), rule };
        let uri: Uri = url.parse().map_err(|_| refuse(format!("expected a URL such as {name}://127.0.0.1:8080")))?;
        let host = uri.host().ok_or_else(|| refuse(format!("the URL names no host; expected {name}://HOST:PORT")))?;
        if uri.scheme_str() != Some(name) {
            return Err(refuse(format!("only {name}:// is spoken; use {name}://HOST:PORT")));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(refuse(format!("the URL must not have a path; use {name}://HOST:PORT only")));
        }
        let address = format!("{host}:{}", uri.port_u16().unwrap_or(default_port));
        let host =
            HeaderValue::from_str(&address).map_err(|_| refuse("the host is not legal in a header".to_owned()))?;
        Ok(Self { address, host, request_timeout, tls: None })
    }

    pub(crate) fn host(&self) -> HeaderValue {
        self.host.clone()
    }
}

/// A response with its whole body.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpResponse {
    /// Parses the `Retry-After` header if it is a number of seconds.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
    }

    /// Returns the start of the body as text for an error message.
    pub(crate) fn excerpt(&self) -> String {
        String::from_utf8_lossy(&self.body).chars().take(500).collect()
    }
}

/// A connection that opens on first use and reopens after it was lost.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    target: ServerTarget,
    open: Option<OpenConnection>,
}

#[derive(Debug)]
struct OpenConnection {
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl HttpConnection {
    pub(crate) fn to(target: ServerTarget) -> Self {
        Self { target, open: None }
    }

    pub(crate) fn target(&self) -> &ServerTarget {
        &self.target
    }

    /// Sends `request` and waits for the whole answer. After a failure the next call opens a new connection.
    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<HttpResponse, RequestFailure> {
        let limit = self.target.request_timeout;
        let outcome = match timeout(limit, self.exchange(request)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(RequestFailure::Timeout(limit)),
        };
        if outcome.is_err() {
            self.open = None;
        }
        outcome
    }

    async fn exchange(&mut self, mut request: Request<Full<Bytes>>) -> Result<HttpResponse, RequestFailure> {
        // The server may have closed an idle connection, so that case is retried once; a new connection is not.
        if let Some(open) = &mut self.open
            && open.sender.ready().await.is_ok()
        {
            match open.sender.try_send_request(request).await {
                Ok(response) => return read_answer(response).await,
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(RequestFailure::Lost(Box::new(error.into_error()))),
                },
            }
        }
        self.open = None;
        let open = self.open.insert(open(&self.target).await?);
        let response =
            open.sender.send_request(request).await.map_err(|error| RequestFailure::Lost(Box::new(error)))?;
        read_answer(response).await
    }
}

async fn open(target: &ServerTarget) -> Result<OpenConnection, RequestFailure> {
    let stream = connect(target).await?;
    let (sender, driver) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| RequestFailure::Connect(io::Error::other(error)))?;
    // The pending request reports the error that ends the connection.
    let driver = tokio::spawn(async move { drop(driver.await) }).abort_handle();
    Ok(OpenConnection { sender, driver })
}

async fn read_answer(response: Response<Incoming>) -> Result<HttpResponse, RequestFailure> {
    let (head, body) = response.into_parts();
    let body = match body.is_end_stream() {
        true => Bytes::new(),
        false => Limited::new(body, ANSWER_MAX_BYTES).collect().await.map_err(RequestFailure::Lost)?.to_bytes(),
    };
    Ok(HttpResponse { status: head.status, headers: head.headers, body })
}
