//! The view of subscriptions: the commands to an owner, its decisions and the resulting changes.
//!
//! Matching happens elsewhere. The effects of a notification on its subscription (throttling, one shot, counters) are
//! decided here, one by one. A change's position is stored with its notifications: after a crash it is neither repeated
//! nor lost. Effects are applied once they are durable: [`View::landed`].

use std::collections::HashMap;
use std::sync::Arc;

use millstream_types::{Offset, TenantId};
use millstream_view::{DecodeError, Draft, Encoded, InState, SourcePartition, View};

use super::change::ChangePosition;
use super::effect::{Effect, EffectSink, QueueDisposal};
use super::notification::Notification;
use super::progress::SubscriptionProgress;
use super::record::{self, RecordPart, SubscriptionChange};
use super::state::State;
use super::subscription::{Status, Subscription};

pub(crate) struct SubscriptionView {
    pub(crate) effects: Arc<dyn EffectSink>,
    /// Limit of subscriptions of one tenant.
    pub(crate) tenant_max: usize,
}

pub(crate) enum SubscriptionCommand {
    Create {
        subscription: Arc<Subscription>,
        status: Status,
    },
    /// Replaces `before` by `after`, if `before` is still current.
    Replace {
        before: Arc<Subscription>,
        after: Arc<Subscription>,
        status: Option<Status>,
    },
    Delete {
        tenant: TenantId,
        id: Arc<str>,
    },
    /// Subscriptions fired; everything of `source` before `next` has been matched.
    Fired {
        from: Option<(SourcePartition, Offset)>,
        items: Vec<(Offset, Vec<Fired>)>,
    },
    Settled(Arc<[DeliveryReport]>),
    /// The throttling time is over.
    Release {
        tenant: TenantId,
        id: Arc<str>,
    },
}

/// A subscription that a change fired.
pub(crate) struct Fired {
    pub(crate) tenant: TenantId,
    pub(crate) id: Arc<str>,
    pub(crate) notification: Arc<Notification>,
}

/// The outcome of a notification, or its failure.
#[derive(Debug, Clone)]
pub(crate) struct DeliveryReport {
    pub(crate) tenant: TenantId,
    pub(crate) id: Arc<str>,
    pub(crate) place: ChangePosition,
    pub(crate) end: DeliveryOutcome,
}

#[derive(Debug, Clone)]
pub(crate) enum DeliveryOutcome {
    Delivered {
        at_ms: i64,
        code: Option<u16>,
    },
    /// An attempt failed, its own or that of one before it; others may follow.
    Failed {
        at_ms: i64,
        reason: Option<String>,
    },
    GivenUp,
    /// It was dropped: the queue was full, or the subscription became inactive.
    Dropped,
}

#[derive(Debug)]
pub(crate) enum SubscriptionReply {
    /// The effects to apply once the decision is durable.
    Done(Vec<Effect>),
    NotFound,
    /// Another client has changed the subscription meanwhile.
    Outdated,
    TooMany {
        known: usize,
        limit: usize,
    },
}

impl View for SubscriptionView {
    type State = State;
    type Storage = InState;
    type Change = SubscriptionChange;
    type Command = SubscriptionCommand;
    type Answer = SubscriptionReply;
    const NAME: &'static str = "subscription";

    fn decide(&self, draft: &mut Draft<'_, Self>, command: SubscriptionCommand) -> SubscriptionReply {
        match command {
            SubscriptionCommand::Create { subscription, status } => self.create(draft, subscription, status),
            SubscriptionCommand::Replace { before, after, status } => replace(draft, &before, after, status),
            SubscriptionCommand::Delete { tenant, id } => delete(draft, &tenant, &id),
            SubscriptionCommand::Fired { from, items } => {
                let applied = from.map(|(source, _)| draft.applied(source)).unwrap_or_default();
                let new = items.into_iter().filter(|(offset, _)| from.is_none() || *offset >= applied);
                let effects = fire_all(draft, new.flat_map(|(_, fired)| fired));
                if let Some((source, next)) = from {
                    draft.advance(source, next);
                }
                SubscriptionReply::Done(effects)
            }
            SubscriptionCommand::Settled(settled) => SubscriptionReply::Done(settle_all(draft, &settled)),
            SubscriptionCommand::Release { tenant, id } => SubscriptionReply::Done(release(draft, &tenant, &id)),
        }
    }

    fn owned_bytes(command: &SubscriptionCommand) -> usize {
        match command {
            SubscriptionCommand::Fired { items, .. } => {
                items.iter().flat_map(|(_, fired)| fired).map(Fired::owned_bytes).sum()
            }
            SubscriptionCommand::Settled(settled) => size_of_val(&**settled),
            _ => 0,
        }
    }

    fn landed(&self, answer: &mut SubscriptionReply, _first: Option<Offset>) {
        if let SubscriptionReply::Done(effects) = answer {
            self.effects.take_effect(effects);
        }
    }

    fn apply(state: &mut State, SubscriptionChange { tenant, id, part }: &SubscriptionChange) {
        state.alter(tenant, id, |known| match part {
            RecordPart::Definition(subscription) => known.subscription = subscription.clone(),
            RecordPart::Progress(progress) => known.progress = progress.clone().unwrap_or_default(),
            RecordPart::Held(held) => known.held = held.clone(),
            RecordPart::Waiting(place, Some(notification)) => {
                known.waiting.insert(*place, notification.clone());
            }
            RecordPart::Waiting(place, None) => {
                known.waiting.remove(place);
            }
        });
    }

    fn encode(change: &SubscriptionChange, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        record::encode(change, key, value)
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<SubscriptionChange, DecodeError> {
        record::decode(key, value)
    }
}

type Drafted<'a> = Draft<'a, SubscriptionView>;

fn change(draft: &mut Drafted<'_>, tenant: &TenantId, id: &Arc<str>, part: RecordPart) {
    draft.change(SubscriptionChange { tenant: tenant.clone(), id: id.clone(), part });
}

impl SubscriptionView {
    fn create(&self, draft: &mut Drafted<'_>, subscription: Arc<Subscription>, status: Status) -> SubscriptionReply {
        let (tenant, id) = (subscription.tenant.clone(), subscription.id.clone());
        let (known, limit) = (draft.state().count(&tenant), self.tenant_max);
        if known >= limit {
            return SubscriptionReply::TooMany { known, limit };
        }
        let progress = SubscriptionProgress::new(status);
        let effect = if progress.is_at_work() { vec![Effect::Begin(subscription.clone())] } else { Vec::new() };
        change(draft, &tenant, &id, RecordPart::Definition(Some(subscription)));
        change(draft, &tenant, &id, RecordPart::Progress(Some(Arc::new(progress))));
        SubscriptionReply::Done(effect)
    }
}

fn replace(
    draft: &mut Drafted<'_>,
    before: &Arc<Subscription>,
    after: Arc<Subscription>,
    status: Option<Status>,
) -> SubscriptionReply {
    let (tenant, id) = (&after.tenant, &after.id);
    let Some((now, known)) = draft.state().get(tenant, id) else { return SubscriptionReply::NotFound };
    if !Arc::ptr_eq(now, before) {
        return SubscriptionReply::Outdated;
    }
    let mut progress = SubscriptionProgress::clone(&known.progress);
    if let Some(status) = status {
        // A reactivated subscription has as many attempts as a new one.
        progress.fails = if progress.is_at_work() { progress.fails } else { 0 };
        progress.status = status;
    }
    let mut effects = Vec::new();
    if progress.is_at_work() {
        effects.push(Effect::Begin(after.clone()));
    } else {
        effects.push(Effect::End { tenant: tenant.clone(), id: id.clone(), rest: QueueDisposal::Dropped });
        drop_waiting(draft, tenant, id);
        progress.failed.clear();
    }
    change(draft, tenant, id, RecordPart::Definition(Some(after.clone())));
    change(draft, tenant, id, RecordPart::Progress(Some(Arc::new(progress))));
    SubscriptionReply::Done(effects)
}

fn delete(draft: &mut Drafted<'_>, tenant: &TenantId, id: &Arc<str>) -> SubscriptionReply {
    if draft.state().get(tenant, id).is_none() {
        return SubscriptionReply::NotFound;
    }
    drop_waiting(draft, tenant, id);
    change(draft, tenant, id, RecordPart::Progress(None));
    change(draft, tenant, id, RecordPart::Definition(None));
    SubscriptionReply::Done(vec![Effect::End {
        tenant: tenant.clone(),
        id: id.clone(),
        rest: QueueDisposal::Forgotten,
    }])
}

/// Drops waiting and held notifications.
fn drop_waiting(draft: &mut Drafted<'_>, tenant: &TenantId, id: &Arc<str>) {
    let Some((_, known)) = draft.state().get(tenant, id) else { return };
    let (places, is_held): (Vec<ChangePosition>, bool) =
        (known.waiting.keys().copied().collect(), known.held.is_some());
    for place in places {
        change(draft, tenant, id, RecordPart::Waiting(place, None));
    }
    if is_held {
        change(draft, tenant, id, RecordPart::Held(None));
    }
}

/// Counters that a command changes, stored once at its end.
#[derive(Default)]
struct ProgressUpdates(HashMap<(TenantId, Arc<str>), SubscriptionProgress>);

impl ProgressUpdates {
    /// The counters of a subscription, with the changes of this command so far.
    fn of(
        &mut self,
        tenant: &TenantId,
        id: &Arc<str>,
        stored: &Arc<SubscriptionProgress>,
    ) -> &mut SubscriptionProgress {
        self.0.entry((tenant.clone(), id.clone())).or_insert_with(|| SubscriptionProgress::clone(stored))
    }

    fn store(self, draft: &mut Drafted<'_>) {
        for ((tenant, id), progress) in self.0 {
            change(draft, &tenant, &id, RecordPart::Progress(Some(Arc::new(progress))));
        }
    }
}

fn fire_all(draft: &mut Drafted<'_>, fired: impl Iterator<Item = Fired>) -> Vec<Effect> {
    let (mut counted, mut effects) = (ProgressUpdates::default(), Vec::new());
    for fired in fired {
        fire(draft, &mut counted, fired, &mut effects);
    }
    counted.store(draft);
    effects
}

fn fire(draft: &mut Drafted<'_>, counted: &mut ProgressUpdates, fired: Fired, effects: &mut Vec<Effect>) {
    let Fired { tenant, id, notification } = fired;
    let now_ms = draft.now_ms();
    let Some((subscription, known)) = draft.state().get(&tenant, &id) else { return };
    let (subscription, is_held) = (subscription.clone(), known.held.is_some());
    // After a crash a part of a change's notifications may arrive once more.
    if known.waiting.contains_key(&notification.place) {
        return;
    }
    let progress = counted.of(&tenant, &id, &known.progress);
    if !progress.is_at_work() || subscription.is_expired(now_ms) {
        return;
    }
    let due_ms =
        progress.last_notification_ms.map_or(i64::MIN, |last_ms| last_ms.saturating_add(subscription.throttling_ms));
    if subscription.throttling_ms > 0 && now_ms < due_ms {
        if subscription.keeps_latest && notification.may_be_stored() {
            change(draft, &tenant, &id, RecordPart::Held(Some(notification)));
            effects.push(Effect::Wait { tenant, id, due_ms });
        }
        return;
    }
    progress.times_sent += 1;
    progress.last_notification_ms = Some(now_ms);
    if progress.status == Status::Oneshot {
        progress.status = Status::Inactive;
        effects.push(Effect::End { tenant: tenant.clone(), id: id.clone(), rest: QueueDisposal::Delivered });
    }
    if is_held {
        change(draft, &tenant, &id, RecordPart::Held(None));
    }
    if subscription.delivery.is_durable && notification.may_be_stored() {
        change(draft, &tenant, &id, RecordPart::Waiting(notification.place, Some(notification.clone())));
    }
    effects.push(Effect::Deliver(subscription, notification));
}

fn release(draft: &mut Drafted<'_>, tenant: &TenantId, id: &Arc<str>) -> Vec<Effect> {
    let Some((_, known)) = draft.state().get(tenant, id) else { return Vec::new() };
    let Some(held) = &known.held else { return Vec::new() };
    // Its age counts from now: it was not to be sent before.
    let notification = Arc::new(Notification { made_ms: draft.now_ms(), ..Notification::clone(held) });
    let fired = Fired { tenant: tenant.clone(), id: id.clone(), notification };
    fire_all(draft, std::iter::once(fired))
}

fn settle_all(draft: &mut Drafted<'_>, settled: &[DeliveryReport]) -> Vec<Effect> {
    let (mut counted, mut effects) = (ProgressUpdates::default(), Vec::new());
    for DeliveryReport { tenant, id, place, end } in settled {
        let Some((subscription, known)) = draft.state().get(tenant, id) else { continue };
        let (subscription, is_waiting) = (subscription.clone(), known.waiting.contains_key(place));
        let is_last = is_waiting && known.waiting.len() == 1;
        let progress = counted.of(tenant, id, &known.progress);
        if let DeliveryOutcome::Failed { at_ms, reason } = end {
            progress.fail(*place, is_waiting, *at_ms, reason.clone());
            let is_over = subscription.fails_limit.is_some_and(|limit| progress.fails > limit);
            if is_over && progress.is_at_work() {
                progress.status = Status::Inactive;
                progress.failed.clear();
                let (fails, limit) = (progress.fails, subscription.fails_limit.unwrap_or_default());
                tracing::warn!(%tenant, subscription = %id, fails, limit, "too many notifications failed; the subscription is inactive now");
                effects.push(Effect::End { tenant: tenant.clone(), id: id.clone(), rest: QueueDisposal::Dropped });
                drop_waiting(draft, tenant, id);
            }
            continue;
        }
        match end {
            DeliveryOutcome::Delivered { at_ms, code } => progress.deliver(*at_ms, *code),
            DeliveryOutcome::GivenUp => progress.give_up(),
            DeliveryOutcome::Dropped => progress.dropped += 1,
            DeliveryOutcome::Failed { .. } => {}
        }
        if is_last {
            progress.failed.clear();
        }
        if is_waiting {
            change(draft, tenant, id, RecordPart::Waiting(*place, None));
        }
    }
    counted.store(draft);
    effects
}
