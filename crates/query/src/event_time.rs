//! The event time before a row that goes into windows by it: eight bytes, big endian.

/// In place of the time of a record that has none.
const NONE: i64 = i64::MIN;

/// Appends the time of a record, milliseconds since 1970-01-01T00:00:00Z.
pub(crate) fn write(time_ms: Option<i64>, out: &mut Vec<u8>) {
    out.extend_from_slice(&time_ms.unwrap_or(NONE).to_be_bytes());
}

/// The time before a row, and the row.
pub(crate) fn split(row: &[u8]) -> (Option<i64>, &[u8]) {
    let Some((time_ms, row)) = row.split_first_chunk() else { return (None, row) };
    (Some(i64::from_be_bytes(*time_ms)).filter(|time_ms| *time_ms != NONE), row)
}
