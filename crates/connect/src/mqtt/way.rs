//! What the messages of a run have in common, and how they become records of telemetry, events or answers to commands.

use std::sync::Arc;

use bytes::Bytes;
use millstream_http::Problem;
use millstream_log::{AckLevel, Appended, Done, Error, Partition, Reply as Answer, reply};
use millstream_types::{Principal, Record};
use smallvec::SmallVec;

use super::adapter::{ADAPTER, origin};
use super::topic::Bag;
use super::upstream::{Item, Sent};
use crate::commands::Response;
use crate::meter::Delivery;
use crate::outgoing::{Headers, Numbers, Outgoing, Reply, check_type};
use crate::registry::TenantState;
use crate::sender::{Sender, Target};
use crate::streams::TenantStreams;
use crate::usage::Moment;

/// What the messages of a run have in common.
pub(super) struct Way<'a> {
    who: &'a Principal,
    pub(super) delivery: Delivery,
    /// What the log has to have done before they are acknowledged; those that nobody waits for have it in memory.
    pub(super) level: AckLevel,
    pub(super) target: Target<'a>,
    address: &'a str,
    pub(super) bag: &'a Bag<'a>,
    /// Correlation id and status of answers to a command, the status as it was sent and as a number.
    pub(super) reply: Option<(String, &'a str, u16)>,
}

/// By what it is judged whether messages may be sent, and where they go.
pub(super) struct Ground<'a> {
    pub(super) known: &'a TenantState,
    pub(super) streams: &'a TenantStreams,
    pub(super) now: Moment,
}

impl<'a> Way<'a> {
    pub(super) fn new(
        who: &'a Principal,
        delivery: Delivery,
        target: Target<'a>,
        address: &'a str,
        bag: &'a Bag<'a>,
    ) -> Self {
        let level = match delivery {
            Delivery::AtMostOnce => AckLevel::Memory,
            Delivery::Event => AckLevel::Synced,
            Delivery::AtLeastOnce | Delivery::UnconfirmedResponse | Delivery::Response => AckLevel::Written,
        };
        Self { who, delivery, level, target, address, bag, reply: None }
    }

    /// Hands `take` the records of messages of one device, if they may be sent. They count if it has taken them.
    pub(super) fn admitted<R, E>(
        &self,
        run: &[Item<'_>],
        ground: &Ground<'_>,
        take: impl FnOnce(&Arc<dyn Partition>, &[Record<'_>]) -> Result<R, E>,
    ) -> Result<Result<R, E>, Problem> {
        let Ground { known, streams, now } = *ground;
        let sender = Sender::find(known, self.target, origin(self.who))?;
        let ttl_s = sender.ttl_s(self.delivery, if self.delivery == Delivery::Event { self.bag.ttl_s } else { None });
        run.iter().try_for_each(|item| sender.check_payload(item.publish.payload.len()))?;
        let content_type = |item| self.content_type(item).map(str::as_bytes);
        run.iter().try_for_each(|item| sender.check_default_type(content_type(item), item.publish.payload))?;
        let partition = streams.partition(self.delivery.stream(), sender.id);
        sender.check_consumer(self.delivery, &**partition)?;
        let amount = sender.amount(run.iter().map(|item| item.publish.payload.len()));
        let admission = streams.usage.admit(&sender, amount, now)?;
        let numbers = Numbers::at(now.wall_ms).with_times(None, ttl_s);
        let trace = known.sampling(&self.who.name).begun().map(|trace| trace.traceparent());
        let traceparent = trace.as_ref().map(|text| &text[..]);
        let alike = || run.chunk_by(|a, b| self.says_the_same(a, b));
        let headers: SmallVec<[Headers<'_>; 1]> = alike()
            .map(|items| Outgoing { traceparent, ..self.outgoing(&items[0]) }.headers(&sender, &numbers))
            .collect();
        let mut records: SmallVec<[Record<'_>; 1]> = SmallVec::with_capacity(run.len());
        for (items, headers) in alike().zip(&headers) {
            records.extend(items.iter().map(|item| self.outgoing(item).record(&sender, &numbers, headers)));
        }
        let taken = take(partition, &records);
        if taken.is_ok() {
            admission.keep();
        }
        Ok(taken)
    }

    /// Appends records as these messages want it; what answers, if it is waited for.
    pub(super) fn append(
        &self,
        partition: &Arc<dyn Partition>,
        records: &[Record<'_>],
    ) -> Result<Option<Answer<Appended>>, Error> {
        if self.level == AckLevel::Memory {
            return partition.append(records, self.level, Done::ignore()).map(|()| None);
        }
        let (done, answer) = reply();
        partition.append(records, self.level, done).map(|()| Some(answer))
    }

    fn outgoing<'b>(&'b self, item: &Item<'b>) -> Outgoing<'b> {
        Outgoing {
            adapter: ADAPTER,
            delivery: self.delivery,
            address: self.address,
            content_type: self.content_type(item).map(str::as_bytes),
            content_encoding: None,
            traceparent: None,
            is_retained: item.publish.retain,
            payload: item.publish.payload,
            reply: self.reply.as_ref().map(|(correlation_id, status, _)| Reply {
                tenant: self.who.tenant.as_str(),
                correlation_id,
                status,
            }),
        }
    }

    /// Whether the records of two messages have the same headers.
    fn says_the_same(&self, a: &Item<'_>, b: &Item<'_>) -> bool {
        a.publish.retain == b.publish.retain && self.content_type(a) == self.content_type(b)
    }

    fn content_type<'b>(&'b self, item: &Item<'b>) -> Option<&'b str> {
        item.content_type().or(self.bag.content_type.as_deref())
    }

    /// The device that they are sent for, if not for the one that has logged in.
    pub(super) fn device(&self) -> Option<&'a str> {
        match self.target {
            Target::Caller => None,
            Target::Named { device, .. } => Some(device),
        }
    }

    pub(super) fn sent(&self, item: &Item<'_>) -> Sent {
        let device = self.device();
        let reply = self.reply.as_ref().map(|(correlation_id, _, status)| {
            let content_type = self.content_type(item).map(Into::into);
            let payload = Bytes::copy_from_slice(item.publish.payload);
            let device = device.unwrap_or(&self.who.name).into();
            Box::new((correlation_id.clone(), Response { device, status: *status, content_type, payload }))
        });
        Sent {
            id: item.publish.id,
            delivery: self.delivery,
            payload_bytes: item.publish.payload.len(),
            on_error: self.bag.on_error,
            correlation_id: self.bag.correlation_id.as_deref().map(Into::into),
            device: device.map(Into::into),
            reply,
        }
    }
}

/// The first message whose type and payload do not fit, and why.
pub(super) fn split<'a>(run: &[Item<'a>], way: &Way<'a>) -> Option<(usize, Problem)> {
    let rule = "an empty payload needs a content type";
    run.iter().enumerate().find_map(|(at, item)| {
        let content_type = way.content_type(item).map(str::as_bytes);
        check_type(content_type, item.publish.payload, rule).err().map(|problem| (at, problem))
    })
}
