//! Answers that go on: server-sent events, and those of a live query.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufReader, Read as _};
use std::net::TcpStream;

use serde_json::Value;

use crate::Server;
use crate::http_client::{open, read_chunk, read_head, request};

/// A server-sent event.
#[derive(Debug)]
pub struct Event {
    /// Empty for events without one.
    pub id: String,
    /// Its kind.
    pub name: String,
    /// Its JSON.
    pub data: Value,
}

/// Server-sent events of an answer as they come.
#[derive(Debug)]
pub struct Events {
    reader: BufReader<TcpStream>,
    text: String,
}

impl Events {
    /// Asks the listener for applications for them.
    pub fn get(server: &impl Server, path: &str, headers: &[(&str, &str)]) -> Self {
        let (status, _, mut reader) = open(server.applications(), "GET", path, headers, b"");
        if status != 200 {
            let mut refusal = String::new();
            reader.read_to_string(&mut refusal).unwrap();
            panic!("{path}: {status} {refusal}");
        }
        Self { reader, text: String::new() }
    }

    /// The next one; `None` at the end of the answer.
    #[allow(clippy::should_implement_trait, reason = "it waits for the server")]
    pub fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                if let (Some(name), Some(data)) = (field("event: "), field("data: ")) {
                    let id = field("id: ").unwrap_or_default();
                    return Some(Event { id, name, data: serde_json::from_str(&data).unwrap() });
                }
                continue;
            }
            let chunk = read_chunk(&mut self.reader)?;
            self.text.push_str(&String::from_utf8(chunk).unwrap());
        }
    }
}

/// A live query's events as they come.
#[derive(Debug)]
pub struct Live {
    reader: BufReader<TcpStream>,
    text: String,
}

impl Live {
    /// Asks; the query is live when this returns.
    pub fn ask(server: &impl Server, query: &str) -> Self {
        Self::ask_for(server, &serde_json::json!({"query": query, "deliver": "sse"})).0
    }

    /// As [`Self::ask`], with a whole request; the query's id, too.
    pub fn ask_for(server: &impl Server, asked: &Value) -> (Self, String) {
        Self::open(server, "POST", "/api/queries", asked.to_string().as_bytes())
    }

    /// Reads on for a query that is kept.
    pub fn attach(server: &impl Server, id: &str) -> Self {
        Self::open(server, "GET", &format!("/api/queries/{id}/results"), b"").0
    }

    fn open(server: &impl Server, method: &str, path: &str, body: &[u8]) -> (Self, String) {
        let headers = [("Content-Type", "application/json"), ("Accept", "text/event-stream")];
        let mut reader = request(server.applications(), method, path, &headers, body);
        let (status, _) = read_head(&mut reader);
        let mut live = Self { reader, text: String::new() };
        if status != 200 {
            let mut refusal = String::new();
            live.reader.read_to_string(&mut refusal).unwrap();
            panic!("{path}: {status} {refusal}");
        }
        let (name, opening) = live.next();
        assert_eq!(name, "meta");
        (live, opening["id"].as_str().unwrap().to_owned())
    }

    fn next(&mut self) -> (String, Value) {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                if let (Some(name), Some(data)) = (field("event: "), field("data: ")) {
                    return (name, serde_json::from_str(&data).unwrap());
                }
                continue;
            }
            let chunk = read_chunk(&mut self.reader).expect("a live query ends with its end event");
            self.text.push_str(&String::from_utf8(chunk).unwrap());
        }
    }

    /// All rows until the query ends, and what was told at its end.
    pub fn finish(mut self) -> (Vec<Value>, Value) {
        let mut rows = Vec::new();
        loop {
            match self.next() {
                (name, mut data) if name == "rows" => rows.append(data["records"].as_array_mut().unwrap()),
                (name, data) if name == "end" => return (rows, data),
                (name, data) => panic!("unexpected event {name}: {data}"),
            }
        }
    }
}
