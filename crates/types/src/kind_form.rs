//! The forms of the records in topics of tenants.

use crate::{Mutability, TopicForm, TopicKind};

impl TopicKind {
    /// The form of the records of a topic of this kind, if it is one of a tenant that Millstream makes by itself.
    pub const fn form(self) -> Option<TopicForm> {
        use Mutability::{Kept, Replaced};
        const DEVICES: &str = "devices, clients of the log";
        let (name, owner, writer, key, value, mutability) = match self {
            Self::Telemetry => ("telemetry.TENANT", "connect", DEVICES, "device", "payload as it was sent", Kept),
            Self::Event => ("event.TENANT", "connect", DEVICES, "device", "payload as it was sent", Kept),
            Self::Command => {
                ("command.TENANT", "connect", "applications", "device", "payload; name and reply in headers", Kept)
            }
            Self::CommandResponse => {
                ("command_response.TENANT", "connect", "connect", "device", "payload; status and id in headers", Kept)
            }
            Self::Context => (
                "context.TENANT",
                "context",
                "owner of the entity, with its state in one append",
                "entity id",
                "JSON of the entity, none of a removed one; type, path and change in headers",
                Kept,
            ),
            Self::ContextUpdate => (
                "context_update.TENANT",
                "context",
                "jobs, clients of the log",
                "entity id",
                "JSON of a batch update",
                Kept,
            ),
            Self::Mqtt => ("mqtt.TENANT", "connect", "MQTT clients", "topic", "payload; properties in headers", Kept),
            Self::Kv => (
                "kv.BUCKET.TENANT",
                "store",
                "owner of the partition",
                "the key; with a first byte 0: of the store itself",
                "the value, or a manifest of its parts; type, end and tags in headers",
                Replaced,
            ),
            Self::User | Self::Internal => return None,
        };
        Some(TopicForm { name, owner, writer, key, value, version: None, mutability })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ACTIVE, JOB_STATE, MIGRATION, POSITIONS, StateTopic, TOPICS};

    fn row(form: &TopicForm) -> String {
        let TopicForm { name, owner, writer, key, value, version, mutability } = form;
        let version = version.map_or(String::new(), |version| version.to_string());
        let mutability = match mutability {
            Mutability::Replaced => "last of each key",
            Mutability::Kept => "by time",
        };
        format!("| `{name}` | {owner} | {writer} | {key} | {value} | {version} | {mutability} |")
    }

    #[test]
    fn the_table_of_what_is_stored_is_that_of_the_architecture() {
        let kinds = TopicKind::RESERVED.iter().filter_map(|(kind, _)| kind.form());
        let rows: Vec<String> = StateTopic::ALL
            .iter()
            .map(|topic| topic.form())
            .chain([JOB_STATE, TOPICS, POSITIONS, ACTIVE, MIGRATION])
            .chain(kinds)
            .map(|form| row(&form))
            .collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md");
        let text = std::fs::read_to_string(path).unwrap();
        let head = "| topic | crate | written by | key | value | version | kept |\n| --- | --- | --- | --- | --- | --- | --- |\n";
        let table = text.split_once(head).expect("the table is there").1;
        let told: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
        assert_eq!(told, rows, "write this into ARCHITECTURE.md:\n{head}{}", rows.join("\n"));
    }

    #[test]
    fn each_reserved_kind_of_topic_has_a_form_under_its_name() {
        for (kind, word) in TopicKind::RESERVED {
            assert!(kind.form().is_some_and(|form| form.name.starts_with(&format!("{word}."))), "{word}");
        }
    }
}
