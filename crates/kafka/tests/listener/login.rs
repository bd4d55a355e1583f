//! Logins, roles and tenants.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_groups_request::DeleteGroupsRequest;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, CreateTopicsRequest, DeleteTopicsRequest, GroupId, HeartbeatRequest,
    InitProducerIdRequest, ListGroupsRequest, MetadataRequest, SaslAuthenticateRequest, SaslHandshakeRequest,
};
use kafka_protocol::protocol::StrBytes;
use millstream_kafka::{KafkaConfig, Listener, Logins, Serving};
use millstream_log::{Embedded, Log, TopicConfig};
use millstream_types::{Compression, Principal, Role, Roles, TenantId};
use tempfile::TempDir;

use crate::client::{Client, batch, name, open, values};

const SECRET: &str = "open sesame";

/// A user for each role, and an operator of another tenant.
struct Users;

impl Logins for Users {
    fn log_in(&self, name: &str, password: &str) -> Option<Arc<Principal>> {
        let (tenant, roles) = match name {
            "reader" => ("default", Roles::NONE.with(Role::Reader)),
            "writer" => ("default", Roles::NONE.with(Role::Writer)),
            "admin" => ("default", Roles::NONE.with(Role::Admin)),
            "acme" => ("acme", Roles::APPLICATION),
            _ => return None,
        };
        let principal = Principal { tenant: TenantId::new(tenant).unwrap(), name: name.to_owned(), roles };
        (password == SECRET).then(|| Arc::new(principal))
    }
}

struct Guarded {
    log: Arc<Embedded>,
    serving: Serving,
    _dir: TempDir,
}

impl Guarded {
    /// On an address that is not loopback, which takes logins.
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path());
        let everywhere = "0.0.0.0:0".parse().unwrap();
        let listener = Listener::bind_with(everywhere, KafkaConfig::default(), Some(Arc::new(Users))).await.unwrap();
        let serving = listener.serve(log.clone(), log.epoch());
        let orders = millstream_types::TopicName::parse("orders", &TenantId::default()).unwrap();
        log.create_topic(&orders, &TopicConfig::default()).unwrap();
        Self { log, serving, _dir: dir }
    }

    async fn connect(&self) -> Client {
        Client::connect(std::net::SocketAddr::from(([127, 0, 0, 1], self.serving.address().port()))).await
    }

    async fn log_in(&self, user: &str) -> Client {
        let mut client = self.connect().await;
        assert_eq!(log_in(&mut client, &format!("\0{user}\0{SECRET}")).await, 0);
        client
    }

    async fn stop(self) {
        self.serving.shut_down(std::time::Duration::from_secs(5)).await;
        self.log.close().unwrap();
    }
}

async fn log_in(client: &mut Client, message: &str) -> i16 {
    let plain = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str("PLAIN"));
    assert_eq!(client.ask(&plain, 1).await.error_code, 0);
    let message = SaslAuthenticateRequest::default().with_auth_bytes(message.to_owned().into_bytes().into());
    client.ask(&message, 2).await.error_code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_a_login_nothing_is_served_but_what_leads_to_it() {
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
    assert_eq!(told.mechanisms.iter().map(|name| &**name).collect::<Vec<_>>(), ["PLAIN"]);
    let too_early = SaslAuthenticateRequest::default().with_auth_bytes("\0admin\0open sesame".into());
    assert_eq!(client.ask(&too_early, 2).await.error_code, ResponseError::IllegalSaslState.code());
    client.send(&MetadataRequest::default(), 9).await;
    assert!(client.is_closed().await);
    for wrong in ["\0admin\0wrong", "\0nobody\0open sesame", "\0admin", "other\0admin\0open sesame"] {
        let mut client = guarded.connect().await;
        assert_eq!(log_in(&mut client, wrong).await, ResponseError::SaslAuthenticationFailed.code(), "{wrong:?}");
        client.send(&MetadataRequest::default(), 9).await;
        assert!(client.is_closed().await, "{wrong:?}");
    }
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_does_what_it_may_and_is_told_what_it_may_not() {
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
        assert_eq!(client.ask(&MetadataRequest::default().with_topics(None), 9).await.topics.len(), 1);
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
