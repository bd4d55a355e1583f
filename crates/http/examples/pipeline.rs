//! Measures the pipeline's cost: a PUT with a small body through the pipeline, and through bare axum, each on one
//! thread.
//!
//! ```text
//! cargo run --release -p millstream-http --example pipeline [pipeline|axum]
//! wrk -t1 -c64 -d10 -s put.lua http://127.0.0.1:PORT/things/bucket/7
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::StatusCode;
use millstream_http::{
    Access, Api, Caller, Content, Limits, Listener, ListenerLimits, LoopbackApplications, Metrics, Path, Payload,
    Route, Routes,
};
use millstream_types::{MemoryBudget, Role};
use tokio::net::TcpListener;

const LIMITS: Limits =
    Limits { body_max_bytes: 2048, body_max_setting: "things.body_max_bytes", timeout: Duration::from_secs(5) };

async fn through_pipeline(
    caller: Caller,
    Path((_, key)): Path<(String, String)>,
    Payload(body): Payload,
) -> StatusCode {
    accept(caller.tenant.as_str(), &key, &body)
}

async fn through_axum(axum::extract::Path((_, key)): axum::extract::Path<(String, String)>, body: Bytes) -> StatusCode {
    accept("default", &key, &body)
}

fn accept(tenant: &str, key: &str, body: &Bytes) -> StatusCode {
    std::hint::black_box((tenant, key, body));
    StatusCode::ACCEPTED
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("axum") {
        let socket = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", socket.local_addr()?);
        let app = axum::Router::new().route("/things/{bucket}/{key}", axum::routing::put(through_axum));
        axum::serve(axum::serve::ListenerExt::tap_io(socket, |tcp| drop(tcp.set_nodelay(true))), app).await?;
        return Ok(());
    }
    let put = Route::put("/things/{bucket}/{key}", Access::Role(Role::Writer), LIMITS, "Keep a thing")
        .param("bucket", "Where.")
        .param("key", "Which.")
        .takes(Content::bytes("application/octet-stream"))
        .answers(202, "Accepted.")
        .to(through_pipeline, ());
    let metrics = Metrics::default();
    let api = Api::builder("things", "Things", "1").with(Routes::new("things").route(put)).build(&metrics)?;
    let anybody = Arc::new(LoopbackApplications::default());
    let listener = Listener::bind("things", "127.0.0.1:0".parse()?, anybody, ListenerLimits::default()).await?;
    println!("{}", listener.address());
    let listener = listener.drawing_on(&MemoryBudget::new("memory.budget_bytes", 1 << 30));
    let _serving = listener.serve(Arc::new(api), &metrics);
    std::future::pending::<()>().await;
    Ok(())
}
