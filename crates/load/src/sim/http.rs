//! Sends messages of devices over HTTP. Each connection has a worker that serves the device that is due next.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, Uri};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::fleet::Fleet;
use super::run::{DueWait, SimRun};
use super::{Auth, MessageKind, Method, Protocol, SimArgs};
use crate::client::{HttpConnection, HttpResponse, QOS_LEVEL};
use crate::registry::authorization;
use crate::target::ServerTarget;
use crate::{Error, FailureKind, RequestFailure};

/// Builds the requests of the devices of one thread.
#[derive(Debug)]
pub(super) struct DeviceRequests {
    target: ServerTarget,
    method: hyper::Method,
    host: HeaderValue,
    content_type: HeaderValue,
    qos: Option<HeaderValue>,
    /// Endpoints, indexed by device number.
    endpoints: Vec<DeviceEndpoint>,
}

#[derive(Debug)]
struct DeviceEndpoint {
    uri: Uri,
    authorization: Option<HeaderValue>,
}

impl DeviceRequests {
    /// Prepares the requests of the devices with these ids.
    pub(super) fn of<'a>(args: &SimArgs, ids: impl Iterator<Item = &'a str>) -> Result<Self, Error> {
        let target = args.request_target()?;
        Ok(Self {
            method: match (args.kind, args.method) {
                (MessageKind::Command, _) | (_, Method::Post) => hyper::Method::POST,
                (_, Method::Put) => hyper::Method::PUT,
            },
            host: target.host(),
            target,
            content_type: args.payload()?.content_type(),
            qos: (args.kind == MessageKind::Telemetry && args.qos == 1).then(|| HeaderValue::from_static("1")),
            endpoints: ids.map(|id| DeviceEndpoint::new(args, id)).collect::<Result<_, _>>()?,
        })
    }

    /// Builds the request of a device with this body.
    fn request(&self, device: usize, body: Bytes) -> Request<Full<Bytes>> {
        let endpoint = &self.endpoints[device];
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = endpoint.uri.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(CONTENT_TYPE, self.content_type.clone());
        if let Some(authorization) = &endpoint.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if let Some(qos) = &self.qos {
            headers.insert(QOS_LEVEL, qos.clone());
        }
        request
    }
}

impl DeviceEndpoint {
    fn new(args: &SimArgs, id: &str) -> Result<Self, Error> {
        let (kind, tenant) = (args.kind.name(), &args.tenant);
        let path = match (args.kind, args.method) {
            (MessageKind::Command, _) => command_path(args, id),
            (_, Method::Put) => format!("/{kind}/{tenant}/{id}"),
            (_, Method::Post) => format!("/{kind}"),
        };
        let uri = path.parse().map_err(|error: hyper::http::uri::InvalidUri| Error::Option {
            option: "device-prefix",
            value: path,
            rule: error.to_string(),
        })?;
        let authorization = match (args.kind, args.auth) {
            (MessageKind::Command, _) => args.registry_token.as_deref().map(bearer).transpose()?,
            (_, Auth::Basic) => Some(authorization(id, tenant, &args.password)),
            (_, Auth::None) => None,
        };
        Ok(Self { uri, authorization })
    }
}

/// Path to which an application sends a command. An HTTP device listens only while it polls, so the command gets a
/// time to live and waits for the next poll.
fn command_path(args: &SimArgs, id: &str) -> String {
    let mut path =
        format!("/api/commands/{}/{id}?command=simulated&timeout-ms={}", args.tenant, args.timeout.as_millis());
    if args.protocol == Protocol::Http {
        path += &format!("&ttl-s={}", args.timeout.as_secs().max(1));
    }
    path
}

fn bearer(token: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(&format!("Bearer {token}")).map_err(|error| Error::Option {
        option: "registry-token",
        value: format!("{} bytes", token.len()),
        rule: error.to_string(),
    })
}

/// Runs the worker of one connection: takes the device that is due next and sends its message.
pub(super) async fn work(run: Arc<SimRun>, fleet: Arc<Mutex<Fleet>>, requests: Arc<DeviceRequests>) {
    let mut connection = HttpConnection::to(requests.target.clone());
    loop {
        let taken = fleet.lock().take();
        let Some((due, device)) = taken else { return };
        let waited = match run.wait_until(due).await {
            DueWait::Over => return,
            DueWait::Waited => true,
            DueWait::Late => false,
        };
        if !run.take_ticket() {
            return;
        }
        let payload = fleet.lock().payload(device);
        let request = requests.request(device, payload);
        let started = Instant::now();
        let answer = connection.send(request).await;
        let completed = Instant::now();
        let connect_failed = matches!(answer, Err(RequestFailure::Connect(_)));
        let from = run.pacing.counts_from(due, started, waited);
        let next_due = run.pacing.next_due(run.period, due, started, completed);
        {
            let mut fleet = fleet.lock();
            if from >= run.measured_from {
                fleet.tally.count(judge(answer).map(|()| completed.saturating_duration_since(from)));
            }
            fleet.give_back(next_due, device);
        }
        if connect_failed {
            run.rest().await;
        }
    }
}

fn judge(answer: Result<HttpResponse, RequestFailure>) -> Result<(), FailureKind> {
    match answer {
        Ok(answer) if answer.status.is_success() => Ok(()),
        Ok(answer) => Err(FailureKind::Status(answer.status.as_u16())),
        Err(failure) => Err(FailureKind::from(&failure)),
    }
}
