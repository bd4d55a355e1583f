//! One connection: hyper's HTTP/1 state machine and a timer that closes the connection when its peer is too slow.
//!
//! If the listener has routes for the fast head, that serves the connection first, until hyper has to: see [`fast_head`].
//!
//! Each connection has one timer that fires every few seconds and checks the connection's activity;
//! a request sets no timer.

use std::sync::Arc;

use axum::http::HeaderValue;
use axum::http::header::{CONNECTION, DATE, EXPECT};
use bytes::Bytes;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use millstream_net::TransportStream;
use tokio::time::{Instant, sleep_until};

use crate::activity::ConnectionActivity;
use crate::context::ConnectionPeer;
use crate::date::date_header;
use crate::fast_head::{self, AfterFastHead};
use crate::pipeline::Pipeline;
use crate::request_body::{RequestBody, has_arrived};
use crate::socket::MonitoredSocket;

/// Serves a connection until it ends or its peer is too slow. A stopping listener waits only for answers.
pub(crate) async fn serve(socket: TransportStream, client: ConnectionPeer, pipeline: Arc<Pipeline>) {
    let peer = client.peer;
    let activity = Arc::new(ConnectionActivity::new(client.login.clone()));
    let (rest, dismissed) = (Bytes::new(), false);
    let mut socket = MonitoredSocket {
        socket,
        rest,
        in_request_line: true,
        activity: activity.clone(),
        pipeline: pipeline.clone(),
        dismissed,
    };
    if pipeline.api.has_fast_routes {
        match fast_head::serve(&mut socket, &client, activity.clone(), &pipeline).await {
            AfterFastHead::Closed => return,
            AfterFastHead::Hyper(rest) => socket.rest = rest,
        }
    }
    let watched = TokioIo::new(socket);
    let service = service_fn(|request: Request<Incoming>| {
        let (pipeline, activity, client) = (&pipeline, &activity, &client);
        async move {
            let is_asked_for = request.headers().contains_key(EXPECT);
            let request = request.map(|body| RequestBody::new(body, activity.clone()));
            let mut answer = pipeline.handle(client, activity, request).await;
            answer.headers_mut().insert(DATE, date_header(Instant::now()));
            if let Some(body) = activity.take_unread_body() {
                // Asking for a body that waits for a 100 would send one.
                if !is_asked_for && has_arrived(body).await {
                    activity.forget_unread_body();
                } else {
                    // A refusal does not wait for the body, and no other request can follow (RFC 9112, section 9.6).
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
            }
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .half_close(false)
        .header_read_timeout(None)
        .max_buf_size(pipeline.limits.buffer_max_bytes())
        // Without vectored writes hyper copies the pieces; otherwise it would hold the whole answer in memory.
        .writev(false)
        .serve_connection(watched, service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut look = std::pin::pin!(sleep_until(activity.look(&pipeline.limits)));
    let mut stopping = std::pin::pin!(pipeline.shutdown.clone().begun());
    let mut is_stopping = false;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, %error, "connection ended");
                }
                // An upgraded connection lives on, and its bytes are no heads.
                activity.begin_request();
                return;
            }
            () = look.as_mut() => match activity.judge(Instant::now(), &pipeline.limits) {
                Some(next) => look.as_mut().reset(next),
                None => {
                    tracing::debug!(%peer, "connection closed: its peer is idle or too slow");
                    return;
                }
            },
            () = stopping.as_mut(), if !is_stopping => {
                is_stopping = true;
                if activity.lingers() {
                    return;
                }
                // A stopping listener waits only for answers.
                activity.forget_unread_body();
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
