//! Ids for idempotent producers.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};

use crate::caller::Caller;

/// InitProducerId. Whoever asks gets an id of his own, whichever he had before.
pub(crate) async fn init_producer_id(request: InitProducerIdRequest, caller: Caller) -> InitProducerIdResponse {
    let refused = |error: ResponseError| {
        InitProducerIdResponse::default()
            .with_error_code(error.code())
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1)
    };
    if let Some(transactional_id) = request.transactional_id {
        let name = transactional_id.as_str();
        let client_id = caller.client_id.as_str();
        tracing::info!(transactional_id = name, client_id, peer = %caller.connection.peer, "refused a transactional producer");
        return refused(ResponseError::TransactionalIdAuthorizationFailed);
    }
    match caller.node.next_producer_id() {
        Some(id) => InitProducerIdResponse::default().with_producer_id(ProducerId(id)).with_producer_epoch(0),
        None => refused(ResponseError::UnknownServerError),
    }
}
