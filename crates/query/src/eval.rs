//! Whether a record satisfies a condition, one record at a time, in three-valued logic.

use millstream_columns::{Failure, Operand, Value};

use crate::aggregate::write_input;
use crate::compiled::{Column, Compiled, Row};
use crate::record::LazyRecord;

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Match,
    NoMatch,
    /// Something that had to be read cannot be.
    Error,
}

/// A record as one query sees it: with its own numbers for fields.
struct Fields<'q, 'r, 'a, 's> {
    record: &'r mut LazyRecord<'a, 's>,
    slots: &'q [u32],
}

impl Compiled {
    /// Whether all conjuncts are TRUE. After a match the payload is known to be JSON or not.
    pub(crate) fn verdict(&self, slots: &[u32], record: &mut LazyRecord<'_, '_>) -> Verdict {
        if self.tests_null {
            record.check_whole();
        }
        let damaged_before = record.is_damaged();
        let verdict = self.verdict_as_read(slots, record);
        if verdict == Verdict::NoMatch {
            // What a damaged payload seemed to hold could only have helped, as nothing asks for NULL.
            return verdict;
        }
        record.check_whole();
        if record.is_damaged() && !damaged_before { self.verdict_as_read(slots, record) } else { verdict }
    }

    fn verdict_as_read(&self, slots: &[u32], record: &mut LazyRecord<'_, '_>) -> Verdict {
        let fields = &mut Fields { record, slots };
        for test in &*self.conjuncts {
            match test.truth(fields) {
                Ok(Some(true)) => {}
                Ok(_) => return Verdict::NoMatch,
                Err(_) => return Verdict::Error,
            }
        }
        Verdict::Match
    }

    /// Writes the result row of a record that matches.
    pub(crate) fn write_row(
        &self,
        slots: &[u32],
        record: &mut LazyRecord<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let (columns, is_lenient) = match &self.row {
            Row::Payload => {
                record.write_payload(out);
                return Ok(());
            }
            Row::Inputs(inputs) => {
                let fields = &mut Fields { record, slots };
                return inputs.iter().try_for_each(|input| {
                    write_input(out, &input.value(fields)?);
                    Ok(())
                });
            }
            Row::Columns(columns) => (columns, false),
            Row::LenientColumns(columns) => (columns, true),
        };
        out.push(b'{');
        for Column { value, prefix } in columns {
            out.extend_from_slice(prefix);
            match value {
                Operand::Field(field) => record.write_value(slots[*field], out)?,
                computed => match computed.value(&mut Fields { record: &mut *record, slots }) {
                    Err(_) if is_lenient => Value::Null.write_json(out),
                    value => value?.write_json(out),
                },
            }
        }
        out.push(b'}');
        Ok(())
    }
}

impl<'a> millstream_columns::Row<'a> for Fields<'_, '_, 'a, '_> {
    fn field(&mut self, field: usize) -> Result<Value<'a>, Failure> {
        Ok(self.record.value(self.slots[field])?)
    }

    fn now_ms(&self) -> i64 {
        self.record.now_ms()
    }
}
