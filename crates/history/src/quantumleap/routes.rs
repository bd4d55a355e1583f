//! The routes of QuantumLeap's API that read and delete.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use millstream_http::{
    Access, AnswerMemory, Caller, Content, Deadline, ErrorStyle, FromPath, Limits, Params, Path, Problem, Query,
    Reason, Route, RouteDraft, Routes,
};
use millstream_types::{ErrorCode, Role, TenantId};
use serde_json::json;

use super::answer::{render, render_list};
use super::request::{RowParameters, RowQuery, RowScope, paths_below};
use super::rows::{EntityRows, choose, rows};
use crate::catalog_record::Erasure;
use crate::error::too_large;
use crate::page::TemporalResult;
use crate::query::{EntityPage, EntityRef, PointExtent, ResultForm};
use crate::read::SnapshotReader;
use crate::request::{AttributePath, DeleteParameters};
use crate::service::{HistoryService, is_short, the_entity};

const ENTITIES: &str = "/quantumleap/v2/entities";
const ENTITY: &str = "/quantumleap/v2/entities/{id}";
const ENTITY_VALUE: &str = "/quantumleap/v2/entities/{id}/value";
const ENTITY_ATTRIBUTE: &str = "/quantumleap/v2/entities/{id}/attrs/{name}";
const ENTITY_ATTRIBUTE_VALUE: &str = "/quantumleap/v2/entities/{id}/attrs/{name}/value";
const TYPE: &str = "/quantumleap/v2/types/{type}";
const TYPE_VALUE: &str = "/quantumleap/v2/types/{type}/value";
const TYPE_ATTRIBUTE: &str = "/quantumleap/v2/types/{type}/attrs/{name}";
const TYPE_ATTRIBUTE_VALUE: &str = "/quantumleap/v2/types/{type}/attrs/{name}/value";
const ATTRIBUTES: &str = "/quantumleap/v2/attrs";
const ATTRIBUTES_VALUE: &str = "/quantumleap/v2/attrs/value";
const ATTRIBUTE: &str = "/quantumleap/v2/attrs/{name}";
const ATTRIBUTE_VALUE: &str = "/quantumleap/v2/attrs/{name}/value";
const VERSION: &str = "/quantumleap/version";
const VERSION_V2: &str = "/quantumleap/v2/version";
const HEALTH: &str = "/quantumleap/health";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The state of the handlers of a route.
#[derive(Clone)]
struct RowRoute {
    service: Arc<HistoryService>,
    /// The path ends with `/value`.
    is_value: bool,
}

/// The path of an attribute of a type.
struct TypePath {
    kind: String,
    attribute: String,
}

impl FromPath for TypePath {
    fn from_path(params: &Params<'_>) -> Result<Self, Problem> {
        let (kind, attribute) = FromPath::from_path(params)?;
        Ok(Self { kind, attribute })
    }
}

pub(crate) fn routes(service: &Arc<HistoryService>) -> Routes {
    let state = |is_value| RowRoute { service: service.clone(), is_value };
    let limits = Limits {
        body_max_bytes: 0,
        body_max_setting: "none: these routes take no body",
        timeout: Duration::from_millis(service.timeout_ms),
    };
    let get = |path, what| Route::get(path, Access::Role(Role::Reader), limits, what);
    let list = windowed(get(ENTITIES, "List entities with the time of their last row"))
        .query("type", "Types, separated by commas.")
        .query("idPattern", "A regular expression for ids.");
    let delete = Route::delete(ENTITY, Access::Role(Role::Writer), limits, "Delete an entity's history")
        .query("type", "The entity's type, if the id exists in several types.")
        .answers(409, "The id names several entities; name the type.");
    let delete_kind = Route::delete(TYPE, Access::Role(Role::Admin), limits, "Delete the history of a type");
    let mut routes = Routes::new("history-quantumleap")
        .errors("/quantumleap", STYLE)
        .route(scoped(list).to(list_entities, state(false)))
        .route(scoped(delete.param("id", "The entity's id.")).answers(204, "Deleted.").to(delete_entity, state(false)))
        .route(scoped(delete_kind.param("type", "The type.")).answers(204, "Deleted.").to(delete_type, state(false)))
        .route(
            get(HEALTH, "Tell if history works")
                .answers_with(200, "It does.", object())
                .answers_with(207, "Something of it does not.", object())
                .to(health, state(false)),
        );
    for path in [VERSION, VERSION_V2] {
        let route = get(path, "Tell the version").answers_with(200, "The version.", object());
        routes = routes.route(route.to(version, state(false)));
    }
    for (path, is_value) in [(ENTITY, false), (ENTITY_VALUE, true)] {
        let route = of_one(get(path, "Read the rows of an entity")).query("attrs", "Attributes, separated by commas.");
        routes = routes.route(route.to(read_entity, state(is_value)));
    }
    for (path, is_value) in [(ENTITY_ATTRIBUTE, false), (ENTITY_ATTRIBUTE_VALUE, true)] {
        let route = of_one(get(path, "Read an attribute of an entity")).param("name", "The attribute's name.");
        routes = routes.route(route.to(read_entity_attribute, state(is_value)));
    }
    for (path, is_value) in [(TYPE, false), (TYPE_VALUE, true)] {
        let route = of_many(get(path, "Read the rows of a type")).param("type", "The type.");
        let route = route.query("attrs", "Attributes, separated by commas.");
        routes = routes.route(route.to(read_type, state(is_value)));
    }
    for (path, is_value) in [(TYPE_ATTRIBUTE, false), (TYPE_ATTRIBUTE_VALUE, true)] {
        let route = of_many(get(path, "Read an attribute of a type")).param("type", "The type.");
        let route = route.param("name", "The attribute's name.");
        routes = routes.route(route.to(read_type_attribute, state(is_value)));
    }
    for (path, is_value) in [(ATTRIBUTE, false), (ATTRIBUTE_VALUE, true)] {
        let route = of_many(get(path, "Read an attribute of all types")).param("name", "The attribute's name.");
        let route = route.query("type", "Types, separated by commas.");
        routes = routes.route(route.to(read_attribute, state(is_value)));
    }
    for (path, is_value) in [(ATTRIBUTES, false), (ATTRIBUTES_VALUE, true)] {
        let route = of_many(get(path, "Read all attributes of all types"));
        let route = route.query("type", "Types, separated by commas.");
        let route = route.query("attrs", "Attributes, separated by commas.");
        routes = routes.route(route.to(read_all, state(is_value)));
    }
    routes
}

fn object() -> Content {
    Content::json(json!({"type": "object"}))
}

fn scoped(route: RouteDraft) -> RouteDraft {
    route
        .header("Fiware-Service", "The tenant; 'default' if left out.")
        .header("Fiware-ServicePath", "Paths within the tenant, each with all below it; all if left out.")
        .answers(404, "No records were found.")
}

fn windowed(route: RouteDraft) -> RouteDraft {
    route
        .query("fromDate", "An ISO 8601 date, or date and time, inclusive.")
        .query("toDate", "An ISO 8601 date, or date and time, inclusive.")
        .query("limit", "Rows on a page, of each type; history.page_max_points at most, and if left out.")
        .query("offset", "Rows to skip; 0 if left out.")
        .answers_with(200, "What was found.", Content::json(json!({"type": ["array", "object"]})))
}

fn of_rows(route: RouteDraft) -> RouteDraft {
    scoped(windowed(route))
        .query("lastN", "Only the last N rows.")
        .query("aggrMethod", "count, sum, avg, min or max.")
        .query("aggrPeriod", "year, month, day, hour, minute or second; one period if left out.")
        .answers(413, "The answer would be too large; ask for less. Or the request has a body.")
        .answers(501, "georel, geometry, coords, options and aggrScope=global are not there.")
}

fn of_one(route: RouteDraft) -> RouteDraft {
    of_rows(route)
        .param("id", "The entity's id.")
        .query("type", "The entity's type, if the id exists in several types.")
        .answers(409, "The id names several entities; name the type.")
}

fn of_many(route: RouteDraft) -> RouteDraft {
    of_rows(route)
        .query("id", "Ids, separated by commas; the entities come in this order.")
        .query("idPattern", "A regular expression for ids.")
}

/// The parts of a request that every read takes.
struct Asked {
    caller: Caller,
    headers: HeaderMap,
    given: RowParameters,
    memory: AnswerMemory,
    deadline: Deadline,
}

async fn read_entity(
    State(route): State<RowRoute>,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<String>,
    Query(given): Query<RowParameters>,
    memory: AnswerMemory,
    deadline: Deadline,
) -> Result<Response, Problem> {
    let scope = RowScope { id: Some(id), ..RowScope::default() };
    read(&route, scope, Asked { caller, headers, given, memory, deadline }).await
}

async fn read_entity_attribute(
    State(route): State<RowRoute>,
    caller: Caller,
    headers: HeaderMap,
    Path(AttributePath { id, attribute }): Path<AttributePath>,
    Query(given): Query<RowParameters>,
    memory: AnswerMemory,
    deadline: Deadline,
) -> Result<Response, Problem> {
    let scope = RowScope { id: Some(id), attribute: Some(attribute), ..RowScope::default() };
    read(&route, scope, Asked { caller, headers, given, memory, deadline }).await
}

async fn read_type(
    State(route): State<RowRoute>,
    caller: Caller,
    headers: HeaderMap,
    Path(kind): Path<String>,
    Query(given): Query<RowParameters>,
    memory: AnswerMemory,
    deadline: Deadline,
) -> Result<Response, Problem> {
    let scope = RowScope { kind: Some(kind), ..RowScope::default() };
    read(&route, scope, Asked { caller, headers, given, memory, deadline }).await
}

async fn read_type_attribute(
    State(route): State<RowRoute>,
    caller: Caller,
    headers: HeaderMap,
    Path(TypePath { kind, attribute }): Path<TypePath>,
    Query(given): Query<RowParameters>,
    memory: AnswerMemory,
    deadline: Deadline,
) -> Result<Response, Problem> {
    let scope = RowScope { kind: Some(kind), attribute: Some(attribute), ..RowScope::default() };
    read(&route, scope, Asked { caller, headers, given, memory, deadline }).await
}

async fn read_attribute(
    State(route): State<RowRoute>,
    caller: Caller,
    headers: HeaderMap,
    Path(attribute): Path<String>,
    Query(given): Query<RowParameters>,
    memory: AnswerMemory,
    deadline: Deadline,
) -> Result<Response, Problem> {
    let scope = RowScope { attribute: Some(attribute), ..RowScope::default() };
    read(&route, scope, Asked { caller, headers, given, memory, deadline }).await
}

async fn read_all(
    State(route): State<RowRoute>,
    caller: Caller,
    headers: HeaderMap,
    Query(given): Query<RowParameters>,
    memory: AnswerMemory,
    deadline: Deadline,
) -> Result<Response, Problem> {
    read(&route, RowScope::default(), Asked { caller, headers, given, memory, deadline }).await
}

async fn read(route: &RowRoute, scope: RowScope, asked: Asked) -> Result<Response, Problem> {
    let RowRoute { service, is_value } = route;
    let Asked { caller, headers, given, memory, deadline } = asked;
    let scope = RowScope { is_value: *is_value, ..scope };
    let query = given.read(&caller.tenant, &headers, scope, service.limits.page_max_points)?;
    let is_quick = query.scope.id.is_some() && is_short(&query.series.form);
    service.run(&caller.tenant, is_quick, deadline, move |reader| answer(reader, &query, memory)).await
}

async fn list_entities(
    State(RowRoute { service, .. }): State<RowRoute>,
    caller: Caller,
    headers: HeaderMap,
    Query(given): Query<RowParameters>,
    mut memory: AnswerMemory,
    deadline: Deadline,
) -> Result<Response, Problem> {
    let mut query = given.read(&caller.tenant, &headers, RowScope::default(), service.limits.page_max_points)?;
    query.series.form = ResultForm::Points(PointExtent::Last(1));
    let list = move |reader: &SnapshotReader<'_>| {
        let RowQuery { series, page, .. } = &query;
        let page = EntityPage { offset: page.offset, limit: page.limit, counts: false };
        let (entities, _) = reader.entities(&series.selection, &series.window, page)?;
        let found = reader.with_point_limit(usize::MAX).read(&entities, series, &mut memory)?;
        let last = rows(entities.len(), found, None).into_iter().map(|rows| rows.times().max());
        let listed: Vec<(EntityRef, i64)> =
            entities.into_iter().zip(last).filter_map(|(entity, ms)| ms.map(|ms| (entity, ms))).collect();
        if listed.is_empty() {
            return Err(nothing_found());
        }
        let text = render_list(&listed, &mut memory)?;
        Ok(response(text, memory))
    };
    service.run(&caller.tenant, false, deadline, list).await
}

fn answer(reader: &SnapshotReader<'_>, query: &RowQuery, mut memory: AnswerMemory) -> Result<Response, Problem> {
    let entities = entities(reader, query)?;
    let (mut all, mut rows_bytes) = (Vec::new(), 0);
    for of_kind in entities.chunk_by(|one, next| one.kind == next.kind) {
        let mut read = read_rows(reader, of_kind, query, &mut memory)?;
        rows_bytes += read.iter().map(EntityRows::size_bytes).sum::<usize>();
        reader.check_bytes(rows_bytes, &mut memory)?;
        choose(&mut read, query.page, query.method.is_some());
        all.append(&mut read);
    }
    let found: Vec<(EntityRef, EntityRows)> =
        entities.into_iter().zip(all).filter(|(_, rows)| !rows.is_empty()).collect();
    if found.is_empty() {
        return Err(nothing_found());
    }
    let text = render(&found, rows_bytes, query, &mut memory)?;
    Ok(response(text, memory))
}

/// Reads the rows of entities of one type, at least those up to the end of the page. Rows by time need few points of each entity
/// where there are many, so it begins with few, and reads more until the rows are enough.
fn read_rows(
    reader: &SnapshotReader<'_>,
    entities: &[EntityRef],
    query: &RowQuery,
    memory: &mut AnswerMemory,
) -> Result<Vec<EntityRows>, Problem> {
    /// Points of an entity at one time, of different attributes, for which there is room at first.
    const OF_ONE_TIME: usize = 16;
    if query.method.is_some() {
        return Ok(rows(entities.len(), reader.read(entities, &query.series, memory)?, query.method));
    }
    let wanted = query.page.offset.saturating_add(query.page.limit);
    let mut points_max = wanted.saturating_mul(2).saturating_add(entities.len().saturating_mul(OF_ONE_TIME));
    loop {
        let found = match reader.with_point_limit(points_max).read(entities, &query.series, memory) {
            Ok(found) => found,
            // More points than that have one time, or the answer is too large however few they are.
            Err(problem) if problem.reason() == Reason::Code(ErrorCode::TooLarge) && points_max < usize::MAX => {
                points_max = usize::MAX;
                continue;
            }
            Err(problem) => return Err(problem),
        };
        let is_cut = matches!(&found, TemporalResult::Points(points) if points.cut.is_some());
        let read = rows(entities.len(), found, None);
        if !is_cut || read.iter().map(EntityRows::len).sum::<usize>() >= wanted {
            return Ok(read);
        }
        points_max = points_max.saturating_mul(4);
    }
}

/// Returns the entities that a query selects by type, those of a type in the order of the asked ids.
fn entities(reader: &SnapshotReader<'_>, query: &RowQuery) -> Result<Vec<EntityRef>, Problem> {
    let selection = &query.series.selection;
    if query.scope.id.is_some() {
        return Ok(vec![the_entity(reader, &query.series)?.ok_or_else(nothing_found)?]);
    }
    let entities_max = reader.limits.page_max_points;
    let page = EntityPage { offset: 0, limit: entities_max.saturating_add(1), counts: false };
    let (mut found, _) = reader.entities(selection, &query.series.window, page)?;
    if found.len() > entities_max {
        return Err(too_large(format!("rows of more than {entities_max} entities are asked for"))
            .rule(format!("history.page_max_points = {entities_max}"))
            .remedy("name a type, ids, or an idPattern"));
    }
    let place = |entity: &EntityRef| selection.ids.iter().position(|id| *id == entity.id);
    found.sort_by(|one, other| one.kind.cmp(&other.kind).then_with(|| place(one).cmp(&place(other))));
    Ok(found)
}

async fn delete_entity(
    State(RowRoute { service, .. }): State<RowRoute>,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<String>,
    Query(given): Query<DeleteParameters>,
    deadline: Deadline,
) -> Result<StatusCode, Problem> {
    let parameters = RowParameters::of_kind(given.kind.clone());
    let scope = RowScope { id: Some(id.clone()), ..RowScope::default() };
    let query = parameters.read(&caller.tenant, &headers, scope, 1)?;
    let exists = move |reader: &SnapshotReader<'_>| the_entity(reader, &query.series);
    service.run(&caller.tenant, true, deadline, exists).await?.ok_or_else(nothing_found)?;
    erase(&service, &caller.tenant, &headers, Erasure { id: Some(id), kind: given.kind, ..Erasure::default() }).await
}

async fn delete_type(
    State(RowRoute { service, .. }): State<RowRoute>,
    caller: Caller,
    headers: HeaderMap,
    Path(kind): Path<String>,
) -> Result<StatusCode, Problem> {
    erase(&service, &caller.tenant, &headers, Erasure { kind: Some(kind), ..Erasure::default() }).await
}

async fn erase(
    service: &HistoryService,
    tenant: &TenantId,
    headers: &HeaderMap,
    erasure: Erasure,
) -> Result<StatusCode, Problem> {
    let paths = paths_below(headers)?;
    let paths = (!paths.are_all()).then(|| paths.to_string());
    service.erase(tenant, Erasure { tenant: tenant.to_string(), paths, ..erasure }).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn version() -> Response {
    json_response(StatusCode::OK, &json!({"version": env!("CARGO_PKG_VERSION")}))
}

async fn health(State(RowRoute { service, .. }): State<RowRoute>) -> Response {
    match service.state.failures().first() {
        None => json_response(StatusCode::OK, &json!({"status": "pass"})),
        Some(failure) => {
            let details = json!({"history": {"status": "warn", "output": failure}});
            json_response(StatusCode::MULTI_STATUS, &json!({"status": "warn", "details": details}))
        }
    }
}

fn nothing_found() -> Problem {
    Problem::new(Reason::Code(ErrorCode::NotFound), "No records were found for such query.")
}

fn response(text: String, memory: AnswerMemory) -> Response {
    let mut response = ([(CONTENT_TYPE, JSON)], text).into_response();
    memory.hold_for(&mut response);
    response
}

fn json_response(status: StatusCode, body: &serde_json::Value) -> Response {
    (status, [(CONTENT_TYPE, JSON)], body.to_string()).into_response()
}

/// The form of QuantumLeap's problems, by which its clients know the end of their pages.
const STYLE: ErrorStyle = ErrorStyle {
    render: rendered,
    media_type: "application/json",
    schema_name: "QuantumLeapError",
    schema: || {
        json!({
            "type": "object",
            "required": ["error", "description"],
            "properties": {
                "error": {"type": "string", "description": "The reason phrase of the status."},
                "description": {"type": "string", "description": "The refused value, the rule and the remedy."},
            },
        })
    },
};

fn rendered(problem: Problem) -> Response {
    let error = problem.status().canonical_reason().unwrap_or("Error");
    json_response(problem.status(), &json!({"error": error, "description": problem.text()}))
}
