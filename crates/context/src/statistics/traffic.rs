//! Requests and notifications by tenant and service path, for `/admin/metrics`.
//!
//! The texts of a request's headers select its counters without a lock; only the first request of a tenant and path
//! creates them. Their number is limited: further requests count in the total only.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use millstream_types::{ServicePaths, TenantId, service_path};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::model::syntax::is_service;

/// Number of requests that are not counted.
const NOWHERE: u32 = u32::MAX;
/// Number of the shared counters of all further tenants and paths.
const OTHERS: u32 = 0;
/// Spellings of a path that are kept, for each set of counters.
const SPELLINGS_PER_PLACE: usize = 4;
/// Orion's names of the default tenant and the root path.
const DEFAULT_SERVICE: &str = "default-service";
const ROOT_PATH: &str = "root-subserv";

pub(crate) struct ServiceTraffic {
    known: ArcSwap<ServiceTable>,
    /// Held while counters are created.
    making: Mutex<()>,
    places_max: usize,
}

/// All counters; copied when one is added.
#[derive(Clone)]
struct ServiceTable {
    places: Vec<Arc<ServiceMetrics>>,
    /// Indexes of counters by the text of the path.
    by_text: HashMap<TenantId, HashMap<Arc<str>, u32>>,
    spellings: usize,
}

/// The counters of a tenant and service path.
struct ServiceMetrics {
    tenant: TenantId,
    path: String,
    incoming: Flow,
    outgoing: Flow,
    service_ns: AtomicU64,
}

#[derive(Default)]
struct Flow {
    count: AtomicU64,
    request_bytes: AtomicU64,
    answer_bytes: AtomicU64,
    errors: AtomicU64,
}

/// Sizes and outcome of a request.
#[derive(Clone, Copy)]
pub(crate) struct RequestOutcome {
    pub(crate) request_bytes: u64,
    pub(crate) answer_bytes: u64,
    pub(crate) is_error: bool,
}

/// Reset of the counters on read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Keeping,
    Resetting,
}

impl ServiceTraffic {
    /// Limits the sets of counters to `places_max`; 0 counts nothing.
    pub(crate) fn new(places_max: usize) -> Self {
        let others = ServiceMetrics::new(TenantId::default(), String::new());
        let known = ServiceTable { places: vec![Arc::new(others)], by_text: HashMap::new(), spellings: 0 };
        Self { known: ArcSwap::from_pointee(known), making: Mutex::new(()), places_max }
    }

    /// The number of the counters for a tenant and the text of a service path.
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
        let mut known = ServiceTable::clone(&known);
        if number as usize == known.places.len() {
            known.places.push(Arc::new(ServiceMetrics::new(tenant.clone(), path.clone())));
        }
        let texts = known.by_text.entry(tenant.clone()).or_default();
        for text in [text, &path] {
            known.spellings += usize::from(texts.insert(text.into(), number).is_none());
        }
        self.known.store(Arc::new(known));
        number
    }

    pub(crate) fn came(&self, number: u32, exchange: RequestOutcome, took: Duration) {
        if let Some(place) = self.known.load().places.get(number as usize) {
            place.incoming.add(exchange);
            place.service_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Counts an attempt to deliver a notification of a subscription with this service path.
    pub(crate) fn went(&self, tenant: &TenantId, path: &str, exchange: RequestOutcome) {
        let number = self.place_of(tenant, path.as_bytes());
        if let Some(place) = self.known.load().places.get(number as usize) {
            place.outgoing.add(exchange);
        }
    }

    /// Counts by tenant, with Orion's names of the metrics.
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

    /// Counts of all tenants, or of one.
    pub(crate) fn shown(&self, only: Option<&TenantId>, reading: Reading) -> Value {
        let known = self.known.load();
        let is_shown = |place: &&Arc<ServiceMetrics>| only.is_none_or(|tenant| place.tenant == *tenant);
        let (mut services, mut sum) =
            (BTreeMap::<&str, (Map<String, Value>, TrafficCounts)>::new(), TrafficCounts::default());
        let mut subservices = BTreeMap::<&str, TrafficCounts>::new();
        for place in known.places.iter().skip(1).filter(is_shown) {
            let counted = place.counted(reading);
            let (paths, of_service) = services.entry(place.service()).or_default();
            paths.insert(place.subservice().to_owned(), counted.shown());
            of_service.add(counted);
            subservices.entry(place.subservice()).or_default().add(counted);
            sum.add(counted);
        }
        if only.is_none() {
            sum.add(known.places.iter().take(1).fold(TrafficCounts::default(), |_, others| others.counted(reading)));
        }
        let services: Map<String, Value> = services
            .into_iter()
            .map(|(name, (paths, sum))| (name.to_owned(), json!({"subservs": paths, "sum": sum.shown()})))
            .collect();
        let subservices: Map<String, Value> =
            subservices.into_iter().map(|(name, sum)| (name.to_owned(), sum.shown())).collect();
        json!({"services": services, "sum": {"subservs": subservices, "sum": sum.shown()}})
    }
}

/// The path that a request with this header counts on: the first of a list, without `/#`. `None` if it is malformed.
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

impl ServiceTable {
    fn number(&self, tenant: &TenantId, text: &str) -> Option<u32> {
        self.by_text.get(tenant)?.get(text).copied()
    }
}

impl ServiceMetrics {
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

    fn counted(&self, reading: Reading) -> TrafficCounts {
        let incoming = self.incoming.counted(reading);
        let outgoing = self.outgoing.counted(reading);
        TrafficCounts { incoming, outgoing, service_ns: read(&self.service_ns, reading) }
    }
}

impl Flow {
    fn add(&self, exchange: RequestOutcome) {
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

/// Transactions, bytes of requests and replies, errors.
#[derive(Clone, Copy, Default)]
struct TrafficCounts {
    incoming: [u64; 4],
    outgoing: [u64; 4],
    service_ns: u64,
}

impl TrafficCounts {
    fn add(&mut self, other: Self) {
        let both = [(&mut self.incoming, other.incoming), (&mut self.outgoing, other.outgoing)];
        for (all, more) in both {
            all.iter_mut().zip(more).for_each(|(all, more)| *all += more);
        }
        self.service_ns += other.service_ns;
    }

    /// Renders an object without zeros.
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

    const SMALL: RequestOutcome = RequestOutcome { request_bytes: 2, answer_bytes: 3, is_error: false };

    #[test]
    fn all_spellings_of_a_service_path_count_as_one_and_a_malformed_one_does_not_count() {
        let traffic = ServiceTraffic::new(10);
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
    fn requests_of_paths_beyond_the_limit_count_in_the_sum() {
        let traffic = ServiceTraffic::new(2);
        let tenant = TenantId::default();
        for path in ["/a", "/b", "/c", "/d", "/a"] {
            traffic.came(traffic.place_of(&tenant, path.as_bytes()), SMALL, Duration::from_secs(1));
        }
        traffic.came(NOWHERE, SMALL, Duration::ZERO);
        let shown = traffic.shown(None, Reading::Keeping);
        let subservices = shown["services"]["default-service"]["subservs"].as_object().unwrap();
        assert_eq!(subservices.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            (&subservices["a"]["incomingTransactions"], &shown["sum"]["sum"]["incomingTransactions"]),
            (&2.into(), &5.into())
        );
        assert_eq!(shown["sum"]["sum"]["serviceTime"], 1.0);
        assert_eq!(
            traffic.shown(Some(&TenantId::new("other").unwrap()), Reading::Keeping)["sum"],
            json!({"subservs": {}, "sum": {}})
        );
    }

    #[test]
    fn many_threads_count_everything_once() {
        let traffic = ServiceTraffic::new(100);
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
            let read =
                || traffic.shown(None, Reading::Resetting)["sum"]["sum"]["incomingTransactions"].as_u64().unwrap_or(0);
            (0..20).map(|_| read()).sum()
        });
        let rest = traffic.shown(None, Reading::Keeping)["sum"]["sum"]["incomingTransactions"].as_u64().unwrap_or(0);
        assert_eq!(read + rest, threads * each, "reading and resetting is one step");
    }
}
