//! `lookup`: adds to each record the value that a table has for a key.

use std::sync::Arc;

use serde_json::Value;

use crate::Error;
use crate::connector::check_path;
use crate::document::{Key, KeyType, Node, NodeType, Role};
use crate::expression::{Fields, JoinedRows, KeyedMember, RecordError, RowFrame};
use crate::lookup::LookupTable;

pub(crate) const LOOKUP: NodeType = NodeType {
    name: "lookup",
    role: Role::Transform,
    summary: "Adds to each record the value that a table has for a key: the latest one of a topic, or a record of a file.",
    keys: &[
        Key {
            name: "topic",
            value: KeyType::Topic,
            is_required: false,
            default: None,
            doc: "The table: the latest value of each record key of this topic. A record without a value deletes its key. It is loaded before the first record is looked up, and followed while the job runs.",
        },
        Key {
            name: "file",
            value: KeyType::Checked(check_path),
            is_required: false,
            default: None,
            doc: "The table, in place of a topic: a file of CSV with a header line, or of JSON lines, below the tenant's folder in `flow.files_dir`. It is read once, at the start; the last record of a key counts.",
        },
        Key {
            name: "column",
            value: KeyType::Text,
            is_required: false,
            default: None,
            doc: "The column or member of a file's records that has the key.",
        },
        Key {
            name: "key",
            value: KeyType::Expression,
            is_required: true,
            default: None,
            doc: "The key of a record. Texts are compared as they are, other values as JSON; NULL is in no table.",
        },
        Key {
            name: "as",
            value: KeyType::Text,
            is_required: true,
            default: None,
            doc: "The member that gets the value, in place of one of that name.",
        },
        Key {
            name: "missing",
            value: KeyType::Checked(check_missing),
            is_required: false,
            default: Some("null"),
            doc: "A key that the table does not have: `null` makes the member null, `error` fails the record with the code `lookup_missing`.",
        },
    ],
    can_end: false,
    keeps_state: false,
};

fn check_missing(value: &Value) -> Result<(), String> {
    match value.as_str() {
        Some("null" | "error") => Ok(()),
        None if value.is_null() => Ok(()),
        _ => Err(format!("{value} is neither null nor error; choose one of them")),
    }
}

/// The work of a lookup and its table, which instances share.
#[derive(Debug)]
pub(super) struct Lookup {
    member: KeyedMember,
    /// The topic or file, for errors.
    source: String,
    fails_missing: bool,
    pub(super) table: Arc<LookupTable>,
}

impl Lookup {
    /// # Errors
    /// The expression of the key cannot be parsed; the error in words.
    pub(super) fn new(node: &Node) -> Result<Self, String> {
        let text = |key: &str| node.config.get(key).and_then(Value::as_str);
        let table = LookupTable::new(&node.name);
        // Only a test gives rows.
        if let Some(rows) = node.config.get("rows").and_then(Value::as_array) {
            table.fill(rows, text("column")).map_err(|error| error.to_string())?;
        }
        Ok(Self {
            member: KeyedMember::parse(text("key").unwrap_or_default(), text("as").unwrap_or_default(), &node.params)?,
            source: text("topic").or(text("file")).unwrap_or_default().to_owned(),
            fails_missing: text("missing") == Some("error"),
            table: Arc::new(table),
        })
    }

    pub(super) fn fields_mut(&mut self) -> &mut Fields {
        self.member.fields_mut()
    }

    /// The first rows with their values, up to one that `may_begin` allows if the values are large; and the failures.
    ///
    /// # Errors
    /// The table is not loaded.
    pub(super) fn apply(
        &self,
        frame: RowFrame<'_>,
        may_begin: impl Fn(usize) -> bool,
    ) -> Result<(JoinedRows, Vec<RecordError>), Error> {
        let (table, mut failed) = (self.table.rows()?, Vec::new());
        let joined = self.member.apply(frame, may_begin, |row, key| {
            let missing = |key: Option<&[u8]>| {
                let key = key.map_or("NULL".into(), |key| format!("'{}'", shortened(&String::from_utf8_lossy(key))));
                let message = format!("'{}' has no value for the key {key}", self.source);
                RecordError { row: row as u32, code: "lookup_missing", message }
            };
            let error = match key {
                Ok(key) => match key.and_then(|key| table.get(key)) {
                    Some(value) => return Some(value),
                    None if !self.fails_missing => return Some(b"null"),
                    None => missing(key),
                },
                Err(failure) => failure.of_row(row as u32, self.member.text()),
            };
            failed.push(error);
            None
        });
        Ok((joined, failed))
    }
}

/// The first 100 characters of a key, so that a message stays readable.
fn shortened(key: &str) -> String {
    key.chars().take(100).collect()
}
