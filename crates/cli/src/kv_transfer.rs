//! `millstream kv import` and `export`: the keys of a bucket as lines of JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::Method;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::client::{NdjsonLines, Server, accepted, encoded};
use crate::terminal::{LineOutput, show};

/// Bytes of lines after which a request is sent.
const REQUEST_BYTES: usize = 1 << 20;
/// Lines after which a request is sent.
const REQUEST_LINES: usize = 1_000;
/// Longest line; with the lines before it in a request, it is below what the server takes.
const LINE_MAX_BYTES: u64 = 6 << 20;
/// Refused lines that are printed; further ones are counted.
const REFUSALS_SHOWN: u64 = 20;
/// Members of a listing that a write does not take.
const DERIVED: [&str; 4] = ["version", "length", "written", "partition"];

#[derive(Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// The bucket
    bucket: String,
    /// The file to read; - is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Level that the writes reach before they are answered: memory, written or synced [default: the bucket's]
    #[arg(long, value_name = "LEVEL")]
    ack: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// The bucket
    bucket: String,
    /// Keys that begin with this only
    prefix: Option<String>,
}

/// Lines that go into one request.
#[derive(Debug, Default)]
struct LineBatch {
    body: Vec<u8>,
    /// The number of each line in the input.
    numbers: Vec<u64>,
    /// Bytes of the input that they take.
    input_bytes: u64,
}

/// The outcome of an import so far.
#[derive(Debug, Default)]
struct ImportCounts {
    stored: u64,
    refused: u64,
}

/// The path of a bucket's settings.
pub(crate) fn bucket_path(bucket: &str) -> String {
    format!("/buckets/{}", encoded(bucket))
}

pub(crate) async fn import(server: &Server, arguments: &ImportArgs) -> anyhow::Result<()> {
    let is_standard = arguments.file == Path::new("-");
    let (input, bar): (Box<dyn Read + Send>, ProgressBar) = if is_standard {
        (Box::new(io::stdin()), ProgressBar::new_spinner())
    } else {
        let shown = || format!("{} cannot be read", arguments.file.display());
        let file = File::open(&arguments.file).with_context(shown)?;
        let bytes = file.metadata().with_context(shown)?.len();
        (Box::new(file), ProgressBar::new(bytes).with_style(style("{wide_bar} {bytes}/{total_bytes} {msg}")))
    };
    let ack = arguments.ack.as_deref().map(|ack| format!("?ack={}", encoded(ack))).unwrap_or_default();
    let path = format!("/kv/{}/_bulk{ack}", encoded(&arguments.bucket));
    let (sender, mut requests) = mpsc::channel(1);
    // Reads beside the requests, so that an interruption is heard while the input is silent.
    thread::spawn(move || {
        if let Err(failure) = read(BufReader::with_capacity(REQUEST_BYTES, input), &sender) {
            let _the_command_has_ended = sender.blocking_send(Err(failure));
        }
    });
    let mut outcome = ImportCounts::default();
    while let Some(lines) = requests.recv().await {
        let stored = outcome.stored;
        let sent = send(server, &path, lines, &bar, &mut outcome).await;
        sent.with_context(|| format!("{stored} keys are stored, then"))?;
        bar.set_message(format!("{} keys", HumanCount(outcome.stored)));
    }
    bar.finish_and_clear();
    let ImportCounts { stored, refused } = outcome;
    if refused > 0 {
        bail!("{stored} keys are stored in {}, {refused} lines are refused", arguments.bucket);
    }
    show(&format!("{stored} keys are stored in {}\n", arguments.bucket))
}

async fn send(
    server: &Server,
    path: &str,
    lines: anyhow::Result<LineBatch>,
    bar: &ProgressBar,
    outcome: &mut ImportCounts,
) -> anyhow::Result<()> {
    let LineBatch { body, numbers, input_bytes } = lines?;
    let answer = server.send_typed(Method::POST, path, Bytes::from(body), "application/x-ndjson", "*/*").await?;
    let answer = accepted(answer).await?;
    for line in answer.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let told: Value = serde_json::from_slice(line).context("the server sent no JSON")?;
        let Some(error) = told["error"].as_str() else {
            outcome.stored += 1;
            continue;
        };
        outcome.refused += 1;
        if outcome.refused <= REFUSALS_SHOWN {
            let at = told["line"].as_u64().unwrap_or_default() as usize;
            let number = numbers.get(at.saturating_sub(1)).copied().unwrap_or_default();
            bar.suspend(|| eprintln!("millstream: line {number}: {error}"));
        }
    }
    bar.inc(input_bytes);
    Ok(())
}

/// Sends lines when there is a request's worth, and when the input has no more for now.
fn read(
    mut input: BufReader<Box<dyn Read + Send>>,
    to: &mpsc::Sender<anyhow::Result<LineBatch>>,
) -> anyhow::Result<()> {
    let mut lines = LineBatch::default();
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        let taken =
            (&mut input).take(LINE_MAX_BYTES + 1).read_until(b'\n', &mut line).context("cannot read the input")?;
        number += 1;
        if taken as u64 > LINE_MAX_BYTES {
            bail!("line {number} has more than {LINE_MAX_BYTES} bytes; store its value by 'millstream kv put'");
        }
        lines.input_bytes += taken as u64;
        if !line.trim_ascii().is_empty() {
            let item = item(&line).with_context(|| format!("line {number}"))?;
            lines.body.extend_from_slice(item.as_bytes());
            lines.body.push(b'\n');
            lines.numbers.push(number);
        }
        let is_full = lines.body.len() >= REQUEST_BYTES || lines.numbers.len() >= REQUEST_LINES;
        if !lines.numbers.is_empty()
            && (is_full || taken == 0 || input.buffer().is_empty())
            && to.blocking_send(Ok(std::mem::take(&mut lines))).is_err()
        {
            return Ok(());
        }
        if taken == 0 {
            return Ok(());
        }
    }
}

/// A line of an export as a write.
fn item(line: &[u8]) -> anyhow::Result<String> {
    let mut members: Map<String, Value> = serde_json::from_slice(line)
        .with_context(|| "it is no JSON object; a line is like {\"key\": \"a\", \"value\": \"text\"}")?;
    if members.contains_key("value_omitted") {
        bail!("it has no value: it comes from a listing; use 'millstream kv export'");
    }
    for name in DERIVED {
        members.remove(name);
    }
    members.insert("op".to_owned(), "put".into());
    Ok(Value::Object(members).to_string())
}

pub(crate) async fn export(server: &Server, arguments: &ExportArgs) -> anyhow::Result<()> {
    let ExportArgs { bucket, prefix } = arguments;
    let described = server.ask(Method::GET, &bucket_path(bucket), String::new()).await?;
    let bar = if io::stdout().is_terminal() {
        ProgressBar::hidden()
    } else {
        match prefix {
            Some(_) => ProgressBar::no_length().with_style(style("{spinner} {human_pos} keys")),
            None => ProgressBar::new(keys(&described)).with_style(style("{wide_bar} {human_pos}/{human_len} keys")),
        }
    };
    let prefix = encoded(prefix.as_deref().unwrap_or_default());
    let target = format!("/kv/{}?values=true&limit=10000&prefix={prefix}", encoded(bucket));
    let mut lines = NdjsonLines::pages(server, target);
    let mut out = LineOutput::new();
    while let Some(mut line) = lines.next().await? {
        bar.inc(1);
        if line["value_omitted"] == true && !add_value(server, bucket, &mut line).await? {
            continue;
        }
        out.line(&line.to_string())?;
    }
    bar.finish_and_clear();
    out.flush()
}

fn keys(bucket: &Value) -> u64 {
    bucket["keys"].as_u64().unwrap_or_default()
}

/// Reads a value that a listing leaves out. `false` if the key is gone meanwhile.
async fn add_value(server: &Server, bucket: &str, line: &mut Value) -> anyhow::Result<bool> {
    let key = match (line["key"].as_str(), line["key_base64"].as_str()) {
        (Some(key), _) => key.as_bytes().to_vec(),
        (None, encoded) => STANDARD.decode(encoded.unwrap_or_default()).context("the server sent no base64")?,
    };
    let path: String = key.iter().map(|byte| format!("%{byte:02X}")).collect();
    let path = format!("/kv/{}/{path}", encoded(bucket));
    let answer = server.request(Method::GET, &path, Bytes::new(), &[]).await?;
    if answer.status() == hyper::StatusCode::NOT_FOUND {
        return Ok(false);
    }
    let version = answer.headers().get(hyper::header::ETAG).and_then(|tag| tag.to_str().ok());
    let version = version.and_then(|tag| tag.trim_matches('"').parse::<u64>().ok());
    let value = accepted(answer).await?;
    let Some(members) = line.as_object_mut() else { return Ok(false) };
    members.remove("value_omitted");
    members.extend(version.map(|version| ("version".to_owned(), version.into())));
    members.insert("length".to_owned(), value.len().into());
    match std::str::from_utf8(&value) {
        Ok(text) => members.insert("value".to_owned(), text.into()),
        Err(_) => members.insert("value_base64".to_owned(), STANDARD.encode(&value).into()),
    };
    Ok(true)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_of_an_export_is_a_write_of_the_same() {
        let line = json!({
            "key": "a", "version": 7, "length": 1, "written": "2026-01-01T00:00:00.000Z", "partition": 1,
            "expires": "2027-01-01T00:00:00.000Z", "content_type": "text/plain", "tags": ["t"], "value": "x",
        });
        let expected = json!({
            "op": "put", "key": "a", "expires": "2027-01-01T00:00:00.000Z", "content_type": "text/plain",
            "tags": ["t"], "value": "x",
        });
        let item: Value = serde_json::from_str(&item(line.to_string().as_bytes()).unwrap()).unwrap();
        assert_eq!(item, expected);
    }

    #[test]
    fn a_line_without_a_value_is_refused() {
        for (line, part) in [("[]", "no JSON object"), (r#"{"key":"a","value_omitted":true}"#, "kv export")] {
            let refused = format!("{:#}", item(line.as_bytes()).unwrap_err());
            assert!(refused.contains(part), "{refused}");
        }
    }
}
