//! Functions that look back at the earlier records of a key, and what they keep of them.
//!
//! A record is told to the [`HistoryState`] of each call once, in the order in which a node sees the records of the key.
//!
//! # The stored form
//! | bytes | |
//! | --- | --- |
//! | 1 | 0 LAG, 1 CHANGED, 2 SINCE_CHANGE, 3 a running figure |
//! | LAG: 1, 1, … | records that it goes back, number of values, and these, the oldest first |
//! | CHANGED: 1, … | 1 if there was a record, and its value |
//! | SINCE_CHANGE: 1, 8, … | 1 if there was a record, the time of the first one with its value, and the value |
//! | a figure: 4, … | its length, and its stored form |
//!
//! A value is a byte (0 NULL, 1 FALSE, 2 TRUE, 3 integer, 4 double, 5 text, 6 JSON), then the number, or the length and bytes
//! of a text. Integers are big endian. The record around it has the version.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt;

use datasketches::codec::{SketchBytes, SketchSlice};

use crate::aggregation::{Figure, FigureKind};
use crate::expr::HistoryCall;
use crate::field::{Field, PathStep};
use crate::function::HistoryFunction;
use crate::value::Value;
use crate::value_type::Type;

impl HistoryCall {
    /// The type of the result, as far as it is known.
    pub fn kind(&self) -> Type {
        match self.function {
            HistoryFunction::Lag if self.value.kind() == Type::Null => Type::Any,
            HistoryFunction::Lag => self.value.kind(),
            HistoryFunction::Changed => Type::Boolean,
            HistoryFunction::SinceChange | HistoryFunction::RunningCount => Type::Integer,
            HistoryFunction::RunningSum => Type::Number,
            HistoryFunction::RunningAverage => Type::Double,
            HistoryFunction::RunningMin | HistoryFunction::RunningMax if self.value.kind().is_number() => Type::Number,
            HistoryFunction::RunningMin | HistoryFunction::RunningMax => Type::Any,
        }
    }

    /// The name of the member that has the result while the select list is computed.
    pub fn member(&self) -> String {
        format!("${self}")
    }

    /// The field as which expressions read the result.
    pub(crate) fn field(&self) -> Field {
        Field::Payload(vec![PathStep::Key(self.member())])
    }
}

impl fmt::Display for HistoryCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, value, back } = self;
        match back {
            1 => write!(f, "{}({value})", function.as_str()),
            back => write!(f, "{}({value}, {back})", function.as_str()),
        }
    }
}

/// The part of the records of one key that a call needs.
#[derive(Debug, Clone)]
pub struct HistoryState(Kept);

#[derive(Debug, Clone)]
enum Kept {
    /// The values of the last records, the oldest first; at most `back`.
    Lag {
        back: u8,
        values: VecDeque<KeptValue>,
    },
    /// The value of the last record.
    Changed(Option<KeptValue>),
    /// The value of the last record, and the time from which on it has been that.
    SinceChange(Option<(i64, KeptValue)>),
    Running(Figure),
}

impl HistoryState {
    /// The state of a call before the first record.
    pub fn new(call: &HistoryCall) -> Self {
        let running = |kind| Kept::Running(Figure::new(kind, 0, 0));
        Self(match call.function {
            HistoryFunction::Lag => Kept::Lag { back: call.back, values: VecDeque::new() },
            HistoryFunction::Changed => Kept::Changed(None),
            HistoryFunction::SinceChange => Kept::SinceChange(None),
            HistoryFunction::RunningCount => running(FigureKind::CountOf),
            HistoryFunction::RunningSum => running(FigureKind::Sum),
            HistoryFunction::RunningAverage => running(FigureKind::Average),
            HistoryFunction::RunningMin => running(FigureKind::Min),
            HistoryFunction::RunningMax => running(FigureKind::Max),
        })
    }

    /// Takes the next record into account: its value and its time. `give` gets the result for it.
    pub fn see(&mut self, value: &Value<'_>, time_ms: i64, give: impl FnOnce(&Value<'_>)) {
        match &mut self.0 {
            Kept::Lag { back, values } => {
                let found = if values.len() < usize::from(*back) { None } else { values.pop_front() };
                give(&found.as_ref().map_or(Value::Null, KeptValue::value));
                values.push_back(KeptValue::of(value));
            }
            Kept::Changed(last) => {
                let has_changed = last.as_ref().is_none_or(|last| !last.is_same(value));
                if has_changed {
                    *last = Some(KeptValue::of(value));
                }
                give(&Value::Boolean(has_changed));
            }
            Kept::SinceChange(last) => {
                let since_ms = match last {
                    Some((since_ms, last)) if last.is_same(value) => *since_ms,
                    _ => {
                        *last = Some((time_ms, KeptValue::of(value)));
                        time_ms
                    }
                };
                // A late record may be older than the change.
                give(&Value::Integer(time_ms.saturating_sub(since_ms).max(0)));
            }
            Kept::Running(figure) => {
                let added = figure.add(std::slice::from_ref(value));
                debug_assert!(added.is_ok(), "only distinct values refuse nested ones");
                give(&figure.value());
            }
        }
    }

    /// `true` for the state of such a call.
    pub fn is_of(&self, call: &HistoryCall) -> bool {
        let Self(new) = Self::new(call);
        match (&self.0, &new) {
            (Kept::Lag { back, .. }, Kept::Lag { back: other, .. }) => back == other,
            (Kept::Running(figure), Kept::Running(other)) => {
                std::mem::discriminant(figure) == std::mem::discriminant(other)
            }
            (kept, new) => std::mem::discriminant(kept) == std::mem::discriminant(new),
        }
    }

    /// The memory that it takes.
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.0 {
                Kept::Lag { values, .. } => values
                    .iter()
                    .map(KeptValue::heap_bytes)
                    .sum::<usize>()
                    .saturating_add(values.capacity() * size_of::<KeptValue>()),
                Kept::Changed(last) => last.as_ref().map_or(0, KeptValue::heap_bytes),
                Kept::SinceChange(last) => last.as_ref().map_or(0, |(_, last)| last.heap_bytes()),
                Kept::Running(figure) => figure.size_bytes().saturating_sub(size_of::<Figure>()),
            }
    }

    /// Appends what is known as JSON, for people: the last values of LAG, the oldest first; the last value of CHANGED and
    /// SINCE_CHANGE; a running figure. The state itself is not changed.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Kept::Lag { values, .. } => {
                out.push(b'[');
                for (number, value) in values.iter().enumerate() {
                    out.extend_from_slice(if number > 0 { b"," } else { b"" });
                    value.value().write_json(out);
                }
                out.push(b']');
            }
            Kept::Changed(last) => last.as_ref().map_or(Value::Null, KeptValue::value).write_json(out),
            Kept::SinceChange(last) => {
                last.as_ref().map_or(Value::Null, |(_, last)| last.value()).write_json(out);
            }
            Kept::Running(figure) => figure.value().write_json(out),
        }
    }

    /// The time from which on the last value has been what it is; `None` for other calls than SINCE_CHANGE, and before the first record.
    pub fn since_ms(&self) -> Option<i64> {
        match &self.0 {
            Kept::SinceChange(last) => last.as_ref().map(|(since_ms, _)| *since_ms),
            _ => None,
        }
    }

    /// Appends the stored form.
    pub fn write(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Kept::Lag { back, values } => {
                out.extend_from_slice(&[LAG, *back, values.len() as u8]);
                values.iter().for_each(|value| value.write(out));
            }
            Kept::Changed(last) => {
                out.extend_from_slice(&[CHANGED, u8::from(last.is_some())]);
                last.iter().for_each(|last| last.write(out));
            }
            Kept::SinceChange(last) => {
                out.extend_from_slice(&[SINCE_CHANGE, u8::from(last.is_some())]);
                if let Some((since_ms, last)) = last {
                    out.extend_from_slice(&since_ms.to_be_bytes());
                    last.write(out);
                }
            }
            Kept::Running(figure) => {
                let mut stored = SketchBytes::with_capacity(64);
                figure.write(&mut stored);
                out.push(RUNNING);
                write_bytes(&stored.into_bytes(), out);
            }
        }
    }

    /// Reads a stored form, and leaves in `stored` what stands behind it; `None` if it is none.
    pub fn read(stored: &mut &[u8]) -> Option<Self> {
        Some(Self(match read_byte(stored)? {
            LAG => {
                let (back, count) = (read_byte(stored)?, read_byte(stored)?);
                let values = (0..count).map(|_| KeptValue::read(stored)).collect::<Option<_>>()?;
                (count <= back && back > 0).then_some(Kept::Lag { back, values })?
            }
            CHANGED => match read_byte(stored)? {
                0 => Kept::Changed(None),
                1 => Kept::Changed(Some(KeptValue::read(stored)?)),
                _ => return None,
            },
            SINCE_CHANGE => match read_byte(stored)? {
                0 => Kept::SinceChange(None),
                1 => Kept::SinceChange(Some((i64::from_be_bytes(read_array(stored)?), KeptValue::read(stored)?))),
                _ => return None,
            },
            RUNNING => Kept::Running(Figure::read(&mut SketchSlice::new(read_bytes(stored)?)).ok()?),
            _ => return None,
        }))
    }
}

const LAG: u8 = 0;
const CHANGED: u8 = 1;
const SINCE_CHANGE: u8 = 2;
const RUNNING: u8 = 3;

/// The value of a record that is gone.
#[derive(Debug, Clone, PartialEq)]
enum KeptValue {
    Null,
    Boolean(bool),
    Integer(i64),
    Double(f64),
    Text(Box<str>),
    /// An object, a list, or a whole number beyond 64 bits.
    Json(Box<[u8]>),
}

impl KeptValue {
    fn of(value: &Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Boolean(value) => Self::Boolean(*value),
            Value::Integer(value) => Self::Integer(*value),
            Value::Double(value) => Self::Double(*value),
            Value::Text(text) => Self::Text(text.as_ref().into()),
            Value::Nested(raw) => Self::Json(raw.as_ref().into()),
            Value::List(_) => Self::Json(json(value).into()),
        }
    }

    fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Boolean(value) => Value::Boolean(*value),
            Self::Integer(value) => Value::Integer(*value),
            Self::Double(value) => Value::Double(*value),
            Self::Text(text) => Value::Text((&**text).into()),
            Self::Json(json) => Value::Nested((&**json).into()),
        }
    }

    /// `true` if the value is not distinct from another. Objects and lists are compared by their members.
    fn is_same(&self, value: &Value<'_>) -> bool {
        match (self, value) {
            (Self::Null, Value::Null) => true,
            (Self::Json(kept), Value::Nested(raw)) => is_same_json(kept, raw),
            (Self::Json(kept), Value::List(_)) => is_same_json(kept, &json(value)),
            (kept, value) => kept.value().compare(value) == Some(Ordering::Equal),
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Json(json) => json.len(),
            Self::Null | Self::Boolean(_) | Self::Integer(_) | Self::Double(_) => 0,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.push(0),
            Self::Boolean(value) => out.push(1 + u8::from(*value)),
            Self::Integer(value) => {
                out.push(3);
                out.extend_from_slice(&value.to_be_bytes());
            }
            Self::Double(value) => {
                out.push(4);
                out.extend_from_slice(&value.to_be_bytes());
            }
            Self::Text(text) => {
                out.push(5);
                write_bytes(text.as_bytes(), out);
            }
            Self::Json(json) => {
                out.push(6);
                write_bytes(json, out);
            }
        }
    }

    fn read(stored: &mut &[u8]) -> Option<Self> {
        Some(match read_byte(stored)? {
            0 => Self::Null,
            1 => Self::Boolean(false),
            2 => Self::Boolean(true),
            3 => Self::Integer(i64::from_be_bytes(read_array(stored)?)),
            4 => Self::Double(f64::from_be_bytes(read_array(stored)?)),
            5 => Self::Text(std::str::from_utf8(read_bytes(stored)?).ok()?.into()),
            6 => Self::Json(read_bytes(stored)?.into()),
            _ => return None,
        })
    }
}

fn json(value: &Value<'_>) -> Vec<u8> {
    let mut json = Vec::new();
    value.write_json(&mut json);
    json
}

fn is_same_json(one: &[u8], other: &[u8]) -> bool {
    let parsed = |json| serde_json::from_slice::<serde_json::Value>(json).ok();
    one == other || parsed(one).is_some_and(|one| parsed(other) == Some(one))
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn read_byte(stored: &mut &[u8]) -> Option<u8> {
    read_array(stored).map(|[byte]| byte)
}

fn read_array<const N: usize>(stored: &mut &[u8]) -> Option<[u8; N]> {
    let (read, rest) = stored.split_first_chunk()?;
    *stored = rest;
    Some(*read)
}

fn read_bytes<'s>(stored: &mut &'s [u8]) -> Option<&'s [u8]> {
    let length = u32::from_be_bytes(read_array(stored)?);
    let (read, rest) = stored.split_at_checked(length as usize)?;
    *stored = rest;
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parameters, ParserLimits, parser};

    fn call(text: &str) -> HistoryCall {
        let list = parser::keyed_select_list(text, &Parameters::default(), &ParserLimits::default());
        let list = list.unwrap_or_else(|wrong| panic!("{text}: {}", wrong[0])).parsed;
        let calls = list.history_calls();
        assert_eq!((calls.len(), calls[0].to_string().as_str()), (1, text));
        calls[0].clone()
    }

    /// The results of a call over values, one second apart, as JSON; stored and read again before each one if `is_stored`.
    fn results_of(call: &HistoryCall, values: &[Value<'_>], is_stored: bool) -> String {
        let (mut state, mut results) = (HistoryState::new(call), Vec::new());
        for (second, value) in (0..).zip(values) {
            if is_stored {
                let mut stored = Vec::new();
                state.write(&mut stored);
                stored.push(7);
                let mut rest = &stored[..];
                state = HistoryState::read(&mut rest).unwrap();
                assert_eq!(rest, [7]);
                assert!(state.is_of(call));
            }
            let mut result = Vec::new();
            state.see(value, second * 1_000, |given| given.write_json(&mut result));
            results.push(String::from_utf8(result).unwrap());
        }
        results.join(" ")
    }

    fn check(text: &str, values: &[Value<'_>], expected: &str) {
        let call = call(text);
        assert_eq!(results_of(&call, values, false), expected, "{text}");
        assert_eq!(results_of(&call, values, true), expected, "{text}, stored");
    }

    #[test]
    fn each_function_gives_what_its_table_says_over_a_sequence() {
        let text = |text: &'static str| Value::Text(text.into());
        let numbers = [Value::Integer(5), Value::Null, Value::Integer(5), Value::Double(5.0), Value::Double(-1.5)];
        check("LAG(v)", &numbers, "null 5 null 5 5.0");
        check("LAG(v, 3)", &numbers, "null null null 5 null");
        check("LAG(v, 100)", &numbers, "null null null null null");
        check("CHANGED(v)", &numbers, "true true true false true");
        check("SINCE_CHANGE(v)", &numbers, "0 0 0 1000 0");
        check("RUNNING_COUNT(v)", &numbers, "1 1 2 3 4");
        check("RUNNING_SUM(v)", &numbers, "5 5 10 15.0 13.5");
        check("RUNNING_AVG(v)", &numbers, "5.0 5.0 5.0 5.0 3.375");
        check("RUNNING_MIN(v)", &numbers, "5 5 5 5 -1.5");
        check("RUNNING_MAX(v)", &numbers, "5 5 5 5 5");
        let nulls = [Value::Null, Value::Null, text("b"), Value::Boolean(true)];
        check("LAG(v)", &nulls, "null null null \"b\"");
        check("CHANGED(v)", &nulls, "true false true true");
        check("SINCE_CHANGE(v)", &nulls, "0 1000 0 0");
        check("RUNNING_COUNT(v)", &nulls, "0 0 1 2");
        check("RUNNING_SUM(v)", &nulls, "null null null null");
        check("RUNNING_MAX(v)", &nulls, "null null \"b\" \"b\"");
        let nested = [
            Value::Nested(br#"{"a":1,"b":[2]}"#.into()),
            Value::Nested(br#"{ "b": [2], "a": 1 }"#.into()),
            Value::Nested(b"[1]".into()),
            Value::List(vec![Value::Integer(1)]),
            Value::Nested(b"18446744073709551615".into()),
            Value::Nested(b"18446744073709551614".into()),
        ];
        check("LAG(v)", &nested, r#"null {"a":1,"b":[2]} { "b": [2], "a": 1 } [1] [1] 18446744073709551615"#);
        check("CHANGED(v)", &nested, "true false true false true true");
    }

    #[test]
    fn a_late_record_is_no_time_after_a_change() {
        let mut state = HistoryState::new(&call("SINCE_CHANGE(v)"));
        let mut results = Vec::new();
        for time_ms in [10, 5, 30, i64::MIN, i64::MAX] {
            state.see(&Value::Integer(1), time_ms, |given| results.push(given.clone().into_owned()));
        }
        assert_eq!(results, [0, 0, 20, 0, i64::MAX - 10].map(Value::Integer));
    }

    #[test]
    fn states_are_stored_byte_for_byte_and_broken_ones_are_refused() {
        let stored = |text: &str, values: &[Value<'_>]| {
            let (mut state, mut stored) = (HistoryState::new(&call(text)), Vec::new());
            values.iter().for_each(|value| state.see(value, 0x0102, |_| {}));
            state.write(&mut stored);
            stored
        };
        let values = [
            Value::Null,
            Value::Boolean(true),
            Value::Integer(-2),
            Value::Text("é".into()),
            Value::Nested(b"{}".into()),
        ];
        let cases: [(Vec<u8>, &[u8]); 4] = [
            (
                stored("LAG(v, 5)", &values),
                b"\x00\x05\x05\x00\x02\x03\xff\xff\xff\xff\xff\xff\xff\xfe\x05\0\0\0\x02\xc3\xa9\x06\0\0\0\x02{}",
            ),
            (stored("CHANGED(v)", &[Value::Double(1.5)]), b"\x01\x01\x04\x3f\xf8\0\0\0\0\0\0"),
            (stored("SINCE_CHANGE(v)", &[Value::Boolean(false)]), b"\x02\x01\0\0\0\0\0\0\x01\x02\x01"),
            (stored("RUNNING_COUNT(v)", &values[1..]), b"\x03\0\0\0\x09\x00\x04\0\0\0\0\0\0\0"),
        ];
        for (stored, expected) in cases {
            assert_eq!(stored, expected);
            for end in 0..stored.len() {
                assert!(HistoryState::read(&mut &stored[..end]).is_none(), "{stored:?} up to {end}");
            }
        }
        for broken in [&b"\x04"[..], b"\x00\x00\x00", b"\x00\x01\x02\x00\x00", b"\x01\x02", b"\x01\x01\x07"] {
            assert!(HistoryState::read(&mut &broken[..]).is_none(), "{broken:?}");
        }
    }

    #[test]
    fn a_state_is_that_of_calls_with_the_same_function_only() {
        let texts = ["LAG(v)", "LAG(v, 2)", "CHANGED(v)", "SINCE_CHANGE(v)", "RUNNING_COUNT(v)", "RUNNING_SUM(v)"];
        let more = ["RUNNING_AVG(v)", "RUNNING_MIN(v)", "RUNNING_MAX(v)"];
        let calls: Vec<HistoryCall> = texts.into_iter().chain(more).map(call).collect();
        for (number, one) in calls.iter().enumerate() {
            for (other, call) in calls.iter().enumerate() {
                assert_eq!(HistoryState::new(one).is_of(call), number == other, "{one} {call}");
            }
        }
    }

    #[test]
    fn the_table_has_the_functions_and_their_calls_have_types() {
        let rows = crate::functions().iter().filter(|row| row.group == crate::FunctionGroup::History);
        let names: Vec<_> = rows.map(|row| row.names).collect();
        assert_eq!(names, HistoryFunction::NAMES.map(|(name, _)| [name]));
        let kinds = [
            ("LAG(v)", Type::Any),
            ("LAG(NULL)", Type::Any),
            ("LAG(v + 1)", Type::Number),
            ("CHANGED(v)", Type::Boolean),
            ("SINCE_CHANGE(v)", Type::Integer),
            ("RUNNING_COUNT(v)", Type::Integer),
            ("RUNNING_SUM(v)", Type::Number),
            ("RUNNING_AVG(v)", Type::Double),
            ("RUNNING_MIN(v)", Type::Any),
            ("RUNNING_MAX(v * 2)", Type::Number),
        ];
        for (text, kind) in kinds {
            assert_eq!(call(text).kind(), kind, "{text}");
        }
    }

    #[test]
    fn calls_stand_where_there_are_keys_and_not_in_each_other() {
        let words = |name: &str| {
            format!("{name} looks back at the records of a key; it stands in the select list of a map with key_by")
        };
        let (none, limits) = (Parameters::default(), ParserLimits::default());
        let refusal = |text: &str| {
            let refused = parser::keyed_select_list(text, &none, &limits);
            refused.expect_err(text).remove(0).message
        };
        assert_eq!(refusal("LAG(LAG(v))"), words("LAG"));
        assert_eq!(refusal("RUNNING_SUM(v + LAG(v))"), words("LAG"));
        assert_eq!(refusal("LAG(v, 0)"), "LAG goes back a number of records from 1 to 100, as in LAG(a, 2)");
        assert_eq!(refusal("LAG(v, 101)"), refusal("LAG(v, 0)"));
        assert_eq!(refusal("LAG(v, n)"), refusal("LAG(v, 0)"));
        assert_eq!(refusal("LAG(v, -1)"), refusal("LAG(v, 0)"));
        assert_eq!(refusal("LAG(v, 1.5)"), refusal("LAG(v, 0)"));
        assert_eq!(refusal("CHANGED(v, 2)"), "expected ')', found ','");
        assert_eq!(refusal("RUNNING_SUM('a')"), "RUNNING_SUM is of numbers; this is a text");
        assert_eq!(parser::select_list("changed(v)", &none, &limits).unwrap_err()[0].message, words("CHANGED"));
        assert_eq!(parser::expression("1 + LAG(v)", &limits).unwrap_err()[0].message, words("LAG"));
        assert_eq!(parser::parametric_condition("LAG(v) > 1", &none, &limits).unwrap_err()[0].message, words("LAG"));
        let list =
            parser::keyed_select_list("lag(v, 1) + LAG(v), LAG(v, 2)[0] AS b, v", &none, &limits).unwrap().parsed;
        let calls: Vec<String> = list.history_calls().into_iter().map(ToString::to_string).collect();
        assert_eq!(calls, ["LAG(v)", "LAG(v, 2)"]);
        assert_eq!(list.items[0].name(), "LAG(v) + LAG(v)");
    }
}
