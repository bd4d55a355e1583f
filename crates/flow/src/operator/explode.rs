//! `explode`: one record for each element of a list.

use serde_json::{Map, Value};

use crate::batch::Batch;
use crate::document::{Key, KeyType, NodeType, Role};
use crate::expression::RecordError;
use crate::object;

pub(crate) const EXPLODE: NodeType = NodeType {
    name: "explode",
    role: Role::Transform,
    summary: "Makes a record of each element of a list; a missing or empty list gives none.",
    keys: &[
        Key {
            name: "field",
            value: KeyType::Text,
            is_required: true,
            default: None,
            doc: "The member of the record that holds the list; `o.list` is one inside the member `o`.",
        },
        Key {
            name: "as",
            value: KeyType::Text,
            is_required: false,
            default: None,
            doc: "The member of the new records that holds the element. If left out, the element takes the list's place.",
        },
    ],
    can_end: false,
    keeps_state: false,
};

/// Bytes of the records that are made at a time, and the record that goes beyond. A record may have many elements, and
/// each of the new ones has all its other members.
const PART_MAX_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Explode {
    field: String,
    /// The member for the element; `None` for the place of the list.
    name: Option<String>,
}

/// The first records of a batch.
#[derive(Debug)]
pub(super) struct ExplodedPart {
    pub(super) batch: Batch,
    /// The input row of each row of `batch`.
    pub(super) inputs: Vec<u32>,
    pub(super) failed: Vec<RecordError>,
    pub(super) rest: Option<InputRest>,
}

/// The place in a batch up to which records are made: a row, and the next element of its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InputRest {
    pub(crate) row: u32,
    pub(crate) element: usize,
}

impl Explode {
    pub(super) fn new(config: &Map<String, Value>) -> Self {
        let text = |key: &str| config.get(key).and_then(Value::as_str).map(str::to_owned);
        let field = text("field").unwrap_or_default();
        Self { name: text("as").filter(|name| *name != field), field }
    }

    /// Makes the records of the rows of `input`, of the first one without its first `skipped` elements, until they have
    /// [`PART_MAX_BYTES`].
    pub(super) fn apply(&self, input: &Batch, skipped: usize) -> ExplodedPart {
        let (mut writer, mut inputs, mut failed, mut size_bytes) = (input.rewrite(), Vec::new(), Vec::new(), 0);
        let mut rest = None;
        for row in 0..input.len() {
            let Some(payload) = input.payload(row) else { continue };
            if !input.has_objects() && !object::is_object(payload) {
                let message = "the payload is not a JSON object; 'explode' needs one".to_owned();
                failed.push(RecordError { row: row as u32, code: "invalid_json", message });
                continue;
            }
            let list = object::find(payload, &self.field).filter(|value| *value != b"null");
            let elements = match list.map_or(Some(Vec::new()), object::elements) {
                Some(elements) => elements,
                None => {
                    let message = format!("field '{}' is not a list", self.field);
                    failed.push(RecordError { row: row as u32, code: "not_a_list", message });
                    continue;
                }
            };
            let skipped = if row == 0 { skipped } else { 0 };
            let Some(list) = list.filter(|_| skipped < elements.len()) else { continue };
            let (head, tail) = self.around(payload, list);
            for (number, element) in elements.iter().enumerate().skip(skipped) {
                if size_bytes >= PART_MAX_BYTES {
                    rest = Some(InputRest { row: row as u32, element: number });
                    break;
                }
                let Ok(()) = writer.push(row, |out| {
                    out.extend_from_slice(&head);
                    out.extend_from_slice(element);
                    out.extend_from_slice(&tail);
                    Ok::<(), std::convert::Infallible>(())
                });
                inputs.push(row as u32);
                size_bytes += head.len() + element.len() + tail.len();
            }
            if rest.is_some() {
                break;
            }
        }
        ExplodedPart { batch: writer.finish(), inputs, failed, rest }
    }

    /// The bytes of a new record before and behind the element. `list` is a part of `payload`.
    fn around(&self, payload: &[u8], list: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let Some(name) = &self.name else {
            let start = list.as_ptr() as usize - payload.as_ptr() as usize;
            return (payload[..start].to_vec(), payload[start + list.len()..].to_vec());
        };
        let (mut whole, mut head) = (Vec::new(), Vec::new());
        object::write_without(payload, &[&self.field, name], &mut whole);
        object::write_open(&whole, &mut head);
        object::begin_member(name, &mut head);
        (head, b"}".to_vec())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::batch::SourceBatch;

    #[test]
    fn the_records_of_a_large_list_are_made_in_parts() {
        let payload = json!({"list": (0..2_000).collect::<Vec<_>>(), "other": "x".repeat(3_000)}).to_string();
        let mut source = SourceBatch::default();
        for number in 0..3 {
            source.push(number, None, 0, |out| out.extend_from_slice(payload.as_bytes()));
        }
        let explode = Explode { field: "list".to_owned(), name: Some("n".to_owned()) };
        let (mut input, mut skipped, mut made, mut parts) = (source.finish(), 0, Vec::new(), 0);
        loop {
            let part = explode.apply(&input, skipped);
            let rows = 0..part.batch.len();
            let sizes = rows.clone().map(|row| part.batch.payload(row).unwrap().len());
            assert!(sizes.sum::<usize>() < PART_MAX_BYTES + 4_000);
            made.extend(rows.map(|row| {
                let record: Value = serde_json::from_slice(part.batch.payload(row).unwrap()).unwrap();
                (part.batch.offset(row).0, record["n"].as_u64().unwrap())
            }));
            parts += 1;
            let Some(rest) = part.rest else { break };
            input = input.select(rest.row..input.len() as u32);
            skipped = rest.element;
        }
        let expected: Vec<(u64, u64)> = (0..3).flat_map(|record| (0..2_000).map(move |n| (record, n))).collect();
        assert_eq!(made, expected);
        assert!(parts >= 3 * 2_000 * 3_000 / (PART_MAX_BYTES + 4_000), "{parts}");
    }
}
