//! Configurable names for the members of a meta (`query.bullet.meta_names`).

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::Error;

/// The members that can have other names, at any depth.
const MEMBERS: [&str; 47] = [
    "active_items",
    "asked",
    "cause",
    "clamped",
    "count_error",
    "dropped",
    "elapsed_us",
    "emit_time_ms",
    "end_ms",
    "evaluation_errors",
    "expected_emit_time_ms",
    "family",
    "finished_ms",
    "first",
    "given",
    "id",
    "items_seen",
    "last",
    "late",
    "lower",
    "matched",
    "max",
    "min",
    "name",
    "not_json",
    "notes",
    "number",
    "of",
    "partition",
    "positions",
    "rank_error",
    "received_ms",
    "records",
    "records_seen",
    "relative_error",
    "setting",
    "size",
    "size_bytes",
    "sketches",
    "skipped",
    "standard_deviations",
    "start_ms",
    "stream",
    "text",
    "theta",
    "uniques_estimate",
    "upper",
];
/// Further members that can have other names.
const FURTHER: [&str; 3] = ["submitted_by", "was_estimated", "window"];

/// The name of each member that differs from the default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetaNames(BTreeMap<String, String>);

impl MetaNames {
    /// Reads the names from the configuration.
    ///
    /// # Errors
    /// [`Error::MetaName`] for a member that does not exist, and for two members with the same name.
    pub fn new(names: &BTreeMap<String, String>) -> Result<Self, Error> {
        let known = || MEMBERS.iter().chain(&FURTHER).copied();
        if let Some(unknown) = names.keys().find(|name| !known().any(|known| known == **name)) {
            let meant = millstream_columns::nearest(unknown, known()).map(|meant| format!("; did you mean '{meant}'?"));
            let what = format!("there is no member '{unknown}'{}", meant.unwrap_or_default());
            return Err(Error::MetaName { what });
        }
        let mut taken = HashSet::new();
        for name in known() {
            let called = names.get(name).map_or(name, String::as_str);
            if !taken.insert(called) {
                return Err(Error::MetaName { what: format!("two members would be called '{called}'") });
            }
        }
        Ok(Self(names.clone()))
    }

    /// Writes a meta as JSON with the configured names.
    pub(crate) fn write(&self, meta: &impl Serialize, out: &mut Vec<u8>) {
        let written = match self.0.is_empty() {
            true => serde_json::to_writer(&mut *out, meta),
            false => serde_json::to_value(meta).and_then(|meta| serde_json::to_writer(&mut *out, &self.called(meta))),
        };
        written.expect("a meta has string keys only, and writing to memory cannot fail");
    }

    fn called(&self, meta: Value) -> Value {
        match meta {
            Value::Object(members) => {
                let called = |(name, value)| (self.0.get(&name).cloned().unwrap_or(name), self.called(value));
                Value::Object(members.into_iter().map(called).collect::<Map<_, _>>())
            }
            Value::Array(parts) => Value::Array(parts.into_iter().map(|part| self.called(part)).collect()),
            other => other,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn names(pairs: &[(&str, &str)]) -> Result<MetaNames, Error> {
        MetaNames::new(&pairs.iter().map(|(name, called)| ((*name).to_owned(), (*called).to_owned())).collect())
    }

    #[test]
    fn members_are_renamed_wherever_they_stand_and_the_others_stay() {
        let meta = serde_json::json!({"id": "x", "window": {"number": 3, "sketches": [{"theta": 1.5}]}, "errors": []});
        let written = |names: &MetaNames| {
            let mut out = Vec::new();
            names.write(&meta, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(&MetaNames::default()), meta.to_string());
        let names = names(&[("id", "ID"), ("number", "n"), ("theta", "Theta"), ("window", "Window")]).unwrap();
        let expected = r#"{"ID":"x","Window":{"n":3,"sketches":[{"Theta":1.5}]},"errors":[]}"#;
        let [written, expected] = [&written(&names), expected].map(|json| serde_json::from_str::<Value>(json).unwrap());
        assert_eq!(written, expected);
    }

    #[test]
    fn an_unknown_member_and_a_duplicate_name_are_refused() {
        for (pairs, says) in [
            (&[("finshed_ms", "x")][..], "there is no member 'finshed_ms'; did you mean 'finished_ms'?"),
            (&[("id", "text")], "two members would be called 'text'"),
            (&[("id", "a"), ("text", "a")], "two members would be called 'a'"),
            (&[("errors", "a")], "there is no member 'errors'"),
        ] {
            let refused = names(pairs).unwrap_err().to_string();
            assert!(refused.contains(says), "{refused}");
        }
        assert!(names(&[("id", "text"), ("text", "id")]).is_ok());
    }
}
