//! The result rows of a record that matches.

use millstream_columns::{Failure, Operand, Value};

use crate::aggregate::write_input;
use crate::chunk::{Chunk, RowOf};
use crate::compiled::{Column, Compiled, Row};

impl Compiled {
    /// Writes the result row of a record that matches.
    pub(crate) fn write_row(
        &self,
        slots: &[u32],
        chunk: &mut Chunk<'_, '_>,
        record: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let (columns, is_lenient) = match &self.row {
            Row::Payload => {
                chunk.write_payload(record, out);
                return Ok(());
            }
            Row::Inputs(inputs) => {
                let row = &mut RowOf { chunk, slots, record };
                return inputs.iter().try_for_each(|input| {
                    write_input(out, &input.value(row)?);
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
                Operand::Field(field) => chunk.write_value(slots[*field], record, out)?,
                computed => match computed.value(&mut RowOf { chunk: &mut *chunk, slots, record }) {
                    Err(_) if is_lenient => Value::Null.write_json(out),
                    value => value?.write_json(out),
                },
            }
        }
        out.push(b'}');
        Ok(())
    }
}
