//! Users of SCRAM and quotas of clients, as Kafka's tools ask for them.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_client_quotas_request::{EntityData, EntryData, OpData};
use kafka_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::describe_user_scram_credentials_request::UserName;
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterUserScramCredentialsRequest, DescribeClientQuotasRequest,
    DescribeUserScramCredentialsRequest,
};
use kafka_protocol::protocol::StrBytes;
use millstream_types::QuotaConfig;

use crate::client::Fixture;
use crate::login::Guarded;

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admin_sees_the_tokens_that_it_manages_as_users_of_scram() {
    let guarded = Guarded::start().await;
    let named = |names: &[&str]| {
        let users = names.iter().map(|name| UserName::default().with_name(text(name))).collect();
        DescribeUserScramCredentialsRequest::default().with_users(Some(users))
    };
    for (user, seen) in [("admin", &["admin", "reader"][..]), ("operator", &["acme", "admin", "reader"])] {
        let mut client = guarded.log_in(user).await;
        for all in [named(&[]), DescribeUserScramCredentialsRequest::default().with_users(None)] {
            let results = client.ask(&all, 0).await.results;
            let names: Vec<_> = results.iter().map(|result| result.user.as_str()).collect();
            assert_eq!(names, seen, "{user}");
            for result in &results {
                let infos: Vec<_> =
                    result.credential_infos.iter().map(|info| (info.mechanism, info.iterations)).collect();
                assert_eq!((result.error_code, infos), (0, vec![(1, 4096), (2, 8192)]));
            }
        }
    }
    let mut admin = guarded.log_in("admin").await;
    let results = admin.ask(&named(&["reader", "acme", "admin", "admin"]), 0).await.results;
    let codes: Vec<_> = results.iter().map(|result| (result.user.as_str(), result.error_code)).collect();
    let [unknown, twice] =
        [ResponseError::ResourceNotFound, ResponseError::DuplicateResource].map(|error| error.code());
    assert_eq!(codes, [("acme", unknown), ("admin", twice), ("reader", 0)], "another tenant's is unknown");
    // It has every role, in a part of its tenant.
    let refused = guarded.log_in("limited").await.ask(&named(&[]), 0).await;
    assert_eq!(refused.error_code, ResponseError::ClusterAuthorizationFailed.code());
    guarded.stop().await;
    let open = Fixture::start(millstream_kafka::KafkaConfig::default()).await;
    assert_eq!(open.connect().await.ask(&named(&[]), 0).await.results, [], "nobody logs in");
    open.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_is_taken_and_the_command_that_makes_a_token_is_told() {
    let guarded = Guarded::start().await;
    let mut admin = guarded.log_in("admin").await;
    let upsertion = |name: &str, mechanism| {
        ScramCredentialUpsertion::default().with_name(text(name)).with_mechanism(mechanism).with_iterations(4096)
    };
    let deletion = |name: &str| ScramCredentialDeletion::default().with_name(text(name)).with_mechanism(2);
    let request = AlterUserScramCredentialsRequest::default()
        .with_upsertions(vec![upsertion("new", 1), upsertion("new", 2), upsertion("odd", 9)])
        .with_deletions(vec![deletion("reader"), deletion("nobody")]);
    let results = admin.ask(&request, 0).await.results;
    let told: Vec<_> = results
        .iter()
        .map(|result| (result.user.as_str(), result.error_code, result.error_message.as_deref().unwrap_or_default()))
        .collect();
    let unacceptable = ResponseError::UnacceptableCredential.code();
    for (at, (user, code, words)) in [
        ("new", unacceptable, "millstream token create new"),
        ("nobody", ResponseError::ResourceNotFound.code(), "millstream token list"),
        ("odd", ResponseError::UnsupportedSaslMechanism.code(), "SCRAM-SHA-512"),
        ("reader", unacceptable, "millstream token revoke reader"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!((told[at].0, told[at].1), (user, code), "{told:?}");
        assert!(told[at].2.contains(words), "{told:?}");
    }
    assert_eq!(told.len(), 4, "one answer for each user");
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rates_are_those_of_the_settings_and_are_not_altered() {
    let quotas = QuotaConfig { client_produce_bytes_per_second: 20_000, ..QuotaConfig::default() };
    let guarded = Guarded::start_limited(quotas).await;
    let mut admin = guarded.log_in("admin").await;
    let filter = |kind: &str, match_type| {
        let component =
            ComponentData::default().with_entity_type(text(kind)).with_match_type(match_type).with_match(None);
        DescribeClientQuotasRequest::default().with_components(vec![component])
    };
    for (request, is_found) in [
        (DescribeClientQuotasRequest::default(), true),
        (filter("user", 1), true),
        (filter("user", 2), true),
        (filter("client-id", 2), false),
    ] {
        let answer = admin.ask(&request, 1).await;
        let found: Vec<_> = answer
            .entries
            .unwrap()
            .iter()
            .map(|entry| {
                let entity = &entry.entity[0];
                let values: Vec<_> = entry.values.iter().map(|value| (value.key.to_string(), value.value)).collect();
                (entity.entity_type.to_string(), entity.entity_name.clone(), values)
            })
            .collect();
        let rates = vec![("producer_byte_rate".to_owned(), 20_000.0)];
        assert_eq!(found, if is_found { vec![("user".to_owned(), None, rates)] } else { vec![] });
    }
    for (request, error) in [
        (filter("tenant", 2), ResponseError::UnsupportedVersion),
        (filter("user", 7), ResponseError::InvalidRequest),
        (filter("user", 0), ResponseError::InvalidRequest),
    ] {
        assert_eq!(admin.ask(&request, 1).await.error_code, error.code());
    }
    for (kind, key, error, words) in [
        ("user", "producer_byte_rate", ResponseError::PolicyViolation, "quota.client_produce_bytes_per_second"),
        ("user", "request_percentage", ResponseError::PolicyViolation, "not limited here"),
        ("user", "speed", ResponseError::InvalidRequest, "'speed' is no quota"),
        ("tenant", "producer_byte_rate", ResponseError::UnsupportedVersion, "'tenant' has no quotas"),
    ] {
        for validate_only in [false, true] {
            let entity = EntityData::default().with_entity_type(text(kind)).with_entity_name(Some(text("ops")));
            let op = OpData::default().with_key(text(key)).with_value(4096.0);
            let entry = EntryData::default().with_entity(vec![entity]).with_ops(vec![op]);
            let request =
                AlterClientQuotasRequest::default().with_entries(vec![entry]).with_validate_only(validate_only);
            let answer = &admin.ask(&request, 1).await.entries[0];
            assert_eq!(answer.error_code, error.code(), "{kind} {key}");
            assert!(answer.error_message.as_deref().unwrap().contains(words), "{:?}", answer.error_message);
            assert_eq!(answer.entity[0].entity_name.as_deref(), Some("ops"));
        }
    }
    guarded.stop().await;
}
