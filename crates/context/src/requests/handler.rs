//! Building blocks of the route files: handlers and their types, route parameters, list replies and entity tags.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, ETAG};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use millstream_http::{Access, Answer, AnswerMemory, Content, FromPath, Params, Problem, Request, RouteDraft};
use millstream_types::Role;
use serde_json::json;

use crate::entities::view::EntityTarget;
use crate::model::entity::Entity;
use crate::model::render::AttributeSelection;
use crate::model::syntax::check_identifier;
use crate::query::Order;
use crate::query::filter::EntityFilter;
use crate::refusal::{Refusal, RequestFailure};
use crate::requests::list::{self, RenderOptions};
use crate::requests::parameters::RequestParameters;
use crate::requests::service::{NgsiRequest, RequestContent, Service, Unready};
use crate::statistics::timing::RequestPhase;

pub(crate) const TOTAL_COUNT: HeaderName = HeaderName::from_static("fiware-total-count");
pub(crate) const READER: Access = Access::Role(Role::Reader);
pub(crate) const WRITER: Access = Access::Role(Role::Writer);

/// The path of an attribute.
pub(crate) struct AttributePath {
    /// The entity's id.
    pub(crate) id: String,
    /// The attribute's name.
    pub(crate) name: String,
}

impl FromPath for AttributePath {
    fn from_path(params: &Params<'_>) -> Result<Self, Problem> {
        let (id, name) = FromPath::from_path(params)?;
        Ok(Self { id, name })
    }
}

pub(crate) type HandlerResult = Result<Response, RequestFailure>;
pub(crate) type ServiceState = State<Arc<Service>>;

/// The handler of a write, whose owner answers later.
pub(crate) fn writes<P: FromPath, C: RequestContent, F: Future<Output = HandlerResult> + Send + 'static>(
    service: &Arc<Service>,
    write: impl Fn(Arc<Service>, NgsiRequest, P, C) -> F + Send + Sync + 'static,
) -> impl Fn(&Request<'_>) -> Answer + Send + Sync + 'static {
    let service = service.clone();
    move |request: &Request<'_>| {
        let begin = || -> Result<F, Unready> {
            let ask = NgsiRequest::of(request)?;
            let params = request.params().map_err(RequestFailure::from)?;
            let content = C::read(request, ask.headers())?;
            Ok(write(service.clone(), ask, params, content))
        };
        match begin() {
            Ok(written) => Answer::later(async move { written.await.into_response() }),
            Err(Unready::AwaitBody) => Answer::AwaitBody,
            Err(Unready::Failed(failure)) => failure.into_response().into(),
        }
    }
}

pub(crate) fn scoped(route: RouteDraft) -> RouteDraft {
    checked(route)
        .header("Fiware-Service", "The tenant: letters, digits, underscores; 'default' if left out.")
        .header("Fiware-ServicePath", "A path within the tenant; reads also take '/a/#' and lists.")
}

/// Documents the refusal that [`NgsiRequest`] makes on every route.
pub(crate) fn checked(route: RouteDraft) -> RouteDraft {
    route.answers(406, "`Accept` has no media type in which this is answered.")
}

/// Parameters and responses of all routes of one entity.
pub(crate) fn of_one(route: RouteDraft) -> RouteDraft {
    scoped(route)
        .keeps_to_scope()
        .param("id", "The entity's id.")
        .query("type", "Its type, if several entities have the id.")
        .answers(404, "There is no such entity or attribute.")
        .answers(409, "Several entities have the id; name the type.")
}

/// Documents a read that answers 304 to a client that has the version.
pub(crate) fn cacheable(route: RouteDraft) -> RouteDraft {
    route
        .header("If-None-Match", "Versions (`ETag`) that the client has; answered 304 if one is current.")
        .answers(304, "The client has this version.")
}

/// Documents a write under a condition.
pub(crate) fn conditional(route: RouteDraft) -> RouteDraft {
    route
        .header("If-Match", "Versions (`ETag`), one of which the entity must have.")
        .answers(412, "The entity has another version; nothing was changed.")
}

/// Documents a body of one of these kinds, which is read whole.
pub(crate) fn taking(route: RouteDraft, contents: impl IntoIterator<Item = Content>) -> RouteDraft {
    contents.into_iter().fold(route, RouteDraft::takes).answers(411, "`Content-Length` is missing or 0.")
}

/// Documents a write of entities from a body.
pub(crate) fn updating(route: RouteDraft, contents: impl IntoIterator<Item = Content>) -> RouteDraft {
    taking(route, contents)
        .answers(413, "The body is over its limit, the entity would be, or the tenant may have no entities.")
        .answers(422, "It does not fit the entity as it is, in part or in whole.")
}

/// Parameters that say which entities are listed or changed.
pub(crate) fn filtering(route: RouteDraft) -> RouteDraft {
    route
        .query("id", "Ids, separated by commas.")
        .query("type", "Types, separated by commas.")
        .query("idPattern", "What ids contain, a regular expression; not together with id.")
        .query("typePattern", "What types contain, a regular expression; not together with type.")
        .query("q", "Statements about attributes, all of which hold: t>20;name~=^a;!retired;(a==1|b==2).")
        .query("mq", "Statements about metadata: t.accuracy<1.")
        .query("georel", "near;maxDistance:m, near;minDistance:m, coveredBy, intersects, disjoint or equals.")
        .query("geometry", "point, line, polygon or box.")
        .query("coords", "latitude,longitude;latitude,longitude…")
}

/// Parameters and responses of all routes that list entities.
pub(crate) fn listing(route: RouteDraft) -> RouteDraft {
    route
        .keeps_to_scope()
        .query("limit", "Entities on a page, 0 to 1000; 20 if left out.")
        .query("offset", "Entities to pass over; 0 if left out.")
        .query("orderBy", "Attributes, id, type or geo:distance, '!' before a name reverses it.")
        .query("options", "keyValues, values, unique: other forms; count: the total; explain: how it is found.")
        .answers_with(200, "A page.", Content::json(json!({"type": "array", "items": entity_schema()})))
        .answers(413, "The page would be over `context.page_max_bytes`; ask for less.")
        .answers(422, "The geometry cannot be computed.")
}

/// The wanted entities, their order, and the attributes that are shown of each.
pub(crate) struct EntityRead {
    pub(crate) filter: EntityFilter,
    pub(crate) order: Order,
    pub(crate) selection: AttributeSelection,
}

pub(crate) async fn answer_list(
    service: &Arc<Service>,
    ask: &NgsiRequest,
    given: &RequestParameters,
    read: EntityRead,
    memory: AnswerMemory,
) -> HandlerResult {
    let EntityRead { filter, order, selection } = read;
    ask.check_selectors(&filter.selectors)?;
    let asked = list::ListRequest {
        snapshots: service.views.snapshots()?,
        tenant: ask.tenant.clone(),
        filter,
        order,
        page: given.page()?,
        count: given.count(),
        shape: RenderOptions { form: given.form(), selection, max_bytes: service.page_max_bytes },
        memory,
    }
    .narrowed();
    let plan = asked.plan();
    if !plan.wanted.is_empty() {
        service.maintenance.request_indexes(&ask.tenant, plan.wanted.clone());
    }
    if given.has_option("explain") {
        return Ok(json_answer(plan.explained(&asked.filter).to_string()));
    }
    let forwards = service.forwards_for_list(ask, &asked, given.has_option("skipForwarding"));
    if !forwards.is_empty() {
        return service.list_with_providers(ask, asked, plan, forwards).await;
    }
    let listed = match asked.is_small(&plan) {
        true => service.observers.timing.of(RequestPhase::Render, || list::list(asked, &plan))?,
        false => {
            let timing = service.observers.timing.clone();
            service
                .in_background(&ask.tenant, move || timing.of(RequestPhase::Render, || list::list(asked, &plan)))
                .await??
        }
    };
    let mut response = json_answer(listed.json);
    listed.memory.hold_for(&mut response);
    if let Some(total) = listed.total {
        response.headers_mut().insert(TOTAL_COUNT, HeaderValue::from(total));
    }
    Ok(response)
}

pub(crate) fn target(id: &str, given: &RequestParameters) -> Result<EntityTarget, Refusal> {
    check_identifier("entity id", id)?;
    Ok(EntityTarget { id: id.into(), kind: given.kind()? })
}

pub(crate) fn json_answer(text: String) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}

/// Renders the entity's tag for the header `ETag`.
pub(crate) fn tag_of(entity: &Entity) -> HeaderValue {
    HeaderValue::from_str(&entity.tag()).expect("a tag is ASCII")
}

/// The reply to a change of all entities that match.
pub(crate) fn changed(count: usize) -> Response {
    (StatusCode::NO_CONTENT, [(TOTAL_COUNT, HeaderValue::from(count))]).into_response()
}

pub(crate) fn not_modified(entity: &Entity) -> Response {
    tagged(StatusCode::NOT_MODIFIED.into_response(), entity)
}

pub(crate) fn tagged(mut response: Response, entity: &Entity) -> Response {
    response.headers_mut().insert(ETAG, tag_of(entity));
    response
}

pub(crate) fn entity_schema() -> serde_json::Value {
    json!({"type": "object", "additionalProperties": true})
}
