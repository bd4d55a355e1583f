//! The receivers of notifications: all subscriptions that name one share it, with its connections.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use millstream_outgoing::{Address, HttpReceiver, Outgoing};
use parking_lot::Mutex;

use super::kafka_receiver::KafkaReceiver;
use super::kafka_target::NotificationCluster;
use super::mqtt_receiver::MqttReceiver;
use super::target::NotificationBroker;
use crate::config::NotificationsConfig;

/// Interval between two removals of unused connections and receivers.
const SWEEP: Duration = Duration::from_secs(30);

/// Receivers by what they are found by.
type Known<K, R> = Mutex<HashMap<K, Arc<R>>>;

pub(crate) struct Receivers {
    outgoing: Arc<Outgoing>,
    connections_per_receiver: usize,
    message_max_bytes: usize,
    mqtt_idle: Duration,
    kafka_idle: Duration,
    http: Known<Arc<Address>, HttpReceiver>,
    mqtt: Known<NotificationBroker, MqttReceiver>,
    kafka: Known<NotificationCluster, KafkaReceiver>,
}

impl Receivers {
    pub(crate) fn new(config: &NotificationsConfig, outgoing: Arc<Outgoing>) -> Self {
        Self {
            outgoing,
            connections_per_receiver: config.connections_per_receiver,
            message_max_bytes: config.message_max_bytes,
            mqtt_idle: Duration::from_secs(config.mqtt_idle_s),
            kafka_idle: Duration::from_secs(config.kafka_idle_s),
            http: Mutex::default(),
            mqtt: Mutex::default(),
            kafka: Mutex::default(),
        }
    }

    pub(crate) fn http(&self, address: &Arc<Address>) -> Arc<HttpReceiver> {
        let new = || HttpReceiver::new(address.clone(), self.outgoing.clone(), self.connections_per_receiver);
        known(&self.http, address, new)
    }

    pub(crate) fn mqtt(&self, broker: &NotificationBroker) -> Arc<MqttReceiver> {
        let new = || MqttReceiver::new(broker.clone(), self.outgoing.clone(), self.message_max_bytes);
        known(&self.mqtt, broker, new)
    }

    pub(crate) fn kafka(&self, cluster: &NotificationCluster) -> Arc<KafkaReceiver> {
        known(&self.kafka, cluster, || {
            KafkaReceiver::new(cluster.clone(), self.outgoing.clone(), self.connections_per_receiver)
        })
    }

    /// Removes what is not used, for ever.
    pub(crate) async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            retain(&self.http, |receiver| !receiver.is_unused());
            retain(&self.mqtt, |receiver| !receiver.close_if_idle(self.mqtt_idle));
            retain(&self.kafka, |receiver| !receiver.close_if_idle(self.kafka_idle));
        }
    }
}

fn known<K: Clone + Eq + Hash, R>(all: &Known<K, R>, key: &K, new: impl FnOnce() -> R) -> Arc<R> {
    let mut all = all.lock();
    if let Some(known) = all.get(key) {
        return known.clone();
    }
    let new = Arc::new(new());
    all.insert(key.clone(), new.clone());
    new
}

/// Keeps receivers that a sending task has, and those that are in use.
fn retain<K: Eq + Hash, R>(all: &Known<K, R>, is_used: impl Fn(&R) -> bool) {
    all.lock().retain(|_, receiver| Arc::strong_count(receiver) > 1 || is_used(receiver));
}
