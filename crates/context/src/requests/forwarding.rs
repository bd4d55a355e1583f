//! Queries and updates that context providers answer, merged with what is here.
//!
//! Local values win. Entities that only providers have follow the local ones, in the order of the registrations. Providers of a
//! single entity are asked side by side; those of a list one after the other, as each gets what the ones before leave of the
//! page.

use std::sync::Arc;

use axum::http::HeaderValue;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use millstream_http::{Answer, AnswerMemory, Request};

use crate::entities::batch_update::BatchItem;
use crate::entities::decide;
use crate::entities::partition_key;
use crate::entities::view::{EntityTarget, WriteAction};
use crate::model::entity::Entity;
use crate::model::request_body::BodyAttribute;
use crate::model::syntax::check_identifier;
use crate::model::update::UpdateMode;
use crate::query::filter::{Pagination, TotalCount};
use crate::query::{NameFilter, Selector};
use crate::refusal::{ErrorName, Refusal, RequestFailure};
use crate::registrations::{AskedAttributes, Forwarding, QueryForward, UpdateForward, UpdateOutcome, provided_update};
use crate::requests::handler::{HandlerResult, TOTAL_COUNT, json_answer};
use crate::requests::list::{self, ListRequest, LocalPage};
use crate::requests::parameters::{self, RequestParameters};
use crate::requests::plan::QueryPlan;
use crate::requests::service::{NgsiRequest, Service};

/// Providers of one entity that are asked at a time.
const ASKED_AT_ONCE: usize = 8;
/// The page that a provider of a single entity is asked for.
const FIRST_PAGE: Pagination = Pagination { limit: 20, offset: 0 };
/// Bytes that an answer takes once it is read, for each of its own.
const READ_FACTOR: usize = 4;

/// An entity that a request reads.
pub(crate) struct EntityQuestion {
    pub(crate) id: String,
    pub(crate) kind: Option<String>,
    /// The client asks for what is here alone.
    pub(crate) is_local: bool,
}

impl EntityQuestion {
    /// # Errors
    /// An id or a type that is no identifier.
    pub(crate) fn of(id: &str, given: &RequestParameters) -> Result<Self, Refusal> {
        check_identifier("entity id", id)?;
        Ok(Self { id: id.to_owned(), kind: given.kind()?, is_local: given.has_option("skipForwarding") })
    }
}

/// The answer that a request makes of its entity.
pub(crate) trait ShowEntity: Send + 'static {
    /// The attributes that it shows.
    fn asked(&self) -> AskedAttributes;

    fn show(self, service: &Service, ask: &NgsiRequest, entity: &Arc<Entity>) -> HandlerResult;
}

/// The handler of a read of one entity: it is answered at once, unless a provider has to be asked.
pub(crate) fn reads_one<S: ShowEntity>(
    service: &Arc<Service>,
    read: impl Fn(&NgsiRequest, &Request<'_>) -> Result<(EntityQuestion, S), RequestFailure> + Send + Sync + 'static,
) -> impl Fn(&Request<'_>) -> Answer + Send + Sync + 'static {
    let service = service.clone();
    move |request: &Request<'_>| {
        let begun = NgsiRequest::of(request).and_then(|ask| read(&ask, request).map(|read| (ask, read)));
        let (ask, (question, shown)) = match begun {
            Ok(begun) => begun,
            Err(failure) => return failure.into_response().into(),
        };
        let local = service.read(&ask, &question.id, question.kind.as_deref());
        let forwards = service.forwards_for(&ask, &question, &shown, &local);
        if forwards.is_empty() {
            let answer = local.and_then(|entity| shown.show(&service, &ask, &entity));
            return answer.into_response().into();
        }
        let (service, mut memory) = (service.clone(), request.answer_memory());
        Answer::later(async move {
            let merged = service.merged(&ask, &question, local, forwards, &mut memory).await;
            // A version tells of what is here alone: nobody may take it for that of a provider's values.
            let ask = ask.without_known_versions();
            let answer = merged.and_then(|entity| shown.show(&service, &ask, &entity));
            let mut response = answer.into_response();
            response.headers_mut().remove(ETAG);
            memory.hold_for(&mut response);
            response
        })
    }
}

fn is_not_found(failure: &RequestFailure) -> bool {
    matches!(failure, RequestFailure::Refused(refusal) if refusal.name == ErrorName::NotFound)
}

/// Adds what `provided` has and `entity` lacks.
fn complete(entity: &mut Arc<Entity>, provided: Entity) {
    let lacking: Vec<_> =
        provided.attributes.into_iter().filter(|attribute| entity.attribute(&attribute.name).is_none()).collect();
    if !lacking.is_empty() {
        Arc::make_mut(entity).attributes.extend(lacking);
    }
}

impl Service {
    /// The queries for what is not here of one entity.
    fn forwards_for(
        &self,
        ask: &NgsiRequest,
        question: &EntityQuestion,
        shown: &impl ShowEntity,
        local: &Result<Arc<Entity>, RequestFailure>,
    ) -> Vec<QueryForward> {
        if question.is_local || !self.registrations.has_some(&ask.tenant) {
            return Vec::new();
        }
        let here = match local {
            Ok(entity) => Some(entity),
            Err(failure) if is_not_found(failure) => None,
            Err(_) => return Vec::new(),
        };
        let Ok(paths) = ask.paths() else { return Vec::new() };
        let kind = question.kind.as_deref().or(here.map(|entity| &*entity.key.kind));
        let selector = Selector {
            ids: NameFilter::Of(vec![question.id.clone()]),
            kinds: kind.map_or(NameFilter::Any, |kind| NameFilter::Of(vec![kind.to_owned()])),
        };
        let is_here = |name: &str| here.is_some_and(|entity| entity.attribute(name).is_some());
        self.registrations.for_query(&ask.tenant, &paths, &[selector], &shown.asked(), is_here)
    }

    /// The entity with what its providers have beside.
    async fn merged(
        &self,
        ask: &NgsiRequest,
        question: &EntityQuestion,
        local: Result<Arc<Entity>, RequestFailure>,
        forwards: Vec<QueryForward>,
        memory: &mut AnswerMemory,
    ) -> Result<Arc<Entity>, RequestFailure> {
        let Some(forwarding) = self.begin_forwarding(ask) else { return local };
        let (mut merged, mut held_bytes) = (local, 0);
        for some in forwards.chunks(ASKED_AT_ONCE) {
            memory.cover(held_bytes + some.len() * self.registrations.providers().answer_max_bytes())?;
            let asked = some.iter().map(|one| self.registrations.providers().query(&forwarding, one, FIRST_PAGE));
            for page in join_all(asked).await {
                held_bytes += page.answer_bytes * READ_FACTOR;
                let fits = |entity: &Entity| {
                    *entity.key.id == *question.id
                        && question.kind.as_ref().is_none_or(|kind| *entity.key.kind == **kind)
                };
                for provided in page.entities.into_iter().filter(fits) {
                    match &mut merged {
                        Ok(entity) if entity.key.kind == provided.key.kind => complete(entity, provided),
                        Ok(_) => {}
                        Err(_) => {
                            ask.check_type(Some(&provided.key.kind))?;
                            merged = Ok(Arc::new(provided));
                        }
                    }
                }
            }
        }
        merged
    }

    /// The queries for what providers have of a list.
    pub(crate) fn forwards_for_list(
        &self,
        ask: &NgsiRequest,
        asked: &ListRequest,
        is_local: bool,
    ) -> Vec<QueryForward> {
        if is_local || asked.page.limit == 0 || !self.registrations.has_some(&ask.tenant) {
            return Vec::new();
        }
        let attrs = AskedAttributes::of(asked.shape.selection.attributes());
        self.registrations.for_query(&ask.tenant, &asked.filter.paths, &asked.filter.selectors, &attrs, |_| false)
    }

    /// A page of entities here, with those of providers behind them.
    pub(crate) async fn list_with_providers(
        self: &Arc<Self>,
        ask: &NgsiRequest,
        asked: ListRequest,
        plan: QueryPlan,
        forwards: Vec<QueryForward>,
    ) -> Result<Response, RequestFailure> {
        let gather = move || (list::gather(&asked, &plan), asked);
        let (local, asked) = self.in_background(&ask.tenant, gather).await?;
        let LocalPage { mut entities, mut total } = local?;
        let ListRequest { filter, page, count, shape, mut memory, .. } = asked;
        let mut held_bytes = 0;
        if let Some(forwarding) = self.begin_forwarding(ask) {
            for forward in &forwards {
                // What the entities so far leave of the page.
                let left = Pagination {
                    limit: page.limit.saturating_sub(entities.len()),
                    offset: page.offset.saturating_sub(total),
                };
                if left.limit == 0 {
                    break;
                }
                memory.cover(held_bytes + self.registrations.providers().answer_max_bytes())?;
                let provided = self.registrations.providers().query(&forwarding, forward, left).await;
                held_bytes += provided.answer_bytes * READ_FACTOR;
                let is_selected = |entity: &Entity| {
                    filter.selectors.is_empty() || filter.selectors.iter().any(|selector| selector.has(&entity.key))
                };
                let mut seen = 0;
                for entity in provided.entities.into_iter().filter(is_selected) {
                    seen += 1;
                    let is_same =
                        |known: &Arc<Entity>| known.key.id == entity.key.id && known.key.kind == entity.key.kind;
                    match entities.iter().position(is_same) {
                        Some(at) => complete(&mut entities[at], entity),
                        None if entities.len() < page.limit => entities.push(Arc::new(entity)),
                        None => {}
                    }
                }
                total = total.saturating_add(provided.total.unwrap_or(left.offset + seen));
            }
        }
        let json = list::render(entities.iter().map(|entity| &**entity), &shape, &mut memory)?;
        let mut response = json_answer(json);
        memory.hold_for(&mut response);
        if count == TotalCount::Wanted {
            response.headers_mut().insert(TOTAL_COUNT, HeaderValue::from(total));
        }
        Ok(response)
    }

    /// Begins the forwards of a request; `None` if it runs in a circle of brokers.
    fn begin_forwarding(&self, ask: &NgsiRequest) -> Option<Forwarding> {
        let header = |name| ask.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let origin = ask.origin(&self.tokens, None);
        let (service, token) = (header(&parameters::SERVICE), header(&parameters::AUTH_TOKEN));
        self.registrations.providers().begin(&ask.tenant, service, token, &origin.correlator)
    }

    /// As [`Service::write`], for an update of attributes that exist: those that no entity here has go to their providers.
    pub(crate) async fn update(
        self: &Arc<Self>,
        ask: &NgsiRequest,
        id: &str,
        action: WriteAction,
    ) -> Result<(), RequestFailure> {
        self.update_or_forward(ask, vec![(id.to_owned(), action)], UpdateUnit::Entity).await
    }

    /// As [`Service::write_all`], for updates of which some may go to providers.
    pub(crate) async fn update_all(
        self: &Arc<Self>,
        ask: &NgsiRequest,
        asked: Vec<BatchItem>,
    ) -> Result<(), RequestFailure> {
        ask.check_no_version()?;
        self.update_or_forward(ask, asked, UpdateUnit::Batch).await
    }

    async fn update_or_forward(
        self: &Arc<Self>,
        ask: &NgsiRequest,
        asked: Vec<BatchItem>,
        unit: UpdateUnit,
    ) -> Result<(), RequestFailure> {
        if !self.registrations.has_some(&ask.tenant) {
            return self.update_here(ask, asked, unit).await;
        }
        asked.iter().try_for_each(|(_, action)| ask.check_type(action.kind()))?;
        let path = parameters::write_path(ask.headers())?;
        let (mut here, mut forwards) = (Vec::new(), Vec::new());
        for (named, action) in asked {
            here.extend(self.without_provided(ask, &path, action, &mut forwards)?.map(|action| (named, action)));
        }
        if forwards.is_empty() {
            return self.update_here(ask, here, unit).await;
        }
        let mut outcome = ForwardedUpdate::default();
        if !here.is_empty() {
            outcome.add_local(self.update_here(ask, here, unit).await)?;
        }
        let limit = self.registrations.forward_limit();
        let beyond = forwards.split_off(limit.min(forwards.len()));
        let why = format!("a request has at most context.registrations.forward_limit = {limit} forwards");
        beyond.iter().for_each(|forward| outcome.add(forward, UpdateOutcome::Failed(why.clone())));
        let Some(forwarding) = self.begin_forwarding(ask) else {
            let why = "the request runs in a circle of brokers";
            forwards.iter().for_each(|forward| outcome.add(forward, UpdateOutcome::Failed(why.to_owned())));
            return Ok(outcome.into_result()?);
        };
        for some in forwards.chunks(ASKED_AT_ONCE) {
            let asked = some.iter().map(|one| self.registrations.providers().update(&forwarding, one));
            for (forward, ended) in some.iter().zip(join_all(asked).await) {
                outcome.add(forward, ended);
            }
        }
        Ok(outcome.into_result()?)
    }

    async fn update_here(
        self: &Arc<Self>,
        ask: &NgsiRequest,
        asked: Vec<BatchItem>,
        unit: UpdateUnit,
    ) -> Result<(), RequestFailure> {
        match unit {
            UpdateUnit::Batch => self.write_all(ask, asked).await,
            UpdateUnit::Entity => {
                for (_, action) in asked {
                    let id = action.id().clone();
                    self.write(ask, &id, action).await?;
                }
                Ok(())
            }
        }
    }

    /// Takes the attributes from an update that no entity here has and a provider does; `None` if nothing is left.
    fn without_provided(
        &self,
        ask: &NgsiRequest,
        path: &Arc<str>,
        action: WriteAction,
        forwards: &mut Vec<UpdateForward>,
    ) -> Result<Option<WriteAction>, RequestFailure> {
        let (target, given, is_one) = match action {
            WriteAction::Set { target, given, manner: UpdateMode::Update } => (target, given, false),
            WriteAction::SetOne { target, given } => (target, vec![given], true),
            other => return Ok(Some(other)),
        };
        let snapshot = self.views.snapshot(self.views.partition_of(&partition_key(&ask.tenant, &target.id)))?;
        let same = snapshot.state.of(&ask.tenant).into_iter().flat_map(|entities| entities.with_id(&target.id));
        let now_ms = self.wall.now_ms();
        let of_path = same.filter(|entity| entity.key.path == *path && !entity.has_expired(now_ms));
        let known = match decide::only(of_path, &target.id, target.kind.as_deref()) {
            Ok(entity) => Some(entity),
            Err(refusal) if refusal.name == ErrorName::NotFound => None,
            // The owner refuses it.
            Err(_) => return Ok(Some(of_kind(target, given, is_one))),
        };
        let kind = target.kind.clone().or_else(|| known.map(|entity| entity.key.kind.to_string()));
        let mut here = Vec::new();
        for attribute in given {
            let is_here = known.is_some_and(|entity| entity.attribute(&attribute.name).is_some());
            let registration = (!is_here)
                .then(|| {
                    let name = &attribute.name;
                    self.registrations.for_update(&ask.tenant, path, &target.id, kind.as_deref(), name)
                })
                .flatten();
            match registration {
                Some(registration) => {
                    provided_update(forwards, registration, &target.id, kind.as_deref(), attribute)?;
                }
                None => here.push(attribute),
            }
        }
        Ok((!here.is_empty()).then(|| of_kind(target, here, is_one)))
    }
}

fn of_kind(target: EntityTarget, mut given: Vec<BodyAttribute>, is_one: bool) -> WriteAction {
    match given.pop() {
        Some(attribute) if is_one => WriteAction::SetOne { target, given: attribute },
        last => {
            given.extend(last);
            WriteAction::Set { target, given, manner: UpdateMode::Update }
        }
    }
}

/// An update of one entity, whose refusal stands as it is, or a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UpdateUnit {
    Entity,
    Batch,
}

/// The combined outcome of an update here and at providers.
#[derive(Default)]
struct ForwardedUpdate {
    is_done_in_part: bool,
    /// The parts that were not done, with the reasons.
    lacking: Vec<String>,
}

impl ForwardedUpdate {
    /// Adds the outcome here. A failure that is no refusal of the update itself ends the request.
    fn add_local(&mut self, ended: Result<(), RequestFailure>) -> Result<(), RequestFailure> {
        match ended {
            Ok(()) => self.is_done_in_part = true,
            Err(RequestFailure::Refused(refusal)) => match refusal.name {
                ErrorName::PartialUpdate => {
                    self.is_done_in_part = true;
                    self.lacking.push(refusal.description);
                }
                ErrorName::NotFound | ErrorName::Unprocessable => self.lacking.push(refusal.description),
                _ => return Err(refusal.into()),
            },
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    fn add(&mut self, forward: &UpdateForward, ended: UpdateOutcome) {
        match ended {
            UpdateOutcome::Done => self.is_done_in_part = true,
            UpdateOutcome::NotFound => {
                self.lacking.push(format!("{}: the context provider has none", forward.named()));
            }
            UpdateOutcome::Failed(why) => self.lacking.push(format!("{}: {why}", forward.named())),
        }
    }

    fn into_result(self) -> Result<(), Refusal> {
        if self.lacking.is_empty() {
            return Ok(());
        }
        let name = if self.is_done_in_part { ErrorName::PartialForward } else { ErrorName::NotFound };
        Err(Refusal::new(name, self.lacking.join(" | ")))
    }
}
