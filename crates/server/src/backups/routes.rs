//! `/api/backups`: begins backups, lists their files, reads them and ends them.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use millstream_http::{Access, AnswerMemory, Content, Limits, Path, Problem, Query, Reason, Route, RouteDraft, Routes};
use millstream_log::Error;
use millstream_types::{ErrorCode, Role, iso_time};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{BACKUPS_MAX, BackupContent, Backups, NotBegun, RunningBackup};

const LIMITS: Limits =
    Limits { body_max_bytes: 0, body_max_setting: "none: this route takes no body", timeout: Duration::from_secs(30) };
/// Writing everything down before a backup may take a while on a slow disk.
const BEGIN_LIMITS: Limits = Limits { timeout: Duration::from_secs(300), ..LIMITS };
/// Files on a page of the list.
const PAGE_FILES: usize = 2_000;
/// Bytes that are read at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Ranges in one request.
const RANGES_MAX: usize = 128;

pub(crate) fn routes(backups: &Arc<Backups>) -> Routes {
    // A backup has the data and the secrets of every tenant.
    let admin = Access::Operator(Role::Admin);
    let object = || Content::json(json!({"type": "object"}));
    let of_one = |draft: RouteDraft| {
        let draft = draft.param("backup", "The id of the backup.");
        draft.answers(404, "There is no such backup, or it has ended: nobody has read it for a minute.")
    };
    Routes::new("backups")
        .route(
            Route::post("/api/backups", admin, BEGIN_LIMITS, "Begin a backup of everything that is acknowledged so far")
                .answers_with(201, "The backup; its files stay until it ends.", object())
                .answers(409, "There are too many backups at a time, or the log is in Kafka.")
                .to(begin, Arc::clone(backups)),
        )
        .route(
            of_one(Route::get("/api/backups/{backup}", admin, LIMITS, "Show a backup that has begun"))
                .answers_with(200, "The backup.", object())
                .to(show, Arc::clone(backups)),
        )
        .route(
            of_one(Route::get("/api/backups/{backup}/files", admin, LIMITS, "List the files of a backup"))
                .query("from", "The number of the first file. Default 0.")
                .answers_with(
                    200,
                    "At most 2,000 files, in order: path below the data directory, bytes, `own` if no other backup has the file, `crc32c` of each MiB of a file of history.",
                    Content::json(json!({"type": "array"})),
                )
                .to(list, Arc::clone(backups)),
        )
        .route(
            of_one(Route::get("/api/backups/{backup}/bytes", admin, LIMITS, "Read bytes of the files of a backup"))
                .query("ranges", "At most 128, separated by commas: `<number of the file>:<from>-<to>`, without the byte at `to`.")
                .answers_with(200, "The bytes of all ranges, one after the other.", Content::bytes("application/octet-stream"))
                .answers(400, "The ranges cannot be read.")
                .to(read, Arc::clone(backups)),
        )
        .route(
            of_one(Route::delete("/api/backups/{backup}", admin, LIMITS, "End a backup and release its files"))
                .answers(204, "It has ended.")
                .to(end, Arc::clone(backups)),
        )
}

async fn begin(State(backups): State<Arc<Backups>>) -> Result<Response, Problem> {
    let begun = tokio::task::spawn_blocking(move || backups.begin()).await;
    let backup = begun.unwrap_or(Err(NotBegun::Failed(Error::Stopped))).map_err(|reason| match reason {
        NotBegun::TooMany => Problem::new(Reason::Code(ErrorCode::Conflict), "too many backups are being read already")
            .value(BACKUPS_MAX)
            .rule(format!("at most {BACKUPS_MAX} at a time"))
            .remedy("wait until one has ended; one that nobody reads ends after a minute"),
        NotBegun::Elsewhere => {
            Problem::new(Reason::Code(ErrorCode::Conflict), "the log is in Kafka, not on this machine")
                .rule("a backup holds the files of the built-in log")
                .remedy("copy the topics by the means of Kafka, such as MirrorMaker")
        }
        NotBegun::Failed(error) => Problem::from_error(error.code(), &error),
    })?;
    Ok((StatusCode::CREATED, axum::Json(shown(&backup))).into_response())
}

async fn show(State(backups): State<Arc<Backups>>, Path(id): Path<String>) -> Result<Response, Problem> {
    Ok(axum::Json(shown(&*found(&backups, &id)?)).into_response())
}

/// The parameters of a list of files.
#[derive(Debug, Deserialize)]
struct FilesQuery {
    #[serde(default)]
    from: usize,
}

async fn list(
    State(backups): State<Arc<Backups>>,
    Path(id): Path<String>,
    Query(asked): Query<FilesQuery>,
    mut memory: AnswerMemory,
) -> Result<Response, Problem> {
    let backup = found(&backups, &id)?;
    let page: Vec<Value> = backup
        .files
        .iter()
        .skip(asked.from)
        .take(PAGE_FILES)
        .map(|file| {
            let mut shown = json!({"path": file.path.to_string_lossy(), "bytes": file.size_bytes});
            match &file.content {
                BackupContent::OfLog(file) if file.is_own() => shown["own"] = true.into(),
                BackupContent::OfLog(_) => {}
                BackupContent::OfHistory { modified_ns, checksums, .. } => {
                    shown["modified"] = modified_ns.to_string().into();
                    shown["crc32c"] = checksums.clone().into();
                }
            }
            shown
        })
        .collect();
    let text = Value::Array(page).to_string();
    memory.cover(text.len())?;
    let mut response = ([(CONTENT_TYPE, "application/json")], text).into_response();
    memory.hold_for(&mut response);
    Ok(response)
}

/// The parameters of a read.
#[derive(Debug, Deserialize)]
struct BytesQuery {
    #[serde(default)]
    ranges: String,
}

/// The rest of an answer with bytes.
struct RangeReads {
    backups: Arc<Backups>,
    backup: Arc<RunningBackup>,
    /// Ranges of files, the last one first.
    ranges: Vec<(usize, Range<u64>)>,
}

async fn read(
    State(backups): State<Arc<Backups>>,
    Path(id): Path<String>,
    Query(asked): Query<BytesQuery>,
    mut memory: AnswerMemory,
) -> Result<Response, Problem> {
    let backup = found(&backups, &id)?;
    let mut ranges = parse(&asked.ranges, &backup)?;
    let length: u64 = ranges.iter().map(|(_, range)| range.end - range.start).sum();
    ranges.reverse();
    // One piece is read while another is sent.
    memory.cover(2 * PIECE_BYTES)?;
    let reads = RangeReads { backups, backup, ranges };
    let (first, reads) = match reads.next().await {
        Ok(Some((first, reads))) => (Some(first), Some(reads)),
        Ok(None) => (None, None),
        Err(error) => return Err(Problem::from_error(error.code(), &error)),
    };
    let pieces = stream::try_unfold((first, reads), |(ready, reads)| async move {
        match (ready, reads) {
            (Some(piece), reads) => Ok(Some((piece, (None, reads)))),
            (None, Some(reads)) => Ok(reads.next().await?.map(|(piece, reads)| (piece, (None, Some(reads))))),
            (None, None) => Ok::<_, Error>(None),
        }
    });
    let headers = [(CONTENT_TYPE, "application/octet-stream".to_owned()), (CONTENT_LENGTH, length.to_string())];
    let mut response = (headers, [(CACHE_CONTROL, "no-store")], Body::from_stream(pieces)).into_response();
    memory.hold_for(&mut response);
    Ok(response)
}

impl RangeReads {
    /// The next piece; `None` after the last one.
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, Error> {
        let Some((number, range)) = self.ranges.pop() else { return Ok(None) };
        if self.backups.find(&self.backup.id).is_none() {
            return Err(Error::ImageReleased);
        }
        let read = move || {
            let length = (range.end - range.start).min(PIECE_BYTES as u64);
            let piece = self.backup.read(&self.backup.files[number], range.start, length as usize);
            if matches!(piece, Err(Error::ImageReleased)) {
                drop(self.backups.end(&self.backup.id));
            }
            if range.start + length < range.end {
                self.ranges.push((number, range.start + length..range.end));
            }
            Ok(Some((piece?, self)))
        };
        tokio::task::spawn_blocking(read).await.unwrap_or(Err(Error::Stopped))
    }
}

async fn end(State(backups): State<Arc<Backups>>, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    let ended = backups.end(&id).ok_or_else(|| unknown(&id))?;
    // Removes the files that it held.
    let _ended = tokio::task::spawn_blocking(move || drop(ended)).await;
    Ok(StatusCode::NO_CONTENT)
}

fn found(backups: &Backups, id: &str) -> Result<Arc<RunningBackup>, Problem> {
    backups.find(id).ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> Problem {
    Problem::new(Reason::Code(ErrorCode::NotFound), format!("no backup '{id}' is being read"))
        .value(id)
        .rule("a backup ends when nobody has read it for a minute, and when the server's disk has no room left")
        .remedy("begin another one")
}

fn shown(backup: &RunningBackup) -> Value {
    json!({
        "backup": backup.id,
        "log": backup.log,
        "version": env!("CARGO_PKG_VERSION"),
        "taken": iso_time(backup.taken_ms),
        "files": backup.files.len(),
        "bytes": backup.size_bytes(),
    })
}

fn parse(text: &str, backup: &RunningBackup) -> Result<Vec<(usize, Range<u64>)>, Problem> {
    let bad = |range: &str, why: String| {
        Problem::invalid(format!("range '{range}' cannot be read: {why}"))
            .value(range)
            .rule("'<number of the file>:<from>-<to>' with from below to, within the file")
            .remedy("take numbers and sizes from the list of files")
    };
    let ranges: Vec<&str> = text.split(',').filter(|range| !range.is_empty()).collect();
    if ranges.is_empty() || ranges.len() > RANGES_MAX {
        return Err(Problem::invalid(format!("{} ranges are asked for", ranges.len()))
            .value(ranges.len())
            .rule(format!("'ranges' has 1 to {RANGES_MAX} of them"))
            .remedy("send several requests"));
    }
    let parsed = ranges.into_iter().map(|range| {
        let numbers = range.split_once(':').and_then(|(file, ends)| {
            let (from, to) = ends.split_once('-')?;
            Some((file.parse::<usize>().ok()?, from.parse::<u64>().ok()?, to.parse::<u64>().ok()?))
        });
        let (file, from, to) = numbers.ok_or_else(|| bad(range, "it is not of that form".to_owned()))?;
        let known =
            backup.files.get(file).ok_or_else(|| bad(range, format!("there are {} files", backup.files.len())))?;
        match from < to && to <= known.size_bytes {
            true => Ok((file, from..to)),
            false => Err(bad(range, format!("the file has {} bytes", known.size_bytes))),
        }
    });
    parsed.collect()
}
