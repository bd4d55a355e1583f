//! How threads behind the rim share a core with whoever appends.

use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};
use thread_priority::{ThreadPriority, ThreadPriorityValue};

/// The values that the library makes the nice values 0 and 5 of.
const NICE_0: u8 = 48;
const NICE_5: u8 = 35;

/// Lets the calling thread give way (`SCHED_BATCH`): when it is woken it does not push another thread off its core, but
/// begins once that one sleeps or has had its share. What is appended until then is written together. On a core that
/// is free it begins at once.
pub fn give_way() {
    batch(NICE_0);
}

/// As [`give_way`], for a thread that has seconds of time and works for milliseconds on end (nice value 5): while others
/// want its core it has a quarter of that, not a half. Sockets that need three quarters then lose nothing to it, and it
/// gets on even if they want all. Where it falls behind, what it is to take away is bounded and refuses more.
pub fn stand_back() {
    batch(NICE_5);
}

fn batch(nice: u8) {
    let batch = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Batch);
    let given = ThreadPriorityValue::try_from(nice).map(ThreadPriority::Crossplatform);
    let taken = given.and_then(|nice| {
        set_thread_priority_and_policy(thread_native_id(), nice, batch).map_err(|error| format!("{error:?}"))
    });
    if let Err(error) = taken {
        tracing::warn!(error, "a thread cannot give way; it works, but does less at once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nice value and the policy of a thread that does `step`.
    fn after(step: fn()) -> (String, String) {
        let stat = std::thread::spawn(move || {
            step();
            std::fs::read_to_string("/proc/thread-self/stat").unwrap()
        });
        let stat = stat.join().unwrap();
        // Behind the name in parentheses stand fields 3 and on: 19 is the nice value, 41 the policy (3 is SCHED_BATCH).
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
        (fields[19 - 3].to_owned(), fields[41 - 3].to_owned())
    }

    #[test]
    fn a_thread_that_gives_way_is_a_batch_thread_of_the_usual_nice_value() {
        assert_eq!(after(give_way), ("0".to_owned(), "3".to_owned()));
    }

    #[test]
    fn a_thread_that_stands_back_is_a_batch_thread_with_a_third_of_the_weight() {
        assert_eq!(after(stand_back), ("5".to_owned(), "3".to_owned()));
    }
}
