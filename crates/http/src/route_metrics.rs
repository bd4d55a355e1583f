//! The metrics of one route.
//!
//! A series appears when there is something to count: an API has hundreds of routes, most of which a server is never asked
//! for. Successes, refusals and failures of a route appear together, so that a rate of failures is 0 and not unknown.

use std::sync::OnceLock;

use millstream_net::{Counter, Histogram, Metrics};

const REQUESTS: &str = "millstream_http_requests_total";
const REQUESTS_HELP: &str = "Requests answered.";
/// Upper bounds of the latency histogram, seconds.
const LATENCY_BOUNDS_S: [f64; 14] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

pub(crate) struct RouteMetrics {
    metrics: Metrics,
    api: &'static str,
    route: String,
    method: String,
    answers: OnceLock<AnswerMetrics>,
    informed: OnceLock<Counter>,
    redirected: OnceLock<Counter>,
    request_bytes: OnceLock<Counter>,
    response_bytes: OnceLock<Counter>,
    dropped: OnceLock<Counter>,
}

/// The metrics that a route has from its first answer on.
struct AnswerMetrics {
    succeeded: Counter,
    refused: Counter,
    failed: Counter,
    latency: Histogram,
}

impl RouteMetrics {
    pub(crate) fn new(metrics: &Metrics, api: &'static str, route: &str, method: &str) -> Self {
        Self {
            metrics: metrics.clone(),
            api,
            route: route.to_owned(),
            method: method.to_owned(),
            answers: OnceLock::new(),
            informed: OnceLock::new(),
            redirected: OnceLock::new(),
            request_bytes: OnceLock::new(),
            response_bytes: OnceLock::new(),
            dropped: OnceLock::new(),
        }
    }

    /// Counts an answer.
    pub(crate) fn answered(&self, status: u16, seconds: f64) {
        let answers = self.answers.get_or_init(|| self.answer_metrics());
        let class = match status {
            100..=199 => self.informed.get_or_init(|| self.class("1xx")),
            200..=299 => &answers.succeeded,
            300..=399 => self.redirected.get_or_init(|| self.class("3xx")),
            400..=499 => &answers.refused,
            _ => &answers.failed,
        };
        class.inc();
        answers.latency.observe(seconds);
    }

    /// Counts the announced bytes of a request's body.
    pub(crate) fn received(&self, bytes: u64) {
        if bytes > 0 {
            let help = "Bytes of bodies whose length was announced.";
            self.counter(&self.request_bytes, "millstream_http_request_bytes_total", help).inc_by(bytes);
        }
    }

    /// Counts the bytes of an answer's body.
    pub(crate) fn sent(&self, bytes: u64) {
        if bytes > 0 {
            let help = "Bytes of bodies sent.";
            self.counter(&self.response_bytes, "millstream_http_response_bytes_total", help).inc_by(bytes);
        }
    }

    /// Counts a request whose client has left before its answer.
    pub(crate) fn dropped(&self) {
        let help = "Requests whose client left before the answer.";
        self.counter(&self.dropped, "millstream_http_requests_dropped_total", help).inc();
    }

    fn answer_metrics(&self) -> AnswerMetrics {
        let help = "Time from the head of a request to the head of its answer.";
        AnswerMetrics {
            succeeded: self.class("2xx"),
            refused: self.class("4xx"),
            failed: self.class("5xx"),
            latency: self.metrics.histogram("millstream_http_request_seconds", help, &self.labels(), &LATENCY_BOUNDS_S),
        }
    }

    fn class(&self, class: &str) -> Counter {
        let [api, route, method] = self.labels();
        self.metrics.counter(REQUESTS, REQUESTS_HELP, &[api, route, method, ("class", class)])
    }

    fn counter<'a>(&self, counter: &'a OnceLock<Counter>, name: &str, help: &str) -> &'a Counter {
        counter.get_or_init(|| self.metrics.counter(name, help, &self.labels()))
    }

    fn labels(&self) -> [(&str, &str); 3] {
        [("api", self.api), ("route", &self.route), ("method", &self.method)]
    }
}
