//! `millstream kv`: buckets and their keys, from the terminal, over the HTTP API of a running server.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::{Map, Value};

use crate::client::{Events, NdjsonLines, Server, accepted, encoded, refusal};
use crate::kv_transfer::{self, ExportArgs, ImportArgs, bucket_path};
use crate::query_command::printable;
use crate::terminal::{self, LineOutput, aligned, cell, show};

/// Arguments of `millstream kv`.
#[derive(Debug, clap::Args)]
pub struct KvArgs {
    #[command(subcommand)]
    action: KvAction,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Subcommand)]
enum KvAction {
    /// Create a bucket, or change the settings of one
    Make {
        /// The bucket
        bucket: String,
        /// Settings such as partitions=1, ack=written, ttl_ms=60000, max_keys=1000 or max_bytes=none
        #[arg(value_name = "KEY=VALUE", value_parser = setting)]
        settings: Vec<(String, Value)>,
    },
    /// List the tenant's buckets
    Buckets,
    /// Store a value under a key
    Put(PutArgs),
    /// Print the value of a key, byte for byte
    Get {
        /// The bucket
        bucket: String,
        /// The key
        key: String,
        /// Write the value to this file instead
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Delete a key
    Del {
        /// The bucket
        bucket: String,
        /// The key
        key: String,
        /// Delete the key only if it has this version
        #[arg(long, value_name = "VERSION")]
        if_version: Option<u64>,
    },
    /// List keys in order, one a line
    Ls(ListArgs),
    /// Print writes and deletes as they come, one JSON object a line
    Watch(WatchArgs),
    /// Store the keys of a file of JSON lines, as 'millstream kv export' prints them
    Import(ImportArgs),
    /// Print all keys with their values, one JSON object a line
    Export(ExportArgs),
    /// Delete a bucket with all that it holds
    RmBucket {
        /// The bucket
        bucket: String,
    },
}

#[derive(Debug, clap::Args)]
struct PutArgs {
    /// The bucket
    bucket: String,
    /// The key
    key: String,
    /// The file with the value; - is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Time after which the key is gone: milliseconds, or with a unit, such as 30s, 5m or 7d
    #[arg(long, value_name = "TIME")]
    ttl: Option<String>,
    /// Level that the write reaches before it is answered: memory, written or synced [default: the bucket's]
    #[arg(long, value_name = "LEVEL")]
    ack: Option<String>,
    /// Media type that reads answer
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Replace the value only if the key has this version
    #[arg(long, value_name = "VERSION", conflicts_with = "create")]
    if_version: Option<u64>,
    /// Store the value only if there is no such key
    #[arg(long)]
    create: bool,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// The bucket
    bucket: String,
    /// Keys that begin with this only
    prefix: Option<String>,
    /// Print keys that have this behind the prefix once, as their common prefix up to it
    #[arg(long, value_name = "TEXT")]
    delimiter: Option<String>,
    /// Begin at this key
    #[arg(long, value_name = "KEY")]
    start: Option<String>,
    /// End after so many keys
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    /// Print version, length, time of the write and expiry, too
    #[arg(long, short)]
    long: bool,
    /// Print one JSON object a line
    #[arg(long, conflicts_with = "long")]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct WatchArgs {
    /// The bucket
    bucket: String,
    /// Keys that begin with this only
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// latest, earliest (what is there, then what comes), an ISO time, or a position such as 0:17,1:4
    #[arg(long, value_name = "PLACE", default_value = "latest")]
    from: String,
    /// Print values of at most 64 KiB, too
    #[arg(long)]
    values: bool,
    /// End after so many events
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
}

pub(crate) fn run(arguments: &KvArgs) -> anyhow::Result<()> {
    terminal::run_until_interrupted(act(arguments))
}

async fn act(arguments: &KvArgs) -> anyhow::Result<()> {
    let server = &arguments.server;
    match &arguments.action {
        KvAction::Make { bucket, settings } => show(&described(&make(server, bucket, settings).await?)),
        KvAction::Buckets => show(&table(&server.ask(Method::GET, "/buckets", String::new()).await?)),
        KvAction::Put(put) => self::put(server, put).await,
        KvAction::Get { bucket, key, output } => get(server, &key_path(bucket, key), output.as_deref()).await,
        KvAction::Del { bucket, key, if_version } => {
            let version = if_version.map(|version| format!("\"{version}\""));
            let headers: Vec<_> = version.iter().map(|version| ("If-Match", version.as_str())).collect();
            accepted(server.request(Method::DELETE, &key_path(bucket, key), Bytes::new(), &headers).await?).await?;
            show(&format!("{} is deleted\n", printable(key)))
        }
        KvAction::Ls(list) => self::list(server, list).await,
        KvAction::Watch(watch) => self::watch(server, watch).await,
        KvAction::Import(import) => kv_transfer::import(server, import).await,
        KvAction::Export(export) => kv_transfer::export(server, export).await,
        KvAction::RmBucket { bucket } => {
            server.answered(Method::DELETE, &bucket_path(bucket), String::new()).await?;
            show(&format!("bucket {} and all that it held are deleted\n", printable(bucket)))
        }
    }
}

/// A setting's name and value; `none` takes a limit away.
fn setting(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((name, "none")) if !name.is_empty() => Ok((name.to_owned(), Value::Null)),
        Some((name, value)) if !name.is_empty() => {
            Ok((name.to_owned(), value.parse::<u64>().map_or_else(|_| value.into(), Value::from)))
        }
        _ => Err("use KEY=VALUE, such as partitions=1".to_owned()),
    }
}

/// The path of a key. A name that begins with `_` would be a route of the bucket.
fn key_path(bucket: &str, key: &str) -> String {
    let key = encoded(key);
    let key = key.strip_prefix('_').map(|rest| format!("%5F{rest}")).unwrap_or(key);
    format!("/kv/{}/{key}", encoded(bucket))
}

/// A query of those parameters that are given.
fn query(parameters: &[(&str, Option<&str>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some(format!("{name}={}", encoded((*value)?))));
    given.collect::<Vec<_>>().join("&")
}

/// Makes the bucket; settings that are not given stay as they are.
async fn make(server: &Server, bucket: &str, settings: &[(String, Value)]) -> anyhow::Result<Value> {
    let path = bucket_path(bucket);
    let before = server.ask_if_any(&path).await?;
    let mut wanted = match before {
        Some(mut before) => before["settings"].as_object_mut().map(std::mem::take).unwrap_or_default(),
        None => Map::new(),
    };
    for (name, value) in settings {
        match value {
            Value::Null => drop(wanted.remove(name)),
            value => drop(wanted.insert(name.clone(), value.clone())),
        }
    }
    server.ask(Method::PUT, &path, Value::Object(wanted).to_string()).await
}

async fn put(server: &Server, put: &PutArgs) -> anyhow::Result<()> {
    let value = if put.file == Path::new("-") {
        let mut value = Vec::new();
        io::stdin().lock().read_to_end(&mut value).context("cannot read standard input")?;
        value
    } else {
        std::fs::read(&put.file).with_context(|| format!("{} cannot be read", put.file.display()))?
    };
    let query = query(&[("ttl", put.ttl.as_deref()), ("ack", put.ack.as_deref())]);
    let path = format!("{}?{query}", key_path(&put.bucket, &put.key));
    let version = put.if_version.map(|version| format!("\"{version}\""));
    let headers = [
        ("Content-Type", put.content_type.as_deref()),
        ("If-Match", version.as_deref()),
        ("If-None-Match", put.create.then_some("*")),
    ];
    let headers: Vec<_> = headers.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let answer = accepted(server.request(Method::PUT, &path, value.into(), &headers).await?).await?;
    let stored: Value = serde_json::from_slice(&answer).context("the server sent no JSON")?;
    let (key, version, length) = (printable(&put.key), cell(&stored["version"]), cell(&stored["length"]));
    show(&format!("{key} has version {version}, {length} bytes\n"))
}

/// Prints a value as it arrives.
async fn get(server: &Server, path: &str, output: Option<&Path>) -> anyhow::Result<()> {
    let answer = server.request(Method::GET, path, Bytes::new(), &[]).await?;
    if !answer.status().is_success() {
        accepted(answer).await?;
        bail!("the server answered neither a value nor a refusal");
    }
    let mut out: Box<dyn io::Write> = match output {
        Some(file) => {
            Box::new(std::fs::File::create(file).with_context(|| format!("cannot write {}", file.display()))?)
        }
        None => Box::new(io::stdout().lock()),
    };
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame.context("the server broke off")?.into_data() {
            out.write_all(&piece)?;
        }
    }
    Ok(out.flush()?)
}

async fn list(server: &Server, list: &ListArgs) -> anyhow::Result<()> {
    let limit = list.limit.map(|limit| limit.to_string());
    let given = [
        ("prefix", list.prefix.as_deref()),
        ("delimiter", list.delimiter.as_deref()),
        ("start", list.start.as_deref()),
        ("limit", limit.as_deref()),
    ];
    let mut lines = NdjsonLines::pages(server, format!("/kv/{}?{}", encoded(&list.bucket), query(&given)));
    let mut left = list.limit.unwrap_or(u64::MAX);
    let mut out = LineOutput::new();
    while left > 0
        && let Some(line) = lines.next().await?
    {
        out.line(&shown(&line, list))?;
        left -= 1;
    }
    out.flush()
}

/// A line of a listing as it is printed.
fn shown(line: &Value, list: &ListArgs) -> String {
    if list.json {
        return line.to_string();
    }
    let names = ["key", "key_base64", "prefix", "prefix_base64"];
    let key = names.iter().find_map(|name| line[*name].as_str()).unwrap_or_default();
    if !list.long {
        return key.to_owned();
    }
    let text = |name: &str| line.get(name).map(cell).unwrap_or_else(|| "-".to_owned());
    format!("{:>12} {:>12} {:24} {:24} {key}", text("version"), text("length"), text("written"), text("expires"))
}

async fn watch(server: &Server, watch: &WatchArgs) -> anyhow::Result<()> {
    let given = [
        ("prefix", watch.prefix.as_deref()),
        ("from", Some(watch.from.as_str())),
        ("values", watch.values.then_some("true")),
    ];
    let path = format!("/kv/{}/_watch?{}", encoded(&watch.bucket), query(&given));
    let answer = server.send(Method::GET, &path, String::new(), "text/event-stream").await?;
    if !answer.status().is_success() {
        let status = answer.status().as_u16();
        bail!("{}", refusal(status, &answer.into_body().collect().await?.to_bytes()));
    }
    let mut events = Events::of(answer);
    let mut out = LineOutput::new();
    let mut left = watch.limit.unwrap_or(u64::MAX);
    while left > 0 {
        let Some(event) = events.next().await? else {
            bail!("the server ended the answer: it stops, or the connection broke");
        };
        let data: Value = serde_json::from_str(&event.data).context("the server sent no JSON")?;
        match event.name.as_str() {
            "put" | "delete" => {
                let head = [("event", Value::from(event.name)), ("position", event.id.into())];
                let head = head.into_iter().map(|(name, value)| (name.to_owned(), value));
                let members = data.as_object().cloned().unwrap_or_default();
                out.line(&Value::Object(head.chain(members).collect()).to_string())?;
                out.flush()?;
                left -= 1;
            }
            "gap" => eprintln!("millstream: records are gone, going on behind them: {data}"),
            "failed" => bail!("{}", data["cause"].as_str().unwrap_or_default()),
            _ => {}
        }
    }
    Ok(())
}

fn table(buckets: &Value) -> String {
    let mut rows = vec![["BUCKET", "KIND", "PARTITIONS", "ACK", "KEYS", "BYTES"].map(str::to_owned)];
    for bucket in buckets.as_array().into_iter().flatten() {
        let setting = |name: &str| cell(&bucket["settings"][name]);
        let (name, keys, bytes) = (cell(&bucket["name"]), cell(&bucket["keys"]), cell(&bucket["bytes"]));
        rows.push([name, setting("kind"), setting("partitions"), setting("ack"), keys, bytes]);
    }
    aligned(&rows)
}

fn described(bucket: &Value) -> String {
    let mut text = format!("bucket {}\n", cell(&bucket["name"]));
    for (setting, value) in bucket["settings"].as_object().into_iter().flatten() {
        text.push_str(&format!("  {setting:20}{}\n", cell(value)));
    }
    for figure in ["topic", "keys", "bytes"] {
        text.push_str(&format!("  {figure:20}{}\n", cell(&bucket[figure])));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_numbers_text_or_none() {
        for (text, expected) in [
            ("partitions=1", Some(("partitions", json!(1)))),
            ("ack=written", Some(("ack", json!("written")))),
            ("max_keys=none", Some(("max_keys", Value::Null))),
            ("partitions", None),
            ("=1", None),
        ] {
            let expected = expected.map(|(name, value)| (name.to_owned(), value));
            assert_eq!(setting(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn a_path_holds_any_key() {
        for (key, expected) in [
            ("a/b c", "/kv/things/a%2Fb%20c"),
            ("_bulk", "/kv/things/%5Fbulk"),
            ("a_b", "/kv/things/a_b"),
            ("ü?", "/kv/things/%C3%BC%3F"),
        ] {
            assert_eq!(key_path("things", key), expected);
        }
        assert_eq!(query(&[("a", Some("x y")), ("b", None), ("c", Some("z"))]), "a=x%20y&c=z");
    }
}
