//! One connection: a task that reads, works off what came, and sends what is to be answered, all in one place.

use std::future::{Future as _, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use millstream_mqtt::reason;
use millstream_mqtt::to_client::disconnect;
use millstream_net::PendingLogin;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;

use super::adapter::MqttAdapter;
use super::broker_deliver::More;
use super::client::Client;
use super::disconnect::{CONNECT_MAX_BYTES, DisconnectCause};
use super::framing::FramedIo;
use super::handshake::{AdmittedClient, Entrance, Peer, admit};
use super::signals::{Signals, end};
use super::wake_flag::WakeFlag;
use crate::connection_table::LiveConnection;
use crate::framed_io::Read;

/// Longest rest between two looks at what is due.
const REST_MAX: Duration = Duration::from_secs(3_600);
/// Reading and the log's verdicts are looked at first, except for one look in this many: a client that always has more
/// to say does not keep its connection from all else.
const LOOKS: u32 = 16;
/// Time after which messages that could not be read are asked for again.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// Serves a client until it goes or commits a fault. One that is refused is turned away as soon as it has said its name.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    socket: S,
    peer: Peer,
    adapter: Arc<MqttAdapter>,
    signals: Signals,
    entrance: Entrance,
) {
    let connect_max_bytes = adapter.config.packet_max_bytes.min(CONNECT_MAX_BYTES);
    let mut io = FramedIo::new(socket, adapter.buffers.clone(), connect_max_bytes);
    match Box::pin(admit(&mut io, &adapter, &peer, &entrance)).await {
        Ok(Some(AdmittedClient { client, live, keep_alive_s })) => {
            let heard = client.uplink.now();
            let login = match entrance {
                Entrance::Admitted(login) => Some(login),
                Entrance::Refused(_) => None,
            };
            let mut connection =
                ClientConnection { io, client, live, signals, login, keep_alive_s, heard, reader: WakeFlag::default() };
            let fault = connection.run().await.err().map(|fault| connection.client.with_own_limit(fault));
            connection.client.turn_to_will(fault.as_ref()).await;
            connection.client.execute_will(fault.as_ref());
            if let Some(fault) = fault {
                if matches!(fault, DisconnectCause::ShuttingDown) {
                    // The client's messages are still acknowledged. If that fails, the connection ends all the same.
                    let _ = connection.drain(Duration::from_secs(1)).await;
                }
                tracing::info!(
                    peer = %peer.address,
                    device = connection.name(),
                    why = %fault,
                    "mqtt: connection closed"
                );
                connection.tell(&fault).await;
            }
            connection.client.release_all_commands();
            connection.client.uplink.count_unanswered();
            connection.io.close().await;
        }
        Ok(None) => io.close().await,
        Err(fault) => {
            tracing::info!(peer = %peer.address, why = %fault, "mqtt: connection closed before its login");
            io.close().await;
        }
    }
}

/// Events that wake a connection.
enum ConnectionEvent {
    RegistryChanged,
    /// The log has answered for messages.
    Settled,
    /// The log is behind: the client is not listened to.
    HeldBack,
    /// A command is to be sent.
    Sent,
    /// There is something in the session to be sent.
    Rung,
    /// A deadline may have passed by now.
    Due,
    Read(Read),
}

struct ClientConnection<S> {
    io: FramedIo<S>,
    client: Client,
    live: LiveConnection,
    signals: Signals,
    login: Option<PendingLogin>,
    keep_alive_s: u16,
    /// Monotonic time at which the last packet came.
    heard: Duration,
    /// The line, as far as it is read.
    reader: WakeFlag,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientConnection<S> {
    fn name(&self) -> &str {
        &self.client.uplink.who().name
    }

    /// Serves the client until it goes. What is waited for beside its packets stays arranged from one to the next.
    async fn run(&mut self) -> Result<(), DisconnectCause> {
        let Signals { shutdown, mut registry } = self.signals.clone();
        let mut stopped = pin!(end(shutdown, self.live.ended(), self.login.take()));
        let mut timer = pin!(sleep(self.rest()));
        let (mut is_set_for_waits, mut looks) = (false, 0_u32);
        let mut rare = WakeFlag::default();
        loop {
            self.client.is_stirred = true;
            let bell = self.client.broker_client.as_ref().map(|broker_client| Arc::clone(&broker_client.link.bell));
            let mut rung = pin!(async move {
                match &bell {
                    Some(bell) => bell.notified().await,
                    None => pending().await,
                }
            });
            let mut changed = pin!(async {
                if registry.changed().await.is_err() {
                    pending().await
                }
            });
            loop {
                if self.work_off().await? == Read::End {
                    return Ok(());
                }
                // Once it is set for what waits, it comes before anything that begins to wait later is due, and is put
                // off if it is too early. To set it anew for each message would cost more.
                let waits = self.waits();
                if timer.is_elapsed() || (waits && !is_set_for_waits) {
                    let due = tokio::time::Instant::now() + self.rest();
                    if due < timer.deadline() || timer.is_elapsed() {
                        timer.as_mut().reset(due);
                    }
                    is_set_for_waits = waits;
                }
                looks = looks.wrapping_add(1);
                let was_reading = self.is_reading();
                let event = poll_fn(|cx| {
                    let mut look = |cx: &mut Context<'_>| {
                        if let Poll::Ready(cause) = stopped.as_mut().poll(cx) {
                            return Poll::Ready(Err(cause));
                        }
                        if changed.as_mut().poll(cx).is_ready() {
                            return Poll::Ready(Ok(ConnectionEvent::RegistryChanged));
                        }
                        let is_rung = rung.as_mut().poll(cx).map(|()| Ok(ConnectionEvent::Rung));
                        if is_rung.is_ready() {
                            is_rung
                        } else {
                            timer.as_mut().poll(cx).map(|()| Ok(ConnectionEvent::Due))
                        }
                    };
                    if looks.is_multiple_of(LOOKS)
                        && let Poll::Ready(event) = rare.poll(cx, &mut look)
                    {
                        return Poll::Ready(event);
                    }
                    let worked = self.poll_work(cx);
                    if worked.is_ready() { worked } else { rare.poll(cx, &mut look) }
                });
                match event.await? {
                    ConnectionEvent::RegistryChanged => {
                        recheck(&mut self.client)?;
                        // The secret may end sooner than before.
                        let due = tokio::time::Instant::now() + self.rest();
                        if due < timer.deadline() {
                            timer.as_mut().reset(due);
                        }
                        break;
                    }
                    ConnectionEvent::Rung => break,
                    // While it was not read, it could not be heard.
                    ConnectionEvent::Settled if !was_reading => {
                        self.heard = self.client.adapter.uplink.monotonic.now();
                        self.io.excuse();
                    }
                    ConnectionEvent::Settled | ConnectionEvent::HeldBack | ConnectionEvent::Sent => {}
                    ConnectionEvent::Due => self.due()?,
                    ConnectionEvent::Read(Read::Some) => self.heard = self.client.uplink.now(),
                    ConnectionEvent::Read(Read::End) => return Ok(()),
                }
            }
        }
    }

    /// Sends what is there to be sent and takes what has been read before; the end if the client has said good-bye.
    async fn work_off(&mut self) -> Result<Read, DisconnectCause> {
        let write_limit = Duration::from_millis(self.client.adapter.config.write_timeout_ms);
        loop {
            self.io.flush(write_limit).await?;
            self.client.flushed();
            if self.client.end.is_some() {
                self.drain(write_limit).await?;
                return Ok(Read::End);
            }
            self.deliver().await?;
            self.io.flush(write_limit).await?;
            self.client.uplink.refresh().await;
            if self.client.turns_to.is_some() && self.client.uplink.is_settled() {
                self.client.turn().await?;
                self.live.move_to(self.client.uplink.tenant());
                self.client.note_reserved();
            }
            if self.client.is_provisioning() && self.client.uplink.is_settled() {
                self.client.provision().await;
            }
            if self.io.has_held() && !self.client.is_full() && !self.client.hold_back() {
                let client = &mut self.client;
                self.io.take_held(&mut |bytes: &[u8], out: &mut Vec<u8>| client.take(bytes, out))?;
                if !self.io.out.is_empty()
                    || self.client.end.is_some()
                    || self.client.turns_to.is_some()
                    || self.client.is_provisioning()
                {
                    continue;
                }
            }
            return Ok(Read::Some);
        }
    }

    /// Tells the client what the log or a command brings, or reads what it sends.
    fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<Result<ConnectionEvent, DisconnectCause>> {
        let is_reading = self.is_reading();
        let Self { io, client, reader, .. } = self;
        if let Poll::Ready(settled) = client.poll_verdicts(cx, &mut io.out) {
            return Poll::Ready(settled.map(|()| ConnectionEvent::Settled));
        }
        if let Poll::Ready(sent) = client.poll_commands(cx, &mut io.out) {
            return Poll::Ready(sent.map(|()| ConnectionEvent::Sent));
        }
        if !is_reading {
            return Poll::Pending;
        }
        if client.hold_back() {
            return Poll::Ready(Ok(ConnectionEvent::HeldBack));
        }
        let mut take = |bytes: &[u8], out: &mut Vec<u8>| client.take(bytes, out);
        reader.poll(cx, |cx| io.poll_read(cx, &mut take)).map_ok(ConnectionEvent::Read)
    }

    /// Sends what waits for the client, a burst at most.
    async fn deliver(&mut self) -> Result<(), DisconnectCause> {
        if !std::mem::take(&mut self.client.is_stirred) {
            return Ok(());
        }
        let more = self.client.deliver(&mut self.io.out, &mut self.io.behind)?;
        let Some(broker_client) = &self.client.broker_client else { return Ok(()) };
        if more == More::Unread && !broker_client.link.load().await? {
            broker_client.link.ring_after(READ_AGAIN);
            return Ok(());
        }
        if more != More::No {
            broker_client.link.bell.notify_one();
        }
        Ok(())
    }

    /// True if a deadline shorter than the keep alive is pending.
    fn waits(&self) -> bool {
        !self.client.uplink.is_settled() || self.io.begun().is_some() || self.client.awaits_commands()
    }

    /// Time until the next deadline. While a wait is pending, it is at most the shortest timeout, because another wait
    /// may begin in the meantime.
    fn rest(&self) -> Duration {
        let config = &self.client.adapter.config;
        let shortest_ms = config.packet_timeout_ms.min(config.send_timeout_ms).min(config.command_ack_timeout_ms);
        let soonest = self.waits().then(|| Duration::from_millis(shortest_ms));
        let packet = self
            .io
            .begun()
            .filter(|_| self.is_reading())
            .map(|begun| Duration::from_millis(config.packet_timeout_ms).saturating_sub(begun.elapsed()));
        let quiet = self.quiet_max().map(|limit| limit.saturating_sub(self.quiet()));
        let quiet = quiet.filter(|_| self.is_reading());
        let secret = self.client.secret_lasts();
        let command = self.client.command_patience();
        let all = [soonest, packet, quiet, self.client.uplink.patience(), secret, command];
        all.into_iter().flatten().fold(REST_MAX, Duration::min)
    }

    /// While the log is behind, the socket is not read.
    fn is_reading(&self) -> bool {
        !self.client.is_full() && !self.io.has_held()
    }

    /// Time since the last packet.
    fn quiet(&self) -> Duration {
        self.client.adapter.uplink.monotonic.now().saturating_sub(self.heard)
    }

    fn quiet_max(&self) -> Option<Duration> {
        (self.keep_alive_s > 0).then(|| Duration::from_secs(self.keep_alive_s.into()) * 3 / 2)
    }

    fn due(&mut self) -> Result<(), DisconnectCause> {
        let limit = Duration::from_millis(self.client.adapter.config.packet_timeout_ms);
        if self.is_reading() && self.io.begun().is_some_and(|begun| begun.elapsed() >= limit) {
            return Err(DisconnectCause::SlowPacket { limit });
        }
        if self.is_reading() && self.quiet_max().is_some_and(|limit| self.quiet() >= limit) {
            return Err(DisconnectCause::KeepAlive { keep_alive_s: self.keep_alive_s });
        }
        if self.client.secret_lasts() == Some(Duration::ZERO) {
            recheck(&mut self.client)?;
        }
        self.client.withdraw_commands();
        self.client.give_up(&mut self.io.out)
    }

    /// The client has said good-bye: what it has sent is still acknowledged.
    async fn drain(&mut self, write_limit: Duration) -> Result<(), DisconnectCause> {
        while let Some(patience) = self.client.uplink.patience() {
            let Self { io, client, .. } = self;
            tokio::select! {
                settled = poll_fn(|cx| client.poll_verdicts(cx, &mut io.out)) => settled?,
                () = sleep(patience) => client.give_up(&mut io.out)?,
            }
        }
        // It has closed its side, perhaps all of it.
        let _ = self.io.flush(write_limit).await;
        Ok(())
    }

    async fn tell(&mut self, fault: &DisconnectCause) {
        if let Some(code) = fault.reason() {
            let Client { version, takes, .. } = self.client;
            disconnect(&mut self.io.out, version, code, &fault.to_string(), takes.packet_max_bytes);
        }
        // If nothing can be sent any more, there is nobody to be told.
        let _ = self.io.flush(Duration::from_secs(1)).await;
    }
}

/// Ends the connection of a device that may no longer be connected.
fn recheck(client: &mut Client) -> Result<(), DisconnectCause> {
    let refuse = |why: String| Err(DisconnectCause::refused(reason::NOT_AUTHORISED, why));
    let Some(login) = &client.login else { return client.recheck_stranger() };
    if let Err(problem) = client.adapter.check(client.uplink.who()) {
        return refuse(problem.text());
    }
    if !client.keeps_its_filters() {
        return refuse("the device may no longer use the private space as it does".to_owned());
    }
    let Some(renewed) = client.adapter.logins.renewed(login) else {
        return refuse(
            "the secret, certificate or token that the device has logged in with has expired, or no longer counts"
                .to_owned(),
        );
    };
    client.login = Some(renewed);
    client.look_at_authority();
    Ok(())
}
