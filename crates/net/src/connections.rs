//! The open connections of a listener: counted, and aborted when their time is up.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::metrics::{Counter, Gauge, Metrics};

/// Time in which a connection may end in order that gives its place to another.
const FAREWELL: Duration = Duration::from_secs(2);

/// The open connections of a listener.
#[derive(Debug)]
pub(crate) struct Connections {
    open: Mutex<Open>,
    ended: Notify,
    gauge: Gauge,
    refused: Counter,
    displaced: Counter,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    tasks: HashMap<u64, AbortHandle>,
}

impl Connections {
    pub(crate) fn new(name: &'static str, metrics: &Metrics) -> Self {
        let labels = [("listener", name)];
        Self {
            open: Mutex::default(),
            ended: Notify::new(),
            gauge: metrics.gauge("millstream_connections", "Open connections.", &labels),
            refused: metrics.counter(
                "millstream_connections_refused_total",
                "Connections that a limit of their listener refused.",
                &labels,
            ),
            displaced: metrics.counter(
                "millstream_connections_displaced_total",
                "Connections that were closed in favour of one of a tenant that has fewer.",
                &labels,
            ),
        }
    }

    /// Counts one more connection.
    pub(crate) fn place(self: &Arc<Self>) -> CountedConnection {
        let mut open = self.open.lock();
        open.next += 1;
        self.gauge.inc();
        CountedConnection { connections: self.clone(), id: open.next }
    }

    pub(crate) fn count_refused(&self) {
        self.refused.inc();
    }

    /// Drops a connection, where it is, in a while; until then it may end in order.
    pub(crate) fn end_soon(&self, id: u64) {
        self.displaced.inc();
        if let Some(task) = self.open.lock().tasks.get(&id).cloned() {
            tokio::spawn(async move {
                sleep(FAREWELL).await;
                task.abort();
            });
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.open.lock().tasks.len()
    }

    pub(crate) async fn none_left(&self) {
        loop {
            let ended = self.ended.notified();
            if self.open.lock().tasks.is_empty() {
                return;
            }
            ended.await;
        }
    }

    /// Drops every connection where it is.
    pub(crate) fn abort(&self) {
        let tasks: Vec<AbortHandle> = self.open.lock().tasks.values().cloned().collect();
        tasks.iter().for_each(AbortHandle::abort);
    }
}

/// A connection that counts until its task ends, however it ends.
pub(crate) struct CountedConnection {
    connections: Arc<Connections>,
    pub(crate) id: u64,
}

impl CountedConnection {
    /// Serves the connection in a task of its own.
    pub(crate) fn spawn(self, serving: impl Future<Output = ()> + Send + 'static) {
        let (connections, id) = (self.connections.clone(), self.id);
        // The task may end at once: it is entered before its end can remove it.
        let mut open = connections.open.lock();
        let task = tokio::spawn(async move {
            serving.await;
            drop(self);
        });
        open.tasks.insert(id, task.abort_handle());
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.connections.gauge.dec();
        let mut open = self.connections.open.lock();
        open.tasks.remove(&self.id);
        if open.tasks.is_empty() {
            self.connections.ended.notify_waiters();
        }
    }
}
