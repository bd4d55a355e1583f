//! The conditions of a write, and those of a read (RFC 9110, section 13).

use std::time::{Duration, SystemTime};

use axum::http::{HeaderValue, StatusCode};
use millstream_http::{Headers, Problem, Reason};
use millstream_types::ErrorCode;

use super::parameters::{lines, text, time_ms};
use super::problems::bad_parameter;
use crate::{Interrupted, OwnerTransaction, Transaction};

/// The versions that `If-Match` or `If-None-Match` lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Versions {
    /// `*`
    Any,
    Listed(Vec<ListedVersion>),
}

/// A version in a list of entity tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListedVersion {
    version: u64,
    /// The tag begins with `W/`. Ours do not, but caches may have made it so.
    is_weak: bool,
}

impl Versions {
    /// Reads a list of entity tags. A tag that is none of ours stands for no version.
    fn parse(text: &str) -> Self {
        if text.trim() == "*" {
            return Self::Any;
        }
        let (mut listed, mut rest) = (Vec::new(), text);
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            if rest.is_empty() {
                return Self::Listed(listed);
            }
            let (is_weak, tag) = rest.strip_prefix("W/").map_or((false, rest), |tag| (true, tag));
            // A comma may stand between the quotes of a tag.
            let (tag, after) = match tag.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
                None => tag.split_once(',').unwrap_or((tag, "")),
            };
            let version = tag.trim_end().parse().ok();
            listed.extend(version.map(|version| ListedVersion { version, is_weak }));
            rest = after;
        }
    }

    /// `true` if the version is among them, by a tag that is not weak: as `If-Match` compares.
    fn have_strong(&self, version: Option<u64>) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(listed) => listed.iter().any(|tag| !tag.is_weak && Some(tag.version) == version),
        }
    }

    /// `true` if the version is among them: as `If-None-Match` compares.
    pub(super) fn have(&self, version: Option<u64>) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(listed) => listed.iter().any(|tag| Some(tag.version) == version),
        }
    }
}

/// The time of a write, in whole seconds as HTTP gives it.
pub(super) fn written_at(written_ms: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(written_ms.max(0) as u64 / 1_000)
}

/// The entity tag of a version.
pub(super) fn etag(version: u64) -> HeaderValue {
    let mut number = itoa::Buffer::new();
    let digits = number.format(version);
    let mut tag = Vec::with_capacity(digits.len() + 2);
    tag.push(b'"');
    tag.extend_from_slice(digits.as_bytes());
    tag.push(b'"');
    // Digits between quotes are always a legal value.
    HeaderValue::from_bytes(&tag).unwrap_or(HeaderValue::from_static("\"0\""))
}

/// The conditions of a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Preconditions {
    pub(super) if_match: Option<Versions>,
    pub(super) if_none_match: Option<Versions>,
    timestamp_before_ms: Option<i64>,
    /// `If-Unmodified-Since`, unless there is `If-Match`.
    pub(super) unmodified_since: Option<SystemTime>,
    /// `If-Match` as the client gave it.
    match_text: String,
    /// `If-None-Match` as the client gave it.
    none_match_text: String,
}

/// A condition that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unmet {
    header: &'static str,
    expected: String,
    /// The version of the key, if it is known and the key is there.
    version: Option<u64>,
    is_there: bool,
    /// The stored time stamp, if that was compared.
    time_ms: Option<i64>,
}

impl Preconditions {
    pub(super) fn of(headers: Headers<'_>) -> Result<Self, Problem> {
        let versions = |name: &str| lines(headers, name).map(|list| Versions::parse(&list));
        let timestamp_before_ms = match text(headers, "x-if-timestamp-before") {
            Some(value) => Some(time_ms("X-If-Timestamp-Before", value)?),
            None if headers.get("x-if-timestamp-before").is_some() => {
                return Err(bad_parameter("X-If-Timestamp-Before", "", "it is text"));
            }
            None => None,
        };
        let (if_match, if_none_match) = (versions("if-match"), versions("if-none-match"));
        let given = |name: &str| lines(headers, name).unwrap_or_default();
        let (match_text, none_match_text) = (given("if-match"), given("if-none-match"));
        // A date that is none is passed over, as RFC 9110 demands.
        let date = text(headers, "if-unmodified-since").and_then(|date| httpdate::parse_http_date(date).ok());
        let unmodified_since = date.filter(|_| if_match.is_none());
        Ok(Self { if_match, if_none_match, timestamp_before_ms, unmodified_since, match_text, none_match_text })
    }

    /// The condition on versions that a key of this version does not meet, before a write that checks it again.
    pub(super) fn unmet_by(&self, version: Option<u64>) -> Option<Unmet> {
        let unmet = |header, given: &str| {
            let expected = given.to_owned();
            Some(Unmet { header, expected, version, is_there: version.is_some(), time_ms: None })
        };
        let fails_match = |versions: &&Versions| version.is_none() || !versions.have_strong(version);
        let fails_none = |versions: &&Versions| version.is_some() && versions.have(version);
        match (self.if_match.as_ref().filter(fails_match), self.if_none_match.as_ref().filter(fails_none)) {
            (Some(_), _) => unmet("If-Match", &self.match_text),
            (None, Some(_)) => unmet("If-None-Match", &self.none_match_text),
            (None, None) => None,
        }
    }

    /// The condition that a read of this version does not meet; `If-None-Match` is not one of a read.
    pub(super) fn unmet_by_read(&self, version: u64) -> Option<Unmet> {
        Self { if_none_match: None, ..self.clone() }.unmet_by(Some(version))
    }

    /// Checks the conditions inside the transaction that depends on them.
    pub(super) fn check(
        &self,
        transaction: &mut OwnerTransaction<'_, '_>,
        key: &[u8],
    ) -> Result<Result<(), Unmet>, Interrupted> {
        let entry = transaction.entry(key);
        let (is_there, version) = (entry.is_some(), entry.and_then(|entry| entry.version));
        let unmet = |header, expected: String, time_ms| Ok(Err(Unmet { header, expected, version, is_there, time_ms }));
        if let Some(versions) = &self.if_match
            && !(is_there && versions.have_strong(version))
        {
            return unmet("If-Match", self.match_text.clone(), None);
        }
        if let Some(versions) = &self.if_none_match
            && is_there
            && versions.have(version)
        {
            return unmet("If-None-Match", self.none_match_text.clone(), None);
        }
        if let Some(since) = self.unmodified_since
            && let Some(stored) = transaction.stored(key)?
            && written_at(stored.written_ms) > since
        {
            return unmet("If-Unmodified-Since", httpdate::fmt_http_date(since), Some(stored.written_ms));
        }
        if let Some(before_ms) = self.timestamp_before_ms
            && let Some(stored) = transaction.stored(key)?
        {
            let given = stored.value.attributes.as_ref().and_then(|attributes| attributes.time_ms);
            let stored_ms = given.unwrap_or(stored.written_ms);
            if stored_ms > before_ms {
                return unmet("X-If-Timestamp-Before", before_ms.to_string(), Some(stored_ms));
            }
        }
        Ok(Ok(()))
    }
}

impl Unmet {
    /// The refusal. `now` is the key's version after the transaction, in case that was on its way before.
    pub(super) fn problem(self, now: Option<u64>) -> Problem {
        let version = if self.is_there { self.version.or(now) } else { None };
        let found = match (self.is_there, version) {
            (false, _) => "the key is not there".to_owned(),
            (true, Some(version)) => format!("the key has version \"{version}\""),
            (true, None) => "the key has another version".to_owned(),
        };
        let problem = Problem::new(
            Reason::Code(ErrorCode::PreconditionFailed),
            format!("{} does not hold: {found}", self.header),
        )
        .with_status(StatusCode::PRECONDITION_FAILED)
        .value(&self.expected)
        .rule("nothing is stored unless every condition holds")
        .remedy("read the key again and decide anew")
        .member("expected", self.expected)
        .member("version", version.map_or(serde_json::Value::Null, |version| version.into()));
        match self.time_ms {
            Some(time_ms) => problem.member("timestamp_ms", time_ms),
            None => problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strong(version: u64) -> ListedVersion {
        ListedVersion { version, is_weak: false }
    }

    fn weak(version: u64) -> ListedVersion {
        ListedVersion { version, is_weak: true }
    }

    #[test]
    fn versions_are_entity_tags() {
        for (text, expected) in [
            ("*", Versions::Any),
            ("\"17\"", Versions::Listed(vec![strong(17)])),
            ("\"17\", W/\"18\" ,\"19\"", Versions::Listed(vec![strong(17), weak(18), strong(19)])),
            ("17, 18", Versions::Listed(vec![strong(17), strong(18)])),
            ("\"17,18\"", Versions::Listed(vec![])),
            ("\"a\", , \"17\"", Versions::Listed(vec![strong(17)])),
            ("\"17", Versions::Listed(vec![strong(17)])),
            ("\"\u{fc}\"", Versions::Listed(vec![])),
            ("\"abc\"", Versions::Listed(vec![])),
            ("", Versions::Listed(vec![])),
        ] {
            assert_eq!(Versions::parse(text), expected, "{text}");
        }
        assert_eq!(etag(17), "\"17\"");
        assert!(Versions::Any.have(None) && !Versions::Listed(vec![strong(17)]).have(None));
        let listed = Versions::Listed(vec![weak(17)]);
        assert!(listed.have(Some(17)) && !listed.have_strong(Some(17)), "a weak tag is no proof for a write");
    }
}
