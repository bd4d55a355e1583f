//! The requests of a batch: one for each record, or arrays of records.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::batch::Batch;

/// Bytes of one request, and the record that goes beyond.
const BODY_MAX_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Per {
    Batch,
    Record,
}

/// A request without its target. It is the same in every attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PostRequest {
    pub(super) body: Bytes,
    /// The value of the header `Idempotency-Key`.
    pub(super) key: String,
    /// The rows of the request in their batch.
    pub(super) rows: Range<usize>,
    /// Their records, as errors name them.
    pub(super) records: String,
}

/// Names records by their places: the same records have the same name in a later run.
pub(super) struct KeyMaker {
    /// The tenant and name of the job, for records of a topic.
    pub(super) job: String,
    /// The tenant and id of the job, for records whose numbers count within one submission.
    pub(super) submission: String,
    pub(super) node: String,
}

/// The requests of a batch, in the order of its rows.
pub(super) fn requests(batch: &Batch, per: Per, keys: &KeyMaker) -> Vec<PostRequest> {
    let mut requests = Vec::new();
    let (mut from, mut copies) = (0, HashMap::new());
    while from < batch.len() {
        let (mut to, mut body) = (from, Vec::new());
        while to < batch.len() && (to == from || (per == Per::Batch && body.len() < BODY_MAX_BYTES)) {
            if per == Per::Batch {
                body.push(if to == from { b'[' } else { b',' });
            }
            body.extend_from_slice(batch.payload(to).unwrap_or(b"null"));
            to += 1;
        }
        if per == Per::Batch {
            body.push(b']');
        }
        let last = to - 1;
        // Several rows may come from one source record: they count on.
        let copy: &mut u32 = copies.entry(batch.offset(from)).or_default();
        let key = format!("{}.{copy}-{}", keys.place(batch, from), batch.offset(last));
        let records = match to - from {
            1 => batch.place(from),
            count => format!("{} and {} further ones", batch.place(from), count - 1),
        };
        requests.push(PostRequest { body: body.into(), key, rows: from..to, records });
        *copy += 1;
        from = to;
    }
    requests
}

impl KeyMaker {
    fn place(&self, batch: &Batch, row: usize) -> String {
        let (node, offset) = (&self.node, batch.offset(row));
        if let Some(maker) = batch.maker() {
            // Records of one key and time differ in what they say.
            let mut hash = Sha256::new();
            hash.update(batch.key(row).unwrap_or_default());
            hash.update(batch.payload(row).unwrap_or_default());
            let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            return format!("{}/{node}/{maker}/{}/{digest}", self.submission, batch.timestamp_ms(row));
        }
        match batch.topic() {
            Some(topic) => {
                let partition = batch.partition().unwrap_or_default();
                format!("{}/{node}/{topic}/{partition}/{offset}", self.job)
            }
            None => format!("{}/{node}/{offset}", self.submission),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::SourceBatch;

    fn batch(records: &[(u64, &str)]) -> Batch {
        let mut batch = SourceBatch::default();
        for (number, record) in records {
            batch.push(*number, None, 0, |out| out.extend_from_slice(record.as_bytes()));
        }
        batch.finish()
    }

    fn made(batch: &Batch, per: Per) -> Vec<(String, String)> {
        let keys = KeyMaker { job: "t/j".to_owned(), submission: "t/id".to_owned(), node: "out".to_owned() };
        let text = |body: Bytes| String::from_utf8(body.to_vec()).unwrap();
        requests(batch, per, &keys).into_iter().map(|request| (request.key, text(request.body))).collect()
    }

    #[test]
    fn a_batch_is_one_array_or_a_request_for_each_record() {
        let batch = batch(&[(4, "{\"n\":1}"), (4, "{\"n\":2}"), (7, "{\"n\":3}")]);
        let own = |key: &str, body: &str| (key.to_owned(), body.to_owned());
        assert_eq!(made(&batch, Per::Batch), [own("t/id/out/4.0-7", r#"[{"n":1},{"n":2},{"n":3}]"#)]);
        let each = [
            own("t/id/out/4.0-4", "{\"n\":1}"),
            own("t/id/out/4.1-4", "{\"n\":2}"),
            own("t/id/out/7.0-7", "{\"n\":3}"),
        ];
        assert_eq!(made(&batch, Per::Record), each);
    }

    #[test]
    fn a_large_batch_is_cut_into_several_requests() {
        let long = format!("{{\"x\":\"{}\"}}", "x".repeat(BODY_MAX_BYTES / 2));
        let batch = batch(&[(0, &long), (1, &long), (2, &long)]);
        let sizes: Vec<usize> = made(&batch, Per::Batch).iter().map(|(_, body)| body.len() / long.len()).collect();
        assert_eq!(sizes, [2, 1]);
    }
}
