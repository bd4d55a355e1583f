//! The NGSI-v2 operations on entities and their attributes, and which of NGSI's others are answered by 501.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, ETAG, LOCATION};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use millstream_http::{Access, AnswerMemory, Content, Limits, Path, Route, RouteDraft, Routes};
use millstream_types::Role;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::json;

use crate::ContextConfig;
use crate::desk::{Ask, Desk, JsonText};
use crate::entities::{Action, Answer, Target, no_attribute};
use crate::entity::Entity;
use crate::given;
use crate::list::{self, Filter, Shape};
use crate::query::Order;
use crate::refusal::{Failure, Refusal, style};
use crate::request::{CORRELATOR, LIST_PARAMETERS, Parameters};
use crate::show::{self, Head, Selection};
use crate::syntax::{check_attribute_name, check_identifier};
use crate::timing::Part;
use crate::update::Manner;
use crate::{batch_routes, plain, type_routes, value_routes};

pub(crate) const TOTAL_COUNT: HeaderName = HeaderName::from_static("fiware-total-count");
const ENTITIES: &str = "/v2/entities";
const ENTITY: &str = "/v2/entities/{id}";
const ATTRIBUTES: &str = "/v2/entities/{id}/attrs";
const ATTRIBUTE: &str = "/v2/entities/{id}/attrs/{name}";
pub(crate) const READER: Access = Access::Role(Role::Reader);
pub(crate) const WRITER: Access = Access::Role(Role::Writer);
/// Identifiers may have these, URLs may not.
const NOT_IN_URLS: &AsciiSet = &CONTROLS.add(b'%').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');

pub(crate) type Answered = Result<Response, Failure>;
pub(crate) type Shared = State<Arc<Desk>>;

/// All routes of the plane.
pub(crate) fn routes(desk: &Arc<Desk>, config: &ContextConfig) -> Routes {
    let limits = config.limits();
    let entities = Routes::new("entities").errors("/v2", style).echo(CORRELATOR).trailing_slash();
    let entities = of_entities(entities, desk, limits);
    let entities = match config.cors().ok().flatten() {
        Some(cors) => entities.cors(cors),
        None => entities,
    };
    let attributes = of_attributes(entities, desk, limits);
    let values = value_routes::add(attributes, desk, limits);
    let types = type_routes::add(values, desk, limits);
    let batches = batch_routes::add(types, desk, limits);
    later(batches, limits)
}

fn of_entities(routes: Routes, desk: &Arc<Desk>, limits: Limits) -> Routes {
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
        .query("options", "keyValues: bare values; upsert: update it if it exists.")
        .takes(Content::json(entity_schema()))
        .answers(201, "Created; Location names it.")
        .answers(204, "Updated.");
    let read = of_one(Route::get(ENTITY, READER, limits, "Read an entity"))
        .query("attrs", "Attributes to show.")
        .query("options", "keyValues: bare values.")
        .answers_with(200, "The entity.", Content::json(entity_schema()));
    let delete = of_one(Route::delete(ENTITY, WRITER, limits, "Delete an entity")).answers(204, "It is gone.");
    routes
        .route(list.to(list_entities, desk.clone()))
        .route(create.to(create_entity, desk.clone()))
        .route(plain::reads(read.to(read_entity, desk.clone()), desk, |desk, ask, id| {
            show_one(desk, ask, id, Head::Shown)
        }))
        .route(delete.to(delete_entity, desk.clone()))
}

fn of_attributes(routes: Routes, desk: &Arc<Desk>, limits: Limits) -> Routes {
    let read = of_one(Route::get(ATTRIBUTES, READER, limits, "Read an entity's attributes"))
        .query("attrs", "Attributes to show.")
        .query("options", "keyValues: bare values.")
        .answers_with(200, "The attributes.", Content::json(entity_schema()));
    let write = |method, summary| {
        of_one(Route::on(method, ATTRIBUTES, WRITER, limits, summary))
            .query(
                "options",
                "keyValues: bare values; overrideMetadata: metadata is replaced; append (POST): strictly.",
            )
            .takes(Content::json(entity_schema()))
            .answers(204, "Done.")
    };
    let post = write(Method::POST, "Update or append attributes").to(post_attributes, desk.clone());
    let patch = write(Method::PATCH, "Update existing attributes").to(patch_attributes, desk.clone());
    let one = |method, access, limits, summary| {
        of_one(Route::on(method, ATTRIBUTE, access, limits, summary)).param("name", "The attribute's name.")
    };
    let read_one = one(Method::GET, READER, limits, "Read an attribute").answers_with(
        200,
        "The attribute.",
        Content::json(attribute_schema()),
    );
    let put_one = one(Method::PUT, WRITER, limits, "Set an attribute")
        .query("options", "overrideMetadata: metadata is replaced.")
        .takes(Content::json(attribute_schema()))
        .answers(204, "Set.");
    let delete_one = one(Method::DELETE, WRITER, limits, "Remove an attribute").answers(204, "Removed.");
    routes
        .route(read.to(read_attributes, desk.clone()))
        .route(plain::writes(post, desk, |desk, ask, [id, _], body| post_attributes(State(desk), ask, Path(id), body)))
        .route(plain::writes(patch, desk, |desk, ask, [id, _], body| {
            patch_attributes(State(desk), ask, Path(id), body)
        }))
        .route(write(Method::PUT, "Replace all attributes").to(put_attributes, desk.clone()))
        .route(read_one.to(read_attribute, desk.clone()))
        .route(plain::writes(put_one.to(put_attribute, desk.clone()), desk, |desk, ask, params, body| {
            put_attribute(State(desk), ask, Path(params.into()), body)
        }))
        .route(delete_one.to(delete_attribute, desk.clone()))
}

/// Operations of NGSI-v2 that this version does not have.
fn later(routes: Routes, limits: Limits) -> Routes {
    let table: [(&str, &[Method]); 2] = [
        ("/v2/registrations", &[Method::GET, Method::POST]),
        ("/v2/registrations/{id}", &[Method::GET, Method::DELETE]),
    ];
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

pub(crate) fn scoped(route: RouteDraft) -> RouteDraft {
    route
        .header("Fiware-Service", "The tenant: letters, digits, underscores; 'default' if left out.")
        .header("Fiware-ServicePath", "A path within the tenant; reads also take '/a/#' and lists.")
}

pub(crate) fn of_one(route: RouteDraft) -> RouteDraft {
    scoped(route).param("id", "The entity's id.").query("type", "Its type, if several entities have the id.")
}

/// What every list of entities takes and answers.
pub(crate) fn listing(route: RouteDraft) -> RouteDraft {
    route
        .query("limit", "Entities on a page, 0 to 1000; 20 if left out.")
        .query("offset", "Entities to pass over; 0 if left out.")
        .query("orderBy", "Attributes, id, type or geo:distance, '!' before a name reverses it.")
        .query("options", "keyValues, values, unique: other forms; count: the total; explain: how it is found.")
        .answers_with(200, "A page.", Content::json(json!({"type": "array", "items": entity_schema()})))
}

fn entity_schema() -> serde_json::Value {
    json!({"type": "object", "additionalProperties": true})
}

fn attribute_schema() -> serde_json::Value {
    json!({"type": "object", "properties": {"value": {}, "type": {"type": "string"}, "metadata": {"type": "object"}}})
}

async fn not_yet(method: Method, uri: Uri) -> Response {
    Refusal::later("the operation", &format!("{method} {}", uri.path())).into_response()
}

async fn list_entities(State(desk): Shared, ask: Ask, memory: AnswerMemory) -> Answered {
    let given = ask.parameters(
        &LIST_PARAMETERS,
        &["keyValues", "values", "unique", "count", "skipForwarding", "dateCreated", "dateModified", "explain"],
    )?;
    let criteria = given.criteria()?;
    let is_near = criteria.geo.as_ref().is_some_and(|geo| geo.is_near());
    let order = given.order(is_near)?.unwrap_or_default();
    let (selectors, paths) = (vec![given.selector()?], ask.paths()?);
    let filter = Filter { selectors, paths, criteria, now_ms: desk.wall.now_ms() };
    answer_list(&desk, &ask, &given, (filter, order, given.selection()?), memory).await
}

pub(crate) async fn answer_list(
    desk: &Arc<Desk>,
    ask: &Ask,
    given: &Parameters,
    (filter, order, selection): (Filter, Order, Selection),
    memory: AnswerMemory,
) -> Answered {
    let asked = list::Asked {
        snapshots: desk.views.snapshots(),
        tenant: ask.tenant.clone(),
        filter,
        order,
        page: given.page()?,
        count: given.count(),
        shape: Shape { form: given.form(), selection, max_bytes: desk.page_max_bytes },
        memory,
    }
    .narrowed();
    let plan = asked.plan();
    if !plan.wanted.is_empty() {
        desk.upkeep.want(&ask.tenant, plan.wanted.clone());
    }
    if given.has_option("explain") {
        return Ok(json_answer(plan.explained(&asked.filter).to_string()));
    }
    let listed = match asked.is_small(&plan) {
        true => desk.watch.timing.of(Part::Render, || list::list(asked, &plan))?,
        false => {
            let timing = desk.watch.timing.clone();
            desk.in_background(move || timing.of(Part::Render, || list::list(asked, &plan))).await??
        }
    };
    let mut response = json_answer(listed.json);
    listed.memory.hold_for(&mut response);
    if let Some(total) = listed.total {
        response.headers_mut().insert(TOTAL_COUNT, HeaderValue::from(total));
    }
    Ok(response)
}

async fn create_entity(State(desk): Shared, ask: Ask, JsonText(body): JsonText) -> Answered {
    let given = ask.parameters(&[], &["keyValues", "upsert", "overrideMetadata", "forcedUpdate", "flowControl"])?;
    let entity = desk.watch.timing.of(Part::Parse, || given::entity(&body, given.how()))?;
    let (id, kind) = (entity.id.clone(), entity.kind.clone().unwrap_or_default());
    let action = match given.has_option("upsert") {
        true => Action::Upsert { given: entity, manner: Manner::Append },
        false => Action::Create(entity),
    };
    let status = match desk.write(&ask, &id, action).await? {
        Answer::Created => StatusCode::CREATED,
        Answer::Updated | Answer::MoreToDo | Answer::Refused(_) => StatusCode::NO_CONTENT,
    };
    let encode = |text| utf8_percent_encode(text, NOT_IN_URLS);
    let location = format!("{ENTITIES}/{}?type={}", encode(&id), encode(&kind));
    let location = HeaderValue::from_str(&location).expect("identifiers are ASCII");
    Ok((status, [(LOCATION, location)]).into_response())
}

async fn read_entity(State(desk): Shared, ask: Ask, Path(id): Path<String>) -> Answered {
    show_one(&desk, &ask, &id, Head::Shown)
}

async fn read_attributes(State(desk): Shared, ask: Ask, Path(id): Path<String>) -> Answered {
    show_one(&desk, &ask, &id, Head::Hidden)
}

fn show_one(desk: &Desk, ask: &Ask, id: &str, head: Head) -> Answered {
    check_identifier("entity id", id)?;
    let given = ask.parameters(
        &["type", "attrs", "metadata"],
        &["keyValues", "values", "unique", "skipForwarding", "dateCreated", "dateModified"],
    )?;
    let selection = given.selection()?;
    let entity = desk.read(ask, id, given.kind()?.as_deref())?;
    if ask.knows(&entity) {
        return Ok(not_modified(&entity));
    }
    let mut out = String::new();
    desk.watch.timing.of(Part::Render, || show::push_entity(&entity, head, given.form(), &selection, &mut out));
    Ok(tagged(json_answer(out), &entity))
}

/// The version of an entity, as HTTP has it.
pub(crate) fn tag_of(entity: &Entity) -> HeaderValue {
    HeaderValue::from_str(&entity.tag()).expect("a tag is ASCII")
}

pub(crate) fn not_modified(entity: &Entity) -> Response {
    tagged(StatusCode::NOT_MODIFIED.into_response(), entity)
}

fn tagged(mut response: Response, entity: &Entity) -> Response {
    response.headers_mut().insert(ETAG, tag_of(entity));
    response
}

async fn delete_entity(State(desk): Shared, ask: Ask, Path(id): Path<String>) -> Answered {
    let given = ask.parameters(&["type"], &[])?;
    let target = target(&id, &given)?;
    desk.write(&ask, &id, Action::Delete(target)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn post_attributes(State(desk): Shared, ask: Ask, Path(id): Path<String>, body: JsonText) -> Answered {
    let given =
        ask.parameters(&["type"], &["keyValues", "append", "overrideMetadata", "forcedUpdate", "flowControl"])?;
    let manner = if given.has_option("append") { Manner::AppendStrict } else { Manner::Append };
    set_attributes(&desk, &ask, &id, &given, (body, manner)).await
}

async fn patch_attributes(State(desk): Shared, ask: Ask, Path(id): Path<String>, body: JsonText) -> Answered {
    let given = ask.parameters(&["type"], &["keyValues", "overrideMetadata", "forcedUpdate", "flowControl"])?;
    set_attributes(&desk, &ask, &id, &given, (body, Manner::Update)).await
}

async fn put_attributes(State(desk): Shared, ask: Ask, Path(id): Path<String>, body: JsonText) -> Answered {
    let given = ask.parameters(&["type"], &["keyValues", "forcedUpdate", "flowControl"])?;
    set_attributes(&desk, &ask, &id, &given, (body, Manner::Replace)).await
}

async fn set_attributes(
    desk: &Arc<Desk>,
    ask: &Ask,
    id: &str,
    given: &Parameters,
    (JsonText(body), manner): (JsonText, Manner),
) -> Answered {
    let target = target(id, given)?;
    let attributes = desk.watch.timing.of(Part::Parse, || given::attributes(&body, given.how()))?;
    if attributes.is_empty() && manner != Manner::Replace {
        return Err(Refusal::bad("the body {} names no attribute: it must name at least one; add it").into());
    }
    desk.write(ask, id, Action::Set { target, given: attributes, manner }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn read_attribute(State(desk): Shared, ask: Ask, Path((id, name)): Path<(String, String)>) -> Answered {
    check_attribute_name(&name)?;
    let given = ask.parameters(&["type", "metadata"], &["skipForwarding"])?;
    let selection = given.selection()?;
    let target = target(&id, &given)?;
    let entity = desk.read(&ask, &target.id, target.kind.as_deref())?;
    let attribute = entity.attribute(&name).ok_or_else(|| no_attribute(&entity, &name))?;
    if ask.knows(&entity) {
        return Ok(not_modified(&entity));
    }
    let mut out = String::new();
    desk.watch.timing.of(Part::Render, || show::push_attribute(attribute, &selection, &mut out));
    Ok(tagged(json_answer(out), &entity))
}

async fn put_attribute(
    State(desk): Shared,
    ask: Ask,
    Path((id, name)): Path<(String, String)>,
    JsonText(body): JsonText,
) -> Answered {
    let given = ask.parameters(&["type"], &["overrideMetadata", "forcedUpdate", "flowControl"])?;
    let target = target(&id, &given)?;
    let attribute = desk.watch.timing.of(Part::Parse, || given::attribute(&name, &body, given.how()))?;
    desk.write(&ask, &id, Action::SetOne { target, given: attribute }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn delete_attribute(State(desk): Shared, ask: Ask, Path((id, name)): Path<(String, String)>) -> Answered {
    check_attribute_name(&name)?;
    let given = ask.parameters(&["type"], &[])?;
    let target = target(&id, &given)?;
    desk.write(&ask, &id, Action::RemoveAttribute { target, name }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(crate) fn target(id: &str, given: &Parameters) -> Result<Target, Refusal> {
    check_identifier("entity id", id)?;
    Ok(Target { id: id.into(), kind: given.kind()? })
}

pub(crate) fn json_answer(text: String) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}
