//! Renders values and sums in the shapes of STH-Comet's two versions.

use std::collections::BTreeMap;

use jiff::civil::date;
use millstream_types::{date_time, iso_time, ms_of};

use super::request::{NamedAttribute, Resolution, SumMethod, ValuePage};
use crate::aggregate::Sums;
use crate::point::Point;
use crate::render::{number, push_field, push_member, push_text};

/// The version of the API, which decides on what values are wrapped in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// A context response of NGSI-v1.
    V1,
    /// An attribute of NGSI-v2.
    V2,
}

impl Version {
    /// Wraps a list of values, which is JSON text.
    pub(crate) fn wrap(self, values: &str, named: &NamedAttribute) -> String {
        if self == Self::V2 {
            return format!("{{\"type\":\"StructuredValue\",\"value\":{values}}}");
        }
        let mut out = String::from("{\"contextResponses\":[{\"contextElement\":{\"attributes\":[{\"name\":");
        push_text(&named.attribute, &mut out);
        out.push_str(",\"values\":");
        out.push_str(values);
        out.push_str("}],\"id\":");
        push_text(&named.id, &mut out);
        out.push_str(",\"isPattern\":false");
        if let Some(kind) = &named.kind {
            push_member("type", &mut out);
            push_text(kind, &mut out);
        }
        out.push_str("},\"statusCode\":{\"code\":\"200\",\"reasonPhrase\":\"OK\"}}]}");
        out
    }
}

impl ValuePage {
    /// Returns the points on the page; `points` are the first or last ones that it may need.
    pub(crate) fn of(self, points: &[(i64, Point)]) -> &[(i64, Point)] {
        let points = if self.last == Some(0) { &[] } else { points };
        let from = self.offset.min(points.len());
        let to = from.saturating_add(self.limit).min(points.len());
        &points[from..to]
    }
}

/// Renders points as a list of values with their times.
pub(crate) fn values(points: &[(i64, Point)]) -> String {
    let mut out = String::from("[");
    for (at, (ms, point)) in points.iter().enumerate() {
        out.push_str(if at > 0 { ",{" } else { "{" });
        out.push_str(&format!("\"recvTime\":\"{}\",\"attrType\":", iso_time(*ms)));
        push_text(&point.kind, &mut out);
        out.push_str(&format!(",\"attrValue\":{}}}", point.value));
    }
    out.push(']');
    out
}

/// Renders points as CSV with a line of names.
pub(crate) fn csv(points: &[(i64, Point)], attribute: &str) -> String {
    let mut out = String::from("attrName,attrType,attrValue,recvTime\r\n");
    for (ms, point) in points {
        push_field(attribute, &mut out);
        push_field(&point.kind, &mut out);
        let text: Option<String> = serde_json::from_str(&point.value).ok();
        push_field(text.as_deref().unwrap_or(&point.value), &mut out);
        out.push_str(&iso_time(*ms));
        out.push_str("\r\n");
    }
    out
}

/// Renders periods as points, which have a number within the next longer period, their origin. Periods without a value of the
/// asked sort are left out.
pub(crate) fn sums(
    periods: &[(Option<(i64, i64)>, Sums)],
    attribute: &str,
    method: SumMethod,
    resolution: Resolution,
) -> String {
    let mut of_origin: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for (ends, sums) in periods {
        let Some((start_ms, _)) = ends else { continue };
        let (origin_ms, offset) = place(*start_ms, resolution);
        if let Some(told) = told(sums, method) {
            of_origin.entry(origin_ms).or_default().push(format!("{{\"offset\":{offset},{told}}}"));
        }
    }
    let mut out = String::from("[");
    for (at, (origin_ms, points)) in of_origin.iter().enumerate() {
        out.push_str(if at > 0 { ",{\"_id\":{\"attrName\":" } else { "{\"_id\":{\"attrName\":" });
        push_text(attribute, &mut out);
        let (origin, resolution) = (iso_time(*origin_ms), resolution.name());
        out.push_str(&format!(",\"origin\":\"{origin}\",\"resolution\":\"{resolution}\"}},\"points\":["));
        out.push_str(&points.join(","));
        out.push_str("]}");
    }
    out.push(']');
    out
}

/// Returns the number of samples of a period and its sums, as members; `None` if it has none of the asked sort.
fn told(sums: &Sums, method: SumMethod) -> Option<String> {
    match method {
        SumMethod::Numbers(methods) => {
            let mut out = format!("\"samples\":{}", sums.numbers());
            for (method, name) in methods {
                push_member(name, &mut out);
                out.push_str(&number(sums.value(*method)?));
            }
            Some(out)
        }
        SumMethod::Occurrences => {
            let texts: BTreeMap<String, u64> = sums
                .occurrences()
                .filter_map(|(value, count)| Some((serde_json::from_str(value).ok()?, count)))
                .collect();
            let samples: u64 = texts.values().sum();
            let occur = serde_json::to_string(&texts).ok()?;
            (samples > 0).then(|| format!("\"samples\":{samples},\"occur\":{occur}"))
        }
    }
}

/// Returns the origin of a period and its number from there: days and months count from 1, the others from 0.
fn place(start_ms: i64, resolution: Resolution) -> (i64, i64) {
    const SECOND_MS: i64 = 1_000;
    const MINUTE_MS: i64 = 60 * SECOND_MS;
    const HOUR_MS: i64 = 60 * MINUTE_MS;
    const DAY_MS: i64 = 24 * HOUR_MS;
    let within = |origin_ms: i64, unit_ms: i64| {
        let origin = start_ms.div_euclid(origin_ms) * origin_ms;
        (origin, (start_ms - origin) / unit_ms)
    };
    let at = date_time(start_ms);
    match resolution {
        Resolution::Second => within(MINUTE_MS, SECOND_MS),
        Resolution::Minute => within(HOUR_MS, MINUTE_MS),
        Resolution::Hour => within(DAY_MS, HOUR_MS),
        Resolution::Day => (ms_of(date(at.year(), at.month(), 1).into()), i64::from(at.day())),
        Resolution::Month => (ms_of(date(at.year(), 1, 1).into()), i64::from(at.month())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::moment;

    #[test]
    fn a_period_has_a_number_within_the_next_longer_one() {
        for (start, resolution, origin, offset) in [
            ("2026-03-04T05:06:07Z", Resolution::Second, "2026-03-04T05:06:00.000Z", 7),
            ("2026-03-04T05:06:00Z", Resolution::Minute, "2026-03-04T05:00:00.000Z", 6),
            ("2026-03-04T05:00:00Z", Resolution::Hour, "2026-03-04T00:00:00.000Z", 5),
            ("2026-03-04", Resolution::Day, "2026-03-01T00:00:00.000Z", 4),
            ("2026-03-01", Resolution::Month, "2026-01-01T00:00:00.000Z", 3),
            ("1969-12-31T23:59:59Z", Resolution::Second, "1969-12-31T23:59:00.000Z", 59),
        ] {
            let (origin_ms, number) = place(moment(start).unwrap(), resolution);
            assert_eq!((&*iso_time(origin_ms), number), (origin, offset), "{start} {resolution:?}");
        }
    }

    #[test]
    fn the_first_version_wraps_values_in_a_context_response() {
        let named = NamedAttribute { id: "a\"b".into(), kind: Some("T".into()), attribute: "t".into() };
        let wrapped: serde_json::Value = serde_json::from_str(&Version::V1.wrap("[1]", &named)).unwrap();
        let element = serde_json::json!({
            "attributes": [{"name": "t", "values": [1]}], "id": "a\"b", "isPattern": false, "type": "T"
        });
        let status = serde_json::json!({"code": "200", "reasonPhrase": "OK"});
        assert_eq!(
            wrapped,
            serde_json::json!({"contextResponses": [{"contextElement": element, "statusCode": status}]})
        );
    }
}
