//! The versions of requests that a broker takes.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use kafka_protocol::messages::ApiVersionsRequest;
use kafka_protocol::protocol::Request;

use crate::connection::{CallError, Connection};

/// Every broker takes the first version.
const API_VERSIONS_VERSION: i16 = 0;

/// The versions of requests that a broker takes, by the key of the request.
#[derive(Debug)]
pub struct Versions(HashMap<i16, RangeInclusive<i16>>);

impl Versions {
    /// Asks the broker.
    ///
    /// # Errors
    /// It does not answer, or with an error.
    pub async fn of(connection: &Connection) -> Result<Self, CallError> {
        let answer = connection.call(&ApiVersionsRequest::default(), API_VERSIONS_VERSION).await?;
        if answer.error_code != 0 {
            let why = format!("it does not tell its versions: error {}", answer.error_code);
            return Err(CallError::Unsent(why));
        }
        Ok(Self(answer.api_keys.iter().map(|api| (api.api_key, api.min_version..=api.max_version)).collect()))
    }

    /// The latest version of `R` that both sides know.
    ///
    /// # Errors
    /// There is none.
    pub fn latest<R: Request>(&self, ours: &RangeInclusive<i16>) -> Result<i16, CallError> {
        let theirs = self.0.get(&R::KEY);
        let latest = theirs.map(|theirs| *theirs.end().min(ours.end()));
        let none = || {
            let theirs = theirs.map_or("none".to_owned(), |theirs| format!("{} to {}", theirs.start(), theirs.end()));
            let (first, last) = (ours.start(), ours.end());
            CallError::Unsent(format!("it takes versions {theirs} of request {}, and not {first} to {last}", R::KEY))
        };
        let is_common = |latest: &i16| theirs.is_some_and(|theirs| theirs.contains(latest)) && ours.contains(latest);
        latest.filter(is_common).ok_or_else(none)
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{MetadataRequest, ProduceRequest};

    use super::*;

    #[test]
    fn the_latest_common_version_is_taken() {
        let versions = Versions([(ProduceRequest::KEY, 3..=9)].into());
        for (ours, latest) in [(3..=11, Some(9)), (0..=5, Some(5)), (9..=9, Some(9)), (10..=13, None), (0..=2, None)] {
            assert_eq!(versions.latest::<ProduceRequest>(&ours).ok(), latest, "{ours:?}");
        }
        let refused = versions.latest::<MetadataRequest>(&(1..=12)).unwrap_err().to_string();
        assert_eq!(refused, "it takes versions none of request 3, and not 1 to 12");
    }
}
