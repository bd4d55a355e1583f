//! Filters records by key, headers and the bytes of their value, and drops expired ones.

use memchr::memmem::Finder;
use millstream_http::Wildcard;
use millstream_types::{RecordView, TopicKind, TopicName};

/// Conditions that all must match.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordFilter {
    pub(super) keys: Vec<Wildcard>,
    /// Header names, each with a pattern for its value.
    pub(super) headers: Vec<(String, Wildcard)>,
    /// Texts that stand in the value as it is stored.
    pub(super) texts: Vec<Finder<'static>>,
}

impl RecordFilter {
    /// Tells if the record matches.
    pub(super) fn wants(&self, record: &RecordView<'_>) -> bool {
        let fits = |pattern: &Wildcard, bytes: Option<&[u8]>| {
            bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).is_some_and(|text| pattern.fits(text))
        };
        let has = |(name, pattern): &(String, Wildcard)| {
            record.headers().any(|header| header.key == name && fits(pattern, header.value))
        };
        let holds = |text: &Finder<'_>| record.value.is_some_and(|value| text.find(value).is_some());
        self.keys.iter().all(|pattern| fits(pattern, record.key))
            && self.headers.iter().all(has)
            && self.texts.iter().all(holds)
    }
}

/// Tells if records of the topic can expire; those of devices can have a time to live.
pub(super) fn is_perishable(name: &TopicName) -> bool {
    matches!(name.kind(), TopicKind::Telemetry | TopicKind::Event | TopicKind::Command | TopicKind::CommandResponse)
}

#[cfg(test)]
mod tests {
    use millstream_types::{BatchBuilder, Compression, Epoch, Header, Offset, Record, RecordBatch};

    use super::*;

    type Pairs<'a, T> = &'a [(&'a str, T)];

    fn batch(key: Option<&[u8]>, headers: Pairs<'_, Option<&[u8]>>) -> RecordBatch {
        let headers: Vec<_> = headers.iter().map(|(key, value)| Header { key, value: *value }).collect();
        let mut builder = BatchBuilder::default();
        builder.push(&Record { timestamp_ms: 1_000, key, value: None, headers: &headers });
        builder.seal(Offset(0), Epoch(0), Compression::None)
    }

    #[test]
    fn everything_that_is_asked_for_must_match() {
        let headers: [(&str, Option<&[u8]>); 4] =
            [("qos", Some(b"1")), ("note", Some(b"a")), ("note", Some(b"b")), ("empty", None)];
        let named = batch(Some(b"sensor-1"), &headers);
        let table: [(&[&str], Pairs<'_, &str>, bool); 11] = [
            (&[], &[], true),
            (&["sensor-1"], &[], true),
            (&["sensor-*"], &[("qos", "1")], true),
            (&["sensor-*", "*-2"], &[], false),
            (&["sensor"], &[], false),
            (&[], &[("qos", "0")], false),
            (&[], &[("note", "b")], true),
            (&[], &[("note", "a"), ("note", "b")], true),
            (&[], &[("note", "c")], false),
            (&[], &[("empty", "*")], false),
            (&[], &[("absent", "*")], false),
        ];
        for (keys, headers, expected) in table {
            let filter = RecordFilter {
                keys: keys.iter().map(|key| Wildcard::from(*key)).collect(),
                headers: headers.iter().map(|(name, value)| ((*name).to_owned(), Wildcard::from(*value))).collect(),
                texts: Vec::new(),
            };
            let record = named.records().next().unwrap().unwrap();
            assert_eq!(filter.wants(&record), expected, "{filter:?}");
        }
        let any_key = RecordFilter { keys: vec![Wildcard::from("*")], ..RecordFilter::default() };
        for key in [None, Some(&b"\xff"[..])] {
            let nameless = batch(key, &[]);
            assert!(!any_key.wants(&nameless.records().next().unwrap().unwrap()), "{key:?}");
        }
    }
}
