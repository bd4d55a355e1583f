//! A client of Kafka's and Redis's protocols, as far as logins need them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// A connection over which requests go and answers come.
#[derive(Debug)]
pub struct Raw(
    /// The connection.
    pub TcpStream,
);

impl Raw {
    /// Connects to a listener.
    pub fn connect(to: SocketAddr) -> Self {
        let socket = TcpStream::connect(to).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(socket)
    }

    /// Asks over Kafka's protocol with a header of version 1. Returns the answer behind its correlation id; `None` if the
    /// connection is closed instead.
    fn kafka(&mut self, key: i16, version: i16, body: &[u8]) -> Option<Vec<u8>> {
        let mut request = [key.to_be_bytes(), version.to_be_bytes()].concat();
        request.extend([0, 0, 0, 7, 0xff, 0xff]);
        request.extend(body);
        self.0.write_all(&(request.len() as i32).to_be_bytes()).ok()?;
        self.0.write_all(&request).ok()?;
        let mut length = [0; 4];
        self.0.read_exact(&mut length).ok()?;
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut answer).ok()?;
        Some(answer.split_off(4))
    }

    /// Logs in over Kafka's protocol with PLAIN; the error code.
    pub fn kafka_login(&mut self, name: &str, secret: &str) -> i16 {
        let shaken = self.kafka(17, 1, b"\x00\x05PLAIN").unwrap();
        assert_eq!(shaken[..2], [0, 0]);
        let login = format!("\0{name}\0{secret}");
        let body = [&(login.len() as i32).to_be_bytes(), login.as_bytes()].concat();
        let answer = self.kafka(36, 0, &body).unwrap();
        i16::from_be_bytes([answer[0], answer[1]])
    }

    /// `true` if Kafka's Metadata (version 1, of all topics) is answered.
    pub fn kafka_serves(&mut self) -> bool {
        self.kafka(3, 1, &[0xff; 4]).is_some()
    }

    /// The number of the node that coordinates the transactions of this id (FindCoordinator, version 1); `None` if none does now.
    pub fn kafka_coordinator(&mut self, transactional_id: &str) -> Option<usize> {
        let transaction_key = [1];
        let length = (transactional_id.len() as u16).to_be_bytes();
        let answer = self.kafka(10, 1, &[&length, transactional_id.as_bytes(), &transaction_key].concat())?;
        let (error_code, message_length) = (&answer[4..6], [answer[6], answer[7]]);
        // A message that is null has the length -1.
        let node_at = 8 + usize::try_from(i16::from_be_bytes(message_length)).unwrap_or_default();
        let node = answer[node_at..].first_chunk().map(|node| u32::from_be_bytes(*node))?;
        (error_code == [0, 0]).then_some(node as usize)
    }

    /// Sends commands of Redis's protocol; the first line of the answer, which is empty if the connection is closed.
    pub fn redis(&mut self, arguments: &[&str]) -> String {
        let mut request = format!("*{}\r\n", arguments.len());
        arguments.iter().for_each(|argument| request.push_str(&format!("${}\r\n{argument}\r\n", argument.len())));
        if self.0.write_all(request.as_bytes()).is_err() {
            return String::new();
        }
        self.redis_line()
    }

    /// The next line of an answer.
    pub fn redis_line(&mut self) -> String {
        let (mut line, mut byte) = (String::new(), [0]);
        while !line.ends_with("\r\n") && matches!(self.0.read(&mut byte), Ok(1)) {
            line.push(char::from(byte[0]));
        }
        line.trim_end().to_owned()
    }

    /// As [`Self::redis`]; the whole answer.
    pub fn redis_answer(&mut self, arguments: &[&str]) -> Value {
        let line = self.redis(arguments);
        self.rest_of(line)
    }

    /// The next whole answer.
    pub fn redis_reply(&mut self) -> Value {
        let line = self.redis_line();
        self.rest_of(line)
    }

    /// The answer that begins with this line; errors keep their `-`.
    fn rest_of(&mut self, line: String) -> Value {
        // There is no number behind `+` and `-`, and -1 stands for null.
        let number: i64 = line.get(1..).and_then(|number| number.parse().ok()).unwrap_or_default();
        match line.as_bytes().first() {
            Some(b'*' | b'$') if number < 0 => Value::Null,
            Some(b'*') => (0..number).map(|_| self.redis_reply()).collect(),
            Some(b'$') => {
                let mut text = vec![0; number as usize + 2];
                self.0.read_exact(&mut text).unwrap();
                String::from_utf8_lossy(&text[..number as usize]).into()
            }
            Some(b':') => number.into(),
            Some(b'+') => line[1..].into(),
            _ => line.into(),
        }
    }

    /// `true` once the connection is closed.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }
}
