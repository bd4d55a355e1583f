//! Devices that wait for commands in a long poll over HTTP.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};

use super::{ReadySignal, STATUS};
use crate::client::{HttpConnection, HttpResponse};
use crate::registry::authorization;
use crate::sim::{Auth, SimArgs};
use crate::target::ServerTarget;
use crate::{Error, RequestFailure};

/// Longest time that one poll waits for a command.
const WAIT: Duration = Duration::from_secs(30);
/// Content type of a request that carries no telemetry.
const EMPTY: &str = "application/vnd.eclipse-hono-empty-notification";
/// Header with the id under which the device answers a command.
const REQUEST_ID: HeaderName = HeaderName::from_static("hono-cmd-req-id");

pub(super) struct HttpResponder {
    args: SimArgs,
    target: ServerTarget,
    content_type: HeaderValue,
}

impl HttpResponder {
    pub(super) fn of(args: &SimArgs) -> Result<Self, Error> {
        let mut target = args.target()?;
        target.request_timeout += WAIT;
        Ok(Self { args: args.clone(), target, content_type: args.payload()?.content_type() })
    }

    /// Polls for commands and answers them until a request fails. Returns the failure.
    pub(super) async fn serve(&self, number: u64, ready: &mut ReadySignal) -> RequestFailure {
        let id = self.args.device_id(number);
        let mut connection = HttpConnection::to(self.target.clone());
        // The server holds a command until its device polls, so no command is lost before the first poll.
        *ready = None;
        loop {
            if let Err(failure) = self.ask(&id, &mut connection).await {
                return failure;
            }
        }
    }

    /// Polls once and answers the command if one has arrived.
    async fn ask(&self, id: &str, connection: &mut HttpConnection) -> Result<(), RequestFailure> {
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
    ) -> Result<Request<Full<Bytes>>, RequestFailure> {
        let uri: Uri = path.parse().map_err(|error| RequestFailure::Lost(Box::new(error)))?;
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

fn accepted(answer: HttpResponse) -> Result<HttpResponse, RequestFailure> {
    match answer.status {
        StatusCode::OK | StatusCode::ACCEPTED => Ok(answer),
        status => Err(RequestFailure::Lost(format!("answered with {status}: {}", answer.excerpt()).into())),
    }
}
