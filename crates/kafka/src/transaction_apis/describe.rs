//! ListTransactions and DescribeTransactions.

use std::collections::BTreeMap;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_transactions_response::{self as described, TopicData};
use kafka_protocol::messages::list_transactions_response as listed;
use kafka_protocol::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest, ListTransactionsResponse,
    ProducerId, TopicName, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use millstream_types::TopicPartition;

use crate::namespace::Namespace;
use crate::request_context::RequestContext;
use crate::transaction::{Transaction, TransactionState};

/// The value for *none* in a response.
const NONE: i64 = -1;

/// Kafka's names of states. The second line never occurs here: an end that was decided is done.
const STATES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareCommit",
    "PrepareAbort",
    "PrepareEpochFence",
    "Dead",
];

fn state(stage: TransactionState) -> StrBytes {
    StrBytes::from_static_str(match stage {
        TransactionState::Empty => "Empty",
        TransactionState::Ongoing => "Ongoing",
        TransactionState::CompleteCommit => "CompleteCommit",
        TransactionState::CompleteAbort => "CompleteAbort",
    })
}

/// ListTransactions: the ids of the caller's tenant that it may use.
pub(crate) async fn list(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse {
    let transactions = &context.broker.transactions;
    let Ok(known) = transactions.of_tenant(&context.broker.namespace.tenant) else {
        return ListTransactionsResponse::default().with_error_code(ResponseError::CoordinatorLoadInProgress.code());
    };
    let now_ms = transactions.now_ms();
    let (states, producers) = (&request.state_filters, &request.producer_id_filters);
    let namespace = &context.broker.namespace;
    let is_wanted = |of: &Transaction| {
        let open_ms = if of.stage == TransactionState::Ongoing { now_ms.saturating_sub(of.since_ms) } else { NONE };
        (states.is_empty() || states.contains(&state(of.stage)))
            && (producers.is_empty() || producers.contains(&ProducerId(of.producer.id)))
            && (request.duration_filter < 0 || open_ms > request.duration_filter)
    };
    let known = known.into_iter().filter(|(id, _)| namespace.has_transactional_id(id));
    let wanted = known.filter(|(_, transaction)| is_wanted(transaction)).map(|(id, transaction)| {
        listed::TransactionState::default()
            .with_transactional_id(TransactionalId(StrBytes::from_string(id)))
            .with_producer_id(ProducerId(transaction.producer.id))
            .with_transaction_state(state(transaction.stage))
    });
    let wanted = wanted.collect();
    let unknown = request.state_filters.into_iter().filter(|name| !STATES.contains(&name.as_str()));
    ListTransactionsResponse::default().with_transaction_states(wanted).with_unknown_state_filters(unknown.collect())
}

pub(crate) async fn describe(
    request: DescribeTransactionsRequest,
    context: RequestContext,
) -> DescribeTransactionsResponse {
    let known = context.broker.transactions.of_tenant(&context.broker.namespace.tenant);
    let one = |id: TransactionalId| match &known {
        _ if id.is_empty() => refused(id, ResponseError::InvalidRequest),
        _ if !context.broker.namespace.has_transactional_id(&id) => {
            refused(id, ResponseError::TransactionalIdAuthorizationFailed)
        }
        Err(error) => refused(id, *error),
        Ok(known) => match known.get(id.as_str()) {
            Some(transaction) => shown(id, transaction, &context.broker.namespace),
            None => refused(id, ResponseError::TransactionalIdNotFound),
        },
    };
    let states = request.transactional_ids.into_iter().map(one);
    DescribeTransactionsResponse::default().with_transaction_states(states.collect())
}

fn refused(id: TransactionalId, error: ResponseError) -> described::TransactionState {
    described::TransactionState::default().with_transactional_id(id).with_error_code(error.code())
}

fn shown(id: TransactionalId, transaction: &Transaction, namespace: &Namespace) -> described::TransactionState {
    let since_ms = if transaction.stage == TransactionState::Ongoing { transaction.since_ms } else { NONE };
    described::TransactionState::default()
        .with_transactional_id(id)
        .with_transaction_state(state(transaction.stage))
        .with_transaction_timeout_ms(i32::try_from(transaction.timeout_ms).unwrap_or(i32::MAX))
        .with_transaction_start_time_ms(since_ms)
        .with_producer_id(ProducerId(transaction.producer.id))
        .with_producer_epoch(transaction.producer.epoch)
        .with_topics(by_topic(&transaction.partitions, namespace))
}

fn by_topic<'t>(partitions: impl IntoIterator<Item = &'t TopicPartition>, namespace: &Namespace) -> Vec<TopicData> {
    let mut topics: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for partition in partitions.into_iter().filter(|partition| namespace.admits(&partition.topic)) {
        topics.entry(namespace.render(&partition.topic)).or_default().push(partition.partition.0.cast_signed());
    }
    let data = topics.into_iter().map(|(name, numbers)| {
        TopicData::default().with_topic(TopicName(StrBytes::from_string(name))).with_partitions(numbers)
    });
    data.collect()
}
