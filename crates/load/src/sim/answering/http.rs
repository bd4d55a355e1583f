//! Devices that wait for commands over HTTP: with a request that is answered when there is one.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};

use super::{Ready, STATUS};
use crate::client::{Answer, Connection, Target};
use crate::registry::authorization;
use crate::sim::{Auth, SimArgs};
use crate::{Error, Failure};

/// How long a device waits at most for one command before it asks again.
const WAIT: Duration = Duration::from_secs(30);
/// Says that a device is there, and nothing else.
const EMPTY: &str = "application/vnd.eclipse-hono-empty-notification";
/// Under which a command is answered.
const REQUEST_ID: HeaderName = HeaderName::from_static("hono-cmd-req-id");

/// All of them.
pub(super) struct Devices {
    args: SimArgs,
    target: Target,
    content_type: HeaderValue,
}

impl Devices {
    pub(super) fn of(args: &SimArgs) -> Result<Self, Error> {
        let mut target = args.target()?;
        target.request_timeout += WAIT;
        Ok(Self { args: args.clone(), target, content_type: args.payload()?.content_type() })
    }

    /// Asks for commands and answers them until a request fails; why it did.
    pub(super) async fn serve(&self, number: u64, ready: &mut Ready) -> Failure {
        let id = self.args.device_id(number);
        let mut connection = Connection::to(self.target.clone());
        // A command waits for its device, so none is lost before the first request is there.
        *ready = None;
        loop {
            if let Err(failure) = self.ask(&id, &mut connection).await {
                return failure;
            }
        }
    }

    /// Waits for a command, and answers it if one has come.
    async fn ask(&self, id: &str, connection: &mut Connection) -> Result<(), Failure> {
        let tenant = &self.args.tenant;
        let path = format!("/telemetry/{tenant}/{id}?hono-ttd={}", WAIT.as_secs());
        let asked = self.request(id, path, HeaderValue::from_static(EMPTY), Bytes::new())?;
        let answer = accepted(connection.send(asked).await?)?;
        let Some(request) = answer.headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()) else {
            return Ok(());
        };
        let path = format!("/command/res/{tenant}/{id}/{request}?hono-cmd-status={STATUS}");
        let response = self.request(id, path, self.content_type.clone(), answer.body)?;
        accepted(connection.send(response).await?).map(drop)
    }

    fn request(
        &self,
        id: &str,
        path: String,
        content_type: HeaderValue,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let uri: Uri = path.parse().map_err(|error| Failure::Lost(Box::new(error)))?;
        let mut request = Request::new(Full::new(body));
        (*request.method_mut(), *request.uri_mut()) = (Method::PUT, uri);
        let headers = request.headers_mut();
        headers.insert(HOST, self.target.host());
        headers.insert(CONTENT_TYPE, content_type);
        if self.args.auth == Auth::Basic {
            headers.insert(AUTHORIZATION, authorization(id, &self.args.tenant, &self.args.password));
        }
        Ok(request)
    }
}

fn accepted(answer: Answer) -> Result<Answer, Failure> {
    match answer.status {
        StatusCode::OK | StatusCode::ACCEPTED => Ok(answer),
        status => Err(Failure::Lost(format!("answered with {status}: {}", answer.excerpt()).into())),
    }
}
