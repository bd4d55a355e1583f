//! Logins, roles and tenants.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_groups_request::DeleteGroupsRequest;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, ApiKey, ApiVersionsRequest, CreateTopicsRequest, DeleteTopicsRequest,
    DescribeGroupsRequest, DescribeTransactionsRequest, FindCoordinatorRequest, GroupId, HeartbeatRequest,
    InitProducerIdRequest, ListGroupsRequest, ListTransactionsRequest, MetadataRequest, OffsetCommitRequest,
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use millstream_kafka::{KafkaConfig, Listener, Serving};
use millstream_log::{Embedded, Log, TopicConfig, Writers};
use millstream_net::{
    Login, LoginCheck, LoginProtocol, LoginThrottle, Logins, Metrics, RefusedLogin, Revocation, ScramCredential,
    ScramMechanism, ScramUser,
};
use millstream_types::{
    AccessScope, AuditTrail, Compression, ManualClock, Principal, QuotaConfig, Quotas, Role, Roles, SystemClock,
    TenantId, WallClock as _,
};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use crate::client::{Client, batch, fetch_request, name, open, produce_request, values};
use millstream_testkit::LogLines;

pub(crate) const SECRET: &str = "open sesame";

/// A user for each role, and an operator of another tenant.
struct Users;

impl Logins for Users {
    fn open_access(&self) -> Option<Revocation> {
        None
    }

    fn log_in<'a>(&'a self, name: Option<&'a str>, password: &'a str) -> LoginCheck<'a> {
        Box::pin(async move { name.and_then(user).filter(|_| password == SECRET).ok_or(RefusedLogin::Unknown) })
    }

    fn scram(&self, name: &str, mechanism: ScramMechanism) -> Option<(ScramCredential, Login)> {
        Some((ScramCredential::derive(mechanism, SECRET), user(name)?))
    }

    fn scram_users(&self, tenant: Option<&TenantId>) -> Vec<ScramUser> {
        let users = ["admin", "acme", "reader"].map(|name| user(name).unwrap().principal);
        let of_tenant = users.into_iter().filter(|user| tenant.is_none_or(|tenant| *tenant == user.tenant));
        let shown = of_tenant.map(|user| ScramUser {
            name: user.name.clone(),
            sha_256_iterations: 4096,
            sha_512_iterations: 8192,
        });
        shown.collect()
    }
}

fn user(name: &str) -> Option<Login> {
    let (tenant, roles) = match name {
        "reader" => ("default", Roles::NONE.with(Role::Reader)),
        "writer" => ("default", Roles::NONE.with(Role::Writer)),
        "admin" => ("default", Roles::NONE.with(Role::Admin)),
        "brief" => ("default", Roles::NONE.with(Role::Reader)),
        "limited" | "narrow" => ("default", Roles::APPLICATION),
        "acme" => ("acme", Roles::APPLICATION),
        "operator" => ("default", Roles::APPLICATION),
        _ => return None,
    };
    let limits = if matches!(name, "limited" | "narrow") { vec!["ord".to_owned()] } else { Vec::new() };
    let scope = AccessScope::new(&limits, &[], &[]);
    let scope = match name {
        "narrow" => scope.with_groups(&["shop-".to_owned()], &["till-".to_owned()]),
        _ => scope,
    };
    let expires_ms = (name == "brief").then(|| SystemClock::default().now_ms() + 3_600_000);
    let principal = Principal { tenant: TenantId::new(tenant).unwrap(), name: name.to_owned(), roles, scope };
    Some(Login { principal: Arc::new(principal), in_every_tenant: name == "operator", revocation: None, expires_ms })
}

pub(crate) struct Guarded {
    log: Arc<Embedded>,
    serving: Serving,
    _dir: TempDir,
}

impl Guarded {
    /// On an address that is not loopback, which takes logins.
    pub(crate) async fn start() -> Self {
        Self::start_with(KafkaConfig::default()).await
    }

    pub(crate) async fn start_with(config: KafkaConfig) -> Self {
        Self::start_throttled(config, Arc::default()).await
    }

    async fn start_throttled(config: KafkaConfig, throttle: Arc<LoginThrottle>) -> Self {
        Self::start_changed(config, |listener| listener.throttled_by(throttle)).await
    }

    pub(crate) async fn start_limited(quotas: QuotaConfig) -> Self {
        let quotas = Quotas::new(quotas, Arc::new(SystemClock::default()));
        Self::start_changed(KafkaConfig::default(), |listener| listener.limited_by(quotas)).await
    }

    pub(crate) async fn start_audited(trail: Arc<dyn AuditTrail>) -> Self {
        Self::start_changed(KafkaConfig::default(), |listener| listener.audited_by(trail)).await
    }

    async fn start_changed(config: KafkaConfig, change: impl FnOnce(Listener) -> Listener) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path());
        let everywhere = "0.0.0.0:0".parse().unwrap();
        let listener = Listener::bind_with(everywhere, config, Some(Arc::new(Users))).await.unwrap();
        let serving = change(listener).serve(log.clone(), &Metrics::default()).await;
        let orders = millstream_types::TopicName::parse("orders", &TenantId::default()).unwrap();
        log.create_topic(&orders, &TopicConfig::default()).unwrap();
        let elsewhere = millstream_types::TopicName::parse("elsewhere", &TenantId::default()).unwrap();
        log.create_topic(&elsewhere, &TopicConfig::default()).unwrap();
        Self { log, serving, _dir: dir }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(std::net::SocketAddr::from(([127, 0, 0, 1], self.serving.address().port()))).await
    }

    pub(crate) async fn log_in(&self, user: &str) -> Client {
        let mut client = self.connect().await;
        assert_eq!(log_in(&mut client, &format!("\0{user}\0{SECRET}")).await, 0);
        client
    }

    pub(crate) async fn stop(self) {
        self.serving.shut_down(std::time::Duration::from_secs(5)).await;
        self.log.close().unwrap();
    }
}

async fn log_in(client: &mut Client, message: &str) -> i16 {
    try_log_in(client, message).await.error_code
}

pub(crate) async fn try_log_in(client: &mut Client, message: &str) -> SaslAuthenticateResponse {
    let plain = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str("PLAIN"));
    assert_eq!(client.ask(&plain, 1).await.error_code, 0);
    let message = SaslAuthenticateRequest::default().with_auth_bytes(message.to_owned().into_bytes().into());
    client.ask(&message, 2).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_topic_of_entity_updates_comes_with_a_writer_of_its_tenant() {
    let guarded = Guarded::start().await;
    let unknown = ResponseError::UnknownTopicOrPartition.code();
    for (user, topic, error) in [
        ("reader", "context_update.default", unknown),
        ("admin", "context_update.default", unknown),
        ("writer", "context_update.acme", unknown),
        ("writer", "context_update.default", 0),
        ("reader", "context_update.default", 0),
        ("operator", "context_update.acme", 0),
    ] {
        let topics = vec![MetadataRequestTopic::default().with_name(Some(name(topic)))];
        let request = MetadataRequest::default().with_topics(Some(topics)).with_allow_auto_topic_creation(true);
        let answer = guarded.log_in(user).await.ask(&request, 9).await;
        assert_eq!(answer.topics[0].error_code, error, "{user} {topic}");
    }
    let refused = ResponseError::TopicAuthorizationFailed.code();
    for (user, error) in [("reader", refused), ("writer", 0)] {
        let record = batch(&[r#"{"id":"e"}"#], Compression::None);
        let produced = guarded.log_in(user).await.produce("context_update.default", -1, record).await;
        assert_eq!(produced.error_code, error, "{user}");
    }
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_login_requests_are_served_before_a_login() {
    let guarded = Guarded::start().await;
    let mut client = guarded.connect().await;
    let offered = client.ask(&ApiVersionsRequest::default(), 3).await;
    let handshake = offered.api_keys.iter().find(|api| api.api_key == ApiKey::SaslHandshake as i16).unwrap();
    assert_eq!((offered.error_code, handshake.min_version, handshake.max_version), (0, 0, 1));
    let plain = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str("PLAIN"));
    assert_eq!(client.ask(&plain, 0).await.error_code, ResponseError::UnsupportedVersion.code());
    let other = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str("GSSAPI"));
    let told = client.ask(&other, 1).await;
    assert_eq!(told.error_code, ResponseError::UnsupportedSaslMechanism.code());
    assert_eq!(
        told.mechanisms.iter().map(|name| &**name).collect::<Vec<_>>(),
        ["PLAIN", "OAUTHBEARER", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    );
    let too_early = SaslAuthenticateRequest::default().with_auth_bytes("\0admin\0open sesame".into());
    assert_eq!(client.ask(&too_early, 2).await.error_code, ResponseError::IllegalSaslState.code());
    client.send(&MetadataRequest::default(), 9).await;
    assert!(client.is_closed().await);
    for wrong in ["\0admin\0wrong", "\0nobody\0open sesame", "\0admin", "other\0admin\0open sesame"] {
        let mut client = guarded.connect().await;
        assert_eq!(log_in(&mut client, wrong).await, ResponseError::SaslAuthenticationFailed.code(), "{wrong:?}");
        assert!(client.is_closed().await, "{wrong:?}");
    }
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_with_too_many_failed_logins_is_throttled_and_a_right_password_passes() {
    let clock = Arc::new(ManualClock::at(0));
    let throttle = Arc::new(LoginThrottle::new(2, clock.clone()));
    let guarded = Guarded::start_throttled(KafkaConfig::default(), throttle.clone()).await;
    let refused = async |local: &str, message: &str| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{local}:0").parse().unwrap()).unwrap();
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], guarded.serving.address().port()));
        let mut client = Client::over(socket.connect(address).await.unwrap());
        let started = std::time::Instant::now();
        let answer = try_log_in(&mut client, message).await;
        assert_eq!(answer.error_code, ResponseError::SaslAuthenticationFailed.code());
        assert!(started.elapsed() >= std::time::Duration::from_millis(100), "it comes late");
        assert!(client.is_closed().await);
        answer.error_message.unwrap().to_string()
    };
    let (here, elsewhere, wrong) = ("127.0.0.1", "127.0.0.2", "\0admin\0wrong");
    for message in [wrong, "\0admin"] {
        let told = refused(here, message).await;
        assert!(!told.contains("too many"), "{told}");
    }
    for message in [wrong, "\0admin"] {
        let told = refused(here, message).await;
        for part in ["127.0.0.1", "listen.login_failures_per_minute = 2", "try again in 30 s"] {
            assert!(told.contains(part), "{told}");
        }
    }
    guarded.log_in("admin").await;
    assert!(refused(elsewhere, wrong).await.contains("no API token"));
    clock.advance(std::time::Duration::from_secs(30));
    assert!(refused(here, wrong).await.contains("no API token"));
    assert_eq!((throttle.failed(LoginProtocol::Kafka), throttle.throttled(LoginProtocol::Kafka)), (4, 2));
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_has_its_permissions_and_is_refused_all_others() {
    let guarded = Guarded::start().await;
    let denied = ResponseError::TopicAuthorizationFailed.code();
    let group_denied = ResponseError::GroupAuthorizationFailed.code();
    let (mut reader, mut writer) = (guarded.log_in("reader").await, guarded.log_in("writer").await);
    let mut admin = guarded.log_in("admin").await;
    for (client, reads, writes, administers) in
        [(&mut reader, true, false, false), (&mut writer, false, true, false), (&mut admin, false, false, true)]
    {
        let code = |may: bool, denied: i16| if may { 0 } else { denied };
        let produced = client.produce("orders", -1, batch(&["x"], Compression::None)).await;
        assert_eq!(produced.error_code, code(writes, denied));
        assert_eq!(client.fetch("orders", 0).await.error_code, code(reads, denied));
        let id = client.ask(&InitProducerIdRequest::default().with_transactional_id(None), 4).await;
        assert_eq!(id.error_code, code(writes, ResponseError::ClusterAuthorizationFailed.code()));
        assert_eq!(client.ask(&ListGroupsRequest::default(), 4).await.error_code, code(reads, group_denied));
        let beat = HeartbeatRequest::default().with_group_id(GroupId(StrBytes::from_static_str("g")));
        let unknown = ResponseError::UnknownMemberId.code();
        assert_eq!(client.ask(&beat, 4).await.error_code, if reads { unknown } else { group_denied });
        let topic = CreatableTopic::default().with_name(name("made")).with_num_partitions(1).with_replication_factor(1);
        let created = client.ask(&CreateTopicsRequest::default().with_topics(vec![topic]), 7).await;
        assert_eq!(created.topics[0].error_code, code(administers, denied));
        let deleted = client.ask(&DeleteTopicsRequest::default().with_topic_names(vec![name("made")]), 5).await;
        assert_eq!(deleted.responses[0].error_code, code(administers, denied));
        let group = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(StrBytes::from_static_str("g"))]);
        let gone = client.ask(&group, 2).await.results[0].error_code;
        let unknown = ResponseError::GroupIdNotFound.code();
        assert_eq!(gone, if administers { unknown } else { group_denied });
        assert_eq!(client.ask(&MetadataRequest::default().with_topics(None), 9).await.topics.len(), 2);
    }
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_sees_the_topics_of_its_tenant() {
    let guarded = Guarded::start().await;
    let mut acme = guarded.log_in("acme").await;
    assert_eq!(acme.ask(&MetadataRequest::default().with_topics(None), 9).await.topics, []);
    assert_ne!(acme.produce("orders", -1, batch(&["x"], Compression::None)).await.error_code, 0);
    let topic = CreatableTopic::default().with_name(name("orders")).with_num_partitions(1).with_replication_factor(1);
    let created = acme.ask(&CreateTopicsRequest::default().with_topics(vec![topic]), 7).await;
    assert_eq!(created.topics[0].error_code, 0, "the same name in another tenant is another topic");
    assert_eq!(acme.produce("orders", -1, batch(&["theirs"], Compression::None)).await.error_code, 0);
    let mut reader = guarded.log_in("reader").await;
    assert_eq!(values(&reader.fetch("orders", 0).await), []);
    assert_eq!(values(&acme.fetch("orders", 0).await), [(0, "theirs".to_owned())]);
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_have_not_logged_in_take_no_room_from_those_that_have() {
    let log_lines = LogLines::of_this_process();
    let bytes = 64 << 10;
    let config = KafkaConfig { request_max_bytes: bytes, requests_max_bytes: bytes, ..KafkaConfig::default() };
    let guarded = Guarded::start_with(config).await;
    let mut writer = guarded.log_in("writer").await;
    let mut large = guarded.connect().await;
    let peer = large.socket.local_addr().unwrap();
    large.socket.write_all(&(bytes as i32).to_be_bytes()).await.unwrap();
    assert!(large.is_closed().await, "nobody who has not logged in has such requests");
    let line = log_lines.with(&format!("kafka: connection closed peer={peer} ")).await;
    assert!(line.contains("why=a request of 65536 bytes before a login exceeds 8192 bytes"), "{line}");
    let mut small = Vec::new();
    for _ in 0..20 {
        let mut client = guarded.connect().await;
        client.ask(&ApiVersionsRequest::default(), 3).await;
        client.socket.write_all(&8_192_i32.to_be_bytes()).await.unwrap();
        small.push(client);
    }
    let whole = batch(&[&"x".repeat(bytes - 1024)], Compression::None);
    assert_eq!(writer.produce("orders", -1, whole).await.error_code, 0, "all of the room is there");
    guarded.log_in("reader").await;
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_a_login_is_closed_after_the_timeout_and_one_with_a_login_stays() {
    let log_lines = LogLines::of_this_process();
    let guarded = Guarded::start_with(KafkaConfig { login_timeout_ms: 6_000, ..KafkaConfig::default() }).await;
    let mut reader = guarded.log_in("reader").await;
    let mut silent = guarded.connect().await;
    let mut polite = guarded.connect().await;
    polite.ask(&ApiVersionsRequest::default(), 3).await;
    for client in [&mut silent, &mut polite] {
        let peer = client.socket.local_addr().unwrap();
        assert!(client.is_closed().await);
        let line = log_lines.with(&format!("connection closed before its login listener=\"kafka\" peer={peer} ")).await;
        assert!(line.contains("why=no login within kafka.login_timeout_ms = 6000"), "{line}");
    }
    assert_eq!(reader.fetch("orders", 0).await.error_code, 0);
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_client_without_a_login_makes_room_for_the_next_one() {
    let guarded = Guarded::start_with(KafkaConfig { connections_max: 8, ..KafkaConfig::default() }).await;
    let mut reader = guarded.log_in("reader").await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(guarded.connect().await);
    }
    assert!(silent[0].is_closed().await, "a quarter of eight are two");
    for client in &mut silent[1..] {
        assert_eq!(client.ask(&ApiVersionsRequest::default(), 3).await.error_code, 0);
    }
    let mut another = guarded.log_in("reader").await;
    assert!(silent[1].is_closed().await);
    assert_eq!(another.fetch("orders", 0).await.error_code, 0);
    assert_eq!(reader.fetch("orders", 0).await.error_code, 0);
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_does_not_take_all_the_room_for_requests() {
    let config = KafkaConfig { request_max_bytes: 64 << 10, requests_max_bytes: 512 << 10, ..KafkaConfig::default() };
    let guarded = Guarded::start_with(config).await;
    let (mut greedy, mut writer) = (guarded.log_in("reader").await, guarded.log_in("writer").await);
    // Each waits for a record that does not come; the client's name takes the room.
    let waiting = fetch_request("orders", 0).with_min_bytes(1).with_max_wait_ms(600_000);
    for _ in 0..20 {
        greedy.send_as(&"x".repeat(30 << 10), &waiting, 11).await;
    }
    for _ in 0..50 {
        let whole = batch(&[&"x".repeat(60 << 10)], Compression::None);
        assert_eq!(writer.produce("elsewhere", -1, whole).await.error_code, 0);
    }
    drop(greedy);
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_of_all_tenants_sees_the_topics_whose_names_say_their_tenant() {
    let guarded = Guarded::start().await;
    for (topic, tenant) in
        [("telemetry.acme", "acme"), ("event.acme", "acme"), ("orders", "acme"), ("telemetry.default", "default")]
    {
        let topic = millstream_types::TopicName::parse(topic, &TenantId::new(tenant).unwrap()).unwrap();
        guarded.log.create_topic(&topic, &TopicConfig::default()).unwrap();
    }
    let all = MetadataRequest::default().with_topics(None);
    for (user, expected) in [
        ("operator", &["elsewhere", "event.acme", "orders", "telemetry.acme", "telemetry.default"][..]),
        ("admin", &["elsewhere", "orders", "telemetry.default"]),
        ("acme", &["event.acme", "orders", "telemetry.acme"]),
    ] {
        let answer = guarded.log_in(user).await.ask(&all, 9).await;
        let mut names: Vec<_> = answer.topics.iter().map(|topic| topic.name.as_ref().unwrap().to_string()).collect();
        names.sort_unstable();
        assert_eq!(names, expected, "{user}");
    }
    let mut operator = guarded.log_in("operator").await;
    assert_eq!(operator.produce("telemetry.acme", -1, batch(&["hot"], Compression::None)).await.error_code, 0);
    assert_eq!(values(&operator.fetch("telemetry.acme", 0).await), [(0, "hot".to_owned())]);
    assert_eq!(commit(&mut operator, "telemetry.acme", 1).await, 0);
    let unknown = ResponseError::UnknownTopicOrPartition.code();
    let mut reader = guarded.log_in("reader").await;
    assert_eq!(reader.fetch("telemetry.acme", 0).await.error_code, unknown);
    assert_eq!(commit(&mut reader, "telemetry.acme", 1).await, unknown);
    guarded.stop().await;
}

pub(crate) async fn commit(client: &mut Client, topic: &str, offset: i64) -> i16 {
    commit_as(client, "g", topic, offset).await
}

async fn commit_as(client: &mut Client, group: &str, topic: &str, offset: i64) -> i16 {
    let partition = OffsetCommitRequestPartition::default().with_committed_offset(offset);
    let topic = OffsetCommitRequestTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(StrBytes::from_string(group.to_owned())))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    client.ask(&request, 8).await.topics[0].partitions[0].error_code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_limited_to_topics_is_refused_all_others() {
    let guarded = Guarded::start().await;
    let mut limited = guarded.log_in("limited").await;
    let denied = ResponseError::TopicAuthorizationFailed.code();
    let all = limited.ask(&MetadataRequest::default().with_topics(None), 9).await;
    let names: Vec<_> = all.topics.iter().map(|topic| topic.name.as_ref().unwrap().to_string()).collect();
    assert_eq!(names, ["orders"], "lists show no other topics");
    let elsewhere = vec![MetadataRequestTopic::default().with_name(Some(name("elsewhere")))];
    let named = limited.ask(&MetadataRequest::default().with_topics(Some(elsewhere)), 9).await;
    assert_eq!(named.topics[0].error_code, denied);
    for (topic, error) in [("orders", 0), ("elsewhere", denied)] {
        let produced = limited.produce(topic, -1, batch(&["x"], Compression::None)).await;
        assert_eq!(produced.error_code, error, "{topic}");
        assert_eq!(limited.fetch(topic, 0).await.error_code, error, "{topic}");
        assert_eq!(commit(&mut limited, topic, 1).await, error, "{topic}");
    }
    for (topic, error) in [("ordinals", 0), ("made", denied)] {
        let topic = CreatableTopic::default().with_name(name(topic)).with_num_partitions(1).with_replication_factor(1);
        let created = limited.ask(&CreateTopicsRequest::default().with_topics(vec![topic]), 7).await;
        assert_eq!(created.topics[0].error_code, error);
    }
    let deleted = limited.ask(&DeleteTopicsRequest::default().with_topic_names(vec![name("elsewhere")]), 5).await;
    assert_eq!(deleted.responses[0].error_code, denied);
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_limited_to_groups_and_transactional_ids_is_refused_all_others() {
    let guarded = Guarded::start().await;
    let text = |value: &str| StrBytes::from_string(value.to_owned());
    let begin = |id: &str| {
        InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(text(id))))
            .with_transaction_timeout_ms(10_000)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1)
    };
    // Groups and ids of others in the same tenant.
    let mut operator = guarded.log_in("operator").await;
    for group in ["g", "shop-a"] {
        assert_eq!(commit_as(&mut operator, group, "orders", 0).await, 0);
    }
    for id in ["t", "till-a"] {
        assert_eq!(operator.ask(&begin(id), 4).await.error_code, 0);
    }
    let group_denied = ResponseError::GroupAuthorizationFailed.code();
    let id_denied = ResponseError::TransactionalIdAuthorizationFailed.code();
    for (user, denials) in [("narrow", (group_denied, id_denied)), ("limited", (0, 0)), ("operator", (0, 0))] {
        let mut client = guarded.log_in(user).await;
        let is_narrow = user == "narrow";
        for (group, expected) in [("g", denials.0), ("shop-a", 0)] {
            assert_eq!(commit_as(&mut client, group, "orders", 0).await, expected, "{user} {group}");
            let described = DescribeGroupsRequest::default().with_groups(vec![GroupId(text(group))]);
            assert_eq!(client.ask(&described, 5).await.groups[0].error_code, expected, "{user} {group}");
            let find = FindCoordinatorRequest::default().with_coordinator_keys(vec![text(group)]);
            assert_eq!(client.ask(&find, 4).await.coordinators[0].error_code, expected, "{user} {group}");
            let find = FindCoordinatorRequest::default().with_key(text(group));
            assert_eq!(client.ask(&find, 3).await.error_code, expected, "{user} {group}");
        }
        let listed = client.ask(&ListGroupsRequest::default(), 4).await.groups;
        let listed: Vec<_> = listed.iter().map(|group| group.group_id.to_string()).collect();
        assert_eq!(listed, if is_narrow { vec!["shop-a"] } else { vec!["g", "shop-a"] }, "{user}");
        for (id, expected) in [("t", denials.1), ("till-a", 0)] {
            assert_eq!(client.ask(&begin(id), 4).await.error_code, expected, "{user} {id}");
            let find = FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![text(id)]);
            assert_eq!(client.ask(&find, 4).await.coordinators[0].error_code, expected, "{user} {id}");
            let named = DescribeTransactionsRequest::default().with_transactional_ids(vec![TransactionalId(text(id))]);
            assert_eq!(client.ask(&named, 0).await.transaction_states[0].error_code, expected, "{user} {id}");
            let produce = produce_request("orders", -1, batch(&["x"], Compression::None));
            let produce = produce.with_transactional_id(Some(TransactionalId(text(id))));
            let produced = client.ask(&produce, 9).await.responses[0].partition_responses[0].error_code;
            assert_eq!(produced == id_denied, expected == id_denied, "{user} {id}: {produced}");
        }
        let listed = client.ask(&ListTransactionsRequest::default(), 0).await.transaction_states;
        let mut listed: Vec<_> = listed.iter().map(|state| state.transactional_id.to_string()).collect();
        listed.sort_unstable();
        assert_eq!(listed, if is_narrow { vec!["till-a"] } else { vec!["t", "till-a"] }, "{user}");
    }
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_users_topic_of_owners_is_written_by_administrators_of_the_whole_tenant_alone() {
    let guarded = Guarded::start().await;
    let asked = millstream_types::TopicName::parse("ord.asked", &TenantId::default()).unwrap();
    let owned = TopicConfig { writers: Writers::OwnersOnly, ..TopicConfig::default() };
    guarded.log.create_topic(&asked, &owned).unwrap();
    let denied = ResponseError::TopicAuthorizationFailed.code();
    for (user, error) in [("operator", 0), ("limited", denied), ("writer", denied)] {
        let mut client = guarded.log_in(user).await;
        let produced = client.produce("ord.asked", -1, batch(&["x"], Compression::None)).await;
        assert_eq!(produced.error_code, error, "{user}: {:?}", produced.error_message);
        let topic = AddPartitionsToTxnTopic::default().with_name(name("ord.asked")).with_partitions(vec![0]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(TransactionalId(StrBytes::from_static_str("t")))
            .with_v3_and_below_topics(vec![topic]);
        let answer = client.ask(&request, 3).await;
        let added = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code;
        assert_eq!(added == denied, error == denied, "{user}: {added}");
    }
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_tenant_announces_does_not_stop_another_tenants_producer() {
    let guarded = Guarded::start().await;
    let announced = i32::try_from(KafkaConfig::default().request_max_bytes).unwrap();
    for sent_bytes in [20, 64 << 10] {
        let mut hoarders = Vec::new();
        for _ in 0..20 {
            let mut hoarder = guarded.log_in("acme").await;
            hoarder.socket.write_all(&announced.to_be_bytes()).await.unwrap();
            hoarder.socket.write_all(&vec![0; sent_bytes]).await.unwrap();
            hoarders.push(hoarder);
        }
        // Those of them that are let in have taken their room before these requests are answered.
        let mut writer = guarded.log_in("writer").await;
        for _ in 0..10 {
            let large = "x".repeat(512 << 10);
            assert_eq!(writer.produce("orders", -1, batch(&[&large], Compression::None)).await.error_code, 0);
        }
        for hoarder in &hoarders {
            let still_open = hoarder.socket.try_read(&mut [0; 1]);
            assert_eq!(still_open.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "{sent_bytes}");
        }
    }
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_with_all_connections_makes_room_for_another_and_is_told_why_it_gets_no_more() {
    let guarded = Guarded::start_with(KafkaConfig { connections_max: 4, ..KafkaConfig::default() }).await;
    let mut of_default = Vec::new();
    for _ in 0..4 {
        of_default.push(guarded.log_in("reader").await);
    }
    let mut more = guarded.connect().await;
    let refused = try_log_in(&mut more, &format!("\0reader\0{SECRET}")).await;
    assert_eq!(refused.error_code, ResponseError::SaslAuthenticationFailed.code());
    let why = refused.error_message.unwrap();
    assert!(
        why.starts_with("there are kafka.connections_max = 4 connections already, 4 of them of this tenant"),
        "{why}"
    );
    assert!(more.is_closed().await);
    let mut other = guarded.log_in("acme").await;
    assert!(of_default.pop().unwrap().is_closed().await, "the newest of the tenant that has most");
    other.ask(&MetadataRequest::default(), 9).await;
    assert_eq!(of_default[0].fetch("orders", 0).await.error_code, 0);
    guarded.stop().await;
}
