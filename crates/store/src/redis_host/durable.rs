//! A database that is a durable bucket: its commands run at the owner of the bucket's only partition.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use millstream_types::{PartitionId, TenantId};
use parking_lot::Mutex;

use super::{database_config, failure};
use crate::keys::VALUE_MAX_BYTES;
use crate::resp::{self, CommandUnit, ErrorReply, Execution, KeyPage, Keyspace};
use crate::{Ack, Bucket, Error, Needed, Opened, OwnerTransaction, Store, Transaction};

const PARTITION: PartitionId = PartitionId(0);
/// Redis's reply to commands that need memory.
pub(super) const FULL: ErrorReply =
    ErrorReply(Cow::Borrowed("OOM command not allowed when used memory > 'maxmemory'."));
/// Keys that FLUSHDB deletes in one transaction.
const CLEARED_TOGETHER: usize = 1_000;

/// A durable bucket behind a database number.
#[derive(Clone)]
pub(super) struct DurableDatabase {
    store: Arc<Store>,
    tenant: TenantId,
    name: String,
}

impl DurableDatabase {
    pub(super) fn new(store: Arc<Store>, tenant: TenantId, name: String) -> Self {
        Self { store, tenant, name }
    }

    /// The bucket, if it is there.
    fn existing(&self) -> Option<Arc<Bucket>> {
        match self.store.find(&self.tenant, &self.name) {
            Ok(Opened::Durable(bucket)) => Some(bucket),
            _ => None,
        }
    }

    /// The bucket, which is made if it is not there.
    async fn bucket(&self) -> Result<Arc<Bucket>, ErrorReply> {
        if let Some(bucket) = self.existing() {
            return Ok(bucket);
        }
        match self.store.ensure_bucket(&self.tenant, &self.name, database_config()).await {
            Ok(Opened::Durable(bucket)) => Ok(bucket),
            Ok(Opened::Cache(_)) => Err(ErrorReply::general("the database has become a cache; select it again")),
            Err(error) => Err(failure(&error)),
        }
    }

    async fn run(self, unit: CommandUnit) -> Result<CommandUnit, ErrorReply> {
        let bucket = self.bucket().await?;
        let (size_bytes, is_read_only, makes_room) = (unit.size_bytes(), unit.is_read_only(), unit.makes_room());
        // The unit comes back whatever becomes of the transaction.
        let shared = Arc::new(Mutex::new(unit));
        let runs = Arc::clone(&shared);
        let work = move |transaction: &mut OwnerTransaction<'_, '_>| runs.lock().run(transaction);
        let outcome = if is_read_only {
            bucket.transact_admitted(PARTITION, None, size_bytes, work).await
        } else if makes_room {
            bucket.make_room(PARTITION, None, size_bytes, work).await
        } else {
            bucket.transact(PARTITION, None, size_bytes, work).await
        };
        let mut unit = std::mem::take(&mut *shared.lock());
        match outcome {
            Ok(_) => Ok(unit),
            Err(Error::Refused(_)) if unit.knows_its_refusal() => Ok(unit),
            Err(Error::View(millstream_view::Error::ChangesTooLarge { .. })) if unit.halve() => Ok(unit),
            // An owner takes no questions while the disk is full. Next to nothing lands meanwhile, so the keys are read one by one.
            Err(Error::View(full)) if is_read_only && full.is_full() => {
                Self::read(bucket, unit, Needed::default()).await
            }
            Err(error) => Err(failure(&error)),
        }
    }

    /// Runs a unit that reads keys one by one, and reads from the disk as often as it needs.
    async fn read(bucket: Arc<Bucket>, mut unit: CommandUnit, needed: Needed) -> Result<CommandUnit, ErrorReply> {
        let (mut needed, mut loaded) = (needed, Vec::new());
        loop {
            bucket.load(needed, &mut loaded).await.map_err(|error| failure(&error))?;
            match bucket.snapshot(&loaded, |transaction| unit.run(transaction)) {
                Ok(Ok(())) => return Ok(unit),
                Ok(Err(more)) => needed = more,
                Err(error) => return Err(failure(&error)),
            }
        }
    }

    /// The keys behind `after`, at most `limit`, on one of the threads for that.
    async fn keys_behind(&self, after: Option<Bytes>, limit: usize) -> Result<KeyPage, ErrorReply> {
        let Some(bucket) = self.existing() else { return Ok(KeyPage::default()) };
        let store = Arc::clone(&self.store);
        let list = move || -> Result<KeyPage, Error> {
            let mut page = KeyPage::default();
            let start = after.map(|after| [&after[..], b"\0"].concat()).unwrap_or_default();
            let now_ms = bucket.now_ms();
            bucket.list(PARTITION, &start, |key, listed| {
                if page.keys.len() == limit {
                    page.after = page.keys.last().cloned();
                    return ControlFlow::Break(());
                }
                let has_expired = listed.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms);
                if key.first() != Some(&0) && !has_expired {
                    page.keys.push(Bytes::copy_from_slice(key));
                }
                ControlFlow::Continue(())
            })?;
            Ok(page)
        };
        store.on_reader(&self.tenant, list).await.and_then(|page| page).map_err(|error| failure(&error))
    }

    async fn delete_all(&self) -> Result<(), ErrorReply> {
        loop {
            let page = self.keys_behind(None, CLEARED_TOGETHER).await?;
            if page.keys.is_empty() {
                return Ok(());
            }
            let bucket = self.bucket().await?;
            let work = move |transaction: &mut OwnerTransaction<'_, '_>| {
                Ok(page.keys.iter().filter(|key| transaction.delete(key)).count())
            };
            bucket.make_room(PARTITION, None, 0, work).await.map_err(|error| failure(&error))?;
        }
    }
}

impl resp::Bucket for DurableDatabase {
    fn execute(&self, mut unit: CommandUnit) -> Execution {
        let Some(bucket) = self.existing().filter(|_| unit.reads_keys_one_by_one()) else {
            return Execution::Pending(self.clone().run(unit).boxed());
        };
        match bucket.snapshot(&[], |transaction| unit.run(transaction)) {
            Ok(Ok(())) => Execution::Done(Ok(unit)),
            Ok(Err(needed)) => Execution::Pending(Self::read(bucket, unit, needed).boxed()),
            Err(error) => Execution::Done(Err(failure(&error))),
        }
    }

    fn value_max_bytes(&self) -> u64 {
        let of_bucket = self.existing().and_then(|bucket| bucket.config().quotas.value_max_bytes);
        of_bucket.unwrap_or(VALUE_MAX_BYTES).min(VALUE_MAX_BYTES)
    }

    fn is_full(&self) -> Option<ErrorReply> {
        let bucket = self.existing()?;
        let max_bytes = bucket.config().quotas.max_bytes?;
        (bucket.totals().bytes > max_bytes).then_some(FULL)
    }

    fn synced(&self) -> BoxFuture<'_, Result<u32, ErrorReply>> {
        async {
            let Some(bucket) = self.existing().filter(|bucket| bucket.config().ack != Ack::Synced) else {
                return Ok(1);
            };
            bucket.sync(PARTITION).await.map_err(|error| failure(&error))?;
            Ok(1)
        }
        .boxed()
    }
}

impl Keyspace for DurableDatabase {
    fn scan(&self, after: Option<Bytes>, limit: usize) -> BoxFuture<'_, Result<KeyPage, ErrorReply>> {
        self.keys_behind(after, limit.max(1)).boxed()
    }

    fn count(&self) -> BoxFuture<'_, Result<u64, ErrorReply>> {
        async {
            let Some(bucket) = self.existing() else { return Ok(0) };
            bucket.count().await.map_err(|error| failure(&error))
        }
        .boxed()
    }

    fn random(&self) -> BoxFuture<'_, Result<Option<Bytes>, ErrorReply>> {
        async {
            let Some(bucket) = self.existing() else { return Ok(None) };
            bucket.random_key().await.map_err(|error| failure(&error))
        }
        .boxed()
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), ErrorReply>> {
        self.delete_all().boxed()
    }
}
