//! How long logins last, and their repetition over the same connection (KIP-368).

use kafka_protocol::ResponseError;
use millstream_kafka::KafkaConfig;

use crate::client::fetch_request;
use crate::login::{Guarded, SECRET, try_log_in};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_is_repeated_over_its_connection_by_the_same_user_alone() {
    let config = KafkaConfig { connections_max_reauth_ms: 7_200_000, ..KafkaConfig::default() };
    let guarded = Guarded::start_with(config).await;
    let mut client = guarded.connect().await;
    let of = |user: &str| format!("\0{user}\0{SECRET}");
    for _ in 0..3 {
        let answer = try_log_in(&mut client, &of("reader")).await;
        assert_eq!((answer.error_code, answer.session_lifetime_ms), (0, 7_200_000));
        assert_eq!(client.fetch("orders", 0).await.error_code, 0);
    }
    for other in ["writer", "acme"] {
        let mut client = guarded.log_in("reader").await;
        let refused = try_log_in(&mut client, &of(other)).await;
        assert_eq!(refused.error_code, ResponseError::SaslAuthenticationFailed.code());
        let why = refused.error_message.unwrap();
        assert!(why.contains("'reader'") && why.contains(other) && why.contains("open another"), "{why}");
        assert!(client.is_closed().await);
    }
    // The time of credentials that expire counts if it is the shorter one.
    let mut brief = guarded.connect().await;
    let lifetime_ms = try_log_in(&mut brief, &of("brief")).await.session_lifetime_ms;
    assert!((1..=3_600_000).contains(&lifetime_ms), "{lifetime_ms}");
    guarded.stop().await;
    let guarded = Guarded::start().await;
    let mut lasting = guarded.connect().await;
    assert_eq!(try_log_in(&mut lasting, &of("reader")).await.session_lifetime_ms, 0);
    let lifetime_ms = try_log_in(&mut guarded.connect().await, &of("brief")).await.session_lifetime_ms;
    assert!((1..=3_600_000).contains(&lifetime_ms), "{lifetime_ms}");
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_past_the_lifetime_of_its_login_takes_another_login_and_closes_at_any_other_request() {
    let guarded = Guarded::start_with(KafkaConfig { connections_max_reauth_ms: 1, ..KafkaConfig::default() }).await;
    let message = format!("\0reader\0{SECRET}");
    let expire = async || tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    let mut client = guarded.log_in("reader").await;
    for _ in 0..3 {
        expire().await;
        let answer = try_log_in(&mut client, &message).await;
        assert_eq!((answer.error_code, answer.session_lifetime_ms), (0, 1));
    }
    expire().await;
    client.send(&fetch_request("orders", 0), 11).await;
    assert!(client.is_closed().await);
    guarded.stop().await;
}
