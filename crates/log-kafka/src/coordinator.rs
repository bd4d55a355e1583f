//! Questions to the coordinator of a transactional id: which producer it is, and the end of its transaction.

use std::time::{Duration, Instant};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest, ProducerId as WireProducerId, TransactionalId,
};
use kafka_protocol::protocol::{Request, StrBytes};
use millstream_kafka_wire::CallError;
use millstream_log::Error;
use parking_lot::Mutex;

use crate::cluster::Purpose;
use crate::core::{Core, said};
use crate::queue::ProducerId;

const FIND_COORDINATOR_VERSION: i16 = 6;
pub(crate) const INIT_PRODUCER_ID_VERSION: i16 = 5;
pub(crate) const END_TXN_VERSION: i16 = 5;
const TRANSACTION_KEY: i8 = 1;
/// Least time after which the coordinator aborts a transaction that has not ended. The next writer of its name aborts it before.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);

/// `true` for the answers to a producer that is not the one of its id any more. A transaction that is none of this producer, since
/// another has ended it or it has taken too long, has no state in which it could be committed.
pub(crate) fn is_fenced(error: ResponseError) -> bool {
    matches!(
        error,
        ResponseError::ProducerFenced
            | ResponseError::InvalidProducerEpoch
            | ResponseError::InvalidProducerIdMapping
            | ResponseError::InvalidTxnState
    )
}

/// The answer to a question that may change something.
pub(crate) enum Answer<T> {
    Done(T),
    /// Another producer has the transactional id, and nothing was changed.
    Fenced,
    /// Nothing was changed.
    Refused(Error),
    /// The question may have been answered with yes.
    Unknown(Error),
}

/// The coordinator of one transactional id.
#[derive(Debug)]
pub(crate) struct Coordinator {
    id: String,
    broker: Mutex<Option<i32>>,
}

impl std::fmt::Display for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "writer '{}'", self.id)
    }
}

impl Coordinator {
    pub(crate) fn of(transactional_id: String) -> Self {
        Self { id: transactional_id, broker: Mutex::new(None) }
    }

    pub(crate) fn transactional_id(&self) -> TransactionalId {
        TransactionalId(StrBytes::from_string(self.id.clone()))
    }

    /// Begins the next producer of the id: the one before is fenced, and its open transaction aborted.
    pub(crate) async fn begin(&self, core: &Core) -> Result<ProducerId, Error> {
        // Its records are sent, and then it is ended, each with patience.
        let timeout = TRANSACTION_TIMEOUT.max(core.config.delivery_timeout * 2);
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(self.transactional_id()))
            .with_transaction_timeout_ms(timeout_ms)
            .with_producer_id(WireProducerId(-1))
            .with_producer_epoch(-1);
        let deadline = Instant::now() + core.config.delivery_timeout;
        let answer = self.ask(core, &request, INIT_PRODUCER_ID_VERSION, deadline, |answer| {
            let producer = ProducerId { id: answer.producer_id.0, epoch: answer.producer_epoch };
            (answer.error_code, producer)
        });
        let answer = answer.await;
        core.troubles.end(self);
        match answer {
            Answer::Done(producer) => Ok(producer),
            Answer::Fenced => Err(Error::Fenced { writer: self.id.clone() }),
            Answer::Refused(error) | Answer::Unknown(error) => Err(error),
        }
    }

    /// Ends the transaction of `producer`, with patience up to `deadline`. Returns the producer of the next one.
    pub(crate) async fn end(
        &self,
        core: &Core,
        producer: ProducerId,
        committed: bool,
        deadline: Instant,
    ) -> Answer<ProducerId> {
        let request = EndTxnRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_producer_id(WireProducerId(producer.id))
            .with_producer_epoch(producer.epoch)
            .with_committed(committed);
        let answer = self.ask(core, &request, END_TXN_VERSION, deadline, |answer| {
            let next = ProducerId { id: answer.producer_id.0, epoch: answer.producer_epoch };
            (answer.error_code, next)
        });
        answer.await
    }

    /// Asks until there is an answer, or `deadline` has passed. `read` gives the error code, too.
    async fn ask<R: Request, T>(
        &self,
        core: &Core,
        request: &R,
        version: i16,
        deadline: Instant,
        read: fn(R::Response) -> (i16, T),
    ) -> Answer<T> {
        let (mut may_be_done, begun) = (false, Instant::now());
        loop {
            let answer = match self.find(core).await {
                Ok(broker) => match core.cluster.broker(broker, Purpose::Control).await {
                    // A former process must not fence the writers of the one that has taken over.
                    Ok(broker) => match core.check_pauses() {
                        Ok(()) => broker.call(request, version).await.map(read),
                        Err(doubt) if core.activity.is_over() => {
                            return if may_be_done { Answer::Unknown(doubt) } else { Answer::Fenced };
                        }
                        Err(doubt) => Err(CallError::Unsent(doubt.to_string())),
                    },
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            let why = match answer {
                Ok((0, answer)) => return Answer::Done(answer),
                Ok((code, _)) => match ResponseError::try_from_code(code) {
                    Some(ResponseError::ConcurrentTransactions) => CallError::Unsent(said(code, None)),
                    Some(error) if is_fenced(error) && !may_be_done => return Answer::Fenced,
                    // The coordinator does not say how far it came.
                    Some(ResponseError::UnknownServerError) => {
                        may_be_done = true;
                        CallError::Unanswered(said(code, None))
                    }
                    Some(error) if error.is_retriable() => {
                        *self.broker.lock() = None;
                        CallError::Unsent(said(code, None))
                    }
                    _ => {
                        let refused = Error::Refused { request: "a transaction", why: said(code, None) };
                        return if may_be_done { Answer::Unknown(refused) } else { Answer::Refused(refused) };
                    }
                },
                Err(error) => {
                    *self.broker.lock() = None;
                    may_be_done |= matches!(error, CallError::Unanswered(_));
                    error
                }
            };
            if begun.elapsed() >= core.config.request_timeout {
                core.troubles.begin(self, None, &why);
            }
            if Instant::now() > deadline {
                let error = core.unreachable(&why);
                return if may_be_done { Answer::Unknown(error) } else { Answer::Refused(error) };
            }
            tokio::time::sleep(core.config.retry_backoff).await;
        }
    }

    async fn find(&self, core: &Core) -> Result<i32, CallError> {
        let known = *self.broker.lock();
        if let Some(known) = known {
            return Ok(known);
        }
        let request = FindCoordinatorRequest::default()
            .with_key_type(TRANSACTION_KEY)
            .with_coordinator_keys(vec![StrBytes::from_string(self.id.clone())]);
        let answer = core.cluster.ask(&request, FIND_COORDINATOR_VERSION, Duration::ZERO).await?;
        let found = answer.coordinators.into_iter().next();
        let found = found.ok_or_else(|| CallError::Unsent("the answer names no coordinator".to_owned()))?;
        if found.error_code != 0 {
            return Err(CallError::Unsent(said(found.error_code, found.error_message.as_deref())));
        }
        *self.broker.lock() = Some(found.node_id.0);
        Ok(found.node_id.0)
    }
}
