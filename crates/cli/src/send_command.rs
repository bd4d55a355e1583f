//! `millstream command`: sends a command to a device and prints the answer.

use std::io::{IsTerminal as _, Write as _};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Response};
use serde_json::{Value, json};

use crate::client::{Server, encoded, refusal};
use crate::terminal::{self, show, show_lines};

/// Arguments of `millstream command`.
#[derive(Debug, clap::Args)]
pub struct CommandArgs {
    /// The tenant of the device
    #[arg(id = "device_tenant", value_name = "TENANT")]
    tenant: String,
    /// The device
    device: String,
    /// The command's name
    name: String,
    /// Payload of the command [default: nothing]
    payload: Option<String>,
    /// Want no answer: end once the device has the command, or once it waits for its device
    #[arg(long)]
    one_way: bool,
    /// Time that the command may wait for its device, in seconds [default: not at all]
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u64>,
    /// Time to wait for the answer, in seconds [default: 10]
    #[arg(long, value_name = "SECONDS", conflicts_with = "one_way")]
    timeout: Option<u64>,
    /// Type of the payload [default: application/json if it is JSON, else text/plain]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Print JSON: the answer's status, its type and its payload
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

pub(crate) fn run(arguments: &CommandArgs) -> anyhow::Result<()> {
    terminal::run_until_interrupted(send(arguments))
}

impl CommandArgs {
    fn path(&self) -> String {
        let mut path = format!(
            "/api/commands/{}/{}?command={}&one-way={}",
            encoded(&self.tenant),
            encoded(&self.device),
            encoded(&self.name),
            self.one_way
        );
        let times = [("ttl-s", self.ttl), ("timeout-ms", self.timeout.map(|seconds| seconds.saturating_mul(1_000)))];
        for (name, time) in times {
            if let Some(time) = time {
                path.push_str(&format!("&{name}={time}"));
            }
        }
        path
    }

    fn content_type(&self) -> &str {
        let is_json = || self.payload.as_deref().is_some_and(|text| serde_json::from_str::<Value>(text).is_ok());
        self.content_type.as_deref().unwrap_or_else(|| if is_json() { "application/json" } else { "text/plain" })
    }
}

async fn send(arguments: &CommandArgs) -> anyhow::Result<()> {
    let payload = Bytes::from(arguments.payload.clone().unwrap_or_default());
    let server = arguments.server.acting_in(&arguments.tenant)?;
    let answer = server.send_typed(Method::POST, &arguments.path(), payload, arguments.content_type(), "*/*").await?;
    let http_status = answer.status();
    let (status, content_type) = (header(&answer, "hono-cmd-status"), header(&answer, CONTENT_TYPE.as_str()));
    let body = answer.into_body().collect().await.context("the server broke off")?.to_bytes();
    if !http_status.is_success() {
        bail!("{}", refusal(http_status.as_u16(), &body));
    }
    if arguments.one_way {
        let told: Value = serde_json::from_slice(&body).context("the server sent no JSON")?;
        let outcome = told["outcome"].as_str().unwrap_or_default();
        return if arguments.json { show_lines([&told]) } else { show(&format!("{outcome}\n")) };
    }
    print(arguments.json, status.as_deref(), content_type.as_deref(), &body)?;
    match status.as_deref().and_then(|status| status.parse::<u16>().ok()) {
        Some(status @ 400..) => bail!("device {} has refused the command with status {status}", arguments.device),
        _ => Ok(()),
    }
}

fn header<B>(answer: &Response<B>, name: &str) -> Option<String> {
    Some(answer.headers().get(name)?.to_str().ok()?.to_owned())
}

fn print(is_json: bool, status: Option<&str>, content_type: Option<&str>, body: &[u8]) -> anyhow::Result<()> {
    if is_json {
        let text = String::from_utf8_lossy(body);
        let payload = serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text.as_ref()));
        let status = status.and_then(|status| status.parse::<u16>().ok());
        return show_lines([&json!({"status": status, "content_type": content_type, "payload": payload})]);
    }
    let mut out = std::io::stdout().lock();
    if out.is_terminal() {
        out.write_all(crate::query_command::printable(&String::from_utf8_lossy(body)).as_bytes())?;
    } else {
        out.write_all(body)?;
    }
    if !body.is_empty() && !body.ends_with(b"\n") {
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}
