//! `explode`: one record for each element of a list.

use serde_json::{Map, Value};

use crate::batch::Batch;
use crate::document::{Key, KeyType, NodeType, Role};
use crate::expression::RecordError;
use crate::object::{self, Members};

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
            doc: "The member of the record that holds the list.",
        },
        Key {
            name: "as",
            value: KeyType::Text,
            is_required: false,
            default: None,
            doc: "The member of the new records that holds the element; the name of the list if left out.",
        },
    ],
    can_end: false,
};

#[derive(Debug)]
pub(super) struct Explode {
    field: String,
    name: String,
}

impl Explode {
    pub(super) fn new(config: &Map<String, Value>) -> Self {
        let text = |key: &str| config.get(key).and_then(Value::as_str).map(str::to_owned);
        let field = text("field").unwrap_or_default();
        Self { name: text("as").unwrap_or_else(|| field.clone()), field }
    }

    pub(super) fn apply(&self, input: &Batch) -> (Batch, Vec<u32>, Vec<RecordError>) {
        let (mut writer, mut inputs, mut failed) = (input.rewrite(), Vec::new(), Vec::new());
        for row in 0..input.len() {
            let Some(payload) = input.payload(row) else { continue };
            if !input.has_objects() && !object::is_object(payload) {
                let message = "the payload is not a JSON object; 'explode' needs one".to_owned();
                failed.push(RecordError { row: row as u32, code: "invalid_json", message });
                continue;
            }
            match self.elements(payload) {
                Ok(elements) => {
                    for element in elements {
                        let Ok(()) = writer.push(row, |out| {
                            object::write_open_without(payload, |name| name == self.field || name == self.name, out);
                            object::begin_member(&self.name, out);
                            out.extend_from_slice(element);
                            out.push(b'}');
                            Ok::<(), std::convert::Infallible>(())
                        });
                        inputs.push(row as u32);
                    }
                }
                Err(message) => failed.push(RecordError { row: row as u32, code: "not_a_list", message }),
            }
        }
        (writer.finish(), inputs, failed)
    }

    fn elements<'a>(&self, payload: &'a [u8]) -> Result<Vec<&'a [u8]>, String> {
        let is_field = |name: &[u8]| serde_json::from_slice::<String>(name).is_ok_and(|name| name == self.field);
        match Members::of(payload).find(|(name, _)| is_field(name)) {
            None | Some((_, b"null")) => Ok(Vec::new()),
            Some((_, value)) => object::elements(value).ok_or_else(|| format!("field '{}' is not a list", self.field)),
        }
    }
}
