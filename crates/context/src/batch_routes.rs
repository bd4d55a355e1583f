//! `/v2/op`: several entities at once.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use millstream_http::{AnswerMemory, Content, Limits, Route, Routes};
use serde_json::json;

use crate::desk::{Ask, Desk, JsonText};
use crate::list::Filter;
use crate::op_query::OpQuery;
use crate::op_update;
use crate::query::Order;
use crate::refusal::Refusal;
use crate::routes::{Answered, READER, Shared, WRITER, answer_list, listing, scoped};
use crate::show::Selection;
use crate::timing::Part;

const NOTIFIED_FORMAT: &str = "ngsiv2-attrsformat";

pub(crate) fn add(routes: Routes, desk: &Arc<Desk>, limits: Limits) -> Routes {
    let object = || Content::json(json!({"type": "object"}));
    let query =
        listing(scoped(Route::post("/v2/op/query", READER, limits, "Query entities by a body"))).takes(object());
    let update = scoped(Route::post("/v2/op/update", WRITER, limits, "Change several entities"))
        .query("options", "keyValues: bare values; overrideMetadata: metadata is replaced; forcedUpdate: told anyway.")
        .takes(object())
        .answers(204, "Done.");
    let notify = scoped(Route::post("/v2/op/notify", WRITER, limits, "Take a notification as an update"))
        .query("options", "forcedUpdate: told anyway.")
        .takes(object())
        .answers(200, "Done.");
    routes
        .route(query.to(query_entities, desk.clone()))
        .route(update.to(update_entities, desk.clone()))
        .route(notify.to(take_notification, desk.clone()))
}

async fn query_entities(State(desk): Shared, ask: Ask, memory: AnswerMemory, JsonText(body): JsonText) -> Answered {
    let given = ask.parameters(
        &["limit", "offset", "orderBy"],
        &["keyValues", "values", "unique", "count", "skipForwarding", "explain"],
    )?;
    let OpQuery { selectors, criteria, attrs, metadata } =
        desk.watch.timing.of(Part::Parse, || OpQuery::read(&body))?;
    let is_near = criteria.geo.as_ref().is_some_and(|geo| geo.is_near());
    let order = given.order(is_near)?.unwrap_or_else(Order::default);
    let filter = Filter { selectors, paths: ask.paths()?, criteria, now_ms: desk.wall.now_ms() };
    answer_list(&desk, &ask, &given, (filter, order, Selection::new(attrs, metadata)), memory).await
}

async fn update_entities(State(desk): Shared, ask: Ask, JsonText(body): JsonText) -> Answered {
    let given = ask.parameters(&[], &["keyValues", "overrideMetadata", "forcedUpdate", "flowControl"])?;
    let asked = desk.watch.timing.of(Part::Parse, || op_update::read(&body, given.how()))?;
    desk.write_all(&ask, asked).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn take_notification(State(desk): Shared, ask: Ask, JsonText(body): JsonText) -> Answered {
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
    let asked = desk.watch.timing.of(Part::Parse, || op_update::read_notification(&body))?;
    desk.write_all(&ask, asked).await?;
    Ok(StatusCode::OK.into_response())
}
