use proptest::prelude::*;

use super::*;

const LIMITS: RequestLimits = RequestLimits { bulk_max_bytes: 512 << 20, authenticated: true };

/// All requests of a stream that comes in `chunks`, and the error that ends it.
fn parse<'a>(
    chunks: impl IntoIterator<Item = &'a [u8]>,
    limits: RequestLimits,
) -> (Vec<Vec<Bytes>>, Option<ProtocolError>) {
    let (mut parser, mut buffer, mut requests) = (RequestParser::default(), BytesMut::new(), Vec::new());
    for chunk in chunks {
        buffer.extend_from_slice(chunk);
        loop {
            let mut arguments = Vec::new();
            match parser.next(&mut buffer, limits, &mut arguments) {
                Ok(Some(_)) => requests.push(arguments),
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
    }
    (requests, None)
}

fn array(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[test]
fn what_breaks_the_protocol_is_named_as_redis_names_it() {
    let long = vec![b'1'; LINE_MAX_BYTES + 1];
    let cases: &[(&[u8], &str)] = &[
        (b"*3000000000\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\nfooz\r\n", "expected '$', got 'f'"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$-10\r\n", "invalid bulk length"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$2000000000\r\n", "invalid bulk length"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$blabla\r\n", "invalid bulk length"),
        (b"*1\r\n$1099511627776\r\n", "invalid bulk length"),
        (b"*1\r\n\r\n", "expected '$', got '\r'"),
        (b"set x \"a\n", "unbalanced quotes in request"),
        (&[b"*", &long[..]].concat(), "too big mbulk count string"),
        (&[b"*1\r\n$", &long[..]].concat(), "too big bulk count string"),
        (&long, "too big inline request"),
        (&[&long[..], b"\r\n"].concat(), "too big inline request"),
    ];
    for (stream, expected) in cases {
        let (_, error) = parse([*stream], LIMITS);
        let shown = stream.get(..80).unwrap_or(stream).escape_ascii();
        assert_eq!(error.map(|error| error.to_string()), Some(format!("Protocol error: {expected}")), "{shown}");
    }
}

#[test]
fn clients_that_have_not_logged_in_may_send_little() {
    let limits = RequestLimits { authenticated: false, ..LIMITS };
    let check = |stream: &[u8], expected: Option<ProtocolError>| assert_eq!(parse([stream], limits).1, expected);
    check(&array(&vec![b"a".to_vec(); 10]), None);
    check(b"*11\r\n", Some(ProtocolError::UnauthenticatedCount));
    check(&array(&[vec![b'a'; 16 << 10]]), None);
    check(b"*1\r\n$16385\r\n", Some(ProtocolError::UnauthenticatedLength));
}

#[test]
fn empty_requests_are_skipped() {
    let (requests, error) = parse([&b"\r\n\n*0\r\n*-1\r\n  \r\nPING\r\n*-10\r\n"[..]], LIMITS);
    assert_eq!((requests, error), (vec![vec![Bytes::from("PING")]], None));
}

#[test]
fn a_long_announced_argument_takes_no_memory_before_it_comes() {
    let (mut parser, mut buffer) = (RequestParser::default(), BytesMut::from(&b"*1000000\r\n$500000000\r\nabc"[..]));
    assert_eq!(parser.next(&mut buffer, LIMITS, &mut Vec::new()), Ok(None));
    assert!(buffer.capacity() < 4 << 20, "{}", buffer.capacity());
    assert!(parser.arguments.capacity() < 4_096, "{}", parser.arguments.capacity());
}

/// Streams of requests: arrays, lines, and some that are broken.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let request = prop_oneof![
        6 => prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5).prop_map(|arguments| array(&arguments)),
        2 => "[a-z \"'\\\\]{0,20}\r?\n".prop_map(String::into_bytes),
        1 => prop::collection::vec(prop::sample::select(b"*$123\r\n-a".to_vec()), 0..12),
    ];
    prop::collection::vec(request, 0..8).prop_map(|requests| requests.concat())
}

proptest! {
    #[test]
    fn arrays_come_back_as_they_were_written(arguments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..99), 1..9)) {
        let expected: Vec<Bytes> = arguments.iter().cloned().map(Bytes::from).collect();
        prop_assert_eq!(parse([&array(&arguments)[..]], LIMITS), (vec![expected], None));
    }

    #[test]
    fn how_a_stream_is_cut_never_changes_its_requests(stream in streams(), cuts in prop::collection::vec(1usize..30, 0..40)) {
        let mut chunks = Vec::new();
        let mut rest = &stream[..];
        for cut in cuts {
            let (chunk, after) = rest.split_at(cut.min(rest.len()));
            chunks.push(chunk);
            rest = after;
        }
        chunks.push(rest);
        let whole = parse([&stream[..]], LIMITS);
        prop_assert_eq!(&parse(chunks, LIMITS), &whole);
        prop_assert_eq!(&parse(stream.chunks(1), LIMITS), &whole);
    }
}
