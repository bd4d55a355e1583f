//! The state that all handlers share: parses requests, sends commands to the owners and returns their replies.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Request as HttpRequest};
use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use millstream_http::{Caller, Payload, Problem, Request, TraceContext, Unread, Workers};
use millstream_types::{AccessScope, ErrorCode, MonotonicClock, Principal, TenantId, TopicPartition, WallClock};
use millstream_view::{Error, Slots};

use crate::entities::change_details::ChangeOrigin;
use crate::entities::change_topics::{ChangeTopics, NoTopic};
use crate::entities::condition::{self, Versions};
use crate::entities::decide;
use crate::entities::partition_key;
use crate::entities::stamps::Stamps;
use crate::entities::view::{EntityCommand, EntityReply, EntityView, WriteAction, WriteRequest};
use crate::flow_control::{Flow, Flows};
use crate::maintenance::Maintenance;
use crate::model::entity::Entity;
use crate::query::{NameFilter, Selector};
use crate::refusal::{Refusal, RequestFailure};
use crate::registrations::Registrations;
use crate::requests::deprecations::Deprecations;
use crate::requests::parameters::{self, Paths, RequestParameters};
use crate::statistics::observers::Observers;
use crate::statistics::request_observer::CORRELATOR;
use crate::statistics::stats::ContextCounters;
use crate::tokens::Tokens;

/// Headers that the handlers of entities read.
static HEADERS: [HeaderName; 9] = [
    ACCEPT,
    CONTENT_TYPE,
    CONTENT_LENGTH,
    IF_MATCH,
    IF_NONE_MATCH,
    parameters::SERVICE,
    parameters::PATH,
    parameters::AUTH_TOKEN,
    CORRELATOR,
];
const JSON: &str = "application/json";

pub(crate) struct Service {
    pub(crate) views: Arc<Slots<EntityView>>,
    pub(crate) topics: Arc<ChangeTopics>,
    pub(crate) counters: Arc<ContextCounters>,
    pub(crate) clock: Arc<dyn MonotonicClock>,
    pub(crate) page_max_bytes: usize,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) stamps: Arc<Stamps>,
    /// Start time of the plane, by `clock`.
    pub(crate) started: Duration,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) flows: Arc<Flows>,
    /// Threads that render large lists.
    pub(crate) background: Workers,
    pub(crate) maintenance: Maintenance,
    pub(crate) deprecations: Deprecations,
    pub(crate) observers: Observers,
    pub(crate) registrations: Arc<Registrations>,
}

impl Service {
    /// Runs expensive work for a tenant on the background threads.
    pub(crate) async fn in_background<T: Send + 'static>(
        &self,
        tenant: &TenantId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let done = self.background.submit(Some(tenant), work).map_err(|full| {
            Problem::from_error(ErrorCode::Overloaded, &full)
                .value(full.waiting)
                .rule(format!("context.lists_max_waiting = {}", full.limit))
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

/// The parsed headers and query of a request. An extractor; refuses errors that do not depend on the route.
pub(crate) struct NgsiRequest {
    pub(crate) tenant: TenantId,
    /// The entity types that the caller may use.
    scope: AccessScope,
    headers: HeaderMap,
    query: Option<Box<str>>,
    trace: TraceContext,
}

impl<S: Sync> FromRequestParts<S> for NgsiRequest {
    type Rejection = RequestFailure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, RequestFailure> {
        let caller = Caller::from_request_parts(parts, state).await?;
        let trace = TraceContext::from_request_parts(parts, state).await?;
        Self::new(&caller, parts.headers.clone(), parts.uri.path(), parts.uri.query(), trace)
    }
}

impl NgsiRequest {
    /// Reads and checks a request.
    pub(crate) fn of(request: &Request<'_>) -> Result<Self, RequestFailure> {
        let mut headers = HeaderMap::with_capacity(HEADERS.len());
        for (name, value) in request.headers().iter() {
            let Some(known) = HEADERS.iter().find(|known| known.as_str().eq_ignore_ascii_case(name)) else { continue };
            // The usual media type needs no copy.
            let value = match value == JSON.as_bytes() {
                true => Ok(HeaderValue::from_static(JSON)),
                false => HeaderValue::from_bytes(value),
            };
            if let Ok(value) = value {
                headers.append(known, value);
            }
        }
        Self::new(request.caller()?, headers, request.path(), request.query(), request.trace())
    }

    /// Checks the rules that do not depend on the route.
    fn new(
        caller: &Principal,
        headers: HeaderMap,
        path: &str,
        query: Option<&str>,
        trace: TraceContext,
    ) -> Result<Self, RequestFailure> {
        parameters::check_service(&headers)?;
        if !parameters::is_of_value(path) {
            parameters::check_accept(&headers)?;
        }
        let (tenant, scope) = (caller.tenant.clone(), caller.scope.clone());
        Ok(Self { tenant, scope, headers, query: query.map(Into::into), trace })
    }

    /// The query parameters; `parameters` and `options` are those of the route.
    pub(crate) fn parameters(&self, parameters: &[&str], options: &[&str]) -> Result<RequestParameters, Refusal> {
        RequestParameters::read(self.query.as_deref(), parameters, options)
    }

    /// The origin of the change, for notifications.
    pub(crate) fn origin(&self, tokens: &Tokens, flow: Option<&Flow>) -> ChangeOrigin {
        let given = self.headers.get(&CORRELATOR).filter(|value| !value.is_empty());
        let correlator = match given {
            Some(given) => given.to_str().unwrap_or_default().into(),
            None => std::str::from_utf8(&self.trace.id_text()).unwrap_or_default().into(),
        };
        let token = self.headers.get(&parameters::AUTH_TOKEN).and_then(|value| value.to_str().ok());
        ChangeOrigin {
            correlator,
            token: token.filter(|token| !token.is_empty()).map(|token| tokens.keep(token)),
            flow: flow.map(|flow| flow.number),
            is_forced: self.has_option("forcedUpdate"),
        }
    }

    /// The reply waits for the notifications of the update.
    fn is_flow_controlled(&self) -> bool {
        self.has_option("flowControl")
    }

    fn has_option(&self, wanted: &str) -> bool {
        parameters::has_option(self.query.as_deref(), wanted)
    }

    /// The service path header, if there is one.
    pub(crate) fn path(&self) -> Result<Option<&str>, Refusal> {
        parameters::path_header(&self.headers)
    }

    /// `If-None-Match` names the version of `entity`.
    pub(crate) fn knows(&self, entity: &Entity) -> bool {
        condition::is_known(&self.headers, entity)
    }

    /// The same request of a client that has no version.
    pub(crate) fn without_known_versions(mut self) -> Self {
        self.headers.remove(IF_NONE_MATCH);
        self
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Refuses a condition on the version of a batch.
    pub(crate) fn check_no_version(&self) -> Result<(), Refusal> {
        match Versions::of_write(&self.headers) {
            None => Ok(()),
            Some(_) => Err(Refusal::bad("If-Match: a batch has no version; leave it out, or write entity by entity")),
        }
    }

    /// Refuses query parameters beside these: a misspelt one must not make a change reach further.
    pub(crate) fn only_parameters(&self, known: &[&str]) -> Result<(), Refusal> {
        let names = self.query.as_deref().unwrap_or_default().split('&').filter_map(|pair| pair.split('=').next());
        match names.into_iter().find(|name| !name.is_empty() && !known.contains(name)) {
            None => Ok(()),
            Some(name) => Err(Refusal::bad(format!(
                "parameter '{name}' has no meaning here: only {} do; leave it out, or correct it",
                known.join(", ")
            ))),
        }
    }

    /// Refuses entities of a type that the caller may not use. A caller limited to types names the type of each entity that
    /// it writes, so that the request alone shows whether it may.
    pub(crate) fn check_type(&self, kind: Option<&str>) -> Result<(), Problem> {
        if !self.scope.is_limited() || kind.is_some_and(|kind| self.scope.has_type(kind)) {
            return Ok(());
        }
        let (refusal, rule) = (Problem::forbidden("the API token is limited to other entities"), self.scope.types());
        let rule = match rule {
            [] => "it is good for no entity".to_owned(),
            types => format!("it is good for entities whose type begins with {}", types.join(" or ")),
        };
        let named = kind.map_or("no type", |kind| kind).to_owned();
        Err(refusal.value(named).rule(rule).remedy("name such a type, by 'type' in the URL or the body"))
    }

    /// Refuses a list that may have entities of types that the caller may not use.
    pub(crate) fn check_selectors(&self, selectors: &[Selector]) -> Result<(), Problem> {
        if !self.scope.is_limited() {
            return Ok(());
        }
        if selectors.is_empty() {
            return self.check_type(None);
        }
        selectors.iter().try_for_each(|selector| match &selector.kinds {
            NameFilter::Of(kinds) if !kinds.is_empty() => kinds.iter().try_for_each(|kind| self.check_type(Some(kind))),
            _ => self.check_type(None),
        })
    }

    /// The service paths of a read.
    pub(crate) fn paths(&self) -> Result<Paths, Refusal> {
        parameters::read_paths(&self.headers)
    }
}

/// A required JSON body. An extractor.
pub(crate) struct JsonText(pub(crate) Bytes);

impl<S: Sync> FromRequest<S> for JsonText {
    type Rejection = RequestFailure;

    async fn from_request(request: HttpRequest, state: &S) -> Result<Self, RequestFailure> {
        Self::check(request.headers())?;
        let Payload(bytes) = Payload::from_request(request, state).await?;
        Ok(Self(bytes))
    }
}

impl JsonText {
    /// Refuses headers of a body that is not JSON, or that have no length.
    fn check(headers: &HeaderMap) -> Result<(), RequestFailure> {
        parameters::check_length(headers)?;
        Ok(parameters::check_type(headers)?)
    }
}

/// The content of a request: its body, or `()` if the route takes none.
pub(crate) trait RequestContent: Sized {
    /// Checks the headers, then takes the body.
    fn read(request: &Request<'_>, headers: &HeaderMap) -> Result<Self, Unready>;
}

impl RequestContent for () {
    fn read(_: &Request<'_>, _: &HeaderMap) -> Result<Self, Unready> {
        Ok(())
    }
}

impl RequestContent for JsonText {
    fn read(request: &Request<'_>, headers: &HeaderMap) -> Result<Self, Unready> {
        Self::check(headers)?;
        Ok(Self(request.body_to_keep()?))
    }
}

/// The body of a value: JSON or text.
pub(crate) struct ValueText(pub(crate) Bytes);

impl RequestContent for ValueText {
    fn read(request: &Request<'_>, headers: &HeaderMap) -> Result<Self, Unready> {
        parameters::check_length(headers).map_err(RequestFailure::from)?;
        if !parameters::is_text(headers) {
            parameters::check_type(headers).map_err(RequestFailure::from)?;
        }
        Ok(Self(request.body_to_keep()?))
    }
}

/// The reason why a request is not handled yet, or not at all.
pub(crate) enum Unready {
    AwaitBody,
    Failed(RequestFailure),
}

impl From<RequestFailure> for Unready {
    fn from(failure: RequestFailure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Unread> for Unready {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Awaited => Self::AwaitBody,
            Unread::Refused(problem) => Self::Failed(problem.into()),
        }
    }
}

impl Service {
    /// Sends a write to the owner of the entity `id`; returns once it is durable.
    pub(crate) async fn write(
        self: &Arc<Self>,
        ask: &NgsiRequest,
        id: &str,
        action: WriteAction,
    ) -> Result<EntityReply, RequestFailure> {
        let started = self.clock.now();
        ask.check_type(action.kind())?;
        let path = parameters::write_path(&ask.headers)?;
        self.check_places(&ask.tenant, &path, &action)?;
        self.deprecations.note(&ask.tenant, &action);
        let tell = self.tell(&ask.tenant, id).await?;
        let owner = self.views.partition_of(&partition_key(&ask.tenant, id));
        let flow = self.flow(ask);
        let (tenant, versions, origin) =
            (ask.tenant.clone(), Versions::of_write(&ask.headers), ask.origin(&self.tokens, flow.as_ref()));
        let request = WriteRequest { tenant, path, tell, versions, origin, at_us: self.stamps.next(), action };
        match self.noted(self.views.ask(owner, EntityCommand::Request(Box::new(request))).await)? {
            EntityReply::Refused(refusal) => Err(refusal.into()),
            answer => {
                self.counters.updated(self.clock.now().saturating_sub(started));
                if let Some(flow) = flow {
                    self.flows.wait(flow, 1).await;
                }
                Ok(answer)
            }
        }
    }

    /// Registers an update whose reply waits for its notifications.
    pub(crate) fn flow(&self, ask: &NgsiRequest) -> Option<Flow> {
        ask.is_flow_controlled().then(|| self.flows.begin()).flatten()
    }

    /// Passes a reply on and tells the observers whether the log stores records.
    pub(crate) fn noted(&self, answer: Result<EntityReply, Error>) -> Result<EntityReply, RequestFailure> {
        match &answer {
            Ok(EntityReply::Refused(_)) => {}
            Ok(_) => self.observers.stored(),
            Err(error) => self.observers.refused(error),
        }
        Ok(answer?)
    }

    /// The only entity with this id and, if given, this type.
    pub(crate) fn read(&self, ask: &NgsiRequest, id: &str, kind: Option<&str>) -> Result<Arc<Entity>, RequestFailure> {
        let paths = ask.paths()?;
        let snapshot = self.views.snapshot(self.views.partition_of(&partition_key(&ask.tenant, id)))?;
        let same = snapshot.state.of(&ask.tenant).into_iter().flat_map(|entities| entities.with_id(id));
        let now_ms = self.wall.now_ms();
        let here = same.filter(|entity| paths.have(&entity.key.path) && !entity.has_expired(now_ms));
        let entity = decide::only(here, id, kind)?;
        ask.check_type(Some(&entity.key.kind))?;
        Ok(entity.clone())
    }

    /// Refuses invalid locations before an owner gets a command: only a stored attribute may ignore its type.
    pub(crate) fn check_places(
        &self,
        tenant: &TenantId,
        path: &str,
        action: &WriteAction,
    ) -> Result<(), RequestFailure> {
        let mut away = None;
        let checked = action.check_places(|id, kind| {
            let snapshot = self.views.snapshot(self.views.partition_of(&partition_key(tenant, id)));
            let snapshot = snapshot.map_err(|error| away = Some(error)).ok()?;
            let same = snapshot.state.of(tenant).into_iter().flat_map(|entities| entities.with_id(id));
            decide::only(same.filter(|entity| *entity.key.path == *path), id, kind).ok().cloned()
        });
        away.map_or(checked.map_err(RequestFailure::from), |away| Err(away.into()))
    }

    /// The change partition of an entity. A tenant's first change creates the topic and waits for the disk.
    pub(crate) async fn tell(self: &Arc<Self>, tenant: &TenantId, id: &str) -> Result<TopicPartition, RequestFailure> {
        if let Some(known) = self.topics.known_partition(tenant, id) {
            return Ok(known);
        }
        let (service, tenant, id) = (self.clone(), tenant.clone(), id.to_owned());
        let opened = tokio::task::spawn_blocking(move || service.topics.partition(&tenant, &id)).await;
        let opened = opened.map_err(|panic| Problem::internal(panic.to_string()))?;
        if let Err(NoTopic::Log(error)) = &opened {
            self.observers.log_refused(error);
        }
        Ok(opened?)
    }
}
