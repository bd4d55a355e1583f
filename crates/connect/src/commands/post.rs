//! `POST /api/commands/{tenant}/{device}`: sends a command and returns its outcome in one request.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response as HttpResponse};
use millstream_http::{
    Access, Content, FromPath, Json, Limits, Params, Path, Payload, Problem, Query, Reason, Route, Routes,
    TraceContext, sandbox,
};
use millstream_types::{ErrorCode, Header, Role, TenantId, header};
use serde::Deserialize;
use serde_json::json;

use super::command::{CORRELATION_ID, CORRELATION_ID_MAX_BYTES, NAME_MAX_BYTES, is_correlation_id, is_name};
use super::new_command::NewCommand;
use super::outcome::{End, Outcome};
use super::waiters::CommandProgress;
use super::{Commands, Response};

/// Default wait of a request.
const TIMEOUT_MS: u64 = 10_000;
/// Time for the work of a request, without its wait.
const WORK: Duration = Duration::from_secs(15);
const CMD_STATUS: HeaderName = HeaderName::from_static("hono-cmd-status");
const CORRELATION: HeaderName = HeaderName::from_static(CORRELATION_ID);

/// The query parameters of a request to send a command.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct CommandParameters {
    command: String,
    timeout_ms: Option<u64>,
    #[serde(default)]
    one_way: bool,
    ttl_s: Option<u64>,
    correlation_id: Option<String>,
}

/// The path of a device.
struct DevicePath {
    tenant: String,
    device: String,
}

impl FromPath for DevicePath {
    fn from_path(params: &Params<'_>) -> Result<Self, Problem> {
        let (tenant, device) = FromPath::from_path(params)?;
        Ok(Self { tenant, device })
    }
}

/// A checked request to send a command.
struct CommandRequest {
    command: NewCommand,
    timeout: Duration,
}

impl Commands {
    /// The route, for the listener of applications.
    pub(crate) fn routes(self: &Arc<Self>) -> Routes {
        let limits = Limits {
            body_max_bytes: self.config.payload_max_bytes as u64,
            body_max_setting: "connect.commands.payload_max_bytes",
            timeout: Duration::from_millis(self.config.request_timeout_max_ms) + WORK,
        };
        let outcome = json!({"type": "object", "properties": {
            "outcome": {"enum": ["accepted", "waiting"]}, "correlation-id": {"type": "string"}}});
        let path = "/api/commands/{tenant}/{device}";
        let route = Route::post(path, Access::Role(Role::Writer), limits, "Send a command to a device")
            .param("tenant", "The tenant of the device.")
            .param("device", "The device.")
            .tenant_in("tenant")
            .required_query("command", "The command's name.")
            .query("timeout-ms", "How long to wait for the device's answer, milliseconds; 10,000 if left out.")
            .query("one-way", "true: no answer is wanted.")
            .query("ttl-s", "How long the command may wait for its device, seconds; not at all if left out.")
            .query("correlation-id", "Under which response and notices are found; generated if left out.")
            .header("Content-Type", "Type of the payload.")
            .takes(Content::bytes("application/octet-stream"))
            .answers_with(
                200,
                "The device's answer; hono-cmd-status is its status.",
                Content::bytes("application/octet-stream"),
            )
            .answers_with(202, "One-way: the device has it, or it waits for its device.", Content::json(outcome))
            .answers(400, "The command breaks a rule.")
            .answers(404, "The device is unknown or disabled.")
            .answers(409, "Another request waits under this correlation id.")
            .answers(429, "As much waits for the device or its tenant as may.")
            .answers(503, "The device does not have it: nobody listens, or it did not acknowledge.")
            .answers(504, "No answer in time; the text says where the command is.");
        Routes::new("commands").route(route.to(post, Arc::clone(self)))
    }

    fn wanted(&self, path: DevicePath, parameters: CommandParameters) -> Result<CommandRequest, Problem> {
        let tenant = TenantId::new(&path.tenant)?;
        let device = self.commanded(&tenant, &path.device)?;
        let CommandParameters { command: name, timeout_ms, one_way: is_one_way, ttl_s, correlation_id } = parameters;
        if !is_name(&name) {
            return Err(bad("command", &name)
                .rule(format!("a command's name has 1 to {NAME_MAX_BYTES} bytes, none of them a control, + or #")));
        }
        let (timeout_ms, most) = (timeout_ms.unwrap_or(TIMEOUT_MS), self.config.request_timeout_max_ms);
        if timeout_ms > most {
            let rule = format!("connect.commands.request_timeout_max_ms = {most}");
            return Err(bad("timeout-ms", &timeout_ms.to_string()).rule(rule));
        }
        let ttl_ms = ttl_s.filter(|ttl_s| *ttl_s > 0).map(|ttl_s| ttl_s.saturating_mul(1_000));
        let correlation_id = correlation_id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        if !is_correlation_id(&correlation_id) || !correlation_id.bytes().all(|byte| byte.is_ascii_graphic()) {
            let rule = format!("a correlation id has 1 to {CORRELATION_ID_MAX_BYTES} visible characters of ASCII");
            return Err(bad("correlation-id", &correlation_id).rule(rule));
        }
        let timeout = Duration::from_millis(timeout_ms);
        let command = NewCommand { tenant, device, name, is_one_way, ttl_ms, correlation_id };
        Ok(CommandRequest { command, timeout })
    }
}

async fn post(
    State(commands): State<Arc<Commands>>,
    Path(path): Path<DevicePath>,
    Query(parameters): Query<CommandParameters>,
    trace: TraceContext,
    given: HeaderMap,
    Payload(payload): Payload,
) -> Result<HttpResponse, Problem> {
    let wanted = commands.wanted(path, parameters)?;
    let trace = trace.traceparent();
    let mut headers = vec![Header { key: header::TRACEPARENT, value: Some(&trace) }];
    if let Some(content_type) = given.get(CONTENT_TYPE).filter(|value| !value.is_empty()) {
        headers.push(Header { key: header::CONTENT_TYPE, value: Some(content_type.as_bytes()) });
    }
    let mut waiter = commands.send(&wanted.command, &headers, &payload).await?;
    let decided = waiter.progress.wait_for(|progress| wanted.answer(progress).is_some());
    // A closed channel is answered like a timeout: with the progress known so far.
    let _ = tokio::time::timeout(wanted.timeout, decided).await;
    let progress = waiter.progress.borrow().clone();
    wanted.answer(&progress).unwrap_or_else(|| Err(wanted.no_answer(&progress)))
}

impl CommandRequest {
    /// The reply to the request, once it is known.
    fn answer(&self, progress: &CommandProgress) -> Option<Result<HttpResponse, Problem>> {
        if let Some(response) = &progress.response {
            return Some(Ok(self.responded(response)));
        }
        match &progress.outcome {
            Some(outcome) if outcome.end != End::Accepted => Some(Err(self.failed(outcome))),
            Some(_) if self.command.is_one_way => Some(Ok(self.taken(End::Accepted.name()))),
            None if self.command.is_one_way && progress.waits => Some(Ok(self.taken("waiting"))),
            _ => None,
        }
    }

    fn correlation(&self) -> HeaderValue {
        HeaderValue::from_str(&self.command.correlation_id).unwrap_or(HeaderValue::from_static(""))
    }

    fn responded(&self, response: &Response) -> HttpResponse {
        let content_type = response.content_type.as_deref().and_then(|value| HeaderValue::from_str(value).ok());
        let headers = [
            (CONTENT_TYPE, content_type.unwrap_or(HeaderValue::from_static("application/octet-stream"))),
            (CMD_STATUS, HeaderValue::from(response.status)),
            (CORRELATION, self.correlation()),
        ];
        let mut answer = (headers, response.payload.clone()).into_response();
        sandbox(answer.headers_mut());
        answer
    }

    fn taken(&self, outcome: &str) -> HttpResponse {
        let body = json!({"outcome": outcome, CORRELATION_ID: self.command.correlation_id});
        (StatusCode::ACCEPTED, [(CORRELATION, self.correlation())], Json(body)).into_response()
    }

    fn failed(&self, outcome: &Outcome) -> Problem {
        let (reason, remedy) = match outcome.status {
            404 => (Reason::Code(ErrorCode::NotFound), "register or enable the device in the registry"),
            413 => (Reason::Code(ErrorCode::TooLarge), "send less at once"),
            429 => (Reason::Code(ErrorCode::RateLimited), "wait until devices have taken some, or raise the limit"),
            503 => (
                Reason::Code(ErrorCode::Unavailable),
                "send it again when the device listens, or with ttl-s: then it waits",
            ),
            504 => (Reason::NoAnswer, "send it again with a longer ttl-s"),
            _ => (Reason::Code(ErrorCode::Invalid), "send a command that keeps this rule"),
        };
        let status = StatusCode::from_u16(outcome.status).unwrap_or(StatusCode::BAD_REQUEST);
        self.problem(reason, outcome.end.name(), outcome.why.clone()).with_status(status).remedy(remedy)
    }

    fn no_answer(&self, progress: &CommandProgress) -> Problem {
        let (outcome, detail) = if progress.outcome.is_some() {
            (End::Accepted.name(), "the device has the command and has not answered in time")
        } else if progress.waits {
            ("waiting", "the device has not come in time; the command waits for it")
        } else {
            ("unknown", "the command is stored, and it is not known yet whether the device has it")
        };
        self.problem(Reason::NoAnswer, outcome, detail)
            .remedy("read command_response of the tenant: a response or notice carries the correlation id")
    }

    fn problem(
        &self,
        reason: Reason,
        outcome: &'static str,
        detail: impl Into<std::borrow::Cow<'static, str>>,
    ) -> Problem {
        Problem::new(reason, detail)
            .value(self.command.device.as_str())
            .rule(format!("command '{}' to the device, timeout-ms = {}", self.command.name, self.timeout.as_millis()))
            .member("outcome", outcome)
            .member(CORRELATION_ID, self.command.correlation_id.as_str())
            .header(CORRELATION, self.correlation())
    }
}

fn bad(name: &'static str, value: &str) -> Problem {
    Problem::new(Reason::MalformedParameter, format!("parameter '{name}' cannot be taken"))
        .value(value)
        .remedy("see this route in /openapi.json")
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use bytes::Bytes;

    use super::*;

    fn wanted(is_one_way: bool) -> CommandRequest {
        let command = NewCommand {
            tenant: TenantId::default(),
            device: "d".parse().unwrap(),
            name: "on".to_owned(),
            is_one_way,
            ttl_ms: None,
            correlation_id: "c".to_owned(),
        };
        CommandRequest { command, timeout: Duration::from_millis(7) }
    }

    fn progress(waits: bool, outcome: Option<Outcome>) -> CommandProgress {
        CommandProgress { waits, outcome, response: None }
    }

    #[test]
    fn each_end_has_its_status_and_its_remedy() {
        for (outcome, status) in [
            (Outcome::released("away"), 503),
            (Outcome::EXPIRED, 504),
            (Outcome::unknown_device(), 404),
            (Outcome::rejected(400, "wrong"), 400),
            (Outcome::rejected(413, "large"), 413),
            (Outcome::rejected(429, "much"), 429),
        ] {
            for is_one_way in [false, true] {
                let (end, why) = (outcome.end.name(), outcome.why.clone());
                let answer = wanted(is_one_way).answer(&progress(true, Some(outcome.clone())));
                let problem = answer.unwrap().unwrap_err();
                assert_eq!(problem.status(), status, "{why}");
                let text = problem.text();
                assert!(text.starts_with(&*why) && text.contains("timeout-ms = 7"), "{end}: {text}");
            }
        }
    }

    #[test]
    fn a_request_that_times_out_reports_the_progress_of_its_command() {
        let accepted = || Some(Outcome::ACCEPTED);
        for (is_one_way, known, answer) in [
            (true, progress(false, None), Err("not known yet")),
            (true, progress(true, None), Ok(StatusCode::ACCEPTED)),
            (true, progress(true, accepted()), Ok(StatusCode::ACCEPTED)),
            (false, progress(false, None), Err("not known yet")),
            (false, progress(true, None), Err("waits for it")),
            (false, progress(true, accepted()), Err("has not answered in time")),
        ] {
            let wanted = wanted(is_one_way);
            match (wanted.answer(&known), answer) {
                (Some(Ok(response)), Ok(status)) => assert_eq!(response.status(), status),
                (None, Err(told)) => {
                    let problem = wanted.no_answer(&known);
                    assert_eq!(problem.status(), 504);
                    assert!(problem.detail().contains(told), "{}", problem.detail());
                }
                (answer, expected) => panic!("{answer:?}, {expected:?}"),
            }
        }
        let response = Response { device: "d".into(), status: 404, content_type: None, payload: Bytes::new() };
        let known = CommandProgress { response: Some(response), ..CommandProgress::default() };
        let answer = wanted(false).answer(&known).unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["hono-cmd-status"], "404");
    }
}
