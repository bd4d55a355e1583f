//! An append in flight: the effects of one batch of commands, from their decision until it lands.

use millstream_log::{AckLevel, Appended, AtomicAppend, Done, Writer};
use millstream_types::{Grant, Header, Record, TopicPartition};

use crate::change_batch::EncodedChanges;
use crate::state_record::RecordHeaders;
use crate::view::{Headers, Publish, StateRecord, Storage, View};
use crate::waiting::Reply;
use crate::{Error, Sources};

/// An append in flight, with the callers that wait for it.
pub(crate) struct InFlightAppend<V: View> {
    pub(crate) id: u64,
    pub(crate) landed: bool,
    pub(crate) last: Option<Appended>,
    /// Size of its state records and published records.
    pub(crate) size_bytes: usize,
    pub(crate) memory: Grant,
    pub(crate) held: <V::Storage as Storage<V>>::Held,
    pub(crate) sources: Sources,
    pub(crate) answers: Vec<(V::Answer, Reply<V>)>,
    pub(crate) level: AckLevel,
    pub(crate) now_ms: i64,
    /// The state records while the writer has not accepted them. Later they follow from `held`.
    pub(crate) unsent: Option<StateRecords>,
    pub(crate) published: Vec<(TopicPartition, Publish)>,
    /// The reason for which the log never takes it.
    pub(crate) refused: Option<millstream_log::Error>,
    /// Number of its records in the owner's partition.
    pub(crate) own_records: usize,
}

/// State records, and the headers of those that have some.
pub(crate) struct StateRecords {
    records: Vec<StateRecord>,
    headers: Vec<RecordHeaders>,
}

impl StateRecords {
    /// Takes the records of a batch, and leaves those for other topics.
    pub(crate) fn of(changes: EncodedChanges) -> (Self, Vec<(TopicPartition, Publish)>) {
        let EncodedChanges { records, headers, published } = changes;
        (Self { records, headers }, published)
    }
}

/// The number of records of a batch in the partition `own`.
pub(crate) fn count_own(own: &TopicPartition, changes: &EncodedChanges) -> usize {
    changes.records.len() + changes.published.iter().filter(|(to, _)| to == own).count()
}

impl<V: View> InFlightAppend<V> {
    /// `true` if the append has no record at all.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.own_records == 0 && self.published.is_empty()
    }

    /// Makes it an append that is yet to be sent, under another id.
    pub(crate) fn send_again(&mut self, id: u64) {
        self.id = id;
        let (mut records, mut headers) = (Vec::new(), Vec::new());
        for (index, (record, of_record)) in V::Storage::records(&self.held).into_iter().enumerate() {
            if !of_record.is_empty() {
                headers.push(RecordHeaders::new(index, of_record));
            }
            records.push(record);
        }
        self.unsent = Some(StateRecords { records, headers });
    }

    /// Passes the append to the writer. `own` is the partition of the state.
    pub(crate) fn commit(
        &self,
        state: &StateRecords,
        own: &TopicPartition,
        writer: &dyn Writer,
        done: Done<Vec<Appended>>,
    ) -> Result<(), millstream_log::Error> {
        let of_states: Vec<(usize, Vec<Header<'_>>)> =
            state.headers.iter().map(|found| (found.record, borrowed(&found.headers))).collect();
        let mut with_headers = of_states.iter().peekable();
        let records = state.records.iter().enumerate().map(|(index, (key, value))| Record {
            timestamp_ms: self.now_ms,
            key: Some(key),
            value: value.as_deref(),
            headers: with_headers.next_if(|(record, _)| *record == index).map_or(&[], |(_, headers)| headers),
        });
        let mut append = AtomicAppend::default();
        if !state.records.is_empty() {
            append.records.push((own.clone(), records.collect()));
        }
        let headers: Vec<Vec<Header<'_>>> =
            self.published.iter().map(|(_, record)| borrowed(&record.headers)).collect();
        for ((to, record), headers) in self.published.iter().zip(&headers) {
            let record = Record {
                timestamp_ms: record.timestamp_ms,
                key: record.key.as_deref(),
                value: record.value.as_deref(),
                headers,
            };
            match append.records.iter_mut().find(|(partition, _)| partition == to) {
                Some((_, records)) => records.push(record),
                None => append.records.push((to.clone(), vec![record])),
            }
        }
        writer.commit(&append, self.level, done)
    }

    /// Answers all callers with the error. Returns their number.
    pub(crate) fn refuse(self, error: &Error) -> usize {
        let count = self.answers.len();
        for (_, reply) in self.answers {
            let _ = reply.send(Err(error.clone()));
        }
        count
    }
}

fn borrowed(headers: &Headers) -> Vec<Header<'_>> {
    headers.iter().map(|(key, value)| Header { key, value: Some(value) }).collect()
}
