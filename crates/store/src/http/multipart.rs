//! Multipart uploads: begun, filled part by part in any order, and committed or given up.

use std::sync::Arc;

use axum::Json;
use axum::http::header::ETAG;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use millstream_http::{Answer, Problem, Reason, Request, Unread, parse_json};
use millstream_types::{ErrorCode, iso_time};
use serde::Deserialize;
use serde_json::{Value, json};

use super::PART_MAX_BYTES;
use super::conditions::Preconditions;
use super::incoming::{BodyCheck, Incoming, announced, check_announced, is_small, too_large};
use super::parameters::{PART_REMEDY, PART_RULE, WriteParameters};
use super::problems::{bad_parameter, problem};
use super::target::KeyTarget;
use super::write::{StoredWrite, Written, transact};
use crate::{
    Bucket, ChunkWriter, Committed, OwnerTransaction, PART_NUMBER_MAX, PartRecord, Transaction, Upload, UploadId,
    WriteRefusal, WrittenPart, add_part, begin, commit,
};

/// `POST …?uploads`: begins an upload.
pub(super) fn start(target: KeyTarget, parameters: WriteParameters) -> Answer {
    let KeyTarget { bucket, key } = target;
    Answer::later(async move {
        let upload = bucket.upload(&key, UploadId::random());
        let (id, partition) = (upload.id, bucket.partition_of(&key));
        let work = move |transaction: &mut OwnerTransaction<'_, '_>| {
            begin(transaction, &upload, parameters.attributes.clone())
        };
        match bucket.transact(partition, parameters.level, key.len(), work).await {
            Ok(_) => (StatusCode::CREATED, Json(json!({"upload": id.to_string()}))).into_response(),
            Err(error) => problem(&error).into_response(),
        }
    })
}

/// `GET …?uploads`: lists the open uploads of the key.
pub(super) fn list(target: KeyTarget) -> Answer {
    let KeyTarget { bucket, key } = target;
    Answer::later(async move {
        let shown = |(id, begun_ms): (UploadId, i64)| json!({"upload": id.to_string(), "begun": iso_time(begun_ms)});
        match bucket.uploads_of(&key).await {
            Ok(uploads) => Json(uploads.into_iter().map(shown).collect::<Vec<Value>>()).into_response(),
            Err(error) => problem(&error).into_response(),
        }
    })
}

/// `GET …?upload=ID`: lists the parts of an open upload that are there.
pub(super) fn list_parts(target: &KeyTarget, id: &str) -> Result<Answer, Problem> {
    let (bucket, upload) = (Arc::clone(&target.bucket), open_upload(target, id)?);
    Ok(Answer::later(async move {
        match bucket.parts_of(&upload).await {
            Ok(parts) => Json(parts.iter().map(|(number, part)| described(*number, part)).collect::<Vec<Value>>())
                .into_response(),
            Err(error) => problem(&error).into_response(),
        }
    }))
}

fn described(number: u32, part: &PartRecord) -> Value {
    json!({"part": number, "size": part.size, "crc32c": format!("{:08x}", part.crc)})
}

/// `DELETE …?upload=ID`: gives an upload up.
pub(super) fn give_up(target: &KeyTarget, parameters: &WriteParameters, id: &str) -> Result<Answer, Problem> {
    let (bucket, level) = (Arc::clone(&target.bucket), parameters.level);
    let upload = open_upload(target, id)?;
    Ok(Answer::later(async move {
        match bucket.give_up(&upload, level).await {
            Ok(true) => StatusCode::NO_CONTENT.into_response(),
            Ok(false) => no_upload(&upload.id.to_string()).into_response(),
            Err(error) => problem(&error).into_response(),
        }
    }))
}

/// `PUT …?upload=ID&part=N`: writes a part.
pub(super) fn put_part(
    target: &KeyTarget,
    request: &Request<'_>,
    parameters: WriteParameters,
    id: &str,
) -> Result<Answer, Unread> {
    let Some(number) = parameters.part.filter(|number| (1..=PART_NUMBER_MAX).contains(number)) else {
        let given = parameters.part.map(|number| number.to_string()).unwrap_or_default();
        return Err(bad_parameter("part", &given, PART_RULE).remedy(PART_REMEDY).into());
    };
    if let Some(length) = announced(request).filter(|length| *length > PART_MAX_BYTES) {
        return Err(too_large(length, PART_MAX_BYTES).into());
    }
    check_announced(&target.bucket, request)?;
    let upload = open_upload(target, id)?;
    let check = BodyCheck::of(request.headers())?;
    let bucket = Arc::clone(&target.bucket);
    if is_small(request) {
        let body = request.body_to_keep()?;
        check.whole(&body)?;
        return Ok(Answer::later(async move {
            let written = async {
                let mut writer = ChunkWriter::part_of(&bucket, upload.clone());
                writer.write(body).await?;
                writer.finish().await
            };
            let written = written.await.map_err(|error| problem(&error));
            let answer = async { add(&bucket, upload, number, &parameters, written?).await };
            answer.await.unwrap_or_else(IntoResponse::into_response)
        }));
    }
    Ok(Answer::stream(async move |body| {
        let answer = async {
            let writer = ChunkWriter::part_of(&bucket, upload.clone());
            let written = Incoming::new(body, check).write(writer, PART_MAX_BYTES).await?;
            add(&bucket, upload, number, &parameters, written).await
        };
        answer.await.unwrap_or_else(IntoResponse::into_response)
    }))
}

/// Adds a part that has been written to its upload.
async fn add(
    bucket: &Bucket,
    upload: Upload,
    number: u32,
    parameters: &WriteParameters,
    written: WrittenPart,
) -> Result<Response, Problem> {
    let part = PartRecord::of(&written.piece).ok_or_else(|| Problem::internal("a part without a checksum"))?;
    let partition = bucket.partition_of(&upload.key);
    let work = move |transaction: &mut OwnerTransaction<'_, '_>| add_part(transaction, &upload, number, part);
    let added = bucket.transact(partition, parameters.level, 0, work).await.map_err(|error| problem(&error))?;
    if added.output {
        written.keep();
    }
    let mut response = Json(described(number, &part)).into_response();
    if let Ok(tag) = HeaderValue::try_from(format!("\"{:08x}\"", part.crc)) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

/// A part in the list of a commit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedPart {
    part: u32,
    size: Option<u64>,
}

/// `POST …?commit=ID`: makes the parts the value. The body may list them.
pub(super) fn finish(
    target: &KeyTarget,
    request: &Request<'_>,
    parameters: WriteParameters,
    id: &str,
) -> Result<Answer, Unread> {
    if !is_small(request) {
        let length = announced(request).unwrap_or_default();
        return Err(bad_parameter(
            "Content-Length",
            &length.to_string(),
            "a list of parts has a length of at most 512 KiB",
        )
        .remedy("send its length, or no list: then all parts are taken")
        .into());
    }
    let upload = upload_of(target, id)?;
    let conditions = Preconditions::of(request.headers())?;
    let body = request.body_to_keep()?;
    BodyCheck::of(request.headers())?.whole(&body)?;
    let named: Option<Vec<NamedPart>> = if body.is_empty() { None } else { Some(parse_json(&body)?) };
    let bucket = Arc::clone(&target.bucket);
    Ok(Answer::later(async move {
        let stored = commit_once(&bucket, upload, &parameters, conditions, named).await;
        stored.map(|stored| stored.answer(parameters.is_minimal)).unwrap_or_else(IntoResponse::into_response)
    }))
}

/// Commits an upload. One that is committed already, by a client that has missed the answer, is told of as before, as long
/// as the key has its value.
async fn commit_once(
    bucket: &Arc<Bucket>,
    upload: Upload,
    parameters: &WriteParameters,
    conditions: Preconditions,
    named: Option<Vec<NamedPart>>,
) -> Result<StoredWrite, Problem> {
    let done = if bucket.is_open(&upload) {
        commit_parts(bucket, upload.clone(), parameters, conditions, named).await
    } else {
        Err(no_upload(&upload.id.to_string()))
    };
    match done {
        // Another request may have committed it meanwhile.
        Err(refusal) if !bucket.is_open(&upload) => {
            let committed = bucket.committed(&upload).await.map_err(|error| problem(&error))?.ok_or(refusal)?;
            let Committed { is_new, version, length, expires_ms } = committed;
            Ok(StoredWrite { written: Written { is_new, length, expires_ms, before: 0 }, received: 0, version })
        }
        done => done,
    }
}

async fn commit_parts(
    bucket: &Arc<Bucket>,
    upload: Upload,
    parameters: &WriteParameters,
    conditions: Preconditions,
    named: Option<Vec<NamedPart>>,
) -> Result<StoredWrite, Problem> {
    let known = bucket.parts_of(&upload).await.map_err(|error| problem(&error))?;
    let parts = chosen(&known, named)?;
    let pieces: Vec<_> = parts.iter().map(|part| part.piece(upload.id)).collect();
    let (attributes, ttl_ms) = (parameters.attributes.clone(), parameters.ttl_ms.or(bucket.config().ttl_ms));
    let key = upload.key.clone();
    transact(bucket, &key, parameters, conditions, 0, 0, move |transaction| {
        let is_new = transaction.entry(&upload.key).is_none();
        let expires_ms = ttl_ms.map(|ttl_ms| transaction.now_ms().saturating_add_unsigned(ttl_ms));
        let done = commit(transaction, &upload, pieces.clone(), expires_ms, attributes.clone())?;
        Ok(Written { is_new, length: done.length, expires_ms: done.expires_ms, before: done.before })
    })
    .await
}

/// The parts of a commit: those that it names, or all.
fn chosen(known: &[(u32, PartRecord)], named: Option<Vec<NamedPart>>) -> Result<Vec<PartRecord>, Problem> {
    let refusal =
        |detail: String, value: String, rule: &'static str| Err(Problem::invalid(detail).value(value).rule(rule));
    let Some(named) = named else {
        if known.is_empty() {
            return refusal("the upload has no parts".to_owned(), "0".to_owned(), "a value has at least one part")
                .map_err(|problem| {
                    problem.remedy("send parts by 'PUT …?upload=ID&part=N', or store an empty value by PUT")
                });
        }
        return Ok(known.iter().map(|(_, part)| *part).collect());
    };
    if named.is_empty() {
        return refusal("the list names no parts".to_owned(), "[]".to_owned(), "a value has at least one part")
            .map_err(|problem| problem.remedy("name the parts, or send no list to take all"));
    }
    let mut parts = Vec::with_capacity(named.len());
    let mut last = 0;
    for NamedPart { part: number, size } in named {
        if number <= last {
            return refusal(format!("part {number} is out of order"), number.to_string(), "numbers go up in the list")
                .map_err(|problem| problem.remedy("name each part once, in the order of the value"));
        }
        last = number;
        let found = known.iter().find(|(known, _)| *known == number).map(|(_, part)| *part);
        let Some(part) = found else {
            return refusal(
                format!("part {number} is not there"),
                number.to_string(),
                "a commit names parts that were sent",
            )
            .map_err(|problem| problem.remedy("send it first"));
        };
        if let Some(size) = size.filter(|size| *size != part.size) {
            let detail = format!("part {number} has {} bytes", part.size);
            return refusal(detail, size.to_string(), "the sizes in the list are those of the parts")
                .map_err(|problem| problem.remedy("give the upload up and send its parts again"));
        }
        parts.push(part);
    }
    Ok(parts)
}

fn open_upload(target: &KeyTarget, id: &str) -> Result<Upload, Problem> {
    let upload = upload_of(target, id)?;
    if target.bucket.is_open(&upload) { Ok(upload) } else { Err(no_upload(id)) }
}

/// The upload of that id, open or not.
fn upload_of(target: &KeyTarget, id: &str) -> Result<Upload, Problem> {
    let id = UploadId::parse(id).ok_or_else(|| no_upload(id))?;
    Ok(target.bucket.upload(&target.key, id))
}

fn no_upload(id: &str) -> Problem {
    let error = crate::Error::from(WriteRefusal::NoUpload { upload: id.to_owned() });
    Problem::new(Reason::Code(ErrorCode::NotFound), error.to_string())
        .value(id)
        .rule("an upload belongs to one key and is open until it is committed, given up or too old (store.upload_max_age_ms)")
        .remedy("see 'GET …?uploads', or begin a new one by 'POST …?uploads'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_takes_the_parts_that_it_names() {
        let part = |slot, size| {
            let source = crate::Source::Part { upload: UploadId::random(), slot, skip: 0 };
            PartRecord::of(&crate::Piece { source, size, crc: Some(slot) }).unwrap()
        };
        let known = [(1, part(1, 10)), (2, part(2, 20)), (7, part(3, 30))];
        let sizes = |list: Option<&str>| {
            let named = list.map(|list| serde_json::from_str(list).unwrap());
            let chosen = chosen(&known, named).map_err(|problem| problem.detail().to_owned())?;
            Ok(chosen.iter().map(|part| part.size).collect::<Vec<u64>>())
        };
        for (list, expected) in [
            (None, Ok(vec![10, 20, 30])),
            (Some(r#"[{"part":1},{"part":7,"size":30}]"#), Ok(vec![10, 30])),
            (Some("[]"), Err("the list names no parts")),
            (Some(r#"[{"part":3}]"#), Err("part 3 is not there")),
            (Some(r#"[{"part":2},{"part":1}]"#), Err("part 1 is out of order")),
            (Some(r#"[{"part":2},{"part":2}]"#), Err("part 2 is out of order")),
            (Some(r#"[{"part":2,"size":21}]"#), Err("part 2 has 20 bytes")),
        ] {
            assert_eq!(sizes(list), expected.map_err(ToOwned::to_owned), "{list:?}");
        }
        assert_eq!(chosen(&[], None).unwrap_err().detail(), "the upload has no parts");
    }
}
