//! The client's end of a live query.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use millstream_types::TenantId;
use serde::Serialize;

use crate::live::Live;
use crate::outbox::Delivery;
use crate::passage::Place;
use crate::registry::Registry;
use crate::{Cause, Meta, MetaNames, QueryId, ResultId, RowBatch, Trouble};

/// The results of a query: a stream of [`Delivery::Rows`] and then one [`Delivery::End`]. Dropping it ends the query, unless
/// that is kept: then somebody else may read on, until the end has been read.
pub struct Subscription {
    live: Arc<Live>,
    registry: Arc<Registry>,
    /// Whether the end has been read, or need not be.
    is_read: bool,
    /// Up to where it has read.
    place: Place,
    /// Whether results are given once they are kept, and again unless they have arrived.
    must_arrive: bool,
    /// Whether somebody was told of the opening in a former process.
    is_opened: bool,
    /// Which of the clients of a query that is kept this is.
    client: u64,
    numbered: Option<Numbered>,
}

/// Of one whose results have numbers, and stay until they are known to have arrived.
#[derive(Debug)]
struct Numbered {
    /// The last result before those that it gives.
    after: ResultId,
    is_end_sent: bool,
    has_gap: bool,
}

impl Subscription {
    pub(crate) fn new(live: Arc<Live>, registry: Arc<Registry>, client: u64) -> Self {
        let start = live.outbox.start();
        let (place, is_opened) = start.unwrap_or_default();
        let must_arrive = start.is_some();
        Self { live, registry, is_read: false, place, must_arrive, is_opened, client, numbered: None }
    }

    /// If the query is kept: has its results stay for a while after they were sent ([`Self::next_sent`]), for a client whose
    /// connection may break, and who then comes again ([`crate::Engine::attach_after`]).
    #[must_use]
    pub fn resumable(self) -> Self {
        self.numbered(false)
    }

    /// As [`Self::resumable`], of a client to which some results are lost, or not.
    pub(crate) fn numbered(mut self, has_gap: bool) -> Self {
        if let Some((after, keeping)) = self.live.outbox.go_on(self.client).zip(self.live.keeping.as_ref()) {
            keeping.make_replaceable(self.client);
            self.numbered = Some(Numbered { after, is_end_sent: false, has_gap });
        }
        self
    }

    /// The query's name.
    pub fn id(&self) -> QueryId {
        self.live.id
    }

    /// Whose it is.
    pub(crate) fn tenant(&self) -> &TenantId {
        self.live.tenant()
    }

    /// What a client is told first.
    pub fn opening(&self) -> Opening<'_> {
        let gap = self.numbered.as_ref().is_some_and(|numbered| numbered.has_gap);
        let residual_ns_per_record = self.live.price.as_ref().map(|price| price.ns());
        Opening { id: self.live.id, columns: &self.live.columns, residual_ns_per_record, gap }
    }

    /// The number of the last result before those that it gives; of one that is resumable.
    pub fn begins_after(&self) -> Option<ResultId> {
        self.numbered.as_ref().map(|numbered| numbered.after)
    }

    /// What can be told now.
    pub fn meta(&self) -> Meta {
        self.live.meta()
    }

    /// As [`Self::next`], with the result's number if it is numbered and has one; also `None` once somebody else has taken
    /// the client's place.
    pub async fn next_sent(&mut self) -> Option<(Option<ResultId>, Delivery)> {
        std::future::poll_fn(|cx| self.poll_sent(cx)).await
    }

    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Option<ResultId>, Delivery)>> {
        let Some(numbered) = &mut self.numbered else {
            return self.poll(cx).map(|next| next.map(|delivery| (None, delivery)));
        };
        let polled = self.live.outbox.poll_numbered(self.client, &mut numbered.is_end_sent, cx);
        if let (Poll::Ready(Some((Some(_), Delivery::End(_)))), Some(keeping)) = (&polled, &self.live.keeping) {
            keeping.end_was_sent(self.live.now_ms());
        }
        polled
    }

    /// The next rows, or the end; `None` after it.
    pub async fn next(&mut self) -> Option<Delivery> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        self.poll_numbered(cx).map(|next| next.map(|(_, delivery)| delivery))
    }

    /// The next delivery, with the number of its first record if results are records.
    fn poll_numbered(&mut self, cx: &mut Context<'_>) -> Poll<Option<(u64, Delivery)>> {
        if self.must_arrive {
            return self.live.outbox.poll_kept(&mut self.place, cx);
        }
        let polled = self.live.outbox.poll(cx);
        self.is_read |= matches!(polled, Poll::Ready(Some(Delivery::End(_)) | None));
        polled.map(|next| next.map(|delivery| (self.place.pass(delivery.record_count()), delivery)))
    }

    /// As [`Self::next`], with the number of its first record.
    pub(crate) async fn next_numbered(&mut self) -> Option<(u64, Delivery)> {
        std::future::poll_fn(|cx| self.poll_numbered(cx)).await
    }

    /// Whether somebody was told of the opening in a former process.
    pub(crate) fn is_opened(&self) -> bool {
        self.is_opened
    }

    /// Whether nothing may get lost, however long it takes to arrive.
    pub(crate) fn must_arrive(&self) -> bool {
        self.must_arrive
    }

    /// What has been read is where it belongs, and is not given again.
    pub(crate) fn has_arrived(&mut self) {
        if self.must_arrive {
            self.live.outbox.has_arrived(&self.place);
            self.is_read |= self.place.is_end;
        }
    }

    /// Ends the query for a reason that lies with its client.
    pub(crate) fn end(&self, cause: Cause, trouble: Trouble) {
        self.registry.end(&self.live, cause, Some(trouble));
    }

    /// Ends the query, whose results nobody will get.
    pub(crate) fn give_up(mut self, trouble: Trouble) {
        self.end(Cause::Error, trouble);
        self.is_read = true;
    }

    /// Waits for the end. All rows together, and what is told about the query.
    pub async fn answer(mut self) -> Answer {
        let mut batches = Vec::new();
        loop {
            match self.next().await {
                Some(Delivery::Rows(rows)) => batches.push(rows),
                Some(Delivery::Window(window)) => batches.push(window.rows),
                Some(Delivery::End(meta)) => return Answer { batches, meta: *meta },
                None => return Answer { batches, meta: self.meta() },
            }
        }
    }
}

impl Stream for Subscription {
    type Item = Delivery;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        self.poll(cx)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        match self.live.keeping.as_ref().filter(|keeping| keeping.is_kept()) {
            Some(_) if self.is_read => self.registry.forget(&self.live),
            Some(keeping) => keeping.detach(self.client),
            None => self.registry.end(&self.live, Cause::Disconnected, None),
        }
    }
}

/// What a client is told first.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Opening<'a> {
    /// The query's name.
    pub id: QueryId,
    /// The names of a row's members in order; empty if rows are whole payloads.
    pub columns: &'a [String],
    /// Its price: by how much longer, by an estimate, each record of its stream takes because no index finds those that match;
    /// less if other queries have the same conditions. `None` if it costs nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residual_ns_per_record: Option<u64>,
    /// Whether results are missing after those that the client has.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gap: bool,
}

/// Everything a query gave.
#[derive(Debug)]
pub struct Answer {
    /// The rows, in the batches in which they came.
    pub batches: Vec<RowBatch>,
    /// What is told about the query.
    pub meta: Meta,
}

impl Answer {
    /// What [`Answer::to_json`] takes, about.
    pub fn size_bytes(&self) -> usize {
        self.batches.iter().map(RowBatch::size_bytes).sum()
    }

    /// `{"records": […], "meta": {…}}`.
    pub fn to_json(&self) -> Vec<u8> {
        self.to_json_called(&MetaNames::default())
    }

    /// As [`Self::to_json`], with these names of the meta's members.
    pub fn to_json_called(&self, names: &MetaNames) -> Vec<u8> {
        let mut json = b"{\"records\":[".to_vec();
        for (i, rows) in self.batches.iter().filter(|rows| !rows.is_empty()).enumerate() {
            if i > 0 {
                json.push(b',');
            }
            rows.write_list(&mut json);
        }
        json.extend_from_slice(b"],\"meta\":");
        names.write(&self.meta, &mut json);
        json.push(b'}');
        json
    }
}
