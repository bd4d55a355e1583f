//! Several expressions over the same records: their fields are found in one pass over a payload.

use millstream_types::{PartitionId, RecordView};

use crate::compiled::{Compiler, Operand};
use crate::eval::Row;
use crate::scan::{Damaged, PathTree};
use crate::value::{Failure, Value};
use crate::{Expr, Field};

/// Expressions that are worked out together, each known by its place.
#[derive(Debug, Default)]
pub struct Columns {
    operands: Vec<Operand>,
    fields: Vec<Field>,
    tree: PathTree,
}

/// One record, as the expressions see it.
#[derive(Debug)]
pub struct ColumnsOf<'c, 'a> {
    columns: &'c Columns,
    found: Vec<Option<&'a [u8]>>,
    record: &'c RecordView<'a>,
    partition: Option<PartitionId>,
    now_ms: i64,
}

impl Columns {
    /// These expressions, in their order.
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

    /// Finds the fields of a record. Who calls has made sure that its payload is JSON as a whole. `$partition` is NULL
    /// without a partition.
    ///
    /// # Errors
    /// The payload is no JSON.
    pub fn of<'c, 'a>(
        &'c self,
        record: &'c RecordView<'a>,
        partition: Option<PartitionId>,
        now_ms: i64,
    ) -> Result<ColumnsOf<'c, 'a>, Damaged> {
        let mut found = vec![None; self.fields.len()];
        if let Some(payload) = record.value.filter(|_| !self.tree.is_empty()) {
            self.tree.find(payload, &mut Vec::new(), &mut found)?;
        }
        Ok(ColumnsOf { columns: self, found, record, partition, now_ms })
    }
}

impl<'c, 'a> ColumnsOf<'c, 'a> {
    /// The value of the expression at this place; NULL if there is none.
    ///
    /// # Errors
    /// Why it has no value.
    pub fn value(&self, place: usize) -> Result<Value<'_>, Failure> {
        self.columns.operands.get(place).map_or(Ok(Value::Null), |operand| operand.value(&mut &*self))
    }
}

impl<'a> Row<'a> for &ColumnsOf<'_, 'a> {
    fn field(&mut self, field: usize) -> Result<Value<'a>, Failure> {
        Ok(match &self.columns.fields[field] {
            Field::Payload(_) => self.found[field].map_or(Ok(Value::Null), Value::read)?,
            metadata => metadata.of_record(self.record, self.partition)?,
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
    use crate::{Limits, parser};

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
        let exprs = exprs.map(|text| parser::expression(text, &Limits::default()).unwrap());
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
            Err(Failure::DivisionByZero),
            text("warm"),
        ];
        assert_eq!(values, expected);
        assert_eq!(of.value(99), Ok(Value::Null));
    }

    #[test]
    fn what_is_no_expression_is_refused_with_its_place() {
        let refused = |text: &str| parser::expression(text, &Limits::default()).unwrap_err()[0].clone();
        assert_eq!(refused("temp -").place.column, 7);
        assert_eq!(refused("temp + 'x'").place.column, 8);
        assert_eq!(refused("temp 5").place.column, 6);
        assert!(refused("SUM(temp)").message.contains("one record"));
    }
}
