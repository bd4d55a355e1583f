//! A WebSocket as the stream of bytes that its binary messages carry (RFC 6455, the server's side).
//!
//! Invariants
//! - A message is handed on as it arrives, however large it says that it is: no more of it is held than one read brings. So the
//!   limits are those of the reader, before the login and after it, as without a WebSocket.
//! - At most one pong waits to be sent.

use std::io::{self, Cursor};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// The bytes that one read asks for.
const READ_BYTES: usize = 4 << 10;
/// Largest payload of a frame that is sent: as much as that is copied at a time.
const FRAME_MAX_BYTES: usize = 64 << 10;
/// Longest payload of a control frame.
const CONTROL_MAX_BYTES: u64 = 125;

/// A WebSocket over the stream `S`, on which the upgrade has been agreed.
pub(super) struct WebSocketStream<S> {
    socket: S,
    /// Bytes that have arrived and are not handed on.
    held: BytesMut,
    /// The payload that is still to come of the frame that is read.
    frame: PartialFrame,
    /// True within a message of several frames.
    is_continued: bool,
    /// Frames that are not sent yet.
    out: BytesMut,
    is_closing: bool,
}

#[derive(Default)]
struct PartialFrame {
    left_bytes: u64,
    mask: [u8; 4],
}

/// The kind of the next frame, once it is read.
enum NextFrame {
    /// Its header, or a control frame, has not come whole.
    Partial,
    /// Payload, or a control frame that is dealt with.
    Read,
    /// The client closes the WebSocket.
    Close,
}

impl<S> WebSocketStream<S> {
    pub(super) fn new(socket: S) -> Self {
        let (held, out) = (BytesMut::new(), BytesMut::new());
        Self { socket, held, frame: PartialFrame::default(), is_continued: false, out, is_closing: false }
    }

    /// Reads the header of the next frame from the held bytes, and the whole frame if it is a control frame.
    fn next_frame(&mut self) -> io::Result<NextFrame> {
        let mut cursor = Cursor::new(&self.held[..]);
        let parsed = FrameHeader::parse(&mut cursor).map_err(|error| fault(&error.to_string()))?;
        let Some((header, size_bytes)) = parsed else { return Ok(NextFrame::Partial) };
        let header_bytes = cursor.position() as usize;
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(fault("a frame of the WebSocket uses an extension that was not agreed on"));
        }
        let mask = header.mask.ok_or_else(|| fault("a client masks the frames of its WebSocket"))?;
        match header.opcode {
            OpCode::Data(kind) => {
                self.check_order(kind)?;
                self.is_continued = !header.is_final;
                self.held.advance(header_bytes);
                self.frame = PartialFrame { left_bytes: size_bytes, mask };
                Ok(NextFrame::Read)
            }
            OpCode::Control(kind) => {
                if !header.is_final || size_bytes > CONTROL_MAX_BYTES {
                    return Err(fault("a control frame of the WebSocket is in parts, or larger than 125 bytes"));
                }
                let size_bytes = size_bytes as usize;
                if self.held.len() < header_bytes + size_bytes {
                    return Ok(NextFrame::Partial);
                }
                self.held.advance(header_bytes);
                let mut payload = self.held.split_to(size_bytes);
                unmask(&mut payload, mask);
                self.control(kind, &payload)
            }
        }
    }

    fn check_order(&self, kind: Data) -> io::Result<()> {
        match (kind, self.is_continued) {
            (Data::Binary, false) | (Data::Continue, true) => Ok(()),
            (Data::Text, _) => Err(fault("MQTT packets come in binary messages of a WebSocket, not in text")),
            _ => Err(fault("a message of the WebSocket begins within another, or goes on without a beginning")),
        }
    }

    fn control(&mut self, kind: Control, payload: &[u8]) -> io::Result<NextFrame> {
        match kind {
            // A client that sends more pings than it reads pongs gets one of them.
            Control::Ping if self.out.is_empty() && !self.is_closing => {
                self.queue(OpCode::Control(Control::Pong), payload);
                Ok(NextFrame::Read)
            }
            Control::Ping | Control::Pong => Ok(NextFrame::Read),
            Control::Close => {
                self.queue_close(payload);
                Ok(NextFrame::Close)
            }
            Control::Reserved(_) => Err(fault("a control frame of the WebSocket is of no known kind")),
        }
    }

    fn queue_close(&mut self, payload: &[u8]) {
        if !std::mem::replace(&mut self.is_closing, true) {
            self.queue(OpCode::Control(Control::Close), payload);
        }
    }

    fn queue(&mut self, opcode: OpCode, payload: &[u8]) {
        let header = FrameHeader { opcode, ..FrameHeader::default() };
        let mut head = Vec::with_capacity(header.len(payload.len() as u64));
        header.format(payload.len() as u64, &mut head).expect("a vector takes what is written to it");
        self.out.extend_from_slice(&head);
        self.out.extend_from_slice(payload);
    }

    /// Hands on payload that is held.
    fn hand_on(&mut self, into: &mut ReadBuf<'_>) {
        let left = usize::try_from(self.frame.left_bytes).unwrap_or(usize::MAX);
        let taken = left.min(self.held.len()).min(into.remaining());
        let mut payload = self.held.split_to(taken);
        unmask(&mut payload, self.frame.mask);
        into.put_slice(&payload);
        self.frame.mask.rotate_left(taken % 4);
        self.frame.left_bytes -= taken as u64;
        if self.held.is_empty() {
            self.held = BytesMut::new();
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocketStream<S> {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_write(cx, &self.out))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.out.advance(sent),
            }
        }
        self.out = BytesMut::new();
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    /// Reads more bytes; `false` at the end of the stream.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut space = [0; READ_BYTES];
        let mut read = ReadBuf::new(&mut space);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut read))?;
        self.held.extend_from_slice(read.filled());
        Poll::Ready(Ok(!read.filled().is_empty()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocketStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.frame.left_bytes > 0 && !self.held.is_empty() {
                self.hand_on(into);
                return Poll::Ready(Ok(()));
            }
            if self.frame.left_bytes == 0 {
                match self.next_frame()? {
                    NextFrame::Read => continue,
                    NextFrame::Close => return Poll::Ready(Ok(())),
                    NextFrame::Partial => {}
                }
            }
            if let Poll::Ready(Err(error)) = self.poll_send(cx) {
                return Poll::Ready(Err(error));
            }
            if !ready!(self.poll_more(cx))? {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocketStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        let bytes = &bytes[..bytes.len().min(FRAME_MAX_BYTES)];
        self.queue(OpCode::Data(Data::Binary), bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.queue_close(&[]);
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

fn unmask(payload: &mut [u8], mask: [u8; 4]) {
    payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
}

fn fault(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// A frame as a client sends it.
    fn frame(opcode: OpCode, is_final: bool, payload: &[u8]) -> Vec<u8> {
        let mask = [7, 1, 200, 3];
        let mut frame = Vec::new();
        let header = FrameHeader { is_final, opcode, mask: Some(mask), ..FrameHeader::default() };
        header.format(payload.len() as u64, &mut frame).unwrap();
        let begin = frame.len();
        frame.extend_from_slice(payload);
        unmask(&mut frame[begin..], mask);
        frame
    }

    #[tokio::test]
    async fn messages_cut_in_any_way_are_one_stream_and_a_ping_between_them_is_answered() {
        let payload: Vec<u8> = (0..100_000_u32).map(|number| number as u8).collect();
        let binary = |is_final, payload: &[u8]| frame(OpCode::Data(Data::Binary), is_final, payload);
        let sent = [
            binary(true, &payload[..1]),
            binary(true, b""),
            binary(false, &payload[1..300]),
            frame(OpCode::Control(Control::Ping), true, b"there?"),
            frame(OpCode::Data(Data::Continue), true, &payload[300..70_003]),
            binary(true, &payload[70_003..]),
            frame(OpCode::Control(Control::Close), true, &1_000_u16.to_be_bytes()),
        ]
        .concat();
        for cut in [1, 3, 4_096, sent.len()] {
            let (near, mut far) = duplex(1 << 16);
            let mut socket = WebSocketStream::new(near);
            let reading = async {
                let mut arrived = Vec::new();
                socket.read_to_end(&mut arrived).await.unwrap();
                socket.shutdown().await.unwrap();
                arrived
            };
            let writing = async {
                for part in sent.chunks(cut) {
                    far.write_all(part).await.unwrap();
                }
                let mut answers = Vec::new();
                far.read_to_end(&mut answers).await.unwrap();
                answers
            };
            let (arrived, answers) = tokio::join!(reading, writing);
            assert!(arrived == payload, "cut at {cut}");
            assert_eq!(answers, b"\x8A\x06there?\x88\x02\x03\xE8", "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn what_is_no_frame_of_a_client_is_refused_in_words() {
        let data = |kind| frame(OpCode::Data(kind), true, b"x");
        for (wrong, told) in [
            (data(Data::Text), "not in text"),
            (data(Data::Continue), "without a beginning"),
            ([frame(OpCode::Data(Data::Binary), false, b""), data(Data::Binary)].concat(), "begins within another"),
            (frame(OpCode::Control(Control::Ping), true, &[0; 126]), "larger than 125 bytes"),
            (frame(OpCode::Control(Control::Ping), false, b""), "in parts"),
            (b"\x82\x01x".to_vec(), "masks the frames"),
            (b"\xC2\x81\0\0\0\0x".to_vec(), "not agreed on"),
        ] {
            let (near, mut far) = duplex(1 << 10);
            far.write_all(&wrong).await.unwrap();
            let refusal = WebSocketStream::new(near).read_to_end(&mut Vec::new()).await.unwrap_err().to_string();
            assert!(refusal.contains(told), "{refusal}");
        }
    }
}
