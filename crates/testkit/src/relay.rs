//! A relay between clients and a server, at which a test cuts the network.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

const BUFFER_BYTES: usize = 64 << 10;

/// A listener that passes connections on to a server, in threads that end with the test program.
///
/// While it is cut, no byte passes in either direction and new connections get no answer, but none is closed: both ends notice
/// nothing but silence, as on a network that loses everything. Clones are the same relay.
#[derive(Debug, Clone)]
pub struct Relay {
    address: SocketAddr,
    network: Arc<Network>,
}

#[derive(Debug, Default)]
struct Network {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    target: Option<SocketAddr>,
    is_cut: bool,
    /// Times that all connections were reset.
    resets: u64,
    open: Vec<Weak<Connection>>,
}

#[derive(Debug)]
struct Connection {
    /// The sockets to the client and to the server.
    ends: [TcpStream; 2],
    /// The resets before it was made.
    resets: u64,
}

impl Relay {
    /// Listens at a free port. Connections wait until [`Relay::lead_to`] says where they go.
    ///
    /// # Panics
    /// If no port is free.
    pub fn listen() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let network = Arc::new(Network::default());
        let of_thread = Arc::clone(&network);
        thread::spawn(move || of_thread.accept(&listener));
        Self { address, network }
    }

    /// The address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the server.
    pub fn lead_to(&self, target: SocketAddr) {
        self.network.change(|state| state.target = Some(target));
    }

    /// Cuts the network between clients and server.
    pub fn cut(&self) {
        self.network.change(|state| state.is_cut = true);
    }

    /// Ends the cut: all that was sent in it arrives.
    pub fn mend(&self) {
        self.network.change(|state| state.is_cut = false);
    }

    /// Ends the cut and all connections: what was sent in it, and has not arrived, is lost.
    pub fn reset(&self) {
        self.network.change(|state| {
            state.is_cut = false;
            state.resets += 1;
            state.open.drain(..).filter_map(|open| open.upgrade()).for_each(|open| open.close());
        });
    }
}

impl Network {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits while the network is cut. `None` if connections that were made before so many resets are closed.
    fn until_open(&self, resets: u64) -> Option<SocketAddr> {
        let state = self.lock();
        let waits = |state: &mut State| state.resets == resets && (state.is_cut || state.target.is_none());
        let state = self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        state.target.filter(|_| state.resets == resets)
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            let Ok(client) = client else { continue };
            let network = Arc::clone(&self);
            let resets = self.lock().resets;
            thread::spawn(move || network.connect(client, resets));
        }
    }

    /// Connects to the server and passes on all bytes. A client of a server that is not there is closed.
    fn connect(self: Arc<Self>, client: TcpStream, resets: u64) {
        let Some(target) = self.until_open(resets) else { return };
        let Ok(server) = TcpStream::connect(target) else { return };
        let connection = Arc::new(Connection { ends: [client, server], resets });
        {
            let mut state = self.lock();
            if state.resets != resets {
                return;
            }
            state.open.retain(|open| open.strong_count() > 0);
            state.open.push(Arc::downgrade(&connection));
        }
        let (network, answers) = (Arc::clone(&self), Arc::clone(&connection));
        thread::spawn(move || network.pass(&answers, 1, 0));
        self.pass(&connection, 0, 1);
    }

    fn pass(&self, connection: &Connection, from: usize, to: usize) {
        let [from, to] = [from, to].map(|end| &connection.ends[end]);
        if self.copy(from, to, connection.resets).is_err() {
            connection.close();
        }
    }

    /// Passes on all bytes of one direction, and its end.
    fn copy(&self, mut from: &TcpStream, mut to: &TcpStream, resets: u64) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        to.set_nodelay(true)?;
        loop {
            let read = from.read(&mut buffer);
            self.until_open(resets).ok_or(io::ErrorKind::ConnectionReset)?;
            match read? {
                0 => return to.shutdown(Shutdown::Write),
                length => to.write_all(&buffer[..length])?,
            }
        }
    }
}

impl Connection {
    fn close(&self) {
        // One that is closed already cannot be closed again.
        self.ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SHORT: Duration = Duration::from_millis(100);

    /// A server that sends back what it gets, and a relay to it.
    fn echo() -> Relay {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let relay = Relay::listen();
        relay.lead_to(listener.local_addr().unwrap());
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                thread::spawn(move || io::copy(&mut &client, &mut &client));
            }
        });
        relay
    }

    fn is_silent(mut client: &TcpStream) -> bool {
        client.set_read_timeout(Some(SHORT)).unwrap();
        let silence = client.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        client.set_read_timeout(None).unwrap();
        silence
    }

    fn next(mut client: &TcpStream) -> Option<u8> {
        let mut byte = [0];
        client.read_exact(&mut byte).ok().map(|()| byte[0])
    }

    #[test]
    fn bytes_and_new_connections_wait_for_the_end_of_a_cut() {
        let relay = echo();
        let mut before = TcpStream::connect(relay.address()).unwrap();
        before.write_all(b"a").unwrap();
        assert_eq!(next(&before), Some(b'a'));
        relay.cut();
        let mut within = TcpStream::connect(relay.address()).unwrap();
        before.write_all(b"b").unwrap();
        within.write_all(b"c").unwrap();
        assert!(is_silent(&before) && is_silent(&within));
        relay.mend();
        assert_eq!((next(&before), next(&within)), (Some(b'b'), Some(b'c')));
        before.shutdown(Shutdown::Write).unwrap();
        assert_eq!(next(&before), None);
    }

    #[test]
    fn a_reset_closes_the_connections_of_a_cut_and_later_ones_pass() {
        let relay = echo();
        let mut before = TcpStream::connect(relay.address()).unwrap();
        before.write_all(b"a").unwrap();
        assert_eq!(next(&before), Some(b'a'));
        relay.cut();
        let within = TcpStream::connect(relay.address()).unwrap();
        before.write_all(b"b").unwrap();
        assert!(is_silent(&before) && is_silent(&within));
        relay.reset();
        assert_eq!((next(&before), next(&within)), (None, None));
        let mut after = TcpStream::connect(relay.address()).unwrap();
        after.write_all(b"d").unwrap();
        assert_eq!(next(&after), Some(b'd'));
    }
}
