//! `lookup`: adds to each record the value that a table has for a key.

use std::borrow::Cow;
use std::sync::Arc;

use millstream_types::{TenantId, TopicName};
use serde_json::Value;

use crate::Error;
use crate::connector::{check_path, check_service_path};
use crate::document::{Key, KeyType, Node, NodeType, Role, Section};
use crate::entities::EntitySelection;
use crate::expression::{Fields, JoinedRows, KeyedMember, RecordError, RowFrame};
use crate::lookup::{Found, LookupTable, entities_of};

pub(crate) const LOOKUP: NodeType = NodeType {
    name: "lookup",
    role: Role::Transform,
    summary: "Adds to each record the value that a table has for a key: the latest one of a topic or bucket, a record of a file, or an entity.",
    keys: &[
        Key {
            name: "topic",
            value: KeyType::Topic,
            is_required: false,
            default: None,
            doc: "The table: the latest value of each record key of this topic. A record without a value deletes its key. It is loaded before the first record is looked up, and followed while the job runs.",
        },
        Key {
            name: "bucket",
            value: KeyType::Checked(check_bucket),
            is_required: false,
            default: None,
            doc: "The table, in place of a topic: the keys of a durable bucket of the store, with their values. It is loaded and followed as a topic is.",
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
            name: "entities",
            value: KeyType::Object(&ENTITIES),
            is_required: false,
            default: None,
            doc: "Entities in place of a table: the one whose `id` a record gives, as it is when the record is looked up. `type`, `attrs` and `service_path` may stand beside `id`.",
        },
        Key {
            name: "key",
            value: KeyType::Expression,
            is_required: false,
            default: None,
            doc: "The key of a record; `id` is that of entities. Texts are compared as they are, other values as JSON; NULL is in no table.",
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

/// The entities of a lookup.
static ENTITIES: Section = Section {
    name: "lookup entity",
    path: "config.entities",
    doc: "The entities that a lookup reads, in keyValues form.",
    keys: &[&ENTITY_KEYS],
};

static ENTITY_KEYS: [Key; 4] = [
    Key {
        name: "id",
        value: KeyType::Template,
        is_required: true,
        default: None,
        doc: "The entity's id: a text with `{field}` in it, such as `urn:ngsi-ld:Station:{station}`. A record without one of the fields has no entity.",
    },
    Key {
        name: "type",
        value: KeyType::Text,
        is_required: false,
        default: None,
        doc: "The entity's type. Without it the record fails, with the code `lookup_ambiguous`, if entities of several types have the id.",
    },
    Key {
        name: "attrs",
        value: KeyType::Texts,
        is_required: false,
        default: None,
        doc: "The attributes that the value has beside `id` and `type`; all if left out.",
    },
    Key {
        name: "service_path",
        value: KeyType::Checked(check_service_path),
        is_required: false,
        default: Some("/"),
        doc: "The service path of the entities.",
    },
];

fn check_bucket(value: &Value) -> Result<(), String> {
    let text =
        value.as_str().filter(|text| !text.starts_with('_')).ok_or("write the name of a bucket, such as state")?;
    TopicName::bucket(text, &TenantId::default()).map(drop).map_err(|error| error.to_string())
}

fn check_missing(value: &Value) -> Result<(), String> {
    match value.as_str() {
        Some("null" | "error") => Ok(()),
        None if value.is_null() => Ok(()),
        _ => Err(format!("{value} is neither null nor error; choose one of them")),
    }
}

/// Codes of records that fail.
const MISSING: &str = "lookup_missing";
const AMBIGUOUS: &str = "lookup_ambiguous";
const TOO_LARGE: &str = "lookup_too_large";

/// The work of a lookup and its table, which instances share.
#[derive(Debug)]
pub(super) struct Lookup {
    member: KeyedMember,
    /// The topic, bucket or file, for errors; `None` for entities.
    source: Option<String>,
    fails_missing: bool,
    pub(super) table: Arc<LookupTable>,
}

impl Lookup {
    /// # Errors
    /// The expression of the key cannot be parsed; the error in words.
    pub(super) fn new(node: &Node) -> Result<Self, String> {
        let text = |key: &str| node.config.get(key).and_then(Value::as_str);
        let table = LookupTable::new(&node.name);
        let entities = entities_of(node);
        // Only a test gives rows.
        if let Some(rows) = node.config.get("rows").and_then(Value::as_array) {
            let filled = match entities {
                Some(config) => table.fill_entities(rows, &EntitySelection::new(config)?),
                None => table.fill(rows, text("column")),
            };
            filled.map_err(|error| error.to_string())?;
        }
        let name = text("as").unwrap_or_default();
        let member = match entities.and_then(|config| config.get("id")).and_then(Value::as_str) {
            Some(id) => KeyedMember::of_template(id, name),
            None => KeyedMember::parse(text("key").unwrap_or_default(), name, &node.params)?,
        };
        Ok(Self {
            member,
            source: text("topic").or(text("bucket")).or(text("file")).map(str::to_owned),
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
    /// The table is not loaded, or the entities cannot be read.
    pub(super) fn apply(
        &self,
        frame: RowFrame<'_>,
        may_begin: impl Fn(usize) -> bool,
    ) -> Result<(JoinedRows, Vec<RecordError>), Error> {
        let (table, mut failed, mut unreadable) = (self.table.rows()?, Vec::new(), None);
        let joined = self.member.apply(frame, may_begin, |row, key| {
            let key = match key {
                Ok(key) => key,
                Err(failure) => {
                    failed.push(failure.of_row(row as u32, self.member.text()));
                    return None;
                }
            };
            let found = match key.filter(|_| unreadable.is_none()).map(|key| table.find(key, frame.now_ms)) {
                Some(Ok(found)) => found,
                Some(Err(error)) => {
                    unreadable = Some(error);
                    return None;
                }
                None => Found::Missing,
            };
            let code = match found {
                Found::Value(value) => return Some(value),
                Found::Missing if !self.fails_missing => return Some(Cow::Borrowed(b"null")),
                Found::Missing => MISSING,
                Found::Several => AMBIGUOUS,
                Found::InParts => TOO_LARGE,
            };
            failed.push(RecordError { row: row as u32, code, message: self.message(code, key) });
            None
        });
        unreadable.map_or(Ok((joined, failed)), Err)
    }

    /// The error of a record with this key, in words.
    fn message(&self, code: &'static str, key: Option<&[u8]>) -> String {
        let shown = key.map_or("NULL".into(), |key| format!("'{}'", shortened(&String::from_utf8_lossy(key))));
        match (&self.source, code) {
            (_, AMBIGUOUS) => {
                format!("entities of several types have the id {shown}; name the one that is meant by 'type'")
            }
            (Some(source), TOO_LARGE) => {
                format!(
                    "'{source}' has a value in parts for the key {shown}, and a lookup reads none; store it in at most 512 KiB"
                )
            }
            (Some(source), _) => format!("'{source}' has no value for the key {shown}"),
            (None, _) if key.is_none() => {
                format!("the record lacks a field of the entity's id '{}'", self.member.text())
            }
            (None, _) => format!("there is no entity {shown}"),
        }
    }
}

/// The first 100 characters of a key, so that a message stays readable.
fn shortened(key: &str) -> String {
    key.chars().take(100).collect()
}
