use proptest::prelude::*;

use super::*;

const MESSAGES: usize = 6;

pub(in crate::mqtt::broker) fn limits() -> QueueLimits {
    QueueLimits { messages: MESSAGES, bytes: 100, live: 3, room: MemoryBudget::new("room", 1 << 20) }
}

fn message() -> Arc<Message> {
    Arc::new(Message {
        topic: "a".into(),
        payload: Box::default(),
        qos: Qos::AtLeastOnce,
        properties: Box::default(),
        expires_ms: None,
        _room: None,
    })
}

pub(in crate::mqtt::broker) fn entry(offset: u64, qos: Qos, size_bytes: u32) -> QueueEntry {
    QueueEntry {
        offset: Some(offset),
        qos,
        group: None,
        dup: false,
        retain: false,
        ids: Box::default(),
        size_bytes,
        message: Some(message()),
    }
}

#[test]
fn a_full_queue_drops_qos_0_messages_and_reads_the_others_from_the_log_again() {
    let mut queue = MessageQueue::default();
    let lost: u64 = (0..5).map(|at| queue.push(entry(at, Qos::AtMostOnce, 1), &limits())).sum();
    assert_eq!((lost, queue.len()), (2, 3));
    assert_eq!(queue.push(entry(5, Qos::AtLeastOnce, 1), &limits()), 0);
    assert_eq!(queue.missing(9), [5]);
    queue.rest();
    assert_eq!((queue.len(), queue.missing(9)), (1, vec![5]));
    let read = message();
    assert!(queue.fill(5, Some(&read)) && !queue.fill(4, Some(&read)));
    assert_eq!(queue.missing(9), [] as [u64; 0]);
    assert!(queue.fill(5, None));
    assert_eq!(queue.len(), 0);
}

#[test]
fn the_oldest_make_room_and_one_that_is_larger_than_all_of_it_stays_alone() {
    let mut queue = MessageQueue::default();
    let lost: Vec<u64> = (0..8).map(|at| queue.push(entry(at, Qos::AtLeastOnce, 1), &limits())).collect();
    assert_eq!(lost, [0, 0, 0, 0, 0, 0, 1, 1]);
    assert_eq!(queue.front().unwrap().offset, Some(2));
    assert_eq!(queue.push(entry(8, Qos::AtLeastOnce, 101), &limits()), 6);
    assert_eq!((queue.len(), queue.front().unwrap().offset), (1, Some(8)));
}

#[test]
fn a_queue_takes_room_from_the_budget_and_without_room_the_oldest_goes() {
    let room = MemoryBudget::new("room", (2 * ROOM_ENTRIES * ENTRY_BYTES) as u64);
    let limits = QueueLimits { messages: 1_000, bytes: 1 << 20, live: 3, room: room.clone() };
    let (mut queue, mut other) = (MessageQueue::default(), MessageQueue::default());
    let lost: u64 = (0..200).map(|at| queue.push(entry(at, Qos::AtLeastOnce, 1), &limits)).sum();
    assert_eq!((lost, queue.len()), (72, 2 * ROOM_ENTRIES));
    assert_eq!(other.push(entry(1, Qos::AtLeastOnce, 1), &limits), 1, "no room at all");
    while queue.pop().is_some() {}
    assert_eq!(room.used_bytes(), 0);
}

proptest! {
    #[test]
    fn random_steps_keep_the_counters_of_a_queue_equal_to_its_content(steps in prop::collection::vec((0..6_u8, 0..60_u32), 1..60)) {
        let mut queue = MessageQueue::default();
        for (at, (step, size)) in steps.into_iter().enumerate() {
            match step {
                0 | 1 => drop(queue.push(entry(at as u64, Qos::AtLeastOnce, size), &limits())),
                2 => drop(queue.push(entry(at as u64, Qos::AtMostOnce, size), &limits())),
                3 => {
                    if let Some(taken) = queue.pop() {
                        queue.put_back(taken);
                    }
                }
                4 => queue.rest(),
                _ => {
                    for offset in queue.missing(2) {
                        queue.fill(offset, (size % 2 == 0).then(message).as_ref());
                    }
                }
            }
            let entries = &queue.entries;
            prop_assert_eq!(queue.bytes, entries.iter().map(|entry| u64::from(entry.size_bytes)).sum::<u64>());
            prop_assert_eq!(queue.fleeting, entries.iter().filter(|entry| entry.qos == Qos::AtMostOnce).count());
            prop_assert_eq!(queue.live, entries.iter().filter(|entry| entry.message.is_some()).count());
            prop_assert!(entries.len() <= MESSAGES);
            prop_assert!(entries.iter().is_sorted_by_key(|entry| entry.offset));
        }
    }
}
