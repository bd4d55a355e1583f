//! The least of a Redis client: commands go out as they are given, replies come back as the bytes that were sent.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use crate::PATIENCE;

/// The name of a command and its arguments.
pub type Command = Vec<Vec<u8>>;

/// Returns a command from its words.
pub fn command(words: &[&str]) -> Command {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// A command as a client sends it.
pub fn encode(command: &Command) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for word in command {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A command as a person reads it.
pub fn shown(command: &Command) -> String {
    let word = |word: &Vec<u8>| match word.escape_ascii().to_string() {
        text if text.is_empty() || text.contains(' ') => format!("\"{text}\""),
        text => text,
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// A reply, of RESP2 or RESP3. Two are equal exactly if their bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The first line, without its end: `+OK`, `:1`, `$5`, `*2`, `_`.
    pub head: Vec<u8>,
    /// The bytes of a string that has a length.
    pub bulk: Option<Vec<u8>>,
    /// The elements of an array, set, map or push.
    pub elements: Vec<Reply>,
}

impl Reply {
    /// `true` if this is the first line.
    pub fn is(&self, head: &str) -> bool {
        self.head == head.as_bytes()
    }

    /// `true` for an error.
    pub fn is_error(&self) -> bool {
        self.head.starts_with(b"-")
    }

    /// The number of an integer; `None` for other replies.
    pub fn integer(&self) -> Option<i64> {
        std::str::from_utf8(self.head.strip_prefix(b":")?).ok()?.parse().ok()
    }

    /// The reply on one line.
    pub fn shown(&self) -> String {
        let mut text = self.head.escape_ascii().to_string();
        if let Some(bulk) = &self.bulk {
            text += &format!(" \"{}\"", bulk.escape_ascii());
        }
        if !self.elements.is_empty() {
            text += &format!(" [{}]", self.elements.iter().map(Self::shown).collect::<Vec<_>>().join(", "));
        }
        text
    }
}

/// A connection to a server. A server that is silent for [`PATIENCE`] fails the test.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    /// Connects to `HOST:PORT`.
    ///
    /// # Errors
    /// If nobody listens there.
    pub fn open(address: &str) -> io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        Ok(Self { reader: BufReader::with_capacity(64 * 1024, socket) })
    }

    /// Sends bytes in as many writes as there are pieces. Replies may have to be read meanwhile: see [`Self::read`].
    ///
    /// # Errors
    /// If the process may open no further file.
    pub fn writer(&self) -> io::Result<impl FnMut(&[u8]) -> io::Result<()> + Send + use<>> {
        let mut socket = self.reader.get_ref().try_clone()?;
        Ok(move |piece: &[u8]| socket.write_all(piece))
    }

    /// The next reply.
    ///
    /// # Errors
    /// If the connection ends, or its bytes are no reply.
    pub fn read(&mut self) -> io::Result<Reply> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        let Some(head) = line.strip_suffix(b"\r\n") else {
            let said = line.escape_ascii();
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("the reply ends after {said:?}")));
        };
        let head = head.to_vec();
        let length = || -> io::Result<Option<usize>> {
            let text = String::from_utf8_lossy(&head[1..]).into_owned();
            let is_exact = |length: &i64| length.to_string() == text && *length >= -1;
            let length = text.parse::<i64>().ok().filter(is_exact);
            let length = length.ok_or_else(|| io::Error::other(format!("{text:?} is no length")))?;
            Ok(usize::try_from(length).ok())
        };
        let (mut bulk, mut elements) = (None, Vec::new());
        match head.first() {
            Some(b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(') => {}
            Some(b'$' | b'=' | b'!') => bulk = length()?.map(|length| self.read_bulk(length)).transpose()?,
            Some(kind @ (b'*' | b'~' | b'>' | b'%')) => {
                let each = if *kind == b'%' { 2 } else { 1 };
                for _ in 0..length()?.unwrap_or(0) * each {
                    elements.push(self.read()?);
                }
            }
            _ => return Err(io::Error::other(format!("{:?} is no reply", head.escape_ascii().to_string()))),
        }
        Ok(Reply { head, bulk, elements })
    }

    fn read_bulk(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length + 2];
        self.reader.read_exact(&mut bytes)?;
        if !bytes.ends_with(b"\r\n") {
            return Err(io::Error::other(format!("a string of {length} bytes does not end there")));
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn ask(&mut self, command: &Command) -> io::Result<Reply> {
        self.reader.get_mut().write_all(&encode(command))?;
        self.read()
    }
}
