//! `millstream topic append`: appends lines from standard input or a file, as they come.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::thread;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::client::{Server, accepted, encoded};
use crate::terminal::show;

/// Bytes of lines after which a request is sent.
const REQUEST_BYTES: usize = 1 << 20;
/// Records after which a request is sent.
const REQUEST_RECORDS: usize = 10_000;
/// Longest line: the largest request that the server takes.
const LINE_MAX_BYTES: u64 = 8 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct AppendArgs {
    /// The topic
    pub(crate) topic: String,
    /// The file to read [default: standard input]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Form of each line
    #[arg(long, value_enum, default_value_t = InputFormat::Records)]
    format: InputFormat,
    /// Key of all records, with --format values or raw
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Level that the records reach before they are acknowledged: memory, written or
    /// synced [default: the topic's level]
    #[arg(long, value_name = "LEVEL")]
    ack: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum InputFormat {
    /// A record as 'millstream topic export' prints it, such as {"key": "a", "value": 1}
    Records,
    /// A value in JSON
    Values,
    /// A value as text
    Raw,
}

/// Lines that go into one request.
#[derive(Debug, Default)]
struct LineBatch {
    body: Vec<u8>,
    /// Number of the first line, counted from 1.
    first: u64,
    count: usize,
}

pub(crate) async fn append(server: &Server, path: &str, arguments: &AppendArgs) -> anyhow::Result<()> {
    if arguments.key.is_some() && arguments.format == InputFormat::Records {
        bail!("--key does not go with --format records: each record names its own key; use --format values or raw");
    }
    let input: Box<dyn Read + Send> = match &arguments.file {
        Some(file) => Box::new(File::open(file).with_context(|| format!("--file {} cannot be read", file.display()))?),
        None => Box::new(io::stdin()),
    };
    let ack = arguments.ack.as_deref().map(|ack| format!("?ack={}", encoded(ack))).unwrap_or_default();
    let path = format!("{path}/records{ack}");
    let (sender, mut requests) = mpsc::channel(1);
    let (format, key) = (arguments.format, arguments.key.clone());
    // Reads beside the requests, so that an interruption is heard while the input is silent.
    thread::spawn(move || {
        let sent = read(BufReader::with_capacity(REQUEST_BYTES, input), format, key.as_deref(), &sender);
        if let Err(failure) = sent {
            let _the_command_has_ended = sender.blocking_send(Err(failure));
        }
    });
    let mut appended = 0;
    while let Some(lines) = requests.recv().await {
        appended +=
            send(server, &path, lines).await.with_context(|| format!("{appended} records are appended, then"))?;
    }
    show(&format!("{appended} records are appended to {}\n", arguments.topic))
}

/// Appends the lines of one request, all or none; their count.
async fn send(server: &Server, path: &str, lines: anyhow::Result<LineBatch>) -> anyhow::Result<usize> {
    let LineBatch { body, first, count } = lines?;
    let answer = server.send_typed(Method::POST, path, Bytes::from(body), "application/x-ndjson", "*/*").await?;
    accepted(answer).await.with_context(|| format!("lines counted from line {first} on"))?;
    Ok(count)
}

/// Sends lines when there is a request's worth, and when the input has no more for now.
fn read(
    mut input: BufReader<Box<dyn Read + Send>>,
    format: InputFormat,
    key: Option<&str>,
    to: &mpsc::Sender<anyhow::Result<LineBatch>>,
) -> anyhow::Result<()> {
    let mut lines = LineBatch { first: 1, ..LineBatch::default() };
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        let taken =
            (&mut input).take(LINE_MAX_BYTES + 1).read_until(b'\n', &mut line).context("cannot read the input")?;
        number += 1;
        if taken as u64 > LINE_MAX_BYTES {
            bail!("line {number} has more than {LINE_MAX_BYTES} bytes, the most of one request; divide it");
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if !text.is_empty() {
            let record = record(text, format, key).with_context(|| format!("line {number}"))?;
            lines.body.extend_from_slice(&record);
            lines.body.push(b'\n');
            lines.count += 1;
        }
        let is_full = lines.body.len() >= REQUEST_BYTES || lines.count >= REQUEST_RECORDS;
        if lines.count > 0 && (is_full || taken == 0 || input.buffer().is_empty()) {
            let next = LineBatch { first: number + 1, ..LineBatch::default() };
            if to.blocking_send(Ok(std::mem::replace(&mut lines, next))).is_err() {
                return Ok(());
            }
        }
        if taken == 0 {
            return Ok(());
        }
    }
}

/// A line as a record in JSON. A value in JSON stays as it is written.
fn record(line: &[u8], format: InputFormat, key: Option<&str>) -> anyhow::Result<Vec<u8>> {
    let key = key.map(|key| format!("\"key\":{},", Value::from(key))).unwrap_or_default();
    Ok(match format {
        InputFormat::Records => line.to_vec(),
        InputFormat::Values => {
            serde_json::from_slice::<serde::de::IgnoredAny>(line)
                .with_context(|| format!("'{}' is not JSON; use --format raw for text", excerpt(line)))?;
            [b"{", key.as_bytes(), b"\"value\":", line, b"}"].concat()
        }
        InputFormat::Raw => {
            let text = std::str::from_utf8(line).context("it is not text in UTF-8; append it by a Kafka client")?;
            format!("{{{key}\"value_text\":{}}}", json!(text)).into_bytes()
        }
    })
}

fn excerpt(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().take(40).collect()
}
