//! Many live queries with one reader, which names each of them.
//!
//! A query with results puts its number into a list and wakes the reader. So a query without results costs nothing, and
//! takes little more memory than its name.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::Stream;
use futures_util::task::AtomicWaker;
use hashbrown::HashTable;
use millstream_columns::Slab;
use parking_lot::Mutex;

/// So many that turn out to have nothing are asked before others have their turn.
const ASKED_AT_ONCE: usize = 64;

/// Named streams whose items are read in turns.
pub struct Multiplexer<S> {
    named: Slab<NamedStream<S>>,
    by_name: HashTable<u32>,
    hasher: RandomState,
    ready: Arc<Ready>,
}

struct NamedStream<S> {
    name: StreamName,
    /// `None` until the stream has begun.
    stream: Option<S>,
    turn: Arc<StreamWaker>,
}

/// A name; a short one takes no memory of its own.
enum StreamName {
    Short(u8, [u8; StreamName::SHORT_MAX]),
    Long(Box<str>),
}

impl StreamName {
    const SHORT_MAX: usize = 22;

    fn new(name: &str) -> Self {
        let mut bytes = [0; Self::SHORT_MAX];
        match bytes.get_mut(..name.len()) {
            Some(place) => {
                place.copy_from_slice(name.as_bytes());
                Self::Short(name.len() as u8, bytes)
            }
            None => Self::Long(name.into()),
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Short(length, bytes) => std::str::from_utf8(&bytes[..usize::from(*length)]).unwrap_or_default(),
            Self::Long(name) => name,
        }
    }
}

/// The numbers of streams that may have an item.
#[derive(Default)]
struct Ready {
    numbers: Mutex<VecDeque<u32>>,
    reader: AtomicWaker,
}

/// The waker of one stream.
struct StreamWaker {
    ready: Arc<Ready>,
    number: u32,
    /// True if its number is in the list.
    is_listed: AtomicBool,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_listed.swap(true, Ordering::AcqRel) {
            self.ready.numbers.lock().push_back(self.number);
            self.ready.reader.wake();
        }
    }
}

impl<S> Default for Multiplexer<S> {
    fn default() -> Self {
        Self { named: Slab::default(), by_name: HashTable::new(), hasher: RandomState::new(), ready: Arc::default() }
    }
}

impl<S> Multiplexer<S> {
    /// Takes a name for a stream that is about to begin: its number; `None` if the name is in use.
    pub fn reserve(&mut self, name: &str) -> Option<u32> {
        if self.find(name).is_some() {
            return None;
        }
        let ready = self.ready.clone();
        let number = self.named.insert_with(|number| {
            let turn = Arc::new(StreamWaker { ready, number, is_listed: AtomicBool::new(false) });
            NamedStream { name: StreamName::new(name), stream: None, turn }
        });
        let (named, hasher) = (&self.named, &self.hasher);
        self.by_name.insert_unique(hasher.hash_one(name), number, |number| hasher.hash_one(name_of(named, *number)));
        Some(number)
    }

    /// Has the stream of this number begin.
    pub fn begin(&mut self, number: u32, stream: S) {
        if let Some(named) = self.named.get_mut(number) {
            named.stream = Some(stream);
            named.turn.wake_by_ref();
        }
    }

    /// Takes one out; its name is free.
    pub fn remove(&mut self, number: u32) {
        let hash = self.hasher.hash_one(name_of(&self.named, number));
        if let Ok(known) = self.by_name.find_entry(hash, |known| *known == number) {
            known.remove();
            self.named.remove(number);
        }
    }

    /// The name of the stream with this number; empty if there is none.
    pub fn name(&self, number: u32) -> &str {
        name_of(&self.named, number)
    }

    /// The stream with this name, if it has begun.
    pub fn get(&self, name: &str) -> Option<&S> {
        self.named.get(self.find(name)?)?.stream.as_ref()
    }

    /// The streams that have begun.
    pub fn streams(&self) -> impl Iterator<Item = &S> {
        self.named.iter().filter_map(|named| named.stream.as_ref())
    }

    fn find(&self, name: &str) -> Option<u32> {
        let is_it = |number: &u32| name_of(&self.named, *number) == name;
        self.by_name.find(self.hasher.hash_one(name), is_it).copied()
    }
}

fn name_of<S>(named: &Slab<NamedStream<S>>, number: u32) -> &str {
    named.get(number).map_or("", |named| named.name.as_str())
}

impl<S: Stream + Unpin> Multiplexer<S> {
    /// The next item of any stream, with the stream's number. Waits if none has one. Streams that have ended
    /// stay until they are removed.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<(u32, S::Item)> {
        self.ready.reader.register(cx.waker());
        for _ in 0..ASKED_AT_ONCE {
            let next = self.ready.numbers.lock().pop_front();
            let Some(number) = next else { return Poll::Pending };
            let Some(NamedStream { stream: Some(stream), turn, .. }) = self.named.get_mut(number) else { continue };
            turn.is_listed.store(false, Ordering::Release);
            let waker = Waker::from(turn.clone());
            if let Poll::Ready(Some(item)) = Pin::new(stream).poll_next(&mut Context::from_waker(&waker)) {
                // There may be more, after the others.
                turn.wake_by_ref();
                return Poll::Ready((number, item));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use std::future::poll_fn;

    use futures_util::FutureExt as _;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;

    struct RecordSource(UnboundedReceiver<usize>);

    impl Stream for RecordSource {
        type Item = usize;

        fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<usize>> {
            self.0.poll_recv(cx)
        }
    }

    fn begin(many: &mut Multiplexer<RecordSource>, name: &str) -> (u32, UnboundedSender<usize>) {
        let (sender, receiver) = unbounded_channel();
        let number = many.reserve(name).unwrap();
        many.begin(number, RecordSource(receiver));
        (number, sender)
    }

    fn given(many: &mut Multiplexer<RecordSource>) -> Vec<(String, usize)> {
        let mut given = Vec::new();
        while let Some((number, item)) = poll_fn(|cx| many.poll_next(cx)).now_or_never() {
            given.push((many.name(number).to_owned(), item));
        }
        given
    }

    #[test]
    fn each_source_gives_its_items_in_turns_under_its_name() {
        let mut many = Multiplexer::default();
        let (_, a) = begin(&mut many, "a");
        let (b_number, b) = begin(&mut many, "b");
        [1, 2, 3].into_iter().for_each(|item| a.send(item).unwrap());
        b.send(10).unwrap();
        let expected = [("a", 1), ("b", 10), ("a", 2), ("a", 3)].map(|(name, item)| (name.to_owned(), item));
        assert_eq!(given(&mut many), expected);
        assert_eq!(given(&mut many), []);
        assert!(many.reserve("b").is_none() && many.get("b").is_some());
        many.remove(b_number);
        assert!(many.get("b").is_none());
        let number = many.reserve("b").unwrap();
        assert!(many.get("b").is_none() && many.reserve("b").is_none());
        many.remove(number);
        drop(a);
        assert_eq!(given(&mut many), []);
        for name in ["", &"é".repeat(11), &"é".repeat(12)] {
            let (number, _sender) = begin(&mut many, name);
            assert_eq!(many.name(number), name);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_is_missed_while_others_send() {
        let mut many = Multiplexer::default();
        let senders: Vec<_> = (0..100).map(|i| begin(&mut many, &i.to_string()).1).collect();
        let sending = tokio::spawn(async move {
            for item in 0..200 {
                senders.iter().for_each(|sender| sender.send(item).unwrap());
                tokio::task::yield_now().await;
            }
        });
        let mut next = vec![0; 100];
        for _ in 0..100 * 200 {
            let (number, item) = poll_fn(|cx| many.poll_next(cx)).await;
            let name: usize = many.name(number).parse().unwrap();
            assert_eq!(item, next[name]);
            next[name] += 1;
        }
        sending.await.unwrap();
    }
}
