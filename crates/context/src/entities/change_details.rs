//! The header `change-details` of a change record. It says enough of the change to notify
//! subscribers without a second read.
//!
//! The header is a JSON object: `type` of the entity, `created` and `modified` (ms); `times`: for each attribute how
//! long after the entity it was created and how long before the entity's last change it was changed (ms); and `attrs`:
//! one array for each attribute that differs or was requested: name, action (`update`, `append`, `delete`), the
//! difference (`value`, `metadata`, or the empty text for none), and the type and value before, where they were others.
//! A transient entity also has `expires` (ms), which its value does not show. A client's change also has `correlator`;
//! `forced` if the client wants notifications although nothing differs; `token` if a secret of the client, which is
//! never stored, goes on to receivers; `flow` if the reply waits for the notifications.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::model::entity::{Attribute, DATE_EXPIRES, Entity};
use crate::model::json::{push_number, push_string};
use crate::model::update::{AttributeDifference, Differs};

/// The request that caused a change.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChangeOrigin {
    /// The request's `Fiware-Correlator`; empty for a measurement.
    pub(crate) correlator: Arc<str>,
    /// Key of the client's `X-Auth-Token` in the token store.
    pub(crate) token: Option<u64>,
    /// Number of the update whose reply waits for the notifications.
    pub(crate) flow: Option<u64>,
    /// Subscriptions fire even if nothing differs.
    pub(crate) is_forced: bool,
}

/// Renders the header for `entity`, the deleted version in case of a delete. `asked` are the attributes in the request.
pub(crate) fn text(
    before: Option<&Entity>,
    entity: &Entity,
    differences: &[AttributeDifference],
    asked: &[Arc<str>],
    origin: &ChangeOrigin,
) -> Vec<u8> {
    let mut out = String::with_capacity(384);
    push_head(entity, origin, &mut out);
    out.push_str(",\"attrs\":[");
    for AttributeDifference { name, what } in differences {
        let known = before.and_then(|entity| entity.attribute(name));
        let (action, differs, previous) = match what {
            Differs::Added => ("append", "value", None),
            Differs::Value => ("update", "value", known),
            Differs::Metadata => ("update", "metadata", None),
            Differs::Removed => ("delete", "value", None),
        };
        push_detail(name, action, differs, previous, &mut out);
    }
    for name in asked {
        if !differences.iter().any(|difference| difference.name == *name) {
            push_detail(name, "update", "", None, &mut out);
        }
    }
    out.push_str("]}");
    out.into_bytes()
}

fn push_head(entity: &Entity, origin: &ChangeOrigin, out: &mut String) {
    out.push_str("{\"type\":");
    push_string(&entity.key.kind, out);
    out.push_str(",\"created\":");
    push_number(entity.created_ms(), out);
    out.push_str(",\"modified\":");
    push_number(entity.modified_ms, out);
    out.push_str(",\"times\":[");
    // The record's value shows as many.
    let shown = entity.attributes.iter().filter(|attribute| *attribute.name != *DATE_EXPIRES);
    for (i, attribute) in shown.enumerate() {
        if i > 0 {
            out.push(',');
        }
        push_number(attribute.created_ms - entity.created_ms(), out);
        out.push(',');
        push_number(entity.modified_ms - attribute.modified_ms, out);
    }
    out.push(']');
    if let Some(at_ms) = entity.expires_ms() {
        let _ = write!(out, ",\"expires\":{at_ms}");
    }
    if !origin.correlator.is_empty() {
        out.push_str(",\"correlator\":");
        push_string(&origin.correlator, out);
    }
    if let Some(token) = origin.token {
        let _ = write!(out, ",\"token\":{token}");
    }
    if let Some(flow) = origin.flow {
        let _ = write!(out, ",\"flow\":{flow}");
    }
    if origin.is_forced {
        out.push_str(",\"forced\":true");
    }
}

fn push_detail(name: &str, action: &str, differs: &str, previous: Option<&Attribute>, out: &mut String) {
    out.push_str(if out.ends_with('[') { "[" } else { ",[" });
    push_string(name, out);
    for text in [",\"", action, "\",\"", differs, "\","] {
        out.push_str(text);
    }
    match previous {
        None => out.push_str("null]"),
        Some(known) => {
            out.push('[');
            push_string(&known.kind, out);
            out.push(',');
            out.push_str(&known.value);
            out.push_str("]]");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::entity::Key;
    use crate::model::request_body::{BodyOptions, attributes};
    use crate::model::update::{UpdateMode, set, settle};

    fn room(body: &str) -> Entity {
        let mut room = Entity::new(Key { id: "r".into(), kind: "Room".into(), path: "/".into() }.into(), 5_000);
        set(&mut room, attributes(body.as_bytes(), BodyOptions::NORMALIZED).unwrap(), UpdateMode::Append);
        settle(None, &mut room, &[], 5);
        room
    }

    #[test]
    fn change_details_list_the_differences_and_the_requested_attributes() {
        let before = room(r#"{"a":{"value":1},"b":{"value":"x"},"c":{"value":1},"gone":{"value":[1]}}"#);
        let mut after = room(
            r#"{"a":{"value":2},"b":{"value":"x"},"c":{"value":1,"metadata":{"m":{"value":1}}},"d":{"value":null}}"#,
        );
        let differences = settle(Some(&before), &mut after, &[], 9);
        let origin = ChangeOrigin { correlator: "c\"1".into(), token: Some(u64::MAX), flow: None, is_forced: true };
        let text = text(Some(&before), &after, &differences, &["b".into(), "a".into()], &origin);
        assert_eq!(
            std::str::from_utf8(&text).unwrap(),
            r#"{"type":"Room","created":5,"modified":9,"times":[0,0,0,4,0,0,4,0],"correlator":"c\"1","token":18446744073709551615,"forced":true,"attrs":[["a","update","value",["Number",1]],["c","update","metadata",null],["d","append","value",null],["gone","delete","value",null],["b","update","",null]]}"#
        );
    }

    #[test]
    fn a_change_by_a_measurement_has_no_client() {
        let before = room(r#"{"a":{"value":1}}"#);
        let text = text(Some(&before), &before, &[], &[], &ChangeOrigin::default());
        let expected = r#"{"type":"Room","created":5,"modified":5,"times":[0,0],"attrs":[]}"#;
        assert_eq!(std::str::from_utf8(&text).unwrap(), expected);
    }
}
