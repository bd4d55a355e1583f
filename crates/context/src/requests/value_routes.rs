//! The routes of an attribute's value: `/v2/entities/{id}/attrs/{name}/value`, as JSON or as text.

use std::sync::Arc;

use axum::http::header::{ACCEPT, CONTENT_TYPE, ETAG};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::IntoResponse;
use millstream_http::{Content, Limits, Request, Route, Routes};
use serde_json::Value;

use crate::entities::decide::no_attribute;
use crate::entities::view::WriteAction;
use crate::model::entity::Entity;
use crate::model::json;
use crate::model::render;
use crate::model::request_body;
use crate::model::request_body::TextRule;
use crate::model::syntax::check_attribute_name;
use crate::refusal::{ErrorName, Refusal, RequestFailure};
use crate::registrations::AskedAttributes;
use crate::requests::forwarding::{EntityQuestion, ShowEntity, reads_one};
use crate::requests::handler::{
    AttributePath, HandlerResult, READER, WRITER, cacheable, conditional, not_modified, of_one, tag_of, target,
    updating, writes,
};
use crate::requests::parameters::is_text;
use crate::requests::service::{NgsiRequest, Service, ValueText};
use crate::statistics::timing::RequestPhase;

const VALUE: &str = "/v2/entities/{id}/attrs/{name}/value";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain";

pub(crate) fn add(routes: Routes, service: &Arc<Service>, limits: Limits) -> Routes {
    let on = |method, access, limits, summary| {
        of_one(Route::on(method, VALUE, access, limits, summary)).param("name", "The attribute's name.")
    };
    let read = cacheable(on(Method::GET, READER, limits, "Read an attribute's value"))
        .answers_with(200, "An object or an array.", Content::json(serde_json::json!({})))
        .answers_with(200, "Any value, as text.", Content::text());
    let put =
        on(Method::PUT, WRITER, limits, "Set an attribute's value").query("options", "forcedUpdate: told anyway.");
    let put = updating(conditional(put), [Content::json(serde_json::json!({})), Content::text()]).answers(204, "Set.");
    routes.route(read.answered_by(reads_one(service, read_value))).route(put.answered_by(writes(service, put_value)))
}

/// The value of an attribute.
struct ShowValue(String);

impl ShowEntity for ShowValue {
    fn asked(&self) -> AskedAttributes {
        AskedAttributes::Named(vec![self.0.clone()])
    }

    fn show(self, service: &Service, ask: &NgsiRequest, entity: &Arc<Entity>) -> HandlerResult {
        let attribute = entity.attribute(&self.0).ok_or_else(|| no_attribute(entity, &self.0))?;
        let mut text = String::new();
        service.observers.timing.of(RequestPhase::Render, || render::push_value(attribute, &mut text));
        let media = media(ask.headers(), text.starts_with(['{', '[']))?;
        // Text keeps its quotes, so that a value that was read can be written back.
        if text.starts_with('"')
            && let Value::String(plain) = json::parsed(&text)
        {
            text = format!("\"{plain}\"");
        }
        if ask.knows(entity) {
            return Ok(not_modified(entity));
        }
        Ok(([(CONTENT_TYPE, HeaderValue::from_static(media)), (ETAG, tag_of(entity))], text).into_response())
    }
}

fn read_value(ask: &NgsiRequest, request: &Request<'_>) -> Result<(EntityQuestion, ShowValue), RequestFailure> {
    let (id, name) = (request.param(0)?, request.param(1)?);
    check_attribute_name(&name)?;
    let given = ask.parameters(&["type"], &["skipForwarding"])?;
    Ok((EntityQuestion::of(&id, &given)?, ShowValue(name.into_owned())))
}

/// The media type that the client prefers among those of the value.
fn media(headers: &HeaderMap, is_structured: bool) -> Result<&'static str, Refusal> {
    let given: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    if given.is_empty() {
        return Ok(if is_structured { JSON } else { TEXT });
    }
    let listed = given.join(", ");
    let mut preferred: Option<(f64, &'static str)> = None;
    for range in listed.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse::<f64>().ok());
        let served = match (media.as_str(), is_structured) {
            ("application/json" | "application/*" | "*/*", true) => JSON,
            ("text/plain" | "text/*", _) | ("*/*", false) => TEXT,
            _ => continue,
        };
        let quality = quality.unwrap_or(0.0);
        if quality > preferred.map_or(0.0, |(known, _)| known) {
            preferred = Some((quality, served));
        }
    }
    preferred.map(|(_, media)| media).ok_or_else(|| {
        let rule = if is_structured { "application/json or text/plain" } else { "text/plain" };
        Refusal::new(
            ErrorName::NotAcceptable,
            format!("Accept: {listed}: this value is answered as {rule}; accept that"),
        )
    })
}

async fn put_value(
    service: Arc<Service>,
    ask: NgsiRequest,
    AttributePath { id, name }: AttributePath,
    ValueText(body): ValueText,
) -> HandlerResult {
    let given = ask.parameters(&["type"], &["forcedUpdate", "flowControl", "overrideMetadata"])?;
    let target = target(&id, &given)?;
    check_attribute_name(&name)?;
    // The owner checks the existence; here only the text rule matters.
    let known = service.read(&ask, &id, target.kind.as_deref()).ok();
    let rule = known.as_ref().and_then(|entity| entity.attribute(&name)).map_or(TextRule::Checked, TextRule::of);
    let value = service.observers.timing.of(RequestPhase::Parse, || match is_text(ask.headers()) {
        true => request_body::text_value(&name, &body, rule),
        false => request_body::json_value(&name, &body, rule),
    })?;
    service.update(&ask, &id, WriteAction::SetOne { target, given: value }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
