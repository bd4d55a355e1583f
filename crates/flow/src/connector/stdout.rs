//! The sink `stdout`: prints each record on a line of the process's standard output.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Blocking, ConnectorContext, Sink, Waker, Written};
use crate::Error;
use crate::batch::Batch;
use crate::document::{NodeType, Role};

pub(super) const SINK: NodeType = NodeType {
    name: "stdout",
    role: Role::Sink,
    summary: "Prints each record on a line of the server's standard output.",
    keys: &[],
    can_end: false,
};

struct Stdout {
    blocking: Arc<Blocking>,
    waker: Waker,
    is_writing: Arc<AtomicBool>,
}

pub(super) fn sink(context: &ConnectorContext<'_>) -> Result<Box<dyn Sink>, Error> {
    let blocking = Arc::clone(&context.services()?.blocking);
    Ok(Box::new(Stdout { blocking, waker: Arc::clone(&context.waker), is_writing: Arc::default() }))
}

impl Sink for Stdout {
    fn write(&mut self, batch: &Batch) -> Result<Written, Error> {
        if self.is_writing.swap(true, Ordering::AcqRel) {
            return Ok(Written::NotYet(None));
        }
        let (batch, is_writing, waker) = (batch.clone(), Arc::clone(&self.is_writing), Arc::clone(&self.waker));
        self.blocking.run(move || {
            let mut out = std::io::stdout().lock();
            for row in 0..batch.len() {
                let line = batch.payload(row).unwrap_or(b"null");
                // Nobody reads it any more: the records count as written.
                if out.write_all(line).and_then(|()| out.write_all(b"\n")).is_err() {
                    break;
                }
            }
            let _ = out.flush();
            drop(out);
            drop(batch);
            is_writing.store(false, Ordering::Release);
            waker();
        });
        Ok(Written::Taken)
    }
}
