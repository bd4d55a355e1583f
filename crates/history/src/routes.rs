//! The routes of history: the temporal ones of NGSI-LD.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::{CONTENT_RANGE, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use millstream_http::{
    Access, AnswerMemory, Caller, Content, Deadline, Limits, Path, Problem, Query, Reason, Route, RouteDraft, Routes,
};
use millstream_types::{ErrorCode, Role, iso_time};
use serde_json::json;

use crate::catalog_record::Erasure;
use crate::desk::{Answered, Desk};
use crate::request::{Given, GivenToDelete, Named, paths};

const ENTITIES: &str = "/ngsi-ld/v1/temporal/entities";
const ENTITY: &str = "/ngsi-ld/v1/temporal/entities/{id}";
const ATTRIBUTE: &str = "/ngsi-ld/v1/temporal/entities/{id}/attrs/{name}";
const TOTAL_COUNT: HeaderName = HeaderName::from_static("ngsild-results-count");

type Shared = State<Arc<Desk>>;

/// All routes of history.
pub(crate) fn routes(desk: &Arc<Desk>) -> Routes {
    let limits = Limits {
        body_max_bytes: 0,
        body_max_setting: "none: these routes take no body",
        timeout: Duration::from_millis(desk.timeout_ms),
    };
    let reader = Access::Role(Role::Reader);
    let writer = Access::Role(Role::Writer);
    let list = Route::get(ENTITIES, reader, limits, "List what entities were over time")
        .query("id", "Ids, separated by commas.")
        .query("idPattern", "A regular expression for ids.")
        .query("limit", "Entities on a page, 0 to 1000; 20 if left out.")
        .query("offset", "Entities to pass over; 0 if left out.")
        .query("count", "true: the total in NGSILD-Results-Count.");
    let read = Route::get(ENTITY, reader, limits, "Read what an entity was over time").param("id", "The entity's id.");
    let read_one = Route::get(ATTRIBUTE, reader, limits, "Read what an attribute was over time")
        .param("id", "The entity's id.")
        .param("name", "The attribute's name.");
    let delete_all = Route::delete(ENTITIES, Access::Role(Role::Admin), limits, "Delete the history of a type")
        .query("type", "The type; the tenant's whole history if left out.");
    let delete = Route::delete(ENTITY, writer, limits, "Delete an entity's history")
        .param("id", "The entity's id.")
        .query("type", "Its type, if only that of several is meant.");
    let delete_one = Route::delete(ATTRIBUTE, writer, limits, "Delete an attribute's history")
        .param("id", "The entity's id.")
        .param("name", "The attribute's name.")
        .query("type", "The entity's type, if only that of several is meant.");
    Routes::new("history")
        .errors("/ngsi-ld", style)
        .route(
            scoped(timed(list.query("attrs", "Attributes, separated by commas; all if left out.")))
                .to(list_entities, desk.clone()),
        )
        .route(
            scoped(timed(read.query("attrs", "Attributes, separated by commas; all if left out.")))
                .to(read_entity, desk.clone()),
        )
        .route(scoped(timed(read_one)).to(read_attribute, desk.clone()))
        .route(scoped(delete_all).answers(204, "Deleted.").to(delete_kind, desk.clone()))
        .route(scoped(delete).answers(204, "Deleted.").to(delete_entity, desk.clone()))
        .route(scoped(delete_one).answers(204, "Deleted.").to(delete_attribute, desk.clone()))
}

fn scoped(route: RouteDraft) -> RouteDraft {
    route
        .header("Fiware-Service", "The tenant; 'default' if left out. NGSILD-Tenant means the same.")
        .header("Fiware-ServicePath", "Paths within the tenant, also '/a/#' and lists; all if left out.")
}

/// What all reads take.
fn timed(route: RouteDraft) -> RouteDraft {
    route
        .query("type", "Types, separated by commas.")
        .query("timerel", "before, after (both exclusive), or between timeAt (inclusive) and endTimeAt (exclusive).")
        .query("timeAt", "A point in time, ISO 8601.")
        .query("endTimeAt", "The end of 'between'.")
        .query("timeproperty", "observedAt, which is the default, createdAt or modifiedAt.")
        .query("lastN", "Of each attribute the last so many.")
        .query("options", "temporalValues: pairs of value and time; aggregatedValues: by period.")
        .query("aggrMethods", "totalCount, distinctCount, sum, avg, min, max, stddev, sumsq; separated by commas.")
        .query("aggrPeriodDuration", "ISO 8601, such as PT1H or P1M; all in one if left out.")
        .header("Accept", "application/json, or text/csv.")
        .answers_with(200, "All that was asked for.", Content::json(json!({"type": ["array", "object"]})))
        .answers_with(206, "A part of it; Content-Range names the time that it covers.", Content::json(json!({})))
}

async fn list_entities(
    State(desk): Shared,
    caller: Caller,
    headers: HeaderMap,
    Query(given): Query<Given>,
    memory: AnswerMemory,
    deadline: Deadline,
) -> Result<Response, Problem> {
    let asked = given.read(&caller.tenant, &headers, Named::default(), desk.limits.page_max_points)?;
    desk.read(asked, memory, deadline).await.map(answer)
}

async fn read_entity(
    State(desk): Shared,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<String>,
    Query(given): Query<Given>,
    memory: AnswerMemory,
    deadline: Deadline,
) -> Result<Response, Problem> {
    let named = Named { id: Some(id), attribute: None };
    let asked = given.read(&caller.tenant, &headers, named, desk.limits.page_max_points)?;
    desk.read(asked, memory, deadline).await.map(answer)
}

async fn read_attribute(
    State(desk): Shared,
    caller: Caller,
    headers: HeaderMap,
    Path((id, attribute)): Path<(String, String)>,
    Query(given): Query<Given>,
    memory: AnswerMemory,
    deadline: Deadline,
) -> Result<Response, Problem> {
    let named = Named { id: Some(id), attribute: Some(attribute) };
    let asked = given.read(&caller.tenant, &headers, named, desk.limits.page_max_points)?;
    desk.read(asked, memory, deadline).await.map(answer)
}

async fn delete_kind(
    State(desk): Shared,
    caller: Caller,
    headers: HeaderMap,
    Query(given): Query<GivenToDelete>,
) -> Result<StatusCode, Problem> {
    erase(&desk, &caller, &headers, given, Named::default()).await
}

async fn delete_entity(
    State(desk): Shared,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<String>,
    Query(given): Query<GivenToDelete>,
) -> Result<StatusCode, Problem> {
    erase(&desk, &caller, &headers, given, Named { id: Some(id), attribute: None }).await
}

async fn delete_attribute(
    State(desk): Shared,
    caller: Caller,
    headers: HeaderMap,
    Path((id, attribute)): Path<(String, String)>,
    Query(given): Query<GivenToDelete>,
) -> Result<StatusCode, Problem> {
    erase(&desk, &caller, &headers, given, Named { id: Some(id), attribute: Some(attribute) }).await
}

async fn erase(
    desk: &Desk,
    caller: &Caller,
    headers: &HeaderMap,
    given: GivenToDelete,
    named: Named,
) -> Result<StatusCode, Problem> {
    let paths = paths(headers)?;
    let erasure = Erasure {
        number: 0,
        tenant: caller.tenant.to_string(),
        kind: given.kind,
        id: named.id,
        attribute: named.attribute,
        paths: (!paths.are_all()).then(|| paths.to_string()),
    };
    desk.erase(&caller.tenant, erasure).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn answer(answered: Answered) -> Response {
    let Answered { text, media, total, cut, memory } = answered;
    let mut response = (([(CONTENT_TYPE, HeaderValue::from_static(media.content_type()))]), text).into_response();
    memory.hold_for(&mut response);
    if let Some((first, last)) = cut {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let range = format!("date-time {}-{}/*", iso_time(first), iso_time(last));
        if let Ok(range) = HeaderValue::from_str(&range) {
            response.headers_mut().insert(CONTENT_RANGE, range);
        }
    }
    if let Some(total) = total {
        response.headers_mut().insert(TOTAL_COUNT, HeaderValue::from(total));
    }
    response
}

/// Renders problems as NGSI-LD has them.
fn style(problem: Problem) -> Response {
    let name = match problem.reason() {
        Reason::UnknownRoute => "OperationNotSupported",
        Reason::Code(ErrorCode::NotFound) => "ResourceNotFound",
        Reason::Code(ErrorCode::Conflict | ErrorCode::TooLarge) => "TooManyResults",
        Reason::Code(ErrorCode::Internal | ErrorCode::Corrupt) => "InternalError",
        Reason::Code(ErrorCode::Unauthenticated) => "Unauthorized",
        Reason::Code(ErrorCode::Forbidden) => "Forbidden",
        Reason::Code(ErrorCode::RateLimited) => "TooManyRequests",
        Reason::Code(ErrorCode::Overloaded | ErrorCode::Timeout | ErrorCode::Unavailable) | Reason::DeadlinePassed => {
            "ServiceUnavailable"
        }
        Reason::MethodNotAllowed => "MethodNotAllowed",
        _ if problem.status() == StatusCode::NOT_ACCEPTABLE => "NotAcceptable",
        _ => "BadRequestData",
    };
    let body = json!({
        "type": format!("https://uri.etsi.org/ngsi-ld/errors/{name}"),
        "title": name,
        "status": problem.status().as_u16(),
        "detail": problem.text(),
    });
    let mut response = (problem.status(), body.to_string()).into_response();
    response.headers_mut().insert(CONTENT_TYPE, millstream_http::PROBLEM_JSON);
    response
}
