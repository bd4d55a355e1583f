//! A context provider over HTTP, which answers as a test wants.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request that it got.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    serving: JoinHandle<()>,
}

impl Provider {
    /// Answers each request with what `answers` makes of it: a status, and a body.
    pub(crate) async fn answering(answers: impl Fn(&Asked) -> (u16, String) + Send + Sync + 'static) -> Self {
        Self::serving(move |asked| {
            let (status, body) = answers(&asked);
            std::future::ready((StatusCode::from_u16(status).unwrap(), body).into_response())
        })
        .await
    }

    /// The same, with any response, which may take its time.
    pub(crate) async fn serving<F: Future<Output = Response> + Send + 'static>(
        answers: impl Fn(Asked) -> F + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, answers) = (Arc::new(Mutex::new(Vec::new())), Arc::new(answers));
        let asked = seen.clone();
        let handler = move |request: Request| {
            let (seen, answers) = (seen.clone(), answers.clone());
            async move {
                let (parts, body) = request.into_parts();
                let bytes = to_bytes(body, usize::MAX).await.unwrap();
                let header = |(name, value): (&axum::http::HeaderName, &axum::http::HeaderValue)| {
                    (name.as_str().to_owned(), value.to_str().unwrap().to_owned())
                };
                let asked = Asked {
                    target: parts.uri.path_and_query().unwrap().to_string(),
                    headers: parts.headers.iter().map(header).collect(),
                    body: serde_json::from_slice(&bytes).unwrap_or_default(),
                };
                seen.lock().push(asked.clone());
                answers(asked).await
            }
        };
        let router: Router = Router::new().fallback(handler);
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, asked, serving }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Takes the requests so far.
    pub(crate) fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock())
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A response whose body never ends.
pub(crate) fn endless() -> Response {
    Response::new(Body::from_stream(futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>()))
}
