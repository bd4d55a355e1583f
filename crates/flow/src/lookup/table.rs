//! The rows of a lookup, by key.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use millstream_columns::{is_json, write_text};
use parking_lot::{RwLock, RwLockReadGuard};
use serde_json::Value;

use crate::Error;
use crate::entities::{EntityMatch, EntitySelection, LookupEntities};
use crate::state::StateMemory;

/// Memory of a row beside its key and value.
const ROW_BYTES: u64 = 104;

/// The table of one lookup, shared by the instances of its node. A batch is looked up in one state of it.
pub(crate) struct LookupTable(RwLock<TableRows>);

/// The value of a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<'t> {
    /// The value, as JSON.
    Value(Cow<'t, [u8]>),
    Missing,
    /// Several entities have the id.
    Several,
    /// The value of a bucket lies in parts.
    InParts,
}

/// The rows of a table: keys as bytes, values as JSON.
pub(crate) struct TableRows {
    rows: HashMap<Box<[u8]>, TableRow>,
    /// Read in place of the rows, if the lookup names them.
    entities: Option<LookupEntities>,
    memory: StateMemory,
    /// The reason why the table is not loaded yet.
    waits: Option<String>,
}

struct TableRow {
    /// `None` for a value in parts.
    value: Option<Box<[u8]>>,
    /// The end of the row, milliseconds since 1970-01-01T00:00:00Z.
    expires_ms: i64,
}

impl fmt::Debug for LookupTable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LookupTable").field("rows", &self.len()).finish_non_exhaustive()
    }
}

impl LookupTable {
    /// A table without rows for the lookup `node`, which counts as loaded.
    pub(crate) fn new(node: &str) -> Self {
        Self(RwLock::new(TableRows {
            rows: HashMap::new(),
            entities: None,
            memory: StateMemory::unbounded(node),
            waits: None,
        }))
    }

    /// Lets the table draw on the memory of a job, and wait until it is loaded.
    pub(super) fn begin(&self, memory: StateMemory, waits: String) {
        let mut table = self.0.write();
        (table.memory, table.waits) = (memory, Some(waits));
    }

    /// Reads these entities in place of rows.
    pub(super) fn read_entities(&self, entities: LookupEntities) {
        self.0.write().entities = Some(entities);
    }

    /// Tells why the table is not loaded yet; `None` once it is.
    pub(super) fn set_waits(&self, waits: Option<String>) {
        self.0.write().waits = waits;
    }

    /// The reason why the table is not loaded yet.
    pub(crate) fn waits(&self) -> Option<String> {
        self.0.read().waits.clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.read().rows.len()
    }

    /// The rows of now, for the records of one batch.
    ///
    /// # Errors
    /// The table is not loaded; no node starts before it is.
    pub(crate) fn rows(&self) -> Result<RwLockReadGuard<'_, TableRows>, Error> {
        let table = self.0.read();
        match &table.waits {
            Some(waits) => Err(table.memory.failed(format!("the table is not loaded yet: it {waits}"))),
            None => Ok(table),
        }
    }

    /// Sets the rows of a test. Their keys are in the column of a file, or in `$key`.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(crate) fn fill(&self, rows: &[Value], column: Option<&str>) -> Result<(), Error> {
        self.change(|table| {
            for row in rows {
                let mut value = row.clone();
                let members = value.as_object_mut();
                let key = match column {
                    Some(column) => members.and_then(|members| members.get(column).cloned()),
                    None => members.and_then(|members| members.shift_remove("$key")),
                };
                let Some(key) = key else { continue };
                let value = value.get("$value").filter(|_| column.is_none()).unwrap_or(&value);
                table.set(key.as_str().unwrap_or(&key.to_string()).as_bytes(), value.to_string().as_bytes())?;
            }
            Ok(())
        })
    }

    /// Sets the entities of a test, which have their ids in `id`.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(crate) fn fill_entities(&self, rows: &[Value], selection: &EntitySelection) -> Result<(), Error> {
        let rows: Vec<Value> = rows.iter().filter_map(|row| selection.of_row(row)).collect();
        self.fill(&rows, Some("id"))
    }

    /// Makes changes that become visible together.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn change(&self, make: impl FnOnce(&mut TableRows) -> Result<(), Error>) -> Result<(), Error> {
        make(&mut self.0.write())
    }
}

impl TableRows {
    /// The value of a key at `now_ms`, or the entity of an id.
    ///
    /// # Errors
    /// The entities cannot be read now.
    pub(crate) fn find(&self, key: &[u8], now_ms: i64) -> Result<Found<'_>, Error> {
        let Some(entities) = &self.entities else {
            return Ok(match self.rows.get(key).filter(|row| row.expires_ms > now_ms) {
                Some(TableRow { value: Some(value), .. }) => Found::Value(Cow::Borrowed(value)),
                Some(_) => Found::InParts,
                None => Found::Missing,
            });
        };
        let mut entity = String::new();
        let unreadable = |reason| self.memory.failed(format!("entities cannot be read: {reason}"));
        Ok(match entities.read(key, &mut entity).map_err(unreadable)? {
            EntityMatch::None => Found::Missing,
            EntityMatch::One => Found::Value(Cow::Owned(entity.into_bytes())),
            EntityMatch::Several => Found::Several,
        })
    }

    /// Sets the value of a key: JSON, or else a text.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.put(key, TableRow { value: Some(as_json(value)), expires_ms: i64::MAX })
    }

    /// Sets the value of a bucket's key, which expires at a time, if any; `None` for a value in parts.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(super) fn set_of_bucket(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        expires_ms: Option<i64>,
    ) -> Result<(), Error> {
        self.put(key, TableRow { value: value.map(as_json), expires_ms: expires_ms.unwrap_or(i64::MAX) })
    }

    fn put(&mut self, key: &[u8], row: TableRow) -> Result<(), Error> {
        self.remove(key);
        self.memory.take(row.bytes(key))?;
        self.rows.insert(key.into(), row);
        Ok(())
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if let Some(row) = self.rows.remove(key) {
            self.memory.give_back(row.bytes(key));
        }
    }
}

impl TableRow {
    fn bytes(&self, key: &[u8]) -> u64 {
        ROW_BYTES + (key.len() + self.value.as_ref().map_or(0, |value| value.len())) as u64
    }
}

/// A value as JSON; one that is none becomes a text.
fn as_json(value: &[u8]) -> Box<[u8]> {
    if is_json(value) {
        return value.trim_ascii().into();
    }
    let mut text = Vec::new();
    write_text(&mut text, &String::from_utf8_lossy(value));
    text.into()
}

#[cfg(test)]
mod tests {
    use millstream_types::{MemoryBudget, TenantId};
    use serde_json::json;

    use super::*;
    use crate::state::StateBudget;

    fn get(table: &LookupTable, key: &str) -> Option<String> {
        let rows = table.rows().unwrap();
        match rows.find(key.as_bytes(), 1_000).unwrap() {
            Found::Value(value) => Some(String::from_utf8(value.to_vec()).unwrap()),
            Found::Missing | Found::Several | Found::InParts => None,
        }
    }

    #[test]
    fn a_value_is_json_or_else_a_text() {
        let table = LookupTable::new("node");
        for (value, expected) in [
            (&b"1.50"[..], "1.50"),
            (b" {\"a\": [1]}\n", "{\"a\": [1]}"),
            (b"null", "null"),
            (b"say \"x\"", "\"say \\\"x\\\"\""),
            (b"", "\"\""),
            (b"\xff", "\"\u{fffd}\""),
        ] {
            table.change(|table| table.set(b"key", value)).unwrap();
            assert_eq!(get(&table, "key").as_deref(), Some(expected), "{}", String::from_utf8_lossy(value));
        }
    }

    #[test]
    fn a_table_gives_back_the_memory_of_rows_that_it_replaces_or_loses() {
        let process = MemoryBudget::new("memory.budget_bytes", 10 << 20);
        let memory = StateBudget::new(&process, 8 << 20, 1 << 20).of_job(&TenantId::default()).of_node("node");
        let table = LookupTable::new("node");
        table.begin(memory, "loads".to_owned());
        let value = "x".repeat(700 << 10);
        for _ in 0..3 {
            table.change(|table| table.set(b"key", value.as_bytes())).unwrap();
        }
        let refusal = table.change(|table| table.set(b"other", value.as_bytes())).unwrap_err().to_string();
        assert!(refusal.contains("flow.job_state_max_bytes = 1048576"), "{refusal}");
        table
            .change(|table| {
                table.remove(b"key");
                table.remove(b"never there");
                table.set(b"other", value.as_bytes())
            })
            .unwrap();
        let refusal = table.rows().err().unwrap().to_string();
        assert!(refusal.contains("it loads"), "{refusal}");
        table.set_waits(None);
        assert_eq!((table.len(), get(&table, "key")), (1, None));
        drop(table);
        assert_eq!(process.used_bytes(), 0);
    }

    #[test]
    fn a_row_of_a_bucket_ends_at_its_time_and_may_lie_in_parts() {
        let table = LookupTable::new("node");
        table
            .change(|table| {
                table.set_of_bucket(b"kept", Some(b"1"), None)?;
                table.set_of_bucket(b"gone", Some(b"2"), Some(1_000))?;
                table.set_of_bucket(b"soon", Some(b"text"), Some(1_001))?;
                table.set_of_bucket(b"large", None, None)
            })
            .unwrap();
        let found = ["kept", "gone", "soon", "large"].map(|key| get(&table, key));
        assert_eq!(found, [Some("1"), None, Some("\"text\""), None].map(|value| value.map(str::to_owned)));
        assert_eq!(table.rows().unwrap().find(b"large", 0).unwrap(), Found::InParts);
    }

    #[test]
    fn rows_of_a_test_have_their_key_beside_the_value_or_in_a_column() {
        let table = LookupTable::new("node");
        table.fill(&[json!({"$key": "a", "n": 1}), json!({"$key": 7, "$value": 2}), json!({"n": 3})], None).unwrap();
        assert_eq!((get(&table, "a").as_deref(), get(&table, "7").as_deref()), (Some(r#"{"n":1}"#), Some("2")));
        table.fill(&[json!({"id": "b", "$value": 1})], Some("id")).unwrap();
        assert_eq!((get(&table, "b").as_deref(), table.len()), (Some(r#"{"id":"b","$value":1}"#), 3));
    }
}
