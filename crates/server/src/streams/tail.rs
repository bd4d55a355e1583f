//! `GET /api/streams/{stream}`: serves a page, server-sent events or a WebSocket from one reader.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, UPGRADE};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use memchr::memmem::Finder;
use millstream_http::{
    Caller, Event, EventSender, KEEP_ALIVE, Path, Problem, Query, Reach, Reason, Shutdown, Wildcard, check_origin,
    event_stream,
};
use millstream_log::{Bell, Error, PARTITIONS_MAX, Topic};
use millstream_types::{ErrorCode, Grant, Place, TenantId, TopicName};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::filter::RecordFilter;
use super::reader::{Positions, ReadRequest, ReadStep, Reader, Refused, STEP_BYTES, TailItem};
use super::{Streams, TAILS_MAX, bad_parameter, is_audit, problem, unknown};
use crate::audit;

/// Default number of records on a page.
const PAGE_RECORDS: u64 = 100;
const PAGE_RECORDS_MAX: u64 = 1_000;
/// A page ends early after this many bytes returned or read.
const PAGE_BYTES: usize = 1 << 20;
const PAGE_READ_BYTES: usize = 32 << 20;
/// Limit of steps in the socket's queue.
const STEPS_WAITING_MAX: usize = 1;
/// Memory reserved for an open tail: the step being read and the waiting ones. A larger record takes
/// additional memory while it waits.
const TAIL_BYTES: u64 = (STEP_BYTES * (STEPS_WAITING_MAX + 2)) as u64;
/// Memory of a page per partition: the read position and its entry in `next`.
const PAGE_PARTITION_BYTES: u64 = 128;
/// Time limit of a WebSocket write.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of a WebSocket client's message; clients send only control frames.
const HEARD_MAX_BYTES: usize = 1 << 10;

/// The parameters of a request, of which only the filters are parsed.
#[derive(Debug, Default)]
struct TailParameters {
    from: Option<String>,
    until: Option<String>,
    partition: Option<String>,
    limit: Option<String>,
    filter: RecordFilter,
}

impl TailParameters {
    fn read(query: Vec<(String, String)>) -> Result<Self, Problem> {
        let mut parameters = Self::default();
        for (name, value) in query {
            let once = match name.as_str() {
                "from" => &mut parameters.from,
                "until" => &mut parameters.until,
                "partition" => &mut parameters.partition,
                "limit" => &mut parameters.limit,
                "key" => {
                    parameters.filter.keys.push(Wildcard::from(&*value));
                    continue;
                }
                "contains" if !value.is_empty() => {
                    parameters.filter.texts.push(Finder::new(&value).into_owned());
                    continue;
                }
                "contains" => return Err(bad_parameter("contains", "", "give a text of at least one character")),
                other => {
                    let Some(header) = other.strip_prefix("header.").filter(|header| !header.is_empty()) else {
                        return Err(bad_parameter(
                            other,
                            &value,
                            "use from, until, partition, limit, key, contains or header.NAME",
                        ));
                    };
                    parameters.filter.headers.push((header.to_owned(), Wildcard::from(&*value)));
                    continue;
                }
            };
            if once.is_some() {
                return Err(bad_parameter(&name, &value, "give it once"));
            }
            *once = Some(value);
        }
        Ok(parameters)
    }
}

pub(super) async fn tail(
    State(streams): State<Arc<Streams>>,
    caller: Caller,
    Path(stream): Path<String>,
    Query(query): Query<Vec<(String, String)>>,
    shutdown: Shutdown,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let topic = streams.topic(&stream, &caller)?;
    let mut parameters = TailParameters::read(query)?;
    if is_audit(&topic.name) && caller.reach() == Reach::OneTenant {
        let own = (audit::TENANT_HEADER.to_owned(), Wildcard::from(caller.tenant.as_str()));
        parameters.filter.headers.push(own);
    }
    if headers.contains_key(UPGRADE) {
        let upgrade = upgrade.map_err(|refusal| {
            Problem::invalid(refusal.body_text())
                .value("upgrade")
                .rule("RFC 6455")
                .remedy("use a WebSocket client, or leave the header Upgrade out")
        })?;
        // Browsers let any page open a WebSocket to any host.
        check_origin(&headers, None)?;
        let wanted = wanted(parameters, None, Positions::OfEachItem)?;
        let tail = Tail::open(&streams, topic, wanted).await?;
        let upgrade = upgrade.max_message_size(HEARD_MAX_BYTES).max_frame_size(HEARD_MAX_BYTES);
        return Ok(upgrade.on_upgrade(move |socket| tail.send_messages(socket, shutdown)));
    }
    serve(&streams, topic, parameters, shutdown, &headers).await
}

/// Serves a page, or server-sent events to clients that accept them.
async fn serve(
    streams: &Arc<Streams>,
    topic: Arc<Topic>,
    parameters: TailParameters,
    shutdown: Shutdown,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let accept = headers.get(ACCEPT).map(|value| String::from_utf8_lossy(value.as_bytes())).unwrap_or_default();
    if !accept.to_ascii_lowercase().contains("text/event-stream") {
        return page(streams, topic, wanted(parameters, None, Positions::AtTheEnd)?).await;
    }
    let resumed = headers.get("last-event-id").map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let tail = Tail::open(streams, topic, wanted(parameters, resumed, Positions::OfEachItem)?).await?;
    let (sender, events) = event_stream(STEPS_WAITING_MAX, shutdown);
    tokio::spawn(tail.send_events(sender));
    Ok(events.into_response())
}

/// A read of a topic of Millstream's own.
pub(crate) struct OwnTopicRead<'a> {
    pub(crate) from: Option<String>,
    pub(crate) until: Option<String>,
    pub(crate) limit: Option<String>,
    /// A pattern for the keys.
    pub(crate) key: Option<String>,
    /// The name and the value of a header of all records that are served.
    pub(crate) header: (&'static str, &'a str),
}

impl Streams {
    /// Serves some records of a topic of Millstream's own.
    pub(crate) async fn serve_own(
        self: &Arc<Self>,
        name: &TopicName,
        OwnTopicRead { from, until, limit, key, header }: OwnTopicRead<'_>,
        shutdown: Shutdown,
        headers: &HeaderMap,
    ) -> Result<Response, Problem> {
        let topic = self.log.topic(name).ok_or_else(|| unknown(name))?;
        let filter = RecordFilter {
            keys: key.iter().map(|key| Wildcard::from(&**key)).collect(),
            headers: vec![(header.0.to_owned(), Wildcard::from(header.1))],
            ..RecordFilter::default()
        };
        serve(self, topic, TailParameters { from, until, partition: None, limit, filter }, shutdown, headers).await
    }
}

fn wanted(parameters: TailParameters, resumed: Option<String>, positions: Positions) -> Result<ReadRequest, Problem> {
    let place = |name: &str, text: &str| text.parse::<Place>().map_err(|rule| bad_parameter(name, text, rule));
    let from = match (resumed.as_deref().filter(|id| !id.is_empty()), &parameters.from) {
        (Some(id), _) => place("Last-Event-ID", id)?,
        (None, Some(from)) => place("from", from)?,
        // A page starts with the earliest records, a tail with new ones.
        (None, None) if positions == Positions::AtTheEnd => Place::Earliest,
        (None, None) => Place::Latest,
    };
    let until = parameters.until.as_deref().map(|until| place("until", until)).transpose()?;
    let listed = parameters.partition.as_deref().into_iter().flat_map(|list| list.split(','));
    let ranges = listed.map(|range| {
        let rule = || format!("use numbers and ranges below {PARTITIONS_MAX}, such as 0 or 0,2 or 0-127");
        partitions(range).ok_or_else(|| bad_parameter("partition", range, rule()))
    });
    let limit = parameters.limit.as_deref().map(|limit| match limit.parse() {
        Ok(limit) if limit > 0 => Ok(limit),
        _ => Err(bad_parameter("limit", limit, "use a number from 1 on")),
    });
    let (ranges, limit) = (ranges.collect::<Result<Vec<_>, _>>()?, limit.transpose()?);
    if ranges.iter().map(|range| range.clone().count()).sum::<usize>() > PARTITIONS_MAX as usize {
        let rule = format!("a topic has at most {PARTITIONS_MAX} partitions; name each once");
        return Err(bad_parameter("partition", parameters.partition.as_deref().unwrap_or_default(), rule));
    }
    let partitions = ranges.into_iter().flatten().collect();
    Ok(ReadRequest { from, until, partitions, limit, filter: parameters.filter, positions })
}

/// Parses a partition such as `2`, or a range such as `0-127`; returns `None` beyond the partition limit.
fn partitions(text: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = first.parse().ok()?..=last.parse().ok()?;
    (!range.is_empty() && *range.end() < PARTITIONS_MAX).then_some(range)
}

async fn page(streams: &Arc<Streams>, topic: Arc<Topic>, mut wanted: ReadRequest) -> Result<Response, Problem> {
    let limit = wanted.limit.unwrap_or(PAGE_RECORDS);
    if limit > PAGE_RECORDS_MAX {
        let rule = format!("a page has at most {PAGE_RECORDS_MAX} records; 'next' says where the following one begins");
        return Err(bad_parameter("limit", &limit.to_string(), rule));
    }
    wanted.limit = Some(limit);
    let mut tail = Tail::open(streams, topic, wanted).await?;
    let (mut items, mut bytes, mut read_bytes) = (Vec::new(), 0, 0);
    loop {
        let step = tail.step().await?;
        bytes += step.items.iter().map(|item| item.json.len()).sum::<usize>();
        read_bytes += step.read_bytes;
        let is_at_end = step.items.is_empty() && step.read_bytes == 0;
        let last = is_at_end || step.done || bytes >= PAGE_BYTES || read_bytes >= PAGE_READ_BYTES;
        items.extend(step.items);
        if last {
            break;
        }
    }
    let _held = tail.hold(bytes)?;
    let next = &tail.position;
    let of = |kind: &str| {
        let texts: Vec<&str> = items.iter().filter(|item| item.kind == kind).map(|item| item.json.as_str()).collect();
        texts.join(",")
    };
    let body = format!("{{\"records\":[{}],\"gaps\":[{}],\"next\":\"{next}\"}}", of("record"), of("gap"));
    Ok(([(axum::http::header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// An open tail: a reader with its memory.
struct Tail {
    streams: Arc<Streams>,
    /// The tenant of the topic.
    tenant: TenantId,
    /// `None` while a blocking thread uses it.
    reader: Option<Reader>,
    /// The result of that thread; it is kept if the caller stops waiting.
    reading: Option<oneshot::Receiver<(Reader, Result<ReadStep, Error>)>>,
    /// The position before the last step.
    before: String,
    position: String,
    bell: Arc<Bell>,
    _place: OwnedSemaphorePermit,
    _memory: Grant,
}

impl Tail {
    async fn open(streams: &Arc<Streams>, topic: Arc<Topic>, wanted: ReadRequest) -> Result<Self, Problem> {
        let too_many = |detail: &'static str, rule: String| {
            Problem::new(Reason::Code(ErrorCode::Overloaded), detail)
                .value(TAILS_MAX - streams.tails.available_permits())
                .rule(rule)
                .remedy("close a tail, or try again later")
        };
        let place = streams.tails.clone().try_acquire_owned();
        let place = place.map_err(|_| too_many("as many tails are open as may", format!("at most {TAILS_MAX}")))?;
        let memory = &streams.memory;
        let of_partitions = match wanted.positions {
            Positions::OfEachItem => 0,
            Positions::AtTheEnd => u64::from(topic.config.partitions) * PAGE_PARTITION_BYTES,
        };
        let grant = memory.take(TAIL_BYTES + of_partitions).ok_or_else(|| {
            too_many("no memory for another tail", format!("{} = {}", memory.setting(), memory.limit_bytes()))
        })?;
        let (log, wall, bell) = (streams.log.clone(), streams.wall.clone(), Arc::new(Bell::of_consumer()));
        let rung = Arc::clone(&bell);
        let tenant = topic.name.tenant().clone();
        let opened = streams.on_thread(&tenant, move || {
            let mut reader = Reader::open(log.as_ref(), &topic, &wanted, &wall)?;
            reader.watch(&rung, &wanted, topic, log);
            Ok(reader)
        });
        let reader = opened.await?.map_err(|refused| match refused {
            Refused::Wanted { name, value, rule } => bad_parameter(name, &value, rule),
            Refused::Log(error) => problem(&error),
        })?;
        let (streams, position) = (streams.clone(), reader.position());
        let before = position.clone();
        Ok(Self {
            streams,
            tenant,
            reader: Some(reader),
            reading: None,
            before,
            position,
            bell,
            _place: place,
            _memory: grant,
        })
    }

    /// Returns the next step. A caller that stops waiting can call again without loss.
    async fn step(&mut self) -> Result<ReadStep, Problem> {
        if let Some(mut reader) = self.reader.take() {
            let work = move || {
                let step = reader.step();
                (reader, step)
            };
            self.reading = Some(self.streams.submit(&self.tenant, work)?);
        }
        let Some(reading) = &mut self.reading else { return Err(problem(&Error::Stopped)) };
        let ended = reading.await;
        self.reading = None;
        let (reader, step) = ended.map_err(|_| problem(&Error::Stopped))?;
        self.before = std::mem::replace(&mut self.position, reader.position());
        self.reader = Some(reader);
        step.map_err(|error| problem(&error))
    }

    /// Reserves memory for a step of so many bytes beyond the base of each tail.
    fn hold(&self, bytes: usize) -> Result<Option<Arc<Grant>>, Problem> {
        let more = bytes.saturating_sub(STEP_BYTES) as u64;
        if more == 0 {
            return Ok(None);
        }
        let memory = &self.streams.memory;
        // Twice, for the step as read and as sent.
        let grant = memory.take(2 * more).ok_or_else(|| {
            Problem::new(Reason::Code(ErrorCode::Overloaded), "no memory for a record of this size")
                .value(format!("{bytes} bytes"))
                .rule(format!("{} = {}", memory.setting(), memory.limit_bytes()))
                .remedy("go on from this position later, or raise the limit")
        })?;
        Ok(Some(Arc::new(grant)))
    }

    /// Returns the items with their memory, or, if there is no memory, the failure as the last item.
    fn held<T>(
        &self,
        items: Vec<TailItem>,
        last: bool,
        told: impl Fn(&[TailItem]) -> (T, usize),
    ) -> (T, Option<Arc<Grant>>, bool) {
        let (sent, bytes) = told(&items);
        match self.hold(bytes) {
            Ok(grant) => (sent, grant, last),
            Err(refusal) => (told(&[TailItem::failed(self.before.clone(), refusal.text())]).0, None, true),
        }
    }

    /// Waits for the next items; also tells if they are the last.
    async fn next(&mut self) -> (Vec<TailItem>, bool) {
        loop {
            match self.step().await {
                Ok(mut step) if step.done => {
                    step.items.push(TailItem::end(self.position.clone()));
                    return (step.items, true);
                }
                Ok(step) if step.items.is_empty() && step.read_bytes == 0 => self.bell.rung().await,
                Ok(step) if step.items.is_empty() => {}
                Ok(step) => return (step.items, false),
                Err(refusal) => return (vec![TailItem::failed(self.position.clone(), refusal.text())], true),
            }
        }
    }

    /// Sends server-sent events until the tail ends or the client leaves.
    async fn send_events(mut self, sender: EventSender) {
        loop {
            // Nothing is read while the client has not taken the previous step.
            sender.room().await;
            let (items, last) = tokio::select! {
                next = self.next() => next,
                () = sender.ended() => return,
            };
            let (event, held, last) = self.held(items, last, |items| {
                let events = items.iter().map(|item| (Some(&*item.position), Some(item.kind), &*item.json));
                let event = Event::several(events);
                let bytes = event.size_bytes();
                (event, bytes)
            });
            if sender.send(event.holding(held)).await.is_err() || last {
                return;
            }
        }
    }

    /// Sends WebSocket messages until the tail ends or the client leaves.
    async fn send_messages(mut self, mut socket: WebSocket, shutdown: Shutdown) {
        let mut stopping = std::pin::pin!(shutdown.begun());
        let mut alive = tokio::time::interval(KEEP_ALIVE);
        loop {
            let (items, last) = tokio::select! {
                next = self.next() => next,
                heard = socket.recv() => match heard {
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                    Some(Ok(_)) => continue,
                },
                _ = alive.tick() => (Vec::new(), false),
                () = &mut stopping => return close(socket, close_code::AWAY, "the server stops").await,
            };
            let (messages, _held, last) = self.held(items, last, |items| {
                let messages: Vec<_> = items.iter().map(TailItem::message).collect();
                let bytes = messages.iter().map(String::len).sum();
                (messages, bytes)
            });
            if messages.is_empty() && !send(&mut socket, Message::Ping(Default::default())).await {
                return;
            }
            for message in messages {
                if !send(&mut socket, Message::text(message)).await {
                    return;
                }
            }
            if last {
                return close(socket, close_code::NORMAL, "").await;
            }
            // The client's close frame is noticed even while there is much to send.
            if let Some(None | Some(Ok(Message::Close(_)) | Err(_))) = socket.recv().now_or_never() {
                return;
            }
        }
    }
}

/// Tells if the client has taken the message.
async fn send(socket: &mut WebSocket, message: Message) -> bool {
    matches!(tokio::time::timeout(SEND_TIMEOUT, socket.send(message)).await, Ok(Ok(())))
}

async fn close(mut socket: WebSocket, code: u16, reason: &'static str) {
    let frame = CloseFrame { code, reason: reason.into() };
    // The client may be gone.
    let _ = send(&mut socket, Message::Close(Some(frame))).await;
}
