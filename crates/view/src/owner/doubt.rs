//! The doubt of an owner after an append whose outcome is unknown, until it goes on with a new writer.

use std::sync::Arc;

use millstream_log::Writer;

use super::{Owner, OwnerCore, next_id};
use crate::Error;
use crate::outcome::{self, DecidedOutcome};
use crate::view::View;

/// The doubt about the outcomes of the appends in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    None,
    /// It is unknown.
    Open,
    /// It is being found out: nothing lands and nothing is sent.
    FindingOut,
}

impl<V: View> Owner<V> {
    /// Ends the owner after a failed append, unless what became of it can be found out.
    pub(super) fn failed(&self, core: &mut OwnerCore<V>, flight: u64, failure: millstream_log::Error) {
        let is_fenced = matches!(failure, millstream_log::Error::Fenced { .. });
        let at = core.flights.iter().position(|it| it.id == flight);
        match core.doubt {
            // The appends behind it fail with it, and taking the name again fences them.
            Doubt::Open | Doubt::FindingOut if is_fenced || failure.needs_writer() => {}
            Doubt::None if failure.needs_writer() && core.ended.is_none() => {
                tracing::warn!(partition = %self.id, error = %failure, "the owner looks for what is stored");
                core.doubt = Doubt::Open;
                if let (millstream_log::Error::Refused { .. }, Some(at)) = (&failure, at) {
                    core.flights[at].refused = Some(failure);
                }
            }
            _ => self.end(core, at.unwrap_or(core.flights.len()), failure),
        }
    }

    /// Finds out what is stored of the appends in flight, on a thread of its own.
    pub(super) fn find_out(&self, core: &mut OwnerCore<V>) {
        core.doubt = Doubt::FindingOut;
        let (me, log, partition) = (self.me.clone(), Arc::clone(&self.log), Arc::clone(&self.partition));
        let (writer, from) = (core.writer.name().to_owned(), self.snapshot.load().next);
        let records_max = core.flights.iter().map(|flight| flight.own_records).sum();
        let work = move || {
            let goes_on = |error: &millstream_log::Error| {
                me.upgrade().is_some_and(|owner: Arc<Self>| {
                    let mut inbox = owner.inbox.lock();
                    let refusal = Arc::new(error.clone());
                    // Others need not wait as long as those that were accepted; followers offer theirs again.
                    if Error::Log(Arc::clone(&refusal)).is_full() {
                        inbox.stalled = Some(refusal);
                    }
                    !inbox.stopping
                })
            };
            let decided = outcome::decide(&*log, &*partition, &writer, from, records_max, goes_on);
            if let Some(owner) = me.upgrade() {
                owner.inbox.lock().decided = Some(decided);
                owner.schedule();
            }
        };
        if std::thread::Builder::new().name(format!("outcome-{}", V::NAME)).spawn(work).is_err() {
            self.end(core, 0, unknown(&*core.writer));
        }
    }

    /// Goes on with a new writer: the appends that are stored land, and the others are sent again.
    pub(super) fn go_on(&self, core: &mut OwnerCore<V>, decided: Result<DecidedOutcome, millstream_log::Error>) {
        core.doubt = Doubt::None;
        self.inbox.lock().stalled = None;
        if core.ended.is_some() {
            return;
        }
        let mut decided = match decided {
            Ok(decided) => decided,
            Err(failure) => return self.end(core, 0, failure),
        };
        core.writer = Arc::clone(&decided.writer);
        let OwnerCore { flights, next_flight, .. } = core;
        let told = decided.tell_apart(flights, || next_id(next_flight));
        let unknown = unknown(&*core.writer);
        let refusal = Error::from(unknown.clone());
        self.close(told.unknown.into_iter().map(|flight| flight.refuse(&refusal)).sum());
        if !told.fits {
            return self.end(core, 0, unknown);
        }
        let refused = core.flights.iter_mut().enumerate().find_map(|(at, flight)| Some((at, flight.refused.take()?)));
        if let Some((at, refusal)) = refused.filter(|(at, _)| core.flights[*at].unsent.is_some()) {
            self.refuse_from(core, at, refusal);
        }
    }
}

fn unknown(writer: &dyn Writer) -> millstream_log::Error {
    millstream_log::Error::OutcomeUnknown { writer: writer.name().to_owned() }
}
