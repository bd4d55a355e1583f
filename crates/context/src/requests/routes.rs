//! The NGSI-v2 routes of entities and attributes, and the operations that are answered by 501.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use millstream_http::{AnswerMemory, Content, Limits, Request, Route, Routes};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::json;

use crate::ContextConfig;
use crate::entities::decide::no_attribute;
use crate::entities::view::WriteAction;
use crate::model::render::{self, Head};
use crate::model::request_body;
use crate::model::syntax::{check_attribute_name, check_identifier};
use crate::model::update::UpdateMode;
use crate::query::filter::{EntityFilter, TotalCount};
use crate::refusal::{Refusal, STYLE};
use crate::requests::batch_routes;
use crate::requests::handler::{
    AttributePath, EntityRead, HandlerResult, READER, ServiceState, TOTAL_COUNT, WRITER, answer_list, cacheable,
    checked, conditional, entity_schema, json_answer, listing, not_modified, of_one, reads, scoped, tagged, target,
    updating, writes,
};
use crate::requests::parameters::{LIST_PARAMETERS, RequestParameters};
use crate::requests::service::{JsonText, NgsiRequest, Service};
use crate::requests::type_routes;
use crate::requests::value_routes;
use crate::statistics::request_observer::CORRELATOR;
use crate::statistics::timing::RequestPhase;

const ENTRY: &str = "/v2";
const ENTITIES: &str = "/v2/entities";
const REGISTRATIONS: &str = "/v2/registrations";
const ENTITY: &str = "/v2/entities/{id}";
const ATTRIBUTES: &str = "/v2/entities/{id}/attrs";
const ATTRIBUTE: &str = "/v2/entities/{id}/attrs/{name}";
/// Allowed in identifiers but not in URLs.
const NOT_IN_URLS: &AsciiSet = &CONTROLS.add(b'%').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');

pub(crate) fn routes(service: &Arc<Service>, config: &ContextConfig) -> Routes {
    let limits = config.limits();
    let entities = Routes::new("entities").errors("/v2", STYLE).echo(CORRELATOR).trailing_slash();
    let entities = of_entities(entities, service, limits);
    let entities = match config.cors().ok().flatten() {
        Some(cors) => entities.cors(cors),
        None => entities,
    };
    let attributes = of_attributes(of_entry(entities, limits), service, limits);
    let values = value_routes::add(attributes, service, limits);
    let types = type_routes::add(values, service, limits);
    let batches = batch_routes::add(types, service, limits);
    later(batches, limits)
}

fn of_entities(routes: Routes, service: &Arc<Service>, limits: Limits) -> Routes {
    let list = listing(scoped(Route::get(ENTITIES, READER, limits, "List entities, oldest first")))
        .query("id", "Ids, separated by commas.")
        .query("type", "Types, separated by commas.")
        .query("idPattern", "What ids contain, a regular expression; not together with id.")
        .query("typePattern", "What types contain, a regular expression; not together with type.")
        .query("q", "Statements about attributes, all of which hold: t>20;name~=^a;!retired.")
        .query("mq", "Statements about metadata: t.accuracy<1.")
        .query("georel", "near;maxDistance:m, near;minDistance:m, coveredBy, intersects, disjoint or equals.")
        .query("geometry", "point, line, polygon or box.")
        .query("coords", "latitude,longitude;latitude,longitude…")
        .query("attrs", "Attributes to show, in this order; also dateCreated, dateModified, servicePath and *.")
        .query("metadata", "Metadata to show; also dateCreated, dateModified and *.");
    let create = scoped(Route::post(ENTITIES, WRITER, limits, "Create an entity"))
        .keeps_to_scope()
        .query("options", "keyValues: bare values; upsert: update it if it exists.");
    let create = updating(create, [Content::json(entity_schema())])
        .answers(201, "Created; Location names it.")
        .answers(204, "With upsert: created or updated; Location names it.");
    let read = cacheable(of_one(Route::get(ENTITY, READER, limits, "Read an entity")))
        .query("attrs", "Attributes to show.")
        .query("options", "keyValues: bare values.")
        .answers_with(200, "The entity.", Content::json(entity_schema()));
    let delete = of_one(Route::delete(ENTITY, WRITER, limits, "Delete an entity"));
    let delete = conditional(delete).answers(204, "It is gone.");
    routes
        .route(list.to(list_entities, service.clone()))
        .route(create.answered_by(writes(service, create_entity)))
        .route(read.answered_by(reads(service, read_entity)))
        .route(delete.answered_by(writes(service, delete_entity)))
}

fn of_attributes(routes: Routes, service: &Arc<Service>, limits: Limits) -> Routes {
    let read = cacheable(of_one(Route::get(ATTRIBUTES, READER, limits, "Read an entity's attributes")))
        .query("attrs", "Attributes to show.")
        .query("options", "keyValues: bare values.")
        .answers_with(200, "The attributes.", Content::json(entity_schema()));
    let write = |method, summary| {
        let route = of_one(Route::on(method, ATTRIBUTES, WRITER, limits, summary)).query(
            "options",
            "keyValues: bare values; overrideMetadata: metadata is replaced; append (POST): strictly.",
        );
        updating(conditional(route), [Content::json(entity_schema())]).answers(204, "Done.")
    };
    let one = |method, access, limits, summary| {
        of_one(Route::on(method, ATTRIBUTE, access, limits, summary)).param("name", "The attribute's name.")
    };
    let read_one = cacheable(one(Method::GET, READER, limits, "Read an attribute")).answers_with(
        200,
        "The attribute.",
        Content::json(attribute_schema()),
    );
    let put_one = one(Method::PUT, WRITER, limits, "Set an attribute")
        .query("options", "overrideMetadata: metadata is replaced.");
    let put_one = updating(conditional(put_one), [Content::json(attribute_schema())]).answers(204, "Set.");
    let delete_one = conditional(one(Method::DELETE, WRITER, limits, "Remove an attribute")).answers(204, "Removed.");
    routes
        .route(read.answered_by(reads(service, read_attributes)))
        .route(write(Method::POST, "Update or append attributes").answered_by(writes(service, post_attributes)))
        .route(write(Method::PATCH, "Update existing attributes").answered_by(writes(service, patch_attributes)))
        .route(write(Method::PUT, "Replace all attributes").answered_by(writes(service, put_attributes)))
        .route(read_one.answered_by(reads(service, read_attribute)))
        .route(put_one.answered_by(writes(service, put_attribute)))
        .route(delete_one.answered_by(writes(service, delete_attribute)))
}

/// The entry points and the empty list of registrations.
fn of_entry(routes: Routes, limits: Limits) -> Routes {
    let entry = checked(Route::get(ENTRY, READER, limits, "Name the entry points")).answers_with(
        200,
        "Their URLs.",
        Content::json(json!({"type": "object", "additionalProperties": {"type": "string"}})),
    );
    let registrations =
        scoped(Route::get(REGISTRATIONS, READER, limits, "List registrations, of which there are none"))
            .query("limit", "Registrations on a page, 0 to 1000; 20 if left out.")
            .query("offset", "Registrations to pass over; 0 if left out.")
            .query("options", "count: the total in Fiware-Total-TotalCount.")
            .answers_with(200, "An empty list.", Content::json(json!({"type": "array"})));
    routes.route(entry.to(name_entry_points, ())).route(registrations.to(list_registrations, ()))
}

/// Adds the routes of NGSI-v2 operations that are not supported.
fn later(routes: Routes, limits: Limits) -> Routes {
    let table: [(&str, &[Method]); 2] =
        [(REGISTRATIONS, &[Method::POST]), ("/v2/registrations/{id}", &[Method::GET, Method::DELETE])];
    table.into_iter().flat_map(|(path, methods)| methods.iter().map(move |method| (path, method.clone()))).fold(
        routes,
        |routes, (path, method)| {
            let mut route = Route::on(method, path, READER, limits, "Not supported by this version")
                .answers(501, "Not supported by this version.");
            if path.contains("{id}") {
                route = route.param("id", "Which one.");
            }
            routes.route(route.to(not_yet, ()))
        },
    )
}

fn attribute_schema() -> serde_json::Value {
    json!({"type": "object", "properties": {"value": {}, "type": {"type": "string"}, "metadata": {"type": "object"}}})
}

async fn name_entry_points(ask: NgsiRequest) -> HandlerResult {
    ask.parameters(&[], &[])?;
    let urls = json!({
        "entities_url": ENTITIES,
        "types_url": "/v2/types",
        "subscriptions_url": "/v2/subscriptions",
        "registrations_url": REGISTRATIONS,
    });
    Ok(json_answer(urls.to_string()))
}

async fn list_registrations(ask: NgsiRequest) -> HandlerResult {
    let given = ask.parameters(&["limit", "offset"], &["count"])?;
    given.page()?;
    let mut response = json_answer("[]".to_owned());
    if given.count() == TotalCount::Wanted {
        response.headers_mut().insert(TOTAL_COUNT, HeaderValue::from(0));
    }
    Ok(response)
}

async fn not_yet(method: Method, uri: Uri) -> Response {
    Refusal::later("the operation", &format!("{method} {}", uri.path())).into_response()
}

async fn list_entities(State(service): ServiceState, ask: NgsiRequest, memory: AnswerMemory) -> HandlerResult {
    let given = ask.parameters(
        &LIST_PARAMETERS,
        &["keyValues", "values", "unique", "count", "skipForwarding", "dateCreated", "dateModified", "explain"],
    )?;
    let criteria = given.criteria()?;
    let is_near = criteria.geo.as_ref().is_some_and(|geo| geo.is_near());
    let order = given.order(is_near)?.unwrap_or_default();
    let (selectors, paths) = (vec![given.selector()?], ask.paths()?);
    let filter = EntityFilter { selectors, paths, criteria, now_ms: service.wall.now_ms() };
    let read = EntityRead { filter, order, selection: given.selection()? };
    answer_list(&service, &ask, &given, read, memory).await
}

async fn create_entity(service: Arc<Service>, ask: NgsiRequest, (): (), JsonText(body): JsonText) -> HandlerResult {
    let given = ask.parameters(&[], &["keyValues", "upsert", "overrideMetadata", "forcedUpdate", "flowControl"])?;
    let entity = service.observers.timing.of(RequestPhase::Parse, || request_body::entity(&body, given.how()))?;
    let (id, kind) = (entity.id.clone(), entity.kind.clone().unwrap_or_default());
    let action = match given.has_option("upsert") {
        true => WriteAction::Upsert { given: entity, manner: UpdateMode::Append },
        false => WriteAction::Create(entity),
    };
    let status = if given.has_option("upsert") { StatusCode::NO_CONTENT } else { StatusCode::CREATED };
    service.write(&ask, &id, action).await?;
    let encode = |text| utf8_percent_encode(text, NOT_IN_URLS);
    let location = format!("{ENTITIES}/{}?type={}", encode(&id), encode(&kind));
    let location = HeaderValue::from_str(&location).expect("identifiers are ASCII");
    Ok((status, [(LOCATION, location)]).into_response())
}

fn read_entity(service: &Service, ask: &NgsiRequest, request: &Request<'_>) -> HandlerResult {
    show_one(service, ask, &request.param(0)?, Head::Shown)
}

fn read_attributes(service: &Service, ask: &NgsiRequest, request: &Request<'_>) -> HandlerResult {
    show_one(service, ask, &request.param(0)?, Head::Hidden)
}

fn show_one(service: &Service, ask: &NgsiRequest, id: &str, head: Head) -> HandlerResult {
    check_identifier("entity id", id)?;
    let given = ask.parameters(
        &["type", "attrs", "metadata"],
        &["keyValues", "values", "unique", "skipForwarding", "dateCreated", "dateModified"],
    )?;
    let selection = given.selection()?;
    let entity = service.read(ask, id, given.kind()?.as_deref())?;
    if ask.knows(&entity) {
        return Ok(not_modified(&entity));
    }
    let mut out = String::new();
    service
        .observers
        .timing
        .of(RequestPhase::Render, || render::push_entity(&entity, head, given.form(), &selection, &mut out));
    Ok(tagged(json_answer(out), &entity))
}

async fn delete_entity(service: Arc<Service>, ask: NgsiRequest, id: String, (): ()) -> HandlerResult {
    let given = ask.parameters(&["type"], &[])?;
    let target = target(&id, &given)?;
    service.write(&ask, &id, WriteAction::Delete(target)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn post_attributes(service: Arc<Service>, ask: NgsiRequest, id: String, body: JsonText) -> HandlerResult {
    let given =
        ask.parameters(&["type"], &["keyValues", "append", "overrideMetadata", "forcedUpdate", "flowControl"])?;
    let manner = if given.has_option("append") { UpdateMode::AppendStrict } else { UpdateMode::Append };
    set_attributes(&service, &ask, &id, &given, body, manner).await
}

async fn patch_attributes(service: Arc<Service>, ask: NgsiRequest, id: String, body: JsonText) -> HandlerResult {
    let given = ask.parameters(&["type"], &["keyValues", "overrideMetadata", "forcedUpdate", "flowControl"])?;
    set_attributes(&service, &ask, &id, &given, body, UpdateMode::Update).await
}

async fn put_attributes(service: Arc<Service>, ask: NgsiRequest, id: String, body: JsonText) -> HandlerResult {
    let given = ask.parameters(&["type"], &["keyValues", "forcedUpdate", "flowControl"])?;
    set_attributes(&service, &ask, &id, &given, body, UpdateMode::Replace).await
}

async fn set_attributes(
    service: &Arc<Service>,
    ask: &NgsiRequest,
    id: &str,
    given: &RequestParameters,
    JsonText(body): JsonText,
    manner: UpdateMode,
) -> HandlerResult {
    let target = target(id, given)?;
    let attributes =
        service.observers.timing.of(RequestPhase::Parse, || request_body::attributes(&body, given.how()))?;
    if attributes.is_empty() {
        return Err(Refusal::bad("the body {} names no attribute: it must name at least one; add it").into());
    }
    service.write(ask, id, WriteAction::Set { target, given: attributes, manner }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn read_attribute(service: &Service, ask: &NgsiRequest, request: &Request<'_>) -> HandlerResult {
    let (id, name) = (request.param(0)?, request.param(1)?);
    check_attribute_name(&name)?;
    let given = ask.parameters(&["type", "metadata"], &["skipForwarding"])?;
    let selection = given.selection()?;
    let target = target(&id, &given)?;
    let entity = service.read(ask, &target.id, target.kind.as_deref())?;
    let attribute = entity.attribute(&name).ok_or_else(|| no_attribute(&entity, &name))?;
    if ask.knows(&entity) {
        return Ok(not_modified(&entity));
    }
    let mut out = String::new();
    service.observers.timing.of(RequestPhase::Render, || render::push_attribute(attribute, &selection, &mut out));
    Ok(tagged(json_answer(out), &entity))
}

async fn put_attribute(
    service: Arc<Service>,
    ask: NgsiRequest,
    AttributePath { id, name }: AttributePath,
    JsonText(body): JsonText,
) -> HandlerResult {
    let given = ask.parameters(&["type"], &["overrideMetadata", "forcedUpdate", "flowControl"])?;
    let target = target(&id, &given)?;
    let attribute =
        service.observers.timing.of(RequestPhase::Parse, || request_body::attribute(&name, &body, given.how()))?;
    service.write(&ask, &id, WriteAction::SetOne { target, given: attribute }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn delete_attribute(
    service: Arc<Service>,
    ask: NgsiRequest,
    AttributePath { id, name }: AttributePath,
    (): (),
) -> HandlerResult {
    check_attribute_name(&name)?;
    let given = ask.parameters(&["type"], &[])?;
    let target = target(&id, &given)?;
    service.write(&ask, &id, WriteAction::RemoveAttribute { target, name }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
