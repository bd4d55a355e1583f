//! Queries as JSON documents, Bullet's older form. They are translated to the same plan as texts.
//!
//! All members are optional: `{}` takes whole records. The plan spells out the differences to the text: a condition here is
//! true or false and never NULL, and a value is a text that is compared with the record's value as a value of that type.

mod aggregation;
mod filter;
mod place;
mod post;

use millstream_columns::{Diagnostic, Expr, Field, Item, ParserLimits, PathStep, TextPosition};
use serde_json::{Map, Value};

use crate::bql::{last, parse_statement};
use crate::{Extent, QueryPlan, RecordSource, Select, StreamDuration, Window};

/// The error message, after the path of its position in the document.
type Wrong = String;

/// Parses a query in a JSON document, within `query.limits.text_max_bytes`.
///
/// # Errors
/// The diagnostics with their positions.
pub(crate) fn read(text: &str, limits: &ParserLimits) -> Result<QueryPlan, Vec<Diagnostic>> {
    let document = serde_json::from_str::<Map<String, Value>>(text)
        .map_err(|error| vec![refusal(text, place_of(text, &error), error.to_string())])?;
    let plan = plan(&document).map_err(|wrong| vec![refusal(text, place::of(text, &wrong), wrong)])?;
    let plan = checked(&plan, limits).map_err(|wrong| {
        wrong.into_iter().map(|diagnostic| refusal(text, 0, diagnostic.message)).collect::<Vec<_>>()
    })?;
    // A document takes `size` records, and sorts what it has taken.
    let sorts_first_matches = plan.is_raw() && plan.window.is_none() && !plan.order_by.is_empty();
    Ok(QueryPlan { sorts_first_matches, ..plan })
}

/// Parses the plan's own text, so that every rule for texts holds for documents too.
pub(crate) fn checked(plan: &QueryPlan, limits: &ParserLimits) -> Result<QueryPlan, Vec<Diagnostic>> {
    parse_statement(&plan.to_string(), limits)
}

fn place_of(text: &str, error: &serde_json::Error) -> usize {
    let line_start = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    let mut byte = (line_start + error.column().saturating_sub(1)).min(text.len());
    while !text.is_char_boundary(byte) {
        byte -= 1;
    }
    byte
}

fn refusal(text: &str, byte: usize, message: String) -> Diagnostic {
    Diagnostic {
        place: TextPosition::of(text, byte),
        message,
        found: millstream_columns::excerpt(&text[byte..]),
        expected: Vec::new(),
        suggestion: None,
    }
}

fn plan(document: &Map<String, Value>) -> Result<QueryPlan, Wrong> {
    known(document, "query", &["filters", "projection", "aggregation", "duration", "window", "postAggregations"])?;
    let duration = match document.get("duration") {
        None | Some(Value::Null) => StreamDuration::Default,
        Some(Value::Number(number)) => match number.as_f64() {
            Some(duration_ms) if duration_ms >= 1.0 => StreamDuration::Ms(duration_ms as u64),
            _ => StreamDuration::Default,
        },
        Some(_) => return Err("duration: milliseconds as a number".to_owned()),
    };
    let mut plan = QueryPlan {
        select: projection(document.get("projection"))?,
        distinct: false,
        source: RecordSource::Stream(duration),
        filter: filter::all(document.get("filters"))?,
        group_by: Vec::new(),
        having: None,
        order_by: Vec::new(),
        window: document.get("window").filter(|window| !window.is_null()).map(window).transpose()?,
        event_time: None,
        limit: None,
        sorts_first_matches: false,
        stamped: false,
    };
    if let Some(aggregation) = document.get("aggregation").filter(|part| !part.is_null()) {
        aggregation::apply(object(aggregation, "aggregation")?, &mut plan)?;
    }
    if let Some(steps) = document.get("postAggregations").filter(|part| !part.is_null()) {
        for (i, step) in list(steps, "postAggregations")?.iter().enumerate() {
            post::apply(step, &format!("postAggregations[{i}]"), &mut plan)?;
        }
    }
    Ok(plan)
}

fn projection(projection: Option<&Value>) -> Result<Select, Wrong> {
    let Some(projection) = projection.filter(|projection| !projection.is_null()) else {
        return Ok(Select::All);
    };
    let items = match object(projection, "projection")?.get("fields") {
        None | Some(Value::Null) => Vec::new(),
        Some(fields) => renamed(fields, "projection.fields")?,
    };
    Ok(if items.is_empty() { Select::All } else { Select::Items(items) })
}

/// `{"source": "new name"}`; a name that is null or empty is the source.
fn renamed(fields: &Value, path: &str) -> Result<Vec<Item>, Wrong> {
    let mut items = Vec::new();
    for (source, name) in object(fields, path)? {
        let alias = match name {
            Value::Null => source.clone(),
            Value::String(name) if name.is_empty() => source.clone(),
            Value::String(name) => name.clone(),
            _ => return Err(format!("{path}.{source}: the new name is a text")),
        };
        items.push(Item { value: field(source, path)?, alias: Some(alias) });
    }
    Ok(items)
}

/// `{"emit": {"type", "every"}, "include": {"type", "first" or "last"}}`.
pub(crate) fn window(window: &Value) -> Result<Window, Wrong> {
    let window = object(window, "window")?;
    known(window, "window", &["emit", "include"])?;
    let emit = object(window.get("emit").unwrap_or(&Value::Null), "window.emit")?;
    let extent = |part: &Map<String, Value>, amount: &str, path: &str| {
        let amount = part.get(amount).and_then(Value::as_u64).filter(|amount| *amount > 0);
        match (keyword(part.get("type")).as_deref(), amount) {
            (Some("TIME"), Some(amount)) => Ok(Extent::TimeMs(amount)),
            (Some("RECORD"), Some(amount)) => Ok(Extent::Records(amount)),
            _ => Err(format!("{path}: a type, TIME or RECORD, and how much, from 1")),
        }
    };
    let emit = extent(emit, "every", "window.emit")?;
    let Some(include) = window.get("include").filter(|include| !include.is_null()) else {
        return Ok(Window::Tumbling(emit));
    };
    let include = object(include, "window.include")?;
    if keyword(include.get("type")).as_deref() == Some("ALL") {
        return Ok(Window::Additive(emit));
    }
    if include.contains_key("last") {
        return last(emit, extent(include, "last", "window.include")?)
            .map_err(|wrong| format!("window.include: {wrong}"));
    }
    if extent(include, "first", "window.include")? == emit {
        return Ok(Window::Tumbling(emit));
    }
    Err("window.include: a window of the first records between two results is not there yet".to_owned())
}

/// The field at a path such as `map.key`, `list.0` or `list.4.key`: a step of digits is an index in a list.
fn field(path: &str, at: &str) -> Result<Expr, Wrong> {
    if path.is_empty() || path.split('.').any(str::is_empty) {
        return Err(format!("{at}: '{path}' names no field"));
    }
    let step = |(i, step): (usize, &str)| match step.parse() {
        Ok(index) if i > 0 => PathStep::Index(index),
        _ => PathStep::Key(step.to_owned()),
    };
    Ok(Expr::Field(Field::Payload(path.split('.').enumerate().map(step).collect())))
}

/// A word in any case.
fn keyword(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).map(str::to_ascii_uppercase)
}

fn object<'a>(value: &'a Value, path: &str) -> Result<&'a Map<String, Value>, Wrong> {
    value.as_object().ok_or_else(|| format!("{path}: an object belongs here"))
}

fn list<'a>(value: &'a Value, path: &str) -> Result<&'a [Value], Wrong> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| format!("{path}: a list belongs here"))
}

/// Refuses members that mean nothing: a query with a misspelled filter would take everything.
fn known(members: &Map<String, Value>, path: &str, names: &[&str]) -> Result<(), Wrong> {
    let Some(unknown) = members.keys().find(|name| !names.contains(&name.as_str())) else { return Ok(()) };
    let meant = millstream_columns::nearest(unknown, names.iter().copied());
    let meant =
        meant.map_or_else(|| format!("there are {}", names.join(", ")), |meant| format!("did you mean {meant}?"));
    Err(format!("{path}: '{unknown}' means nothing here; {meant}"))
}
