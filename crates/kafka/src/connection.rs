//! One connection: requests are begun in the order in which they arrive and answered in that order.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millstream_types::Grant;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{sleep_until, timeout};

use crate::caller::Connection;
use crate::dispatch::{Answer, Pending, begin};
use crate::error::Fault;
use crate::frame::Frames;
use crate::node::Node;
use crate::parts::Parts;

/// Answers are gathered up to this size before they are written.
const WRITE_BYTES: usize = 64 << 10;

/// A request that was begun, and the room that it takes.
struct InFlight {
    answer: Pending,
    room: OwnedSemaphorePermit,
}

/// Serves a client until it closes the connection, commits a fault, or the listener stops.
pub(crate) async fn serve(socket: TcpStream, node: Arc<Node>, memory: Grant) -> Result<(), Fault> {
    let connection = Arc::new(Connection::new(socket.peer_addr()?, socket.local_addr()?, &node));
    // Without it small answers wait for the peer's delayed acknowledgement. A socket that refuses it is about to fail.
    let _ = socket.set_nodelay(true);
    let (reading, writing) = socket.into_split();
    let (queue, waiting) = mpsc::channel(node.config.in_flight_max);
    let limit_ms = node.config.request_timeout_ms;
    let mut answering = std::pin::pin!(answer_all(writing, waiting, limit_ms));
    let requests = take_all(Frames::new(reading, Arc::clone(&node), memory), node, connection, queue);
    let taken = tokio::select! {
        taken = requests => taken,
        // Only a fault ends it first: it ends in order once the queue is closed.
        answered = answering.as_mut() => return answered,
    };
    match taken {
        // Nobody is left to be answered.
        Ok(Ended::ByClient) => Ok(()),
        Ok(Ended::ByListener) => answering.await,
        Err(fault) => {
            answering.await?;
            Err(fault)
        }
    }
}

/// Why no more requests are taken.
enum Ended {
    ByClient,
    ByListener,
}

async fn take_all(
    mut frames: Frames,
    node: Arc<Node>,
    connection: Arc<Connection>,
    queue: mpsc::Sender<InFlight>,
) -> Result<Ended, Fault> {
    let mut stopping = node.stopping.clone();
    loop {
        if let Some(until) = connection.muted_until() {
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return Ok(Ended::ByListener),
                () = sleep_until(until) => continue,
            }
        }
        let busy = || queue.capacity() < queue.max_capacity();
        let frame = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return Ok(Ended::ByListener),
            frame = frames.next(busy) => frame?,
        };
        let Some(frame) = frame else { return Ok(Ended::ByClient) };
        // A place first: what is begun must be answered.
        let Ok(place) = queue.reserve().await else { return Ok(Ended::ByListener) };
        let answer = begin(&connection, frame.bytes)?;
        place.send(InFlight { answer, room: frame.room });
    }
}

/// Writes the answers in order; those that are ready at the same time with one write.
async fn answer_all(
    mut socket: OwnedWriteHalf,
    mut waiting: mpsc::Receiver<InFlight>,
    limit_ms: u64,
) -> Result<(), Fault> {
    let mut rooms = Vec::new();
    let mut next = waiting.recv().await;
    while let Some(InFlight { answer, room }) = next {
        let mut parts = Parts::default();
        take(answer.await?, &mut parts);
        rooms.push(room);
        next = None;
        let mut failed = None;
        while parts.size_bytes() < WRITE_BYTES {
            let Ok(mut in_flight) = waiting.try_recv() else { break };
            // Asked once, in passing: it is awaited below if it is not ready.
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
        written.map_err(|_| Fault::Slow { limit_ms })??;
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

fn take(answer: Answer, parts: &mut Parts) {
    if let Answer::Frame(frame) = answer {
        parts.append(frame);
    }
}
