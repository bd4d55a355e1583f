//! What each tenant and service path has asked of us and what we have sent for it, as `/admin/metrics` shows it.
//!
//! A place to count in is found by the texts of a request's headers, without a lock; only the first request of a tenant
//! and path makes one. There are so many places at most; beyond that requests count in the sum of all alone.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use millstream_types::{ServicePaths, TenantId, service_path};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::request::is_service;

/// The number of a request that counts nowhere.
const NOWHERE: u32 = u32::MAX;
/// The number of the place for whatever has none of its own.
const OTHERS: u32 = 0;
/// Texts of a path that lead to its place, for each place that there may be.
const SPELLINGS_PER_PLACE: usize = 4;
/// What the tenant without a name and the path at the root are called.
const DEFAULT_SERVICE: &str = "default-service";
const ROOT_PATH: &str = "root-subserv";

/// See the module.
pub(crate) struct Traffic {
    known: ArcSwap<Known>,
    /// Who makes a place holds this.
    making: Mutex<()>,
    places_max: usize,
}

/// The places there are; copied when there is a new one.
#[derive(Clone)]
struct Known {
    places: Vec<Arc<Place>>,
    /// Numbers of places, by the path as it is written.
    by_text: HashMap<TenantId, HashMap<Arc<str>, u32>>,
    spellings: usize,
}

/// A tenant and a service path, and what is counted of them.
struct Place {
    tenant: TenantId,
    path: String,
    incoming: Flow,
    outgoing: Flow,
    service_ns: AtomicU64,
}

/// Requests in one direction.
#[derive(Default)]
struct Flow {
    count: AtomicU64,
    request_bytes: AtomicU64,
    answer_bytes: AtomicU64,
    errors: AtomicU64,
}

/// A request and its answer.
#[derive(Clone, Copy)]
pub(crate) struct Exchange {
    pub(crate) request_bytes: u64,
    pub(crate) answer_bytes: u64,
    pub(crate) is_error: bool,
}

/// Whether what is read begins anew.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Keeping,
    Resetting,
}

impl Traffic {
    /// Counts in at most `places_max` places; 0 counts nothing.
    pub(crate) fn new(places_max: usize) -> Self {
        let others = Place::new(TenantId::default(), String::new());
        let known = Known { places: vec![Arc::new(others)], by_text: HashMap::new(), spellings: 0 };
        Self { known: ArcSwap::from_pointee(known), making: Mutex::new(()), places_max }
    }

    /// The number of the place for a tenant's requests with this text of a service path.
    pub(crate) fn place_of(&self, tenant: &TenantId, text: &[u8]) -> u32 {
        let Ok(text) = std::str::from_utf8(text) else { return NOWHERE };
        if self.places_max == 0 {
            return NOWHERE;
        }
        match self.known.load().number(tenant, text) {
            Some(number) => number,
            None => self.made(tenant, text),
        }
    }

    fn made(&self, tenant: &TenantId, text: &str) -> u32 {
        let Some(path) = path_of(text).filter(|_| is_service(tenant.as_str().as_bytes())) else { return NOWHERE };
        let _one = self.making.lock();
        let known = self.known.load_full();
        if let Some(number) = known.number(tenant, text) {
            return number;
        }
        let number = match known.number(tenant, &path) {
            Some(number) => number,
            None if known.places.len() > self.places_max => return OTHERS,
            None => known.places.len() as u32,
        };
        if known.spellings >= self.places_max * SPELLINGS_PER_PLACE && (number as usize) < known.places.len() {
            return number;
        }
        let mut known = Known::clone(&known);
        if number as usize == known.places.len() {
            known.places.push(Arc::new(Place::new(tenant.clone(), path.clone())));
        }
        let texts = known.by_text.entry(tenant.clone()).or_default();
        for text in [text, &path] {
            known.spellings += usize::from(texts.insert(text.into(), number).is_none());
        }
        self.known.store(Arc::new(known));
        number
    }

    /// Counts a request that came and was answered.
    pub(crate) fn came(&self, number: u32, exchange: Exchange, took: Duration) {
        if let Some(place) = self.known.load().places.get(number as usize) {
            place.incoming.add(exchange);
            place.service_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Counts an attempt to deliver a notification of a subscription with this service path.
    pub(crate) fn went(&self, tenant: &TenantId, path: &str, exchange: Exchange) {
        let number = self.place_of(tenant, path.as_bytes());
        if let Some(place) = self.known.load().places.get(number as usize) {
            place.outgoing.add(exchange);
        }
    }

    /// What was counted of each tenant, by Orion's name of the metric.
    pub(crate) fn by_service(&self) -> Vec<(Vec<String>, f64)> {
        let shown = self.shown(None, Reading::Keeping);
        let services = shown["services"].as_object().into_iter().flatten();
        services
            .flat_map(|(service, counted)| {
                let sum = counted["sum"].as_object().into_iter().flatten();
                sum.filter_map(move |(metric, number)| Some((vec![service.clone(), metric.clone()], number.as_f64()?)))
            })
            .collect()
    }

    /// What was counted of all tenants, or of one.
    pub(crate) fn shown(&self, only: Option<&TenantId>, reading: Reading) -> Value {
        let known = self.known.load();
        let is_shown = |place: &&Arc<Place>| only.is_none_or(|tenant| place.tenant == *tenant);
        let (mut services, mut sum) = (BTreeMap::<&str, (Map<String, Value>, Counted)>::new(), Counted::default());
        for place in known.places.iter().skip(1).filter(is_shown) {
            let counted = place.counted(reading);
            let (paths, of_service) = services.entry(place.service()).or_default();
            paths.insert(place.subservice().to_owned(), counted.shown());
            of_service.add(counted);
            sum.add(counted);
        }
        if only.is_none() {
            sum.add(known.places.iter().take(1).fold(Counted::default(), |_, others| others.counted(reading)));
        }
        let services: Map<String, Value> = services
            .into_iter()
            .map(|(name, (paths, sum))| (name.to_owned(), json!({"subservs": paths, "sum": sum.shown()})))
            .collect();
        json!({"services": services, "sum": sum.shown()})
    }
}

/// The path that a request with this header counts on: the first of a list, without `/#`. None if it is malformed.
fn path_of(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("/".to_owned());
    }
    ServicePaths::parse(text).ok()?;
    let first = text.split(',').next().unwrap_or_default().trim();
    match first.strip_suffix("/#") {
        Some("") => Some("/".to_owned()),
        Some(path) => service_path(path).ok(),
        None => service_path(first).ok(),
    }
}

impl Known {
    fn number(&self, tenant: &TenantId, text: &str) -> Option<u32> {
        self.by_text.get(tenant)?.get(text).copied()
    }
}

impl Place {
    fn new(tenant: TenantId, path: String) -> Self {
        let (incoming, outgoing) = (Flow::default(), Flow::default());
        Self { tenant, path, incoming, outgoing, service_ns: AtomicU64::new(0) }
    }

    fn service(&self) -> &str {
        if self.tenant == TenantId::default() { DEFAULT_SERVICE } else { self.tenant.as_str() }
    }

    fn subservice(&self) -> &str {
        match self.path.trim_start_matches('/') {
            "" => ROOT_PATH,
            path => path,
        }
    }

    fn counted(&self, reading: Reading) -> Counted {
        let incoming = self.incoming.counted(reading);
        let outgoing = self.outgoing.counted(reading);
        Counted { incoming, outgoing, service_ns: read(&self.service_ns, reading) }
    }
}

impl Flow {
    fn add(&self, exchange: Exchange) {
        self.count.fetch_add(1, Ordering::Relaxed);
        for (counter, by) in [
            (&self.request_bytes, exchange.request_bytes),
            (&self.answer_bytes, exchange.answer_bytes),
            (&self.errors, u64::from(exchange.is_error)),
        ] {
            if by > 0 {
                counter.fetch_add(by, Ordering::Relaxed);
            }
        }
    }

    fn counted(&self, reading: Reading) -> [u64; 4] {
        [&self.count, &self.request_bytes, &self.answer_bytes, &self.errors].map(|counter| read(counter, reading))
    }
}

fn read(counter: &AtomicU64, reading: Reading) -> u64 {
    match reading {
        Reading::Keeping => counter.load(Ordering::Relaxed),
        Reading::Resetting => counter.swap(0, Ordering::Relaxed),
    }
}

/// What was counted: transactions, bytes of requests and answers, errors.
#[derive(Clone, Copy, Default)]
struct Counted {
    incoming: [u64; 4],
    outgoing: [u64; 4],
    service_ns: u64,
}

impl Counted {
    fn add(&mut self, other: Self) {
        let both = [(&mut self.incoming, other.incoming), (&mut self.outgoing, other.outgoing)];
        for (all, more) in both {
            all.iter_mut().zip(more).for_each(|(all, more)| *all += more);
        }
        self.service_ns += other.service_ns;
    }

    /// As an object; what is zero is left out.
    fn shown(&self) -> Value {
        const NAMES: [&str; 4] = ["", "RequestSize", "ResponseSize", "Errors"];
        let mut shown = Map::new();
        for (direction, counted) in [("incoming", self.incoming), ("outgoing", self.outgoing)] {
            for (name, number) in NAMES.iter().zip(counted).filter(|(_, number)| *number > 0) {
                let name = match *name {
                    "" => format!("{direction}Transactions"),
                    name => format!("{direction}Transaction{name}"),
                };
                shown.insert(name, number.into());
            }
        }
        if self.incoming[0] > 0 && self.service_ns > 0 {
            let mean_s = self.service_ns as f64 / 1e9 / self.incoming[0] as f64;
            shown.insert("serviceTime".to_owned(), mean_s.into());
        }
        Value::Object(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Exchange = Exchange { request_bytes: 2, answer_bytes: 3, is_error: false };

    #[test]
    fn a_path_is_counted_on_whatever_way_it_is_written_and_a_malformed_one_is_not() {
        let traffic = Traffic::new(10);
        let tenant = TenantId::new("t").unwrap();
        let a = traffic.place_of(&tenant, b"/A");
        for text in ["/A/", "/A/#", "/A,/B", "/A/# , /B"] {
            assert_eq!(traffic.place_of(&tenant, text.as_bytes()), a, "{text}");
        }
        assert_ne!(traffic.place_of(&tenant, b"/A/B"), a);
        let root = traffic.place_of(&tenant, b"");
        for text in ["/", "/#"] {
            assert_eq!(traffic.place_of(&tenant, text.as_bytes()), root, "{text}");
        }
        for text in ["A", "/A-B", "/a//b", "/A,B"] {
            assert_eq!(traffic.place_of(&tenant, text.as_bytes()), NOWHERE, "{text}");
        }
        assert_eq!(traffic.place_of(&TenantId::new("a-b").unwrap(), b""), NOWHERE, "no tenant of NGSI's");
    }

    #[test]
    fn what_finds_no_place_counts_in_the_sum() {
        let traffic = Traffic::new(2);
        let tenant = TenantId::default();
        for path in ["/a", "/b", "/c", "/d", "/a"] {
            traffic.came(traffic.place_of(&tenant, path.as_bytes()), SMALL, Duration::from_secs(1));
        }
        traffic.came(NOWHERE, SMALL, Duration::ZERO);
        let shown = traffic.shown(None, Reading::Keeping);
        let subservices = shown["services"]["default-service"]["subservs"].as_object().unwrap();
        assert_eq!(subservices.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            (&subservices["a"]["incomingTransactions"], &shown["sum"]["incomingTransactions"]),
            (&2.into(), &5.into())
        );
        assert_eq!(shown["sum"]["serviceTime"], 1.0);
        assert_eq!(traffic.shown(Some(&TenantId::new("other").unwrap()), Reading::Keeping)["sum"], json!({}));
    }

    #[test]
    fn many_threads_count_everything_once() {
        let traffic = Traffic::new(100);
        let (threads, each) = (8, 2_000_u64);
        let read: u64 = std::thread::scope(|scope| {
            let traffic = &traffic;
            for thread in 0..threads {
                scope.spawn(move || {
                    for n in 0..each {
                        let path = format!("/p{}", (n + thread) % 50);
                        traffic.came(traffic.place_of(&TenantId::default(), path.as_bytes()), SMALL, Duration::ZERO);
                    }
                });
            }
            let read = || traffic.shown(None, Reading::Resetting)["sum"]["incomingTransactions"].as_u64().unwrap_or(0);
            (0..20).map(|_| read()).sum()
        });
        let rest = traffic.shown(None, Reading::Keeping)["sum"]["incomingTransactions"].as_u64().unwrap_or(0);
        assert_eq!(read + rest, threads * each, "reading and resetting is one step");
    }
}
