//! Users' topics that administrators alone write, by their names.

use std::path::Path;
use std::sync::Arc;

use millstream_log::{Embedded, Log, LogConfig, SystemFiles, TopicConfig, Writers};
use millstream_types::{AccessScope, Principal, Role, Roles, SystemClock, TenantId, TopicName};

fn open(dir: &Path, words: &[&str]) -> Arc<Embedded> {
    let clock = Arc::new(SystemClock::default());
    let guarded_words = words.iter().map(|word| (*word).to_owned()).collect();
    let config = LogConfig { dir: dir.join("log"), guarded_words, ..LogConfig::default() };
    Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock).unwrap()
}

fn name(topic: &str) -> TopicName {
    TopicName::parse(topic, &TenantId::new("acme").unwrap()).unwrap()
}

#[test]
fn a_topic_of_a_guarded_word_takes_records_of_administrators_of_the_whole_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path(), &["queries"]);
    let create = |topic: &str| log.create_topic(&name(topic), &TopicConfig::default()).unwrap();
    let (asked, orders, other) = (create("queries.acme"), create("orders"), create("queries.other"));
    assert_eq!(create("queries.acme").id, asked.id, "it is created again with the same settings");
    let owned = TopicConfig { writers: Writers::OwnersOnly, ..TopicConfig::default() };
    let state = log.create_topic(&name("context.acme"), &owned).unwrap();
    let limit = AccessScope::new(&["queries.".to_owned()], &[], &[]);
    let writer = Roles::NONE.with(Role::Reader).with(Role::Writer);
    for (roles, scope, may_ask) in [
        (Roles::APPLICATION, AccessScope::default(), true),
        (Roles::APPLICATION, limit, false),
        (writer, AccessScope::default(), false),
    ] {
        let caller = Principal { tenant: TenantId::new("acme").unwrap(), name: "a".to_owned(), roles, scope };
        assert_eq!(asked.takes_records_of(&caller), may_ask, "{caller:?}");
        assert!(
            orders.takes_records_of(&caller) && other.takes_records_of(&caller) && !state.takes_records_of(&caller)
        );
    }
    log.close().unwrap();
}

#[test]
fn a_topic_from_before_its_word_was_guarded_is_guarded_from_the_next_start_on() {
    let dir = tempfile::tempdir().unwrap();
    let open_before = open(dir.path(), &[]);
    let before = open_before.create_topic(&name("queries.acme"), &TopicConfig::default()).unwrap();
    assert_eq!(before.config.writers, Writers::Anyone);
    open_before.close().unwrap();
    for words in [&["queries"][..], &[]] {
        let log = open(dir.path(), words);
        let after = log.topic(&name("queries.acme")).unwrap();
        assert_eq!((after.id, after.config.writers), (before.id, Writers::OwnersOnly));
        log.close().unwrap();
    }
}
