//! Which segments a pass writes anew, and which of them together.

use std::ops::Range;

/// A segment that loses nothing is joined with those beside it only below this part of a full one.
const SMALL_PARTS: u64 = 4;
/// Segments that lose nothing are joined once so many of them stand side by side.
const JOINED_MIN: usize = 8;

/// What is asked of a source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub(super) size_bytes: u64,
    /// It loses records, or its tombstones get the time of their first compaction.
    pub(super) changes: bool,
}

/// Sources that stand side by side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) sources: Range<usize>,
    /// All of them become one; otherwise each stays as it is.
    pub(super) is_rewritten: bool,
}

/// Divides the sources into runs, none of which becomes larger than a segment of `segment_bytes`.
pub(super) fn runs(sources: &[Source], segment_bytes: u64) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut begins = 0;
    let mut run_bytes = 0;
    for (number, source) in sources.iter().enumerate() {
        let stays_alone = !source.changes && source.size_bytes > segment_bytes / SMALL_PARTS;
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

fn run(sources: &[Source], range: Range<usize>) -> Option<Run> {
    let run = sources.get(range.clone()).filter(|run| !run.is_empty())?;
    let is_rewritten = run.iter().any(|source| source.changes) || run.len() >= JOINED_MIN;
    Some(Run { sources: range, is_rewritten })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes in percent of a full segment; below 0 for those that change.
    fn rewritten(sizes: &[i64]) -> Vec<(usize, usize)> {
        let source = |size: &i64| Source { size_bytes: size.unsigned_abs(), changes: *size < 0 };
        let runs = runs(&sizes.iter().map(source).collect::<Vec<_>>(), 100);
        assert!(runs.iter().flat_map(|run| run.sources.clone()).eq(0..sizes.len()), "each is in one run, in order");
        runs.into_iter().filter(|run| run.is_rewritten).map(|run| (run.sources.start, run.sources.end)).collect()
    }

    #[test]
    fn what_changes_is_written_with_small_neighbours_and_nothing_else_is() {
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
