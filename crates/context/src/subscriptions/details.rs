//! Parser of the header `change-details`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Debug, Deserialize)]
pub(crate) struct Details<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(rename = "created")]
    pub(crate) created_ms: i64,
    #[serde(rename = "modified")]
    pub(crate) modified_ms: i64,
    /// For each attribute: how long after the entity it was created, and how long before its
    /// last change it was changed.
    #[serde(rename = "times")]
    pub(crate) times_ms: Vec<i64>,
    /// Expiry time of a transient entity.
    #[serde(default, rename = "expires")]
    pub(crate) expires_ms: Option<i64>,
    #[serde(default, borrow)]
    pub(crate) correlator: Cow<'a, str>,
    #[serde(default)]
    pub(crate) token: Option<u64>,
    /// The update whose reply waits for the notifications.
    #[serde(default)]
    pub(crate) flow: Option<u64>,
    #[serde(default, rename = "forced")]
    pub(crate) is_forced: bool,
    #[serde(borrow)]
    pub(crate) attrs: Vec<Detail<'a>>,
}

/// A requested or changed attribute: its name, action, difference, and the type and value before.
#[derive(Debug, Deserialize)]
pub(crate) struct Detail<'a>(
    #[serde(borrow)] pub(crate) Cow<'a, str>,
    pub(crate) AttributeAction,
    pub(crate) Differs,
    #[serde(default, borrow)] pub(crate) Option<(Cow<'a, str>, &'a RawValue)>,
);

/// The action on an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AttributeAction {
    Update,
    Append,
    Delete,
}

impl AttributeAction {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Append => "append",
            Self::Delete => "delete",
        }
    }
}

/// The difference of an attribute from the version before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Differs {
    #[serde(rename = "")]
    InNothing,
    Metadata,
    Value,
}

impl<'a> Details<'a> {
    /// Parses the header's value; `None` if it is malformed.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_details_are_parsed() {
        let text = br#"{"type":"Room","created":5,"modified":6,"times":[0,1],"correlator":"c\"1","token":18446744073709551615,"forced":true,
            "attrs":[["a","update","value",["Number",1]],["b","append","",null],["c","delete","metadata",null]]}"#;
        let read = Details::read(text).unwrap();
        assert_eq!((&*read.kind, read.created_ms, read.modified_ms), ("Room", 5, 6));
        assert_eq!((&*read.correlator, read.token, read.is_forced), ("c\"1", Some(u64::MAX), true));
        let Detail(name, action, difference, previous) = &read.attrs[0];
        assert_eq!((&**name, *action, *difference), ("a", AttributeAction::Update, Differs::Value));
        let (kind, value) = previous.as_ref().unwrap();
        assert_eq!((&**kind, value.get()), ("Number", "1"));
        assert_eq!(read.attrs.len(), 3);
        assert!(Details::read(b"{}").is_none() && Details::read(b"").is_none());
    }
}
