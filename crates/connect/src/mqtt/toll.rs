//! What a will of the private space is admitted by when it is published: its client has gone by then, perhaps for long.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millstream_http::Problem;
use millstream_types::Principal;

use super::adapter::origin;
use super::client::LastWill;
use super::kept::Upstream;
use super::mapped::{check, route_of, to_own, way};
use super::topic::Bag;
use super::upstream::fate_of;
use super::way::Ground;
use crate::meter::{Fate, Meter};
use crate::refusal::unknown_tenant;
use crate::registry::{Registry, Route};
use crate::sender::{Sender, Target};
use crate::streams::TenantStreams;
use crate::usage::Moment;

/// A will whose client has gone without a word.
pub(crate) struct LeftWill {
    pub(crate) will: LastWill,
    pub(super) registry: Registry,
    pub(super) streams: Arc<TenantStreams>,
    pub(super) meter: Arc<Meter>,
    pub(super) who: Arc<Principal>,
    /// Largest payload of telemetry and events.
    pub(super) payload_max_bytes: usize,
}

impl LeftWill {
    /// Has `publish` do so if its device may still send, and tenant and device may use as much; it counts if that was
    /// done. `publish` gets what is to be appended together with it, if a rule takes its topic.
    pub(crate) fn pass(&self, now: Moment, publish: impl FnOnce(Option<Upstream>) -> bool) -> Result<(), Problem> {
        let tenant = &self.who.tenant;
        let snapshot = self.registry.snapshot(tenant);
        let known = snapshot.state.tenant(tenant).ok_or_else(|| unknown_tenant(tenant))?;
        let item = self.will.as_item();
        if let Some(route) = known.mapping.as_deref().and_then(|mapping| route_of(mapping, &item)) {
            return self.pass_mapped(route, &Ground { known, streams: &self.streams, now }, publish);
        }
        let sender = Sender::find(known, Target::Caller, origin(&self.who))?;
        sender.check_payload(self.will.payload.len())?;
        let admission = self.streams.usage.admit(&sender, sender.amount([self.will.payload.len()]), now)?;
        if publish(None) {
            admission.keep();
        }
        Ok(())
    }

    fn pass_mapped(
        &self,
        route: Route<'_>,
        ground: &Ground<'_>,
        publish: impl FnOnce(Option<Upstream>) -> bool,
    ) -> Result<(), Problem> {
        let (bag, run) = (Bag::default(), [self.will.as_item()]);
        let way = way(&self.who, route, &run[0], &bag);
        let count = |fate| self.meter.count(way.delivery, fate, self.will.payload.len(), Duration::ZERO);
        let passed = check(&run, &way, self.payload_max_bytes).and_then(|()| {
            way.admitted(&run, ground, |partition, records| {
                let upstream = to_own(partition, records).pop();
                if publish(upstream) { Ok(()) } else { Err(()) }
            })
        });
        match passed {
            Ok(taken) => count(if taken.is_ok() { Fate::Forwarded } else { Fate::Undeliverable }),
            Err(problem) => {
                count(fate_of(&problem));
                return Err(problem);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for LeftWill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LeftWill").field(&self.will).finish()
    }
}
