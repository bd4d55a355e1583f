//! CSV as in RFC 4180: fields divided by commas; a field in quotes may hold commas, line ends and doubled quotes.

use crate::object;

/// The progress of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CsvState {
    Whole,
    /// A field in quotes goes on in the next line.
    Open,
    Fault(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    FieldStart,
    Plain,
    Quoted,
    /// After a quote inside of quotes: the end of the field, or the first of two.
    QuoteInQuoted,
}

/// One record, which takes its lines one after the other.
#[derive(Debug)]
pub(super) struct CsvRecord {
    text: Vec<u8>,
    /// The end of each field in `text`.
    ends: Vec<usize>,
    state: State,
}

impl CsvRecord {
    pub(super) fn new() -> Self {
        Self { text: Vec::new(), ends: Vec::new(), state: State::FieldStart }
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.state = State::FieldStart;
    }

    /// Takes a line without its end.
    pub(super) fn take(&mut self, line: &[u8]) -> CsvState {
        if self.state == State::Quoted {
            self.text.push(b'\n');
        }
        for byte in line {
            self.state = match (self.state, byte) {
                (State::FieldStart, b'"') => State::Quoted,
                (State::Quoted, b'"') => State::QuoteInQuoted,
                (State::QuoteInQuoted, b'"') => {
                    self.text.push(b'"');
                    State::Quoted
                }
                (State::FieldStart | State::Plain | State::QuoteInQuoted, b',') => {
                    self.ends.push(self.text.len());
                    State::FieldStart
                }
                (State::QuoteInQuoted, _) => {
                    return CsvState::Fault("after the closing quote of a field comes more text");
                }
                (State::Plain, b'"') => {
                    return CsvState::Fault(
                        "a quote stands inside of a field without quotes; put the field into quotes",
                    );
                }
                (State::Quoted, byte) => {
                    self.text.push(*byte);
                    State::Quoted
                }
                (State::FieldStart | State::Plain, byte) => {
                    self.text.push(*byte);
                    State::Plain
                }
            };
        }
        if self.state == State::Quoted {
            return CsvState::Open;
        }
        self.ends.push(self.text.len());
        if std::str::from_utf8(&self.text).is_err() {
            return CsvState::Fault("the text is not UTF-8");
        }
        CsvState::Whole
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The fields of a whole record.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let parts = starts.zip(&self.ends).map(|(start, end)| &self.text[start..*end]);
        parts.map(|part| std::str::from_utf8(part).unwrap_or_default())
    }
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Text,
    Number,
    Boolean,
    Json,
    /// A number or a boolean if it reads as one; else a text.
    Inferred,
}

pub(super) const TYPES: [(&str, ColumnType); 4] = [
    ("text", ColumnType::Text),
    ("number", ColumnType::Number),
    ("boolean", ColumnType::Boolean),
    ("json", ColumnType::Json),
];

impl ColumnType {
    /// Appends a field as JSON; an empty one is null, unless it is a text. `false` if it is not of the type.
    pub(super) fn write(self, field: &str, out: &mut Vec<u8>) -> bool {
        let is_number = || {
            let first = field.bytes().next();
            first.is_some_and(|first| first == b'-' || first.is_ascii_digit())
                && !field.contains(char::is_whitespace)
                && serde_json::from_str::<serde_json::Number>(field).is_ok()
        };
        let is_boolean = || matches!(field, "true" | "false");
        let is_plain = match self {
            Self::Text => false,
            _ if field.is_empty() => {
                out.extend_from_slice(b"null");
                return true;
            }
            Self::Number => is_number(),
            Self::Boolean => is_boolean(),
            Self::Json => serde_json::from_str::<serde::de::IgnoredAny>(field).is_ok(),
            Self::Inferred => is_number() || is_boolean(),
        };
        match self {
            _ if is_plain => out.extend_from_slice(field.as_bytes()),
            Self::Text | Self::Inferred => object::write_text(out, field),
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[&str]) -> (CsvState, Vec<String>) {
        let mut record = CsvRecord::new();
        let mut parsed = CsvState::Open;
        for line in lines {
            parsed = record.take(line.as_bytes());
        }
        (parsed, record.fields().map(str::to_owned).collect())
    }

    #[test]
    fn fields_are_plain_or_in_quotes() {
        for (lines, expected) in [
            (&["a,b,c"][..], &["a", "b", "c"][..]),
            (&[",,"], &["", "", ""]),
            (&[r#""a,b","say ""hi""",c"#], &["a,b", "say \"hi\"", "c"]),
            (&[r#"x,"two"#, "", r#"lines",y"#], &["x", "two\n\nlines", "y"]),
            (&[r#""""#], &[""]),
        ] {
            assert_eq!(parse(lines), (CsvState::Whole, expected.iter().map(|text| (*text).to_owned()).collect()));
        }
        assert_eq!(parse(&[r#"a,"open"#]).0, CsvState::Open);
        for faulty in [r#""a"b,c"#, r#"a"b,c"#] {
            assert!(matches!(parse(&[faulty]).0, CsvState::Fault(_)), "{faulty}");
        }
    }

    #[test]
    fn a_field_becomes_json_of_its_columns_type() {
        use ColumnType::{Boolean, Inferred, Json, Number, Text};
        for (kind, field, expected) in [
            (Text, "7", Some("\"7\"")),
            (Text, "", Some("\"\"")),
            (Number, "-7.5e3", Some("-7.5e3")),
            (Number, "", Some("null")),
            (Number, "007", None),
            (Number, "NaN", None),
            (Number, " 7", None),
            (Boolean, "true", Some("true")),
            (Boolean, "yes", None),
            (Json, "[1, 2]", Some("[1, 2]")),
            (Json, "[1", None),
            (Inferred, "12", Some("12")),
            (Inferred, "007", Some("\"007\"")),
            (Inferred, "false", Some("false")),
            (Inferred, "say \"x\"", Some("\"say \\\"x\\\"\"")),
            (Inferred, "", Some("null")),
        ] {
            let mut out = Vec::new();
            let is_right = kind.write(field, &mut out);
            assert_eq!(is_right.then(|| String::from_utf8(out).unwrap()).as_deref(), expected, "{kind:?} {field}");
        }
    }
}
