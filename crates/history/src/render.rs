//! Renders results as NGSI-LD temporal entities or CSV.

use millstream_http::{AnswerMemory, Problem};
use millstream_types::iso_time;

use crate::aggregate::Sums;
use crate::page::TemporalResult;
use crate::point::Point;
use crate::query::{AggregateMethod, EntityRef, TimeProperty};

/// The format of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResponseFormat {
    pub(crate) media: MediaType,
    /// Points are pairs of value and time.
    pub(crate) is_brief: bool,
    pub(crate) property: TimeProperty,
    /// The methods of aggregated results.
    pub(crate) methods: Vec<AggregateMethod>,
    /// The answer is one object instead of an array.
    pub(crate) is_single: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MediaType {
    Json,
    Csv,
}

impl MediaType {
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8",
        }
    }
}

pub(crate) fn render(
    entities: &[EntityRef],
    found: &TemporalResult,
    shape: &ResponseFormat,
    memory: &mut AnswerMemory,
) -> Result<String, Problem> {
    match shape.media {
        MediaType::Json => json(entities, found, shape, memory),
        MediaType::Csv => csv(entities, found, shape, memory),
    }
}

fn json(
    entities: &[EntityRef],
    found: &TemporalResult,
    shape: &ResponseFormat,
    memory: &mut AnswerMemory,
) -> Result<String, Problem> {
    let mut out = String::new();
    if !shape.is_single {
        out.push('[');
    }
    for (number, entity) in entities.iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        out.push_str("{\"id\":");
        push_text(&entity.id, &mut out);
        out.push_str(",\"type\":");
        push_text(&entity.kind, &mut out);
        match found {
            TemporalResult::Points(points) => {
                for (_, attribute, points) in
                    points.series.iter().filter(|(of, _, points)| *of == number && !points.is_empty())
                {
                    push_member(attribute, &mut out);
                    push_points(points, shape, &mut out);
                }
            }
            TemporalResult::Periods(series) => {
                for (_, attribute, periods) in
                    series.iter().filter(|(of, _, periods)| *of == number && !periods.is_empty())
                {
                    push_member(attribute, &mut out);
                    push_periods(periods, &shape.methods, &mut out);
                }
            }
        }
        out.push('}');
        memory.cover(out.capacity())?;
    }
    if !shape.is_single {
        out.push(']');
    }
    Ok(out)
}

/// Appends a comma, a member's name and a colon.
pub(crate) fn push_member(name: &str, out: &mut String) {
    out.push(',');
    push_text(name, out);
    out.push(':');
}

fn push_points(points: &[(i64, Point)], shape: &ResponseFormat, out: &mut String) {
    if shape.is_brief {
        let last = points.iter().rev().find(|(_, point)| !point.is_deletion());
        let (kind, value) = last.map_or(("Property", "value"), |(_, point)| form(point));
        out.push_str(&format!("{{\"type\":\"{kind}\",\"{value}s\":["));
        for (at, (ms, point)) in points.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            out.push_str(&format!("{comma}[{},\"{}\"]", point.value, iso_time(*ms)));
        }
        out.push_str("]}");
        return;
    }
    out.push('[');
    for (at, (_, point)) in points.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        let (kind, value) = form(point);
        out.push_str(&format!("{{\"type\":\"{kind}\",\"{value}\":{}", point.value));
        if let Some(metadata) = &point.metadata {
            push_metadata(metadata, out);
        }
        out.push_str(&format!(",\"observedAt\":\"{}\"", iso_time(point.observed_ms)));
        if shape.property == TimeProperty::Modified {
            out.push_str(&format!(",\"modifiedAt\":\"{}\"", iso_time(point.modified_ms)));
        }
        if point.is_deletion() {
            out.push_str(&format!(",\"deletedAt\":\"{}\"", iso_time(point.modified_ms)));
        }
        out.push('}');
    }
    out.push(']');
}

/// Returns the NGSI-LD type of an attribute, and the name of its value member.
fn form(point: &Point) -> (&'static str, &'static str) {
    match &*point.kind {
        "Relationship" => ("Relationship", "object"),
        "geo:json" | "GeoProperty" => ("GeoProperty", "value"),
        _ => ("Property", "value"),
    }
}

/// Renders metadata as sub-properties, and `unitCode` as a plain member.
fn push_metadata(metadata: &str, out: &mut String) {
    #[derive(serde::Deserialize)]
    struct MetadataItem<'a> {
        #[serde(borrow)]
        value: &'a serde_json::value::RawValue,
    }
    let items: std::collections::BTreeMap<String, MetadataItem<'_>> =
        serde_json::from_str(metadata).unwrap_or_default();
    for (name, item) in items {
        // Members of the property itself.
        if ["type", "value", "object", "observedAt", "modifiedAt", "deletedAt"].contains(&name.as_str()) {
            continue;
        }
        push_member(&name, out);
        if name == "unitCode" {
            out.push_str(item.value.get());
        } else {
            out.push_str(&format!("{{\"type\":\"Property\",\"value\":{}}}", item.value.get()));
        }
    }
}

fn push_periods(periods: &[(Option<(i64, i64)>, Sums)], methods: &[AggregateMethod], out: &mut String) {
    out.push_str("{\"type\":\"Property\"");
    for method in methods {
        push_member(method.name(), out);
        out.push('[');
        let mut is_first = true;
        for (ends, sums) in periods {
            let Some(value) = sums.value(*method) else { continue };
            if !std::mem::replace(&mut is_first, false) {
                out.push(',');
            }
            out.push_str(&format!("[{}", number(value)));
            for ms in ends.iter().flat_map(|(start, end)| [start, end]) {
                out.push_str(&format!(",\"{}\"", iso_time(*ms)));
            }
            out.push(']');
        }
        out.push(']');
    }
    out.push('}');
}

/// Formats a JSON number: integers without decimals, `null` for infinities.
pub(crate) fn number(value: f64) -> String {
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    if !value.is_finite() {
        "null".to_owned()
    } else if value.fract() == 0.0 && value.abs() < WHOLE_MAX {
        format!("{}", value as i64)
    } else {
        serde_json::Number::from_f64(value).map_or_else(|| "null".to_owned(), |number| number.to_string())
    }
}

/// Appends a JSON string.
pub(crate) fn push_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

fn csv(
    entities: &[EntityRef],
    found: &TemporalResult,
    shape: &ResponseFormat,
    memory: &mut AnswerMemory,
) -> Result<String, Problem> {
    let mut out = String::new();
    match found {
        TemporalResult::Points(points) => {
            out.push_str("entityId,entityType,servicePath,attribute,attributeType,value,observedAt,modifiedAt\r\n");
            for (number, attribute, points) in &points.series {
                for (_, point) in points {
                    push_names(&entities[*number], attribute, &mut out);
                    push_field(&point.kind, &mut out);
                    let value: Option<String> = serde_json::from_str(&point.value).ok();
                    push_field(value.as_deref().unwrap_or(&point.value), &mut out);
                    let (observed, modified) = (iso_time(point.observed_ms), iso_time(point.modified_ms));
                    out.push_str(&format!("{observed},{modified}\r\n"));
                }
                memory.cover(out.capacity())?;
            }
        }
        TemporalResult::Periods(series) => {
            out.push_str("entityId,entityType,servicePath,attribute,method,value,from,to\r\n");
            for (entity, attribute, periods) in series {
                for method in &shape.methods {
                    for (ends, sums) in periods {
                        let Some(value) = sums.value(*method) else { continue };
                        push_names(&entities[*entity], attribute, &mut out);
                        let [from, to] =
                            ends.map_or_else(Default::default, |(from, to)| [iso_time(from), iso_time(to)]);
                        out.push_str(&format!("{},{},{from},{to}\r\n", method.name(), number(value)));
                    }
                }
                memory.cover(out.capacity())?;
            }
        }
    }
    Ok(out)
}

fn push_names(entity: &EntityRef, attribute: &str, out: &mut String) {
    for name in [&*entity.id, &*entity.kind, &*entity.path, attribute] {
        push_field(name, out);
    }
}

/// Appends a CSV field and a comma; quotes the field if needed.
pub(crate) fn push_field(text: &str, out: &mut String) {
    if text.contains([',', '"', '\r', '\n']) {
        out.push_str(&format!("\"{}\",", text.replace('"', "\"\"")));
    } else {
        out.push_str(text);
        out.push(',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_shortest() {
        for (value, text) in [
            (20.0, "20"),
            (-0.5, "-0.5"),
            (1e300, "1e+300"),
            (f64::INFINITY, "null"),
            (0.1 + 0.2, "0.30000000000000004"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn metadata_named_as_members_of_a_property_are_left_out() {
        let mut out = String::new();
        push_metadata(
            r#"{"observedAt":{"value":"today"},"deletedAt":{"value":1},"value":{"value":2},"unit":{"value":"C"}}"#,
            &mut out,
        );
        assert_eq!(out, r#","unit":{"type":"Property","value":"C"}"#);
    }

    #[test]
    fn a_field_that_would_break_the_table_is_quoted() {
        let mut out = String::new();
        for text in ["plain", "a,b", "say \"x\"", "two\nlines"] {
            push_field(text, &mut out);
        }
        assert_eq!(out, "plain,\"a,b\",\"say \"\"x\"\"\",\"two\nlines\",");
    }
}
