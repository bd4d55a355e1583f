//! The header `change-details`, read.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// What a change record says of its change beside the entity.
#[derive(Debug, Deserialize)]
pub(crate) struct Details<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(rename = "created")]
    pub(crate) created_ms: i64,
    #[serde(rename = "modified")]
    pub(crate) modified_ms: i64,
    /// Of each attribute how long after the entity it was created, and how long before its last change it was changed.
    #[serde(rename = "times")]
    pub(crate) times_ms: Vec<i64>,
    /// When the entity ends by itself.
    #[serde(default, rename = "expires")]
    pub(crate) expires_ms: Option<i64>,
    #[serde(default, borrow)]
    pub(crate) correlator: Cow<'a, str>,
    #[serde(default)]
    pub(crate) token: Option<u64>,
    /// The update whose answer waits for what this leads to.
    #[serde(default)]
    pub(crate) flow: Option<u64>,
    #[serde(default, rename = "forced")]
    pub(crate) is_forced: bool,
    #[serde(borrow)]
    pub(crate) attrs: Vec<Detail<'a>>,
}

/// An attribute that was asked for or differs: its name, what was done, in what it differs, type and value before.
#[derive(Debug, Deserialize)]
pub(crate) struct Detail<'a>(
    #[serde(borrow)] pub(crate) Cow<'a, str>,
    pub(crate) Action,
    pub(crate) Differs,
    #[serde(default, borrow)] pub(crate) Option<(Cow<'a, str>, &'a RawValue)>,
);

/// What was done to an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    Update,
    Append,
    Delete,
}

impl Action {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Append => "append",
            Self::Delete => "delete",
        }
    }
}

/// In what an attribute differs from before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Differs {
    #[serde(rename = "")]
    InNothing,
    Metadata,
    Value,
}

impl<'a> Details<'a> {
    /// Reads the header's value; `None` if it is none.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_back() {
        let text = br#"{"type":"Room","created":5,"modified":6,"times":[0,1],"correlator":"c\"1","token":18446744073709551615,"forced":true,
            "attrs":[["a","update","value",["Number",1]],["b","append","",null],["c","delete","metadata",null]]}"#;
        let read = Details::read(text).unwrap();
        assert_eq!((&*read.kind, read.created_ms, read.modified_ms), ("Room", 5, 6));
        assert_eq!((&*read.correlator, read.token, read.is_forced), ("c\"1", Some(u64::MAX), true));
        let Detail(name, action, difference, previous) = &read.attrs[0];
        assert_eq!((&**name, *action, *difference), ("a", Action::Update, Differs::Value));
        let (kind, value) = previous.as_ref().unwrap();
        assert_eq!((&**kind, value.get()), ("Number", "1"));
        assert_eq!(read.attrs.len(), 3);
        assert!(Details::read(b"{}").is_none() && Details::read(b"").is_none());
    }
}
