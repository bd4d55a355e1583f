//! Waiting for what comes about in its own time.

use std::time::{Duration, Instant};

/// Longest wait for anything that must come; only what never comes reaches it.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks: short enough not to slow a test, long enough to leave the processor to what is waited for.
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until `holds`.
///
/// # Panics
/// With what was waited for, if it does not hold within [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Waits until `holds` and leaves the thread to other tasks meanwhile.
///
/// # Panics
/// With what was waited for, if it does not hold within [`PATIENCE`].
pub async fn eventually_async(what: &str, mut holds: impl FnMut() -> bool) {
    found_async(what, || holds().then_some(())).await;
}

/// Looks until there is an answer, and returns it; leaves the thread to other tasks meanwhile.
///
/// # Panics
/// With what was looked for, if it is not found within [`PATIENCE`].
pub async fn found_async<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
