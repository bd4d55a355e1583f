//! Plans which segments a pass rewrites, and which it merges.

use std::ops::Range;

/// An unchanged segment is merged with its neighbours only below this fraction of a full segment.
const SMALL_PARTS: u64 = 4;
/// Unchanged small segments are merged once this many stand side by side.
const JOINED_MIN: usize = 8;

/// The facts about a source that the plan depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct SourceSegment {
    pub(super) size_bytes: u64,
    /// The segment loses records, or its tombstones get the time of their first compaction.
    pub(super) changes: bool,
}

/// Neighbouring sources that are treated alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentRun {
    pub(super) sources: Range<usize>,
    /// `true` if the sources are merged into one segment; otherwise each stays.
    pub(super) is_rewritten: bool,
}

/// `true` if an unchanged segment of `size_bytes` may be merged with its neighbours.
pub(super) fn may_be_merged(size_bytes: u64, segment_bytes: u64) -> bool {
    size_bytes <= segment_bytes / SMALL_PARTS
}

/// Divides the sources into runs, none larger than `segment_bytes`.
pub(super) fn runs(sources: &[SourceSegment], segment_bytes: u64) -> Vec<SegmentRun> {
    let mut runs = Vec::new();
    let mut begins = 0;
    let mut run_bytes = 0;
    for (number, source) in sources.iter().enumerate() {
        let stays_alone = !source.changes && !may_be_merged(source.size_bytes, segment_bytes);
        let is_full = run_bytes + source.size_bytes > segment_bytes;
        if stays_alone || is_full {
            runs.extend(run(sources, begins..number));
            (begins, run_bytes) = (number, 0);
        }
        run_bytes = if stays_alone { segment_bytes } else { run_bytes + source.size_bytes };
    }
    runs.extend(run(sources, begins..sources.len()));
    runs
}

fn run(sources: &[SourceSegment], range: Range<usize>) -> Option<SegmentRun> {
    let run = sources.get(range.clone()).filter(|run| !run.is_empty())?;
    let is_rewritten = run.iter().any(|source| source.changes) || run.len() >= JOINED_MIN;
    Some(SegmentRun { sources: range, is_rewritten })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes in percent of a full segment; negative sizes mark segments that change.
    fn rewritten(sizes: &[i64]) -> Vec<(usize, usize)> {
        let source = |size: &i64| SourceSegment { size_bytes: size.unsigned_abs(), changes: *size < 0 };
        let runs = runs(&sizes.iter().map(source).collect::<Vec<_>>(), 100);
        assert!(runs.iter().flat_map(|run| run.sources.clone()).eq(0..sizes.len()), "each is in one run, in order");
        runs.into_iter().filter(|run| run.is_rewritten).map(|run| (run.sources.start, run.sources.end)).collect()
    }

    #[test]
    fn changed_segments_are_rewritten_with_their_small_neighbours_only() {
        assert_eq!(rewritten(&[]), []);
        assert_eq!(rewritten(&[100, 30, 5, 5]), [], "nothing to gain");
        assert_eq!(rewritten(&[-100, 60, -40, 60]), [(0, 1), (2, 3)]);
        assert_eq!(rewritten(&[20, -30, 10, 60]), [(0, 3)]);
        assert_eq!(rewritten(&[-60, -60, -30]), [(0, 1), (1, 3)]);
        assert_eq!(rewritten(&[60, 5, -5]), [(1, 3)]);
        assert_eq!(rewritten(&[-120]), [(0, 1)], "a segment may be larger than its limit");
    }

    #[test]
    fn many_small_ones_become_one() {
        assert_eq!(rewritten(&[5; 7]), []);
        assert_eq!(rewritten(&[5; 8]), [(0, 8)]);
        assert_eq!(rewritten(&[20; 16]), [], "five fill a segment");
    }
}
