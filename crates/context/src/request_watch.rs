//! Looks at every NGSI request: counts it where it belongs, and writes its line to the log if that is wanted.

use std::net::SocketAddr;
use std::sync::Arc;

use millstream_http::{Begun, Ended, Observer};
use millstream_types::header::SERVICE_PATH;

use crate::request::CORRELATOR;
use crate::request_counts::RequestCounts;
use crate::timing::{Part, Timing};
use crate::traffic::{Exchange, Traffic};

/// Where proxies say on whose behalf they ask; the first that is there counts.
const CLIENT_HEADERS: [&str; 2] = ["x-real-ip", "x-forwarded-for"];

/// See the module.
pub(crate) struct RequestWatch {
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) counts: Arc<RequestCounts>,
    pub(crate) timing: Arc<Timing>,
}

impl Observer for RequestWatch {
    fn begun(&self, request: &Begun<'_>) -> u32 {
        if tracing::enabled!(tracing::Level::DEBUG) {
            log(request);
        }
        self.traffic.place_of(request.tenant, request.header(SERVICE_PATH).unwrap_or_default())
    }

    fn ended(&self, number: u32, answer: &Ended<'_>) {
        let Ended { status, request_bytes, answer_bytes, .. } = *answer;
        self.traffic.came(number, Exchange { request_bytes, answer_bytes, is_error: status >= 400 }, answer.took);
        self.counts.ended(answer);
        self.timing.took(Part::Total, answer.took);
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
        }
    }
}
