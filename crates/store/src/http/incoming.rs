//! The body of a write: at hand if it is small, otherwise a stream.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use md5::{Digest, Md5};
use millstream_http::{BodyStream, Headers, Problem, Request};

use super::parameters::text;
use super::problems::{bad_parameter, problem};
use crate::{Bucket, CHUNK_BYTES, ChunkWriter, Quotas, WriteRefusal, WrittenPart};

const MD5_BYTES: usize = 16;

/// The length that a request announces for its body; `None` if it does not.
pub(super) fn announced(request: &Request<'_>) -> Option<u64> {
    text(request.headers(), "content-length").and_then(|digits| digits.parse().ok())
}

/// `true` if the body is taken whole: it is at hand, or known to be small.
pub(super) fn is_small(request: &Request<'_>) -> bool {
    request.body().is_ok() || announced(request).is_some_and(|length| length <= CHUNK_BYTES as u64)
}

/// Refuses a body that is announced to be larger than the bucket takes.
pub(super) fn check_announced(bucket: &Bucket, request: &Request<'_>) -> Result<(), Problem> {
    let Quotas { value_max_bytes, .. } = bucket.config().quotas;
    match (announced(request), value_max_bytes) {
        (Some(length), Some(max_bytes)) if length > max_bytes => {
            Err(problem(&WriteRefusal::ValueTooLarge { length, max_bytes }.into()))
        }
        _ => Ok(()),
    }
}

/// Checks a body against the MD5 that its request gives, if it gives one.
pub(super) struct BodyCheck {
    expected: Option<[u8; MD5_BYTES]>,
    so_far: Md5,
}

impl BodyCheck {
    pub(super) fn of(headers: Headers<'_>) -> Result<Self, Problem> {
        let expected = match text(headers, "content-md5") {
            None => None,
            Some(value) => {
                let md5 = STANDARD.decode(value).ok().and_then(|md5| md5.try_into().ok());
                let refusal =
                    || bad_parameter("Content-MD5", value, "it is the MD5 of the body in base64: 24 characters");
                Some(md5.ok_or_else(|| refusal().remedy("leave it out to send the body without a check"))?)
            }
        };
        Ok(Self { expected, so_far: Md5::new() })
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.expected.is_some() {
            self.so_far.update(bytes);
        }
    }

    fn finish(self) -> Result<(), Problem> {
        let Some(expected) = self.expected else { return Ok(()) };
        let found: [u8; MD5_BYTES] = self.so_far.finalize().into();
        if found == expected {
            return Ok(());
        }
        let (expected, found) = (STANDARD.encode(expected), STANDARD.encode(found));
        Err(bad_parameter("Content-MD5", &expected, "it is the MD5 of the body")
            .member("md5", found)
            .remedy("nothing is stored; send the body again"))
    }

    /// Checks a body that is at hand.
    pub(super) fn whole(mut self, bytes: &[u8]) -> Result<(), Problem> {
        self.add(bytes);
        self.finish()
    }
}

/// A body that arrives as a stream.
pub(super) struct Incoming {
    body: BodyStream,
    check: BodyCheck,
    /// The beginning of the body, as far as it was read to find out its size.
    first: BytesMut,
}

impl Incoming {
    pub(super) fn new(body: BodyStream, check: BodyCheck) -> Self {
        Self { body, check, first: BytesMut::new() }
    }

    /// The whole body if it turns out to be small; otherwise it goes on as a stream.
    pub(super) async fn whole_if_small(mut self) -> Result<Result<Bytes, Self>, Problem> {
        while let Some(piece) = self.body.next().await? {
            self.check.add(&piece);
            self.first.extend_from_slice(&piece);
            if self.first.len() > CHUNK_BYTES {
                return Ok(Err(self));
            }
        }
        self.check.finish()?;
        Ok(Ok(self.first.freeze()))
    }

    /// Writes the body, and what it must be is checked at its end.
    pub(super) async fn write(self, mut writer: ChunkWriter, max_bytes: u64) -> Result<WrittenPart, Problem> {
        let Self { mut body, mut check, first } = self;
        let mut size = first.len() as u64;
        writer.write(first.freeze()).await.map_err(|error| problem(&error))?;
        while let Some(piece) = body.next().await? {
            size += piece.len() as u64;
            if size > max_bytes {
                return Err(too_large(size, max_bytes));
            }
            check.add(&piece);
            writer.write(piece).await.map_err(|error| problem(&error))?;
        }
        check.finish()?;
        writer.finish().await.map_err(|error| problem(&error))
    }
}

/// Refuses a body that is larger than the route takes in one piece.
pub(super) fn too_large(size: u64, max_bytes: u64) -> Problem {
    Problem::new(millstream_http::Reason::BodyTooLarge, format!("a body of {size} bytes is too large here"))
        .value(size)
        .rule(format!("it has at most {max_bytes} bytes"))
        .remedy("send it as several parts: 'POST …?uploads'")
}
