//! A frame in parts: what was encoded for it, and stored batches as they lie, which are not copied into it.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};
use millstream_types::Grant;

/// What goes to a socket, part by part.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    parts: VecDeque<Bytes>,
    bytes: usize,
    /// What it takes of the memory budget, until all of it is gone.
    memory: Vec<Grant>,
}

impl Parts {
    /// Adds `part` at the end.
    pub(crate) fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.bytes += part.len();
            self.parts.push_back(part);
        }
    }

    /// Adds all of `other` at the end.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.bytes += other.bytes;
        self.parts.append(&mut other.parts);
        self.memory.append(&mut other.memory);
    }

    /// Takes over what was taken of the memory budget for it.
    pub(crate) fn hold(&mut self, memory: Option<Grant>) {
        self.memory.extend(memory);
    }

    /// Adds `part` at the start.
    pub(crate) fn push_front(&mut self, part: Bytes) {
        self.bytes += part.len();
        self.parts.push_front(part);
    }
}

impl Buf for Parts {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.parts.front().map_or(&[], |part| part)
    }

    fn advance(&mut self, count: usize) {
        assert!(count <= self.bytes, "only what is there is passed over");
        self.bytes -= count;
        let mut left = count;
        while let Some(first) = self.parts.front_mut() {
            if left < first.len() {
                first.advance(left);
                return;
            }
            left -= first.len();
            self.parts.pop_front();
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let filled = slices.iter_mut().zip(&self.parts);
        filled.map(|(slice, part)| *slice = IoSlice::new(part)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_one_buffer_however_it_is_advanced() {
        for step in 1..8 {
            let mut parts = Parts::default();
            ["bc", "", "defg"].iter().for_each(|part| parts.push(Bytes::from_static(part.as_bytes())));
            let mut last = Parts::default();
            last.push(Bytes::from_static(b"h"));
            parts.append(last);
            parts.push_front(Bytes::from_static(b"a"));
            let mut slices = [IoSlice::new(&[]); 3];
            assert_eq!((parts.chunks_vectored(&mut slices), &*slices[2]), (3, &b"defg"[..]));
            let mut seen = Vec::new();
            while parts.has_remaining() {
                let count = step.min(parts.remaining());
                seen.extend_from_slice(&parts.copy_to_bytes(count));
            }
            assert_eq!(seen, b"abcdefgh", "{step} at a time");
        }
    }
}
