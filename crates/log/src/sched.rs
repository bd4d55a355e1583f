//! Scheduling of background threads beside threads that append.

use rustix::process::getpriority_process;
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};
use thread_priority::{ThreadPriority, ThreadPriorityValue};

/// Nice values range from -20 to 19.
const NICEST: i32 = 19;

/// Gives the calling thread the policy `SCHED_BATCH`: when it wakes, it does not preempt another thread but waits
/// until that one sleeps or has had its share. Records appended until then are written together. On an idle core it
/// runs at once. Its nice value stays the one of the process.
pub fn run_as_batch() {
    batch(0);
}

/// Like [`run_as_batch`], with a nice value 5 higher than the process's (at most 19), for threads that have seconds
/// of time and compute for milliseconds. While others want the core the thread gets a quarter of it, not a half, so
/// sockets that need three quarters lose nothing; and it makes progress even if they want all. If the thread falls
/// behind, its bounded queue refuses more work.
pub fn run_in_background() {
    batch(5);
}

fn batch(nicer: i32) {
    let batch = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Batch);
    let taken = priority_of(nicer).and_then(|priority| {
        let priority = ThreadPriority::Crossplatform(priority);
        set_thread_priority_and_policy(thread_native_id(), priority, batch).map_err(|error| format!("{error:?}"))
    });
    if let Err(error) = taken {
        tracing::warn!(error, "cannot set SCHED_BATCH; the thread works, in smaller batches");
    }
}

/// Converts the thread's nice value plus `nicer` to the library's scale: it spreads 0 to 99 over 19 down to -20 and
/// rounds down. Halves stay away from the rounding points.
fn priority_of(nicer: i32) -> Result<ThreadPriorityValue, String> {
    let nice = getpriority_process(None).map_err(|error| error.to_string())?;
    let steps = NICEST - (nice + nicer).min(NICEST);
    u8::try_from((steps * 99 - 99 / 2).max(0) / 39)
        .map_err(|error| error.to_string())
        .and_then(ThreadPriorityValue::try_from)
}

#[cfg(test)]
mod tests {
    use rustix::process::setpriority_process;

    use super::*;

    /// The nice value and policy of a thread after `step`, in a process started with `nice`.
    fn after(nice: i32, step: fn()) -> (i32, String) {
        let stat = std::thread::spawn(move || {
            setpriority_process(None, nice).unwrap();
            step();
            std::fs::read_to_string("/proc/thread-self/stat").unwrap()
        });
        let stat = stat.join().unwrap();
        // Fields 3 and on follow the name in parentheses: 19 is the nice value, 41 the policy (3 is SCHED_BATCH).
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
        (fields[19 - 3].parse().unwrap(), fields[41 - 3].to_owned())
    }

    /// Nice values that need no privilege.
    fn started_with() -> impl Iterator<Item = i32> {
        getpriority_process(None).unwrap()..=NICEST
    }

    #[test]
    fn a_thread_that_gives_way_is_a_batch_thread_of_the_nice_value_of_its_process() {
        for nice in started_with() {
            assert_eq!(after(nice, run_as_batch), (nice, "3".to_owned()));
        }
    }

    #[test]
    fn a_thread_that_stands_back_is_a_batch_thread_with_a_third_of_the_weight() {
        for nice in started_with() {
            assert_eq!(after(nice, run_in_background), ((nice + 5).min(19), "3".to_owned()));
        }
    }
}
