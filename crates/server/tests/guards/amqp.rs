//! Receivers and senders over AMQP 1.0, as far as they are needed here: a client writes all that it wants at once, and looks whether it is let in.

use std::io::{Read, Write};

use millstream_amqp::{
    Attach, Begin, Body, Flow, Framed, HEADER_BYTES, MapBuilder, Open, Performative, ProtocolHeader, Sasl, SaslInit,
    Source, Symbol, Target, TargetTerminus, Transfer, Value, frame, write_frame, write_sasl,
};

/// Credit that a receiver grants.
const CREDIT: u32 = 100_000;

/// Appends a login by PLAIN.
pub(crate) fn log_in(out: &mut Vec<u8>, name: &str, secret: &str) {
    out.extend_from_slice(&ProtocolHeader::Sasl.bytes());
    let answer = format!("\0{name}\0{secret}");
    let init = SaslInit { mechanism: Symbol("PLAIN"), initial_response: Some(answer.as_bytes()), hostname: None };
    write_sasl(out, &Sasl::Init(init));
}

/// Appends what opens a connection and attaches so many receivers of an address with credit.
pub(crate) fn receive(out: &mut Vec<u8>, address: &str, links: u32) {
    receive_as(out, address, links, "");
}

/// The same, where each receiver has all records for itself, by a name that begins so.
pub(crate) fn receive_as(out: &mut Vec<u8>, address: &str, links: u32, subscription: &str) {
    out.extend_from_slice(&ProtocolHeader::Amqp.bytes());
    let mut write = |performative: Performative<'_>| write_frame(out, 0, &performative, &[]);
    write(Performative::Open(Open { container_id: "guards", max_frame_size: 1 << 20, ..Open::default() }));
    let window = Begin { incoming_window: CREDIT, outgoing_window: 1, ..Begin::default() };
    write(Performative::Begin(window));
    for handle in 0..links {
        let source = Some(Source { address: Some(Value::String(address)), ..Source::default() });
        let name = format!("link-{handle}");
        let (mut properties, own) = (MapBuilder::default(), format!("{subscription}-{handle}"));
        if !subscription.is_empty() {
            properties.symbol("subscription-name", Value::String(&own));
        }
        let properties = Some(properties.as_map());
        write(Performative::Attach(Attach {
            name: &name,
            handle,
            role: true,
            source,
            properties,
            ..Attach::default()
        }));
        let credit = Flow {
            incoming_window: CREDIT,
            outgoing_window: 1,
            handle: Some(handle),
            link_credit: Some(CREDIT),
            ..Flow::default()
        };
        write(Performative::Flow(credit));
    }
}

/// Appends what opens a connection and attaches so many senders to an address, and the beginning of a message for each.
pub(crate) fn send_parts(out: &mut Vec<u8>, address: &str, links: u32, part: &[u8]) {
    out.extend_from_slice(&ProtocolHeader::Amqp.bytes());
    let open = Open { container_id: "guards", max_frame_size: 1 << 20, ..Open::default() };
    write_frame(out, 0, &Performative::Open(open), &[]);
    let window = Begin { incoming_window: 100, outgoing_window: CREDIT, ..Begin::default() };
    write_frame(out, 0, &Performative::Begin(window), &[]);
    for handle in 0..links {
        let target = TargetTerminus::Node(Target { address: Some(Value::String(address)), ..Target::default() });
        let name = format!("sender-{handle}");
        let attach = Attach {
            name: &name,
            handle,
            source: Some(Source::default()),
            target: Some(target),
            initial_delivery_count: Some(0),
            ..Attach::default()
        };
        write_frame(out, 0, &Performative::Attach(attach), &[]);
        let (mut id, tag) = (Some(handle), handle.to_be_bytes());
        for part in part.chunks(8_000) {
            let delivery_tag = id.map(|_| &tag[..]);
            let transfer = Transfer { handle, delivery_id: id.take(), delivery_tag, more: true, ..Transfer::default() };
            write_frame(out, 0, &Performative::Transfer(transfer), part);
        }
    }
}

/// Reads the answers up to that to the last of so many links; the reason if one is refused, or the connection ends.
pub(crate) fn let_in(client: &mut (impl Read + ?Sized), links: u32) -> Result<(), String> {
    loop {
        let mut head = [0; HEADER_BYTES];
        client.read_exact(&mut head).map_err(|error| error.to_string())?;
        if head.starts_with(b"AMQP") {
            continue;
        }
        let size = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let mut bytes = head.to_vec();
        bytes.resize(size, 0);
        client.read_exact(&mut bytes[HEADER_BYTES..]).map_err(|error| error.to_string())?;
        let Ok(Framed::Whole(whole)) = frame(&bytes, usize::MAX) else { panic!("{bytes:?}") };
        match whole.body().unwrap() {
            Body::Sasl(Sasl::Outcome(outcome)) if outcome.code != 0 => return Err(format!("code {}", outcome.code)),
            Body::Amqp { performative: Performative::Attach(attach), .. } => match attach.source {
                None => return Err("detached".to_owned()),
                Some(_) if attach.handle + 1 == links => return Ok(()),
                Some(_) => {}
            },
            Body::Amqp { performative: Performative::Close(close), .. } => return Err(format!("{close:?}")),
            _ => {}
        }
    }
}

/// Writes what a client wants, and looks whether it is let in.
pub(crate) fn enter(client: &mut (impl Read + Write), wanted: &[u8], links: u32) -> Result<(), String> {
    client.write_all(wanted).map_err(|error| error.to_string())?;
    let_in(client, links)
}
