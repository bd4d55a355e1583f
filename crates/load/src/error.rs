//! Errors that end a run. Requests that the server refuses during a simulation are counted, not errors.

use std::path::PathBuf;

use crate::FailureKind;

/// An error that keeps a simulation or a replay from starting or finishing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option's value contradicts a rule.
    #[error("--{option} = {value:?}: {rule}")]
    Option {
        /// Name of the option, without dashes.
        option: &'static str,
        /// Value that the user has given.
        value: String,
        /// Rule that the value breaks.
        rule: String,
    },
    /// The registry refused to create the tenant, a device or its password.
    #[error("{method} {path} was answered with {status}: {body}")]
    Registry {
        /// HTTP method of the request.
        method: &'static str,
        /// URL path of the request.
        path: String,
        /// Status code of the response.
        status: u16,
        /// Start of the response's body.
        body: String,
    },
    /// All messages of the run failed.
    #[error("none of {sent} messages was accepted, {count} times because of {kind}; {remedy}")]
    NoneAccepted {
        /// Number of messages that were sent.
        sent: u64,
        /// Most frequent kind of failure.
        kind: FailureKind,
        /// Number of messages with this failure.
        count: u64,
        /// Advice for this kind of failure.
        remedy: &'static str,
    },
    /// A server did not answer.
    #[error("no answer from {address} to {method} {path}")]
    NoAnswer {
        /// Host and port of the server.
        address: String,
        /// HTTP method of the request.
        method: &'static str,
        /// URL path of the request.
        path: String,
        /// Cause of the missing response.
        source: crate::RequestFailure,
    },
    /// The server refused an observation for good; a retry would fail again.
    #[error("the observation of {station} at {time} was refused with {status}: {body}")]
    Refused {
        /// Code of the weather station.
        station: String,
        /// Time of the observation, in UTC.
        time: String,
        /// Status code of the response.
        status: u16,
        /// Start of the response's body.
        body: String,
    },
    /// A data file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Path of the affected file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A data file has a line that breaks a rule.
    #[error("{}, line {line}: {what}", path.display())]
    Data {
        /// Path of the affected file.
        path: PathBuf,
        /// Line number, counted from 1.
        line: usize,
        /// The value and the rule that it breaks.
        what: String,
    },
    /// A result could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// Path of the affected file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A generator's thread could not be started.
    #[error("cannot start a generator thread")]
    Thread {
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A generator's thread ended early; its figures are lost.
    #[error("a generator thread panicked; this is a fault of the simulator")]
    ThreadDied,
}
