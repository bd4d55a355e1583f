//! The client's end of a live query.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use millstream_types::TenantId;
use serde::Serialize;

use crate::live::LiveQuery;
use crate::outbox::Delivery;
use crate::registry::QueryRegistry;
use crate::sink_progress::SinkPosition;
use crate::{Cause, Error, Meta, MetaNames, QueryId, ResultId, RowBatch, Trouble};

/// The results of a query: a stream of [`Delivery::Rows`] and then one [`Delivery::End`]. Dropping it ends the query, unless
/// the query is kept: then another client may continue until the end is read.
pub struct Subscription {
    live: Arc<LiveQuery>,
    registry: Arc<QueryRegistry>,
    /// True if the end was read, or need not be.
    is_read: bool,
    /// Up to where it has read.
    place: SinkPosition,
    /// True if results are handed out once they are stored, and again unless they have arrived.
    must_arrive: bool,
    /// True if the opening was sent in a former process.
    is_opened: bool,
    /// The number of this client among those of a kept query.
    client: u64,
    numbered: Option<Numbered>,
}

/// The state of a client whose results have numbers and stay until they have arrived.
#[derive(Debug)]
struct Numbered {
    /// The number of the last result before this client's.
    after: ResultId,
    is_end_sent: bool,
    has_gap: bool,
}

impl Subscription {
    pub(crate) fn new(live: Arc<LiveQuery>, registry: Arc<QueryRegistry>, client: u64) -> Self {
        let start = live.outbox.start();
        let (place, is_opened) = start.unwrap_or_default();
        let must_arrive = start.is_some();
        Self { live, registry, is_read: false, place, must_arrive, is_opened, client, numbered: None }
    }

    /// Keeps the sent results of a kept query for a while ([`Self::next_sent`]), for a client whose connection may break
    /// and that then reconnects ([`crate::Engine::attach_after`]).
    #[must_use]
    pub fn resumable(self) -> Self {
        self.numbered(false)
    }

    /// As [`Self::resumable`], of a client to which some results are lost, or not.
    pub(crate) fn numbered(mut self, has_gap: bool) -> Self {
        if let Some((after, durable)) = self.live.outbox.go_on(self.client).zip(self.live.durable.as_ref()) {
            durable.make_replaceable(self.client);
            self.numbered = Some(Numbered { after, is_end_sent: false, has_gap });
        }
        self
    }

    /// The id of the query.
    pub fn id(&self) -> QueryId {
        self.live.id
    }

    /// The tenant of the query.
    pub fn tenant(&self) -> &TenantId {
        self.live.tenant()
    }

    /// The first message for the client.
    pub fn opening(&self) -> Opening<'_> {
        let gap = self.numbered.as_ref().is_some_and(|numbered| numbered.has_gap);
        let residual_ns_per_record = self.live.price.as_ref().map(|price| price.ns());
        Opening { id: self.live.id, columns: &self.live.columns, residual_ns_per_record, gap }
    }

    /// The number of the last result before this client's, if the subscription is resumable.
    pub fn begins_after(&self) -> Option<ResultId> {
        self.numbered.as_ref().map(|numbered| numbered.after)
    }

    /// The current meta of the query.
    pub fn meta(&self) -> Meta {
        self.live.meta()
    }

    /// As [`Self::next`], with the result's number if it has one; also `None` once another client has taken over.
    pub async fn next_sent(&mut self) -> Option<(Option<ResultId>, Delivery)> {
        std::future::poll_fn(|cx| self.poll_sent(cx)).await
    }

    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Option<ResultId>, Delivery)>> {
        let Some(numbered) = &mut self.numbered else {
            return self.poll(cx).map(|next| next.map(|delivery| (None, delivery)));
        };
        let polled = self.live.outbox.poll_numbered(self.client, &mut numbered.is_end_sent, cx);
        if let (Poll::Ready(Some((Some(_), Delivery::End(_)))), Some(durable)) = (&polled, &self.live.durable) {
            durable.end_was_sent(self.live.now_ms());
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

    /// True if the opening was sent in a former process.
    pub(crate) fn is_opened(&self) -> bool {
        self.is_opened
    }

    /// True if no result may be lost, whatever the delay.
    pub(crate) fn must_arrive(&self) -> bool {
        self.must_arrive
    }

    /// Marks the results read so far as arrived; they are not handed out again.
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

    /// Ends the query, because nobody will get its results.
    pub(crate) fn give_up(mut self, trouble: Trouble) {
        self.end(Cause::Error, trouble);
        self.is_read = true;
    }

    /// True if the query drops its oldest rows for a slow client.
    pub fn drops_oldest(&self) -> bool {
        self.live.outbox.drops_oldest()
    }

    /// Ends the query with cause `shutdown` when the server stops; a kept query continues after the restart. True
    /// if its end follows now.
    pub fn stop(&self) -> bool {
        let ends = !self.live.durable.as_ref().is_some_and(|durable| durable.is_kept());
        if ends {
            self.registry.end(&self.live, Cause::Shutdown, None);
        }
        ends
    }

    /// Waits for the end; returns all rows and the meta.
    pub async fn answer(self) -> QueryAnswer {
        self.answer_until(std::future::pending()).await.expect("nothing stops it")
    }

    /// As [`Self::answer`]; if the server is `stopping` earlier, returns the results so far.
    ///
    /// # Errors
    /// [`Error::Stopped`] for a kept query: its results follow after the restart.
    pub async fn answer_until(mut self, stopping: impl Future<Output = ()>) -> Result<QueryAnswer, Error> {
        let (mut stopping, mut is_stopping, mut batches) = (std::pin::pin!(stopping), false, Vec::new());
        loop {
            let delivery = tokio::select! {
                delivery = self.next() => delivery,
                () = &mut stopping, if !is_stopping => {
                    is_stopping = true;
                    if self.stop() {
                        continue;
                    }
                    return Err(Error::Stopped);
                }
            };
            match delivery {
                Some(Delivery::Rows(rows)) => batches.push(rows),
                Some(Delivery::Window(window)) => batches.push(window.rows),
                Some(Delivery::End(meta)) => return Ok(QueryAnswer { batches, meta: *meta }),
                None => return Ok(QueryAnswer { batches, meta: self.meta() }),
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
        match self.live.durable.as_ref().filter(|durable| durable.is_kept()) {
            Some(_) if self.is_read => self.registry.forget(&self.live),
            Some(durable) => durable.detach(self.client),
            None => self.registry.end(&self.live, Cause::Disconnected, None),
        }
    }
}

/// The first message to a client.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Opening<'a> {
    /// The id of the query.
    pub id: QueryId,
    /// The names of a row's members in order; empty if rows are whole payloads.
    pub columns: &'a [String],
    /// The cost of the query: the estimated additional time for each record of its stream, because no index finds its
    /// matches; less if other queries share its conditions. `None` if it costs nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residual_ns_per_record: Option<u64>,
    /// True if results are missing after the client's last one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gap: bool,
}

/// All results of a query.
#[derive(Debug)]
pub struct QueryAnswer {
    /// The rows, in the batches in which they came.
    pub batches: Vec<RowBatch>,
    /// The final meta of the query.
    pub meta: Meta,
}

impl QueryAnswer {
    /// The approximate size of [`QueryAnswer::to_json`].
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
