//! The promises of a view, shown by a small one over four partitions.

use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, Cleanup, Done, Log, TopicConfig, UpTo};
use millstream_types::{BatchLimits, Record, TopicName, TopicPartition};
use millstream_view::{Checkpoints, Error, Follower, FollowerConfig, ViewsConfig};

use crate::common::{Answer, Command, Deliveries, World, add, ask, pieces, shelf_topic, telemetry, whole};

#[test]
fn the_thread_of_the_checkpoint_store_stands_back() {
    let dir = tempfile::tempdir().unwrap();
    let _store = Checkpoints::open(dir.path()).unwrap();
    // All stores of this program are opened in the same way, those of other tests too.
    let workers = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        // Threads of other tests may end meanwhile.
        let stats = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")).ok());
        stats.filter(|stat| stat.contains("(fjall:")).collect::<Vec<_>>()
    };
    // A thread names itself once it runs.
    while workers().is_empty() {
        std::thread::yield_now();
    }
    // Field 19 is the nice value; what stands behind the name in parentheses begins with field 3.
    let nice = |stat: &str| {
        let fields = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace();
        fields.clone().nth(19 - 3).unwrap().parse::<i32>().unwrap()
    };
    let own = nice(&std::fs::read_to_string("/proc/self/stat").unwrap());
    for worker in workers() {
        assert_eq!(nice(&worker), (own + 5).min(19), "{worker}");
    }
}

#[test]
fn a_read_after_the_answer_sees_the_write() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_memory(dir.path());
    let views = world.shelf();
    for round in 1..=50 {
        for name in ["bolt", "nut", "screw", "washer", "rivet"] {
            assert_eq!(add(&views, name, 1), Answer::Now(round));
            assert_eq!(pieces(&views, name), Some(round));
        }
    }
    assert_eq!(ask(&views, Command::Remove { name: "nut".into() }).unwrap(), Answer::Gone);
    assert_eq!(pieces(&views, "nut"), None);
    world.close(views);
}

#[test]
fn a_plane_hears_of_an_answer_before_the_caller_and_never_of_an_undone_command() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_memory(dir.path());
    let views = world.shelf();
    for pieces in 1..=3 {
        let answer = add(&views, "bolt", 1);
        assert_eq!(world.heard.lock().last(), Some(&format!("{answer:?}")), "{pieces}");
    }
    assert!(ask(&views, Command::Break { name: "bolt".into() }).is_err());
    assert_eq!(*world.heard.lock(), ["Now(1)", "Now(2)", "Now(3)"]);
    world.close(views);
}

#[test]
fn exactly_one_of_many_swaps_in_flight_wins() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let views = world.shelf();
    for name in (0..20).map(|n| format!("part-{n}")) {
        let partition = views.partition_of(name.as_bytes());
        let answers: Vec<_> = (1..=16)
            .map(|pieces| views.submit(partition, Command::Swap { name: name.clone(), expected: 0, pieces }).unwrap())
            .collect();
        let answers: Vec<_> = answers.into_iter().map(|answer| answer.blocking_recv().unwrap().unwrap()).collect();
        assert_eq!(answers[0], Answer::Now(1));
        assert!(answers[1..].iter().all(|answer| *answer == Answer::Refused { actual: 1 }), "{answers:?}");
    }
    world.close(views);
}

#[test]
fn commands_from_many_threads_are_all_counted() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let views = world.shelf();
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                let answers: Vec<_> = (0..500)
                    .map(|n| {
                        let name = format!("part-{}", n % 10);
                        views.submit(views.partition_of(name.as_bytes()), Command::Add { name, pieces: 1 }).unwrap()
                    })
                    .collect();
                for answer in answers {
                    assert!(matches!(answer.blocking_recv().unwrap().unwrap(), Answer::Now(_)));
                }
            });
        }
    });
    for n in 0..10 {
        assert_eq!(pieces(&views, &format!("part-{n}")), Some(400));
    }
    world.close(views);
}

#[test]
fn an_inbox_that_is_full_says_so_and_takes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_memory(dir.path());
    let config = ViewsConfig { partitions: 4, inbox_max_commands: 0, ..ViewsConfig::default() };
    let views = world.shelf_with(None, &config).unwrap();
    let refusal = ask(&views, Command::Add { name: "bolt".into(), pieces: 1 }).unwrap_err();
    assert!(matches!(refusal, Error::Overloaded { limit: 0, .. }));
    assert!(refusal.is_retryable() && !refusal.may_have_applied());
    assert!(refusal.to_string().contains("lets at most 0 wait"), "{refusal}");
    views.stop();
    assert!(matches!(ask(&views, Command::Remove { name: "bolt".into() }), Err(Error::Stopped)));
    world.close(views);
}

fn copy_dir(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn the_state_is_the_same_with_the_newest_an_older_a_torn_and_no_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoints = dir.path().join("views");
    let (older, newest) = (dir.path().join("older"), dir.path().join("newest"));
    let work = |round: i64| {
        let world = World::open(dir.path());
        let views = world.shelf();
        for n in 0..200 {
            add(&views, &format!("part-{n}"), round * n);
        }
        ask(&views, Command::Remove { name: format!("part-{round}") }).unwrap();
        let state = whole(&views);
        world.close(views);
        state
    };
    work(1);
    copy_dir(&checkpoints, &older);
    let expected = work(2);
    copy_dir(&checkpoints, &newest);
    let reopened = || {
        let world = World::open(dir.path());
        let views = world.shelf();
        let state = whole(&views);
        world.close(views);
        state
    };
    assert_eq!(reopened(), expected, "newest");
    for copy in [&older, &newest] {
        std::fs::remove_dir_all(&checkpoints).unwrap();
        copy_dir(copy, &checkpoints);
        assert_eq!(reopened(), expected, "{}", copy.display());
    }
    std::fs::remove_dir_all(&checkpoints).unwrap();
    assert_eq!(reopened(), expected, "none");
    for cut in [0.0, 0.3, 0.9] {
        std::fs::remove_dir_all(&checkpoints).unwrap();
        copy_dir(&newest, &checkpoints);
        tear(&checkpoints, cut);
        assert_eq!(reopened(), expected, "torn at {cut}");
    }
}

/// Cuts every file below `dir` to a share of its length.
fn tear(dir: &std::path::Path, share: f64) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tear(&path, share);
        } else {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            let length = file.metadata().unwrap().len();
            file.set_len((length as f64 * share) as u64).unwrap();
        }
    }
}

#[test]
fn changes_and_their_events_are_one_append() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_memory(dir.path());
    let moves = TopicName::user("moves", &Default::default()).unwrap();
    world.log.create_topic(&moves, &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
    let views =
        world.shelf_with(Some(moves.clone()), &ViewsConfig { partitions: 4, ..ViewsConfig::default() }).unwrap();
    assert_eq!(world.log.topic(&shelf_topic()).unwrap().config.cleanup, Cleanup::Compact);
    for n in 1..=20 {
        add(&views, "bolt", n);
    }
    let partition = world.log.partition(&TopicPartition::new(moves, 0)).unwrap();
    let told: Vec<String> = partition
        .read(partition.offsets().first, usize::MAX, UpTo::Stable)
        .unwrap()
        .iter()
        .map(|batch| batch.inflated(&BatchLimits::default()).unwrap())
        .flat_map(|batch| {
            batch
                .records()
                .map(|record| String::from_utf8(record.unwrap().value.unwrap().to_vec()).unwrap())
                .collect::<Vec<_>>()
        })
        .collect();
    let expected: Vec<String> = (1..=20).map(|n: i64| (n * (n + 1) / 2).to_string()).collect();
    assert_eq!(told, expected);
    world.close(views);
}

#[test]
fn a_followed_record_changes_the_state_once_across_restarts_of_the_follower() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["bolt", "nut", "screw", "washer"];
    let mut sent = [0_i64; 4];
    for life in 0..6_u64 {
        let world = World::open(dir.path());
        if life == 0 {
            let config = TopicConfig { level: AckLevel::Written, ..TopicConfig::default() };
            world.log.create_topic(&telemetry(), &config).unwrap();
        }
        let views = world.shelf();
        let log: Arc<dyn Log> = world.log.clone();
        let config = FollowerConfig { quiet: Duration::from_millis(20), ..FollowerConfig::default() };
        let follow = || {
            let deliveries = Arc::new(Deliveries { views: Arc::clone(&views) });
            Follower::start(deliveries, &views, &log, &config).unwrap()
        };
        let mut follower = follow();
        for n in 0..400_usize {
            let which = n % names.len();
            let pieces = vec![b'x'; 1 + n % 7];
            let record = Record { key: Some(names[which].as_bytes()), value: Some(&pieces), ..Record::default() };
            let partition = TopicPartition::new(telemetry(), (n % 3) as u32);
            log.partition(&partition).unwrap().append(&[record], AckLevel::Written, Done::ignore()).unwrap();
            sent[which] += pieces.len() as i64;
            if n % 150 == 149 {
                follower.stop();
                follower = follow();
            }
        }
        let arrived = || names.iter().zip(sent).all(|(name, sent)| pieces(&views, name) == Some(sent));
        let patience = std::time::Instant::now();
        while !arrived() && patience.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        for (name, sent) in names.iter().zip(sent) {
            assert_eq!(pieces(&views, name), Some(sent), "{name} in life {life}");
        }
        follower.stop();
        drop(follower);
        world.close(views);
    }
}

#[test]
fn a_follower_waits_while_an_inbox_is_full_and_then_goes_on() {
    const RECORDS: i64 = 500;
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_memory(dir.path());
    let config = TopicConfig { level: AckLevel::Written, ..TopicConfig::default() };
    world.log.create_topic(&telemetry(), &config).unwrap();
    let record = Record { key: Some(b"bolt"), value: Some(b"x"), ..Record::default() };
    let partition = world.log.partition(&TopicPartition::new(telemetry(), 0)).unwrap();
    for _ in 0..RECORDS {
        partition.append(&[record], AckLevel::Written, Done::ignore()).unwrap();
    }
    // One command fills it.
    let views = world.shelf_with(None, &ViewsConfig { inbox_max_bytes: 4, ..ViewsConfig::default() }).unwrap();
    let deliveries = Arc::new(Deliveries { views: Arc::clone(&views) });
    let log: Arc<dyn Log> = world.log.clone();
    let one_by_one = FollowerConfig { command_max_records: 1, ..FollowerConfig::default() };
    let follower = Follower::start(deliveries, &views, &log, &one_by_one).unwrap();
    let patience = std::time::Instant::now();
    while pieces(&views, "bolt") != Some(RECORDS) {
        assert!(patience.elapsed() < Duration::from_secs(60), "{:?}, {:?}", pieces(&views, "bolt"), views.failures());
        std::thread::yield_now();
    }
    drop(follower);
    world.close(views);
}

#[test]
fn shards_end_when_their_views_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::in_memory(dir.path());
    let views = world.shelf();
    add(&views, "bolt", 1);
    world.close(views);
}
