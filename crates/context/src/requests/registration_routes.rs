//! The routes of registrations: `/v2/registrations`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::IntoResponse;
use millstream_http::{Access, Content, Limits, Path, Problem, Route, Routes};
use millstream_types::{ErrorCode, Role};
use serde_json::{Value, json};

use crate::model::object_ids::is_object_id;
use crate::model::request_body;
use crate::query::filter::TotalCount;
use crate::refusal::{ErrorName, Refusal, RequestFailure};
use crate::registrations::{Registration, RegistrationCommand, RegistrationReply, Registrations};
use crate::requests::handler::{HandlerResult, TOTAL_COUNT, json_answer, scoped, taking};
use crate::requests::parameters::{self, RequestParameters};
use crate::requests::service::{JsonText, NgsiRequest};
use crate::statistics::timing::RequestPhase;

pub(crate) const REGISTRATIONS: &str = "/v2/registrations";
const REGISTRATION: &str = "/v2/registrations/{id}";
/// The header of requests for registrations of all paths.
const ALL_PATHS: &str = "/#";
/// The option that adds the outcomes of forwards, which Orion does not show.
const OUTCOMES: &str = "forwardingInformation";
const UNKNOWN: &str = "The tenant has no such registration in this path.";

type Shared = State<Arc<Registrations>>;

pub(crate) fn add(routes: Routes, registrations: &Arc<Registrations>, limits: Limits) -> Routes {
    let (reader, writer) = (Access::Role(Role::Reader), Access::Role(Role::Writer));
    let schema = || Content::json(json!({"type": "object", "additionalProperties": true}));
    let which = "The registration's id.";
    let list = scoped(Route::get(REGISTRATIONS, reader, limits, "List registrations, oldest first"))
        .query("limit", "Registrations on a page, 0 to 1000; 20 if left out.")
        .query("offset", "Registrations to pass over; 0 if left out.")
        .query("options", "count: the total in Fiware-Total-Count. forwardingInformation: outcomes since the start.")
        .answers_with(200, "A page.", Content::json(json!({"type": "array", "items": {"type": "object"}})));
    let create = scoped(Route::post(REGISTRATIONS, writer, limits, "Register a context provider")).audited();
    let create = taking(create, [schema()])
        .answers(201, "Registered; Location names it.")
        .answers(429, "The tenant has as many as it may.")
        .answers(501, "It has a pattern that is not supported.");
    let read = scoped(Route::get(REGISTRATION, reader, limits, "Read a registration"))
        .param("id", which)
        .query("options", "forwardingInformation: the outcomes of forwards since the server started.")
        .answers_with(200, "The registration.", schema())
        .answers(404, UNKNOWN);
    let delete = scoped(Route::delete(REGISTRATION, writer, limits, "Delete a registration"))
        .audited()
        .param("id", which)
        .answers(204, "It is gone.")
        .answers(404, UNKNOWN);
    routes
        .route(list.to(list_all, registrations.clone()))
        .route(create.to(create_one, registrations.clone()))
        .route(read.to(read_one, registrations.clone()))
        .route(delete.to(delete_one, registrations.clone()))
}

/// The registration of this id, in the request's path if it has one.
fn find(registrations: &Registrations, ask: &NgsiRequest, id: &str) -> Result<Arc<Registration>, Refusal> {
    let path = ask.path()?;
    let snapshot = registrations.snapshot(&ask.tenant);
    let found = is_object_id(id).then(|| snapshot.state.of(&ask.tenant)?.get(id).cloned()).flatten();
    found.filter(|registration| is_of(registration, path)).ok_or_else(|| not_found(id))
}

/// The registration was made in this path; without one, and with `/#`, any will do.
fn is_of(registration: &Registration, path: Option<&str>) -> bool {
    let plain = |path: &str| if path == "/" { path.len() } else { path.trim_end_matches('/').len() };
    path.is_none_or(|path| path == ALL_PATHS || path[..plain(path)] == *registration.identity.path)
}

fn shown(registration: &Registration, given: &RequestParameters) -> Value {
    if given.has_option(OUTCOMES) { registration.shown_with_outcomes() } else { registration.shown() }
}

fn not_found(id: &str) -> Refusal {
    Refusal::new(
        ErrorName::NotFound,
        format!("there is no registration '{id}' in this tenant and service path; create it, or check the id"),
    )
}

fn too_many(known: usize, limit: usize) -> RequestFailure {
    let problem = Problem::new(
        millstream_http::Reason::Code(ErrorCode::RateLimited),
        "the tenant has as many registrations as it may; nothing was stored",
    );
    let rule = format!("context.registrations.max = {limit}");
    RequestFailure::Problem(problem.value(known).rule(rule).remedy("delete some, or raise the limit"))
}

async fn list_all(State(registrations): Shared, ask: NgsiRequest) -> HandlerResult {
    let given = ask.parameters(&["limit", "offset"], &["count", OUTCOMES])?;
    let (page, path) = (given.page()?, ask.path()?);
    let snapshot = registrations.snapshot(&ask.tenant);
    let all = || snapshot.state.of(&ask.tenant).into_iter().flat_map(|of_tenant| of_tenant.all());
    let fits = |registration: &&Arc<Registration>| is_of(registration, path);
    let page: Vec<Value> =
        all().filter(fits).skip(page.offset).take(page.limit).map(|one| shown(one, &given)).collect();
    let render = || json_answer(Value::Array(page).to_string());
    let mut response = registrations.observers.timing.of(RequestPhase::Render, render);
    if given.count() == TotalCount::Wanted {
        response.headers_mut().insert(TOTAL_COUNT, HeaderValue::from(all().filter(fits).count()));
    }
    Ok(response)
}

async fn create_one(State(registrations): Shared, ask: NgsiRequest, JsonText(body): JsonText) -> HandlerResult {
    ask.parameters(&[], &[])?;
    // Orion names every fault of this body BadRequest.
    let document = registrations.observers.timing.of(RequestPhase::Parse, || request_body::object(&body));
    let document = document.map_err(|refusal| Refusal { name: ErrorName::BadRequest, ..refusal })?;
    let path = parameters::write_path(ask.headers())?;
    let registration = Registration::read(registrations.identity(&ask.tenant, path), document)?;
    registrations.check_host(&registration)?;
    let id = registration.identity.id.clone();
    match registrations.ask(&ask.tenant, RegistrationCommand::Create(Arc::new(registration))).await? {
        RegistrationReply::TooMany { known, limit } => Err(too_many(known, limit)),
        _ => {
            let location = HeaderValue::try_from(format!("{REGISTRATIONS}/{id}")).expect("an id is hexadecimal");
            Ok((StatusCode::CREATED, [(LOCATION, location)]).into_response())
        }
    }
}

async fn read_one(State(registrations): Shared, ask: NgsiRequest, Path(id): Path<String>) -> HandlerResult {
    let given = ask.parameters(&[], &[OUTCOMES])?;
    let registration = find(&registrations, &ask, &id)?;
    let render = || json_answer(shown(&registration, &given).to_string());
    Ok(registrations.observers.timing.of(RequestPhase::Render, render))
}

async fn delete_one(State(registrations): Shared, ask: NgsiRequest, Path(id): Path<String>) -> HandlerResult {
    ask.parameters(&[], &[])?;
    let registration = find(&registrations, &ask, &id)?;
    let (tenant, id) = (ask.tenant.clone(), registration.identity.id.clone());
    match registrations.ask(&ask.tenant, RegistrationCommand::Delete { tenant, id: id.clone() }).await? {
        RegistrationReply::NotFound => Err(not_found(&id).into()),
        _ => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}
