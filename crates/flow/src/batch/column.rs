//! The values of one member of all rows.

use millstream_columns::{EvalError, Value};

/// Values by row. Numbers are kept as such if all are of one type.
#[derive(Debug, Clone)]
pub(crate) enum Column {
    Integers(Vec<i64>),
    Doubles(Vec<f64>),
    Json(JsonColumn),
}

/// Values as JSON texts, one after the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct JsonColumn {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl JsonColumn {
    fn push(&mut self, value: &Value<'_>) {
        value.write_json(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    fn text(&self, row: usize) -> &[u8] {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[row]]
    }

    fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }
}

impl Column {
    /// A column without values, with room for `rows`.
    pub(crate) fn with_room(rows: usize) -> Self {
        Self::Integers(Vec::with_capacity(rows))
    }

    /// Appends the value of the next row.
    pub(crate) fn push(&mut self, value: &Value<'_>) {
        match (&mut *self, value) {
            (Self::Integers(integers), Value::Integer(value)) => integers.push(*value),
            (Self::Doubles(doubles), Value::Double(value)) => doubles.push(*value),
            (Self::Integers(integers), Value::Double(value)) if integers.is_empty() => {
                let mut doubles = Vec::with_capacity(integers.capacity());
                doubles.push(*value);
                *self = Self::Doubles(doubles);
            }
            (Self::Json(json), value) => json.push(value),
            (_, value) => {
                let mut json = JsonColumn::default();
                (0..self.len()).for_each(|row| {
                    self.write_json(row, &mut json.bytes);
                    json.ends.push(json.bytes.len());
                });
                json.push(value);
                *self = Self::Json(json);
            }
        }
    }

    /// Appends the value of the next row as JSON text.
    pub(crate) fn push_json(&mut self, text: &[u8]) {
        self.push(&Value::Nested(text.into()));
    }

    fn len(&self) -> usize {
        match self {
            Self::Integers(integers) => integers.len(),
            Self::Doubles(doubles) => doubles.len(),
            Self::Json(json) => json.ends.len(),
        }
    }

    /// Forgets the values from the row with this number on.
    pub(crate) fn truncate(&mut self, rows: usize) {
        match self {
            Self::Integers(integers) => integers.truncate(rows),
            Self::Doubles(doubles) => doubles.truncate(rows),
            Self::Json(json) => json.truncate(rows),
        }
    }

    /// The value of a row.
    pub(crate) fn value(&self, row: usize) -> Result<Value<'_>, EvalError> {
        match self {
            Self::Integers(integers) => Ok(Value::Integer(integers[row])),
            Self::Doubles(doubles) => Ok(Value::Double(doubles[row])),
            Self::Json(json) => Ok(Value::read(json.text(row))?),
        }
    }

    /// The JSON text of a value that may have members or elements; `None` for numbers.
    pub(crate) fn text(&self, row: usize) -> Option<&[u8]> {
        match self {
            Self::Json(json) => Some(json.text(row)),
            _ => None,
        }
    }

    /// Appends the value of a row as JSON.
    pub(super) fn write_json(&self, row: usize, out: &mut Vec<u8>) {
        match self {
            Self::Integers(integers) => Value::Integer(integers[row]).write_json(out),
            Self::Doubles(doubles) => Value::Double(doubles[row]).write_json(out),
            Self::Json(json) => out.extend_from_slice(json.text(row)),
        }
    }

    /// The values of these rows, in this order.
    pub(super) fn gather(&self, rows: &[u32]) -> Self {
        match self {
            Self::Integers(integers) => Self::Integers(rows.iter().map(|row| integers[*row as usize]).collect()),
            Self::Doubles(doubles) => Self::Doubles(rows.iter().map(|row| doubles[*row as usize]).collect()),
            Self::Json(json) => {
                let mut gathered = JsonColumn::default();
                for row in rows {
                    gathered.bytes.extend_from_slice(json.text(*row as usize));
                    gathered.ends.push(gathered.bytes.len());
                }
                Self::Json(gathered)
            }
        }
    }
}
