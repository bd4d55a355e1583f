//! The routes of entity types: `/v2/types`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderValue;
use millstream_http::{Content, Limits, Path, Route, Routes};
use serde_json::json;

use crate::entities::types::{Detail, TypeInfo, types};
use crate::model::json::push_string;
use crate::model::syntax::check_identifier;
use crate::query::filter::TotalCount;
use crate::refusal::{ErrorName, Refusal, RequestFailure};
use crate::requests::handler::{HandlerResult, READER, ServiceState, TOTAL_COUNT, json_answer, scoped};
use crate::requests::parameters::RequestParameters;
use crate::requests::service::{NgsiRequest, Service};
use crate::statistics::timing::RequestPhase;

pub(crate) fn add(routes: Routes, service: &Arc<Service>, limits: Limits) -> Routes {
    let list = scoped(Route::get("/v2/types", READER, limits, "List the types of entities"))
        .query("limit", "Types on a page, 0 to 1000; 20 if left out.")
        .query("offset", "Types to pass over; 0 if left out.")
        .query("options", "values: names only; noAttrDetail: no types of attributes; count: the total.")
        .answers_with(200, "A page.", Content::json(json!({"type": "array"})));
    let one = scoped(Route::get("/v2/types/{type}", READER, limits, "Read one type"))
        .param("type", "Its name.")
        .query("options", "noAttrDetail: no types of attributes.")
        .answers_with(200, "The type.", Content::json(json!({"type": "object"})))
        .answers(404, "No entity has the type.");
    routes.route(list.to(list_types, service.clone())).route(one.to(read_type, service.clone()))
}

async fn of_tenant(service: &Service, ask: &NgsiRequest) -> Result<BTreeMap<Arc<str>, TypeInfo>, RequestFailure> {
    let (snapshots, paths, now_ms) = (service.views.snapshots()?, ask.paths()?, service.wall.now_ms());
    let tenant = ask.tenant.clone();
    let work = move || {
        let partitions: Vec<_> = snapshots.iter().filter_map(|snapshot| snapshot.state.of(&tenant)).collect();
        types(&partitions, &paths, now_ms)
    };
    Ok(service.in_background(&ask.tenant, work).await?)
}

fn detail(given: &RequestParameters) -> Detail {
    if given.has_option("noAttrDetail") { Detail::NoAttributeTypes } else { Detail::Whole }
}

async fn list_types(State(service): ServiceState, ask: NgsiRequest) -> HandlerResult {
    let given = ask.parameters(&["limit", "offset"], &["values", "noAttrDetail", "count"])?;
    let page = given.page()?;
    let all = of_tenant(&service, &ask).await?;
    let detail = detail(&given);
    let shown = || {
        let mut out = String::from("[");
        for (name, info) in all.iter().skip(page.offset).take(page.limit) {
            if !out.ends_with('[') {
                out.push(',');
            }
            match given.has_option("values") {
                true => push_string(name, &mut out),
                false => info.push(Some(name), detail, &mut out),
            }
        }
        out.push(']');
        out
    };
    let mut response = json_answer(service.observers.timing.of(RequestPhase::Render, shown));
    if given.count() == TotalCount::Wanted {
        response.headers_mut().insert(TOTAL_COUNT, HeaderValue::from(all.len()));
    }
    Ok(response)
}

async fn read_type(State(service): ServiceState, ask: NgsiRequest, Path(name): Path<String>) -> HandlerResult {
    let given = ask.parameters(&[], &["noAttrDetail"])?;
    check_identifier("entity type", &name)?;
    let all = of_tenant(&service, &ask).await?;
    let Some(info) = all.get(&*name) else {
        let text = format!("there is no entity of type '{name}' in this tenant and service path; check the name");
        return Err(Refusal::new(ErrorName::NotFound, text).into());
    };
    let mut out = String::new();
    service.observers.timing.of(RequestPhase::Render, || info.push(None, detail(&given), &mut out));
    Ok(json_answer(out))
}
