//! Transactions at the owners of a bucket's partitions: they are admitted, run, and run again once their values are loaded.

use std::any::Any;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use millstream_log::AckLevel;
use millstream_types::PartitionId;

use super::Bucket;
use crate::keys::{Loaded, OwnerTransaction, TransactionAnswer, TransactionCommand};
use crate::{Error, Interrupted, Value, WriteRefusal};

/// Bytes of a command beside what its work holds.
const COMMAND_BYTES: usize = 256;

/// The outcome of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done<T> {
    /// The value that the transaction's closure returned.
    pub output: T,
    /// The version of the first key that was written; each further key has the next version.
    pub first: u64,
}

impl Bucket {
    /// Admits `writes` together by the bucket's rate.
    ///
    /// # Errors
    /// [`Error::Refused`] if the rate is used up.
    pub fn admit_writes(&self, writes: u32) -> Result<(), Error> {
        let Some(per_second) = self.keys.quotas.load().writes_per_second else { return Ok(()) };
        self.rate.admit(per_second, writes, self.wall.now_ms()).map_err(|wait| {
            let wait_ms = wait.as_nanos().div_ceil(1_000_000) as u64;
            WriteRefusal::TooManyWrites { per_second, wait_ms }.into()
        })
    }

    /// Runs `work` at the owner of `partition`, as one write by the bucket's rate. It may run several times, each time
    /// from its beginning, and only its last run takes effect. `size_bytes` is what it holds. The answer comes at
    /// `level`, or at the bucket's own.
    ///
    /// # Errors
    /// [`Error::Refused`] by a limit; [`Error::View`], [`Error::Log`] if the owner refuses or fails.
    pub async fn transact<T, W>(
        &self,
        partition: PartitionId,
        level: Option<AckLevel>,
        size_bytes: usize,
        work: W,
    ) -> Result<Done<T>, Error>
    where
        T: Send + 'static,
        W: FnMut(&mut OwnerTransaction<'_, '_>) -> Result<T, Interrupted> + Send + 'static,
    {
        self.admit_writes(1)?;
        let begun = Instant::now();
        let done = self.transact_admitted(partition, level, size_bytes, work).await;
        self.count_write(&done, begun, size_bytes);
        done
    }

    /// As [`Bucket::transact`], for work that only removes keys, or little more: it makes room, and is done while the disk
    /// is nearly full.
    ///
    /// # Errors
    /// Those of [`Bucket::transact`].
    pub async fn make_room<T, W>(
        &self,
        partition: PartitionId,
        level: Option<AckLevel>,
        size_bytes: usize,
        work: W,
    ) -> Result<Done<T>, Error>
    where
        T: Send + 'static,
        W: FnMut(&mut OwnerTransaction<'_, '_>) -> Result<T, Interrupted> + Send + 'static,
    {
        self.admit_writes(1)?;
        let begun = Instant::now();
        let command = TransactionCommand { makes_room: true, ..self.command(partition, level, size_bytes, work) };
        let done = self.ask(command).await.and_then(done);
        self.count_write(&done, begun, size_bytes);
        done
    }

    fn count_write<T>(&self, done: &Result<Done<T>, Error>, begun: Instant, size_bytes: usize) {
        match done {
            Ok(_) => self.counts.write.succeeded(begun.elapsed(), size_bytes as u64),
            Err(_) => self.counts.write.failed(),
        }
    }

    /// As [`Bucket::transact`], for a transaction that only reads, or
    /// whose writes [`Bucket::admit_writes`] has admitted.
    ///
    /// # Errors
    /// Those of [`Bucket::transact`], but for the rate.
    pub async fn transact_admitted<T, W>(
        &self,
        partition: PartitionId,
        level: Option<AckLevel>,
        size_bytes: usize,
        work: W,
    ) -> Result<Done<T>, Error>
    where
        T: Send + 'static,
        W: FnMut(&mut OwnerTransaction<'_, '_>) -> Result<T, Interrupted> + Send + 'static,
    {
        let command = self.command(partition, level, size_bytes, work);
        let answer = self.ask(command).await?;
        let is_full = matches!(&answer, TransactionAnswer::Refused { refusal, .. } if refusal.is_of_quota());
        // Keys that have expired take room until they are removed.
        if !is_full || !self.remove_all_expired().await {
            return done(answer);
        }
        match answer {
            TransactionAnswer::Refused { command, .. } => done(self.ask(command).await?),
            answer => done(answer),
        }
    }

    pub(super) fn command<T, W>(
        &self,
        partition: PartitionId,
        level: Option<AckLevel>,
        size_bytes: usize,
        mut work: W,
    ) -> TransactionCommand
    where
        T: Send + 'static,
        W: FnMut(&mut OwnerTransaction<'_, '_>) -> Result<T, Interrupted> + Send + 'static,
    {
        TransactionCommand {
            partition,
            work: Box::new(move |transaction| Ok(Box::new(work(transaction)?) as Box<dyn Any + Send>)),
            loaded: Vec::new(),
            level: Some(level.unwrap_or_else(|| self.config.load().ack.into())),
            size_bytes: COMMAND_BYTES + size_bytes,
            makes_room: false,
        }
    }

    /// Asks the owner until all values that the work wants are loaded.
    pub(super) async fn ask(&self, mut command: TransactionCommand) -> Result<TransactionAnswer, Error> {
        let partition = command.partition;
        loop {
            match self.views.ask(partition, command).await? {
                TransactionAnswer::NotLoaded { command: again, missing } => {
                    command = again;
                    // Those of other keys stay, as its next run asks for them again.
                    command.loaded.retain(|loaded| missing.iter().all(|(key, _)| *key != loaded.key));
                    for (key, offset) in missing {
                        if let Some(stored) = self.read_at(partition, offset, &key).await? {
                            command.loaded.push(Loaded { key, offset, stored });
                        }
                    }
                }
                answer => {
                    if let TransactionAnswer::Done { written, .. } = &answer {
                        self.counts.changes.fetch_add(written.len() as u64, Ordering::Relaxed);
                    }
                    return Ok(answer);
                }
            }
        }
    }

    /// Stores `value` under `key` and returns its version.
    ///
    /// # Errors
    /// The same errors as [`Bucket::transact`].
    pub async fn put(&self, key: &[u8], value: Value, level: Option<AckLevel>) -> Result<u64, Error> {
        let (partition, size_bytes) = (self.partition_of(key), key.len() + value.bytes.len());
        let key = Bytes::copy_from_slice(key);
        let work =
            move |transaction: &mut OwnerTransaction<'_, '_>| crate::Transaction::put(transaction, &key, value.clone());
        Ok(self.transact(partition, level, size_bytes, work).await?.first)
    }

    /// Resolves once everything that was written to `partition` before is synced to disk.
    ///
    /// # Errors
    /// The same errors as [`Bucket::transact`].
    pub async fn sync(&self, partition: PartitionId) -> Result<(), Error> {
        // An answer at a level covers everything before it, so a record that says nothing is enough.
        let work = |transaction: &mut OwnerTransaction<'_, '_>| {
            transaction.touch();
            Ok(())
        };
        self.transact(partition, Some(AckLevel::Synced), 0, work).await.map(|_| ())
    }
}

/// The outcome of a transaction whose work returns a `T`.
pub(super) fn done<T: 'static>(answer: TransactionAnswer) -> Result<Done<T>, Error> {
    match answer {
        TransactionAnswer::Done { output, first, .. } => {
            // The work returns nothing else.
            let output = *output.downcast::<T>().map_err(|_| Error::Stopped)?;
            Ok(Done { output, first })
        }
        TransactionAnswer::Refused { refusal, .. } => Err(refusal.into()),
        // It is asked until everything is loaded.
        TransactionAnswer::NotLoaded { .. } => Err(Error::Stopped),
    }
}
