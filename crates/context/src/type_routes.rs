//! `/v2/types`: which types of entities there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderValue;
use millstream_http::{Content, Limits, Path, Route, Routes};
use serde_json::json;

use crate::desk::{Ask, Desk};
use crate::json::push_string;
use crate::list::Count;
use crate::refusal::{Failure, Name, Refusal};
use crate::routes::{Answered, READER, Shared, TOTAL_COUNT, json_answer, scoped};
use crate::syntax::check_identifier;
use crate::timing::Part;
use crate::types::{Detail, TypeInfo, types};

pub(crate) fn add(routes: Routes, desk: &Arc<Desk>, limits: Limits) -> Routes {
    let list = scoped(Route::get("/v2/types", READER, limits, "List the types of entities"))
        .query("limit", "Types on a page, 0 to 1000; 20 if left out.")
        .query("offset", "Types to pass over; 0 if left out.")
        .query("options", "values: names only; noAttrDetail: no types of attributes; count: the total.")
        .answers_with(200, "A page.", Content::json(json!({"type": "array"})));
    let one = scoped(Route::get("/v2/types/{type}", READER, limits, "Read one type"))
        .param("type", "Its name.")
        .answers_with(200, "The type.", Content::json(json!({"type": "object"})));
    routes.route(list.to(list_types, desk.clone())).route(one.to(read_type, desk.clone()))
}

async fn of_tenant(desk: &Desk, ask: &Ask) -> Result<BTreeMap<Arc<str>, TypeInfo>, Failure> {
    let (snapshots, paths, now_ms) = (desk.views.snapshots(), ask.paths()?, desk.wall.now_ms());
    let tenant = ask.tenant.clone();
    let work = move || {
        let partitions: Vec<_> = snapshots.iter().filter_map(|snapshot| snapshot.state.of(&tenant)).collect();
        types(&partitions, &paths, now_ms)
    };
    Ok(desk.in_background(work).await?)
}

async fn list_types(State(desk): Shared, ask: Ask) -> Answered {
    let given = ask.parameters(&["limit", "offset"], &["values", "noAttrDetail", "count"])?;
    let page = given.page()?;
    let all = of_tenant(&desk, &ask).await?;
    let detail = if given.has_option("noAttrDetail") { Detail::NoAttributeTypes } else { Detail::Whole };
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
    let mut response = json_answer(desk.watch.timing.of(Part::Render, shown));
    if given.count() == Count::Wanted {
        response.headers_mut().insert(TOTAL_COUNT, HeaderValue::from(all.len()));
    }
    Ok(response)
}

async fn read_type(State(desk): Shared, ask: Ask, Path(name): Path<String>) -> Answered {
    ask.parameters(&[], &[])?;
    check_identifier("entity type", &name)?;
    let all = of_tenant(&desk, &ask).await?;
    let Some(info) = all.get(&*name) else {
        let text = format!("there is no entity of type '{name}' in this tenant and service path; check the name");
        return Err(Refusal::new(Name::NotFound, text).into());
    };
    let mut out = String::new();
    desk.watch.timing.of(Part::Render, || info.push(None, Detail::Whole, &mut out));
    Ok(json_answer(out))
}
