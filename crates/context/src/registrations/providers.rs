//! The requests to context providers, over HTTP.
//!
//! A provider has a few connections, which are kept for a while. A request waits for one, and for the answer, no longer than
//! `context.registrations.timeout_ms`. All requests that wait together are bounded, and one tenant leaves room to others.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_http::Metrics;
use millstream_outgoing::{Address, Failed, HttpReceiver, HttpReply, HttpRequest, HttpUrl, Outgoing};
use millstream_types::{MemoryBudget, TenantId, WallClock};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::provided::{self, UpdateForward};
use super::registration::{ANY_ID, ForwardedOperation, Identity, Registration};
use super::{QueryForward, registration};
use crate::config::RegistrationsConfig;
use crate::model::entity::Entity;
use crate::query::filter::Pagination;
use crate::statistics::observers::Observers;
use crate::statistics::traffic::RequestOutcome;

/// Connections to one provider.
/// The header in which a provider tells the number of entities.
const TOTAL_COUNT: &str = "fiware-total-count";
const CONNECTIONS_MAX: usize = 16;
/// Requests that came from another broker's forward and are in flight under one correlator: more of them run in a circle.
const NESTED_MAX: usize = 8;
/// The mark of a forwarded request in its correlator, with the number of the forward.
const FORWARD_MARK: &str = "; cbfwd=";

/// The connections to providers.
pub(crate) struct Providers {
    outgoing: Arc<Outgoing>,
    receivers: Mutex<HashMap<Arc<Address>, Arc<HttpReceiver>>>,
    wall: Arc<dyn WallClock>,
    timeout: Duration,
    answer_max_bytes: usize,
    /// Forwards in flight; each counts as one.
    waiting: MemoryBudget,
    /// Requests in flight that came from another forward, by the root of their correlator.
    nested: Arc<Mutex<HashMap<Box<str>, usize>>>,
    observers: Observers,
    counters: Arc<ForwardCounters>,
}

/// Forwards by their outcome.
#[derive(Debug, Default)]
struct ForwardCounters {
    answered: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
}

impl ForwardCounters {
    fn by_outcome(&self) -> Vec<(&'static str, u64)> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![("answered", read(&self.answered)), ("failed", read(&self.failed)), ("refused", read(&self.refused))]
    }
}

/// The origin of the forwards of one request.
pub(crate) struct Forwarding {
    tenant: TenantId,
    /// The headers that are passed on.
    service: Option<String>,
    token: Option<String>,
    correlator: String,
    /// The number of the last forward.
    sent: AtomicU64,
    /// Counts this request among those of its correlator.
    _nested: Option<NestedRequest>,
}

/// A request that another forward has caused.
struct NestedRequest {
    root: Box<str>,
    of: Arc<Mutex<HashMap<Box<str>, usize>>>,
}

impl Drop for NestedRequest {
    fn drop(&mut self) {
        let mut nested = self.of.lock();
        if let Some(count) = nested.get_mut(&self.root) {
            *count -= 1;
            if *count == 0 {
                nested.remove(&self.root);
            }
        }
    }
}

/// The answer of a provider to a query.
#[derive(Debug, Default)]
pub(crate) struct ProvidedPage {
    pub(crate) entities: Vec<Entity>,
    /// All entities that the provider has, if it says so.
    pub(crate) total: Option<usize>,
    pub(crate) answer_bytes: usize,
}

/// The end of an update at a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UpdateOutcome {
    Done,
    NotFound,
    Failed(String),
}

impl Providers {
    pub(super) fn new(
        outgoing: Arc<Outgoing>,
        config: &RegistrationsConfig,
        wall: Arc<dyn WallClock>,
        observers: Observers,
        metrics: &Metrics,
    ) -> Self {
        let counters = Arc::<ForwardCounters>::default();
        let help = "Requests that were forwarded to context providers, by their outcome.";
        let of = counters.clone();
        metrics.counters_fn("millstream_context_forwards_total", help, "outcome", move || of.by_outcome());
        Self {
            outgoing,
            receivers: Mutex::default(),
            wall,
            timeout: Duration::from_millis(config.timeout_ms),
            answer_max_bytes: config.answer_max_bytes,
            waiting: MemoryBudget::new("context.registrations.waiting_max", config.waiting_max as u64),
            nested: Arc::default(),
            observers,
            counters,
        }
    }

    /// Begins the forwards of a request with these headers; `None` if it runs in a circle of brokers.
    pub(crate) fn begin(
        &self,
        tenant: &TenantId,
        service: Option<&str>,
        token: Option<&str>,
        correlator: &str,
    ) -> Option<Forwarding> {
        let (root, is_forwarded) = match correlator.split_once(FORWARD_MARK) {
            Some((root, _)) => (root, true),
            None => (correlator, false),
        };
        let nested = if is_forwarded { Some(self.nest(root)?) } else { None };
        Some(Forwarding {
            tenant: tenant.clone(),
            service: service.map(str::to_owned),
            token: token.map(str::to_owned),
            correlator: root.to_owned(),
            sent: AtomicU64::new(0),
            _nested: nested,
        })
    }

    fn nest(&self, root: &str) -> Option<NestedRequest> {
        let mut nested = self.nested.lock();
        let count = nested.entry(root.into()).or_default();
        if *count >= NESTED_MAX {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *count += 1;
        Some(NestedRequest { root: root.into(), of: self.nested.clone() })
    }

    /// Largest answer of a provider.
    pub(crate) fn answer_max_bytes(&self) -> usize {
        self.answer_max_bytes
    }

    /// Asks a provider for a page of entities. One that does not answer has nothing.
    pub(crate) async fn query(&self, forwarding: &Forwarding, asked: &QueryForward, page: Pagination) -> ProvidedPage {
        let entity = |entity: &registration::ForwardedEntity| {
            let mut named = Map::new();
            match &entity.id {
                Some(id) => named.insert("id".to_owned(), Value::from(&**id)),
                None => named.insert("idPattern".to_owned(), ANY_ID.into()),
            };
            named.extend(entity.kind.as_ref().map(|kind| ("type".to_owned(), Value::from(&**kind))));
            Value::Object(named)
        };
        let entities: Vec<Value> = asked.entities.iter().map(entity).collect();
        let body = json!({"attrs": asked.attrs, "entities": entities}).to_string();
        let query = format!("?limit={}&offset={}&options=count", page.limit, page.offset);
        let registration = &asked.registration;
        let registrations = std::slice::from_ref(registration);
        match self.send(forwarding, registrations, ForwardedOperation::Query, &query, &body).await {
            Ok(HttpReply { status: 200, body: answer, total }) => {
                let mut entities = provided::entities(&answer, &registration.identity.path);
                // A provider speaks for what it was asked for alone.
                entities.retain(|entity| asked.entities.iter().any(|asked| asked.is_met_by(&entity.key)));
                ProvidedPage { entities, total, answer_bytes: answer.len() }
            }
            _ => ProvidedPage::default(),
        }
    }

    /// Sends an update to a provider.
    pub(crate) async fn update(&self, forwarding: &Forwarding, asked: &UpdateForward) -> UpdateOutcome {
        let body = asked.body();
        match self
            .send(forwarding, &asked.registrations, ForwardedOperation::Update, "", &body)
            .await
            .map(|reply| reply.status)
        {
            Ok(204) => UpdateOutcome::Done,
            Ok(404 | 422) => UpdateOutcome::NotFound,
            Ok(status) => UpdateOutcome::Failed(format!("the provider answered {status}")),
            Err(failed) => UpdateOutcome::Failed(failed.reason),
        }
    }

    /// Makes one request for these registrations, of which the first names the provider.
    async fn send(
        &self,
        forwarding: &Forwarding,
        registrations: &[Arc<Registration>],
        operation: ForwardedOperation,
        query: &str,
        body: &str,
    ) -> Result<HttpReply, Failed> {
        let ended = self.attempt(forwarding, &registrations[0], operation, query, body).await;
        let (now_ms, status) = (self.wall.now_ms(), ended.as_ref().map(|reply| reply.status));
        registrations.iter().for_each(|registration| registration.outcomes.add(now_ms, status));
        ended
    }

    async fn attempt(
        &self,
        forwarding: &Forwarding,
        registration: &Registration,
        operation: ForwardedOperation,
        query: &str,
        body: &str,
    ) -> Result<HttpReply, Failed> {
        let Some(_place) = self.waiting.for_tenant(&forwarding.tenant).take(1) else {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Failed::refused("too many forwards are in flight: context.registrations.waiting_max"));
        };
        let text = registration.url_of(operation, query);
        let Some(url) = HttpUrl::read(&text) else { return Err(Failed::refused(format!("'{text}' is no URL"))) };
        let number = forwarding.sent.fetch_add(1, Ordering::Relaxed) + 1;
        let correlator = format!("{}{FORWARD_MARK}{number}", forwarding.correlator);
        let request = HttpRequest::write(&url, "POST", &forwarding.headers(registration, &correlator), body);
        let receiver = self.receiver(&request.address);
        let ended = receiver.ask(&request, self.timeout, self.answer_max_bytes, TOTAL_COUNT).await;
        let Identity { id, path, .. } = &registration.identity;
        let is_error = !matches!(&ended, Ok(reply) if reply.status < 400);
        let answer_bytes = ended.as_ref().map_or(0, |reply| reply.body.len() as u64);
        let outcome = RequestOutcome { request_bytes: body.len() as u64, answer_bytes, is_error };
        self.observers.traffic.went(&forwarding.tenant, path, outcome);
        let counter = if ended.is_ok() { &self.counters.answered } else { &self.counters.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        match &ended {
            Ok(reply) => tracing::debug!(registration = %id, url = %text, status = reply.status, "forwarded"),
            Err(failed) => {
                tracing::debug!(registration = %id, url = %text, reason = %failed.reason, "a provider did not answer")
            }
        }
        ended
    }

    fn receiver(&self, address: &Arc<Address>) -> Arc<HttpReceiver> {
        let mut receivers = self.receivers.lock();
        if let Some(known) = receivers.get(address) {
            return known.clone();
        }
        // Those that nobody uses go when another one comes.
        receivers.retain(|_, receiver| Arc::strong_count(receiver) > 1 || !receiver.is_unused());
        let new = Arc::new(HttpReceiver::new(address.clone(), self.outgoing.clone(), CONNECTIONS_MAX));
        receivers.insert(address.clone(), new.clone());
        new
    }
}

impl Forwarding {
    /// The headers of a forward.
    fn headers<'a>(&'a self, registration: &'a Registration, correlator: &'a str) -> Vec<(&'a str, &'a str)> {
        let mut headers = vec![
            ("content-type", "application/json; charset=utf-8"),
            ("accept", "application/json"),
            ("user-agent", concat!("Millstream/", env!("CARGO_PKG_VERSION"))),
            ("fiware-servicepath", &*registration.identity.path),
        ];
        headers.extend(self.service.as_deref().map(|service| ("fiware-service", service)));
        headers.extend(self.token.as_deref().map(|token| ("x-auth-token", token)));
        headers.push(("fiware-correlator", correlator));
        headers
    }
}
