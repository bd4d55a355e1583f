//! A small real HTTP server on the loopback address that answers as a test tells it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// A request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Bytes,
}

/// Reaction of the server to a request.
#[derive(Debug, Clone)]
pub(crate) enum Reaction {
    Answer(u16, &'static str),
    /// 503 with `Retry-After: 0`.
    Busy,
    /// Closes the connection without an answer.
    Close,
}

/// Listens until it is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) connections: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Server {
    pub(crate) async fn start<H, F>(react: H) -> Self
    where
        H: Fn(Seen) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Reaction> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback address has a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let connections = Arc::new(AtomicU64::new(0));
        let opened = connections.clone();
        let accepting = tokio::spawn(async move {
            // Dropped with this task, and with it every connection.
            let mut serving = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("the listener is open");
                opened.fetch_add(1, Ordering::Relaxed);
                let react = react.clone();
                let service = service_fn(move |request| answer(react.clone(), request));
                serving.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { url, connections, accepting }
    }
}

async fn answer<H, F>(react: H, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, std::io::Error>
where
    H: Fn(Seen) -> F,
    F: Future<Output = Reaction>,
{
    let headers = request.headers().iter();
    let headers = headers
        .map(|(name, value)| (name.to_string(), value.to_str().expect("our headers are text").to_owned()))
        .collect();
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let response = Response::builder();
    match react(Seen { method, path, headers, body }).await {
        Reaction::Answer(status, text) => {
            Ok(response.status(status).body(Full::from(text)).expect("the test gives a legal status"))
        }
        Reaction::Busy => {
            Ok(response.status(503).header("retry-after", "0").body(Full::default()).expect("it is legal"))
        }
        Reaction::Close => Err(std::io::ErrorKind::ConnectionReset.into()),
    }
}
