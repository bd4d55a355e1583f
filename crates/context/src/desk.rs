//! Where requests are taken in: what every one of them says, and the way to the owners and back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Request as HttpRequest};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use bytes::Bytes;
use millstream_http::{Caller, Payload, Problem, TraceContext, Workers};
use millstream_types::{ErrorCode, MonotonicClock, TenantId, TopicPartition, WallClock};
use millstream_view::{Error, Views};
use tokio::time::sleep;

use crate::change_details::Origin;
use crate::change_topics::{ChangeTopics, NoTopic};
use crate::condition::{self, Versions};
use crate::deprecations::Deprecations;
use crate::entities::{self, Action, Answer, Command, EntityView, Request};
use crate::entity::Entity;
use crate::op_update::{self, Asked};
use crate::partition_key;
use crate::refusal::{Failure, Refusal};
use crate::request::{self, Parameters, Paths};
use crate::stamps::Stamps;
use crate::stats::Counters;
use crate::subscriptions::{Flow, Flows, Tokens};
use crate::upkeep::Upkeep;
use crate::watch::Watch;

/// Writes of one batch that are with their owners at once.
const BATCH_IN_FLIGHT_MAX: usize = 256;
/// How long such a batch waits when others fill an owner's inbox.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// What all requests share.
pub(crate) struct Desk {
    pub(crate) views: Arc<Views<EntityView>>,
    pub(crate) topics: Arc<ChangeTopics>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) clock: Arc<dyn MonotonicClock>,
    pub(crate) page_max_bytes: usize,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) stamps: Stamps,
    /// When the plane was opened, by `clock`.
    pub(crate) started: Duration,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) flows: Arc<Flows>,
    /// Where bulky lists are rendered.
    pub(crate) background: Workers,
    pub(crate) upkeep: Upkeep,
    pub(crate) deprecations: Deprecations,
    pub(crate) watch: Watch,
}

impl Desk {
    /// Does bulky work where it holds up nobody.
    pub(crate) async fn in_background<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let done = self.background.submit(work).map_err(|full| {
            Problem::from_error(ErrorCode::Overloaded, &full)
                .value(full.waiting)
                .rule("context.lists_max_waiting")
                .remedy("ask again later, or for pages of at most 64")
                .retry_after(Duration::from_secs(1))
        })?;
        done.await.map_err(|_| Problem::from_error(ErrorCode::Unavailable, &Stopping))
    }
}

/// The process ends, and with it the threads that render lists.
#[derive(Debug, thiserror::Error)]
#[error("the server is stopping; ask again when it is back")]
struct Stopping;

/// What a request says beside its body. An extractor; refuses what is wrong whatever the route.
pub(crate) struct Ask {
    pub(crate) tenant: TenantId,
    headers: HeaderMap,
    query: Option<Box<str>>,
    trace: TraceContext,
}

impl<S: Sync> FromRequestParts<S> for Ask {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let caller = Caller::from_request_parts(parts, state).await?;
        let trace = TraceContext::from_request_parts(parts, state).await?;
        let target = (parts.uri.path(), parts.uri.query());
        Self::new(caller.tenant.clone(), parts.headers.clone(), target, trace)
    }
}

impl Ask {
    /// Refuses what is wrong whatever the route.
    pub(crate) fn new(
        tenant: TenantId,
        headers: HeaderMap,
        (path, query): (&str, Option<&str>),
        trace: TraceContext,
    ) -> Result<Self, Failure> {
        request::check_service(&headers)?;
        if !request::is_of_value(path) {
            request::check_accept(&headers)?;
        }
        Ok(Self { tenant, headers, query: query.map(Into::into), trace })
    }

    /// The query's parameters, given those that the route has.
    pub(crate) fn parameters(&self, parameters: &[&str], options: &[&str]) -> Result<Parameters, Refusal> {
        Parameters::read(self.query.as_deref(), parameters, options)
    }

    /// Whose request it is, for whoever is told of what it changes.
    pub(crate) fn origin(&self, tokens: &Tokens, flow: Option<&Flow>) -> Origin {
        let given = self.headers.get(&request::CORRELATOR).filter(|value| !value.is_empty());
        let correlator = match given {
            Some(given) => given.to_str().unwrap_or_default().into(),
            None => std::str::from_utf8(&self.trace.id_text()).unwrap_or_default().into(),
        };
        let token = self.headers.get(&request::AUTH_TOKEN).and_then(|value| value.to_str().ok());
        Origin {
            correlator,
            token: token.filter(|token| !token.is_empty()).map(|token| tokens.keep(token)),
            flow: flow.map(|flow| flow.number),
            is_forced: self.has_option("forcedUpdate"),
        }
    }

    /// Whether its answer is to wait for the notifications that it leads to.
    fn is_flow_controlled(&self) -> bool {
        self.has_option("flowControl")
    }

    fn has_option(&self, wanted: &str) -> bool {
        request::has_option(self.query.as_deref(), wanted)
    }

    /// The service path header, if there is one.
    pub(crate) fn path(&self) -> Result<Option<&str>, Refusal> {
        request::path_header(&self.headers)
    }

    /// Whether the client has this version of the entity already.
    pub(crate) fn knows(&self, entity: &Entity) -> bool {
        condition::is_known(&self.headers, entity)
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The service paths that a read looks at.
    pub(crate) fn paths(&self) -> Result<Paths, Refusal> {
        request::read_paths(&self.headers)
    }
}

/// The body of a request that needs one. An extractor.
pub(crate) struct JsonText(pub(crate) Bytes);

impl<S: Sync> FromRequest<S> for JsonText {
    type Rejection = Failure;

    async fn from_request(request: HttpRequest, state: &S) -> Result<Self, Failure> {
        Self::check(request.headers())?;
        let Payload(bytes) = Payload::from_request(request, state).await?;
        Ok(Self(bytes))
    }
}

/// A body that a request's headers announce.
pub(crate) trait Announced {
    /// Refuses a body that is not what the route takes.
    fn check(headers: &HeaderMap) -> Result<(), Failure>;
    /// What has come.
    fn of(bytes: Bytes) -> Self;
}

impl Announced for JsonText {
    fn check(headers: &HeaderMap) -> Result<(), Failure> {
        request::check_length(headers)?;
        Ok(request::check_type(headers)?)
    }

    fn of(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

/// The body of a value: JSON, or text. An extractor.
pub(crate) struct ValueText(pub(crate) Bytes);

impl<S: Sync> FromRequest<S> for ValueText {
    type Rejection = Failure;

    async fn from_request(request: HttpRequest, state: &S) -> Result<Self, Failure> {
        Self::check(request.headers())?;
        let Payload(bytes) = Payload::from_request(request, state).await?;
        Ok(Self(bytes))
    }
}

impl Announced for ValueText {
    fn check(headers: &HeaderMap) -> Result<(), Failure> {
        request::check_length(headers)?;
        if !request::is_text(headers) {
            request::check_type(headers)?;
        }
        Ok(())
    }

    fn of(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl Desk {
    /// Hands a write to the owner of the entity `id`; answered once it is durable.
    pub(crate) async fn write(self: &Arc<Self>, ask: &Ask, id: &str, action: Action) -> Result<Answer, Failure> {
        let started = self.clock.now();
        let path = request::write_path(&ask.headers)?;
        self.deprecations.note(&ask.tenant, &action);
        let tell = self.tell(&ask.tenant, id).await?;
        let owner = self.views.partition_of(&partition_key(&ask.tenant, id));
        let flow = self.flow(ask);
        let (tenant, versions, origin) =
            (ask.tenant.clone(), Versions::of_write(&ask.headers), ask.origin(&self.tokens, flow.as_ref()));
        let request = Request { tenant, path, tell, versions, origin, at_us: self.stamps.next(), action };
        match self.noted(self.views.ask(owner, Command::Request(Box::new(request))).await)? {
            Answer::Refused(refusal) => Err(refusal.into()),
            answer => {
                self.counters.updated(self.clock.now().saturating_sub(started));
                if let Some(flow) = flow {
                    self.flows.wait(flow, 1).await;
                }
                Ok(answer)
            }
        }
    }

    /// Hands writes of several entities to their owners, in order; answered once all are durable. What has begun waits for
    /// room, so that a batch is refused whole or not at all.
    pub(crate) async fn write_all(self: &Arc<Self>, ask: &Ask, asked: Vec<Asked>) -> Result<(), Failure> {
        let path = request::write_path(&ask.headers)?;
        if Versions::of_write(&ask.headers).is_some() {
            return Err(
                Refusal::bad("If-Match: a batch has no version; leave it out, or write entity by entity").into()
            );
        }
        let (count, mut refused) = (asked.len(), Vec::new());
        let flow = self.flow(ask);
        let (mut waiting, mut has_begun) = (VecDeque::new(), false);
        for (named, action) in asked {
            if waiting.len() >= BATCH_IN_FLIGHT_MAX
                && let Some(first) = waiting.pop_front()
            {
                self.answered(first, &mut refused).await?;
            }
            let id = action.id().clone();
            self.deprecations.note(&ask.tenant, &action);
            let tell = self.tell(&ask.tenant, &id).await?;
            let owner = self.views.partition_of(&partition_key(&ask.tenant, &id));
            let (tenant, path) = (ask.tenant.clone(), path.clone());
            let (origin, at_us) = (ask.origin(&self.tokens, flow.as_ref()), self.stamps.next());
            let request = Request { tenant, path, tell, versions: None, origin, at_us, action };
            let started = self.clock.now();
            let mut command = Command::Request(Box::new(request));
            let answer = loop {
                command = match self.views.offer(owner, command) {
                    Ok(answer) => break answer,
                    // Nothing has been taken yet if there is nothing to wait for.
                    Err((full, back)) if has_begun && full.is_full() => back,
                    Err((refusal, _)) => return self.noted(Err(refusal)).map(drop),
                };
                // Room comes with answers, its own first.
                match waiting.pop_front() {
                    Some(first) => self.answered(first, &mut refused).await?,
                    None => sleep(FULL_PAUSE).await,
                }
            };
            has_begun = true;
            waiting.push_back((named, started, answer));
        }
        for one in waiting {
            self.answered(one, &mut refused).await?;
        }
        if let Some(flow) = flow.filter(|_| refused.is_empty()) {
            self.flows.wait(flow, count).await;
        }
        Ok(op_update::combined(count, refused)?)
    }

    /// For an update whose answer waits for its notifications.
    fn flow(&self, ask: &Ask) -> Option<Flow> {
        ask.is_flow_controlled().then(|| self.flows.begin()).flatten()
    }

    async fn answered(
        &self,
        (named, started, answer): (String, Duration, millstream_view::Answer<EntityView>),
        refused: &mut Vec<(String, Refusal)>,
    ) -> Result<(), Failure> {
        match self.noted(answer.await.unwrap_or(Err(Error::Stopped)))? {
            Answer::Refused(refusal) => refused.push((named, refusal)),
            _ => self.counters.updated(self.clock.now().saturating_sub(started)),
        }
        Ok(())
    }

    /// An owner's answer, after a look whether the log takes what is written.
    fn noted(&self, answer: Result<Answer, Error>) -> Result<Answer, Failure> {
        match &answer {
            Ok(Answer::Refused(_)) => {}
            Ok(_) => self.watch.stored(),
            Err(error) => self.watch.refused(error),
        }
        Ok(answer?)
    }

    /// The one entity that a read names.
    pub(crate) fn read(&self, ask: &Ask, id: &str, kind: Option<&str>) -> Result<Arc<Entity>, Refusal> {
        let paths = ask.paths()?;
        let snapshot = self.views.snapshot(self.views.partition_of(&partition_key(&ask.tenant, id)));
        let same = snapshot.state.of(&ask.tenant).into_iter().flat_map(|entities| entities.with_id(id));
        let now_ms = self.wall.now_ms();
        let here = same.filter(|entity| paths.have(&entity.key.path) && !entity.has_expired(now_ms));
        entities::only(here, id, kind).cloned()
    }

    /// Where the change is told. A tenant's first change makes its topic, which waits for the disk.
    async fn tell(self: &Arc<Self>, tenant: &TenantId, id: &str) -> Result<TopicPartition, Failure> {
        if let Some(known) = self.topics.known_partition(tenant, id) {
            return Ok(known);
        }
        let (desk, tenant, id) = (self.clone(), tenant.clone(), id.to_owned());
        let opened = tokio::task::spawn_blocking(move || desk.topics.partition(&tenant, &id)).await;
        let opened = opened.map_err(|panic| Problem::internal(panic.to_string()))?;
        if let Err(NoTopic::Log(error)) = &opened {
            self.watch.log_refused(error);
        }
        Ok(opened?)
    }
}
