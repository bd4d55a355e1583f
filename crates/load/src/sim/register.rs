//! Registers simulated devices, several at a time, because each change waits for a disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::SimArgs;
use crate::Error;
use crate::client::{Scheme, Target};
use crate::registry::Registry;

/// Connections to the registry.
const CONNECTIONS: u64 = 32;

/// How long the registry may take to answer.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn all(args: &SimArgs, stop: &CancellationToken, mut done: impl FnMut(u64)) -> Result<(), Error> {
    args.check()?;
    let target = Target::parse("registry-url", Scheme::Http, &args.registry_url, TIMEOUT)?;
    Registry::new(target.clone(), args.registry_token.clone()).tenant(&args.tenant).await?;

    let args = Arc::new(args.clone());
    let next = Arc::new(AtomicU64::new(0));
    let (registered, mut count) = mpsc::channel(CONNECTIONS as usize);
    let mut connections = JoinSet::new();
    for _ in 0..CONNECTIONS.min(args.devices) {
        let registry = Registry::new(target.clone(), args.registry_token.clone());
        connections.spawn(some(args.clone(), registry, next.clone(), registered.clone(), stop.clone()));
    }
    drop(registered);
    let mut total = 0;
    while count.recv().await.is_some() {
        total += 1;
        done(total);
    }
    while let Some(ended) = connections.join_next().await {
        ended.map_err(|_| Error::ThreadDied)??;
    }
    Ok(())
}

async fn some(
    args: Arc<SimArgs>,
    mut registry: Registry,
    next: Arc<AtomicU64>,
    registered: mpsc::Sender<()>,
    stop: CancellationToken,
) -> Result<(), Error> {
    while !stop.is_cancelled() {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= args.devices {
            break;
        }
        let device = args.device_id(number);
        let outcome = async {
            registry.device(&args.tenant, &device, json!({})).await?;
            registry.password(&args.tenant, &device, &args.password, args.secret).await
        };
        if let Err(error) = outcome.await {
            // The others need not go on.
            next.store(args.devices, Ordering::Relaxed);
            return Err(error);
        }
        if registered.send(()).await.is_err() {
            break;
        }
    }
    Ok(())
}
