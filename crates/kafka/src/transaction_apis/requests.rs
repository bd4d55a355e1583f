//! InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn.

use std::future::Future;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    EndTxnRequest, EndTxnResponse, InitProducerIdRequest, InitProducerIdResponse, ProducerId,
};
use millstream_types::{Role, TopicPartition};

use crate::request_context::RequestContext;
use crate::transaction::{ProducerIdAndEpoch, Transaction, Transition, TransitionResult};

/// Longest transactional id that a client may name, in bytes.
const ID_MAX_BYTES: usize = 255;
/// First version of EndTxn whose answer has another epoch.
const NEXT_EPOCH_VERSION: i16 = 5;

/// InitProducerId: a producer that names a transactional id takes it over; without one it gets a new producer id.
pub(crate) async fn init_producer_id(
    request: InitProducerIdRequest,
    context: RequestContext,
) -> InitProducerIdResponse {
    let version = context.version;
    match taken_over(request, context).await {
        Ok(ProducerIdAndEpoch { id, epoch }) => {
            InitProducerIdResponse::default().with_producer_id(ProducerId(id)).with_producer_epoch(epoch)
        }
        Err(error) => InitProducerIdResponse::default()
            .with_error_code(fenced_before(4, version, error).code())
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1),
    }
}

async fn taken_over(
    request: InitProducerIdRequest,
    context: RequestContext,
) -> Result<ProducerIdAndEpoch, ResponseError> {
    let broker = context.broker.clone();
    let Some(id) = request.transactional_id else {
        context.check_or(Role::Writer, ResponseError::ClusterAuthorizationFailed).map_err(|refusal| refusal.error)?;
        let id = broker.log.next_producer_id().ok_or(ResponseError::UnknownServerError)?;
        return Ok(ProducerIdAndEpoch { id, epoch: 0 });
    };
    let fresh = move || broker.log.next_transactional_producer_id();
    let (transactions, key) = (context.broker.transactions.clone(), key(&context, &id)?);
    let timeout_ms = u32::try_from(request.transaction_timeout_ms).ok();
    let timeout_ms = timeout_ms.filter(|ms| (1..=transactions.timeout_max_ms).contains(ms));
    let timeout_ms = timeout_ms.ok_or(ResponseError::InvalidTransactionTimeout)?;
    let named = ProducerIdAndEpoch { id: request.producer_id.0, epoch: request.producer_epoch };
    let given = match (named.id, named.epoch) {
        (-1, -1) => None,
        (0.., 0..) => Some(named),
        _ => return Err(ResponseError::InvalidRequest),
    };
    let taken = in_own_task(async move {
        let now_ms = transactions.now_ms();
        let turn = transactions.turn_of_new(&key).await?;
        let taken = turn.change(|now| match now {
            Some(now) => now.take_over(given, timeout_ms, now_ms, fresh),
            None => {
                let id = fresh().ok_or(ResponseError::UnknownServerError)?;
                Ok(Some(Transition { next: Transaction::new(id, timeout_ms, now_ms), ending: None }))
            }
        });
        taken.await
    });
    Ok(taken.await?.producer)
}

/// AddPartitionsToTxn: all of them or none.
pub(crate) async fn add_partitions(
    request: AddPartitionsToTxnRequest,
    context: RequestContext,
) -> AddPartitionsToTxnResponse {
    let who = ProducerIdAndEpoch { id: request.v3_and_below_producer_id.0, epoch: request.v3_and_below_producer_epoch };
    let named = request.v3_and_below_topics.iter();
    let named = named.flat_map(|topic| topic.partitions.iter().map(|number| (&topic.name, *number)));
    let mut checked: Vec<_> = named.map(|(topic, number)| writable(&context, topic, number)).collect();
    if checked.iter().all(Result::is_ok) {
        let partitions = checked.iter().flatten().cloned().collect::<Vec<_>>();
        let limits = context.broker.transactions.limits;
        let added = change(&context, &request.v3_and_below_transactional_id, move |now, now_ms| {
            Ok(now.add_partitions(who, partitions, limits, now_ms)?.map(storing))
        });
        if let Err(error) = added.await {
            checked.iter_mut().for_each(|result| *result = Err(error));
        }
    } else {
        let rest = checked.iter_mut().filter(|result| result.is_ok());
        rest.for_each(|result| *result = Err(ResponseError::OperationNotAttempted));
    }
    let mut checked = checked.into_iter();
    let results = request.v3_and_below_topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().zip(checked.by_ref()).map(|(number, result)| {
            let code = result.err().map_or(0, |error| fenced_before(2, context.version, error).code());
            AddPartitionsToTxnPartitionResult::default().with_partition_index(*number).with_partition_error_code(code)
        });
        AddPartitionsToTxnTopicResult::default().with_results_by_partition(partitions.collect()).with_name(topic.name)
    });
    AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(results.collect())
}

fn writable(context: &RequestContext, topic: &str, number: i32) -> Result<TopicPartition, ResponseError> {
    let partition = context.broker.partition(topic, number).map_err(|refusal| refusal.error)?;
    context.check_writable(&partition.topic()).map_err(|refusal| refusal.error)?;
    Ok(partition.id().clone())
}

/// AddOffsetsToTxn: adds a group whose positions will follow.
pub(crate) async fn add_offsets(request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse {
    let who = ProducerIdAndEpoch { id: request.producer_id.0, epoch: request.producer_epoch };
    let limits = context.broker.transactions.limits;
    let added = match context.member().group(&request.group_id) {
        Err(error) => Err(error),
        Ok(group) => {
            let add = move |now: &Transaction, now_ms| Ok(now.add_group(who, &group, limits, now_ms)?.map(storing));
            change(&context, &request.transactional_id, add).await
        }
    };
    let code = added.err().map_or(0, |error| fenced_before(2, context.version, error).code());
    AddOffsetsToTxnResponse::default().with_error_code(code)
}

/// EndTxn: answered when the transaction is over; from version 5 on with the epoch of the next one.
pub(crate) async fn end(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse {
    let who = ProducerIdAndEpoch { id: request.producer_id.0, epoch: request.producer_epoch };
    let (commit, begins_epoch) = (request.committed, context.version >= NEXT_EPOCH_VERSION);
    let log = context.broker.log.clone();
    let ended = change(&context, &request.transactional_id, move |now, now_ms| match begins_epoch {
        true => now.end_epoch(who, commit, now_ms, || log.next_transactional_producer_id()),
        false => now.end(who, commit, now_ms),
    });
    match ended.await {
        Ok(Transaction { producer, .. }) if begins_epoch => {
            EndTxnResponse::default().with_producer_id(ProducerId(producer.id)).with_producer_epoch(producer.epoch)
        }
        Ok(_) => EndTxnResponse::default(),
        Err(error) => EndTxnResponse::default().with_error_code(fenced_before(2, context.version, error).code()),
    }
}

/// Adds partitions for which a producer sends batches without AddPartitionsToTxn before.
pub(crate) async fn add_produced(
    context: &RequestContext,
    key: String,
    who: ProducerIdAndEpoch,
    partitions: Vec<TopicPartition>,
) -> Result<(), ResponseError> {
    let limits = context.broker.transactions.limits;
    let add = move |now: &Transaction, now_ms| Ok(now.add_partitions(who, partitions, limits, now_ms)?.map(storing));
    change_key(context, key, add).await.map(drop).map_err(|error| match error {
        // Kafka's brokers answer producers with this error.
        ResponseError::ProducerFenced => ResponseError::InvalidProducerEpoch,
        error => error,
    })
}

/// Changes a transactional id that exists.
async fn change(
    context: &RequestContext,
    id: &str,
    decide: impl FnOnce(&Transaction, i64) -> TransitionResult + Send + 'static,
) -> Result<Transaction, ResponseError> {
    change_key(context, key(context, id)?, decide).await
}

async fn change_key(
    context: &RequestContext,
    key: String,
    decide: impl FnOnce(&Transaction, i64) -> TransitionResult + Send + 'static,
) -> Result<Transaction, ResponseError> {
    let transactions = context.broker.transactions.clone();
    let changed = in_own_task(async move {
        let now_ms = transactions.now_ms();
        let turn = transactions.turn(&key).await?;
        turn.change(|now| decide(now.ok_or(ResponseError::InvalidProducerIdMapping)?, now_ms)).await
    });
    changed.await
}

/// Goes on to its end, also if the client that waits for it goes away.
pub(super) async fn in_own_task<T: Send + 'static>(
    work: impl Future<Output = Result<T, ResponseError>> + Send + 'static,
) -> Result<T, ResponseError> {
    tokio::spawn(work).await.unwrap_or(Err(ResponseError::UnknownServerError))
}

/// The log's name for a transactional id of the caller's tenant.
pub(crate) fn key(context: &RequestContext, id: &str) -> Result<String, ResponseError> {
    let denied = ResponseError::TransactionalIdAuthorizationFailed;
    context.check_or(Role::Writer, denied).map_err(|refusal| refusal.error)?;
    if !context.broker.namespace.has_transactional_id(id) {
        return Err(denied);
    }
    if id.is_empty() || id.len() > ID_MAX_BYTES {
        return Err(ResponseError::InvalidRequest);
    }
    Ok(format!("{}/{id}", context.broker.namespace.tenant))
}

/// A change that ends no transaction.
pub(super) fn storing(next: Transaction) -> Transition {
    Transition { next, ending: None }
}

/// Requests of earlier versions know *fenced* under another name.
fn fenced_before(since: i16, version: i16, error: ResponseError) -> ResponseError {
    match error {
        ResponseError::ProducerFenced if version < since => ResponseError::InvalidProducerEpoch,
        other => other,
    }
}
