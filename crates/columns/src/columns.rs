//! Several expressions over the same records: one pass over a payload finds their fields.

use millstream_types::{PartitionId, RecordView};

use crate::compiler::Compiler;
use crate::eval::Row;
use crate::operand::Operand;
use crate::record::{InputRecord, Metadata};
use crate::scan::{MalformedJson, PathTree};
use crate::value::{EvalError, Value};
use crate::{Expr, Field};

/// Expressions that are evaluated together; each has an index.
#[derive(Debug, Default)]
pub struct Columns {
    operands: Vec<Operand>,
    fields: Vec<Field>,
    tree: PathTree,
}

/// The fields of one record, for the evaluation of the expressions.
#[derive(Debug)]
pub struct ColumnsOf<'c, 'a> {
    columns: &'c Columns,
    found: Vec<Option<&'a [u8]>>,
    visited: Vec<bool>,
    metadata: Metadata<'a>,
    now_ms: i64,
}

/// The memory of [`ColumnsOf`], which records use one after the other.
#[derive(Debug, Default)]
pub struct ColumnsScratch {
    found: Vec<Option<&'static [u8]>>,
    visited: Vec<bool>,
}

impl Columns {
    /// Compiles the expressions, which keep their order.
    pub fn new<'e>(exprs: impl IntoIterator<Item = &'e Expr>) -> Self {
        let mut compiler = Compiler::default();
        let operands = exprs.into_iter().map(|expr| compiler.operand(expr)).collect();
        let fields = compiler.into_fields();
        let mut tree = PathTree::default();
        for (slot, field) in fields.iter().enumerate() {
            if let Field::Payload(steps) = field {
                tree.add(steps, slot);
            }
        }
        Self { operands, fields, tree }
    }

    /// Finds the fields of a stored record. The caller has checked that the whole payload is JSON. `$partition`
    /// is NULL without a partition, and so is `$topic`.
    ///
    /// # Errors
    /// [`MalformedJson`] if the payload is no JSON.
    pub fn of<'c, 'a>(
        &'c self,
        record: &RecordView<'a>,
        partition: Option<PartitionId>,
        now_ms: i64,
    ) -> Result<ColumnsOf<'c, 'a>, MalformedJson> {
        self.of_input(InputRecord::stored(record, None, partition), now_ms, ColumnsScratch::default())
    }

    /// As [`Self::of`], for any record. `scratch` comes from [`ColumnsOf::into_scratch`] of the record before.
    ///
    /// # Errors
    /// [`MalformedJson`] if the payload is no JSON.
    pub fn of_input<'c, 'a>(
        &'c self,
        record: InputRecord<'a>,
        now_ms: i64,
        scratch: ColumnsScratch,
    ) -> Result<ColumnsOf<'c, 'a>, MalformedJson> {
        let ColumnsScratch { found, mut visited } = scratch;
        let mut found: Vec<Option<&'a [u8]>> = found;
        found.clear();
        found.resize(self.fields.len(), None);
        if let Some(payload) = record.payload.filter(|_| !self.tree.is_empty()) {
            self.tree.find(payload, &mut visited, &mut found)?;
        }
        Ok(ColumnsOf { columns: self, found, visited, metadata: record.metadata, now_ms })
    }
}

impl<'c, 'a> ColumnsOf<'c, 'a> {
    /// The value of the expression with the index `place`; NULL if there is none.
    ///
    /// # Errors
    /// [`EvalError`] if the expression has no value for this record.
    pub fn value(&self, place: usize) -> Result<Value<'_>, EvalError> {
        self.columns.operands.get(place).map_or(Ok(Value::Null), |operand| operand.value(&mut &*self))
    }

    /// The truth of the expression with the index `place`, which is a condition; `None` is NULL.
    ///
    /// # Errors
    /// [`EvalError`] if the condition has no value for this record.
    pub fn truth(&self, place: usize) -> Result<Option<bool>, EvalError> {
        Ok(match self.value(place)? {
            Value::Boolean(truth) => Some(truth),
            _ => None,
        })
    }

    /// Appends the value of the expression with the index `place` to
    /// `out`, as JSON. A plain field keeps the bytes of the payload.
    ///
    /// # Errors
    /// [`EvalError`] if the expression has no value for this record.
    pub fn write_json(&self, place: usize, out: &mut Vec<u8>) -> Result<(), EvalError> {
        if let Some(Operand::Field(field)) = self.columns.operands.get(place)
            && let Field::Payload(_) = self.columns.fields[*field]
        {
            out.extend_from_slice(self.found[*field].unwrap_or(b"null"));
            return Ok(());
        }
        self.value(place)?.write_json(out);
        Ok(())
    }

    /// The memory, for the next record.
    pub fn into_scratch(mut self) -> ColumnsScratch {
        self.found.clear();
        // Without elements it is the same memory, whatever the lifetime of its elements.
        let found = self.found.into_iter().map(|_| None).collect();
        ColumnsScratch { found, visited: self.visited }
    }
}

impl<'a> Row<'a> for &ColumnsOf<'_, 'a> {
    fn field(&mut self, field: usize) -> Result<Value<'a>, EvalError> {
        Ok(match &self.columns.fields[field] {
            Field::Payload(_) => self.found[field].map_or(Ok(Value::Null), Value::read)?,
            metadata => metadata.of_metadata(&self.metadata)?,
        })
    }

    fn now_ms(&self) -> i64 {
        self.now_ms
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Record};

    use super::*;
    use crate::{ParserLimits, parser};

    #[test]
    fn expressions_have_their_values_of_one_record() {
        let exprs = [
            "(temp - 32) / 1.8",
            "a.b[1]",
            "$key",
            "missing",
            "NOW - $timestamp",
            "1 / zero",
            "IF(temp > 40, 'warm', 'cold')",
        ];
        let exprs = exprs.map(|text| parser::expression(text, &ParserLimits::default()).unwrap());
        let columns = Columns::new(&exprs);
        let payload = br#"{"temp": 50.0, "a": {"b": [1, "x"]}, "zero": 0}"#;
        let mut builder = BatchBuilder::default();
        builder.push(&Record { timestamp_ms: 7, key: Some(b"d"), value: Some(payload), headers: &[] });
        let batch = builder.seal(Offset(0), Epoch(0), Compression::None);
        let record = batch.records().next().unwrap().unwrap();
        let of = columns.of(&record, None, 10).unwrap();
        let values: Vec<_> = (0..exprs.len()).map(|place| of.value(place)).collect();
        let text = |text: &'static str| Ok(Value::Text(text.into()));
        let expected = [
            Ok(Value::Double(10.0)),
            text("x"),
            text("d"),
            Ok(Value::Null),
            Ok(Value::Integer(3)),
            Err(EvalError::DivisionByZero),
            text("warm"),
        ];
        assert_eq!(values, expected);
        assert_eq!(of.value(99), Ok(Value::Null));
    }

    #[test]
    fn an_invalid_expression_is_refused_with_its_place() {
        let refused = |text: &str| parser::expression(text, &ParserLimits::default()).unwrap_err()[0].clone();
        assert_eq!(refused("temp -").place.column, 7);
        assert_eq!(refused("temp + 'x'").place.column, 8);
        assert_eq!(refused("temp 5").place.column, 6);
        assert!(refused("SUM(temp)").message.contains("one record"));
    }
}
