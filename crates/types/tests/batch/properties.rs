//! Properties of all records: they read back as they were, whole, and nothing else changes them.

use bytes::{Bytes, BytesMut};
use millstream_types::{
    BATCH_HEADER_BYTES, BatchBuilder, BatchLimits, Compression, Epoch, Header, Offset, Producer, Record, RecordBatch,
};
use proptest::prelude::*;

use crate::support::{CODECS, Owned, built, read, records};

const LIMITS: BatchLimits = BatchLimits { batch_max_bytes: 16 << 20, inflated_max_bytes: 64 << 20 };

proptest! {
    #[test]
    fn records_read_back_as_they_were_pushed(records in records(40, 5, any::<i64>()), base in 0..1_u64 << 62) {
        for codec in CODECS {
            let sealed = built(&records, Offset(base), codec);
            let batch = RecordBatch::parse(sealed.bytes().clone(), &LIMITS).unwrap();
            prop_assert_eq!(&batch, &sealed);
            prop_assert_eq!(&read(&batch), &records);
            let last = records.last().unwrap().offset_delta;
            prop_assert_eq!(batch.base_offset(), Offset(base));
            prop_assert_eq!(batch.last_offset(), Offset(base + u64::from(last)));
            prop_assert_eq!(batch.next_offset(), Offset(base + u64::from(last) + 1));
            prop_assert_eq!(batch.record_count() as usize, records.len());
            prop_assert_eq!(batch.epoch(), Epoch(7));
            prop_assert_eq!(batch.base_timestamp_ms(), records[0].timestamp_ms);
            prop_assert_eq!(Some(batch.max_timestamp_ms()), records.iter().map(|r| r.timestamp_ms).max());
            let inflated = batch.inflated(&LIMITS).unwrap();
            prop_assert_eq!(RecordBatch::parse(inflated.bytes().clone(), &LIMITS).unwrap(), inflated);
        }
    }

    #[test]
    fn reading_goes_on_from_any_place_between_two_records(records in records(20, 5, any::<i64>()), other in records(20, 5, any::<i64>())) {
        let [batch, other] = [&records, &other].map(|records| built(records, Offset(3), Compression::None));
        let mut all = batch.records();
        let mut place = all.cursor();
        for (at, expected) in records.iter().enumerate() {
            let rest: Vec<_> = batch.records_from(place).map(|read| Owned::read(Offset(3), &read.unwrap())).collect();
            prop_assert_eq!(&rest[..], &records[at..]);
            // A place of another batch gives records, an error or nothing.
            other.records_from(place).for_each(drop);
            prop_assert_eq!(&Owned::read(Offset(3), &all.next().unwrap().unwrap()), expected);
            place = all.cursor();
        }
        prop_assert_eq!(batch.records_from(place).count(), 0);
    }

    #[test]
    fn a_record_is_found_by_its_offset_and_none_between(records in records(20, 5, any::<i64>()), base in 0..1_u64 << 62) {
        let batch = built(&records, Offset(base), Compression::None);
        for delta in 0..=records.last().unwrap().offset_delta + 1 {
            let found = batch.record_at(Offset(base + u64::from(delta))).unwrap();
            let found = found.map(|found| Owned::read(Offset(base), &found.view()));
            let expected = records.iter().find(|record| record.offset_delta == delta);
            prop_assert_eq!(found.as_ref(), expected);
        }
    }

    /// Records of which neighbours share their list of headers, or have lists of their own that are equal, or others.
    #[test]
    fn records_that_share_their_headers_are_encoded_as_if_each_had_its_own(
        records in records(40, 1, any::<i64>()),
        lists in proptest::collection::vec(0..3_usize, 40),
    ) {
        let headers: Vec<Vec<Header<'_>>> = records
            .iter()
            .map(|r| r.headers.iter().map(|(key, value)| Header { key, value: value.as_deref() }).collect())
            .collect();
        let all: Vec<Record<'_>> = records
            .iter()
            .zip(&lists)
            .map(|(r, list)| Record {
                timestamp_ms: r.timestamp_ms,
                key: r.key.as_deref(),
                value: r.value.as_deref(),
                headers: &headers[*list % headers.len()],
            })
            .collect();
        let (mut together, mut one_by_one) = (BatchBuilder::default(), BatchBuilder::default());
        let (first, rest) = all.split_at(all.len() / 2);
        together.push_all(first);
        together.push_all(rest);
        all.iter().for_each(|record| one_by_one.push(record));
        prop_assert_eq!(together.size_bytes(), one_by_one.size_bytes());
        let [together, one_by_one] =
            [together, one_by_one].map(|mut builder| builder.seal(Offset(3), Epoch(1), Compression::None));
        prop_assert_eq!(together.bytes(), one_by_one.bytes());
    }

    #[test]
    fn a_restamped_batch_has_the_same_records_at_another_place(records in records(10, 3, any::<i64>())) {
        for codec in CODECS {
            let sealed = built(&records, Offset(5), codec);
            let there = sealed.restamped(Offset(900), Epoch(8));
            prop_assert_eq!(&RecordBatch::parse(there.bytes().clone(), &LIMITS).unwrap(), &there);
            prop_assert_eq!((there.base_offset(), there.epoch()), (Offset(900), Epoch(8)));
            prop_assert_eq!(read(&there), read(&sealed));
            prop_assert_eq!(sealed.clone().into_restamped(Offset(900), Epoch(8)), there.clone());
            prop_assert_eq!(sealed.base_offset(), Offset(5), "the original stays where it was");
        }
    }

    #[test]
    fn cutting_records_into_batches_never_changes_them(
        records in records(40, 1, any::<i64>()),
        cuts in proptest::collection::vec(1..10_usize, 1..40),
    ) {
        let mut builder = BatchBuilder::default();
        let (mut buffer, mut next, mut rest) = (BytesMut::new(), Offset(3), &records[..]);
        for (cut, codec) in cuts.into_iter().chain(std::iter::repeat(40)).zip(CODECS.into_iter().cycle()) {
            let (part, after) = rest.split_at(cut.min(rest.len()));
            if part.is_empty() {
                break;
            }
            for (delta, record) in (0..).zip(part) {
                Owned { offset_delta: delta, ..record.clone() }.push_to(&mut builder);
            }
            let batch = builder.seal(next, Epoch(1), codec);
            prop_assert_eq!((builder.record_count(), builder.size_bytes()), (0, BATCH_HEADER_BYTES));
            buffer.extend_from_slice(batch.bytes());
            (next, rest) = (batch.next_offset(), after);
        }
        let mut found = Vec::new();
        for batch in RecordBatch::split(buffer.freeze(), &LIMITS) {
            let batch = batch.unwrap();
            let base = u32::try_from(batch.base_offset().0 - 3).unwrap();
            found.extend(read(&batch).into_iter().map(|r| Owned { offset_delta: base + r.offset_delta, ..r }));
        }
        prop_assert_eq!(found, records);
    }
}

#[test]
fn batches_that_are_kept_are_not_touched_by_those_built_after_them() {
    let mut builder = BatchBuilder::default();
    let batches: Vec<_> = (0..200_u64)
        .map(|n| {
            for _ in 0..n % 7 + 1 {
                let value = n.to_string().repeat(n as usize);
                builder.push(&Record { value: Some(value.as_bytes()), ..Default::default() });
            }
            builder.seal(Offset(n), Epoch(0), CODECS[n as usize % CODECS.len()])
        })
        .collect();
    for (n, batch) in batches.into_iter().enumerate() {
        let records = read(&RecordBatch::parse(batch.bytes().clone(), &LIMITS).unwrap());
        assert_eq!(records.len(), n % 7 + 1);
        assert!(records.iter().all(|r| r.value == Some(n.to_string().repeat(n).into_bytes())));
    }
}

#[test]
fn a_unique_batch_is_restamped_where_it_lies() {
    let sealed = built(
        &[Owned { offset_delta: 0, timestamp_ms: 1, key: None, value: None, headers: vec![] }],
        Offset(0),
        CODECS[0],
    );
    let batch = RecordBatch::parse(Bytes::from(sealed.bytes().to_vec()), &LIMITS).unwrap();
    let lies_at = batch.bytes().as_ptr();
    let batch = batch.into_restamped(Offset(1 << 40), Epoch(2));
    assert_eq!((batch.bytes().as_ptr(), batch.base_offset()), (lies_at, Offset(1 << 40)));
}

#[test]
fn a_producers_place_is_carried() {
    let producer = Producer { id: 1 << 40, epoch: 3, base_sequence: 77 };
    let mut builder = BatchBuilder::default();
    builder.set_producer(producer);
    builder.push(&Record::default());
    assert_eq!(builder.seal(Offset(0), Epoch(0), CODECS[0]).producer(), Some(producer));
    builder.push(&Record::default());
    assert_eq!(builder.seal(Offset(0), Epoch(0), CODECS[0]).producer(), None, "it was for one batch");
}

#[test]
fn the_last_header_of_a_name_counts() {
    let header = |key: &str, value: &str| (key.to_owned(), Some(value.as_bytes().to_vec()));
    let headers = vec![header("a", "1"), header("b", "2"), header("a", "3"), ("c".to_owned(), None)];
    let record = Owned { offset_delta: 0, timestamp_ms: 1, key: None, value: None, headers };
    let batch = built(&[record], Offset(0), CODECS[0]);
    let record = batch.records().next().unwrap().unwrap();
    assert_eq!((record.header("a"), record.header("c"), record.header("x")), (Some(&b"3"[..]), None, None));
    assert_eq!(record.header_values(["x", "c", "a"]), [None, None, Some(&b"3"[..])]);
    assert_eq!(record.headers().len(), 4);
}
