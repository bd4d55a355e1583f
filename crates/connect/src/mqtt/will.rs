//! Admits a will of the private space when it is published. Its client has gone by then, perhaps for long.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millstream_http::Problem;
use millstream_types::Principal;

use super::last_will::LastWill;
use super::routing::{Receivers, check, publish_context, to_own};
use super::session_store::Upstream;
use super::topic::PropertyBag;
use super::unknown_devices::UnknownDevices;
use crate::ingest::{Envelope, Ingest, outcome_of};
use crate::metrics::{ProcessingOutcome, TenantMetrics};
use crate::refusal::unknown_tenant;
use crate::registry::PrivateRoute;
use crate::streams::TenantStreams;
use crate::usage::Moment;

/// A will that waits to be published; its client has gone.
pub(crate) struct PendingWill {
    pub(crate) will: LastWill,
    pub(super) ingest: Arc<Ingest>,
    pub(super) streams: Arc<TenantStreams>,
    pub(super) meter: Arc<TenantMetrics>,
    pub(super) who: Arc<Principal>,
    /// Largest payload of telemetry and events.
    pub(super) payload_max_bytes: usize,
}

impl PendingWill {
    /// Has `publish` do so if its device may still send, and tenant and device may use as much; it counts if that was
    /// done. `publish` gets what is to be appended together with it, if a rule takes its topic.
    pub(super) fn pass(
        &self,
        now: Moment,
        unknown_devices: &UnknownDevices,
        publish: impl FnOnce(Option<Upstream>) -> bool,
    ) -> Result<(), Problem> {
        let tenant = &self.who.tenant;
        let snapshot = self.ingest.registry.snapshot(tenant);
        let known = snapshot.state.tenant(tenant).ok_or_else(|| unknown_tenant(tenant))?;
        let item = self.will.as_item();
        match Receivers::of(known, &item) {
            Receivers::Stream(route) => return self.pass_routed(route, now, publish),
            Receivers::OfUnknown(device) => unknown_devices.tell(&self.who, item.topic.as_str(), device),
            Receivers::Subscribers => {}
        }
        let published = || Ok::<_, Infallible>(publish(None));
        self.ingest.offer_private(&self.who, &[item], &self.streams, now, published).map(drop)
    }

    fn pass_routed(
        &self,
        route: PrivateRoute<'_>,
        now: Moment,
        publish: impl FnOnce(Option<Upstream>) -> bool,
    ) -> Result<(), Problem> {
        let (bag, run) = (PropertyBag::default(), [self.will.as_item()]);
        let context = publish_context(&self.who, route, &run[0], &bag);
        let count = |fate| self.meter.count(context.delivery, fate, self.will.payload.len(), Duration::ZERO);
        let passed = check(&run, &context, self.payload_max_bytes).and_then(|()| {
            let envelope = Envelope { is_will: true, ..context.envelope() };
            self.ingest.offer(&envelope, &run, &self.streams, now, |admitted| {
                let upstream = to_own(admitted).pop();
                if publish(upstream) { Ok(()) } else { Err(()) }
            })
        });
        match passed {
            Ok(taken) => {
                count(if taken.is_ok() { ProcessingOutcome::Forwarded } else { ProcessingOutcome::Undeliverable })
            }
            Err(problem) => {
                count(outcome_of(&problem));
                return Err(problem);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for PendingWill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LeftWill").field(&self.will).finish()
    }
}
