//! Reads whatever it is given as a batch and asserts that what comes of it is either an error or makes sense.
//! Shared by the tests and by the fuzz target.

use bytes::Bytes;
use millstream_types::{
    BATCH_HEADER_BYTES, BatchBuilder, BatchLimits, Compression, Epoch, Header, Offset, RecordBatch,
};

/// Small enough that a broken bound shows.
pub(crate) const LIMITS: BatchLimits = BatchLimits { batch_max_bytes: 1 << 20, inflated_max_bytes: 1 << 20 };

/// Reads `data` as it is, believing its CRC and not, and again as if its magic and length were right.
pub(crate) fn take_apart(data: &[u8]) {
    let whole = Bytes::copy_from_slice(data);
    for batch in RecordBatch::split(whole.clone(), &LIMITS).flatten() {
        check(&batch);
    }
    if let Ok(batch) = RecordBatch::parse_trusted(whole, &LIMITS) {
        check(&batch);
    }
    if let Ok(batch) = RecordBatch::parse_trusted(mended(data), &LIMITS) {
        check(&batch);
    }
}

/// `data` with the magic and the length of a batch, so that what lies behind them is reached.
fn mended(data: &[u8]) -> Bytes {
    let mut data = data.to_vec();
    if data.len() >= BATCH_HEADER_BYTES {
        let length = u32::try_from(data.len() - 12).expect("inputs are small");
        data[8..12].copy_from_slice(&length.to_be_bytes());
        data[16] = 2;
    }
    data.into()
}

fn check(batch: &RecordBatch) {
    assert!(batch.base_offset() <= batch.last_offset() && batch.last_offset() < batch.next_offset());
    assert!(u64::from(batch.record_count()) <= batch.next_offset().0 - batch.base_offset().0);
    assert!(batch.size_bytes() <= LIMITS.batch_max_bytes);
    if let Some(producer) = batch.producer() {
        assert!(producer.id >= 0);
    }
    let there = batch.restamped(Offset(17), Epoch(3));
    assert_eq!((there.base_offset(), there.epoch()), (Offset(17), Epoch(3)));
    match batch.inflated(&LIMITS) {
        Ok(inflated) => check_inflated(batch, &inflated),
        Err(error) => assert!(error.to_string().contains("batch")),
    }
}

fn check_inflated(batch: &RecordBatch, inflated: &RecordBatch) {
    assert_eq!(inflated.compression(), Compression::None);
    assert!(inflated.size_bytes() <= LIMITS.inflated_max_bytes);
    assert_eq!(inflated.last_offset(), batch.last_offset());
    let mut builder = BatchBuilder::default();
    let mut next = inflated.base_offset();
    for record in inflated.records() {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                assert!(error.to_string().contains("batch"));
                return;
            }
        };
        assert!((next..=inflated.last_offset()).contains(&record.offset));
        next = record.offset.next();
        let headers: Vec<Header<'_>> = record.headers().collect();
        assert_eq!(headers.len(), record.headers().len());
        let delta = u32::try_from(record.offset.0 - inflated.base_offset().0).expect("it is within the batch");
        let (timestamp_ms, key, value) = (record.timestamp_ms, record.key, record.value);
        if delta < i32::MAX as u32 {
            builder.push_at(delta, &millstream_types::Record { timestamp_ms, key, value, headers: &headers });
        }
    }
    if builder.record_count() == inflated.record_count() && !builder.is_empty() {
        let again = builder.seal(inflated.base_offset(), inflated.epoch(), Compression::None);
        assert!(again.records().map(|r| parts(&r)).eq(inflated.records().map(|r| parts(&r))), "it builds again");
    }
}

type Parts = (Offset, i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>);

fn parts(record: &Result<millstream_types::RecordView<'_>, millstream_types::BatchError>) -> Parts {
    let record = record.as_ref().expect("it was read before");
    let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    let headers = record.headers().map(|header| (header.key.to_owned(), owned(header.value))).collect();
    (record.offset, record.timestamp_ms, owned(record.key), owned(record.value), headers)
}
