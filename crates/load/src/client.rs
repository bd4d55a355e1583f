//! One keep-alive HTTP/1.1 connection of a client that sends one request at a time, as a device does.
//!
//! Always true
//! - A request whose outcome is unknown is never sent again; the caller decides ([`RequestFailure::may_have_applied`]).
//! - A request that never left (the server had closed the idle connection) is sent once more over a new connection.
//! - The connection's driving task ends with the connection.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HeaderMap, HeaderName, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::RequestFailure;
use crate::target::ServerTarget;
use crate::transport::connect;

/// Longest response that is read; a longer one counts as a lost connection.
const ANSWER_MAX_BYTES: usize = 1 << 20;

/// Header with the quality of service of telemetry.
pub(crate) const QOS_LEVEL: HeaderName = HeaderName::from_static("qos-level");

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
