//! The view: what is asked of subscriptions, how their owner decides it, what becomes of it.
//!
//! Matching happens elsewhere; what a notification does to its subscription (throttling, one shot, counters) is decided
//! here, one by one. A change's place in its topic is stored with what it led to: after a crash it is neither told again
//! nor forgotten. What is stored is acted upon once it is durable: [`View::landed`].

use std::collections::HashMap;
use std::sync::Arc;

use millstream_types::{Offset, TenantId};
use millstream_view::{DecodeError, Draft, Encoded, Source, View};

use super::change::Place;
use super::hub::{Effect, Hub, Rest};
use super::notification::Notification;
use super::progress::Progress;
use super::record::{self, Change, Part};
use super::state::State;
use super::subscription::{Status, Subscription};

/// The view of subscriptions.
pub(crate) struct SubscriptionView {
    pub(crate) hub: Arc<Hub>,
    /// Subscriptions of one tenant.
    pub(crate) tenant_max: usize,
}

/// What is asked of an owner.
pub(crate) enum Command {
    Create {
        subscription: Arc<Subscription>,
        status: Status,
    },
    /// `after` takes the place of `before`, if that is still there.
    Replace {
        before: Arc<Subscription>,
        after: Arc<Subscription>,
        status: Option<Status>,
    },
    Delete {
        tenant: TenantId,
        id: Arc<str>,
    },
    /// Changes have made subscriptions fire; of `source` everything before `next` has been looked at.
    Fired {
        from: Option<(Source, Offset)>,
        items: Vec<(Offset, Vec<Fired>)>,
    },
    /// What became of notifications.
    Settled(Vec<Settled>),
    /// The time of throttling is up.
    Release {
        tenant: TenantId,
        id: Arc<str>,
    },
}

/// A subscription that a change makes fire.
pub(crate) struct Fired {
    pub(crate) tenant: TenantId,
    pub(crate) id: Arc<str>,
    pub(crate) notification: Arc<Notification>,
}

/// What became of a notification, or of the first attempt that failed.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) tenant: TenantId,
    pub(crate) id: Arc<str>,
    pub(crate) place: Place,
    pub(crate) end: End,
}

#[derive(Debug)]
pub(crate) enum End {
    Delivered {
        at_ms: i64,
        code: Option<u16>,
    },
    /// An attempt has failed; others may follow.
    Failed {
        at_ms: i64,
        reason: Option<String>,
    },
    /// It is not tried any more.
    GivenUp,
}

#[derive(Debug)]
pub(crate) enum Answer {
    /// What follows from it, once it is durable.
    Done(Vec<Effect>),
    NotFound,
    /// Somebody else has changed it meanwhile.
    Outdated,
    TooMany {
        known: usize,
        limit: usize,
    },
}

impl View for SubscriptionView {
    type State = State;
    type Change = Change;
    type Command = Command;
    type Answer = Answer;
    const NAME: &'static str = "subscription";

    fn decide(&self, draft: &mut Draft<'_, Self>, command: Command) -> Answer {
        match command {
            Command::Create { subscription, status } => self.create(draft, subscription, status),
            Command::Replace { before, after, status } => replace(draft, &before, after, status),
            Command::Delete { tenant, id } => delete(draft, &tenant, &id),
            Command::Fired { from, items } => {
                let applied = from.map(|(source, _)| draft.applied(source)).unwrap_or_default();
                let new = items.into_iter().filter(|(offset, _)| from.is_none() || *offset >= applied);
                let effects = fire_all(draft, new.flat_map(|(_, fired)| fired));
                if let Some((source, next)) = from {
                    draft.advance(source, next);
                }
                Answer::Done(effects)
            }
            Command::Settled(settled) => Answer::Done(settle_all(draft, settled)),
            Command::Release { tenant, id } => Answer::Done(release(draft, &tenant, &id)),
        }
    }

    fn owned_bytes(command: &Command) -> usize {
        match command {
            Command::Fired { items, .. } => items.iter().flat_map(|(_, fired)| fired).map(Fired::owned_bytes).sum(),
            Command::Settled(settled) => size_of_val(settled.as_slice()),
            _ => 0,
        }
    }

    fn landed(&self, answer: &Answer) {
        if let Answer::Done(effects) = answer {
            self.hub.take_effect(effects);
        }
    }

    fn apply(state: &mut State, Change { tenant, id, part }: &Change) {
        state.alter(tenant, id, |known| match part {
            Part::Definition(subscription) => known.subscription = subscription.clone(),
            Part::Progress(progress) => known.progress = progress.clone().unwrap_or_default(),
            Part::Held(held) => known.held = held.clone(),
            Part::Waiting(place, Some(notification)) => {
                known.waiting.insert(*place, notification.clone());
            }
            Part::Waiting(place, None) => {
                known.waiting.remove(place);
            }
        });
    }

    fn encode(change: &Change, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        record::encode(change, key, value)
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Change, DecodeError> {
        record::decode(key, value)
    }
}

type Drafted<'a> = Draft<'a, SubscriptionView>;

fn change(draft: &mut Drafted<'_>, tenant: &TenantId, id: &Arc<str>, part: Part) {
    draft.change(Change { tenant: tenant.clone(), id: id.clone(), part });
}

impl SubscriptionView {
    fn create(&self, draft: &mut Drafted<'_>, subscription: Arc<Subscription>, status: Status) -> Answer {
        let (tenant, id) = (subscription.tenant.clone(), subscription.id.clone());
        let (known, limit) = (draft.state().count(&tenant), self.tenant_max);
        if known >= limit {
            return Answer::TooMany { known, limit };
        }
        let progress = Progress::new(status);
        let effect = if progress.is_at_work() { vec![Effect::Begin(subscription.clone())] } else { Vec::new() };
        change(draft, &tenant, &id, Part::Definition(Some(subscription)));
        change(draft, &tenant, &id, Part::Progress(Some(Arc::new(progress))));
        Answer::Done(effect)
    }
}

fn replace(
    draft: &mut Drafted<'_>,
    before: &Arc<Subscription>,
    after: Arc<Subscription>,
    status: Option<Status>,
) -> Answer {
    let (tenant, id) = (&after.tenant, &after.id);
    let Some((now, known)) = draft.state().get(tenant, id) else { return Answer::NotFound };
    if !Arc::ptr_eq(now, before) {
        return Answer::Outdated;
    }
    let mut progress = Progress::clone(&known.progress);
    if let Some(status) = status {
        // Who wakes it gives it as many chances as a new one has.
        progress.fails = if progress.is_at_work() { progress.fails } else { 0 };
        progress.status = status;
    }
    let mut effects = Vec::new();
    if progress.is_at_work() {
        effects.push(Effect::Begin(after.clone()));
    } else {
        effects.push(Effect::End { tenant: tenant.clone(), id: id.clone(), rest: Rest::Dropped });
        drop_waiting(draft, tenant, id);
        progress.failed.clear();
    }
    change(draft, tenant, id, Part::Definition(Some(after.clone())));
    change(draft, tenant, id, Part::Progress(Some(Arc::new(progress))));
    Answer::Done(effects)
}

fn delete(draft: &mut Drafted<'_>, tenant: &TenantId, id: &Arc<str>) -> Answer {
    if draft.state().get(tenant, id).is_none() {
        return Answer::NotFound;
    }
    drop_waiting(draft, tenant, id);
    change(draft, tenant, id, Part::Progress(None));
    change(draft, tenant, id, Part::Definition(None));
    Answer::Done(vec![Effect::End { tenant: tenant.clone(), id: id.clone(), rest: Rest::Forgotten }])
}

/// Forgets what waits or is held.
fn drop_waiting(draft: &mut Drafted<'_>, tenant: &TenantId, id: &Arc<str>) {
    let Some((_, known)) = draft.state().get(tenant, id) else { return };
    let (places, is_held): (Vec<Place>, bool) = (known.waiting.keys().copied().collect(), known.held.is_some());
    for place in places {
        change(draft, tenant, id, Part::Waiting(place, None));
    }
    if is_held {
        change(draft, tenant, id, Part::Held(None));
    }
}

/// Counters that a command changes, stored once at its end.
#[derive(Default)]
struct Counted(HashMap<(TenantId, Arc<str>), Progress>);

impl Counted {
    /// What is counted of a subscription, as far as this command has come.
    fn of(&mut self, tenant: &TenantId, id: &Arc<str>, stored: &Arc<Progress>) -> &mut Progress {
        self.0.entry((tenant.clone(), id.clone())).or_insert_with(|| Progress::clone(stored))
    }

    fn store(self, draft: &mut Drafted<'_>) {
        for ((tenant, id), progress) in self.0 {
            change(draft, &tenant, &id, Part::Progress(Some(Arc::new(progress))));
        }
    }
}

fn fire_all(draft: &mut Drafted<'_>, fired: impl Iterator<Item = Fired>) -> Vec<Effect> {
    let (mut counted, mut effects) = (Counted::default(), Vec::new());
    for fired in fired {
        fire(draft, &mut counted, fired, &mut effects);
    }
    counted.store(draft);
    effects
}

fn fire(draft: &mut Drafted<'_>, counted: &mut Counted, fired: Fired, effects: &mut Vec<Effect>) {
    let Fired { tenant, id, notification } = fired;
    let now_ms = draft.now_ms();
    let Some((subscription, known)) = draft.state().get(&tenant, &id) else { return };
    let (subscription, is_held) = (subscription.clone(), known.held.is_some());
    // After a crash a part of what a change led to may be looked at once more.
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
            change(draft, &tenant, &id, Part::Held(Some(notification)));
            effects.push(Effect::Wait { tenant, id, due_ms });
        }
        return;
    }
    progress.times_sent += 1;
    progress.last_notification_ms = Some(now_ms);
    if progress.status == Status::Oneshot {
        progress.status = Status::Inactive;
        effects.push(Effect::End { tenant: tenant.clone(), id: id.clone(), rest: Rest::Delivered });
    }
    if is_held {
        change(draft, &tenant, &id, Part::Held(None));
    }
    if subscription.delivery.is_durable && notification.may_be_stored() {
        change(draft, &tenant, &id, Part::Waiting(notification.place, Some(notification.clone())));
    }
    effects.push(Effect::Deliver(subscription, notification));
}

fn release(draft: &mut Drafted<'_>, tenant: &TenantId, id: &Arc<str>) -> Vec<Effect> {
    let Some((_, known)) = draft.state().get(tenant, id) else { return Vec::new() };
    let Some(held) = &known.held else { return Vec::new() };
    // Its age counts from now on: until now it was not to go.
    let notification = Arc::new(Notification { made_ms: draft.now_ms(), ..Notification::clone(held) });
    let fired = Fired { tenant: tenant.clone(), id: id.clone(), notification };
    fire_all(draft, std::iter::once(fired))
}

fn settle_all(draft: &mut Drafted<'_>, settled: Vec<Settled>) -> Vec<Effect> {
    let (mut counted, mut effects) = (Counted::default(), Vec::new());
    for Settled { tenant, id, place, end } in settled {
        let Some((subscription, known)) = draft.state().get(&tenant, &id) else { continue };
        let (subscription, is_waiting) = (subscription.clone(), known.waiting.contains_key(&place));
        let progress = counted.of(&tenant, &id, &known.progress);
        if let End::Failed { at_ms, reason } = end {
            let is_new = progress.fail(place, is_waiting, at_ms, reason);
            let is_over = subscription.fails_limit.is_some_and(|limit| progress.fails > limit);
            if is_new && is_over && progress.is_at_work() {
                progress.status = Status::Inactive;
                progress.failed.clear();
                let (fails, limit) = (progress.fails, subscription.fails_limit.unwrap_or_default());
                tracing::warn!(%tenant, subscription = %id, fails, limit, "too many notifications failed; the subscription is inactive now");
                effects.push(Effect::End { tenant: tenant.clone(), id: id.clone(), rest: Rest::Dropped });
                drop_waiting(draft, &tenant, &id);
            }
            continue;
        }
        if let End::Delivered { at_ms, code } = end {
            progress.fails = 0;
            progress.last_success_ms = Some(at_ms);
            progress.last_success_code = code;
        }
        if is_waiting {
            progress.failed.remove(&place);
            change(draft, &tenant, &id, Part::Waiting(place, None));
        }
    }
    counted.store(draft);
    effects
}
