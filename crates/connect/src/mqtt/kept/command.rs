//! What is asked of a tenant's owner, and how it is decided.

use std::sync::Arc;

use millstream_types::{TenantId, TopicPartition};
use millstream_view::{Draft, Publish};

use super::KeptView;
use super::state::{Change, OfTenant, Progress, SessionRecord};
use crate::mqtt::space::RetainedMap;
use crate::mqtt::space::message::Message;
use crate::registry::Version;

/// Keys that one command forgets.
const FORGOTTEN_MAX: usize = 1_000;

/// A record of telemetry or events, and where it goes.
pub(crate) type Upstream = (TopicPartition, Publish);

/// A message that is published together with what is kept of it.
pub(crate) struct One {
    /// Its record.
    pub(crate) record: Publish,
    /// What is appended to telemetry or events together with it.
    pub(crate) upstream: Option<Upstream>,
    /// What its topic retains from now on; an empty payload removes it.
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

/// What is asked.
pub(crate) enum Command {
    /// Publish these messages of a client.
    Publish { tenant: TenantId, client: Arc<str>, stream: TopicPartition, messages: Vec<One> },
    /// Keep what is said of a client's session; answered with what is retained.
    Keep { tenant: TenantId, client: Arc<str>, keep: Keep },
    /// Keep how far a group has come, or forget it.
    KeepGroup { tenant: TenantId, group: Arc<str>, progress: Option<Progress> },
    /// Forget a client's session.
    End { tenant: TenantId, client: Arc<str> },
    /// Tell what is retained.
    Retained { tenant: TenantId },
    /// Forget all of a tenant, or as much as one append takes.
    Forget { tenant: TenantId },
    /// Forget what is of another tenant that had the name before, or as much as one append takes.
    Own { tenant: TenantId, born: Version },
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Taken,
    /// It was taken before.
    Known,
    /// The tenant retains as much as it may.
    NoRoom,
}

/// What a command is answered with.
#[derive(Debug)]
pub(crate) enum Answer {
    Published(Vec<Fate>),
    Retained(RetainedMap),
    Done,
    /// Done in part; to be asked again.
    More,
}

impl Command {
    pub(crate) fn owned_bytes(&self) -> usize {
        match self {
            Self::Publish { messages, .. } => messages.iter().map(One::owned_bytes).sum(),
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

impl One {
    fn owned_bytes(&self) -> usize {
        let upstream = self.upstream.as_ref().map(|(_, record)| record);
        [&self.record].into_iter().chain(upstream).map(size_bytes).sum()
    }
}

fn size_bytes(record: &Publish) -> usize {
    let headers = record.headers.iter().map(|(name, value)| name.len() + value.len());
    record.key.as_ref().map_or(0, Vec::len) + record.value.as_ref().map_or(0, Vec::len) + headers.sum::<usize>()
}

pub(super) fn decide(draft: &mut Draft<'_, KeptView>, command: Command, retained_max_bytes: u64) -> Answer {
    match command {
        Command::Publish { tenant, client, stream, messages } => {
            let fates =
                messages.into_iter().map(|one| publish(draft, (&tenant, &client, &stream), one, retained_max_bytes));
            Answer::Published(fates.collect())
        }
        Command::Keep { tenant, client, keep } => {
            let is_known = known(draft, &tenant).is_some_and(|known| known.sessions.contains_key(&client));
            if let Some(session) = keep.session {
                draft.change(Change::Session(tenant.clone(), client.clone(), Some(Arc::new(session))));
            } else if !is_known {
                // Its session has ended meanwhile.
                return retained(draft, &tenant);
            }
            if let Some(progress) = keep.progress {
                draft.change(Change::Progress(tenant.clone(), client.clone(), Some(Arc::new(progress))));
            }
            for id in keep.forgotten {
                draft.change(Change::Arrived(tenant.clone(), client.clone(), id, false));
            }
            retained(draft, &tenant)
        }
        Command::End { tenant, client } => {
            let Some(known) = known(draft, &tenant) else { return Answer::Done };
            let has_progress = known.progress.contains_key(&client);
            let ids: Vec<u16> = known.arrived(&client).collect();
            if known.sessions.contains_key(&client) {
                draft.change(Change::Session(tenant.clone(), client.clone(), None));
            }
            if has_progress {
                draft.change(Change::Progress(tenant.clone(), client.clone(), None));
            }
            for id in ids {
                draft.change(Change::Arrived(tenant.clone(), client.clone(), id, false));
            }
            Answer::Done
        }
        Command::KeepGroup { tenant, group, progress } => {
            let is_there = known(draft, &tenant).is_some_and(|known| known.groups.contains_key(&group));
            if is_there || progress.is_some() {
                draft.change(Change::Group(tenant, group, progress.map(Arc::new)));
            }
            Answer::Done
        }
        Command::Retained { tenant } => retained(draft, &tenant),
        Command::Forget { tenant } => forget(draft, &tenant),
        Command::Own { tenant, born } => {
            let former = known(draft, &tenant).and_then(|known| known.born).filter(|former| *former != born);
            if former.is_some()
                && let more @ Answer::More = forget(draft, &tenant)
            {
                return more;
            }
            // What was kept before owners were is of whoever has the name.
            if known(draft, &tenant).is_none_or(|known| known.born.is_none()) {
                draft.change(Change::Born(tenant, Some(born)));
            }
            Answer::Done
        }
    }
}

fn forget(draft: &mut Draft<'_, KeptView>, tenant: &TenantId) -> Answer {
    let all = known(draft, tenant).into_iter().flat_map(|known| known.removals(tenant));
    let removals: Vec<Change> = all.take(FORGOTTEN_MAX).collect();
    removals.into_iter().for_each(|change| draft.change(change));
    if known(draft, tenant).is_some() { Answer::More } else { Answer::Done }
}

fn known<'a>(draft: &'a Draft<'_, KeptView>, tenant: &TenantId) -> Option<&'a OfTenant> {
    draft.state().tenant(tenant)
}

fn retained(draft: &Draft<'_, KeptView>, tenant: &TenantId) -> Answer {
    Answer::Retained(known(draft, tenant).map(|known| known.retained.clone()).unwrap_or_default())
}

fn publish(
    draft: &mut Draft<'_, KeptView>,
    (tenant, client, stream): (&TenantId, &Arc<str>, &TopicPartition),
    one: One,
    retained_max_bytes: u64,
) -> Fate {
    let of_tenant = known(draft, tenant);
    let is_kept = of_tenant.is_some_and(|known| known.sessions.contains_key(client));
    if let Some(id) = one.once
        && of_tenant.is_some_and(|known| known.has_arrived(client, id))
    {
        return Fate::Known;
    }
    if let Some(message) = one.retain {
        let topic: Arc<str> = (&*message.topic).into();
        let is_removal = message.payload.is_empty();
        if !is_removal && !make_room(draft, tenant, &topic, message.size_bytes() as u64, retained_max_bytes) {
            return Fate::NoRoom;
        }
        let is_there = known(draft, tenant).is_some_and(|known| known.retained.contains_key(&topic));
        if !is_removal || is_there {
            draft.change(Change::Retained(tenant.clone(), topic, (!is_removal).then_some(message)));
        }
    }
    if let Some(id) = one.once.filter(|_| is_kept) {
        draft.change(Change::Arrived(tenant.clone(), Arc::clone(client), id, true));
    }
    draft.publish(stream.clone(), one.record);
    if let Some((to, record)) = one.upstream {
        draft.publish(to, record);
    }
    Fate::Taken
}

/// Whether a message of this size may be retained; those that are void make room.
fn make_room(draft: &mut Draft<'_, KeptView>, tenant: &TenantId, topic: &Arc<str>, size_bytes: u64, most: u64) -> bool {
    let fits = |draft: &Draft<'_, KeptView>| {
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
        draft.change(Change::Retained(tenant.clone(), topic, None));
    }
    fits(draft)
}
