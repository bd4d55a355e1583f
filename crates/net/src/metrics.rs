//! Counters, gauges and histograms, as Prometheus reads them.
//!
//! A handle is made once, with its labels resolved, and kept by the counting code; counting is an atomic addition.
//! Several handles may share a name and differ in the values of the same labels.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{GaugeVec, HistogramOpts, IntCounterVec, Opts, PullingGauge, Registry, TextEncoder};
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

    /// Shows what `read` returns at the moment of asking: a number that only grows.
    pub fn counter_fn(&self, name: &str, help: &str, read: impl Fn() -> f64 + Send + Sync + 'static) {
        self.register(
            name,
            PullingFamily::new(name, help, &[], MetricType::COUNTER, move || {
                vec![(Vec::new(), Number::Counter(read()))]
            }),
        );
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

    /// Shows what `read` returns at the moment of asking: for each value of the label a number that only grows. It is `read`'s
    /// to bound how many there are.
    pub fn counters_fn(
        &self,
        name: &str,
        help: &str,
        label: &'static str,
        read: impl Fn() -> Vec<(&'static str, u64)> + Send + Sync + 'static,
    ) {
        self.register(name, PullingCounters { counters: empty_counters(name, help, label), label, read });
    }

    /// Shows what `read` returns at the moment of asking: for each combination of the labels' values a number that only grows.
    /// It is `read`'s to bound how many there are.
    pub fn labelled_counters_fn(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        read: impl Fn() -> Vec<(Vec<String>, u64)> + Send + Sync + 'static,
    ) {
        self.register(
            name,
            PullingFamily::new(name, help, labels, MetricType::COUNTER, move || {
                read().into_iter().map(|(values, number)| (values, Number::Counter(number as f64))).collect()
            }),
        );
    }

    /// Shows what `read` returns at the moment of asking: for each combination of the labels' values a histogram that only
    /// grows. It is `read`'s to bound how many there are.
    pub fn histograms_fn(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        read: impl Fn() -> Vec<(Vec<String>, HistogramCounts)> + Send + Sync + 'static,
    ) {
        self.register(
            name,
            PullingFamily::new(name, help, labels, MetricType::HISTOGRAM, move || {
                read().into_iter().map(|(values, counts)| (values, Number::Histogram(counts))).collect()
            }),
        );
    }

    /// Counts observations by size, in buckets with these upper bounds (ascending).
    pub fn histogram(&self, name: &str, help: &str, labels: Labels<'_>, bounds: &[f64]) -> Histogram {
        let options = HistogramOpts::from(options(name, help, labels)).buckets(bounds.to_vec());
        let histogram = Histogram::with_opts(options).expect("name, labels and bounds of a histogram are legal");
        self.register(name, histogram.clone());
        histogram
    }

    /// Returns all metrics in the text exposition format.
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

/// Counters that are read when they are asked for.
struct PullingCounters<F> {
    /// Without values: it describes those that are read.
    counters: IntCounterVec,
    label: &'static str,
    read: F,
}

fn empty_counters(name: &str, help: &str, label: &str) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), &[label]).expect("name and label of a counter are legal")
}

impl<F: Fn() -> Vec<(&'static str, u64)> + Send + Sync> Collector for PullingCounters<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.counters.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let counters = self.desc().first().map(|desc| empty_counters(&desc.fq_name, &desc.help, self.label));
        let Some(counters) = counters else { return Vec::new() };
        for (value, number) in (self.read)() {
            counters.with_label_values(&[value]).inc_by(number);
        }
        counters.collect()
    }
}

/// Observations since the start by size.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistogramCounts {
    /// The upper bounds of the buckets, ascending.
    pub bounds: Vec<f64>,
    /// Observations up to each bound and above the one before; then those above all bounds.
    pub counts: Vec<u64>,
    /// The sum of all observations, in the unit of the bounds.
    pub sum: f64,
}

enum Number {
    Counter(f64),
    Histogram(HistogramCounts),
}

impl Number {
    fn metric(self) -> Metric {
        let mut metric = Metric::default();
        match self {
            Self::Counter(number) => {
                let mut counter = proto::Counter::default();
                counter.set_value(number);
                metric.set_counter(counter);
            }
            Self::Histogram(HistogramCounts { bounds, counts, sum }) => {
                let mut histogram = proto::Histogram::default();
                let mut total = 0;
                let buckets = bounds.into_iter().zip(&counts).map(|(bound, count)| {
                    total += count;
                    let mut bucket = proto::Bucket::default();
                    bucket.set_cumulative_count(total);
                    bucket.set_upper_bound(bound);
                    bucket
                });
                histogram.set_bucket(buckets.collect());
                histogram.set_sample_count(counts.iter().sum());
                histogram.set_sample_sum(sum);
                metric.set_histogram(histogram);
            }
        }
        metric
    }
}

/// Series of one name that are read when they are asked for.
struct PullingFamily<F> {
    desc: Desc,
    kind: MetricType,
    read: F,
}

impl<F> PullingFamily<F> {
    fn new(name: &str, help: &str, labels: &[&str], kind: MetricType, read: F) -> Self {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let desc = Desc::new(name.to_owned(), help.to_owned(), labels, HashMap::new());
        Self { desc: desc.expect("name and labels of a metric are legal"), kind, read }
    }
}

impl<F: Fn() -> Vec<(Vec<String>, Number)> + Send + Sync> Collector for PullingFamily<F> {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let metrics = (self.read)().into_iter().map(|(values, number)| {
            let mut metric = number.metric();
            let labels = self.desc.variable_labels.iter().zip(values).map(|(name, value)| {
                let mut label = LabelPair::default();
                label.set_name(name.clone());
                label.set_value(value);
                label
            });
            let mut labels: Vec<LabelPair> = labels.collect();
            // As those of all other series.
            labels.sort_by(|one, other| one.name().cmp(other.name()));
            metric.set_label(labels);
            metric
        });
        let metrics: Vec<Metric> = metrics.collect();
        if metrics.is_empty() {
            return Vec::new();
        }
        let mut family = MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(self.kind);
        family.set_metric(metrics);
        vec![family]
    }
}

fn options(name: &str, help: &str, labels: Labels<'_>) -> Opts {
    labels.iter().fold(Opts::new(name, help), |options, (label, value)| options.const_label(*label, *value))
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
        metrics.counter_fn("cpu_seconds_total", "Time worked.", || 1.5);
        let sizes = || vec![(vec!["t".to_owned(), "u".to_owned()], 3.0)];
        metrics.gauges_fn("size", "Bytes.", &["of", "in"], sizes);
        metrics.counters_fn("read_total", "Records read.", "by", || vec![("c", 4), ("d", 5)]);
        let moved = || vec![(vec!["f".to_owned(), "e".to_owned()], 6)];
        metrics.labelled_counters_fn("moved_total", "Records moved.", &["to", "from"], moved);
        metrics.labelled_counters_fn("none_total", "Nothing.", &["from"], Vec::new);
        let counts = || HistogramCounts { bounds: vec![0.5, 2.0], counts: vec![1, 2, 4], sum: 9.5 };
        metrics.histograms_fn("age_seconds", "Ages.", &["of"], move || vec![(vec!["g".to_owned()], counts())]);
        metrics.histogram("wait_seconds", "Time waited.", &[], &[0.1, 1.0]).observe(0.5);
        let text = metrics.text();
        for line in [
            "sent_total{to=\"a\"} 2",
            "sent_total{to=\"b\"} 1",
            "depth 7",
            "# TYPE cpu_seconds_total counter",
            "cpu_seconds_total 1.5",
            "size{in=\"u\",of=\"t\"} 3",
            "# TYPE read_total counter",
            "read_total{by=\"c\"} 4",
            "read_total{by=\"d\"} 5",
            "# TYPE moved_total counter",
            "moved_total{from=\"e\",to=\"f\"} 6",
            "# TYPE age_seconds histogram",
            "age_seconds_bucket{of=\"g\",le=\"0.5\"} 1",
            "age_seconds_bucket{of=\"g\",le=\"2\"} 3",
            "age_seconds_bucket{of=\"g\",le=\"+Inf\"} 7",
            "age_seconds_sum{of=\"g\"} 9.5",
            "age_seconds_count{of=\"g\"} 7",
            "wait_seconds_bucket{le=\"0.1\"} 0",
            "wait_seconds_bucket{le=\"1\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert_eq!(text.matches("# TYPE sent_total").count(), 1);
    }
}
