//! How threads behind the rim share a core with whoever appends.

use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};
use thread_priority::{ThreadPriority, ThreadPriorityValue};

/// The value that the library makes the nice value 0 of.
const NICE_0: u8 = 48;

/// Lets the calling thread give way (`SCHED_BATCH`): when it is woken it does not push another thread off its core, but
/// begins once that one sleeps or has had its share. What is appended until then is written together. On a core that
/// is free it begins at once.
pub fn give_way() {
    let batch = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Batch);
    let given = ThreadPriorityValue::try_from(NICE_0).map(ThreadPriority::Crossplatform);
    let taken = given.and_then(|nice_0| {
        set_thread_priority_and_policy(thread_native_id(), nice_0, batch).map_err(|error| format!("{error:?}"))
    });
    if let Err(error) = taken {
        tracing::warn!(error, "a thread cannot give way; it works, but does less at once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_gives_way_is_a_batch_thread_of_the_usual_nice_value() {
        let stat = std::thread::spawn(|| {
            give_way();
            std::fs::read_to_string("/proc/thread-self/stat").unwrap()
        });
        let stat = stat.join().unwrap();
        // Behind the name in parentheses stand fields 3 and on: 19 is the nice value, 41 the policy (3 is SCHED_BATCH).
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
        assert_eq!((fields[19 - 3], fields[41 - 3]), ("0", "3"));
    }
}
