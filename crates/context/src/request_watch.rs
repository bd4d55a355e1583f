//! Looks at every NGSI request: counts it where it belongs, raises an alarm if it cannot be taken, and writes its line to the
//! log if that is wanted.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::StatusCode;
use millstream_http::{Begun, Ended, Mark, Observer};
use millstream_types::header::SERVICE_PATH;

use crate::alarms::Alarm;
use crate::request::CORRELATOR;
use crate::request_counts::RequestCounts;
use crate::timing::Part;
use crate::traffic::Exchange;
use crate::watch::Watch;

/// Where proxies say on whose behalf they ask; the first that is there counts.
const CLIENT_HEADERS: [&str; 2] = ["x-real-ip", "x-forwarded-for"];

/// What requests are answered with that cannot be taken as they are.
const BAD_INPUT: [StatusCode; 4] = [
    StatusCode::BAD_REQUEST,
    StatusCode::LENGTH_REQUIRED,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
];

/// See the module.
pub(crate) struct RequestWatch {
    pub(crate) counts: Arc<RequestCounts>,
    pub(crate) watch: Watch,
}

impl Observer for RequestWatch {
    fn begun(&self, request: &Begun<'_>) -> Mark {
        if tracing::enabled!(tracing::Level::DEBUG) {
            log(request);
        }
        let path = request.header(SERVICE_PATH).unwrap_or_default();
        let number = self.watch.traffic.place_of(request.tenant, path);
        Mark { number, client: address(request.peer, |name| request.header(name)) }
    }

    fn ended(&self, mark: Mark, answer: &Ended<'_>) {
        let Ended { status, request_bytes, answer_bytes, .. } = *answer;
        let exchange = Exchange { request_bytes, answer_bytes, is_error: status >= 400 };
        self.watch.traffic.came(mark.number, exchange, answer.took);
        self.watch.answered();
        self.counts.ended(answer);
        self.watch.timing.took(Part::Total, answer.took);
        self.look_at_input(mark.client, answer);
    }
}

impl RequestWatch {
    /// A client whose requests cannot be taken is an alarm until one can.
    fn look_at_input(&self, client: IpAddr, answer: &Ended<'_>) {
        if BAD_INPUT.iter().any(|bad| bad.as_u16() == answer.status) {
            let why = format!("{} {} is answered {}", answer.method, answer.route, answer.status);
            self.watch.alarms.raise(Alarm::BadInput, &client.to_string(), &why);
        } else if answer.status < 400 && self.watch.alarms.has_any(Alarm::BadInput) {
            self.watch.alarms.release(Alarm::BadInput, &client.to_string());
        }
    }
}

/// The line of a request, with what operators look for.
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

/// On whose behalf is asked: as a proxy says, else who is at the other end.
fn client<'h>(peer: SocketAddr, header: impl Fn(&'static str) -> Option<&'h [u8]>) -> String {
    let said = CLIENT_HEADERS.into_iter().find_map(header);
    said.map_or_else(|| peer.ip().to_string(), |said| String::from_utf8_lossy(said).into_owned())
}

/// The same as an address: the first of a list, and who is at the other end if no address is said.
fn address<'h>(peer: SocketAddr, header: impl Fn(&'static str) -> Option<&'h [u8]>) -> IpAddr {
    let said = CLIENT_HEADERS.into_iter().find_map(header).and_then(|said| std::str::from_utf8(said).ok());
    let first = said.and_then(|said| said.split(',').next()?.trim().parse().ok());
    first.unwrap_or_else(|| peer.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_says_for_whom_it_asks() {
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
