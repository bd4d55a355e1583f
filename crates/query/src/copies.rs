//! The memory of results on their way to clients that read slowly. The rows of queries that ask the same lie in memory
//! once, but each client gets a text of its own.

use std::sync::Arc;
use std::time::Duration;

use millstream_types::{Grant, MemoryBudget, TenantId};

/// Copies may take one in this many bytes of the memory budget, all tenants together.
const PART: u64 = 4;
/// The memory of its connection covers a copy of this size.
const FREE_BYTES: usize = 4 << 10;
/// Pause between two attempts to get memory.
const PAUSE: Duration = Duration::from_millis(20);

/// The memory that clients' copies of results draw on.
#[derive(Debug, Clone)]
pub struct CopyMemory(MemoryBudget);

impl CopyMemory {
    pub(crate) fn of(memory: &MemoryBudget) -> Self {
        Self(memory.share(memory.setting(), memory.limit_bytes() / PART))
    }

    /// Waits until there is memory for a copy of `size_bytes` for a client of `tenant`; `None` for a small one, which needs
    /// none. Meanwhile results stay where they are, and the query's rule for slow clients holds.
    pub async fn take(&self, tenant: &TenantId, size_bytes: usize) -> Option<Arc<Grant>> {
        if size_bytes <= FREE_BYTES {
            return None;
        }
        // What is larger than all copies may be goes alone.
        let bytes = (size_bytes as u64).min(self.0.limit_bytes());
        loop {
            if let Some(grant) = self.0.take_for(tenant, bytes) {
                return Some(Arc::new(grant));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_copy_waits_until_another_of_its_tenant_is_gone_and_not_for_other_tenants() {
        let copies = CopyMemory::of(&MemoryBudget::new("memory.budget_bytes", 400_000));
        let [one, other] = ["one", "other"].map(|name| TenantId::new(name).unwrap());
        assert!(copies.take(&one, FREE_BYTES).await.is_none());
        let first = copies.take(&one, 60_000).await.unwrap();
        assert!(copies.take(&one, 60_000).now_or_never().is_none(), "a tenant takes no more than it leaves free");
        assert!(copies.take(&other, 30_000).await.is_some());
        drop(first);
        assert!(copies.take(&one, 60_000).await.is_some());
    }
}
