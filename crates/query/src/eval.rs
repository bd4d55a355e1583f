//! The result rows of a record that matches.

use millstream_columns::{Chunk, ChunkPayload, ChunkRow, Operand, Value, time_ms, write_input};

use crate::compiled::{Compiled, Row, RowMember};
use crate::event_time;
use crate::plan::RECEIVE_TIMESTAMP;
use crate::rows::write_opaque;

impl Compiled {
    /// Writes the result row of a record that matches. A value that cannot be computed is NULL; whether there is one.
    pub(crate) fn write_row(&self, slots: &[u32], chunk: &mut Chunk<'_, '_>, record: usize, out: &mut Vec<u8>) -> bool {
        write(&self.row, &mut ChunkRow { chunk, slots, record }, out)
    }
}

fn write(row: &Row, of: &mut ChunkRow<'_, '_, '_>, out: &mut Vec<u8>) -> bool {
    match row {
        Row::Payload => write_payload(of, out),
        Row::StampedPayload => {
            write_payload(of, out);
            stamp(out, of.chunk.now_ms());
        }
        Row::Inputs(inputs) => return write_inputs(inputs, of, out),
        Row::Sorted(sorted) => return write_inputs(&sorted.by, of, out) | write(&sorted.row, of, out),
        Row::Timed(timed) => {
            let time = timed.time.value(of).and_then(|value| time_ms(&value)).ok().flatten();
            event_time::write(time, out);
            return time.is_none() | write(&timed.row, of, out);
        }
        Row::Columns(columns) => {
            let has_failed = write_columns(columns, of, out);
            out.push(b'}');
            return has_failed;
        }
        Row::ColumnsAndPayload(columns) => {
            let has_failed = write_columns(columns, of, out);
            write_members(of, out);
            out.push(b'}');
            return has_failed;
        }
    }
    false
}

/// Writes the payload of a record: byte for byte if it is JSON. It has been checked before.
fn write_payload(of: &ChunkRow<'_, '_, '_>, out: &mut Vec<u8>) {
    match of.chunk.payload(of.record) {
        ChunkPayload::None => out.extend_from_slice(b"null"),
        ChunkPayload::Json(payload) => out.extend_from_slice(payload),
        ChunkPayload::Damaged(payload) => write_opaque(out, payload),
    }
}

fn write_inputs(inputs: &[Operand], of: &mut ChunkRow<'_, '_, '_>, out: &mut Vec<u8>) -> bool {
    let mut has_failed = false;
    for input in inputs {
        let value = input.value(of);
        has_failed |= value.is_err();
        write_input(out, &value.unwrap_or(Value::Null));
    }
    has_failed
}

/// An object that is not closed yet.
fn write_columns(columns: &[RowMember], of: &mut ChunkRow<'_, '_, '_>, out: &mut Vec<u8>) -> bool {
    let mut has_failed = false;
    out.push(b'{');
    for RowMember { value, prefix } in columns {
        out.extend_from_slice(prefix);
        let written = match value {
            Operand::Field(field) => of.chunk.write_value(of.slots[*field], of.record, out),
            computed => computed.value(of).map(|value| value.write_json(out)),
        };
        if written.is_err() {
            has_failed = true;
            Value::Null.write_json(out);
        }
    }
    has_failed
}

/// Adds the members of the payload to an open JSON object.
fn write_members(of: &mut ChunkRow<'_, '_, '_>, out: &mut Vec<u8>) {
    let start = out.len();
    write_payload(of, out);
    if out[start..].starts_with(b"{") && out.ends_with(b"}") {
        out.pop();
        if out[start + 1..].trim_ascii().is_empty() {
            return out.truncate(start);
        }
        // In place of the bracket.
        out[start] = b',';
        return;
    }
    let payload = out.split_off(start);
    out.extend_from_slice(b",\"payload\":");
    out.extend_from_slice(&payload);
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
