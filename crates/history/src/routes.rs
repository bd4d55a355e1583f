//! The NGSI-LD temporal routes.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::{CONTENT_RANGE, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use millstream_http::{
    Access, AnswerMemory, Caller, Content, Deadline, ErrorStyle, Limits, Path, Problem, Query, Reason, Route,
    RouteDraft, Routes,
};
use millstream_types::{ErrorCode, Role, iso_time};
use serde_json::json;

use crate::catalog_record::Erasure;
use crate::request::{AttributePath, DeleteParameters, PathParameters, ReadParameters, paths};
use crate::service::{HistoryService, TemporalResponse};

const ENTITIES: &str = "/ngsi-ld/v1/temporal/entities";
const ENTITY: &str = "/ngsi-ld/v1/temporal/entities/{id}";
const ATTRIBUTE: &str = "/ngsi-ld/v1/temporal/entities/{id}/attrs/{name}";
const TOTAL_COUNT: HeaderName = HeaderName::from_static("ngsild-results-count");

type ServiceState = State<Arc<HistoryService>>;

pub(crate) fn routes(service: &Arc<HistoryService>) -> Routes {
    let limits = Limits {
        body_max_bytes: 0,
        body_max_setting: "none: these routes take no body",
        timeout: Duration::from_millis(service.timeout_ms),
    };
    let reader = Access::Role(Role::Reader);
    let writer = Access::Role(Role::Writer);
    let list = Route::get(ENTITIES, reader, limits, "List the history of entities")
        .query("id", "Ids, separated by commas.")
        .query("idPattern", "A regular expression for ids.")
        .query("limit", "Entities on a page, 0 to 1000; 20 if left out.")
        .query("offset", "Entities to skip; 0 if left out.")
        .query("count", "true: the total in NGSILD-Results-Count.");
    let read = Route::get(ENTITY, reader, limits, "Read the history of an entity").param("id", "The entity's id.");
    let read_one = Route::get(ATTRIBUTE, reader, limits, "Read the history of an attribute")
        .param("id", "The entity's id.")
        .param("name", "The attribute's name.");
    let delete_all = Route::delete(ENTITIES, Access::Role(Role::Admin), limits, "Delete the history of a type")
        .query("type", "The type; the tenant's whole history if left out.");
    let delete = Route::delete(ENTITY, writer, limits, "Delete an entity's history")
        .param("id", "The entity's id.")
        .query("type", "The entity's type, if the id exists in several types.");
    let delete_one = Route::delete(ATTRIBUTE, writer, limits, "Delete an attribute's history")
        .param("id", "The entity's id.")
        .param("name", "The attribute's name.")
        .query("type", "The entity's type, if the id exists in several types.");
    Routes::new("history")
        .errors("/ngsi-ld", STYLE)
        .route(
            scoped(timed(list.query("attrs", "Attributes, separated by commas; all if left out.")))
                .to(list_entities, service.clone()),
        )
        .route(
            scoped(timed(read.query("attrs", "Attributes, separated by commas; all if left out.")))
                .to(read_entity, service.clone()),
        )
        .route(scoped(timed(read_one)).to(read_attribute, service.clone()))
        .route(scoped(delete_all).answers(204, "Deleted.").to(delete_kind, service.clone()))
        .route(scoped(delete).answers(204, "Deleted.").to(delete_entity, service.clone()))
        .route(scoped(delete_one).answers(204, "Deleted.").to(delete_attribute, service.clone()))
}

fn scoped(route: RouteDraft) -> RouteDraft {
    route
        .header("Fiware-Service", "The tenant; 'default' if left out. NGSILD-Tenant means the same.")
        .header("Fiware-ServicePath", "Paths within the tenant, also '/a/#' and lists; all if left out.")
}

/// Adds the parameters of all reads.
fn timed(route: RouteDraft) -> RouteDraft {
    route
        .query("type", "Types, separated by commas.")
        .query("timerel", "before, after (both exclusive), or between timeAt (inclusive) and endTimeAt (exclusive).")
        .query("timeAt", "An ISO 8601 date, or date and time.")
        .query("endTimeAt", "The end of 'between', exclusive.")
        .query("timeproperty", "observedAt, which is the default, createdAt or modifiedAt.")
        .query("lastN", "Only the last N points of each attribute.")
        .query("options", "temporalValues: pairs of value and time; aggregatedValues: by period.")
        .query("aggrMethods", "totalCount, distinctCount, sum, avg, min, max, stddev, sumsq; separated by commas.")
        .query("aggrPeriodDuration", "ISO 8601, such as PT1H or P1M; one period if left out.")
        .header("Accept", "application/json, or text/csv.")
        .answers_with(200, "The complete answer.", Content::json(json!({"type": ["array", "object"]})))
        .answers_with(206, "A part of it; Content-Range names the time that it covers.", Content::json(json!({})))
        .answers_with(200, "As rows.", Content::bytes("text/csv"))
        .answers_with(206, "As rows.", Content::bytes("text/csv"))
        .answers(404, "Nothing of that name has a history here.")
        .answers(406, "`Accept` has neither `application/json` nor `text/csv`.")
        .answers(409, "The id names several entities; name the type.")
        .answers(413, "The answer would be too large; ask for less. Or the request has a body.")
}

async fn list_entities(
    State(service): ServiceState,
    caller: Caller,
    headers: HeaderMap,
    Query(given): Query<ReadParameters>,
    memory: AnswerMemory,
    deadline: Deadline,
) -> Result<Response, Problem> {
    let query = given.read(&caller.tenant, &headers, PathParameters::default(), service.limits.page_max_points)?;
    service.read(query, memory, deadline).await.map(answer)
}

async fn read_entity(
    State(service): ServiceState,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<String>,
    Query(given): Query<ReadParameters>,
    memory: AnswerMemory,
    deadline: Deadline,
) -> Result<Response, Problem> {
    let named = PathParameters { id: Some(id), attribute: None };
    let query = given.read(&caller.tenant, &headers, named, service.limits.page_max_points)?;
    service.read(query, memory, deadline).await.map(answer)
}

async fn read_attribute(
    State(service): ServiceState,
    caller: Caller,
    headers: HeaderMap,
    Path(AttributePath { id, attribute }): Path<AttributePath>,
    Query(given): Query<ReadParameters>,
    memory: AnswerMemory,
    deadline: Deadline,
) -> Result<Response, Problem> {
    let named = PathParameters { id: Some(id), attribute: Some(attribute) };
    let query = given.read(&caller.tenant, &headers, named, service.limits.page_max_points)?;
    service.read(query, memory, deadline).await.map(answer)
}

async fn delete_kind(
    State(service): ServiceState,
    caller: Caller,
    headers: HeaderMap,
    Query(given): Query<DeleteParameters>,
) -> Result<StatusCode, Problem> {
    erase(&service, &caller, &headers, given, PathParameters::default()).await
}

async fn delete_entity(
    State(service): ServiceState,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<String>,
    Query(given): Query<DeleteParameters>,
) -> Result<StatusCode, Problem> {
    erase(&service, &caller, &headers, given, PathParameters { id: Some(id), attribute: None }).await
}

async fn delete_attribute(
    State(service): ServiceState,
    caller: Caller,
    headers: HeaderMap,
    Path(AttributePath { id, attribute }): Path<AttributePath>,
    Query(given): Query<DeleteParameters>,
) -> Result<StatusCode, Problem> {
    erase(&service, &caller, &headers, given, PathParameters { id: Some(id), attribute: Some(attribute) }).await
}

async fn erase(
    service: &HistoryService,
    caller: &Caller,
    headers: &HeaderMap,
    given: DeleteParameters,
    named: PathParameters,
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
    service.erase(&caller.tenant, erasure).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn answer(answered: TemporalResponse) -> Response {
    let TemporalResponse { text, media, total, cut, memory } = answered;
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

/// The form of problems in NGSI-LD.
const STYLE: ErrorStyle = ErrorStyle {
    render: rendered,
    media_type: "application/problem+json",
    schema_name: "NgsiLdError",
    schema: || {
        json!({
            "type": "object",
            "required": ["type", "title", "status", "detail"],
            "properties": {
                "type": {"type": "string", "format": "uri"},
                "title": {"type": "string", "description": "The name of the error, the end of its type."},
                "status": {"type": "integer"},
                "detail": {"type": "string", "description": "The refused value, the rule and the remedy."},
            },
        })
    },
};

fn rendered(problem: Problem) -> Response {
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
