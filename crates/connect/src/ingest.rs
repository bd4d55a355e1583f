//! Admits the messages of devices: one rule for all protocols.
//!
//! A protocol adapter decodes a run of messages (see [`Message`]) of one sender to one address and describes what they
//! share in an [`Envelope`]. [`Ingest::offer`] checks tenant, device, gateway rights, command responses, sizes, types and
//! limits, makes the records with Hono's headers and hands them over while the admission holds. Either all messages of a
//! run are taken or none.
//!
//! Not here: packets, topics and paths, acknowledgements, retries (the adapters); which device may send for which
//! (`sender`); the headers of a record (`outgoing`).

mod message;
mod records;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_http::Problem;
use millstream_log::{AckLevel, Appended, Done, Error, Partition, Reply, reply};
use millstream_types::{Principal, Record};

use crate::adapter::UNAUTHENTICATED;
use crate::commands::{Answered, Commands, GivenAnswer};
use crate::metrics::{ProcessingOutcome, TenantMetrics, Totals};
use crate::outgoing::Numbers;
use crate::refusal::unknown_tenant;
use crate::registry::{Registry, TenantState};
use crate::sender::{DeviceAddress, Origin, Sender};
use crate::stream::Delivery;
use crate::streams::TenantStreams;
use crate::usage::Moment;

pub(crate) use message::{Envelope, Message};
use records::{RecordDraft, write};

/// The admission of one adapter's messages.
pub(crate) struct Ingest {
    /// The adapter's type, in tenants' settings and in records.
    pub(crate) adapter: &'static str,
    pub(crate) registry: Registry,
    pub(crate) commands: Arc<Commands>,
    pub(crate) totals: Arc<Totals>,
    /// Longest time that a device may wait for a command with its message, seconds; 0 for protocols without that.
    pub(crate) ttd_max_s: u32,
}

/// A run of messages that may be appended.
pub(crate) struct AdmittedRun<'a> {
    pub(crate) tenant: &'a TenantState,
    /// The id of the sending device.
    pub(crate) device: &'a str,
    /// Time that the device waits for a command, seconds.
    pub(crate) ttd_s: Option<u32>,
    pub(crate) partition: &'a Arc<dyn Partition>,
    pub(crate) records: &'a [Record<'a>],
    /// The answer to a command that the one record is.
    answer: Option<(&'a Arc<Answered>, GivenAnswer<'a>)>,
}

impl AdmittedRun<'_> {
    /// Appends the records, except for an answer that was given before. Returns the pending reply of the log; `None` at
    /// [`AckLevel::Memory`].
    pub(crate) fn append(&self, level: AckLevel) -> Result<Option<Reply<Appended>>, Error> {
        if level == AckLevel::Memory {
            return self.partition.append(self.records, level, Done::ignore()).map(|()| None);
        }
        let (done, verdict) = reply();
        let append = |done| self.partition.append(self.records, level, done);
        match self.answer {
            None => append(done.failing_on_full_disk())?,
            Some((answered, given)) => answered.once(given, done, append)?,
        }
        Ok(Some(verdict))
    }
}

impl Ingest {
    /// Admits the messages of one device and hands their records to `take`. They count if `take` succeeds.
    ///
    /// The outer error refuses the messages; the inner one is that of `take`. An answer to a command is a run of its own.
    pub(crate) fn offer<M: Message, R, E>(
        &self,
        envelope: &Envelope<'_>,
        run: &[M],
        streams: &TenantStreams,
        now: Moment,
        take: impl FnOnce(&AdmittedRun<'_>) -> Result<R, E>,
    ) -> Result<Result<R, E>, Problem> {
        let Envelope { caller, delivery, .. } = *envelope;
        let snapshot = self.registry.snapshot(&caller.tenant);
        let tenant = snapshot.state.tenant(&caller.tenant).ok_or_else(|| unknown_tenant(&caller.tenant))?;
        let sender = self.sender(tenant, envelope.target, caller)?;
        if let Some((request_id, _)) = envelope.reply {
            self.commands.check_request_id(&caller.tenant, sender.id, request_id)?;
        }
        run.iter().try_for_each(|message| sender.check_payload(message.payload().len()))?;
        run.iter()
            .try_for_each(|message| sender.check_default_type(envelope.content_type_of(message), message.payload()))?;
        let partition = streams.partition(delivery.stream(), sender.id);
        sender.check_consumer(delivery, &**partition)?;
        let ttd_s = envelope.ttd_s.map(|seconds| seconds.min(sender.ttd_max_s(self.ttd_max_s)));
        let ttl_s = sender.ttl_s(delivery, envelope.ttl_s.filter(|_| delivery == Delivery::Event));
        let admission = streams.usage.admit(&sender, sender.amount(sizes(run)), now)?;
        let sampling = tenant.sampling(&caller.name);
        let trace = envelope.trace.map_or_else(|| sampling.begun(), |trace| Some(sampling.of_request(trace)));
        let trace = trace.map(|trace| trace.traceparent());
        let draft = RecordDraft {
            adapter: self.adapter,
            envelope,
            sender: &sender,
            numbers: &Numbers::at(now.wall_ms).with_times(ttd_s, ttl_s),
            traceparent: trace.as_ref().map(|text| &text[..]),
        };
        let answer = self.answer(envelope, run, sender.id);
        let taken = write(&draft, run, |records| {
            take(&AdmittedRun { tenant, device: sender.id, ttd_s, partition, records, answer })
        });
        if taken.is_ok() {
            admission.keep();
            if !envelope.is_will {
                self.seen(sender.id, caller, streams, now);
            }
        }
        Ok(taken)
    }

    /// Admits messages that stay in the tenant's private space and has `publish` publish them. They count if it returns
    /// true. The outer error refuses the messages.
    pub(crate) fn offer_private<M: Message, E>(
        &self,
        caller: &Principal,
        run: &[M],
        streams: &TenantStreams,
        now: Moment,
        publish: impl FnOnce() -> Result<bool, E>,
    ) -> Result<Result<bool, E>, Problem> {
        let snapshot = self.registry.snapshot(&caller.tenant);
        let tenant = snapshot.state.tenant(&caller.tenant).ok_or_else(|| unknown_tenant(&caller.tenant))?;
        let sender = self.sender(tenant, DeviceAddress::Caller, caller)?;
        sizes(run).try_for_each(|size| sender.check_payload(size))?;
        let admission = streams.usage.admit(&sender, sender.amount(sizes(run)), now)?;
        let published = publish();
        if let Ok(true) = published {
            admission.keep();
        }
        Ok(published)
    }

    /// The answer to a command that `run` is, if it is one.
    fn answer<'a, M: Message>(
        &'a self,
        envelope: &Envelope<'a>,
        run: &'a [M],
        device: &'a str,
    ) -> Option<(&'a Arc<Answered>, GivenAnswer<'a>)> {
        let ((request_id, status), message) = (envelope.reply?, run.first()?);
        assert_eq!(run.len(), 1, "answers are offered one by one");
        let given = GivenAnswer {
            tenant: &envelope.caller.tenant,
            device,
            correlation_id: &request_id.correlation_id,
            status,
            content_type: envelope.content_type_of(message),
            payload: message.payload(),
        };
        Some((self.commands.answered(), given))
    }

    /// Resolves the device that `caller` sends for, and checks that it may.
    pub(crate) fn sender<'a>(
        &self,
        tenant: &'a TenantState,
        target: DeviceAddress<'a>,
        caller: &'a Principal,
    ) -> Result<Sender<'a>, Problem> {
        Sender::find(tenant, target, Origin { adapter: self.adapter, tenant: &caller.tenant, device: &caller.name })
    }

    /// The device of `target`, if it is unknown and `caller` is a gateway that may register it.
    pub(crate) fn to_provision<'a>(&self, target: DeviceAddress<'a>, caller: &Principal) -> Option<&'a str> {
        let snapshot = self.registry.snapshot(&caller.tenant);
        let known = snapshot.state.tenant(&caller.tenant)?;
        let origin = Origin { adapter: self.adapter, tenant: &caller.tenant, device: &caller.name };
        Sender::to_provision(known, target, origin)
    }

    /// Notes the time of the device's message, and the gateway that has sent it.
    fn seen(&self, device: &str, caller: &Principal, streams: &TenantStreams, now: Moment) {
        streams.stamps.stamp(device, now.wall_ms);
        if device != caller.name && caller.name != UNAUTHENTICATED {
            self.commands.seen_behind(&caller.tenant, device, &caller.name);
        }
    }

    /// Counts a message that the log has.
    pub(crate) fn count_accepted(
        &self,
        meter: &TenantMetrics,
        delivery: Delivery,
        payload_bytes: usize,
        took: Duration,
    ) {
        meter.count(delivery, ProcessingOutcome::Forwarded, payload_bytes, took);
        self.totals.accept_latency.record(took);
    }

    /// Counts a message that was refused.
    pub(crate) fn count_refused(
        &self,
        meter: &TenantMetrics,
        delivery: Delivery,
        problem: &Problem,
        payload_bytes: usize,
        took: Duration,
    ) {
        self.totals.rejected.fetch_add(1, Ordering::Relaxed);
        meter.count(delivery, outcome_of(problem), payload_bytes, took);
    }
}

/// True if some messages of a refused run may be taken when each is offered by itself.
pub(crate) fn fits_apart<M>(run: &[M], problem: &Problem) -> bool {
    run.len() > 1 && problem.status().is_client_error()
}

/// The outcome of a refused message: undeliverable if the server failed, else unprocessable.
pub(crate) fn outcome_of(problem: &Problem) -> ProcessingOutcome {
    if problem.status().is_server_error() { ProcessingOutcome::Undeliverable } else { ProcessingOutcome::Unprocessable }
}

/// The level that the log reaches before messages of this kind are acknowledged.
pub(crate) fn level_of(delivery: Delivery) -> AckLevel {
    match delivery {
        Delivery::AtMostOnce => AckLevel::Memory,
        Delivery::AtLeastOnce | Delivery::UnconfirmedResponse | Delivery::Response => AckLevel::Written,
        Delivery::Event => AckLevel::Synced,
    }
}

fn sizes<M: Message>(run: &[M]) -> impl Iterator<Item = usize> {
    run.iter().map(|message| message.payload().len())
}
