//! Applications that send commands and read their outcomes.

use millstream_log::{AckLevel, reply};
use millstream_testkit::found_async;
use millstream_types::{Header, Record, TenantId, TopicKind, TopicName, TopicPartition, partition_of_key};

use crate::world::{Kept, World};

impl World {
    /// Writes the record of a command, as an application does.
    pub(crate) async fn command(&self, tenant: &str, device: &str, headers: &[(&str, &str)], payload: &[u8]) {
        let name = TopicName::reserved(TopicKind::Command, &TenantId::new(tenant).unwrap());
        let topic = found_async("the topic of commands", || self.log.topic(&name)).await;
        let number = partition_of_key(device.as_bytes(), topic.config.partitions).0;
        let partition = self.log.partition(&TopicPartition::new(name, number)).unwrap();
        let own = [("device_id", device)];
        let headers: Vec<Header<'_>> =
            own.iter().chain(headers).map(|(key, value)| Header { key, value: Some(value.as_bytes()) }).collect();
        let (key, value) = (Some(device.as_bytes()), Some(payload));
        let (done, answer) = reply();
        let record = Record { timestamp_ms: 1_700_000_000_000, key, value, headers: &headers };
        partition.append(&[record], AckLevel::Synced, done).unwrap();
        answer.await.unwrap();
    }

    /// A command that wants an answer; its correlation id is its name.
    pub(crate) async fn ask_device(&self, tenant: &str, device: &str, name: &str, payload: &[u8]) {
        let headers = [("subject", name), ("correlation-id", name), ("response-required", "true")];
        self.command(tenant, device, &headers, payload).await;
    }

    /// Lets `device` or its gateway take a command over HTTP and returns the command's request id.
    pub(crate) async fn request_id(&self, tenant: &str, device: &str, login: &[(&str, &str)]) -> String {
        let waits = [("subject", "c"), ("correlation-id", "c"), ("response-required", "true"), ("ttl", "60000")];
        self.command(tenant, device, &waits, b"").await;
        let present = [("content-type", "application/vnd.eclipse-hono-empty-notification"), ("hono-ttd", "55")];
        let headers = [login, &present].concat();
        let answer = self.device(&format!("PUT /event/{tenant}/{device}"), &headers, b"").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.header("hono-cmd-req-id").unwrap().to_owned()
    }

    /// Waits for `count` answers and notices that applications can read, and returns them.
    pub(crate) async fn answers(&self, tenant: &str, count: usize) -> Vec<Kept> {
        let what = format!("{count} answers and notices");
        let found = found_async(&what, || {
            Some(self.records(TopicKind::CommandResponse, tenant)).filter(|all| all.len() >= count)
        });
        let found = found.await;
        assert_eq!(found.len(), count, "{found:?}");
        found
    }

    /// The notice of the command with this correlation id: status and outcome.
    pub(crate) async fn notice(&self, tenant: &str, correlation_id: &str) -> (String, String) {
        let is_it = |record: &Kept| {
            record.header("content-type") == Some("application/vnd.eclipse-hono-delivery-failure-notification+json")
                && record.header("correlation-id") == Some(correlation_id)
        };
        let look = || self.records(TopicKind::CommandResponse, tenant).into_iter().find(is_it);
        let found = found_async(&format!("the notice of {correlation_id}"), look).await;
        let body: serde_json::Value = serde_json::from_slice(&found.value).unwrap();
        (found.header("status").unwrap().to_owned(), body["outcome"].as_str().unwrap().to_owned())
    }
}
