//! The last lives of this process that ended soon after their start.

/// The last lives of this process, if each ended soon after its start and not in order: the sign of work that brings the process
/// down each time it comes back.
///
/// A kill from outside looks the same as one for want of memory, so what ended the process is not known: all work that ran each
/// time may have done it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShortLives {
    starts_ms: Vec<i64>,
}

impl ShortLives {
    /// With the starts of these lives, oldest first, in milliseconds since 1970-01-01T00:00:00Z.
    pub fn new(starts_ms: Vec<i64>) -> Self {
        Self { starts_ms }
    }

    /// The number of lives in which work ran that began at this time.
    pub fn since(&self, begun_ms: i64) -> usize {
        // A life ends before the next one starts, and the last one before now.
        let ends_ms = self.starts_ms.iter().skip(1).copied().chain([i64::MAX]).take(self.starts_ms.len());
        ends_ms.filter(|end_ms| begun_ms < *end_ms).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ran_in_the_lives_that_ended_after_its_begin() {
        for (starts_ms, begun_ms, lives) in [
            (&[][..], 5, 0),
            (&[10, 20, 30], 5, 3),
            (&[10, 20, 30], 15, 3),
            // It was not there in the first life.
            (&[10, 20, 30], 20, 2),
            (&[10, 20, 30], 35, 1),
        ] {
            assert_eq!(ShortLives::new(starts_ms.to_vec()).since(begun_ms), lives, "{starts_ms:?} {begun_ms}");
        }
    }
}
