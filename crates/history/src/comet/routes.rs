//! The routes of STH-Comet's API that read and delete.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use millstream_http::{
    Access, AnswerMemory, Caller, Content, Deadline, ErrorStyle, FromPath, Limits, Params, Path, Problem, Query, Route,
    RouteDraft, Routes,
};
use millstream_types::Role;
use serde_json::json;

use super::answer::{Version, csv, sums, values};
use super::request::{NamedAttribute, ValueForm, ValueParameters, ValueQuery};
use crate::catalog_record::Erasure;
use crate::page::TemporalResult;
use crate::period::Periods;
use crate::point::Point;
use crate::query::{AggregateMethod, EntityRef, ResultForm, SeriesQuery};
use crate::read::SnapshotReader;
use crate::request::{AttributePath, DeleteParameters, paths};
use crate::service::{HistoryService, is_short, the_entity};

const V1_ALL: &str = "/STH/v1/contextEntities";
const V1_ENTITY: &str = "/STH/v1/contextEntities/type/{type}/id/{id}";
const V1_ATTRIBUTE: &str = "/STH/v1/contextEntities/type/{type}/id/{id}/attributes/{name}";
const V2_ALL: &str = "/STH/v2/entities";
const V2_ENTITY: &str = "/STH/v2/entities/{id}";
const V2_ATTRIBUTE: &str = "/STH/v2/entities/{id}/attrs/{name}";
const TOTAL_COUNT: HeaderName = HeaderName::from_static("fiware-total-count");

type ServiceState = State<Arc<HistoryService>>;

/// An entity in a path of the first version.
struct TypedEntity {
    kind: String,
    id: String,
}

/// An attribute in a path of the first version.
struct TypedAttribute {
    kind: String,
    id: String,
    attribute: String,
}

impl FromPath for TypedEntity {
    fn from_path(params: &Params<'_>) -> Result<Self, Problem> {
        let (kind, id) = FromPath::from_path(params)?;
        Ok(Self { kind, id })
    }
}

impl FromPath for TypedAttribute {
    fn from_path(params: &Params<'_>) -> Result<Self, Problem> {
        let (kind, id, attribute) = FromPath::from_path(params)?;
        Ok(Self { kind, id, attribute })
    }
}

/// Returns the routes of both versions, whose problems have forms of their own.
pub(crate) fn routes(service: &Arc<HistoryService>) -> [Routes; 2] {
    let limits = Limits {
        body_max_bytes: 0,
        body_max_setting: "none: these routes take no body",
        timeout: Duration::from_millis(service.timeout_ms),
    };
    let typed = |route: RouteDraft| route.param("type", "The entity's type.").param("id", "The entity's id.");
    let untyped = |route: RouteDraft| {
        route.param("id", "The entity's id.").query("type", "The entity's type, if the id exists in several types.")
    };
    let read = |path| {
        let what = "Read the values of an attribute, or their sums";
        valued(Route::get(path, Access::Role(Role::Reader), limits, what)).param("name", "The attribute's name.")
    };
    let delete =
        |path, role, what| scoped(Route::delete(path, Access::Role(role), limits, what)).answers(204, "Deleted.");
    let delete_all = |path| delete(path, Role::Admin, "Delete the history of service paths");
    let delete_entity = |path| delete(path, Role::Writer, "Delete an entity's history");
    let delete_attribute =
        |path| delete(path, Role::Writer, "Delete an attribute's history").param("name", "The attribute's name.");
    let v1 = Routes::new("history-comet-v1")
        .errors("/STH/v1", STYLE_1)
        .route(typed(read(V1_ATTRIBUTE)).to(read_attribute_v1, service.clone()))
        .route(delete_all(V1_ALL).to(delete_everything, service.clone()))
        .route(typed(delete_entity(V1_ENTITY)).to(delete_entity_v1, service.clone()))
        .route(typed(delete_attribute(V1_ATTRIBUTE)).to(delete_attribute_v1, service.clone()));
    let v2 = Routes::new("history-comet-v2")
        .errors("/STH/v2", STYLE_2)
        .route(untyped(read(V2_ATTRIBUTE)).to(read_attribute_v2, service.clone()))
        .route(delete_all(V2_ALL).to(delete_everything, service.clone()))
        .route(untyped(delete_entity(V2_ENTITY)).to(delete_entity_v2, service.clone()))
        .route(untyped(delete_attribute(V2_ATTRIBUTE)).to(delete_attribute_v2, service.clone()));
    [v1, v2]
}

fn scoped(route: RouteDraft) -> RouteDraft {
    route
        .header("Fiware-Service", "The tenant; 'default' if left out.")
        .header("Fiware-ServicePath", "Paths within the tenant, also '/a/#' and lists; all if left out.")
}

fn valued(route: RouteDraft) -> RouteDraft {
    scoped(route)
        .query("lastN", "Only the last N values; this, or hLimit and hOffset.")
        .query("hLimit", "Values on a page, at most history.page_max_points.")
        .query("hOffset", "Values to skip.")
        .query("dateFrom", "An ISO 8601 date, or date and time, inclusive.")
        .query("dateTo", "An ISO 8601 date, or date and time, inclusive.")
        .query("filetype", "csv: the values as a file.")
        .query("count", "true: the number of all values in the asked time in Fiware-Total-Count.")
        .query("aggrMethod", "max, min, sum, sum2, all of these, or occur for texts.")
        .query("aggrPeriod", "month, day, hour, minute or second.")
        .answers_with(200, "The values, none if there are none.", Content::json(json!({"type": "object"})))
        .answers_with(200, "As a file.", Content::bytes("text/csv"))
        .answers(409, "The id names several entities; name the type.")
        .answers(413, "The answer would be too large; ask for less. Or the request has a body.")
}

/// The parts of a request that every read takes.
struct Asked {
    caller: Caller,
    headers: HeaderMap,
    given: ValueParameters,
    memory: AnswerMemory,
    deadline: Deadline,
}

async fn read_attribute_v1(
    State(service): ServiceState,
    caller: Caller,
    headers: HeaderMap,
    Path(TypedAttribute { kind, id, attribute }): Path<TypedAttribute>,
    Query(given): Query<ValueParameters>,
    memory: AnswerMemory,
    deadline: Deadline,
) -> Result<Response, Problem> {
    let named = NamedAttribute { id, kind: Some(kind), attribute };
    read(&service, Version::V1, named, Asked { caller, headers, given, memory, deadline }).await
}

async fn read_attribute_v2(
    State(service): ServiceState,
    caller: Caller,
    headers: HeaderMap,
    Path(AttributePath { id, attribute }): Path<AttributePath>,
    Query(given): Query<ValueParameters>,
    memory: AnswerMemory,
    deadline: Deadline,
) -> Result<Response, Problem> {
    let named = NamedAttribute { id, kind: None, attribute };
    read(&service, Version::V2, named, Asked { caller, headers, given, memory, deadline }).await
}

async fn read(
    service: &Arc<HistoryService>,
    version: Version,
    named: NamedAttribute,
    asked: Asked,
) -> Result<Response, Problem> {
    let Asked { caller, headers, given, memory, deadline } = asked;
    let query = given.read(&caller.tenant, &headers, named, service.limits.page_max_points)?;
    let is_quick = is_short(&query.series.form) && !query.counts;
    service.run(&caller.tenant, is_quick, deadline, move |reader| answer(reader, &query, version, memory)).await
}

fn answer(
    reader: &SnapshotReader<'_>,
    query: &ValueQuery,
    version: Version,
    mut memory: AnswerMemory,
) -> Result<Response, Problem> {
    let entities: Vec<EntityRef> = the_entity(reader, &query.series)?.into_iter().collect();
    let reader_of_points = reader.with_point_limit(usize::MAX);
    let attribute = &query.named.attribute;
    let is_csv = matches!(query.form, ValueForm::Values { is_csv: true, .. });
    let text = match query.form {
        ValueForm::Values { page, .. } => {
            let points: Vec<(i64, Point)> = match reader_of_points.read(&entities, &query.series, &mut memory)? {
                TemporalResult::Points(points) => points.series.into_iter().flat_map(|(_, _, points)| points).collect(),
                TemporalResult::Periods(_) => Vec::new(),
            };
            if is_csv {
                csv(page.of(&points), attribute)
            } else {
                version.wrap(&values(page.of(&points)), &query.named)
            }
        }
        ValueForm::Sums { method, resolution } => {
            let periods = match reader.read(&entities, &query.series, &mut memory)? {
                TemporalResult::Periods(series) => series.into_iter().flat_map(|(_, _, periods)| periods).collect(),
                TemporalResult::Points(_) => Vec::new(),
            };
            version.wrap(&sums(&periods, attribute, method, resolution), &query.named)
        }
    };
    memory.cover(text.capacity())?;
    let total = if query.counts { Some(total(reader, &entities, query, &mut memory)?) } else { None };
    let media = if is_csv { "text/csv; charset=utf-8" } else { "application/json" };
    let mut response = ([(CONTENT_TYPE, HeaderValue::from_static(media))], text).into_response();
    memory.hold_for(&mut response);
    if let Some(total) = total {
        response.headers_mut().insert(TOTAL_COUNT, HeaderValue::from(total));
    }
    if is_csv {
        let name = percent_encoding::utf8_percent_encode(attribute, percent_encoding::NON_ALPHANUMERIC);
        if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename*=utf-8''{name}.csv")) {
            response.headers_mut().insert(CONTENT_DISPOSITION, name);
        }
    }
    Ok(response)
}

/// Returns the number of all values in the asked time.
fn total(
    reader: &SnapshotReader<'_>,
    entities: &[EntityRef],
    query: &ValueQuery,
    memory: &mut AnswerMemory,
) -> Result<u64, Problem> {
    let Some(periods) = Periods::read("P0D", None) else { return Ok(0) };
    let form = ResultForm::Aggregated { methods: vec![AggregateMethod::TotalCount], periods };
    let found = reader.read(entities, &SeriesQuery { form, ..query.series.clone() }, memory)?;
    let TemporalResult::Periods(series) = found else { return Ok(0) };
    let sums = series.iter().flat_map(|(_, _, periods)| periods);
    Ok(sums.filter_map(|(_, sums)| sums.value(AggregateMethod::TotalCount)).sum::<f64>() as u64)
}

async fn delete_everything(
    State(service): ServiceState,
    caller: Caller,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    erase(&service, &caller, &headers, Erasure::default()).await
}

async fn delete_entity_v1(
    State(service): ServiceState,
    caller: Caller,
    headers: HeaderMap,
    Path(TypedEntity { kind, id }): Path<TypedEntity>,
) -> Result<StatusCode, Problem> {
    let erasure = Erasure { kind: Some(kind), id: Some(id), ..Erasure::default() };
    erase(&service, &caller, &headers, erasure).await
}

async fn delete_attribute_v1(
    State(service): ServiceState,
    caller: Caller,
    headers: HeaderMap,
    Path(TypedAttribute { kind, id, attribute }): Path<TypedAttribute>,
) -> Result<StatusCode, Problem> {
    let erasure = Erasure { kind: Some(kind), id: Some(id), attribute: Some(attribute), ..Erasure::default() };
    erase(&service, &caller, &headers, erasure).await
}

async fn delete_entity_v2(
    State(service): ServiceState,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<String>,
    Query(DeleteParameters { kind }): Query<DeleteParameters>,
) -> Result<StatusCode, Problem> {
    erase(&service, &caller, &headers, Erasure { kind, id: Some(id), ..Erasure::default() }).await
}

async fn delete_attribute_v2(
    State(service): ServiceState,
    caller: Caller,
    headers: HeaderMap,
    Path(AttributePath { id, attribute }): Path<AttributePath>,
    Query(DeleteParameters { kind }): Query<DeleteParameters>,
) -> Result<StatusCode, Problem> {
    let erasure = Erasure { kind, id: Some(id), attribute: Some(attribute), ..Erasure::default() };
    erase(&service, &caller, &headers, erasure).await
}

async fn erase(
    service: &HistoryService,
    caller: &Caller,
    headers: &HeaderMap,
    erasure: Erasure,
) -> Result<StatusCode, Problem> {
    let paths = paths(headers)?;
    let paths = (!paths.are_all()).then(|| paths.to_string());
    service.erase(&caller.tenant, Erasure { tenant: caller.tenant.to_string(), paths, ..erasure }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The form of problems in the first version.
const STYLE_1: ErrorStyle = ErrorStyle {
    render: rendered_1,
    media_type: "application/json",
    schema_name: "CometErrorV1",
    schema: || {
        json!({
            "type": "object",
            "required": ["statusCode", "error", "message"],
            "properties": {
                "statusCode": {"type": "integer"},
                "error": {"type": "string", "description": "The reason phrase of the status."},
                "message": {"type": "string", "description": "The refused value, the rule and the remedy."},
            },
        })
    },
};

/// The form of problems in the second version.
const STYLE_2: ErrorStyle = ErrorStyle {
    render: rendered_2,
    media_type: "application/json",
    schema_name: "CometErrorV2",
    schema: || {
        json!({
            "type": "object",
            "required": ["error", "description"],
            "properties": {
                "error": {"type": "string", "description": "The reason phrase of the status without spaces."},
                "description": {"type": "string", "description": "The refused value, the rule and the remedy."},
            },
        })
    },
};

fn rendered_1(problem: Problem) -> Response {
    let status = problem.status();
    let body = json!({"statusCode": status.as_u16(), "error": phrase(&problem), "message": problem.text()});
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body.to_string()).into_response()
}

fn rendered_2(problem: Problem) -> Response {
    let body = json!({"error": phrase(&problem).replace(' ', ""), "description": problem.text()});
    let media = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (problem.status(), media, body.to_string()).into_response()
}

fn phrase(problem: &Problem) -> &'static str {
    problem.status().canonical_reason().unwrap_or("Error")
}
