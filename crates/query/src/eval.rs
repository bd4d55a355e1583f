//! The result rows of a record that matches.

use millstream_columns::{Failure, Operand, Value};

use crate::aggregate::write_input;
use crate::chunk::{Chunk, RowOf};
use crate::compiled::{Column, Compiled, Row};
use crate::plan::RECEIVE_TIMESTAMP;

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
            Row::StampedPayload => {
                chunk.write_payload(record, out);
                stamp(out, chunk.now_ms());
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

/// Adds to an object that has just been written when its record was received.
fn stamp(out: &mut Vec<u8>, now_ms: i64) {
    if out.pop_if(|last| *last == b'}').is_none() {
        return;
    }
    let is_empty = out.trim_ascii_end().ends_with(b"{");
    let comma = if is_empty { "" } else { "," };
    out.extend_from_slice(format!("{comma}\"{RECEIVE_TIMESTAMP}\":{now_ms}}}").as_bytes());
}
