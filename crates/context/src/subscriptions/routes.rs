//! The routes of subscriptions: `/v2/subscriptions`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use millstream_http::{Access, Content, Path, Problem, Route, Routes};
use millstream_types::{ErrorCode, Role, TenantId};
use serde_json::{Map, Value, json};

use super::Subscriptions;
use super::body::check_sent;
use super::kafka_target;
use super::progress::SubscriptionProgress;
use super::shown::{QueueStatus, settled, shown};
use super::state::SubscriptionEntry;
use super::subscription::{Identity, Since, Status, Subscription};
use super::view::{SubscriptionCommand, SubscriptionReply};
use crate::ContextConfig;
use crate::model::object_ids::is_object_id;
use crate::model::request_body;
use crate::query::filter::TotalCount;
use crate::refusal::{ErrorName, Refusal, RequestFailure};
use crate::requests::handler::{HandlerResult, TOTAL_COUNT, checked, taking};
use crate::requests::parameters::{Paths, illegal_path};
use crate::requests::service::{JsonText, NgsiRequest};
use crate::statistics::timing::RequestPhase;

const SUBSCRIPTIONS: &str = "/v2/subscriptions";
const SUBSCRIPTION: &str = "/v2/subscriptions/{id}";
/// The default paths of a subscription.
const ALL_PATHS: &str = "/#";

const UNKNOWN: &str = "The tenant has no such subscription in this path.";

type SubscriptionsState = State<Arc<Subscriptions>>;

pub(super) fn add(routes: Routes, subscriptions: &Arc<Subscriptions>, config: &ContextConfig) -> Routes {
    let limits = config.limits();
    let (reader, writer) = (Access::Role(Role::Reader), Access::Role(Role::Writer));
    let schema = || Content::json(json!({"type": "object", "additionalProperties": true}));
    let service = "The tenant: letters, digits, underscores; 'default' if left out.";
    let which = "The subscription's id.";
    let list = checked(Route::get(SUBSCRIPTIONS, reader, limits, "List subscriptions, oldest first"))
        .header("Fiware-Service", service)
        .header("Fiware-ServicePath", "Only subscriptions with exactly this path.")
        .query("limit", "Subscriptions on a page, 0 to 1000; 20 if left out.")
        .query("offset", "Subscriptions to pass over; 0 if left out.")
        .query("options", "count: the total in Fiware-Total-TotalCount.")
        .answers_with(200, "A page.", Content::json(json!({"type": "array", "items": {"type": "object"}})));
    let create = checked(Route::post(SUBSCRIPTIONS, writer, limits, "Create a subscription"))
        .audited()
        .header("Fiware-Service", service)
        .header("Fiware-ServicePath", "The path of the entities; with '/#' at its end also those below.");
    let create = taking(create, [schema()])
        .answers(422, "The geometry of its expression cannot be computed.")
        .answers(201, "Created and at work; Location names it.")
        .answers(429, "The tenant has as many as it may.");
    let read = checked(Route::get(SUBSCRIPTION, reader, limits, "Read a subscription"))
        .header("Fiware-ServicePath", "Only a subscription with exactly this path; '/#' for any.")
        .param("id", which)
        .answers_with(200, "The subscription.", schema())
        .answers(404, UNKNOWN);
    let patch = checked(Route::patch(SUBSCRIPTION, writer, limits, "Change fields of a subscription"))
        .audited()
        .param("id", which)
        .answers(404, UNKNOWN);
    let patch = taking(patch, [schema()])
        .answers(422, "The geometry of its expression cannot be computed.")
        .answers(204, "Changed.");
    let delete = checked(Route::delete(SUBSCRIPTION, writer, limits, "Delete a subscription"))
        .audited()
        .param("id", which)
        .answers(204, "It is gone.")
        .answers(404, UNKNOWN);
    routes
        .route(list.to(list_all, subscriptions.clone()))
        .route(create.to(create_one, subscriptions.clone()))
        .route(read.to(read_one, subscriptions.clone()))
        .route(patch.to(patch_one, subscriptions.clone()))
        .route(delete.to(delete_one, subscriptions.clone()))
}

impl Subscriptions {
    fn find(&self, tenant: &TenantId, id: &str) -> Result<(Arc<Subscription>, SubscriptionEntry), Refusal> {
        check_id(id)?;
        let snapshot = self.views.snapshot(self.views.partition_of(tenant.as_str().as_bytes()));
        let found = snapshot.state.get(tenant, id).map(|(subscription, known)| (subscription.clone(), known.clone()));
        found.ok_or_else(|| not_found(id))
    }

    /// Compiles and checks a client's definition.
    fn compile(&self, identity: Identity, document: Map<String, Value>) -> Result<Arc<Subscription>, Refusal> {
        let subscription = Subscription::compile(identity, document)?;
        subscription.check_sent()?;
        let hosts = subscription.target.hosts();
        hosts.into_iter().try_for_each(|host| self.outgoing.targets.check(host)).map_err(Refusal::bad)?;
        Ok(Arc::new(subscription))
    }

    async fn ask(&self, tenant: &TenantId, command: SubscriptionCommand) -> Result<SubscriptionReply, RequestFailure> {
        let owner = self.views.partition_of(tenant.as_str().as_bytes());
        let answer = self.views.ask(owner, command).await;
        match &answer {
            Ok(SubscriptionReply::Done(_)) => self.observers.stored(),
            Ok(_) => {}
            Err(error) => self.observers.refused(error),
        }
        Ok(answer?)
    }

    /// The position from which changes concern a subscription that begins now.
    async fn end_of_changes(&self, tenant: &TenantId) -> Result<Since, RequestFailure> {
        Since::now(&self.log, tenant).await.map_err(|error| Problem::from_error(error.code(), &error).into())
    }

    fn show(&self, subscription: &Subscription, known: &SubscriptionEntry) -> Value {
        let (count, bytes) = self.hub.delivery.waiting(&subscription.tenant, &subscription.id);
        let waiting = QueueStatus { count, bytes, is_held: known.held.is_some() };
        shown(subscription, &known.progress, &waiting, self.ground.wall.now_ms())
    }
}

fn not_found(id: &str) -> Refusal {
    Refusal::new(
        ErrorName::NotFound,
        format!("there is no subscription '{id}' in this tenant and service path; create it, or check the id"),
    )
}

fn check_id(id: &str) -> Result<(), Refusal> {
    if is_object_id(id) {
        return Ok(());
    }
    Err(Refusal::bad(format!("'{id}' is no subscription's id: it has 24 hexadecimal digits; check it")))
}

fn too_many(known: usize, limit: usize) -> RequestFailure {
    let problem = Problem::new(
        millstream_http::Reason::Code(ErrorCode::RateLimited),
        "the tenant has as many subscriptions as it may; nothing was stored",
    );
    let rule = format!("context.notifications.subscriptions_max = {limit}");
    RequestFailure::Problem(problem.value(known).rule(rule).remedy("delete some, or raise the limit"))
}

/// A path without a trailing slash, for comparisons.
fn plain_path(text: &str) -> &str {
    if text == "/" { text } else { text.strip_suffix('/').unwrap_or(text) }
}

fn status(document: &mut Map<String, Value>) -> Result<Option<Status>, Refusal> {
    match document.shift_remove("status") {
        None => Ok(None),
        Some(value) => value.as_str().and_then(Status::of).map(Some).ok_or_else(|| {
            Refusal::bad(format!("status = {value}: use active, inactive or oneshot; the others are computed"))
        }),
    }
}

async fn list_all(State(subscriptions): SubscriptionsState, ask: NgsiRequest) -> HandlerResult {
    let given = ask.parameters(&["limit", "offset"], &["count"])?;
    let page = given.page()?;
    let path = ask.path()?.map(plain_path);
    let owner = subscriptions.views.partition_of(ask.tenant.as_str().as_bytes());
    let snapshot = subscriptions.views.snapshot(owner);
    let fits = |one: &(&Arc<Subscription>, &SubscriptionEntry)| path.is_none_or(|path| one.0.path == path);
    let shown: Vec<Value> = (snapshot.state.of(&ask.tenant).filter(fits).skip(page.offset).take(page.limit))
        .map(|(subscription, known)| subscriptions.show(subscription, known))
        .collect();
    let mut response = subscriptions.observers.timing.of(RequestPhase::Render, || json_answer(&Value::Array(shown)));
    if given.count() == TotalCount::Wanted {
        let total = snapshot.state.of(&ask.tenant).filter(fits).count();
        response.headers_mut().insert(TOTAL_COUNT, HeaderValue::from(total));
    }
    Ok(response)
}

async fn create_one(
    State(subscriptions): SubscriptionsState,
    ask: NgsiRequest,
    JsonText(body): JsonText,
) -> HandlerResult {
    ask.parameters(&[], &[])?;
    let mut document = subscriptions.observers.timing.of(RequestPhase::Parse, || request_body::object(&body))?;
    let status = status(&mut document)?.unwrap_or_default();
    let path = plain_path(ask.path()?.unwrap_or(ALL_PATHS)).to_owned();
    if path.contains(',') {
        return Err(Refusal::bad(format!("Fiware-ServicePath '{path}': a subscription has one path; send one")).into());
    }
    let (tenant, id) = (ask.tenant.clone(), subscriptions.ids.next(subscriptions.ground.wall.now_ms()));
    let since = subscriptions.end_of_changes(&tenant).await?;
    let identity = Identity { tenant: tenant.clone(), id: id.clone(), path, since };
    check_sent(&document)?;
    let subscription = subscriptions.compile(identity, settled(document))?;
    match subscriptions.ask(&tenant, SubscriptionCommand::Create { subscription, status }).await? {
        SubscriptionReply::TooMany { known, limit } => Err(too_many(known, limit)),
        _ => {
            let location = HeaderValue::try_from(format!("{SUBSCRIPTIONS}/{id}")).expect("an id is hexadecimal");
            Ok((StatusCode::CREATED, [(LOCATION, location)]).into_response())
        }
    }
}

async fn read_one(State(subscriptions): SubscriptionsState, ask: NgsiRequest, Path(id): Path<String>) -> HandlerResult {
    ask.parameters(&[], &[])?;
    let (subscription, known) = subscriptions.find(&ask.tenant, &id)?;
    let path =
        ask.path()?.map_or(Ok(ALL_PATHS), |path| Paths::parse(path).map(|_| plain_path(path)).map_err(illegal_path))?;
    if path != ALL_PATHS && path != subscription.path {
        return Err(not_found(&id).into());
    }
    Ok(subscriptions
        .observers
        .timing
        .of(RequestPhase::Render, || json_answer(&subscriptions.show(&subscription, &known))))
}

async fn patch_one(
    State(subscriptions): SubscriptionsState,
    ask: NgsiRequest,
    Path(id): Path<String>,
    JsonText(body): JsonText,
) -> HandlerResult {
    ask.parameters(&[], &[])?;
    let mut patch = subscriptions.observers.timing.of(RequestPhase::Parse, || request_body::object(&body))?;
    let is_empty = patch.is_empty();
    let status = status(&mut patch)?;
    check_sent(&patch)?;
    loop {
        let (before, known) = subscriptions.find(&ask.tenant, &id)?;
        if is_empty {
            return Err(Refusal::bad("the body is {}: it changes nothing; name fields").into());
        }
        let since = since(&subscriptions, &before, &known.progress, status).await?;
        let identity = Identity { tenant: ask.tenant.clone(), id: before.id.clone(), path: before.path.clone(), since };
        // Each member in the patch replaces the whole member.
        let mut change = patch.clone();
        kafka_target::keep(&before.document, &mut change);
        let document = before.document.clone().into_iter().chain(change).collect();
        let after = subscriptions.compile(identity, settled(document))?;
        match subscriptions.ask(&ask.tenant, SubscriptionCommand::Replace { before, after, status }).await? {
            SubscriptionReply::Outdated => {}
            SubscriptionReply::NotFound => return Err(not_found(&id).into()),
            _ => return Ok(StatusCode::NO_CONTENT.into_response()),
        }
    }
}

/// The start position: a reactivated subscription skips the changes of its inactive time.
async fn since(
    subscriptions: &Subscriptions,
    before: &Subscription,
    progress: &SubscriptionProgress,
    status: Option<Status>,
) -> Result<Since, RequestFailure> {
    let wakes = !progress.is_at_work() && status.is_some_and(|status| status != Status::Inactive);
    if wakes { subscriptions.end_of_changes(&before.tenant).await } else { Ok(before.since.clone()) }
}

async fn delete_one(
    State(subscriptions): SubscriptionsState,
    ask: NgsiRequest,
    Path(id): Path<String>,
) -> HandlerResult {
    ask.parameters(&[], &[])?;
    let (subscription, _) = subscriptions.find(&ask.tenant, &id)?;
    let (tenant, id) = (ask.tenant.clone(), subscription.id.clone());
    match subscriptions.ask(&ask.tenant, SubscriptionCommand::Delete { tenant, id: id.clone() }).await? {
        SubscriptionReply::NotFound => Err(not_found(&id).into()),
        _ => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

fn json_answer(value: &Value) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], value.to_string()).into_response()
}
