//! The NGSI-v2 routes of entities and attributes.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::IntoResponse;
use millstream_http::{AnswerMemory, Content, Limits, Request, Route, Routes};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::json;

use crate::ContextConfig;
use crate::entities::decide::no_attribute;
use crate::entities::view::{EntityTarget, WriteAction};
use crate::model::entity::{Entity, Key};
use crate::model::render::{self, AttributeSelection, Head};
use crate::model::request_body::{self, Representation};
use crate::model::syntax::{check_attribute_name, check_identifier};
use crate::model::update::UpdateMode;
use crate::query::Selector;
use crate::query::filter::EntityFilter;
use crate::refusal::{Refusal, RequestFailure, STYLE};
use crate::registrations::AskedAttributes;
use crate::requests::batch_routes;
use crate::requests::forwarding::{EntityQuestion, ShowEntity, reads_one};
use crate::requests::handler::{
    AttributePath, EntityRead, HandlerResult, READER, ServiceState, WRITER, answer_list, cacheable, changed, checked,
    conditional, entity_schema, filtering, json_answer, listing, not_modified, of_one, scoped, tagged, target,
    updating, writes,
};
use crate::requests::parameters::{FILTER_PARAMETERS, LIST_PARAMETERS, RequestParameters};
use crate::requests::registration_routes;
use crate::requests::service::{JsonText, NgsiRequest, Service};
use crate::requests::type_routes;
use crate::requests::value_routes;
use crate::statistics::request_observer::CORRELATOR;
use crate::statistics::timing::RequestPhase;

const ENTRY: &str = "/v2";
const ENTITIES: &str = "/v2/entities";
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
    batch_routes::add(types, service, limits)
}

fn of_entities(routes: Routes, service: &Arc<Service>, limits: Limits) -> Routes {
    let list = filtering(listing(scoped(Route::get(ENTITIES, READER, limits, "List entities, oldest first"))))
        .query("attrs", "Attributes to show, in this order; also dateCreated, dateModified, servicePath and *.")
        .query("metadata", "Metadata to show; also dateCreated, dateModified and *.");
    let clear = filtering(scoped(Route::delete(ENTITIES, WRITER, limits, "Delete all entities that match")))
        .keeps_to_scope()
        .answers(204, "They are gone; Fiware-Total-Count tells how many.")
        .answers(422, "The geometry cannot be computed, or an entity was changed again and again meanwhile.");
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
        .route(clear.to(delete_entities, service.clone()))
        .route(create.answered_by(writes(service, create_entity)))
        .route(read.answered_by(reads_one(service, read_entity)))
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
        .route(read.answered_by(reads_one(service, read_attributes)))
        .route(write(Method::POST, "Update or append attributes").answered_by(writes(service, post_attributes)))
        .route(write(Method::PATCH, "Update existing attributes").answered_by(writes(service, patch_attributes)))
        .route(write(Method::PUT, "Replace all attributes").answered_by(writes(service, put_attributes)))
        .route(read_one.answered_by(reads_one(service, read_attribute)))
        .route(put_one.answered_by(writes(service, put_attribute)))
        .route(delete_one.answered_by(writes(service, delete_attribute)))
}

/// The entry points.
fn of_entry(routes: Routes, limits: Limits) -> Routes {
    let entry = checked(Route::get(ENTRY, READER, limits, "Name the entry points")).answers_with(
        200,
        "Their URLs.",
        Content::json(json!({"type": "object", "additionalProperties": {"type": "string"}})),
    );
    routes.route(entry.to(name_entry_points, ()))
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
        "registrations_url": registration_routes::REGISTRATIONS,
    });
    Ok(json_answer(urls.to_string()))
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

async fn delete_entities(State(service): ServiceState, ask: NgsiRequest, memory: AnswerMemory) -> HandlerResult {
    ask.only_parameters(&FILTER_PARAMETERS)?;
    let given = ask.parameters(&FILTER_PARAMETERS, &[])?;
    let (selector, criteria) = (given.selector()?, given.criteria()?);
    if selector == Selector::default() && criteria.is_empty() {
        return Err(Refusal::bad(
            "nothing says which entities are meant: name some by id, type, a pattern, q, mq or georel; idPattern=.* means all",
        )
        .into());
    }
    let filter =
        EntityFilter { selectors: vec![selector], paths: ask.paths()?, criteria, now_ms: service.wall.now_ms() };
    let delete = |key: &Key| WriteAction::Delete(EntityTarget { id: key.id.clone(), kind: Some(key.kind.to_string()) });
    let deleted = service.change_all(&ask, filter, memory, delete).await?;
    Ok(changed(deleted.count))
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

/// An entity, or its attributes alone.
struct ShowWhole {
    head: Head,
    form: Representation,
    selection: AttributeSelection,
}

impl ShowEntity for ShowWhole {
    fn asked(&self) -> AskedAttributes {
        AskedAttributes::of(self.selection.attributes())
    }

    fn show(self, service: &Service, ask: &NgsiRequest, entity: &Arc<Entity>) -> HandlerResult {
        if ask.knows(entity) {
            return Ok(not_modified(entity));
        }
        let mut out = String::new();
        service
            .observers
            .timing
            .of(RequestPhase::Render, || render::push_entity(entity, self.head, self.form, &self.selection, &mut out));
        Ok(tagged(json_answer(out), entity))
    }
}

fn read_entity(ask: &NgsiRequest, request: &Request<'_>) -> Result<(EntityQuestion, ShowWhole), RequestFailure> {
    read_whole(ask, request, Head::Shown)
}

fn read_attributes(ask: &NgsiRequest, request: &Request<'_>) -> Result<(EntityQuestion, ShowWhole), RequestFailure> {
    read_whole(ask, request, Head::Hidden)
}

fn read_whole(
    ask: &NgsiRequest,
    request: &Request<'_>,
    head: Head,
) -> Result<(EntityQuestion, ShowWhole), RequestFailure> {
    let id = request.param(0)?;
    check_identifier("entity id", &id)?;
    let given = ask.parameters(
        &["type", "attrs", "metadata"],
        &["keyValues", "values", "unique", "skipForwarding", "dateCreated", "dateModified"],
    )?;
    let (form, selection) = (given.form(), given.selection()?);
    Ok((EntityQuestion::of(&id, &given)?, ShowWhole { head, form, selection }))
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
    service.update(ask, id, WriteAction::Set { target, given: attributes, manner }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// An attribute.
struct ShowAttribute {
    name: String,
    selection: AttributeSelection,
}

impl ShowEntity for ShowAttribute {
    fn asked(&self) -> AskedAttributes {
        AskedAttributes::Named(vec![self.name.clone()])
    }

    fn show(self, service: &Service, ask: &NgsiRequest, entity: &Arc<Entity>) -> HandlerResult {
        let attribute = entity.attribute(&self.name).ok_or_else(|| no_attribute(entity, &self.name))?;
        if ask.knows(entity) {
            return Ok(not_modified(entity));
        }
        let mut out = String::new();
        let render = || render::push_attribute(attribute, &self.selection, &mut out);
        service.observers.timing.of(RequestPhase::Render, render);
        Ok(tagged(json_answer(out), entity))
    }
}

fn read_attribute(ask: &NgsiRequest, request: &Request<'_>) -> Result<(EntityQuestion, ShowAttribute), RequestFailure> {
    let (id, name) = (request.param(0)?, request.param(1)?);
    check_attribute_name(&name)?;
    let given = ask.parameters(&["type", "metadata"], &["skipForwarding"])?;
    let selection = given.selection()?;
    Ok((EntityQuestion::of(&id, &given)?, ShowAttribute { name: name.into_owned(), selection }))
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
    service.update(&ask, &id, WriteAction::SetOne { target, given: attribute }).await?;
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
