//! Commands to the owner of a tenant's sessions, and the decisions on them.

use std::sync::Arc;

use millstream_types::{TenantId, TopicPartition};
use millstream_view::{Draft, Publish};

use super::SessionView;
use super::state::{Progress, SessionChange, SessionRecord, TenantSessions};
use crate::mqtt::broker::RetainedMap;
use crate::mqtt::broker::message::Message;
use crate::registry::Version;

/// Keys that one command forgets.
const FORGOTTEN_MAX: usize = 1_000;

/// A record of telemetry or events, and where it goes.
pub(crate) type Upstream = (TopicPartition, Publish);

/// A message that is published together with what is kept of it.
pub(crate) struct StoredPublish {
    pub(crate) record: Publish,
    /// The append to telemetry or events that accompanies it.
    pub(crate) upstream: Option<Upstream>,
    /// The message that its topic retains from now on; an empty payload removes it.
    pub(crate) retain: Option<Arc<Message>>,
    /// The id under which it is taken exactly once.
    pub(crate) once: Option<u16>,
}

/// A session's records that are to be kept.
#[derive(Default)]
pub(crate) struct Keep {
    pub(crate) session: Option<SessionRecord>,
    pub(crate) progress: Option<Progress>,
    /// Ids that the client has forgotten.
    pub(crate) forgotten: Vec<u16>,
}

pub(crate) enum SessionCommand {
    /// Publish these messages of a client.
    Publish { tenant: TenantId, client: Arc<str>, stream: TopicPartition, messages: Vec<StoredPublish> },
    /// Store the given parts of a client's session; the answer has the retained messages.
    Keep { tenant: TenantId, client: Arc<str>, keep: Keep },
    /// Store the progress of a group, or forget it.
    KeepGroup { tenant: TenantId, group: Arc<str>, progress: Option<Progress> },
    /// Forget the session of a client.
    End { tenant: TenantId, client: Arc<str> },
    /// Return the retained messages of a tenant.
    Retained { tenant: TenantId },
    /// Forget all state of a tenant, or as much as one append takes.
    Forget { tenant: TenantId },
    /// Forget the state of earlier tenants with this name, or as much as one append takes.
    Own { tenant: TenantId, born: Version },
}

/// The outcome of one published message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PublishOutcome {
    Taken,
    /// A message with this id was taken before.
    Known,
    /// The tenant retains as much as it may.
    NoRoom,
}

/// The answer to a command.
#[derive(Debug)]
pub(crate) enum StoreAnswer {
    Published(Vec<PublishOutcome>),
    Retained(RetainedMap),
    Done,
    /// Done in part; to be asked again.
    More,
}

impl SessionCommand {
    pub(crate) fn owned_bytes(&self) -> usize {
        match self {
            Self::Publish { messages, .. } => messages.iter().map(StoredPublish::owned_bytes).sum(),
            Self::Keep { keep, .. } => {
                let filters = keep.session.iter().flat_map(|session| &session.filters).map(|known| &known.filter);
                let reserved = keep.session.iter().flat_map(|session| &session.reserved).map(|known| &known.filter);
                let progress = keep.progress.iter().map(|progress| 8 * (progress.done.len() + progress.released.len()));
                filters.chain(reserved).map(|filter| filter.len() + 48).sum::<usize>() + progress.sum::<usize>()
            }
            Self::KeepGroup { progress, .. } => progress.as_ref().map_or(0, |progress| 8 * progress.done.len()),
            Self::End { .. } | Self::Retained { .. } | Self::Forget { .. } | Self::Own { .. } => 0,
        }
    }
}

impl StoredPublish {
    fn owned_bytes(&self) -> usize {
        let upstream = self.upstream.as_ref().map(|(_, record)| record);
        let records: usize = [&self.record].into_iter().chain(upstream).map(size_bytes).sum();
        records + self.retain.as_ref().map_or(0, |message| message.size_bytes())
    }
}

fn size_bytes(record: &Publish) -> usize {
    let headers = record.headers.iter().map(|(name, value)| name.len() + value.len());
    record.key.as_ref().map_or(0, Vec::len) + record.value.as_ref().map_or(0, Vec::len) + headers.sum::<usize>()
}

pub(super) fn decide(
    draft: &mut Draft<'_, SessionView>,
    command: SessionCommand,
    retained_max_bytes: u64,
) -> StoreAnswer {
    match command {
        SessionCommand::Publish { tenant, client, stream, messages } => {
            let fates =
                messages.into_iter().map(|one| publish(draft, &tenant, &client, &stream, one, retained_max_bytes));
            StoreAnswer::Published(fates.collect())
        }
        SessionCommand::Keep { tenant, client, keep } => {
            let is_known = known(draft, &tenant).is_some_and(|known| known.sessions.contains_key(&client));
            if let Some(session) = keep.session {
                draft.change(SessionChange::Session(tenant.clone(), client.clone(), Some(Arc::new(session))));
            } else if !is_known {
                // Its session has ended meanwhile.
                return retained(draft, &tenant);
            }
            if let Some(progress) = keep.progress {
                draft.change(SessionChange::Progress(tenant.clone(), client.clone(), Some(Arc::new(progress))));
            }
            for id in keep.forgotten {
                draft.change(SessionChange::Arrived(tenant.clone(), client.clone(), id, false));
            }
            retained(draft, &tenant)
        }
        SessionCommand::End { tenant, client } => {
            let Some(known) = known(draft, &tenant) else { return StoreAnswer::Done };
            let has_progress = known.progress.contains_key(&client);
            let ids: Vec<u16> = known.arrived(&client).collect();
            if known.sessions.contains_key(&client) {
                draft.change(SessionChange::Session(tenant.clone(), client.clone(), None));
            }
            if has_progress {
                draft.change(SessionChange::Progress(tenant.clone(), client.clone(), None));
            }
            for id in ids {
                draft.change(SessionChange::Arrived(tenant.clone(), client.clone(), id, false));
            }
            StoreAnswer::Done
        }
        SessionCommand::KeepGroup { tenant, group, progress } => {
            let is_there = known(draft, &tenant).is_some_and(|known| known.groups.contains_key(&group));
            if is_there || progress.is_some() {
                draft.change(SessionChange::Group(tenant, group, progress.map(Arc::new)));
            }
            StoreAnswer::Done
        }
        SessionCommand::Retained { tenant } => retained(draft, &tenant),
        SessionCommand::Forget { tenant } => forget(draft, &tenant),
        SessionCommand::Own { tenant, born } => {
            let former = known(draft, &tenant).and_then(|known| known.born).filter(|former| *former != born);
            if former.is_some()
                && let more @ StoreAnswer::More = forget(draft, &tenant)
            {
                return more;
            }
            // Records from before tenants had owners belong to the current tenant of that name.
            if known(draft, &tenant).is_none_or(|known| known.born.is_none()) {
                draft.change(SessionChange::Born(tenant, Some(born)));
            }
            StoreAnswer::Done
        }
    }
}

fn forget(draft: &mut Draft<'_, SessionView>, tenant: &TenantId) -> StoreAnswer {
    let all = known(draft, tenant).into_iter().flat_map(|known| known.removals(tenant));
    let removals: Vec<SessionChange> = all.take(FORGOTTEN_MAX).collect();
    removals.into_iter().for_each(|change| draft.change(change));
    if known(draft, tenant).is_some() { StoreAnswer::More } else { StoreAnswer::Done }
}

fn known<'a>(draft: &'a Draft<'_, SessionView>, tenant: &TenantId) -> Option<&'a TenantSessions> {
    draft.state().tenant(tenant)
}

fn retained(draft: &Draft<'_, SessionView>, tenant: &TenantId) -> StoreAnswer {
    StoreAnswer::Retained(known(draft, tenant).map(|known| known.retained.clone()).unwrap_or_default())
}

fn publish(
    draft: &mut Draft<'_, SessionView>,
    tenant: &TenantId,
    client: &Arc<str>,
    stream: &TopicPartition,
    one: StoredPublish,
    retained_max_bytes: u64,
) -> PublishOutcome {
    let of_tenant = known(draft, tenant);
    let is_kept = of_tenant.is_some_and(|known| known.sessions.contains_key(client));
    if let Some(id) = one.once
        && of_tenant.is_some_and(|known| known.has_arrived(client, id))
    {
        return PublishOutcome::Known;
    }
    if let Some(message) = one.retain {
        let topic: Arc<str> = (&*message.topic).into();
        let is_removal = message.payload.is_empty();
        if !is_removal && !make_room(draft, tenant, &topic, message.size_bytes() as u64, retained_max_bytes) {
            return PublishOutcome::NoRoom;
        }
        let is_there = known(draft, tenant).is_some_and(|known| known.retained.contains_key(&topic));
        if !is_removal || is_there {
            draft.change(SessionChange::Retained(tenant.clone(), topic, (!is_removal).then_some(message)));
        }
    }
    if let Some(id) = one.once.filter(|_| is_kept) {
        draft.change(SessionChange::Arrived(tenant.clone(), Arc::clone(client), id, true));
    }
    draft.publish(stream.clone(), one.record);
    if let Some((to, record)) = one.upstream {
        draft.publish(to, record);
    }
    PublishOutcome::Taken
}

/// Removes expired messages if a message of this size needs their room; true if it may be retained.
fn make_room(
    draft: &mut Draft<'_, SessionView>,
    tenant: &TenantId,
    topic: &Arc<str>,
    size_bytes: u64,
    most: u64,
) -> bool {
    let fits = |draft: &Draft<'_, SessionView>| {
        let Some(known) = known(draft, tenant) else { return size_bytes <= most };
        let before = known.retained.get(topic).map_or(0, |message| message.size_bytes() as u64);
        known.retained_bytes - before + size_bytes <= most
    };
    if fits(draft) {
        return true;
    }
    let now_ms = draft.now_ms();
    let void: Vec<Arc<str>> = known(draft, tenant)
        .into_iter()
        .flat_map(|known| &known.retained)
        .filter(|(_, message)| message.lasts_s(now_ms).is_none())
        .map(|(topic, _)| Arc::clone(topic))
        .collect();
    for topic in void {
        draft.change(SessionChange::Retained(tenant.clone(), topic, None));
    }
    fits(draft)
}
