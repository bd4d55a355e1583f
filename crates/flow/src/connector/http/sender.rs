//! Sends requests one after the other, each until it is taken, refused for good, or tried often enough.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use millstream_types::url_without_secrets;

use super::outgoing::{AllowedResolver, HttpAccess};
use super::request::PostRequest;
use crate::connector::TellPause;

const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_LONGEST: Duration = Duration::from_secs(30);
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Bytes of an answer that are read.
const ANSWER_MAX_BYTES: usize = 64 << 10;
/// Characters of an answer that an error shows.
const EXCERPT_MAX_CHARS: usize = 200;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

type HttpClient = Client<HttpsConnector<HttpConnector<AllowedResolver>>, Full<Bytes>>;

pub(super) struct Sender {
    client: HttpClient,
    uri: Uri,
    /// The URL for log lines and messages.
    shown: String,
    headers: HeaderMap,
    timeout: Duration,
    retries: u32,
    /// Takes the reason why a request is sent again.
    tell_pause: TellPause,
    /// The text of a refusal stands in errors: only if the operator has chosen the targets. Otherwise jobs could read
    /// pages that only this machine can reach.
    shows_answers: bool,
}

/// The reason why a request was given up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SendError {
    pub(super) code: &'static str,
    pub(super) message: String,
}

/// The failure of one attempt.
enum Attempt {
    /// Another one may succeed, not before this time.
    Failed(SendError, Option<Duration>),
    Refused(SendError),
}

impl Sender {
    /// # Errors
    /// TLS cannot be set up.
    pub(super) fn new(
        outgoing: &HttpAccess,
        uri: Uri,
        headers: HeaderMap,
        timeout: Duration,
        retries: u32,
        tell_pause: TellPause,
    ) -> Result<Self, String> {
        let is_tls = uri.scheme_str() == Some("https");
        let tls = if is_tls { outgoing.tls()? } else { HttpAccess::no_tls()? };
        let mut http = HttpConnector::new_with_resolver(AllowedResolver(Arc::clone(&outgoing.targets)));
        http.enforce_http(false);
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .build(builder.https_or_http().enable_http1().wrap_connector(http));
        let shown = url_without_secrets(&uri.to_string());
        let shows_answers = outgoing.is_limited;
        Ok(Self { client, uri, shown, headers, timeout, retries, tell_pause, shows_answers })
    }

    /// Sends a request until it is taken.
    pub(super) async fn send(&self, request: &PostRequest) -> Result<(), SendError> {
        let mut attempts = 0;
        let sent = self.send_again(request, &mut attempts).await;
        if attempts > 0 {
            (self.tell_pause)(None);
        }
        sent
    }

    /// Sends a request until it is taken; counts the attempts that have failed.
    async fn send_again(&self, request: &PostRequest, attempts: &mut u32) -> Result<(), SendError> {
        let mut backoff = BACKOFF_FIRST;
        loop {
            let (failure, wait) = match self.attempt(request).await {
                Ok(()) => return Ok(()),
                Err(Attempt::Refused(error)) => return Err(error),
                Err(Attempt::Failed(error, wait)) => (error, wait),
            };
            *attempts += 1;
            if *attempts > self.retries {
                let message = format!("{}; given up after {attempts} attempts", failure.message);
                return Err(SendError { message, ..failure });
            }
            tracing::debug!(url = self.shown, attempts, error = failure.message, "a request is sent again");
            let (next, most) = (*attempts + 1, self.retries + 1);
            (self.tell_pause)(Some(format!(
                "sends a request again, attempt {next} of {most}, after: {}",
                failure.message
            )));
            tokio::time::sleep(wait.unwrap_or_default().max(backoff).min(BACKOFF_LONGEST)).await;
            backoff = (backoff * 2).min(BACKOFF_LONGEST);
        }
    }

    async fn attempt(&self, request: &PostRequest) -> Result<(), Attempt> {
        let unreached = |why: String| {
            let message = format!("POST {} has no answer: {why}", self.shown);
            Attempt::Failed(SendError { code: "http_unreachable", message }, None)
        };
        let asked = async {
            let response = self.client.request(self.request(request)).await.map_err(|error| causes(&error))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_MAX_BYTES).collect().await;
            Ok((head, body.map(|body| body.to_bytes()).unwrap_or_default()))
        };
        let answered = tokio::time::timeout(self.timeout, asked).await;
        let (head, body) = answered
            .map_err(|_| unreached(format!("timeout after {} ms", self.timeout.as_millis())))?
            .map_err(unreached)?;
        if head.status.is_success() {
            return Ok(());
        }
        let mut message = format!("POST {} is answered {} with {} bytes", self.shown, head.status, body.len());
        if self.shows_answers {
            let excerpt: String = String::from_utf8_lossy(&body).chars().take(EXCERPT_MAX_CHARS).collect();
            message = format!("{message}: {excerpt}");
        }
        let error = SendError { code: "http_status", message };
        if head.status.is_server_error()
            || matches!(head.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
        {
            let seconds = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            return Err(Attempt::Failed(error, seconds.map(Duration::from_secs)));
        }
        Err(Attempt::Refused(error))
    }

    fn request(&self, request: &PostRequest) -> hyper::Request<Full<Bytes>> {
        let mut message = hyper::Request::new(Full::new(request.body.clone()));
        *message.method_mut() = Method::POST;
        *message.uri_mut() = self.uri.clone();
        let headers = message.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Ok(key) = HeaderValue::from_str(&request.key) {
            headers.insert(IDEMPOTENCY_KEY, key);
        }
        headers.extend(self.headers.clone());
        message
    }
}

/// An error with its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
