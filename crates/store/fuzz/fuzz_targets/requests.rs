//! Any bytes at all, read as requests of a Redis client: the first byte says in which pieces they come. However they are cut,
//! they are the same requests, and end with the same error.
#![no_main]

mod resp;

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;

use crate::resp::{ProtocolError, RequestLimits, RequestParser};

fn parse(stream: &[u8], piece: usize, authenticated: bool) -> (Vec<Vec<Bytes>>, Option<ProtocolError>) {
    let limits = RequestLimits { bulk_max_bytes: 1 << 20, authenticated };
    let (mut parser, mut buffer, mut requests) = (RequestParser::default(), BytesMut::new(), Vec::new());
    for piece in stream.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            let mut arguments = Vec::new();
            match parser.next(&mut buffer, limits, &mut arguments) {
                Ok(Some(bytes)) => {
                    assert!(bytes > 0 && !arguments.is_empty());
                    requests.push(arguments);
                }
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
    }
    (requests, None)
}

fuzz_target!(|data: &[u8]| {
    let Some((head, stream)) = data.split_first() else { return };
    let (piece, authenticated) = (usize::from(head & 0x7f) + 1, head & 0x80 != 0);
    assert_eq!(parse(stream, piece, authenticated), parse(stream, usize::MAX, authenticated));
});
