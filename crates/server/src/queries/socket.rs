//! `GET /api/queries/ws`: many live queries over one WebSocket.
//!
//! A query is a message such as `{"tag": "a", "query": "SELECT …", "on_slow": "drop_oldest"}`, and its answers
//! carry the tag: first `opening` or `problem`, then `records` or each `window`, at last `end`. `{"kill": "a"}`
//! ends a query early. When the connection closes, all its queries end except kept ones; `{"tag": "a", "attach":
//! id}` continues a kept one.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use millstream_http::{Caller, KEEP_ALIVE, Problem, Shutdown, check_origin};
use millstream_query::{Deliver, Delivery, Error, Multiplexer, QueryRequest, Subscription};
use millstream_types::TenantId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Queries;
use crate::query_problem::place;

/// Limit of a client's message, the same as that of a request body.
const HEARD_MAX_BYTES: usize = super::ASK_LIMITS.body_max_bytes as usize;
/// Limit of queries that are starting on one connection; beyond it the connection is not read.
const SUBMITTING_MAX: usize = 256;
/// Messages written between two flushes and reads of the socket.
const MESSAGES_PER_FLUSH: usize = 256;
/// Time that a client may stall, unless one of its queries drops the oldest rows.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// A message from the client.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Said {
    Kill {
        kill: String,
    },
    Attach {
        tag: String,
        attach: String,
    },
    Ask {
        tag: String,
        #[serde(flatten)]
        request: Value,
    },
}

/// A starting query, with the number of its tag.
type Submitting = Pin<Box<dyn Future<Output = (u32, Result<Subscription, Error>)> + Send>>;

struct QuerySocket {
    engine: Queries,
    tenant: TenantId,
    /// The name of the client's credentials.
    client: String,
    socket: WebSocket,
    submitting: FuturesUnordered<Submitting>,
    /// By tags, the client's names for them.
    queries: Multiplexer<Subscription>,
    /// The client takes what is written within this time, or is gone.
    send_timeout: Duration,
}

/// The client left or stalled.
struct Gone;

pub(super) async fn open(
    State(engine): State<Queries>,
    caller: Caller,
    shutdown: Shutdown,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let upgrade = upgrade.map_err(|refusal| {
        let problem = Problem::invalid(refusal.body_text()).value("upgrade").rule("RFC 6455");
        problem.remedy("use a WebSocket client, or POST /api/queries")
    })?;
    check_origin(&headers, None)?;
    let (tenant, client) = (caller.tenant.clone(), caller.name.to_string());
    let upgrade = upgrade.max_message_size(HEARD_MAX_BYTES).max_frame_size(HEARD_MAX_BYTES);
    Ok(upgrade.on_upgrade(async move |socket| {
        let (submitting, queries) = (FuturesUnordered::new(), Multiplexer::default());
        // A client that is gone needs no message.
        let _ = QuerySocket { engine, tenant, client, socket, submitting, queries, send_timeout: SEND_TIMEOUT }
            .serve(shutdown)
            .await;
    }))
}

impl QuerySocket {
    async fn serve(mut self, shutdown: Shutdown) -> Result<(), Gone> {
        let mut stopping = std::pin::pin!(shutdown.begun());
        let mut alive = tokio::time::interval(KEEP_ALIVE);
        loop {
            tokio::select! {
                heard = self.socket.recv(), if self.submitting.len() < SUBMITTING_MAX => self.hear(heard).await?,
                Some((number, submitted)) = self.submitting.next() => self.begin(number, submitted).await?,
                (number, delivery) = poll_fn(|cx| self.queries.poll_next(cx)) => self.deliver(number, delivery).await?,
                _ = alive.tick() => self.write(Message::Ping(Default::default())).await?,
                () = &mut stopping => return self.stop().await,
            }
            self.write_ready().await?;
            self.flush().await?;
        }
    }

    /// Sends the last results of queries that are not kept, and closes the connection.
    async fn stop(mut self) -> Result<(), Gone> {
        let mut ending = self.queries.streams().filter(|query| query.stop()).count();
        while ending > 0 {
            let (number, delivery) = poll_fn(|cx| self.queries.poll_next(cx)).await;
            let ends = |query: &Subscription| matches!(delivery, Delivery::End(_)) && query.stop();
            ending -= usize::from(self.queries.get(self.queries.name(number)).is_some_and(ends));
            self.deliver(number, delivery).await?;
        }
        let frame = CloseFrame { code: close_code::AWAY, reason: "the server stops".into() };
        self.write(Message::Close(Some(frame))).await?;
        self.flush().await
    }

    /// Writes ready results without waiting, up to a limit.
    async fn write_ready(&mut self) -> Result<(), Gone> {
        for _ in 0..MESSAGES_PER_FLUSH {
            if let Some((number, delivery)) = poll_fn(|cx| self.queries.poll_next(cx)).now_or_never() {
                self.deliver(number, delivery).await?;
            } else if let Some(Some((number, submitted))) = self.submitting.next().now_or_never() {
                self.begin(number, submitted).await?;
            } else {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn hear(&mut self, heard: Option<Result<Message, axum::Error>>) -> Result<(), Gone> {
        let text = match heard {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Gone),
            Some(Ok(_)) => return Ok(()),
        };
        match serde_json::from_str(&text) {
            Ok(Said::Kill { kill }) => {
                if let Some(query) = self.queries.get(&kill) {
                    // The query may have ended meanwhile.
                    let _ = self.engine.kill(&self.tenant, query.id());
                }
                Ok(())
            }
            Ok(Said::Attach { tag, attach }) => self.attach(&tag, &attach).await,
            Ok(Said::Ask { tag, request }) => match serde_json::from_value::<QueryRequest>(request) {
                Ok(request) => self.submit(&tag, request).await,
                Err(wrong) => self.refuse(&tag, json!({ "detail": wrong.to_string() })).await,
            },
            Err(_) => {
                let detail = "a message is {\"tag\": name, \"query\": text, …}, {\"tag\": name, \"attach\": id} or {\"kill\": name}";
                self.refuse("", json!({ "detail": detail })).await
            }
        }
    }

    /// Reserves a tag and returns its number; refuses a tag in use and returns `None`.
    async fn take_tag(&mut self, tag: &str) -> Result<Option<u32>, Gone> {
        let number = self.queries.reserve(tag);
        if number.is_none() {
            let detail = format!("tag '{tag}' is in use on this connection; choose another, or end its query first");
            self.refuse(tag, json!({ "detail": detail })).await?;
        }
        Ok(number)
    }

    async fn attach(&mut self, tag: &str, id: &str) -> Result<(), Gone> {
        let Some(number) = self.take_tag(tag).await? else { return Ok(()) };
        match id.parse() {
            Ok(id) => {
                let attached = self.engine.attach(&self.tenant, id);
                self.begin(number, attached).await
            }
            Err(_) => {
                self.queries.remove(number);
                let detail = format!("'{id}' is no query's id, which is a UUID as 'opening' tells it");
                self.refuse(tag, json!({ "detail": detail })).await
            }
        }
    }

    async fn submit(&mut self, tag: &str, request: QueryRequest) -> Result<(), Gone> {
        if matches!(request.deliver, Deliver::Topic(_)) {
            let detail = "results of a query that is asked here come back here; POST /api/queries delivers into topics";
            return self.refuse(tag, json!({ "detail": detail })).await;
        }
        let Some(number) = self.take_tag(tag).await? else { return Ok(()) };
        let (engine, tenant) = (Arc::clone(&self.engine), self.tenant.clone());
        let request = QueryRequest { deliver: Deliver::Sse, submitted_by: Some(self.client.clone()), ..request };
        self.submitting.push(Box::pin(async move { (number, engine.submit(&tenant, request).await) }));
        Ok(())
    }

    async fn begin(&mut self, number: u32, submitted: Result<Subscription, Error>) -> Result<(), Gone> {
        match submitted {
            Ok(subscription) => {
                let opening = json!({ "tag": self.queries.name(number), "opening": subscription.opening() });
                if subscription.drops_oldest() {
                    self.send_timeout = super::STALL_MAX;
                }
                self.queries.begin(number, subscription);
                self.write(Message::text(opening.to_string())).await
            }
            Err(error) => {
                let mut problem = json!({ "code": error.code().as_str(), "detail": error.to_string() });
                if let Error::Refused { diagnostics } = &error {
                    problem["errors"] = diagnostics.iter().map(place).collect();
                }
                let tag = self.queries.name(number).to_owned();
                self.queries.remove(number);
                self.refuse(&tag, problem).await
            }
        }
    }

    async fn deliver(&mut self, number: u32, delivery: Delivery) -> Result<(), Gone> {
        let memory = self.engine.copies().take(&self.tenant, delivery.size_bytes());
        let memory = tokio::time::timeout(self.send_timeout, memory).await.map_err(|_| Gone)?;
        let mut message = format!("{{\"tag\":{},", Value::from(self.queries.name(number))).into_bytes();
        match delivery {
            Delivery::Rows(rows) => {
                message.extend_from_slice(b"\"records\":[");
                rows.write_list(&mut message);
                message.push(b']');
            }
            Delivery::Window(window) => {
                message.extend_from_slice(b"\"window\":");
                message.extend_from_slice(&window.to_json());
            }
            Delivery::End(meta) => {
                self.queries.remove(number);
                message.extend_from_slice(b"\"end\":");
                serde_json::to_writer(&mut message, &meta).expect("writing to memory cannot fail");
            }
        }
        message.push(b'}');
        self.write(Message::text(String::from_utf8_lossy(&message).into_owned())).await?;
        match memory {
            // Nothing large waits behind it meanwhile.
            Some(_taken) => self.flush().await,
            None => Ok(()),
        }
    }

    async fn refuse(&mut self, tag: &str, problem: Value) -> Result<(), Gone> {
        self.write(Message::text(json!({ "tag": tag, "problem": problem }).to_string())).await
    }

    async fn write(&mut self, message: Message) -> Result<(), Gone> {
        in_time(self.send_timeout, self.socket.feed(message)).await
    }

    async fn flush(&mut self) -> Result<(), Gone> {
        in_time(self.send_timeout, self.socket.flush()).await
    }
}

/// Waits for a write within the time limit.
async fn in_time(time: Duration, written: impl Future<Output = Result<(), axum::Error>>) -> Result<(), Gone> {
    match tokio::time::timeout(time, written).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(Gone),
    }
}
