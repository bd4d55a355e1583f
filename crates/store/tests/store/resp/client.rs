//! A client of a session without a socket. Requests are lines, in Redis's quoting.

use std::sync::Arc;

use bytes::BytesMut;
use millstream_store::resp::{RespSession, SessionProgress, Shared};
use millstream_types::MemoryBudget;
use tokio::runtime::Runtime;

use super::memory::{MemoryBucket, MemoryHost};

/// A host, and what its sessions share.
pub(crate) struct Server {
    pub(crate) host: Arc<MemoryHost>,
    pub(crate) shared: Arc<Shared>,
    runtime: Arc<Runtime>,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self::with(MemoryHost::stopped(false))
    }

    pub(crate) fn with(host: MemoryHost) -> Self {
        Self::with_memory(host, MemoryBudget::new("memory.budget_bytes", u64::MAX))
    }

    /// A server whose messages draw on `memory`.
    pub(crate) fn with_memory(host: MemoryHost, memory: MemoryBudget) -> Self {
        let host = Arc::new(host);
        let shared = Shared::with_limits(Arc::clone(&host) as Arc<_>, u64::MAX, memory);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        Self { host, shared, runtime: Arc::new(runtime) }
    }

    pub(crate) fn bucket(&self) -> &MemoryBucket {
        &self.host.buckets[0]
    }

    pub(crate) fn client(&self) -> Client {
        let session =
            RespSession::new(&self.shared, "10.1.2.3:40000".parse().unwrap(), "127.0.0.1:6379".parse().unwrap());
        Client { session, input: BytesMut::new(), runtime: Arc::clone(&self.runtime), is_closed: false }
    }
}

pub(crate) struct Client {
    session: RespSession,
    input: BytesMut,
    runtime: Arc<Runtime>,
    pub(crate) is_closed: bool,
}

impl Client {
    /// Sends bytes and returns all that comes back, messages included.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.input.extend_from_slice(bytes);
        let mut received = Vec::new();
        loop {
            let progress = self.runtime.block_on(self.session.process(&mut self.input));
            self.is_closed |= !self.session.is_alive();
            self.take_messages(&mut received);
            match progress {
                SessionProgress::Read => return received,
                SessionProgress::Write => {}
                SessionProgress::Close => {
                    self.is_closed = true;
                    return received;
                }
            }
        }
    }

    /// Sends a line and returns the reply, with `\r\n` shown as a space.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        let reply = String::from_utf8_lossy(&self.send(format!("{line}\r\n").as_bytes())).into_owned();
        reply.trim_end().replace("\r\n", " ")
    }

    /// Checks the replies to lines, one after the other.
    #[track_caller]
    pub(crate) fn check(&mut self, dialogue: &[(&str, &str)]) {
        for (line, expected) in dialogue {
            assert_eq!(self.ask(line), *expected, "{line}");
        }
    }

    /// `true` if the connection shall close. Sends no request.
    pub(crate) fn look_closed(&mut self) -> bool {
        !self.session.is_alive()
    }

    /// Appends the output and all messages to `received`, as a connection sends them.
    fn take_messages(&mut self, received: &mut Vec<u8>) {
        loop {
            let long = self.session.take_messages();
            let is_last = long.is_none() && self.session.output().len() < 64 << 10;
            received.append(self.session.output());
            received.extend(long.into_iter().flatten());
            if is_last {
                return;
            }
        }
    }

    /// Messages that have come without a request.
    pub(crate) fn messages(&mut self) -> String {
        self.ask("")
    }
}
