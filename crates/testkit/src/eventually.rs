//! Waiting for what comes about in its own time.

use std::time::{Duration, Instant};

/// Longest wait for anything that must come; only what never comes reaches it.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The first pause between two looks, which does not slow a test.
const PAUSE: Duration = Duration::from_millis(1);
/// The longest pause, which leaves the processor to what takes long.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// The pauses between looks, each half as long again as the one before.
fn pauses() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(PAUSE), |pause| Some((*pause * 3 / 2).min(PAUSE_MAX)))
}

/// Waits until `holds`.
///
/// # Panics
/// With what was waited for, if it does not hold within [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let (begun, mut pauses) = (Instant::now(), pauses());
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(pauses.next().unwrap_or(PAUSE_MAX));
    }
}

/// Looks until there is an answer, and returns it.
///
/// # Panics
/// With what was looked for, if it is not found within [`PATIENCE`].
#[track_caller]
pub fn found<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    eventually(what, || {
        found = look();
        found.is_some()
    });
    found.expect("it was waited for")
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
    found_by(what, async || look()).await
}

/// Looks, by asking somebody and waiting for the answer, until something is found, and returns it.
///
/// # Panics
/// With what was looked for, if it is not found within [`PATIENCE`].
pub async fn found_by<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let (begun, mut pauses) = (Instant::now(), pauses());
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(pauses.next().unwrap_or(PAUSE_MAX)).await;
    }
}
