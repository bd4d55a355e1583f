//! Deleting topics.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use millstream_types::{Kind, Role, TopicId};

use crate::caller::Caller;
use crate::node::Node;
use crate::refusal::Refusal;

/// DeleteTopics.
pub(crate) async fn delete_topics(request: DeleteTopicsRequest, caller: Caller) -> DeleteTopicsResponse {
    let by_name = request.topic_names.into_iter().map(|name| DeleteTopicState::default().with_name(Some(name)));
    let asked: Vec<_> = request.topics.into_iter().chain(by_name).collect();
    let mut responses = Vec::with_capacity(asked.len());
    for topic in asked {
        let node = Arc::clone(&caller.node);
        let result = DeletableTopicResult::default().with_name(topic.name.clone()).with_topic_id(topic.topic_id);
        let deleted = match caller.check(Role::Admin) {
            Ok(()) => tokio::task::spawn_blocking(move || delete(&node, &topic)).await,
            Err(refusal) => Ok(Err(refusal)),
        };
        responses.push(match deleted.unwrap_or_else(|e| Err(Refusal::failed(&e))) {
            Ok(()) => result,
            Err(refusal) => result.with_error_code(refusal.code()).with_error_message(refusal.message()),
        });
    }
    DeleteTopicsResponse::default().with_responses(responses)
}

fn delete(node: &Node, asked: &DeleteTopicState) -> Result<(), Refusal> {
    let topic = match &asked.name {
        Some(name) => node.topic(name)?,
        None => node.topic_by_id(TopicId(asked.topic_id.as_u128())).ok_or_else(|| {
            Refusal::new(ResponseError::UnknownTopicId, format!("there is no topic of id {}", asked.topic_id))
        })?,
    };
    if topic.name.kind() != Kind::User {
        let why = format!("topic '{}' is Millstream's own; it goes with what it belongs to", topic.name);
        return Err(Refusal::new(ResponseError::TopicAuthorizationFailed, why));
    }
    node.log.delete_topic(&topic.name).map_err(|e| Refusal::from(&e))
}
