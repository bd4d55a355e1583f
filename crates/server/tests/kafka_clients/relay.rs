//! A relay between clients and the server, at an address that stays the same when the server starts again, and that can
//! cut connections at the worst moment: the request was served, and its answer is lost.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// The api key of requests that produce.
const PRODUCE: i16 = 0;

/// Passes connections on until the test ends.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// The address of the server.
    server: Mutex<Option<SocketAddr>>,
    /// Of so many answers to produce requests one is lost; 0 loses none.
    lose_every: usize,
    produced: AtomicUsize,
    lost: AtomicUsize,
    /// Both ends of every connection, to be closed at the end.
    sockets: Mutex<Vec<TcpStream>>,
}

impl Relay {
    pub(crate) fn start(lose_every: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server: Mutex::new(None),
            lose_every,
            produced: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            sockets: Mutex::new(Vec::new()),
        });
        let this = Self { address, shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for client in listener.incoming() {
                let Some(server) = *shared.server.lock().unwrap() else { break };
                // A server that is down refuses, and so does the relay.
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { continue };
                shared.pass(client, server);
            }
        });
        this
    }

    /// From now on the server is there.
    pub(crate) fn lead_to(&self, server: SocketAddr) {
        *self.shared.server.lock().unwrap() = Some(server);
    }

    /// Answers that were lost so far.
    pub(crate) fn lost(&self) -> usize {
        self.shared.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        *self.shared.server.lock().unwrap() = None;
        let _ = TcpStream::connect(self.address);
        for socket in self.shared.sockets.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn pass(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let ends = [client.try_clone().unwrap(), server.try_clone().unwrap()];
        self.sockets.lock().unwrap().extend(ends);
        let asked = Arc::new(Mutex::new(VecDeque::new()));
        let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let keys = Arc::clone(&asked);
        thread::spawn(move || {
            while let Ok(frame) = read_frame(&mut from) {
                // Known before its answer can come.
                keys.lock().unwrap().push_back(i16::from_be_bytes([frame[4], frame[5]]));
                if to.write_all(&frame).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
        let (this, mut from, mut to) = (Arc::clone(self), server, client);
        thread::spawn(move || {
            while let Ok(frame) = read_frame(&mut from) {
                let key = asked.lock().unwrap().pop_front();
                if this.loses(key) || to.write_all(&frame).is_err() {
                    break;
                }
            }
            let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
        });
    }

    fn loses(&self, key: Option<i16>) -> bool {
        if self.lose_every == 0 || key != Some(PRODUCE) {
            return false;
        }
        let is_lost = self.produced.fetch_add(1, Ordering::SeqCst) % self.lose_every == self.lose_every - 1;
        self.lost.fetch_add(usize::from(is_lost), Ordering::SeqCst);
        is_lost
    }
}

/// One request or answer, its length included.
fn read_frame(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut frame = vec![0; 4 + u32::from_be_bytes(length) as usize];
    frame[..4].copy_from_slice(&length);
    from.read_exact(&mut frame[4..])?;
    Ok(frame)
}
