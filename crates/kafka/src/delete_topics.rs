//! Deleting topics.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use millstream_types::{Role, TopicId, TopicKind};

use crate::api_error::ApiError;
use crate::broker::Broker;
use crate::request_context::RequestContext;

pub(crate) async fn delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse {
    let by_name = request.topic_names.into_iter().map(|name| DeleteTopicState::default().with_name(Some(name)));
    let asked: Vec<_> = request.topics.into_iter().chain(by_name).collect();
    let mut responses = Vec::with_capacity(asked.len());
    for topic in asked {
        let broker = Arc::clone(&context.broker);
        let result = DeletableTopicResult::default().with_name(topic.name.clone()).with_topic_id(topic.topic_id);
        let named = topic.name.as_ref().map_or_else(|| topic.topic_id.to_string(), |name| name.to_string());
        let deleted = match context.check(Role::Admin) {
            Ok(()) => tokio::task::spawn_blocking(move || delete(&broker, &topic)).await,
            Err(refusal) => Ok(Err(refusal)),
        };
        let deleted = deleted.unwrap_or_else(|e| Err(ApiError::failed(&e)));
        context.audit("DeleteTopics", &named, &deleted);
        responses.push(match deleted {
            Ok(()) => result,
            Err(refusal) => result.with_error_code(refusal.code()).with_error_message(refusal.message()),
        });
    }
    DeleteTopicsResponse::default().with_responses(responses)
}

fn delete(broker: &Broker, asked: &DeleteTopicState) -> Result<(), ApiError> {
    let topic = match &asked.name {
        Some(name) => broker.topic(name)?,
        None => broker.topic_by_id(TopicId(asked.topic_id.as_u128())).ok_or_else(|| {
            ApiError::new(ResponseError::UnknownTopicId, format!("there is no topic of id {}", asked.topic_id))
        })?,
    };
    if topic.name.kind() != TopicKind::User {
        let why = format!(
            "topic '{}' is Millstream's own; it goes with what it belongs to",
            broker.namespace.render(&topic.name)
        );
        return Err(ApiError::new(ResponseError::TopicAuthorizationFailed, why));
    }
    broker.log.delete_topic(&topic.name).map_err(|e| ApiError::from(&e))
}
