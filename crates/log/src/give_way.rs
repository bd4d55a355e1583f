//! How threads behind the rim share a core with whoever appends.

use rustix::process::getpriority_process;
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};
use thread_priority::{ThreadPriority, ThreadPriorityValue};

/// The nice values are from -20 to 19.
const NICEST: i32 = 19;

/// Lets the calling thread give way (`SCHED_BATCH`): when it is woken it does not push another thread off its core, but
/// begins once that one sleeps or has had its share. What is appended until then is written together. On a core that
/// is free it begins at once. Its nice value stays what the process was started with.
pub fn give_way() {
    batch(0);
}

/// As [`give_way`], for a thread that has seconds of time and works for milliseconds on end (nice value 5 more than
/// the process was started with, at most 19): while others want its core it has a quarter of that, not a half. Sockets that need three quarters then lose nothing to it, and it
/// gets on even if they want all. Where it falls behind, what it is to take away is bounded and refuses more.
pub fn stand_back() {
    batch(5);
}

fn batch(nicer: i32) {
    let batch = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Batch);
    let taken = priority_of(nicer).and_then(|priority| {
        let priority = ThreadPriority::Crossplatform(priority);
        set_thread_priority_and_policy(thread_native_id(), priority, batch).map_err(|error| format!("{error:?}"))
    });
    if let Err(error) = taken {
        tracing::warn!(error, "a thread cannot give way; it works, but does less at once");
    }
}

/// What the library makes of the calling thread's nice value and `nicer`: it spreads 0 to 99 over the values from 19
/// down to -20, rounded down; halves keep away from where it rounds.
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

    /// The nice value and the policy of a thread that does `step`, in a process that was started with `nice`.
    fn after(nice: i32, step: fn()) -> (i32, String) {
        let stat = std::thread::spawn(move || {
            setpriority_process(None, nice).unwrap();
            step();
            std::fs::read_to_string("/proc/thread-self/stat").unwrap()
        });
        let stat = stat.join().unwrap();
        // Behind the name in parentheses stand fields 3 and on: 19 is the nice value, 41 the policy (3 is SCHED_BATCH).
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
        (fields[19 - 3].parse().unwrap(), fields[41 - 3].to_owned())
    }

    /// Values that nobody needs a right for.
    fn started_with() -> impl Iterator<Item = i32> {
        getpriority_process(None).unwrap()..=NICEST
    }

    #[test]
    fn a_thread_that_gives_way_is_a_batch_thread_of_the_nice_value_of_its_process() {
        for nice in started_with() {
            assert_eq!(after(nice, give_way), (nice, "3".to_owned()));
        }
    }

    #[test]
    fn a_thread_that_stands_back_is_a_batch_thread_with_a_third_of_the_weight() {
        for nice in started_with() {
            assert_eq!(after(nice, stand_back), ((nice + 5).min(19), "3".to_owned()));
        }
    }
}
