//! The `Range` and `If-Range` headers of a read (RFC 9110, sections 13.1.5 and 14).

use std::ops::Range;

/// Most ranges of an answer; a request for more gets the whole value.
const RANGES_MAX: usize = 16;

/// The ranges of a value that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RangeRequest {
    /// The whole value: there is no `Range` header, or one that is passed over.
    Whole,
    /// These ranges, at least one, none of them empty, and no two that overlap.
    Ranges(Vec<Range<u64>>),
    /// The value has no byte of any of the ranges.
    Unsatisfiable,
}

impl RangeRequest {
    /// Reads a `Range` header for a value of `size` bytes. One of another unit, one that is malformed and one with too
    /// many ranges are passed over. Ranges that overlap become one, and all are then in the order of the value.
    pub(super) fn parse(header: &str, size: u64) -> Self {
        let Some((unit, set)) = header.split_once('=') else { return Self::Whole };
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return Self::Whole;
        }
        let mut ranges = Vec::new();
        let specs = set.split(',').map(str::trim).filter(|spec| !spec.is_empty());
        for (count, spec) in specs.enumerate() {
            let Some(range) = parse_one(spec, size).filter(|_| count < RANGES_MAX) else { return Self::Whole };
            ranges.push(range);
        }
        if ranges.is_empty() {
            return Self::Whole;
        }
        ranges.retain(|range| range.start < range.end);
        match ranges.is_empty() {
            true => Self::Unsatisfiable,
            false => Self::Ranges(coalesced(ranges)),
        }
    }
}

/// Reads one range; an empty one if the value has none of its bytes, `None` if it is malformed.
fn parse_one(spec: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = spec.split_once('-')?;
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Some(first.min(size)..last.saturating_add(1).min(size)),
        (Some(first), None) if last.is_empty() => Some(first.min(size)..size),
        (None, Some(length)) if first.is_empty() => Some(size.saturating_sub(length)..size),
        _ => None,
    }
}

/// Reads digits; a number that is too large is larger than any value.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

fn coalesced(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut sorted = ranges.clone();
    sorted.sort_by_key(|range| range.start);
    if sorted.windows(2).all(|pair| pair[0].end <= pair[1].start) {
        return ranges;
    }
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "one range is one of the cases")]
    fn a_header_names_ranges_of_the_value() {
        let (whole, none) = (RangeRequest::Whole, RangeRequest::Unsatisfiable);
        let ranges = |ranges: &[Range<u64>]| RangeRequest::Ranges(ranges.to_vec());
        let sixteen = (0..16).map(|n| format!("{}-{}", n * 3, n * 3)).collect::<Vec<_>>().join(",");
        for (header, size, expected) in [
            ("bytes=0-0", 100, ranges(&[0..1])),
            ("bytes=0-99", 100, ranges(&[0..100])),
            ("bytes=10-", 100, ranges(&[10..100])),
            ("bytes=-10", 100, ranges(&[90..100])),
            ("bytes=-1000", 100, ranges(&[0..100])),
            ("bytes=90-1000", 100, ranges(&[90..100])),
            ("Bytes = 1-2", 100, ranges(&[1..3])),
            ("bytes=0-0, -1", 100, ranges(&[0..1, 99..100])),
            ("bytes=50-59,0-9", 100, ranges(&[50..60, 0..10])),
            ("bytes=50-59,0-9,5-20", 100, ranges(&[0..21, 50..60])),
            ("bytes=0-49,50-99", 100, ranges(&[0..50, 50..100])),
            ("bytes=0-9,200-", 100, ranges(&[0..10])),
            ("bytes=5-99999999999999999999999", 100, ranges(&[5..100])),
            ("bytes=100-", 100, none.clone()),
            ("bytes=-0", 100, none.clone()),
            ("bytes=99999999999999999999999-", 100, none.clone()),
            ("bytes=0-", 0, none.clone()),
            ("bytes=-5", 0, none),
            ("bytes=", 100, whole.clone()),
            ("bytes=-", 100, whole.clone()),
            ("bytes=9-5", 100, whole.clone()),
            ("bytes=a-b", 100, whole.clone()),
            ("bytes=+1-2", 100, whole.clone()),
            ("bytes=0-1,x", 100, whole.clone()),
            ("bytes 0-1", 100, whole.clone()),
            ("items=0-1", 100, whole.clone()),
            (&format!("bytes={sixteen},99-99"), 100, whole),
        ] {
            assert_eq!(RangeRequest::parse(header, size), expected, "{header} of {size}");
        }
        assert!(
            matches!(RangeRequest::parse(&format!("bytes={sixteen}"), 100), RangeRequest::Ranges(ranges) if ranges.len() == 16)
        );
    }

    proptest! {
        #[test]
        fn ranges_cover_what_was_asked_for_and_never_overlap(
            asked in proptest::collection::vec((0..60_u64, 0..60_u64), 1..10),
            size in 0..50_u64,
        ) {
            let specs: Vec<String> = asked.iter().map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))).collect();
            let wanted = RangeRequest::parse(&format!("bytes={}", specs.join(",")), size);
            let covered = |at: u64| asked.iter().any(|(a, b)| (a.min(b)..=a.max(b)).contains(&&at));
            let ranges = match wanted {
                RangeRequest::Ranges(ranges) => ranges,
                other => {
                    prop_assert_eq!(other, RangeRequest::Unsatisfiable);
                    Vec::new()
                }
            };
            for at in 0..size {
                let times = ranges.iter().filter(|range| range.contains(&at)).count();
                prop_assert_eq!(times, usize::from(covered(at)), "byte {} of {:?}", at, ranges);
            }
            prop_assert!(ranges.iter().all(|range| range.start < range.end && range.end <= size));
        }
    }
}
