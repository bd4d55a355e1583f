//! The sender at the other end of a connection, and what it has sent.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use millstream_http::Problem;
use millstream_log::{Error, Reply};
use millstream_types::{Principal, TenantId};

use super::in_flight::{InFlight, Kept, Settled, Waits};
use super::{Unsent, Uplink};
use crate::commands::Response;
use crate::ingest::{AdmittedRun, Envelope, Message};
use crate::metrics::TenantMetrics;
use crate::refusal::unknown_tenant;
use crate::stream::Delivery;
use crate::streams::TenantStreams;
use crate::usage::Moment;

/// A connection's way into the log. `V` is the future of an answer, `W` the requests that wait for it.
pub(crate) struct UplinkSession<V, W> {
    uplink: Arc<Uplink>,
    who: Arc<Principal>,
    meter: Arc<TenantMetrics>,
    /// Topics of the sender's tenant; an anonymous sender has none before it names a tenant.
    streams: Option<Arc<TenantStreams>>,
    /// The tenant's topics have to be resolved again.
    are_streams_stale: bool,
    in_flight: InFlight<V, W>,
    /// Monotonic time at which the messages that are being handled arrived.
    now: Duration,
}

impl<V, W: Waits> UplinkSession<V, W> {
    pub(crate) fn new(uplink: Arc<Uplink>, who: Arc<Principal>, streams: Option<Arc<TenantStreams>>) -> Self {
        let (meter, now) = (uplink.meters.of(&who.tenant), uplink.monotonic.now());
        let in_flight = InFlight::new(uplink.patience.limit);
        Self { uplink, who, meter, streams, are_streams_stale: false, in_flight, now }
    }

    /// The principal that the sender acts for.
    pub(crate) fn who(&self) -> &Arc<Principal> {
        &self.who
    }

    pub(crate) fn tenant(&self) -> &TenantId {
        &self.who.tenant
    }

    pub(crate) fn meter(&self) -> &Arc<TenantMetrics> {
        &self.meter
    }

    pub(crate) fn streams(&self) -> Option<&Arc<TenantStreams>> {
        self.streams.as_ref()
    }

    /// Monotonic time at which the messages that are being handled arrived.
    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    /// Notes that messages arrive now.
    pub(crate) fn arrive(&mut self) {
        self.now = self.uplink.monotonic.now();
    }

    /// The time of the messages that are being handled.
    pub(crate) fn moment(&self) -> Moment {
        Moment { wall_ms: self.uplink.wall.now_ms(), monotonic: self.now }
    }

    /// Acts for another principal from now on. All that was sent before is answered for.
    pub(crate) fn turn_to(&mut self, who: Arc<Principal>, streams: Arc<TenantStreams>) {
        self.meter = self.uplink.meters.of(&who.tenant);
        (self.who, self.streams, self.are_streams_stale) = (who, Some(streams), false);
    }

    /// Finds the tenant's topics again, if one of them has been deleted.
    pub(crate) async fn refresh(&mut self) {
        if !self.are_streams_stale {
            return;
        }
        match self.uplink.streams.of(&self.who.tenant).await {
            Ok(streams) => (self.streams, self.are_streams_stale) = (Some(streams), false),
            Err(error) => tracing::warn!(%error, "the topics of a tenant cannot be opened"),
        }
    }

    /// Notes that one of the tenant's topics was deleted since they were resolved.
    pub(crate) fn forget_streams(&mut self) {
        self.uplink.streams.forget(&self.who.tenant);
        self.are_streams_stale = true;
    }

    /// Has messages of one device admitted, and `take` append them. `has_answer` says whether an answer of the log is to come.
    pub(crate) fn offer<M: Message, R>(
        &mut self,
        envelope: &Envelope<'_>,
        run: &[M],
        has_answer: bool,
        take: impl FnOnce(&AdmittedRun<'_>) -> Result<R, Error>,
    ) -> Result<R, Problem> {
        let streams = self.streams.as_ref().ok_or_else(|| unknown_tenant(&self.who.tenant))?;
        let offered = self.uplink.offer(envelope, run, streams, self.moment(), take);
        if let Err(Unsent::TopicGone(_)) = offered {
            self.are_streams_stale = true;
        }
        let taken = offered?;
        self.in_flight.appended(has_answer);
        Ok(taken)
    }

    /// Notes a message that was appended without [`UplinkSession::offer`].
    pub(crate) fn appended(&mut self, has_answer: bool) {
        self.in_flight.appended(has_answer);
    }

    /// Keeps requests until the log's answer.
    pub(crate) fn pend(&mut self, verdict: V, waits: W) {
        self.in_flight.push(verdict, waits, self.now);
    }

    /// Stops reading until there is room in the log again; true if it stops now. `wait` makes an answer of the wait for room.
    pub(crate) fn hold_back(&mut self, wait: impl FnOnce(Reply<()>) -> V) -> bool {
        if !self.in_flight.looks_for_room() {
            return false;
        }
        let Some(room) = self.uplink.streams.room() else { return false };
        self.arrive();
        self.in_flight.await_room(wait(room), self.now);
        true
    }

    /// True if nothing more should be read: the log has no room, or `messages_max` have no answer.
    pub(crate) fn is_full(&self, messages_max: usize) -> bool {
        self.in_flight.is_full(messages_max)
    }

    /// True if all that was sent is answered for.
    pub(crate) fn is_settled(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Number of messages without an answer.
    pub(crate) fn messages(&self) -> usize {
        self.in_flight.messages()
    }

    /// True if a request is waiting that later ones must not overtake.
    pub(crate) fn has_first(&self) -> bool {
        self.in_flight.has_first()
    }

    /// Time left for the log to answer the oldest request; `None` if nothing waits.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.in_flight.patience(self.uplink.monotonic.now())
    }

    /// Takes the oldest requests if their answer has taken too long, with the problem to refuse them with.
    pub(crate) fn take_overdue(&mut self) -> Option<(Kept<W>, Problem)> {
        let late = self.in_flight.take_overdue(self.uplink.monotonic.now())?;
        Some((late, self.uplink.not_in_time()))
    }

    /// Time since `started`.
    pub(crate) fn took(&self, started: Duration) -> Duration {
        self.uplink.monotonic.now().saturating_sub(started)
    }

    /// Counts a message that the log has, and passes an answer to a command on to the one who waits for it.
    pub(crate) fn accepted(
        &self,
        delivery: Delivery,
        payload_bytes: usize,
        took: Duration,
        reply: Option<(String, Response)>,
    ) {
        if let Some((correlation_id, response)) = reply {
            self.uplink.commands.responded(&self.who.tenant, &correlation_id, response);
        }
        self.uplink.ingest.count_accepted(&self.meter, delivery, payload_bytes, took);
    }

    /// Counts a message that is refused.
    pub(crate) fn refused(&self, delivery: Delivery, payload_bytes: usize, problem: &Problem) {
        self.uplink.ingest.count_refused(&self.meter, delivery, problem, payload_bytes, Duration::ZERO);
    }

    /// Counts the messages without an answer as refused: their sender goes.
    pub(crate) fn count_unanswered(&self) {
        self.uplink.ingest.totals.rejected.fetch_add(self.in_flight.messages() as u64, Ordering::Relaxed);
    }
}

impl<V, W> UplinkSession<V, W>
where
    V: Future + Unpin,
    W: Waits,
{
    /// Polls for the answer to the oldest. Pending if there is none yet, or nothing waits.
    pub(crate) fn poll_settled(&mut self, cx: &mut Context<'_>) -> Poll<Settled<W, V::Output>> {
        self.in_flight.poll_settled(cx)
    }
}
