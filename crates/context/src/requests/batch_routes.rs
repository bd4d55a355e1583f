//! Batch operations under `/v2/op`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use millstream_http::{AnswerMemory, Content, Limits, Route, Routes};
use serde_json::json;

use crate::entities::batch_update::{self, BatchUpdate};
use crate::model::render::AttributeSelection;
use crate::query::Order;
use crate::query::filter::EntityFilter;
use crate::refusal::Refusal;
use crate::requests::handler::{
    EntityRead, HandlerResult, READER, ServiceState, WRITER, answer_list, changed, listing, scoped, taking, updating,
};
use crate::requests::op_query::OpQuery;
use crate::requests::service::{JsonText, NgsiRequest, Service};
use crate::statistics::timing::RequestPhase;

const NOTIFIED_FORMAT: &str = "ngsiv2-attrsformat";

pub(crate) fn add(routes: Routes, service: &Arc<Service>, limits: Limits) -> Routes {
    let object = || Content::json(json!({"type": "object"}));
    let query =
        taking(listing(scoped(Route::post("/v2/op/query", READER, limits, "Query entities by a body"))), [object()]);
    let update = scoped(Route::post("/v2/op/update", WRITER, limits, "Change several entities"))
        .keeps_to_scope()
        .query("options", "keyValues: bare values; overrideMetadata: metadata is replaced; forcedUpdate: told anyway.");
    let update = updating(update, [object()])
        .answers(404, "One of the entities or attributes does not exist.")
        .answers(409, "An id names several entities.")
        .answers(204, "Done. If it was about all entities that match, Fiware-Total-Count tells how many they are.");
    let notify = scoped(Route::post("/v2/op/notify", WRITER, limits, "Take a notification as an update"))
        .query("options", "forcedUpdate: told anyway.");
    let notify = updating(notify, [object()])
        .answers(404, "One of the entities does not exist.")
        .answers(409, "An id names several entities.")
        .answers(200, "Done.");
    routes
        .route(query.to(query_entities, service.clone()))
        .route(update.to(update_entities, service.clone()))
        .route(notify.to(take_notification, service.clone()))
}

async fn query_entities(
    State(service): ServiceState,
    ask: NgsiRequest,
    memory: AnswerMemory,
    JsonText(body): JsonText,
) -> HandlerResult {
    let given = ask.parameters(
        &["limit", "offset", "orderBy"],
        &["keyValues", "values", "unique", "count", "skipForwarding", "explain"],
    )?;
    let OpQuery { selectors, criteria, attrs, metadata } =
        service.observers.timing.of(RequestPhase::Parse, || OpQuery::read(&body))?;
    let is_near = criteria.geo.as_ref().is_some_and(|geo| geo.is_near());
    let order = given.order(is_near)?.unwrap_or_else(Order::default);
    let filter = EntityFilter { selectors, paths: ask.paths()?, criteria, now_ms: service.wall.now_ms() };
    let read = EntityRead { filter, order, selection: AttributeSelection::new(attrs, metadata) };
    answer_list(&service, &ask, &given, read, memory).await
}

async fn update_entities(
    State(service): ServiceState,
    ask: NgsiRequest,
    memory: AnswerMemory,
    JsonText(body): JsonText,
) -> HandlerResult {
    let given = ask.parameters(&[], &["keyValues", "overrideMetadata", "forcedUpdate", "flowControl"])?;
    let asked = service.observers.timing.of(RequestPhase::Parse, || batch_update::read(&body, given.how()))?;
    match asked {
        BatchUpdate::Named(items) => {
            service.update_all(&ask, items).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        BatchUpdate::Matching(items, criteria) => {
            let now_ms = service.wall.now_ms();
            let (mut count, mut memory) = (0, memory);
            for item in items {
                let (selectors, paths) = (vec![item.selector.clone()], ask.paths()?);
                let filter = EntityFilter { selectors, paths, criteria: (*criteria).clone(), now_ms };
                let changed = service.change_all(&ask, filter, memory, |key| item.action(key)).await?;
                (count, memory) = (count + changed.count, changed.memory);
            }
            Ok(changed(count))
        }
    }
}

async fn take_notification(State(service): ServiceState, ask: NgsiRequest, JsonText(body): JsonText) -> HandlerResult {
    let given = ask.parameters(&[], &["forcedUpdate", "flowControl", "keyValues"])?;
    if given.has_option("keyValues") {
        return Err(Refusal::bad("options keyValues: only normalized notifications are taken; leave it out").into());
    }
    let format = ask.headers().get(NOTIFIED_FORMAT).and_then(|value| value.to_str().ok()).unwrap_or("normalized");
    if format != "normalized" {
        return Err(Refusal::bad(format!(
            "Ngsiv2-AttrsFormat: {format}: only normalized notifications are taken; let the sender use that format"
        ))
        .into());
    }
    let asked = service.observers.timing.of(RequestPhase::Parse, || batch_update::read_notification(&body))?;
    service.write_all(&ask, asked).await?;
    Ok(StatusCode::OK.into_response())
}
