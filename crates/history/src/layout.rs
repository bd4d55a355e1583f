//! Paths of files: `tenant=<tenant>/type=<type>/day=<period>/<number>.parquet`. A period is a day, `YYYY-MM-DD`, or for older
//! points a month, `YYYY-MM`, or a year. Tools that support Hive partitions read the files as one table with the columns
//! `tenant`, `type` and `day`.

use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::file_period::FilePeriod;

/// Extension of a complete file.
pub(crate) const EXTENSION: &str = ".parquet";
/// Extension of an incomplete file.
const PART_EXTENSION: &str = ".part";
/// Characters that are percent-encoded: all but letters, digits and these four.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b':');
/// Longest encoded name; a longer one is cut and gets a checksum.
const NAME_MAX_BYTES: usize = 200;

/// Returns the directory of a tenant, type and period below `root`.
pub(crate) fn directory(root: &Path, tenant: &str, kind: &str, period: FilePeriod) -> PathBuf {
    root.join(format!("tenant={}", encoded(tenant)))
        .join(format!("type={}", encoded(kind)))
        .join(format!("day={}", period.name()))
}

/// Returns the path of the file while it is incomplete.
pub(crate) fn part_path(path: &Path) -> PathBuf {
    let mut part = path.as_os_str().to_owned();
    part.push(PART_EXTENSION);
    part.into()
}

fn encoded(name: &str) -> String {
    let mut encoded = utf8_percent_encode(name, ENCODED).to_string();
    if encoded.len() > NAME_MAX_BYTES {
        // The text is ASCII, so any cut is valid.
        encoded.truncate(NAME_MAX_BYTES - 10);
        encoded.push_str(&format!("~{:08x}", millstream_types::murmur2(name.as_bytes())));
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_period::Span;

    #[test]
    fn odd_names_are_encoded_and_long_ones_stay_apart() {
        let of_span = |kind: &str, span| {
            directory(Path::new("h"), "acme", kind, FilePeriod::of(span, 20_000)).display().to_string()
        };
        let of = |kind: &str| of_span(kind, Span::Day);
        assert_eq!(of("Room"), "h/tenant=acme/type=Room/day=2024-10-04");
        assert_eq!(of("urn:x:A%.."), "h/tenant=acme/type=urn:x:A%25../day=2024-10-04");
        assert_eq!(of("a=b,c\u{e9}"), "h/tenant=acme/type=a%3Db%2Cc%C3%A9/day=2024-10-04");
        let (one, other) = (of(&"%".repeat(256)), of(&format!("{}x", "%".repeat(255))));
        assert_ne!(one, other);
        assert!(one.split('/').all(|part| part.len() < 255));
        assert_eq!(of_span("Room", Span::Month), "h/tenant=acme/type=Room/day=2024-10");
        assert_eq!(of_span("Room", Span::Year), "h/tenant=acme/type=Room/day=2024");
    }
}
