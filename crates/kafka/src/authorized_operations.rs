//! The operations on a topic, a group or the cluster that a caller's roles allow, as bits that Kafka's clients read: one for each
//! operation of its access control lists.

use millstream_log::Topic;
use millstream_types::{Principal, Role, Roles, TopicKind};

/// The value for a client that did not ask.
pub(crate) const NOT_ASKED: i32 = i32::MIN;

const READ: i32 = 1 << 3;
const WRITE: i32 = 1 << 4;
const CREATE: i32 = 1 << 5;
const DELETE: i32 = 1 << 6;
const ALTER: i32 = 1 << 7;
const DESCRIBE: i32 = 1 << 8;
const DESCRIBE_CONFIGS: i32 = 1 << 10;
const ALTER_CONFIGS: i32 = 1 << 11;
const IDEMPOTENT_WRITE: i32 = 1 << 12;

/// The operations that the caller may do with a topic that it sees.
pub(crate) fn of_topic(caller: &Principal, topic: &Topic) -> i32 {
    let is_altered = caller.roles.has(Role::Admin) && topic.name.kind() == TopicKind::User;
    DESCRIBE
        | DESCRIBE_CONFIGS
        | granted(caller.roles.has(Role::Reader), READ)
        | granted(caller.roles.has(Role::Writer) && topic.takes_records_of(caller), WRITE)
        | granted(is_altered, CREATE | DELETE | ALTER | ALTER_CONFIGS)
}

/// The operations that a caller with `roles` may do with the cluster: no client alters it.
pub(crate) fn of_cluster(roles: Roles) -> i32 {
    DESCRIBE
        | DESCRIBE_CONFIGS
        | granted(roles.has(Role::Writer), IDEMPOTENT_WRITE)
        | granted(roles.has(Role::Admin), CREATE)
}

/// The operations that a caller with `roles` may do with a group of its tenant.
pub(crate) fn of_group(roles: Roles) -> i32 {
    granted(roles.has(Role::Reader), READ | DESCRIBE) | granted(roles.has(Role::Admin), DELETE)
}

fn granted(is_granted: bool, operations: i32) -> i32 {
    if is_granted { operations } else { 0 }
}
