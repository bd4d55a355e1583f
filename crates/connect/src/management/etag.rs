//! Versions as HTTP writes them: `ETag` and `If-Match` (RFC 9110, sections 8.8.3 and 13.1.1).

use axum::http::HeaderMap;
use axum::http::header::IF_MATCH;

use crate::registry::{Version, VersionCondition};

pub(crate) fn entity_tag(version: Version) -> String {
    format!("\"{version}\"")
}

/// The condition of `If-Match`. Unknown and weak tags match nothing.
pub(crate) fn condition(headers: &HeaderMap) -> VersionCondition {
    let mut given = headers.get_all(IF_MATCH).iter().peekable();
    if given.peek().is_none() {
        return VersionCondition::Always;
    }
    let tags: Vec<&str> =
        given.flat_map(|value| value.to_str().unwrap_or_default().split(',')).map(str::trim).collect();
    if tags.contains(&"*") {
        return VersionCondition::Always;
    }
    let version =
        |tag: &str| Version::parse(tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap_or(tag));
    VersionCondition::OneOf(tags.into_iter().filter_map(version).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_match_holds_for_the_versions_it_names() {
        let (one, two) = (Version::parse("0123456789abcdef").unwrap(), Version::parse("00000000000000ff").unwrap());
        assert_eq!(entity_tag(one), "\"0123456789abcdef\"");
        for (given, holds_for_one, holds_for_two) in [
            ("*", true, true),
            ("\"0123456789abcdef\"", true, false),
            ("0123456789abcdef", true, false),
            ("\"x\", \"00000000000000ff\" , \"0123456789abcdef\"", true, true),
            ("W/\"0123456789abcdef\"", false, false),
            ("\"+123456789abcdef\"", false, false),
            ("", false, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(IF_MATCH, given.parse().unwrap());
            let condition = condition(&headers);
            assert_eq!((condition.holds(one), condition.holds(two)), (holds_for_one, holds_for_two), "{given}");
        }
        assert_eq!(condition(&HeaderMap::new()), VersionCondition::Always);
    }
}
