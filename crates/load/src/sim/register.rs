//! Registers simulated devices over several connections, because each change waits for a disk sync.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::SimArgs;
use crate::Error;
use crate::registry::RegistryClient;
use crate::target::{Scheme, ServerTarget};

const CONNECTIONS: u64 = 32;

/// Timeout of one request to the registry.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn all(args: &SimArgs, stop: &CancellationToken, mut done: impl FnMut(u64)) -> Result<(), Error> {
    args.check()?;
    let target = ServerTarget::parse("registry-url", Scheme::Http, &args.registry_url, TIMEOUT)?;
    RegistryClient::new(target.clone(), args.registry_token.clone()).tenant(&args.tenant).await?;

    let args = Arc::new(args.clone());
    let next = Arc::new(AtomicU64::new(0));
    let (registered, mut count) = mpsc::channel(CONNECTIONS as usize);
    let mut connections = JoinSet::new();
    for _ in 0..CONNECTIONS.min(args.devices) {
        let registry = RegistryClient::new(target.clone(), args.registry_token.clone());
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
    mut registry: RegistryClient,
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
            // Stops the other connections.
            next.store(args.devices, Ordering::Relaxed);
            return Err(error);
        }
        if registered.send(()).await.is_err() {
            break;
        }
    }
    Ok(())
}
