//! Messages on their way from a device into the log: one part for all adapters.
//!
//! An adapter has one [`Uplink`], and each of its connections that stays an [`UplinkSession`] on it. A connection appends what
//! its device sends and goes on reading; the session keeps what the log has not answered for yet, in the order in which it
//! came, says when the connection has to stop reading, and how long the oldest may still take.
//!
//! Not here: admission (`ingest`); packets and acknowledgements (the adapters).

mod in_flight;
mod session;

use std::sync::Arc;
use std::time::Duration;

use millstream_http::Problem;
use millstream_log::{Appended, Error, Reply};
use millstream_types::{MonotonicClock, Principal, WallClock};
use tokio::time::timeout;

use crate::commands::Commands;
use crate::ingest::{AdmittedRun, Envelope, Ingest, Message};
use crate::metrics::AdapterMetrics;
use crate::provisioning::Provisioning;
use crate::refusal::{not_accepted_in_time, not_taken, unknown_tenant};
use crate::sender::DeviceAddress;
use crate::streams::{Streams, TenantStreams};
use crate::usage::Moment;

pub(crate) use in_flight::{Kept, Settled, Waits};
pub(crate) use session::UplinkSession;

/// One adapter's way into the log.
pub(crate) struct Uplink {
    pub(crate) ingest: Arc<Ingest>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) commands: Arc<Commands>,
    pub(crate) provisioning: Arc<Provisioning>,
    pub(crate) meters: Arc<AdapterMetrics>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) monotonic: Arc<dyn MonotonicClock>,
    pub(crate) patience: Patience,
}

/// Longest wait for the log's answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) limit: Duration,
    /// The setting that says so.
    pub(crate) setting: &'static str,
}

/// The cause for which messages are not in the log.
#[derive(Debug)]
pub(crate) enum Unsent {
    Refused(Problem),
    /// A topic of the tenant was deleted since it was resolved. The tenant's topics have been forgotten.
    TopicGone(Error),
}

impl From<Unsent> for Problem {
    fn from(unsent: Unsent) -> Self {
        match unsent {
            Unsent::Refused(problem) => problem,
            Unsent::TopicGone(error) => not_taken(&error),
        }
    }
}

impl Uplink {
    /// Returns the present.
    pub(crate) fn moment(&self) -> Moment {
        Moment { wall_ms: self.wall.now_ms(), monotonic: self.monotonic.now() }
    }

    /// Has messages of one device admitted, and `take` append them.
    pub(crate) fn offer<M: Message, R>(
        &self,
        envelope: &Envelope<'_>,
        run: &[M],
        streams: &TenantStreams,
        now: Moment,
        take: impl FnOnce(&AdmittedRun<'_>) -> Result<R, Error>,
    ) -> Result<R, Unsent> {
        match self.ingest.offer(envelope, run, streams, now, take).map_err(Unsent::Refused)? {
            Ok(taken) => Ok(taken),
            Err(error @ Error::UnknownTopic { .. }) => {
                self.streams.forget(&envelope.caller.tenant);
                Err(Unsent::TopicGone(error))
            }
            Err(error) => Err(Unsent::Refused(not_taken(&error))),
        }
    }

    /// The refusal of a message that the log does not take in time.
    pub(crate) fn not_in_time(&self) -> Problem {
        not_accepted_in_time(self.patience.setting, self.patience.limit)
    }

    /// Registers the device that `target` names, if it is unknown and its gateway `caller` may register it.
    pub(crate) async fn provision(&self, target: DeviceAddress<'_>, caller: &Principal) -> Result<(), Problem> {
        match self.ingest.to_provision(target, caller) {
            Some(device) => self.provisioning.edge_device(&caller.tenant, &caller.name, device).await,
            None => Ok(()),
        }
    }

    /// Resolves the tenant's topics; it creates them only for a message that `caller` may send.
    pub(crate) async fn resolve(
        &self,
        target: DeviceAddress<'_>,
        caller: &Principal,
    ) -> Result<Arc<TenantStreams>, Problem> {
        {
            let snapshot = self.ingest.registry.snapshot(&caller.tenant);
            let known = snapshot.state.tenant(&caller.tenant).ok_or_else(|| unknown_tenant(&caller.tenant))?;
            self.ingest.sender(known, target, caller)?;
        }
        self.streams.of(&caller.tenant).await.map_err(|error| not_taken(&error))
    }

    /// Has `offer` offer a message once its device is registered, if its gateway may register it, and the tenant's topics are
    /// resolved; again if a topic was deleted meanwhile.
    pub(crate) async fn resolve_and_offer<R>(
        &self,
        target: DeviceAddress<'_>,
        caller: &Principal,
        offer: impl Fn(&TenantStreams) -> Result<R, Unsent>,
    ) -> Result<(Arc<TenantStreams>, R), Problem> {
        self.provision(target, caller).await?;
        let mut streams = self.resolve(target, caller).await?;
        let mut offered = offer(&streams);
        if let Err(Unsent::TopicGone(_)) = offered {
            streams = self.resolve(target, caller).await?;
            offered = offer(&streams);
        }
        Ok((streams, offered?))
    }

    /// Waits for the log's answer to a message, as long as it may take.
    pub(crate) async fn judged(&self, verdict: Reply<Appended>) -> Result<(), Problem> {
        let judged = timeout(self.patience.limit, verdict).await.map_err(|_| self.not_in_time())?;
        judged.map(drop).map_err(|error| not_taken(&error))
    }
}
