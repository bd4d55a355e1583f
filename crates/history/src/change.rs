//! Parses a record of a change topic: the entity and the attributes that changed.

use std::borrow::Cow;
use std::fmt;

use millstream_types::{RecordView, header, ms_of};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::point::{DELETED, NOT_DELETED};

/// Metadata names that hold the time of observation.
const OBSERVATION_TIMES: [&str; 2] = ["TimeInstant", "observedAt"];
/// Alterations that end an entity; their records contain its last state.
const ENDS: [&[u8]; 2] = [b"entityDelete", b"entityExpire"];
/// The expiry date of a transient entity, which is absent from its record.
const DATE_EXPIRES: &str = "dateExpires";
/// The type of a deleted attribute.
const NO_KIND: &str = "None";

/// A change of an entity.
#[derive(Debug)]
pub(crate) struct EntityChange<'a> {
    pub(crate) id: Cow<'a, str>,
    pub(crate) kind: Cow<'a, str>,
    pub(crate) path: &'a str,
    pub(crate) attributes: Vec<ChangedAttribute<'a>>,
}

#[derive(Debug)]
pub(crate) struct ChangedAttribute<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) kind: Cow<'a, str>,
    pub(crate) value: &'a str,
    pub(crate) observed_ms: Option<i64>,
    pub(crate) metadata: Option<String>,
}

impl<'a> EntityChange<'a> {
    /// Reads a record. Returns `None` if no attribute changed: an update without effect, or the end
    /// of an entity without attributes.
    pub(crate) fn read(record: &RecordView<'a>) -> Result<Option<Self>, String> {
        let [changed, path, alteration, kept] = record.header_values([
            header::CHANGED_ATTRIBUTES,
            header::SERVICE_PATH,
            header::ALTERATION_TYPE,
            header::KEPT_OBSERVATION_TIMES,
        ]);
        let text =
            |value: Option<&'a [u8]>| value.and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default();
        let changed = text(changed);
        if changed.is_empty() {
            return Ok(None);
        }
        let Some(value) = record.value else { return Ok(None) };
        let listed = |names: &'a str| names.split(',').map(|name| percent_decode_str(name).decode_utf8_lossy());
        let names: Vec<Cow<'a, str>> = listed(changed).collect();
        let path = Some(text(path)).filter(|path| !path.is_empty()).unwrap_or("/");
        let mut change =
            EntityChange { id: "".into(), kind: "".into(), path, attributes: Vec::with_capacity(names.len()) };
        let wanted = ChangeVisitor { names: &names, change: &mut change, has_all: false };
        wanted.read(value).map_err(|error| error.to_string())?;
        let is_end = alteration.is_some_and(|kind| ENDS.contains(&kind));
        if is_end {
            change.attributes.clear();
        }
        // A time carried over from the previous value does not apply to this one; its time is that of the change.
        for name in kept.into_iter().flat_map(|kept| listed(text(Some(kept)))) {
            let changed = change.attributes.iter_mut().filter(|changed| changed.name == name);
            changed.for_each(|changed| changed.observed_ms = None);
        }
        // A changed attribute that is absent was deleted.
        for name in names {
            if name != DATE_EXPIRES && !change.attributes.iter().any(|changed| changed.name == name) {
                change.attributes.push(ChangedAttribute::deleted(name));
            }
        }
        Ok((!change.attributes.is_empty()).then_some(change))
    }
}

impl<'a> ChangedAttribute<'a> {
    fn deleted(name: Cow<'a, str>) -> Self {
        Self { name, kind: NO_KIND.into(), value: DELETED, observed_ms: None, metadata: None }
    }
}

/// Reads the changed attributes, skips others, and stops after the last changed one.
struct ChangeVisitor<'n, 'c, 'a> {
    names: &'n [Cow<'a, str>],
    change: &'c mut EntityChange<'a>,
    has_all: bool,
}

impl<'de> ChangeVisitor<'_, '_, 'de> {
    fn read(mut self, json: &'de [u8]) -> Result<(), serde_json::Error> {
        let read = serde_json::Deserializer::from_slice(json).deserialize_map(&mut self);
        // The deserializer reports unread text as an error.
        if self.has_all { Ok(()) } else { read }
    }
}

impl<'de> Visitor<'de> for &mut ChangeVisitor<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a normalized entity")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let change = &mut *self.change;
        // Id and type are the first members.
        while change.attributes.len() < self.names.len()
            && let Some(CowText(name)) = members.next_key()?
        {
            match &*name {
                "id" => change.id = members.next_value::<CowText<'de>>()?.0,
                "type" => change.kind = members.next_value::<CowText<'de>>()?.0,
                _ if self.names.contains(&name) => {
                    let attribute: Attribute<'de> = members.next_value()?;
                    change.attributes.push(attribute.changed(name).map_err(serde::de::Error::custom)?);
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        self.has_all = change.attributes.len() == self.names.len();
        Ok(())
    }
}

/// Text that is copied only if it has escapes.
#[derive(Deserialize, PartialEq, Eq, Hash)]
struct CowText<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Attribute<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    value: &'a RawValue,
    #[serde(borrow)]
    metadata: &'a RawValue,
}

#[derive(Deserialize)]
struct MetadataItem<'a> {
    #[serde(borrow)]
    value: Cow<'a, str>,
}

impl<'a> Attribute<'a> {
    fn changed(self, name: Cow<'a, str>) -> Result<ChangedAttribute<'a>, serde_json::Error> {
        let (mut observed_ms, mut metadata) = (None, None);
        if self.metadata.get() != "{}" {
            let mut items: std::collections::BTreeMap<String, &RawValue> = serde_json::from_str(self.metadata.get())?;
            for name in OBSERVATION_TIMES {
                let item = items.get(name).and_then(|item| serde_json::from_str::<MetadataItem<'_>>(item.get()).ok());
                if let Some(ms) = item.and_then(|item| moment(&item.value)) {
                    observed_ms = observed_ms.or(Some(ms));
                    items.remove(name);
                }
            }
            if !items.is_empty() {
                metadata = Some(serde_json::to_string(&items)?);
            }
        }
        let value = match self.value.get() {
            DELETED => NOT_DELETED,
            value => value,
        };
        Ok(ChangedAttribute { name, kind: self.kind, value, observed_ms, metadata })
    }
}

/// Parses an ISO 8601 date, or date and time; the default offset is UTC.
pub(crate) fn moment(text: &str) -> Option<i64> {
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        return Some(moment.as_millisecond());
    }
    // `jiff::Timestamp` ends some hours before the calendar does.
    let written = jiff::fmt::temporal::Pieces::parse(text).ok()?;
    let time = written.date().to_datetime(written.time().unwrap_or_default());
    let offset_ms = written.to_numeric_offset().map_or(0, |offset| i64::from(offset.seconds()) * 1_000);
    Some(ms_of(time) - offset_ms)
}

#[cfg(test)]
mod tests {
    use millstream_types::{BatchBuilder, Compression, Epoch, Header, Offset, Record};

    use super::*;

    fn read(headers: &[(&str, &str)], value: &str, check: impl FnOnce(Result<Option<EntityChange<'_>>, String>)) {
        let headers: Vec<Header<'_>> =
            headers.iter().map(|(key, value)| Header { key, value: Some(value.as_bytes()) }).collect();
        let mut builder = BatchBuilder::default();
        let record = Record { timestamp_ms: 7, key: Some(b"r"), value: Some(value.as_bytes()), headers: &headers };
        builder.push(&record);
        let batch = builder.seal(Offset::ZERO, Epoch(0), Compression::None);
        check(EntityChange::read(&batch.records().next().unwrap().unwrap()));
    }

    #[test]
    fn the_changed_attributes_of_an_entity_are_read() {
        let value = r#"{"id":"r\"1","type":"Room",
            "t":{"type":"Number","value":21.5,"metadata":{"TimeInstant":{"type":"DateTime","value":"2026-01-02T03:04:05.678Z"},"unit":{"type":"Text","value":"C"}}},
            "u":{"type":"Text","value":"x","metadata":{}},
            "v":{"type":"None","value":null,"metadata":{"observedAt":{"type":"DateTime","value":"2026-01-02T04:04:05+01:00"}}}}"#;
        let headers =
            [("alteration-type", "entityChange"), ("changed-attributes", "t,v"), ("fiware-servicepath", "/a")];
        read(&headers, value, |change| {
            let change = change.unwrap().unwrap();
            assert_eq!((&*change.id, &*change.kind, change.path), ("r\"1", "Room", "/a"));
            let [t, v] = &change.attributes[..] else { panic!("{change:?}") };
            assert_eq!((&*t.name, &*t.kind, t.value), ("t", "Number", "21.5"));
            assert_eq!(t.observed_ms, Some(1_767_323_045_678));
            assert_eq!(t.metadata.as_deref(), Some(r#"{"unit":{"type":"Text","value":"C"}}"#));
            assert_eq!((v.value, v.observed_ms, &v.metadata), ("null", Some(1_767_323_045_000), &None));
        });
    }

    #[test]
    fn a_value_with_the_time_of_the_one_before_has_none_of_its_own() {
        let time = r#"{"TimeInstant":{"type":"DateTime","value":"2026-01-02T03:04:05.678Z"}}"#;
        let attribute = |value: u32| format!(r#"{{"type":"Number","value":{value},"metadata":{time}}}"#);
        let value = format!(r#"{{"id":"r","type":"Room","a,b":{},"t":{}}}"#, attribute(1), attribute(2));
        for (kept, expected) in [
            (None, [Some(1_767_323_045_678); 2]),
            (Some("a%2Cb"), [None, Some(1_767_323_045_678)]),
            (Some("t,a%2Cb"), [None; 2]),
            (Some(""), [Some(1_767_323_045_678); 2]),
        ] {
            let mut headers = vec![("alteration-type", "entityChange"), ("changed-attributes", "a%2Cb,t")];
            headers.extend(kept.map(|kept| ("kept-observation-times", kept)));
            read(&headers, &value, |change| {
                let change = change.unwrap().unwrap();
                let observed: Vec<Option<i64>> = change.attributes.iter().map(|one| one.observed_ms).collect();
                assert_eq!((observed, &change.attributes[0].metadata), (expected.to_vec(), &None), "{kept:?}");
            });
        }
    }

    #[test]
    fn attributes_that_are_deleted_are_read_as_such_one_by_one_or_with_their_entity() {
        let entity = r#"{"id":"r","type":"Room","t":{"type":"Number","value":1,"metadata":{}},"u":{"type":"Text","value":"x","metadata":{}}}"#;
        for (alteration, changed, expected) in [
            ("entityChange", "gone", "gone=\"urn:ngsi-ld:null\""),
            ("entityChange", "t,gone,dateExpires", "t=1 gone=\"urn:ngsi-ld:null\""),
            ("entityDelete", "t,u", "t=\"urn:ngsi-ld:null\" u=\"urn:ngsi-ld:null\""),
            ("entityExpire", "t,dateExpires", "t=\"urn:ngsi-ld:null\""),
        ] {
            read(&[("alteration-type", alteration), ("changed-attributes", changed)], entity, |change| {
                let change = change.unwrap().unwrap();
                let told: Vec<String> = change.attributes.iter().map(|a| format!("{}={}", a.name, a.value)).collect();
                assert_eq!((&*change.id, &*change.kind, &*told.join(" ")), ("r", "Room", expected));
            });
        }
    }

    #[test]
    fn names_with_commas_and_percent_signs_are_read_whole() {
        let entity = r#"{"id":"r","type":"Room","a,b":{"type":"Number","value":2,"metadata":{}},"a":{"type":"Number","value":1,"metadata":{}}}"#;
        read(&[("changed-attributes", "a%2Cb,50%,c%252C")], entity, |change| {
            let names: Vec<String> = change.unwrap().unwrap().attributes.iter().map(|a| a.name.to_string()).collect();
            assert_eq!(names, ["a,b", "50%", "c%2C"]);
        });
    }

    #[test]
    fn a_change_without_values_has_no_points_and_an_invalid_entity_is_refused() {
        let entity = r#"{"id":"r","type":"Room","t":{"type":"Number","value":1,"metadata":{}}}"#;
        for headers in [
            &[("alteration-type", "entityDelete"), ("changed-attributes", "")][..],
            &[("alteration-type", "entityUpdate"), ("changed-attributes", "")],
            &[("alteration-type", "entityChange"), ("changed-attributes", "dateExpires")],
            &[],
        ] {
            read(headers, entity, |change| assert!(change.unwrap().is_none(), "{headers:?}"));
        }
        read(&[("changed-attributes", "t")], "[1]", |change| assert!(change.is_err()));
    }

    #[test]
    fn moments_are_read_in_the_forms_of_iso_8601() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1970-01-01T01:00:00.5+01:00", Some(500)),
            ("1970-01-02", Some(86_400_000)),
            ("1970-01-01T00:00:01", Some(1_000)),
            ("9999-12-31T23:59:59.999Z", Some(253_402_300_799_999)),
            ("9999-12-31T23:00:00-01:00", Some(253_402_300_800_000)),
            ("9999-12-31", Some(253_402_214_400_000)),
            ("9999-12-31T00:00:60Z[", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(moment(text), ms, "{text}");
        }
    }
}
