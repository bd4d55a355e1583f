//! A batch of records on its way through a job: the unit in which operators, queues and connectors work.
//!
//! ```text
//!  Origin: the source records (key, time, headers, position)        shared by all descendants
//!  Base:   payloads in one buffer, those of the log where there are any, and the members that were found in them
//!  Shape:  the members of the payloads that pass, and columns that follow them; none if the payloads pass as they are
//!  View:   the selected rows
//! ```
//!
//! Filters and routes make a new view; operators that add members make a new shape. Bytes are made again when somebody asks
//! for the payload of a row that has a shape, once for all rows of the view.
//!
//! Invariants
//! - The spans of a batch lie inside its buffer. Each column has a value for every row of the base.
//! - A batch with a shape has JSON objects and rows without a value only.

mod base;
mod column;
mod made;
mod origin;
mod shape;
mod times;
mod writer;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use millstream_columns::{PathStep, Value};
use millstream_types::{BatchError, Header, Offset, PartitionId, RecordBatch, iso_time};

use self::base::Base;
pub(crate) use self::base::{FieldPlaces, FieldSet};
pub(crate) use self::column::Column;
pub(crate) use self::made::{MadeRecord, MadeRows};
use self::origin::Origin;
pub(crate) use self::origin::SourceBatch;
pub use self::shape::Integers;
pub(crate) use self::shape::{ComputedMember, MemberName, MemberSource};
use self::shape::{Rendered, Shape};
use self::times::EventTimes;
pub(crate) use self::times::{NO_TIME, RowTime};
pub use self::writer::BatchWriter;
use crate::delivery::BatchAck;
use crate::document::{JoinSide, NodeId};

/// Rows with their payloads and origins. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Batch {
    origin: Arc<Origin>,
    base: Arc<Base>,
    shape: Option<Arc<Shape>>,
    view: Arc<View>,
    /// Every payload, of the rows that have one, is known to be a JSON object.
    has_objects: bool,
    ack: Option<BatchAck>,
    /// The source node, and how often its records were read again after errors.
    root: Root,
    /// `None` in a job without event time.
    times: Option<Arc<EventTimes>>,
    /// The watermark of all other inputs on the way so far.
    others_ms: i64,
    /// The side from which it comes to a join.
    side: JoinSide,
}

/// The source of a batch, and its reads so far.
#[derive(Debug, Clone, Copy)]
struct Root {
    source: NodeId,
    attempts: u32,
}

impl Default for Root {
    fn default() -> Self {
        Self { source: NodeId(0), attempts: 0 }
    }
}

/// The selected rows of a [`Base`], in their order.
#[derive(Debug)]
struct View {
    /// The rows that belong to the batch; `None` selects all of them.
    rows: Option<Vec<u32>>,
    len: usize,
    /// The payloads of rows that have a shape, once somebody has asked for one.
    rendered: OnceLock<Rendered>,
}

impl View {
    fn all(len: usize) -> Self {
        Self { rows: None, len, rendered: OnceLock::new() }
    }

    fn some(rows: Vec<u32>) -> Self {
        Self { len: rows.len(), rows: Some(rows), rendered: OnceLock::new() }
    }

    #[inline]
    fn row(&self, row: usize) -> usize {
        self.rows.as_ref().map_or(row, |rows| rows[row] as usize)
    }
}

impl Batch {
    /// The records of stored batches of one partition from `from` on.
    /// One batch is not copied; several are, once, into one buffer.
    ///
    /// # Errors
    /// [`BatchError`] if a record cannot be decoded.
    pub fn of_log(
        topic: &Arc<str>,
        partition: PartitionId,
        stored: &[RecordBatch],
        from: Offset,
    ) -> Result<Self, BatchError> {
        Ok(Self::of_origin(Origin::of_log(topic, partition, stored, from)?))
    }

    /// All records as they were read.
    fn of_origin(origin: Origin) -> Self {
        let count = origin.records.len();
        let base = Arc::new(origin.base(0..count as u32));
        Self {
            origin: Arc::new(origin),
            base,
            shape: None,
            view: Arc::new(View::all(count)),
            has_objects: false,
            ack: None,
            root: Root::default(),
            times: None,
            others_ms: i64::MAX,
            side: JoinSide::Left,
        }
    }

    /// The number of rows that are selected.
    pub fn len(&self) -> usize {
        self.view.len
    }

    /// `true` without any row.
    pub fn is_empty(&self) -> bool {
        self.view.len == 0
    }

    /// The payload of a row; `None` for a record without a value.
    pub fn payload(&self, row: usize) -> Option<&[u8]> {
        let Some(shape) = &self.shape else { return self.base.payload(self.view.row(row)) };
        if shape.is_null(self.view.row(row)) {
            return None;
        }
        let rows = || (0..self.view.len).map(|row| self.view.row(row));
        Some(self.view.rendered.get_or_init(|| shape.render(&self.base, rows())).object(row))
    }

    /// `true` for a row without a payload.
    pub(crate) fn is_null(&self, row: usize) -> bool {
        let row = self.view.row(row);
        self.shape.as_ref().map_or_else(|| self.base.payload(row).is_none(), |shape| shape.is_null(row))
    }

    /// The key of the row's source record.
    pub fn key(&self, row: usize) -> Option<&[u8]> {
        let key = self.record(row).key.clone()?;
        Some(self.origin.part(key))
    }

    /// The time of the row's source record, milliseconds since 1970-01-01T00:00:00Z.
    pub fn timestamp_ms(&self, row: usize) -> i64 {
        self.record(row).timestamp_ms
    }

    /// The offset of the row's source record; its number for a source without a log.
    pub fn offset(&self, row: usize) -> Offset {
        self.record(row).offset
    }

    /// The topic that the source records were read from.
    pub fn topic(&self) -> Option<&str> {
        self.origin.topic.as_deref()
    }

    /// The partition that the source records were read from.
    pub fn partition(&self) -> Option<PartitionId> {
        self.origin.partition
    }

    /// The node that has made the records itself, of a state; `None` for records of a source.
    pub(crate) fn maker(&self) -> Option<&str> {
        self.origin.maker.as_deref()
    }

    /// The source record of a row in words, for errors: its topic, partition and offset.
    pub(crate) fn place(&self, row: usize) -> String {
        if let Some(maker) = &self.origin.maker {
            let key = String::from_utf8_lossy(self.key(row).unwrap_or_default());
            return format!("record of {maker}, key {key}, {}", iso_time(self.timestamp_ms(row)));
        }
        let topic = self.topic().map(|topic| format!("{topic}/{}", self.partition().unwrap_or_default()));
        format!("{} {}", topic.as_deref().unwrap_or("record"), self.offset(row))
    }

    /// `true` if no source record has headers.
    pub(crate) fn is_without_headers(&self) -> bool {
        self.origin.headers.is_empty()
    }

    /// The headers of the row's source record, in order.
    pub fn headers(&self, row: usize) -> impl Iterator<Item = Header<'_>> {
        let Range { start, end } = self.record(row).headers.clone();
        self.origin.headers[start as usize..end as usize].iter().map(|header| Header {
            key: std::str::from_utf8(self.origin.part(header.name.clone())).unwrap_or_default(),
            value: header.value.clone().map(|value| self.origin.part(value)),
        })
    }

    /// The last header called `name`.
    pub fn header(&self, row: usize, name: &str) -> Option<&[u8]> {
        self.headers(row).filter(|header| header.key == name).last().and_then(|header| header.value)
    }

    /// The whole numbers in the member `name`.
    pub fn integers(&self, name: &str) -> Integers<'_> {
        let (mut values, mut missing) = (Vec::new(), Vec::new());
        let mut push = |row: usize, value: Option<Value<'_>>| match value {
            Some(Value::Integer(value)) => values.push(value),
            _ => {
                missing.push(row as u32);
                values.push(0);
            }
        };
        match self.member(name) {
            MemberSource::Column(Column::Integers(column)) if self.view.rows.is_none() => {
                return Integers { values: Cow::Borrowed(column), missing };
            }
            MemberSource::Column(column) => {
                (0..self.len()).for_each(|row| push(row, column.value(self.view.row(row)).ok()));
            }
            MemberSource::Payload => {
                let found = self.find(&Arc::new(field_set(name)));
                (0..self.len())
                    .for_each(|row| push(row, self.found(&found, row, 0).and_then(|raw| Value::read(raw).ok())));
            }
            MemberSource::Nowhere => (0..self.len()).for_each(|row| push(row, None)),
        }
        Integers { values: values.into(), missing }
    }

    /// The same rows, with these whole numbers, one a row, as their last member `name`, in the place of members of that name.
    /// A row whose payload is no JSON object becomes one with this member alone.
    ///
    /// # Panics
    /// If there is not a number for every row.
    #[must_use]
    pub fn with_integers(&self, name: &str, values: Vec<i64>) -> Self {
        assert_eq!(values.len(), self.len(), "a number for every row");
        let mut batch = self.dense();
        let mut lose = Vec::new();
        if let MemberSource::Payload = batch.member(name) {
            let found = batch.find(&Arc::new(field_set(name)));
            batch = batch.with_only_objects(&found);
            lose = (0..batch.len()).map(|row| found.span(row, 0).is_some()).collect();
        }
        let name = MemberName::new(name);
        let member = ComputedMember { name: Arc::clone(&name), column: Arc::new(Column::Integers(values)) };
        batch.with_members(Some((&[name], &lose)), [member])
    }

    /// The same rows, dense, with columns after the members that pass: all but those that are named, or none. A flag tells
    /// of each row if its payload has one of these. Each column has a value for each row.
    pub(crate) fn with_members(
        &self,
        left_out: Option<(&[Arc<MemberName>], &[bool])>,
        members: impl IntoIterator<Item = ComputedMember>,
    ) -> Self {
        let batch = self.dense();
        let mut shape = Shape::nothing();
        if let Some((names, lose)) = left_out {
            shape = batch.shape.as_deref().cloned().unwrap_or_else(Shape::whole);
            shape.leave_out(names, if lose.contains(&true) { lose } else { &[] });
        }
        shape.extend(members);
        batch.with_shape(shape)
    }

    /// The same rows, of which those that are flagged have no payload. The batch has a shape and is dense.
    pub(crate) fn with_nulls(mut self, nulls: Vec<bool>) -> Self {
        if let Some(shape) = self.shape.as_mut().filter(|_| nulls.contains(&true)) {
            Arc::make_mut(shape).set_nulls(nulls);
        }
        self
    }

    fn with_shape(self, shape: Shape) -> Self {
        Self { shape: Some(Arc::new(shape)), view: Arc::new(View::all(self.len())), has_objects: true, ..self }
    }

    /// The same rows without unselected ones between them.
    fn dense(&self) -> Self {
        let Some(rows) = &self.view.rows else { return self.clone() };
        Self {
            base: Arc::new(self.base.gather(rows)),
            shape: self.shape.as_ref().map(|shape| Arc::new(shape.gather(rows))),
            view: Arc::new(View::all(rows.len())),
            ..self.clone()
        }
    }

    /// The same rows without the payloads that are no JSON objects. The batch is dense.
    fn with_only_objects(self, found: &FieldPlaces) -> Self {
        if self.has_objects || (0..self.len()).all(|row| !found.is_odd(row)) {
            return self;
        }
        let rows = self.base.rows.iter().enumerate();
        let rows = rows.map(|(row, kept)| if found.is_odd(row) { kept.without_payload() } else { *kept });
        Self { base: Arc::new(self.base.with_rows(rows.collect())), ..self }
    }

    /// The source of the values of the member `name`.
    pub(crate) fn member(&self, name: &str) -> MemberSource<'_> {
        self.shape.as_ref().map_or(MemberSource::Payload, |shape| shape.member(name))
    }

    /// The number of a row in columns.
    pub(crate) fn column_row(&self, row: usize) -> usize {
        self.view.row(row)
    }

    /// Finds the fields of a set in the payloads of the rows. Fields of a shape are not among them: see [`Self::member`].
    pub(crate) fn find(&self, set: &Arc<FieldSet>) -> Arc<FieldPlaces> {
        self.base.find(set, self.view.rows.as_deref(), self.has_objects)
    }

    /// The bytes of a field that was found in the payload of a row.
    #[inline]
    pub(crate) fn found(&self, found: &FieldPlaces, row: usize, slot: usize) -> Option<&[u8]> {
        found.span(self.view.row(row), slot).map(|span| self.base.part(span))
    }

    /// `true` if the row has a payload that is not a JSON object. `found` is of this batch.
    #[inline]
    pub(crate) fn is_odd(&self, found: &FieldPlaces, row: usize) -> bool {
        found.is_odd(self.view.row(row))
    }

    /// A batch of these rows, in this order, over the same bytes.
    #[must_use]
    pub fn select(&self, rows: impl IntoIterator<Item = u32>) -> Self {
        let rows = rows.into_iter().map(|row| self.view.row(row as usize) as u32).collect();
        Self { view: Arc::new(View::some(rows)), ..self.clone() }
    }

    /// As [`Self::select`], for rows that are neighbours and will be looked at by themselves.
    #[must_use]
    pub(crate) fn slice(&self, rows: Range<u32>) -> Self {
        self.select(rows).dense()
    }

    /// Begins a batch whose rows descend from rows of this one.
    pub fn rewrite(&self) -> BatchWriter {
        BatchWriter::new(self)
    }

    /// `true` if every payload, of the rows that have one, is known to be a JSON object.
    pub(crate) fn has_objects(&self) -> bool {
        self.has_objects
    }

    /// The same rows, whose payloads the caller has found to be JSON objects.
    pub(crate) fn with_objects(mut self) -> Self {
        self.has_objects = true;
        self
    }

    /// The same rows, which the source node `source` has read.
    pub(crate) fn read_by(mut self, source: NodeId) -> Self {
        self.root.source = source;
        self
    }

    /// The source node that has read the rows.
    pub(crate) fn source(&self) -> NodeId {
        self.root.source
    }

    /// The number of times that the source records were read again after errors.
    pub(crate) fn attempts(&self) -> u32 {
        self.root.attempts
    }

    /// The same rows on their way to a join, to which they come from this side.
    pub(crate) fn of_side(mut self, side: JoinSide) -> Self {
        self.side = side;
        self
    }

    /// The side from which the rows come to a join.
    pub(crate) fn side(&self) -> JoinSide {
        self.side
    }

    /// The source records of these rows as they were read, each once. They keep holding the position of their source.
    pub(crate) fn roots(&self, rows: impl IntoIterator<Item = u32>) -> Self {
        let mut records: Vec<u32> = rows.into_iter().map(|row| self.record_number(row as usize)).collect();
        records.dedup();
        let view = Arc::new(View::all(records.len()));
        Self {
            base: Arc::new(self.origin.base(records.into_iter())),
            shape: None,
            view,
            has_objects: false,
            root: Root { attempts: self.root.attempts + 1, ..self.root },
            ..self.clone()
        }
    }

    /// The same rows, which hold back the position of their source until they are written or dropped.
    pub(crate) fn held_by(mut self, ack: BatchAck) -> Self {
        self.ack = Some(ack);
        self
    }

    /// The claim on the position of the source; `None` for sources that need none.
    pub(crate) fn ack(&self) -> Option<&BatchAck> {
        self.ack.as_ref()
    }

    fn record_number(&self, row: usize) -> u32 {
        self.base.rows[self.view.row(row)].record
    }

    fn record(&self, row: usize) -> &origin::SourceRecord {
        &self.origin.records[self.record_number(row) as usize]
    }
}

/// The set of one member.
fn field_set(name: &str) -> FieldSet {
    FieldSet::new([vec![PathStep::Key(name.to_owned())]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch_of(payloads: &[&str]) -> Batch {
        let mut source = SourceBatch::default();
        for (number, payload) in (0..).zip(payloads) {
            source.push(number, None, 0, |out| out.extend_from_slice(payload.as_bytes()));
        }
        source.finish_unchecked()
    }

    fn payloads(batch: &Batch) -> Vec<&str> {
        (0..batch.len()).map(|row| std::str::from_utf8(batch.payload(row).unwrap()).unwrap()).collect()
    }

    #[test]
    fn whole_numbers_are_a_column_that_replaces_their_member() {
        let batch =
            batch_of(&[r#"{"n":1,"t":"x"}"#, r#"{"t":2.5}"#, "no object", r#"{ "n" : 7 , "n": 8 }"#, r#"{"n":"1"}"#]);
        let Integers { values, missing } = batch.integers("n");
        assert_eq!((&values[..], &missing[..]), (&[1, 0, 0, 7, 0][..], &[1, 2, 4][..]));
        let changed = batch.with_integers("n", vec![10, 20, 30, 40, 50]);
        let expected = [r#"{"t":"x","n":10}"#, r#"{"t":2.5,"n":20}"#, r#"{"n":30}"#, r#"{"n":40}"#, r#"{"n":50}"#];
        assert_eq!(payloads(&changed), expected);
        let some = changed.select([3, 0]);
        assert_eq!(&some.integers("n").values[..], [40, 10]);
        assert_eq!(payloads(&some.with_integers("t", vec![4, 1])), [r#"{"n":40,"t":4}"#, r#"{"n":10,"t":1}"#]);
        assert_eq!(payloads(&batch)[3], r#"{ "n" : 7 , "n": 8 }"#, "the batch that it came from stays as it is");
    }
}
