//! The job of `millstream demo`: finds the hot hours of the weather stations.

use bytes::Bytes;
use hyper::Method;
use millstream_cli::{Server, accepted};

const DOCUMENT: &str = include_str!("../../../examples/jobs/hot-hours.yaml");
/// The topics that the job writes to.
const TOPICS: [&str; 2] = ["hot-hours", "hot-hours-errors"];

/// Creates the job's topics and submits its document.
pub(crate) async fn submit(server: &Server) -> anyhow::Result<()> {
    for topic in TOPICS {
        server.answered(Method::PUT, &format!("/api/streams/{topic}"), "{}".to_owned()).await?;
    }
    let document = Bytes::from_static(DOCUMENT.as_bytes());
    let answer = server.send_typed(Method::POST, "/api/jobs", document, "application/yaml", "application/json").await?;
    accepted(answer).await.map(drop)
}
