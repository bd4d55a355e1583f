//! Bytes that nobody meant: cut short, flipped, mutated, or made to hurt. Never a panic, never a large allocation.

use bytes::Bytes;
use millstream_types::{BatchError, BatchLimits, Compression, Offset, RecordBatch, RecordFault};

use crate::support::{CODECS, Owned, built, read, reseal};
use crate::take_apart::{LIMITS, take_apart};

fn samples() -> Vec<Owned> {
    let record = |n: u32| Owned {
        offset_delta: n * 2,
        timestamp_ms: 1_700_000_000_000 + i64::from(n) * 1000,
        key: (!n.is_multiple_of(3)).then(|| b"station-4711".to_vec()),
        value: (!n.is_multiple_of(4)).then(|| format!("{{\"n\":{n}}}").repeat(n as usize * 3).into_bytes()),
        headers: (0..n % 3).map(|h| (format!("header-{h}"), (h > 0).then(|| vec![n as u8; 70]))).collect(),
    };
    (0..12).map(record).collect()
}

fn sample(codec: Compression) -> RecordBatch {
    let batch = built(&samples(), Offset(100), codec);
    assert_eq!(batch.compression(), codec);
    batch
}

#[test]
fn a_batch_cut_anywhere_says_how_many_bytes_it_needs() {
    for codec in CODECS {
        let bytes = sample(codec).bytes().clone();
        for have in 0..bytes.len() {
            let need = if have < 61 { 61 } else { bytes.len() };
            let error = RecordBatch::parse(bytes.slice(..have), &LIMITS).unwrap_err();
            assert_eq!(error, BatchError::Truncated { need, have });
        }
    }
}

#[test]
fn records_cut_anywhere_are_an_error_even_under_a_fitting_crc() {
    for codec in CODECS {
        let whole = sample(codec);
        for size in 61..whole.size_bytes() {
            let mut bytes = whole.bytes()[..size].to_vec();
            reseal(&mut bytes);
            let outcome = RecordBatch::parse(bytes.into(), &LIMITS).and_then(|batch| {
                batch.inflated(&LIMITS)?.records().map(|r| r.map(drop)).collect::<Result<Vec<_>, _>>()
            });
            // An LZ4 frame may lack its end mark: all records are there.
            assert!(outcome.is_err() || size + 4 >= whole.size_bytes(), "{codec:?} cut to {size}: {outcome:?}");
        }
    }
}

#[test]
fn any_flipped_bit_is_detected_or_lies_before_the_crc() {
    for codec in CODECS {
        let whole = sample(codec);
        for bit in 0..whole.size_bytes() * 8 {
            let mut bytes = whole.bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            take_apart(&bytes);
            match RecordBatch::parse(bytes.into(), &LIMITS) {
                // The place of a batch is not its content: base offset and leader epoch.
                Ok(batch) => assert!(bit / 8 < 8 || (12..16).contains(&(bit / 8)), "bit {bit} of {:?}", batch.bytes()),
                Err(error) => assert!(bit / 8 != 15, "{error}"),
            }
        }
    }
}

/// A small generator with a printed seed, so that every run does the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below.max(1) as u64) as usize
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        const EDGES: [u8; 9] = [0, 1, 2, 0x0f, 0x7e, 0x7f, 0x80, 0xfe, 0xff];
        let at = self.roll(bytes.len());
        match self.roll(6) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << self.roll(8),
            1 if !bytes.is_empty() => bytes[at] = EDGES[self.roll(EDGES.len())],
            2 => bytes.truncate(at),
            3 => bytes.insert(at, EDGES[self.roll(EDGES.len())]),
            4 => drop(bytes.drain(at..(at + self.roll(9)).min(bytes.len()))),
            _ => {
                let from = self.roll(bytes.len());
                let part = bytes[from..(from + self.roll(40)).min(bytes.len())].to_vec();
                drop(bytes.splice(at..at, part));
            }
        }
    }
}

/// `MILLSTREAM_MUTATIONS=10000000` makes so many instead of an ordinary run's, an equal part for each codec.
fn mutations() -> u64 {
    std::env::var("MILLSTREAM_MUTATIONS").map_or(24_000, |mutations| mutations.parse().unwrap())
}

#[test]
fn mutated_batches_are_errors_or_make_sense() {
    for (seed, codec) in (1..).zip(CODECS) {
        let whole = sample(codec).bytes().to_vec();
        let mut dice = Dice(seed);
        for round in 0..mutations() / CODECS.len() as u64 {
            let mut bytes = whole.clone();
            for _ in 0..=dice.roll(4) {
                dice.mutate(&mut bytes);
            }
            let outcome = std::panic::catch_unwind(|| take_apart(&bytes));
            assert!(outcome.is_ok(), "seed {seed}, round {round}: {bytes:02x?}");
        }
    }
}

#[test]
fn the_inflated_size_of_a_small_frame_is_bounded() {
    let zeros = Owned { offset_delta: 0, timestamp_ms: 0, key: None, value: Some(vec![0; 3 << 20]), headers: vec![] };
    for codec in CODECS.into_iter().filter(|codec| *codec != Compression::None) {
        let bomb = built(std::slice::from_ref(&zeros), Offset(0), codec);
        assert!(bomb.size_bytes() < 200_000);
        let limits = BatchLimits { inflated_max_bytes: 1 << 20, ..LIMITS };
        assert_eq!(bomb.inflated(&limits), Err(BatchError::InflatedTooLarge { limit_bytes: 1 << 20 }));
        let exactly = bomb.inflated(&BatchLimits::default()).unwrap().size_bytes();
        assert!(bomb.inflated(&BatchLimits { inflated_max_bytes: exactly, ..LIMITS }).is_ok());
        let too_few = BatchLimits { inflated_max_bytes: exactly - 1, ..LIMITS };
        assert_eq!(bomb.inflated(&too_few), Err(BatchError::InflatedTooLarge { limit_bytes: exactly - 1 }));
    }
}

#[test]
fn an_impossible_count_is_refused_before_memory_is_reserved() {
    for codec in CODECS {
        let mut bytes = sample(codec).bytes().to_vec();
        bytes[23..27].copy_from_slice(&(i32::MAX - 1).to_be_bytes());
        bytes[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
        reseal(&mut bytes);
        let refused = RecordBatch::parse(bytes.into(), &LIMITS).and_then(|batch| batch.inflated(&LIMITS));
        assert!(matches!(refused, Err(BatchError::RecordCount { count: 0x7fff_ffff, .. })), "{refused:?}");
    }
}

#[test]
fn compaction_may_leave_a_batch_without_records() {
    let mut bytes = sample(Compression::None).bytes()[..61].to_vec();
    bytes[57..61].fill(0);
    reseal(&mut bytes);
    let batch = RecordBatch::parse(bytes.into(), &LIMITS).unwrap();
    assert_eq!((batch.record_count(), batch.next_offset(), batch.records().count()), (0, Offset(123), 0));
}

#[test]
fn records_of_a_log_that_stamps_them_carry_its_time() {
    let mut bytes = sample(Compression::None).bytes().to_vec();
    bytes[22] |= 1 << 3;
    bytes[35..43].copy_from_slice(&99_i64.to_be_bytes());
    reseal(&mut bytes);
    let batch = RecordBatch::parse(bytes.into(), &LIMITS).unwrap();
    assert_eq!(sample(Compression::None).into_append_timed(99), batch);
    assert!(batch.has_append_time() && read(&batch).iter().all(|record| record.timestamp_ms == 99));
    for compression in Compression::ALL {
        let appended = sample(compression).into_append_timed(99).into_own_timed();
        let own = appended.inflated(&LIMITS).unwrap();
        assert_eq!((read(&own), own.max_timestamp_ms()), (read(&sample(Compression::None)), 99));
        assert_eq!(RecordBatch::parse(appended.bytes().clone(), &LIMITS), Ok(appended));
    }
}

#[test]
fn a_buffer_of_batches_ends_at_the_first_bad_one() {
    let whole = sample(Compression::None);
    let bytes: Bytes = [&whole.bytes()[..], &whole.bytes()[..], &whole.bytes()[..50]].concat().into();
    let found: Vec<_> = RecordBatch::split(bytes, &LIMITS).collect();
    assert_eq!(found, [Ok(whole.clone()), Ok(whole), Err(BatchError::Truncated { need: 61, have: 50 })]);
}

/// The batch of one record whose bytes after the length are `body`.
fn batch_of(body: &[u8]) -> RecordBatch {
    let mut bytes = sample(Compression::None).bytes()[..61].to_vec();
    bytes[23..27].copy_from_slice(&4_i32.to_be_bytes());
    bytes[57..61].copy_from_slice(&1_i32.to_be_bytes());
    bytes.push(u8::try_from(body.len() * 2).unwrap());
    bytes.extend_from_slice(body);
    reseal(&mut bytes);
    RecordBatch::parse(bytes.into(), &LIMITS).unwrap()
}

#[test]
fn malformed_records_name_their_fault() {
    let cut = |field| RecordFault::CutShort { field };
    let length = |field, value, left_bytes| RecordFault::Length { field, value, left_bytes };
    let offset = |value| RecordFault::OffsetDelta { value, min: 0, max: 4 };
    // attributes, timestamp delta, offset delta, key length, value length, header count: one byte each, zig-zag.
    for (body, fault) in [
        (&[0, 0, 0, 1, 1, 2][..], length("header count", 1, 0)),
        (&[0, 0, 0, 1, 1, 1], length("header count", -1, 0)),
        (&[0, 0, 0, 3, 1, 0], length("key length", -2, 2)),
        (&[0, 0, 0, 10, 1, 0], length("key length", 5, 2)),
        (&[0, 0, 0, 1, 3, 0], length("value length", -2, 1)),
        (&[0, 0, 0, 1, 12, 0], length("value length", 6, 1)),
        (&[0, 0, 1, 1, 1, 0], offset(-1)),
        (&[0, 0, 10, 1, 1, 0], offset(5)),
        (&[0, 0, 0, 1, 1, 0, 9], RecordFault::Excess { extra_bytes: 1 }),
        (&[0, 0, 0, 1, 1, 2, 1, 1], length("header name length", -1, 1)),
        (&[0, 0, 0, 1, 1, 2, 4, 65], length("header name length", 2, 1)),
        (&[0, 0, 0, 1, 1, 2, 2, 0xff, 1], RecordFault::HeaderName { index: 0 }),
        (&[0, 0, 0, 1, 1, 2, 2, 65, 3], length("header value length", -2, 0)),
        (&[0, 0, 0, 1, 1, 2, 0, 8], length("header value length", 4, 0)),
        (&[0, 0x80, 0x80, 0x80, 0x80, 0x80], cut("timestamp delta")),
        (&[0, 0, 0x80, 0x80, 0x80, 0x80, 0x80], RecordFault::VarintTooLong { field: "offset delta", max_bits: 32 }),
        (&[0, 0, 0, 1, 1, 0x80], cut("header count")),
    ] {
        let found: Vec<_> = batch_of(body).records().map(|record| record.map(drop)).collect();
        assert_eq!(found, [Err(BatchError::Record { index: 0, fault })], "{body:?}");
    }
    assert_eq!(batch_of(&[0, 0, 0, 1, 1, 0]).records().filter(Result::is_ok).count(), 1);
}
