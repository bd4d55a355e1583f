//! Counters, gauges and histograms, as Prometheus reads them.
//!
//! A handle is made once, with its labels resolved, and kept by whoever counts; counting is an atomic addition.
//! Several handles may share a name and differ in the values of the same labels.

use std::fmt;
use std::sync::Arc;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, HistogramOpts, Opts, PullingGauge, Registry, TextEncoder};
pub use prometheus::{Histogram, IntCounter as Counter, IntGauge as Gauge};

/// Label names and values of one handle.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// All metrics of a process. Cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Registry>);

impl Metrics {
    /// Counts what only grows. By custom its name ends in `_total`.
    ///
    /// # Panics
    /// If name or labels are illegal or were given out before: a mistake in the program. So with all of these.
    pub fn counter(&self, name: &str, help: &str, labels: Labels<'_>) -> Counter {
        let counter = Counter::with_opts(options(name, help, labels)).expect("name and labels of a counter are legal");
        self.register(name, counter.clone());
        counter
    }

    /// Shows what rises and falls.
    pub fn gauge(&self, name: &str, help: &str, labels: Labels<'_>) -> Gauge {
        let gauge = Gauge::with_opts(options(name, help, labels)).expect("name and labels of a gauge are legal");
        self.register(name, gauge.clone());
        gauge
    }

    /// Shows what `read` returns at the moment of asking.
    pub fn gauge_fn(&self, name: &str, help: &str, read: impl Fn() -> f64 + Send + Sync + 'static) {
        let gauge = PullingGauge::new(name, help, Box::new(read)).expect("name of a gauge is legal");
        self.register(name, gauge);
    }

    /// Shows what `read` returns at the moment of asking: for each combination of the labels' values a number. It is
    /// `read`'s to bound how many there are.
    pub fn gauges_fn(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        read: impl Fn() -> Vec<(Vec<String>, f64)> + Send + Sync + 'static,
    ) {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        self.register(name, PullingGauges { gauges: empty_gauges(name, help, &labels), labels, read });
    }

    /// Counts observations by size, in buckets with these upper bounds (ascending).
    pub fn histogram(&self, name: &str, help: &str, labels: Labels<'_>, bounds: &[f64]) -> Histogram {
        let options = HistogramOpts::from(options(name, help, labels)).buckets(bounds.to_vec());
        let histogram = Histogram::with_opts(options).expect("name, labels and bounds of a histogram are legal");
        self.register(name, histogram.clone());
        histogram
    }

    /// The exposition text.
    pub fn text(&self) -> String {
        TextEncoder::new().encode_to_string(&self.0.gather()).unwrap_or_default()
    }

    fn register(&self, name: &str, collector: impl Collector + 'static) {
        if let Err(error) = self.0.register(Box::new(collector)) {
            panic!("metric {name} cannot be registered: {error}");
        }
    }
}

/// Gauges that are read when they are asked for.
struct PullingGauges<F> {
    /// Without values: it describes those that are read.
    gauges: GaugeVec,
    labels: Vec<String>,
    read: F,
}

fn empty_gauges(name: &str, help: &str, labels: &[String]) -> GaugeVec {
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    GaugeVec::new(Opts::new(name, help), &labels).expect("name and labels of a gauge are legal")
}

impl<F: Fn() -> Vec<(Vec<String>, f64)> + Send + Sync> Collector for PullingGauges<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // Made anew each time: what is not there any more is not shown, and nobody who asks meanwhile sees a part.
        let gauges = self.desc().first().map(|desc| empty_gauges(&desc.fq_name, &desc.help, &self.labels));
        let Some(gauges) = gauges else { return Vec::new() };
        for (values, number) in (self.read)() {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            gauges.with_label_values(&values).set(number);
        }
        gauges.collect()
    }
}

fn options(name: &str, help: &str, labels: Labels<'_>) -> Opts {
    labels.iter().fold(Opts::new(name, help), |options, (label, value)| options.const_label(*label, *value))
}

impl IntoResponse for &Metrics {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], self.text()).into_response()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_one_name_differ_by_their_labels() {
        let metrics = Metrics::default();
        let (a, b) = ("a", "b");
        metrics.counter("sent_total", "Records sent.", &[("to", a)]).inc_by(2);
        metrics.counter("sent_total", "Records sent.", &[("to", b)]).inc();
        metrics.gauge_fn("depth", "Records waiting.", || 7.0);
        let sizes = || vec![(vec!["t".to_owned(), "u".to_owned()], 3.0)];
        metrics.gauges_fn("size", "Bytes.", &["of", "in"], sizes);
        metrics.histogram("wait_seconds", "Time waited.", &[], &[0.1, 1.0]).observe(0.5);
        let text = metrics.text();
        for line in [
            "sent_total{to=\"a\"} 2",
            "sent_total{to=\"b\"} 1",
            "depth 7",
            "size{in=\"u\",of=\"t\"} 3",
            "wait_seconds_bucket{le=\"0.1\"} 0",
            "wait_seconds_bucket{le=\"1\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert_eq!(text.matches("# TYPE sent_total").count(), 1);
    }
}
