//! A source or sink of a file on a server whose jobs may use none: it waits, so that its job goes on once they may.

use std::time::Duration;

use super::location::FILES_DIR;
use crate::Error;
use crate::batch::Batch;
use crate::connector::{Polled, Sink, Source, Started, Written};
use crate::delivery::SourcePosition;

pub(super) struct NoFiles {
    pub(super) path: String,
}

impl NoFiles {
    fn reason(&self) -> Started {
        Started::NotYet(format!(
            "waits: '{}' is a file, and jobs of this server may use none; set {FILES_DIR} to the directory of their files",
            self.path
        ))
    }
}

impl Source for NoFiles {
    fn start(&mut self) -> Result<Started, Error> {
        Ok(self.reason())
    }

    fn poll(&mut self, _: usize) -> Result<Polled, Error> {
        Ok(Polled::NotYet(None))
    }

    fn finished(&mut self, _: &[SourcePosition]) -> Option<Duration> {
        None
    }

    fn is_settled(&self) -> bool {
        true
    }
}

impl Sink for NoFiles {
    fn start(&mut self) -> Result<Started, Error> {
        Ok(self.reason())
    }

    fn write(&mut self, _: &Batch) -> Result<Written, Error> {
        Ok(Written::NotYet(None))
    }
}
