//! Two processes, each with an engine, on the same names.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use millstream_log::{Error, Log as _, TopicConfig};
use millstream_log_kafka::OnKafka;

use crate::{commit, config, topic, values};

/// The commits of a writer that another process has fenced in mid-work: those that were answered are there, in order, before those
/// of the other one, and nothing comes later.
#[test]
fn a_writer_of_another_process_fences_the_earlier_in_mid_work() {
    let kafka = crate::conformance::broker();
    let [earlier, later] = [(); 2].map(|()| OnKafka::open(config(kafka)).unwrap());
    let name = topic("fenced-in-mid-work");
    earlier.create_topic(&name, &TopicConfig { partitions: 2, ..TopicConfig::default() }).unwrap();
    later.create_topic(&name, &TopicConfig { partitions: 2, ..TopicConfig::default() }).unwrap();
    let writer = earlier.writer("fenced-in-mid-work").unwrap();
    let has_begun = AtomicBool::new(false);
    let (answered, error) = thread::scope(|scope| {
        let work = scope.spawn(|| {
            for number in 0.. {
                match commit(&*writer, &name, &[0, 1], &format!("earlier {number}")) {
                    Ok(_) => has_begun.store(number > 5, Ordering::Release),
                    Err(error) => return (number, error),
                }
            }
            unreachable!()
        });
        while !has_begun.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let successor = later.writer("fenced-in-mid-work").unwrap();
        let before = values(&later, &name, 0);
        commit(&*successor, &name, &[0, 1], "later").unwrap();
        let (answered, error) = work.join().unwrap();
        let expected: Vec<_> = (0..before.len()).map(|number| format!("earlier {number}")).collect();
        assert_eq!(before, expected);
        assert!(before.len() >= answered, "{answered} were answered, and {} are there", before.len());
        (before.len(), error)
    });
    assert!(matches!(error, Error::Fenced { .. } | Error::OutcomeUnknown { .. }), "{error}");
    for partition in [0, 1] {
        let all = values(&later, &name, partition);
        assert_eq!((all.len(), all.last().map(String::as_str)), (answered + 1, Some("later")));
    }
    assert!(matches!(commit(&*writer, &name, &[0], "void"), Err(Error::Fenced { .. } | Error::OutcomeUnknown { .. })));
    assert!(matches!(writer.abort(), Err(Error::Fenced { .. } | Error::OutcomeUnknown { .. })));
}

/// A topic that another process has created is known after a start, with its whole configuration.
#[test]
fn a_topic_of_another_process_is_known_with_its_whole_configuration() {
    let kafka = crate::conformance::broker();
    let (one, name) = (OnKafka::open(config(kafka)).unwrap(), topic("of-another-process"));
    let config_of_topic = TopicConfig {
        partitions: 3,
        record_max_bytes: 1_000,
        hold_max_bytes: 5,
        level: millstream_log::AckLevel::Written,
        ..TopicConfig::default()
    };
    let created = one.create_topic(&name, &config_of_topic).unwrap();
    let two = OnKafka::open(config(kafka)).unwrap();
    assert_eq!(two.topic(&name), Some(created));
}
