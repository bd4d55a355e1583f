//! One connection: a task that reads, answers and sends, all in one place.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use millstream_amqp::{condition, heartbeat};
use millstream_net::{Login, PendingLogin, Shutdown};
use millstream_types::WallClock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use super::adapter::AmqpAdapter;
use super::command_tasks::CommandTasks;
use super::connection_figures::{ConnectionFigures, EngineCounts};
use super::engine::Engine;
use super::fault::Fault;
use super::framing::AmqpIo;
use super::handshake::{LOGIN_FRAME_MAX_BYTES, is_anonymous, log_in};
use crate::connection_table::{ClientProtocol, ClientRole, ConnectionFacts, LiveConnection};
use crate::framed_io::Read;

/// Time after which memory that was short is looked for again.
const RETRY: Duration = Duration::from_millis(500);
/// Time for a client to close its side once it was told of the end.
const LEAVE_TIME: Duration = Duration::from_secs(1);

/// Serves a client until it goes or commits a fault.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    socket: S,
    peer: SocketAddr,
    adapter: Arc<AmqpAdapter>,
    shutdown: Shutdown,
    pending: PendingLogin,
) {
    let mut io = AmqpIo::new(socket, adapter.buffers.clone(), LOGIN_FRAME_MAX_BYTES);
    let entered = tokio::select! {
        biased;
        entered = Box::pin(log_in(&mut io, &adapter, peer, &pending)) => entered,
        () = shutdown.clone().begun() => Err(Fault::ShuttingDown),
    };
    let login = match entered {
        Ok(login) => login,
        Err(fault) => {
            tracing::info!(%peer, why = %fault, "amqp: connection closed before its login");
            io.close().await;
            return;
        }
    };
    io.allow(&login.principal.tenant, adapter.config.frame_max_bytes as usize);
    let figures = Arc::new(ConnectionFigures::default());
    let live = enter(&adapter, &login, peer, Arc::clone(&figures));
    let engine = Engine::new(Arc::clone(&adapter), login);
    let mut connection = Connection { io, engine, commands: CommandTasks::default(), adapter, live, figures };
    let ended = connection.run(shutdown, pending).await;
    connection.engine.end();
    if let Err(fault) = ended {
        let name = &connection.engine.login().principal.name;
        let container = connection.engine.container_id().unwrap_or_default();
        tracing::info!(%peer, name, container, why = %fault, "amqp: connection closed");
        if let Some(condition) = fault.condition() {
            connection.engine.tell(condition, &fault.to_string(), &mut connection.io.out);
        }
    }
    // If nothing can be sent any more, there is nobody to be told.
    let _ = connection.io.flush(LEAVE_TIME).await;
    connection.io.close().await;
}

/// Enters an application that is let in into the table of connections.
fn enter(adapter: &AmqpAdapter, login: &Login, address: SocketAddr, figures: Arc<ConnectionFigures>) -> LiveConnection {
    let facts = ConnectionFacts {
        protocol: ClientProtocol::Amqp,
        address,
        role: ClientRole::Application,
        login: (!is_anonymous(login)).then(|| login.principal.name.as_str().into()),
        device: None,
    };
    adapter.connection_table.enter(&login.principal.tenant, facts, figures)
}

struct Connection<S> {
    io: AmqpIo<S>,
    engine: Engine,
    commands: CommandTasks,
    adapter: Arc<AmqpAdapter>,
    live: LiveConnection,
    figures: Arc<ConnectionFigures>,
}

/// The causes for which a connection ends that do not come over it.
fn end(
    shutdown: Shutdown,
    pending: PendingLogin,
    live: &LiveConnection,
    login: &Login,
    wall: &dyn WallClock,
) -> impl Future<Output = Fault> + use<> {
    let ended = live.ended();
    let revocation = login.revocation.clone();
    let left_ms = login.expires_ms.map(|expires_ms| expires_ms.saturating_sub(wall.now_ms()));
    let lasts = left_ms.map(|left_ms| Duration::from_millis(u64::try_from(left_ms).unwrap_or(0)));
    async move {
        let expired = async {
            match lasts {
                Some(lasts) => tokio::time::sleep(lasts).await,
                None => std::future::pending().await,
            }
        };
        let revoked = async {
            match revocation {
                Some(revocation) => revocation.revoked().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shutdown.begun() => Fault::ShuttingDown,
            () = ended => Fault::refused(condition::CONNECTION_FORCED, "an operator has ended the connection"),
            () = revoked => Fault::refused(condition::UNAUTHORIZED_ACCESS, "the login has ended"),
            () = expired => Fault::refused(condition::UNAUTHORIZED_ACCESS, "the token of the login has expired"),
            () = pending.displaced() => Fault::refused(
                condition::RESOURCE_LIMIT_EXCEEDED,
                "the listener is full, and of its tenants this one has most connections",
            ),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Notes what the table of connections shows; once for all that came together.
    fn note_figures(&self) {
        self.figures.store(EngineCounts::of(&self.engine.sessions));
        if let Some(container_id) = self.engine.container_id() {
            self.live.set_client_id(container_id);
        }
    }

    /// Serves the client until it goes.
    async fn run(&mut self, shutdown: Shutdown, pending: PendingLogin) -> Result<(), Fault> {
        let mut ended = pin!(end(shutdown, pending, &self.live, self.engine.login(), &*self.adapter.wall));
        let bell = Arc::clone(self.engine.bell());
        let config = self.adapter.config.clone();
        let (idle, frame_limit) =
            (Duration::from_millis(config.idle_timeout_ms.into()), Duration::from_millis(config.frame_timeout_ms));
        let (mut heard, mut said) = (Instant::now(), Instant::now());
        loop {
            if !self.io.out.is_empty() {
                self.io.flush(self.adapter.write_limit()).await?;
                said = Instant::now();
            }
            if self.engine.is_closed() {
                return Ok(());
            }
            if let Some(tenant) = self.engine.resolves().cloned() {
                let resolved = self.adapter.streams.of(&tenant).await;
                self.engine.resolved(resolved.err().map(|error| error.to_string()));
            }
            let engine = &mut self.engine;
            self.io.take_held(&mut |bytes: &[u8], out: &mut Vec<u8>| engine.take(bytes, out))?;
            self.engine.pump(&mut self.io.out);
            for new in self.engine.take_commands() {
                self.commands.begin(new, &self.adapter, self.engine.login());
            }
            if !self.io.out.is_empty() || self.engine.resolves().is_some() {
                continue;
            }
            self.note_figures();
            let mut due = heard + idle;
            if let Some(heartbeat) = self.engine.heartbeat() {
                due = due.min(said + heartbeat);
            }
            if self.engine.is_starved() {
                due = due.min(Instant::now() + RETRY);
            }
            if let Some(begun) = self.io.begun() {
                due = due.min(Instant::from_std(begun) + frame_limit);
            }
            let engine = &mut self.engine;
            tokio::select! {
                biased;
                fault = &mut ended => return Err(fault),
                read = self.io.read(|bytes: &[u8], out: &mut Vec<u8>| engine.take(bytes, out)) => {
                    if read? == Read::End {
                        return Ok(());
                    }
                    heard = Instant::now();
                }
                ended = self.commands.next() => {
                    let (delivery, outcome) = ended?;
                    self.engine.command_ended(delivery, &outcome, &mut self.io.out);
                }
                () = bell.rung() => self.engine.rung(),
                () = sleep_until(due) => {
                    let now = Instant::now();
                    if self.io.begun().is_some_and(|begun| begun.elapsed() >= frame_limit) {
                        return Err(Fault::SlowFrame { limit: frame_limit });
                    }
                    if now >= heard + idle {
                        return Err(Fault::Silent { limit: idle });
                    }
                    self.engine.retry();
                    if self.engine.heartbeat().is_some_and(|heartbeat| now >= said + heartbeat) {
                        heartbeat(&mut self.io.out);
                    }
                }
            }
        }
    }
}
