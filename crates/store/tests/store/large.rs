//! Large values over the API of a bucket: streams, multipart uploads, patches, ranges, restarts and clean-up.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt};
use millstream_store::{
    BucketConfig, CHUNK_BYTES, ChunkWriter, Error, OpenedValue, OwnerTransaction, PartRecord, Quotas, RangeReader,
    Splice, StoreConfig, Transaction, UploadId, Value, WriteRefusal, add_part, begin, commit, splice,
};
use millstream_types::PartitionId;
use proptest::prelude::*;

use crate::bucket_process::{BucketProcess, SetByHand};

const PARTITIONS: u32 = 2;
const DAY_MS: u64 = 86_400_000;

struct World {
    process: BucketProcess,
}

impl World {
    fn open(dir: &Path, wall: &Arc<SetByHand>, quotas: Quotas) -> Self {
        Self::with(dir, wall, quotas, &StoreConfig::default())
    }

    fn with(dir: &Path, wall: &Arc<SetByHand>, quotas: Quotas, store: &StoreConfig) -> Self {
        let settings = BucketConfig { partitions: PARTITIONS, quotas, ..BucketConfig::default() };
        Self { process: BucketProcess::open(dir, wall, settings, store) }
    }

    fn close(self) {
        self.process.close();
    }

    /// The keys of the store's own, all of them, by their second byte.
    fn own_keys(&self) -> BTreeMap<char, usize> {
        let mut own = BTreeMap::new();
        for number in 0..PARTITIONS {
            self.process
                .bucket
                .list(PartitionId(number), b"\0", |key, _| {
                    if key[0] != 0 {
                        return ControlFlow::Break(());
                    }
                    *own.entry(char::from(key[1])).or_insert(0) += 1;
                    ControlFlow::Continue(())
                })
                .unwrap();
        }
        own
    }

    /// Stores a large value as a stream does.
    async fn put(&self, key: &'static str, bytes: &[u8]) -> u64 {
        let key = Bytes::from_static(key.as_bytes());
        let upload = self.process.bucket.upload(&key, UploadId::random());
        let mut writer = ChunkWriter::alone(&self.process.bucket, upload.clone());
        for piece in bytes.chunks(100_000) {
            writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        let written = writer.finish().await.unwrap();
        let (piece, partition) = (written.piece, self.process.bucket.partition_of(&key));
        let work =
            move |transaction: &mut OwnerTransaction<'_, '_>| commit(transaction, &upload, vec![piece], None, None);
        let done = self.process.bucket.transact(partition, None, 0, work).await.unwrap();
        written.keep();
        done.first + done.output.before
    }

    /// Writes a few bytes into a value, or behind it.
    async fn splice(&self, key: &'static str, at: Option<u64>, bytes: &[u8]) {
        let key = Bytes::from_static(key.as_bytes());
        let (upload, new) =
            (self.process.bucket.upload(&key, UploadId::random()), Splice::Bytes(Bytes::copy_from_slice(bytes)));
        let work = move |transaction: &mut OwnerTransaction<'_, '_>| splice(transaction, &upload, at, &new, None, None);
        self.process.bucket.transact(self.process.bucket.partition_of(&key), None, bytes.len(), work).await.unwrap();
    }

    async fn delete(&self, key: &str) -> bool {
        let of_key = key.as_bytes().to_vec();
        let work = move |transaction: &mut OwnerTransaction<'_, '_>| Ok(transaction.delete(&of_key));
        self.process
            .bucket
            .transact(self.process.bucket.partition_of(key.as_bytes()), None, 0, work)
            .await
            .unwrap()
            .output
    }

    /// A range of a value; `None` if there is no such key.
    async fn read(&self, key: &str, range: Option<Range<u64>>) -> Option<Vec<u8>> {
        let (found, reader) = match self.process.bucket.open_value(key.as_bytes()).await.unwrap()? {
            OpenedValue::Small(found) => {
                let range = range.unwrap_or(0..found.stored.length());
                return Some(found.stored.value.bytes[range.start as usize..range.end as usize].to_vec());
            }
            OpenedValue::Large(found, reader) => (found, reader),
        };
        assert_eq!(Some(reader.size()), found.stored.large);
        let pieces = reader.range(range.unwrap_or(0..reader.size()));
        let pieces: Vec<Bytes> = pieces.try_collect().await.unwrap();
        assert!(pieces.iter().all(|piece| piece.len() <= CHUNK_BYTES));
        Some(pieces.concat())
    }

    async fn part(&self, key: &Bytes, id: UploadId, number: u32, bytes: &[u8]) -> Result<bool, Error> {
        let upload = self.process.bucket.upload(key, id);
        let mut writer = ChunkWriter::part_of(&self.process.bucket, upload.clone());
        writer.write(Bytes::copy_from_slice(bytes)).await?;
        let written = writer.finish().await?;
        let record = PartRecord::of(&written.piece).unwrap();
        let work = move |transaction: &mut OwnerTransaction<'_, '_>| add_part(transaction, &upload, number, record);
        let is_new = self.process.bucket.transact(self.process.bucket.partition_of(key), None, 0, work).await?.output;
        if is_new {
            written.keep();
        }
        Ok(is_new)
    }

    async fn begin(&self, key: &Bytes) -> UploadId {
        let upload = self.process.bucket.upload(key, UploadId::random());
        let id = upload.id;
        let work = move |transaction: &mut OwnerTransaction<'_, '_>| begin(transaction, &upload, None);
        self.process.bucket.transact(self.process.bucket.partition_of(key), None, 0, work).await.unwrap();
        id
    }

    async fn commit(&self, key: &Bytes, id: UploadId) -> Result<(), Error> {
        let upload = self.process.bucket.upload(key, id);
        let parts = self.process.bucket.parts_of(&upload).await?;
        let pieces: Vec<_> = parts.iter().map(|(_, part)| part.piece(id)).collect();
        let work =
            move |transaction: &mut OwnerTransaction<'_, '_>| commit(transaction, &upload, pieces.clone(), None, None);
        self.process.bucket.transact(self.process.bucket.partition_of(key), None, 0, work).await.map(|_| ())
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

fn wall() -> Arc<SetByHand> {
    Arc::new(SetByHand(AtomicI64::new(1_767_225_600_000)))
}

fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|n| (n / 251) as u8 ^ (n as u8).wrapping_mul(seed | 1)).collect()
}

#[test]
fn a_large_value_appears_at_once_survives_a_restart_and_leaves_nothing_when_it_is_gone() {
    let (dir, wall, runtime) = (tempfile::tempdir().unwrap(), wall(), runtime());
    let value = bytes(5 * CHUNK_BYTES + 17, 3);
    let world = World::open(dir.path(), &wall, Quotas::default());
    let version = runtime.block_on(async {
        world.process.bucket.put(b"small", Value::of("s"), None).await.unwrap();
        let version = world.put("image", &value).await;
        assert_eq!(world.process.bucket.version(b"image"), Some(version));
        version
    });
    let totals = world.process.bucket.totals();
    assert_eq!(totals.keys, 2);
    assert!(totals.bytes > value.len() as u64, "{totals:?}");
    world.close();

    let world = World::open(dir.path(), &wall, Quotas::default());
    runtime.block_on(async {
        assert_eq!(world.process.bucket.version(b"image"), Some(version));
        assert!(world.read("image", None).await.unwrap() == value);
        // What is in use stays, however old it is.
        wall.0.fetch_add(3 * DAY_MS as i64, Ordering::SeqCst);
        assert_eq!(world.process.bucket.remove_parts(DAY_MS).await.unwrap(), 0);
        assert_eq!(world.own_keys(), BTreeMap::from([('p', 6), ('v', 1)]));
        let other = bytes(2 * CHUNK_BYTES, 5);
        world.put("image", &other).await;
        assert_eq!(world.process.bucket.remove_parts(DAY_MS).await.unwrap(), 6);
        assert!(world.read("image", None).await.unwrap() == other);
        assert!(world.delete("image").await);
        assert_eq!(world.process.bucket.remove_parts(DAY_MS).await.unwrap(), 2);
    });
    assert_eq!(world.own_keys(), BTreeMap::new());
    assert_eq!(world.process.bucket.totals().keys, 1);
    world.close();
}

#[test]
fn an_upload_is_visible_once_it_is_committed_also_after_a_restart() {
    let (dir, wall, runtime) = (tempfile::tempdir().unwrap(), wall(), runtime());
    let key = Bytes::from_static(b"firmware");
    let parts = [bytes(CHUNK_BYTES + 5, 1), bytes(3, 7), bytes(2 * CHUNK_BYTES, 9)];
    let world = World::open(dir.path(), &wall, Quotas::default());
    let (id, other) = runtime.block_on(async {
        let (id, other) = (world.begin(&key).await, world.begin(&key).await);
        for number in [3, 1, 2] {
            assert!(world.part(&key, id, number, &parts[number as usize - 1]).await.unwrap());
        }
        assert!(!world.part(&key, id, 2, &parts[1]).await.unwrap(), "the same bytes again");
        let refused = world.part(&key, id, 2, b"other").await.unwrap_err();
        let (stored, sent) = (crc32c::crc32c(&parts[1]), crc32c::crc32c(b"other"));
        let Error::Refused(refusal) = refused else { panic!("{refused}") };
        assert_eq!(refusal, WriteRefusal::OtherPart { number: 2, stored, sent });
        assert_eq!(world.read("firmware", None).await, None);
        // The two parts that were refused or there already.
        assert_eq!(world.process.bucket.remove_parts(DAY_MS).await.unwrap(), 2);
        (id, other)
    });
    world.close();

    let world = World::open(dir.path(), &wall, Quotas::default());
    runtime.block_on(async {
        assert_eq!(world.read("firmware", None).await, None);
        let mut open: Vec<_> =
            world.process.bucket.uploads_of(&key).await.unwrap().into_iter().map(|(id, _)| id).collect();
        open.sort_unstable();
        let mut both = [id, other];
        both.sort_unstable();
        assert_eq!(open, both);
        world.commit(&key, id).await.unwrap();
        assert!(world.read("firmware", None).await.unwrap() == parts.concat());
        let refused = world.commit(&key, id).await.unwrap_err();
        assert!(matches!(refused, Error::Refused(WriteRefusal::NoUpload { .. })), "{refused}");
        // The other upload goes after a day, and not before.
        world.part(&key, other, 1, b"late").await.unwrap();
        wall.0.fetch_add(DAY_MS as i64 / 2, Ordering::SeqCst);
        world.process.bucket.remove_parts(DAY_MS).await.unwrap();
        assert!(world.process.bucket.is_open(&world.process.bucket.upload(&key, other)));
        wall.0.fetch_add(DAY_MS as i64, Ordering::SeqCst);
        assert_eq!(world.process.bucket.remove_parts(DAY_MS).await.unwrap(), 2, "a chunk and a part's record");
        let refused = world.part(&key, other, 2, b"too late").await.unwrap_err();
        assert!(matches!(refused, Error::Refused(WriteRefusal::NoUpload { .. })), "{refused}");
        assert!(world.read("firmware", None).await.unwrap() == parts.concat());
    });
    assert_eq!(world.own_keys(), BTreeMap::from([('n', 3), ('p', 5), ('v', 1)]));
    world.close();
}

#[test]
fn a_stream_that_ends_early_leaves_nothing() {
    let (dir, wall, runtime) = (tempfile::tempdir().unwrap(), wall(), runtime());
    let world = World::open(dir.path(), &wall, Quotas::default());
    runtime.block_on(async {
        world.put("k", &bytes(CHUNK_BYTES, 1)).await;
        let key = Bytes::from_static(b"k");
        let mut writer =
            ChunkWriter::alone(&world.process.bucket, world.process.bucket.upload(&key, UploadId::random()));
        writer.write(bytes(4 * CHUNK_BYTES, 3).into()).await.unwrap();
        drop(writer);
        assert!(world.read("k", None).await.unwrap() == bytes(CHUNK_BYTES, 1));
        world.process.bucket.remove_parts(DAY_MS).await.unwrap();
    });
    assert_eq!(world.own_keys(), BTreeMap::from([('p', 1), ('v', 1)]));
    world.close();
}

#[test]
fn parts_count_against_the_quota_and_what_they_took_comes_back() {
    let (dir, wall, runtime) = (tempfile::tempdir().unwrap(), wall(), runtime());
    let quotas = Quotas { max_bytes: Some(3 << 20), ..Quotas::default() };
    let world = World::open(dir.path(), &wall, quotas);
    runtime.block_on(async {
        let key = Bytes::from_static(b"k");
        let mut writer =
            ChunkWriter::alone(&world.process.bucket, world.process.bucket.upload(&key, UploadId::random()));
        let mut outcome = Ok(());
        for _ in 0..16 {
            outcome = writer.write(bytes(CHUNK_BYTES, 3).into()).await;
            if outcome.is_err() {
                break;
            }
        }
        assert!(matches!(outcome, Err(Error::Refused(WriteRefusal::BucketFull { .. }))), "{outcome:?}");
        drop(writer);
        world.process.bucket.remove_parts(DAY_MS).await.unwrap();
        assert_eq!(world.process.bucket.totals().bytes, 0);
        world.put("k", &bytes(2 << 20, 1)).await;
    });
    world.close();
}

#[derive(Debug, Clone)]
enum Step {
    Put(usize),
    Append(usize),
    Patch(u64, usize),
    Delete,
    CleanUp,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![0..40_usize, 0..3 * CHUNK_BYTES, Just(CHUNK_BYTES), Just(2 * CHUNK_BYTES)];
    let few = prop_oneof![1..40_usize, 1..CHUNK_BYTES];
    prop_oneof![
        3 => length.prop_map(Step::Put),
        4 => few.clone().prop_map(Step::Append),
        4 => (0..4 * CHUNK_BYTES as u64, few).prop_map(|(at, length)| Step::Patch(at, length)),
        1 => Just(Step::Delete),
        2 => Just(Step::CleanUp),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn a_large_value_equals_a_plain_vector(
        steps in proptest::collection::vec(step(), 1..14),
        ranges in proptest::collection::vec((any::<u32>(), any::<u32>()), 6),
    ) {
        let (dir, wall, runtime) = (tempfile::tempdir().unwrap(), wall(), runtime());
        let mut world = World::open(dir.path(), &wall, Quotas::default());
        let mut model: Option<Vec<u8>> = None;
        for (number, step) in steps.into_iter().enumerate() {
            let seed = number as u8;
            match step {
                Step::Put(length) => {
                    let value = bytes(length, seed);
                    runtime.block_on(world.put("k", &value));
                    model = Some(value);
                }
                Step::Append(length) => {
                    let more = bytes(length, seed);
                    runtime.block_on(world.splice("k", None, &more));
                    model.get_or_insert_default().extend_from_slice(&more);
                }
                Step::Patch(at, length) => {
                    let patch = bytes(length, seed);
                    runtime.block_on(world.splice("k", Some(at), &patch));
                    let value = model.get_or_insert_default();
                    let end = at as usize + length;
                    value.resize(value.len().max(end), 0);
                    value[at as usize..end].copy_from_slice(&patch);
                }
                Step::Delete => {
                    prop_assert_eq!(runtime.block_on(world.delete("k")), model.take().is_some());
                }
                Step::CleanUp => {
                    runtime.block_on(world.process.bucket.remove_parts(DAY_MS)).unwrap();
                }
                Step::Restart => {
                    world.close();
                    world = World::open(dir.path(), &wall, Quotas::default());
                }
            }
            let whole = runtime.block_on(world.read("k", None));
            prop_assert!(whole == model, "after step {number}");
        }
        if let Some(value) = &model {
            let length = value.len() as u64;
            for (from, to) in ranges {
                let (from, to) = (u64::from(from) % (length + 1), u64::from(to) % (length + 1));
                let (from, to) = (from.min(to), from.max(to));
                let read = runtime.block_on(world.read("k", Some(from..to))).unwrap();
                prop_assert!(read == value[from as usize..to as usize], "{from}..{to} of {length}");
            }
        }
        runtime.block_on(world.delete("k"));
        runtime.block_on(world.process.bucket.remove_parts(DAY_MS)).unwrap();
        prop_assert_eq!(world.own_keys(), BTreeMap::new());
        prop_assert_eq!(world.process.bucket.totals().bytes, 0);
        world.close();
    }
}

/// Opens a large value and reads its first chunk.
async fn begun(world: &World, value: &[u8]) -> (RangeReader, impl Stream<Item = Result<Bytes, Error>> + Unpin + use<>) {
    let Some(OpenedValue::Large(_, reader)) = world.process.bucket.open_value(b"k").await.unwrap() else {
        panic!("the value is large");
    };
    let mut pieces = Box::pin(reader.range(1..reader.size()));
    assert!(pieces.next().await.unwrap().unwrap() == value[1..CHUNK_BYTES]);
    (reader, pieces)
}

#[test]
fn a_reader_gets_the_value_it_began_to_read_whatever_becomes_of_the_key() {
    let (dir, wall, runtime) = (tempfile::tempdir().unwrap(), wall(), runtime());
    let world = World::open(dir.path(), &wall, Quotas::default());
    runtime.block_on(async {
        let value = bytes(4 * CHUNK_BYTES, 1);
        for (number, end) in ["delete", "put", "splice", "expire"].into_iter().enumerate() {
            world.put("k", &value).await;
            let (reader, pieces) = begun(&world, &value).await;
            match end {
                "delete" => assert!(world.delete("k").await),
                "put" => drop(world.process.bucket.put(b"k", Value::of("small"), None).await.unwrap()),
                // The new version shares parts with the old one, and is deleted after it.
                "splice" => {
                    world.splice("k", Some(0), b"other").await;
                    assert!(world.delete("k").await);
                }
                _ => {
                    let expired = Value { expires_ms: Some(world.process.bucket.now_ms() + 1), ..Value::of("x") };
                    world.process.bucket.put(b"k", expired, None).await.unwrap();
                    wall.0.fetch_add(10, Ordering::SeqCst);
                }
            }
            for _ in 0..3 {
                assert_eq!(world.process.bucket.remove_parts(DAY_MS).await.unwrap(), 0, "{end}: the reader holds them");
            }
            let rest: Vec<Bytes> = pieces.try_collect().await.unwrap();
            assert!(rest.concat() == value[CHUNK_BYTES..], "{end}");
            // A further range of the same reader, and then nobody.
            let again: Vec<Bytes> = reader.range(0..9).try_collect().await.unwrap();
            assert!(again.concat() == value[..9], "{end}");
            drop(reader);
            assert!(world.process.bucket.remove_parts(DAY_MS).await.unwrap() >= 4, "{number}: {end}");
            assert_eq!(world.own_keys(), BTreeMap::new(), "{end}");
        }
    });
    world.close();
}

#[test]
fn parts_wait_for_a_reader_for_a_bounded_time() {
    let (dir, wall, runtime) = (tempfile::tempdir().unwrap(), wall(), runtime());
    let store = StoreConfig { part_hold_max_ms: 0, ..StoreConfig::default() };
    let world = World::with(dir.path(), &wall, Quotas::default(), &store);
    runtime.block_on(async {
        let value = bytes(6 * CHUNK_BYTES, 1);
        world.put("k", &value).await;
        let (_reader, pieces) = begun(&world, &value).await;
        world.delete("k").await;
        assert_eq!(world.process.bucket.remove_parts(DAY_MS).await.unwrap(), 6);
        // The stream ends with an error, and never with other bytes.
        let rest: Result<Vec<Bytes>, Error> = pieces.try_collect().await;
        assert!(matches!(rest, Err(Error::Damaged { .. })), "{rest:?}");
    });
    world.close();
}
