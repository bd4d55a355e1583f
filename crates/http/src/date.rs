//! The `Date` header, rendered once a second on each thread.
//!
//! hyper's own date stands still when the clock is set back; this one follows within a second.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use axum::http::HeaderValue;
use millstream_types::{SystemClock, WallClock};
use tokio::time::Instant;

/// Length of an HTTP date.
const DATE_BYTES: usize = 29;
const SECOND: Duration = Duration::from_secs(1);

/// Returns the date as bytes.
pub(crate) fn date(now: Instant) -> [u8; DATE_BYTES] {
    date_by(now, &SystemClock::default())
}

/// The date as a header's value.
pub(crate) fn date_header(now: Instant) -> HeaderValue {
    HeaderValue::from_bytes(&date(now)).unwrap_or(HeaderValue::from_static(""))
}

fn date_by(now: Instant, wall: &dyn WallClock) -> [u8; DATE_BYTES] {
    thread_local!(static RENDERED: Cell<Option<(Instant, [u8; DATE_BYTES])>> = const { Cell::new(None) });
    RENDERED.with(|rendered| match rendered.get() {
        Some((until, text)) if now < until => text,
        _ => {
            let wall_ms = u64::try_from(wall.now_ms()).unwrap_or_default();
            let mut text = [b' '; DATE_BYTES];
            let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_millis(wall_ms));
            // Dates of this form have this length until the year 9999.
            text.iter_mut().zip(date.bytes()).for_each(|(place, byte)| *place = byte);
            rendered.set(Some((now + SECOND.saturating_sub(Duration::from_millis(wall_ms % 1_000)), text)));
            text
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct At(i64);

    impl WallClock for At {
        fn now_ms(&self) -> i64 {
            self.0
        }
    }

    #[test]
    fn the_date_follows_a_clock_that_is_set_back() {
        let (start, hour_ms) = (Instant::now(), 3_600_000);
        assert_eq!(&date_by(start, &At(2 * hour_ms)), b"Thu, 01 Jan 1970 02:00:00 GMT");
        let within = start + Duration::from_millis(900);
        assert_eq!(&date_by(within, &At(hour_ms)), b"Thu, 01 Jan 1970 02:00:00 GMT", "rendered once a second");
        assert_eq!(&date_by(start + SECOND, &At(hour_ms)), b"Thu, 01 Jan 1970 01:00:00 GMT");
    }
}
