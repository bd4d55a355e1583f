//! Observes every NGSI request: counts it, raises an alarm if it is invalid, and logs it at level DEBUG.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::{HeaderName, StatusCode};
use millstream_http::{Begun, Ended, Mark, Observer};
use millstream_types::header::SERVICE_PATH;

use crate::statistics::alarms::Alarm;
use crate::statistics::observers::Observers;
use crate::statistics::request_counts::RequestCounts;
use crate::statistics::timing::RequestPhase;
use crate::statistics::traffic::RequestOutcome;

/// Identifies a request in the logs of all systems that it passes; the client's own or a new one.
pub(crate) const CORRELATOR: HeaderName = HeaderName::from_static("fiware-correlator");

/// Headers with which proxies name the client; the first one present counts.
const CLIENT_HEADERS: [&str; 2] = ["x-real-ip", "x-forwarded-for"];

const BAD_INPUT: [StatusCode; 4] = [
    StatusCode::BAD_REQUEST,
    StatusCode::LENGTH_REQUIRED,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
];

pub(crate) struct RequestObserver {
    pub(crate) counts: Arc<RequestCounts>,
    pub(crate) observers: Observers,
}

impl Observer for RequestObserver {
    fn begun(&self, request: &Begun<'_>) -> Mark {
        if tracing::enabled!(tracing::Level::DEBUG) {
            log(request);
        }
        let path = request.header(SERVICE_PATH).unwrap_or_default();
        let number = self.observers.traffic.place_of(request.tenant, path);
        Mark { number, client: address(request.peer, |name| request.header(name)) }
    }

    fn ended(&self, mark: Mark, answer: &Ended<'_>) {
        let Ended { status, request_bytes, answer_bytes, .. } = *answer;
        let exchange = RequestOutcome { request_bytes, answer_bytes, is_error: status >= 400 };
        self.observers.traffic.came(mark.number, exchange, answer.took);
        self.observers.answered();
        self.counts.ended(answer);
        self.observers.timing.took(RequestPhase::Total, answer.took);
        self.look_at_input(mark.client, answer);
    }
}

impl RequestObserver {
    /// Raises an alarm for a client with an invalid request and releases it after a valid one.
    fn look_at_input(&self, client: IpAddr, answer: &Ended<'_>) {
        if BAD_INPUT.iter().any(|bad| bad.as_u16() == answer.status) {
            let why = format!("{} {} is answered {}", answer.method, answer.route, answer.status);
            self.observers.alarms.raise(Alarm::BadInput, &client.to_string(), &why);
        } else if answer.status < 400 && self.observers.alarms.has_any(Alarm::BadInput) {
            self.observers.alarms.release(Alarm::BadInput, &client.to_string());
        }
    }
}

/// Logs a request with the fields of Orion's log lines.
fn log(request: &Begun<'_>) {
    let text = |name| String::from_utf8_lossy(request.header(name).unwrap_or_default());
    tracing::debug!(
        correlator = %text(CORRELATOR.as_str()),
        trans = %request.trace,
        from = %client(request.peer, |name| request.header(name)),
        srv = %request.tenant,
        subsrv = %text(SERVICE_PATH),
        op = %request.method,
        target = request.target,
        "NGSI request"
    );
}

/// The client as a proxy names it, otherwise the peer.
fn client<'h>(peer: SocketAddr, header: impl Fn(&'static str) -> Option<&'h [u8]>) -> String {
    let said = CLIENT_HEADERS.into_iter().find_map(header);
    said.map_or_else(|| peer.ip().to_string(), |said| String::from_utf8_lossy(said).into_owned())
}

/// The client's address: the first of a proxy's list, otherwise the peer.
fn address<'h>(peer: SocketAddr, header: impl Fn(&'static str) -> Option<&'h [u8]>) -> IpAddr {
    let said = CLIENT_HEADERS.into_iter().find_map(header).and_then(|said| std::str::from_utf8(said).ok());
    let first = said.and_then(|said| said.split(',').next()?.trim().parse().ok());
    first.unwrap_or_else(|| peer.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxys_headers_name_the_client() {
        let peer = "127.0.0.1:80".parse().unwrap();
        let (real, forwarded) = (("x-real-ip", &b"1.1.1.1"[..]), ("x-forwarded-for", &b"2.2.2.2"[..]));
        for (headers, expected) in
            [(vec![real, forwarded], "1.1.1.1"), (vec![forwarded], "2.2.2.2"), (vec![], "127.0.0.1")]
        {
            let header = |name| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            assert_eq!(client(peer, header), expected);
            assert_eq!(address(peer, header).to_string(), expected);
        }
        for (said, expected) in [("3.3.3.3, 4.4.4.4", "3.3.3.3"), ("::1", "::1"), ("somebody", "127.0.0.1")] {
            let header = |name| (name == "x-forwarded-for").then_some(said.as_bytes());
            assert_eq!(address(peer, header).to_string(), expected);
        }
    }
}
