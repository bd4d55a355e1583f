//! One connection: requests begin in the order of their arrival, and responses leave in the same order.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millstream_net::{TransportStream, TransportWriteHalf};
use millstream_types::Grant;
use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout};

use crate::broker::Broker;
use crate::dispatch::{ApiTable, PendingResponse};
use crate::error::ConnectionError;
use crate::frame::{FrameReader, RequestPermit};
use crate::network_send::NetworkSend;
use crate::request_context::ClientConnection;
use crate::response::Response;

/// Answers are gathered up to this size before they are written.
const WRITE_BYTES: usize = 64 << 10;

/// A request that has begun, and its share of the request memory.
struct InFlight {
    answer: PendingResponse,
    room: RequestPermit,
}

/// Serves a client until it closes the connection, the connection fails, its login is refused, or the listener stops.
pub(crate) async fn serve(
    socket: TransportStream,
    connection: Arc<ClientConnection>,
    broker: Arc<Broker>,
    apis: Arc<ApiTable>,
    memory: Grant,
) -> Result<(), ConnectionError> {
    let (reading, writing) = socket.into_split();
    let (queue, waiting) = mpsc::channel(broker.config.in_flight_max);
    let limit_ms = broker.config.request_timeout_ms;
    let mut answering = std::pin::pin!(answer_all(writing, waiting, limit_ms));
    let frames = FrameReader::new(reading, Arc::clone(&broker), Arc::clone(&connection), memory);
    let requests = take_all(frames, broker, &apis, Arc::clone(&connection), queue);
    let taken = tokio::select! {
        taken = requests => taken,
        // Only an error ends it first: without one it ends once the queue is closed.
        answered = answering.as_mut() => return answered,
        fault = connection.login_ended() => return Err(fault),
    };
    match taken {
        // The client is gone; there is nobody to answer.
        Ok(EndReason::ByClient) => Ok(()),
        Ok(EndReason::ByServer) => answering.await,
        Err(fault) => {
            answering.await?;
            Err(fault)
        }
    }
}

/// The reason why no more requests are read.
enum EndReason {
    ByClient,
    /// The listener stops, or the client's login was refused.
    ByServer,
}

async fn take_all(
    mut frames: FrameReader,
    broker: Arc<Broker>,
    apis: &ApiTable,
    connection: Arc<ClientConnection>,
    queue: mpsc::Sender<InFlight>,
) -> Result<EndReason, ConnectionError> {
    let mut stopping = std::pin::pin!(broker.shutdown.clone().begun());
    loop {
        if let Some(until) = connection.muted_until() {
            tokio::select! {
                biased;
                () = stopping.as_mut() => return Ok(EndReason::ByServer),
                () = sleep_until(until) => continue,
            }
        }
        let busy = || queue.capacity() < queue.max_capacity();
        let frame = tokio::select! {
            biased;
            () = stopping.as_mut() => return Ok(EndReason::ByServer),
            () = connection.refused() => return Ok(EndReason::ByServer),
            frame = frames.next(busy) => frame?,
        };
        let Some(frame) = frame else { return Ok(EndReason::ByClient) };
        connection.heard();
        if connection.is_refused() {
            return Ok(EndReason::ByServer);
        }
        // Reserve the place first: a request that has begun must be answered.
        let Ok(place) = queue.reserve().await else { return Ok(EndReason::ByServer) };
        let answer = apis.begin(&connection, frame.bytes, frame.oversized_bytes)?;
        place.send(InFlight { answer, room: frame.room });
        if connection.is_refused() {
            return Ok(EndReason::ByServer);
        }
    }
}

/// Writes the responses in order. Responses that are ready at the same time leave in one write.
async fn answer_all(
    mut socket: TransportWriteHalf,
    mut waiting: mpsc::Receiver<InFlight>,
    limit_ms: u64,
) -> Result<(), ConnectionError> {
    let mut rooms = Vec::new();
    let mut next = waiting.recv().await;
    while let Some(InFlight { answer, room }) = next {
        let mut parts = NetworkSend::default();
        take(answer.await?, &mut parts);
        rooms.push(room);
        next = None;
        let mut failed = None;
        while parts.size_bytes() < WRITE_BYTES {
            let Ok(mut in_flight) = waiting.try_recv() else { break };
            // Polled once without waking: it is awaited below if it is not ready.
            match in_flight.answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(answer)) => take(answer, &mut parts),
                Poll::Ready(Err(fault)) => {
                    failed = Some(fault);
                    break;
                }
                Poll::Pending => {
                    next = Some(in_flight);
                    break;
                }
            }
            rooms.push(in_flight.room);
        }
        let written = timeout(Duration::from_millis(limit_ms), parts.send(&mut socket)).await;
        written.map_err(|_| ConnectionError::Slow { limit_ms })??;
        if let Some(fault) = failed {
            return Err(fault);
        }
        drop(parts);
        rooms.clear();
        if next.is_none() {
            next = waiting.recv().await;
        }
    }
    Ok(())
}

fn take(answer: Response, parts: &mut NetworkSend) {
    if let Response::Frame(frame) = answer {
        parts.append(frame);
    }
}
