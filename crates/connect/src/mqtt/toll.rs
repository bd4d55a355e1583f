//! What a will of the private space is admitted by when it is published: its client has gone by then, perhaps for long.

use std::fmt;
use std::sync::Arc;

use millstream_http::Problem;
use millstream_types::Principal;

use super::adapter::origin;
use super::client::LastWill;
use crate::refusal::unknown_tenant;
use crate::registry::Registry;
use crate::sender::{Sender, Target};
use crate::streams::TenantStreams;
use crate::usage::{Admission, Moment};

/// A will whose client has gone without a word.
pub(crate) struct LeftWill {
    pub(crate) will: LastWill,
    pub(super) registry: Registry,
    pub(super) streams: Arc<TenantStreams>,
    pub(super) who: Arc<Principal>,
}

impl LeftWill {
    /// Lets it pass if its device may still send, and tenant and device may use as much.
    pub(crate) fn admit(&self, now: Moment) -> Result<Admission<'_>, Problem> {
        let tenant = &self.who.tenant;
        let snapshot = self.registry.snapshot(tenant);
        let known = snapshot.state.tenant(tenant).ok_or_else(|| unknown_tenant(tenant))?;
        let sender = Sender::find(known, Target::Caller, origin(&self.who))?;
        sender.check_payload(self.will.payload.len())?;
        self.streams.usage.admit(&sender, sender.amount([self.will.payload.len()]), now)
    }
}

impl fmt::Debug for LeftWill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LeftWill").field(&self.will).finish()
    }
}
