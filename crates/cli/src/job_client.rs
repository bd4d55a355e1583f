//! Requests of the subcommands of `millstream job`, and the figures in their answers.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::Value;

use crate::client::{Server, encoded, refusal};
use crate::job_document::{fault, read};

/// The path of a job by its id, or by the name of its latest run.
pub(crate) async fn path(server: &Server, job: &str, rest: &str) -> anyhow::Result<String> {
    if server.ask_if_any(&format!("/api/jobs/{}", encoded(job))).await?.is_some() {
        return Ok(format!("/api/jobs/{}{rest}", encoded(job)));
    }
    let runs = server.ask_if_any(&format!("/api/jobs/by-name/{}", encoded(job))).await?;
    match runs.as_ref().and_then(|runs| runs[0]["id"].as_str()) {
        Some(id) => Ok(format!("/api/jobs/{}{rest}", encoded(id))),
        None => bail!("no job has the id or name '{job}'; see 'millstream job list'"),
    }
}

/// Sends a document; a refusal lists all its faults.
pub(crate) async fn send_document(server: &Server, path: &str, file: &Path) -> anyhow::Result<Value> {
    send_text(server, path, file, read(file)?).await
}

/// Sends the text of the document in `file`; a refusal lists all its faults.
pub(crate) async fn send_text(server: &Server, path: &str, file: &Path, text: String) -> anyhow::Result<Value> {
    let answer =
        server.send_typed(Method::POST, path, Bytes::from(text), "application/yaml", "application/json").await?;
    let status = answer.status();
    let body = answer.into_body().collect().await.context("the server broke off")?.to_bytes();
    if status.is_success() {
        return serde_json::from_slice(&body).context("the server sent no JSON");
    }
    let told: Value = serde_json::from_slice(&body).unwrap_or_default();
    match told["findings"].as_array() {
        Some(findings) => Err(refused(file, findings)),
        None => bail!("{}", refusal(status.as_u16(), &body)),
    }
}

/// All faults of a document, each on a line.
pub(crate) fn refused(file: &Path, findings: &[Value]) -> anyhow::Error {
    let name = file.display();
    let lines: Vec<String> = findings.iter().map(|finding| format!("\n  {name}:{}", fault(finding))).collect();
    anyhow!("{} fault{} in {name}:{}", lines.len(), if lines.len() == 1 { "" } else { "s" }, lines.concat())
}

pub(crate) fn rate(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}/s"))
}

pub(crate) fn count(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), |count| count.to_string())
}
