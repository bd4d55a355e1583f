//! Select lists of jobs: the JSON object that a record becomes.
//!
//! `*` passes the bytes of the payload through, without the members that a named value replaces or EXCEPT leaves out; the
//! named values follow. A value that is a plain field keeps its bytes, so that numbers stay as the payload wrote them.

use std::fmt;

use crate::columns::{Columns, ColumnsScratch};
use crate::expr::{Item, SelectList};
use crate::record::InputRecord;
use crate::scan::{MalformedJson, copy_members};
use crate::value::{EvalError, write_text};

/// A select list, compiled for many records.
#[derive(Debug)]
pub struct Projection {
    /// For `*`: the names of the payload's members that do not pass, sorted.
    dropped: Option<Vec<String>>,
    names: Vec<String>,
    /// Each name as in JSON: `"name":`.
    prefixes: Vec<Vec<u8>>,
    columns: Columns,
}

/// The reason why a record has no projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectionError {
    /// `*` needs a payload that is a JSON object.
    NoObject,
    /// The payload is not JSON.
    Malformed,
    /// The value of a member cannot be computed.
    Member {
        /// The name of the member.
        name: String,
        /// The reason why the expression has no value.
        error: EvalError,
    },
}

impl fmt::Display for ProjectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoObject => f.write_str("the payload is not a JSON object; * selects the members of one"),
            Self::Malformed => f.write_str("the payload is not JSON"),
            Self::Member { name, error } => write!(f, "the value of \"{name}\" cannot be computed: {error}"),
        }
    }
}

impl std::error::Error for ProjectionError {}

impl From<MalformedJson> for ProjectionError {
    fn from(_: MalformedJson) -> Self {
        Self::Malformed
    }
}

impl Projection {
    /// Compiles a select list once, for any number of records.
    pub fn new(list: &SelectList) -> Self {
        let names: Vec<String> = list.items.iter().map(Item::name).collect();
        let dropped = list.all.as_ref().map(|all| {
            let mut dropped: Vec<String> = all.except.iter().chain(&names).cloned().collect();
            dropped.sort_unstable();
            dropped.dedup();
            dropped
        });
        let prefix = |name: &String| {
            let mut prefix = Vec::new();
            write_text(&mut prefix, name);
            prefix.push(b':');
            prefix
        };
        let prefixes = names.iter().map(prefix).collect();
        Self { dropped, prefixes, names, columns: Columns::new(list.items.iter().map(|item| &item.value)) }
    }

    /// Appends the object of `record` to `out`. The caller has checked that the whole payload is JSON ([`crate::is_json`]); `scratch` is memory
    /// that is kept from one record to the next.
    ///
    /// # Errors
    /// [`ProjectionError`] if the record has no such object; `out` is then as before.
    pub fn write(
        &self,
        record: &InputRecord<'_>,
        now_ms: i64,
        scratch: &mut ColumnsScratch,
        out: &mut Vec<u8>,
    ) -> Result<(), ProjectionError> {
        let start = out.len();
        let written = self.write_object(record, now_ms, scratch, out);
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    fn write_object(
        &self,
        record: &InputRecord<'_>,
        now_ms: i64,
        scratch: &mut ColumnsScratch,
        out: &mut Vec<u8>,
    ) -> Result<(), ProjectionError> {
        out.push(b'{');
        let mut is_first = true;
        if let Some(dropped) = &self.dropped {
            let payload = record.payload.map(<[u8]>::trim_ascii).filter(|payload| payload.starts_with(b"{"));
            is_first = !copy_members(payload.ok_or(ProjectionError::NoObject)?, dropped, out)?;
        }
        if !self.names.is_empty() {
            let of = self.columns.of_input(*record, now_ms, std::mem::take(scratch))?;
            let written = self.prefixes.iter().zip(&self.names).enumerate().try_for_each(|(place, (prefix, name))| {
                if !std::mem::take(&mut is_first) {
                    out.push(b',');
                }
                out.extend_from_slice(prefix);
                let written = of.write_json(place, out);
                written.map_err(|error| ProjectionError::Member { name: name.clone(), error })
            });
            *scratch = of.into_scratch();
            written?;
        }
        out.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use millstream_types::{Header, Offset, PartitionId};
    use serde_json::json;

    use super::*;
    use crate::{Headers, Metadata, Parameters, ParserLimits, parser};

    fn parameters() -> Parameters {
        let mut parameters = Parameters::default();
        let values = [
            ("least", json!(30)),
            ("rooms", json!(["hall", "attic"])),
            ("none", json!([])),
            ("name", json!("O'Neill' OR TRUE OR '")),
            ("pattern", json!("h.*")),
        ];
        values.iter().for_each(|(name, value)| parameters.set(name, value).unwrap());
        parameters
    }

    fn project(list: &str, payload: &str) -> Result<String, ProjectionError> {
        let list = parser::select_list(list, &parameters(), &ParserLimits::default())
            .unwrap_or_else(|wrong| panic!("{list}: {}", wrong[0]));
        let header = Header { key: "h", value: Some(b"x") };
        let metadata = Metadata {
            key: Some(b"dev"),
            timestamp_ms: Some(7),
            topic: Some("telemetry.t"),
            partition: Some(PartitionId(3)),
            offset: Some(Offset(9)),
            headers: Headers::List(&[header]),
        };
        let record = InputRecord { payload: Some(payload.as_bytes()), metadata };
        let projection = Projection::new(&list.parsed);
        let (mut out, mut scratch) = (b"before".to_vec(), ColumnsScratch::default());
        let written = projection.write(&record, 1000, &mut scratch, &mut out);
        let out = String::from_utf8(out).unwrap();
        let object = out.strip_prefix("before").unwrap().to_owned();
        match written {
            Ok(()) => Ok(object),
            Err(error) => {
                assert_eq!(object, "", "nothing is left behind");
                Err(error)
            }
        }
    }

    #[test]
    fn a_star_passes_the_bytes_and_named_values_follow() {
        let payload = r#" {"a": 1.50, "b" : {"c": [1 , 2]}, "a\u0062": 1e3,"z":99999999999999999999} "#;
        for (list, expected) in [
            ("*", r#"{"a": 1.50, "b" : {"c": [1 , 2]}, "a\u0062": 1e3,"z":99999999999999999999}"#),
            ("*, a * 2 AS d", r#"{"a": 1.50, "b" : {"c": [1 , 2]}, "a\u0062": 1e3,"z":99999999999999999999,"d":3.0}"#),
            ("*, b.c AS a", r#"{"b" : {"c": [1 , 2]}, "a\u0062": 1e3,"z":99999999999999999999,"a":[1 , 2]}"#),
            ("* EXCEPT (ab, z)", r#"{"a": 1.50, "b" : {"c": [1 , 2]}}"#),
            ("* EXCEPT (b)", r#"{"a": 1.50,"a\u0062": 1e3,"z":99999999999999999999}"#),
            ("* EXCEPT (a, b, z), ab AS ab", r#"{"ab":1e3}"#),
            ("* EXCEPT (a, b, ab, z)", "{}"),
            ("a, z AS \"the z\"", r#"{"a":1.50,"the z":99999999999999999999}"#),
            ("1 AS x, a AS x", r#"{"x":1.50}"#),
            ("missing, NULL AS n", r#"{"missing":null,"n":null}"#),
            (
                "$key AS k, $timestamp AS t, $topic AS o, $partition AS p, $offset AS f, $headers['h'] AS h, NOW AS n",
                r#"{"k":"dev","t":7,"o":"telemetry.t","p":3,"f":9,"h":"x","n":1000}"#,
            ),
        ] {
            assert_eq!(project(list, payload).as_deref(), Ok(expected), "{list}");
        }
        assert_eq!(project("*", "{ }").as_deref(), Ok("{ }"));
        assert_eq!(project("*, 1 AS a", "{ }").as_deref(), Ok(r#"{"a":1}"#));
    }

    #[test]
    fn parameters_are_values_and_never_text() {
        for (list, expected) in [
            ("temp > :least AS v", r#"{"v":true}"#),
            ("room IN :rooms AS v", r#"{"v":true}"#),
            ("room NOT IN :rooms AS v", r#"{"v":false}"#),
            ("room IN :none AS v", r#"{"v":false}"#),
            (":rooms AS v", r#"{"v":["hall","attic"]}"#),
            ("room = :name AS v", r#"{"v":false}"#),
            (":name AS v", r#"{"v":"O'Neill' OR TRUE OR '"}"#),
            ("room RLIKE :pattern AS v", r#"{"v":true}"#),
        ] {
            assert_eq!(project(list, r#"{"temp":31,"room":"hall"}"#).as_deref(), Ok(expected), "{list}");
        }
        let read = parser::parametric_condition("a > :least AND b IN :rooms", &parameters(), &ParserLimits::default());
        assert_eq!(read.unwrap().parameters, ["least", "rooms"]);
        assert!(Parameters::default().set("o", &json!({})).unwrap_err().to_string().contains("\"o\" is an object"));
        assert!(Parameters::default().set("l", &json!([[1]])).is_err());
    }

    #[test]
    fn a_value_that_fails_is_told_apart_from_null() {
        let member = |name: &str, error| Err(ProjectionError::Member { name: name.to_owned(), error });
        assert_eq!(project("*, a / 0 AS q", r#"{"a":1}"#), member("q", EvalError::DivisionByZero));
        assert_eq!(project("CAST(a AS LONG) AS c", r#"{"a":"x"}"#), member("c", EvalError::Cast));
        assert_eq!(project("CAST(a AS LONG) AS c", "{}").as_deref(), Ok(r#"{"c":null}"#));
        assert_eq!(project("*", "[1]"), Err(ProjectionError::NoObject));
        assert_eq!(project("a", "[1]").as_deref(), Ok(r#"{"a":null}"#));
    }

    #[test]
    fn a_wrong_text_is_refused_with_its_place() {
        let limits = ParserLimits::default();
        for (list, column, message) in [
            ("a > :leest AS v", 6, "there is no parameter :leest"),
            ("a, *", 4, "* stands first"),
            ("*, *", 4, "* stands first"),
            ("* EXCEPT a", 10, "expected '('"),
            ("* EXCEPT (a b)", 13, "expected ',' or ')'"),
            ("a b", 3, "expected AS, ',' or the end of the list"),
            ("SUM(a)", 1, "an expression here is of one record"),
            ("", 1, "expected"),
            ("$tpoic", 1, "there is no $tpoic"),
        ] {
            let wrong = parser::select_list(list, &parameters(), &limits).expect_err(list).remove(0);
            assert!(wrong.message.contains(message), "{list}: {wrong}");
            assert_eq!(wrong.place.column, column, "{list}: {wrong}");
        }
        let suggested = |text: &str| {
            parser::parametric_condition(text, &parameters(), &limits).expect_err(text).remove(0).suggestion
        };
        assert_eq!(suggested("a > :leest").as_deref(), Some(":least"));
        assert_eq!(suggested("$tpoic = 'x'").as_deref(), Some("$topic"));
        assert!(parser::parametric_condition("a + 1", &parameters(), &limits).is_err());
        assert!(parser::parametric_value("a + 1", &parameters(), &limits).is_ok());
        let query = parser::expression("a > :least", &limits).unwrap_err().remove(0);
        assert!(query.message.contains("parameters such as :name are values of jobs"), "{query}");
        assert!(parser::expression("$topic", &limits).is_err());
    }
}
