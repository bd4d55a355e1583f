//! Commands over all keys of a database, and WAIT.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::RespSession;
use crate::resp::context::{Fault, Outcome, integer_argument, is};
use crate::resp::glob;
use crate::resp::host::{Bucket, ErrorReply};
use crate::resp::number::unsigned;

/// Keys that KEYS asks for at a time.
const KEYS_PAGE: usize = 1_000;
/// Keys that SCAN looks at, if it is not told.
const SCAN_COUNT: usize = 10;
/// Most keys that SCAN looks at for one reply.
const SCAN_COUNT_MAX: usize = 100_000;
/// Longest wait of WAIT and WAITAOF whose limit is 0, which means none.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

impl RespSession {
    fn bucket(&self) -> Result<Arc<dyn Bucket>, ErrorReply> {
        self.bucket.clone()
    }

    pub(super) async fn keys(&mut self, arguments: &[Bytes]) -> Outcome {
        let (bucket, pattern) = (self.bucket()?, &arguments[1]);
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = bucket.scan(after, KEYS_PAGE).await?;
            found.extend(page.keys.into_iter().filter(|key| glob::matches(pattern, key)));
            after = page.after;
            if after.is_none() {
                break;
            }
        }
        self.reply_keys(&found);
        Ok(())
    }

    fn reply_keys(&mut self, keys: &[Bytes]) {
        let mut reply = self.reply();
        reply.array(keys.len());
        keys.iter().for_each(|key| reply.bulk(key));
    }

    pub(super) async fn scan(&mut self, arguments: &[Bytes]) -> Outcome {
        let bucket = self.bucket()?;
        let cursor = unsigned(&arguments[1]).ok_or(Fault::error("ERR invalid cursor"))?;
        let (mut pattern, mut count, mut has_type) = (None, SCAN_COUNT, true);
        let mut options = arguments[2..].iter();
        while let Some(option) = options.next() {
            let value = options.next().ok_or(Fault::SYNTAX)?;
            if is(option, "count") {
                let number = integer_argument(value)?;
                count = usize::try_from(number).ok().filter(|count| *count > 0).ok_or(Fault::SYNTAX)?;
            } else if is(option, "match") {
                pattern = Some(value);
            } else if is(option, "type") {
                has_type = is(value, "string");
            } else {
                return Err(Fault::SYNTAX);
            }
        }
        let tenant = self.tenant_name();
        let after = match cursor {
            0 => None,
            cursor => Some(self.shared.cursors.after(&tenant, self.database, cursor).ok_or_else(|| {
                Fault::from(format!("ERR cursor {cursor} is not known any more; start the scan again with 0"))
            })?),
        };
        let page = bucket.scan(after, count.min(SCAN_COUNT_MAX)).await?;
        let matches = |key: &Bytes| has_type && pattern.is_none_or(|pattern| glob::matches(pattern, key));
        let found: Vec<Bytes> = page.keys.into_iter().filter(matches).collect();
        let next = page.after.map_or(0, |after| self.shared.cursors.number(&tenant, self.database, &after));
        self.reply().array(2);
        self.reply().bulk_of(next);
        self.reply_keys(&found);
        Ok(())
    }

    pub(super) async fn dbsize(&mut self) -> Outcome {
        let count = self.bucket()?.count().await?;
        self.reply().integer(count.cast_signed());
        Ok(())
    }

    pub(super) async fn random_key(&mut self) -> Outcome {
        let key = self.bucket()?.random().await?;
        self.reply().bulk_or_null(key.as_deref());
        Ok(())
    }

    pub(super) async fn flush_db(&mut self, arguments: &[Bytes]) -> Outcome {
        check_flush(arguments)?;
        self.bucket()?.clear().await?;
        self.reply().ok();
        Ok(())
    }

    /// Clears every database that the user may use; one without a bucket has no keys.
    pub(super) async fn flush_all(&mut self, arguments: &[Bytes]) -> Outcome {
        check_flush(arguments)?;
        let Some(user) = self.user.clone() else { return Err(Fault::error("NOAUTH Authentication required.")) };
        self.bucket()?.clear().await?;
        let present = self.database;
        for database in (0..self.shared.host.databases()).filter(|database| *database != present) {
            if let Ok(bucket) = self.shared.host.select(&user, database) {
                bucket.clear().await?;
            }
        }
        self.reply().ok();
        Ok(())
    }

    /// There are no replicas to wait for.
    pub(super) fn wait(&mut self, arguments: &[Bytes]) -> Outcome {
        integer_argument(&arguments[1])?;
        timeout(&arguments[2])?;
        self.reply().integer(0);
        Ok(())
    }

    /// Waits until what was written is synced to disk. The number of replicas that have it is always 0.
    pub(super) async fn wait_aof(&mut self, arguments: &[Bytes]) -> Outcome {
        let local = integer_argument(&arguments[1])?;
        if !(0..=1).contains(&local) {
            return Err(Fault::error("ERR value is out of range, must be between 0 and 1"));
        }
        if integer_argument(&arguments[2])? < 0 {
            return Err(Fault::error("ERR value is out of range, must be positive"));
        }
        let limit = timeout(&arguments[3])?;
        let bucket = self.bucket()?;
        let synced = match local {
            0 => 0,
            _ => tokio::time::timeout(limit, bucket.synced()).await.unwrap_or(Ok(0))?,
        };
        let mut reply = self.reply();
        reply.array(2);
        reply.integer(synced.into());
        reply.integer(0);
        Ok(())
    }
}

fn check_flush(arguments: &[Bytes]) -> Outcome {
    match &arguments[1..] {
        [] => Ok(()),
        [mode] if is(mode, "sync") || is(mode, "async") => Ok(()),
        _ => Err(Fault::SYNTAX),
    }
}

fn timeout(argument: &[u8]) -> Result<Duration, Fault> {
    let milliseconds =
        crate::resp::number::integer(argument).ok_or(Fault::error("ERR timeout is not an integer or out of range"))?;
    match u64::try_from(milliseconds) {
        Err(_) => Err(Fault::error("ERR timeout is negative")),
        Ok(0) => Ok(WAIT_MAX),
        Ok(milliseconds) => Ok(Duration::from_millis(milliseconds).min(WAIT_MAX)),
    }
}
