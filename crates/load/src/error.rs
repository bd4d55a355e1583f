//! What can end a run. What a server refuses in the course of a simulation is a figure, not an error.

use std::path::PathBuf;

/// Why a simulation or a replay could not be started or finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option's value contradicts a rule.
    #[error("--{option} = {value:?}: {rule}")]
    Option {
        /// Name of the option, without dashes.
        option: &'static str,
        /// What was given.
        value: String,
        /// What is expected.
        rule: String,
    },
    /// The registry refused what has to exist before devices can send.
    #[error("{method} {path} was answered with {status}: {body}")]
    Registry {
        /// The request's method.
        method: &'static str,
        /// The request's path.
        path: String,
        /// The answer's status code.
        status: u16,
        /// The beginning of the answer's body.
        body: String,
    },
    /// A server did not answer.
    #[error("no answer from {address} to {method} {path}")]
    NoAnswer {
        /// Host and port.
        address: String,
        /// The request's method.
        method: &'static str,
        /// The request's path.
        path: String,
        /// What happened on the way.
        source: crate::Failure,
    },
    /// The server refused an observation for good: sending it again cannot help.
    #[error("the observation of {station} at {time} was refused with {status}: {body}")]
    Refused {
        /// The station's code.
        station: String,
        /// The observation's time.
        time: String,
        /// The answer's status code.
        status: u16,
        /// The beginning of the answer's body.
        body: String,
    },
    /// A data file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A data file says something else than it should.
    #[error("{}, line {line}: {what}", path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Value and rule.
        what: String,
    },
    /// A result could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A generator's thread could not be started.
    #[error("cannot start a generator thread")]
    Thread {
        /// What the system says.
        source: std::io::Error,
    },
    /// A generator's thread ended early; its figures are lost.
    #[error("a generator thread panicked; this is a fault of the simulator")]
    ThreadDied,
}
