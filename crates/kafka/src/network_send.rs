//! The bytes of one or more responses: encoded bytes in memory, and stored batches that are sent from
//! their file, without a copy unless TLS encrypts them.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};
use millstream_log::Extent;
use millstream_net::TransportWriteHalf;
use millstream_types::Grant;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;

/// Size of the pieces in which a file is copied to a connection with TLS.
const COPY_BYTES: usize = 64 << 10;

/// A contiguous piece of the bytes to send.
#[derive(Debug, Clone)]
pub(crate) enum SendBuffer {
    Bytes(Bytes),
    /// In a file, which the system sends from its page cache.
    Extent(Extent),
}

impl SendBuffer {
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Extent(extent) => extent.size_bytes(),
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Self::Bytes(bytes) => bytes.advance(count),
            Self::Extent(extent) => extent.advance(count),
        }
    }
}

/// The bytes to send, as a queue of buffers.
#[derive(Debug, Default)]
pub(crate) struct NetworkSend {
    parts: VecDeque<SendBuffer>,
    bytes: usize,
    /// The share of the memory budget, held until all bytes are sent.
    memory: Vec<Grant>,
}

impl NetworkSend {
    /// Adds `part` at the end.
    pub(crate) fn push(&mut self, part: SendBuffer) {
        if part.size_bytes() > 0 {
            self.bytes += part.size_bytes();
            self.parts.push_back(part);
        }
    }

    /// Adds all of `other` at the end.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.bytes += other.bytes;
        self.parts.append(&mut other.parts);
        self.memory.append(&mut other.memory);
    }

    /// Holds `memory` until all bytes are sent.
    pub(crate) fn hold(&mut self, memory: Option<Grant>) {
        self.memory.extend(memory);
    }

    /// Adds `part` at the start.
    pub(crate) fn push_front(&mut self, part: Bytes) {
        self.bytes += part.len();
        self.parts.push_front(SendBuffer::Bytes(part));
    }

    /// Number of bytes that are left to send.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Sends all bytes to the socket.
    ///
    /// # Errors
    /// The system's error; `UnexpectedEof` if a file has become shorter.
    pub(crate) async fn send(&mut self, socket: &mut TransportWriteHalf) -> io::Result<()> {
        while let Some(first) = self.parts.front() {
            let sent = match first {
                SendBuffer::Bytes(_) => socket.write_buf(&mut InMemory(self)).await?,
                SendBuffer::Extent(extent) => {
                    let sent = send_extent(socket, extent).await?;
                    self.advance(sent);
                    sent
                }
            };
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    fn advance(&mut self, count: usize) {
        assert!(count <= self.bytes, "only what is there is passed over");
        self.bytes -= count;
        let mut left = count;
        while let Some(first) = self.parts.front_mut() {
            if left < first.size_bytes() {
                first.advance(left);
                return;
            }
            left -= first.size_bytes();
            self.parts.pop_front();
        }
    }
}

/// Sends part of a file region; returns the number of bytes sent.
/// They were in the page cache a moment ago, so this rarely waits for the disk.
async fn send_extent(socket: &mut TransportWriteHalf, extent: &Extent) -> io::Result<usize> {
    let sent = match socket.as_tcp() {
        Some(socket) => send_file(socket, extent).await?,
        None => send_copy(socket, extent).await?,
    };
    match sent {
        0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a segment is shorter than its records")),
        sent => Ok(sent),
    }
}

/// Has the system send from its page cache.
async fn send_file(socket: &TcpStream, extent: &Extent) -> io::Result<usize> {
    let file = extent.descriptor().ok_or(io::ErrorKind::Unsupported)?;
    let sent = socket.async_io(Interest::WRITABLE, || {
        let mut at = extent.at();
        Ok(rustix::fs::sendfile(socket, file, Some(&mut at), extent.size_bytes())?)
    });
    sent.await
}

/// Reads a piece into memory and writes that.
async fn send_copy(socket: &mut TransportWriteHalf, extent: &Extent) -> io::Result<usize> {
    let file = extent.descriptor().ok_or(io::ErrorKind::Unsupported)?;
    let mut piece = vec![0; extent.size_bytes().min(COPY_BYTES)];
    let read = rustix::io::pread(file, &mut piece, extent.at())?;
    socket.write_all(&piece[..read]).await?;
    Ok(read)
}

/// The buffers before the first one that is not in memory.
struct InMemory<'a>(&'a mut NetworkSend);

impl InMemory<'_> {
    fn parts(&self) -> impl Iterator<Item = &Bytes> {
        self.0.parts.iter().map_while(|part| match part {
            SendBuffer::Bytes(bytes) => Some(bytes),
            SendBuffer::Extent(_) => None,
        })
    }
}

impl Buf for InMemory<'_> {
    fn remaining(&self) -> usize {
        self.parts().map(Bytes::len).sum()
    }

    fn has_remaining(&self) -> bool {
        self.parts().next().is_some()
    }

    fn chunk(&self) -> &[u8] {
        self.parts().next().map_or(&[], |part| part)
    }

    fn advance(&mut self, count: usize) {
        self.0.advance(count);
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let filled = slices.iter_mut().zip(self.parts());
        filled.map(|(slice, part)| *slice = IoSlice::new(part)).count()
    }
}

/// The bytes that a client receives over a real socket.
#[cfg(test)]
pub(crate) fn sent(mut parts: NetworkSend) -> Vec<u8> {
    use millstream_net::TransportStream;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_reading, mut writing) = TransportStream::from(listener.accept().await.unwrap().0).into_split();
        let sending = async move {
            let size = parts.size_bytes();
            parts.send(&mut writing).await.unwrap();
            assert_eq!(parts.size_bytes(), 0, "of {size}");
        };
        let mut received = Vec::new();
        let ((), read) = tokio::join!(sending, client.read_to_end(&mut received));
        read.unwrap();
        received
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;

    use millstream_net::TransportStream;

    use super::*;

    fn memory(text: &'static [u8]) -> SendBuffer {
        SendBuffer::Bytes(Bytes::from_static(text))
    }

    #[test]
    fn parts_in_memory_and_in_files_arrive_in_their_order() {
        let pattern: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&pattern).unwrap();
        let file: Arc<dyn millstream_log::File> = Arc::new(file);
        let stretch = |at: usize, size: usize| SendBuffer::Extent(Extent::new(file.clone(), at as u64, size));
        // More than a socket takes at once.
        let mut parts = NetworkSend::default();
        let of = [memory(b"bc"), memory(b""), stretch(7, 1), stretch(3, 2_900_000), memory(b"d"), stretch(0, 0)];
        of.into_iter().for_each(|part| parts.push(part));
        let mut last = NetworkSend::default();
        [memory(b"ef"), stretch(500, 10)].into_iter().for_each(|part| last.push(part));
        parts.append(last);
        parts.push_front(Bytes::from_static(b"a"));
        let expected = [b"abc", &pattern[7..8], &pattern[3..2_900_003], b"d", b"ef", &pattern[500..510]].concat();
        assert_eq!(parts.size_bytes(), expected.len());
        assert!(sent(parts) == expected);
    }

    #[test]
    fn many_parts_in_memory_are_sent_whole() {
        let mut parts = NetworkSend::default();
        let numbers: Vec<u8> = (0..200).collect();
        for number in &numbers {
            parts.push(SendBuffer::Bytes(Bytes::copy_from_slice(&[*number; 40_000])));
        }
        let expected: Vec<u8> = numbers.iter().flat_map(|number| [*number; 40_000]).collect();
        assert!(sent(parts) == expected);
    }

    #[test]
    fn a_file_that_has_become_shorter_is_an_error_and_no_other_bytes() {
        let file: Arc<dyn millstream_log::File> = Arc::new(tempfile::tempfile().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let error = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let _client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (_reading, mut writing) = TransportStream::from(listener.accept().await.unwrap().0).into_split();
            let mut parts = NetworkSend::default();
            parts.push(SendBuffer::Extent(Extent::new(file, 0, 10)));
            parts.send(&mut writing).await.unwrap_err()
        });
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
