//! The packets of MQTT 3.1.1 that a client which only publishes sends and hears.

/// What a client says first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hello<'a> {
    pub(crate) client: &'a str,
    pub(crate) keep_alive_s: u16,
    /// User and password.
    pub(crate) login: Option<(&'a str, &'a str)>,
}

impl Hello<'_> {
    /// CONNECT with a clean session.
    pub(crate) fn packet(&self) -> Vec<u8> {
        const CLEAN: u8 = 0x02;
        const USER_AND_PASSWORD: u8 = 0xC0;
        let flags = CLEAN | if self.login.is_some() { USER_AND_PASSWORD } else { 0 };
        let mut body = Vec::new();
        text(&mut body, "MQTT");
        body.extend([4, flags]);
        body.extend(self.keep_alive_s.to_be_bytes());
        text(&mut body, self.client);
        if let Some((user, password)) = self.login {
            text(&mut body, user);
            text(&mut body, password);
        }
        let mut packet = Vec::new();
        head(&mut packet, 0x10, body.len());
        packet.extend(body);
        packet
    }
}

/// PUBLISH; at QoS 0 the id is not sent.
pub(crate) fn publish(out: &mut Vec<u8>, qos: u8, id: u16, topic: &str, payload: &[u8]) {
    let id_bytes = if qos > 0 { 2 } else { 0 };
    head(out, 0x30 | qos << 1, 2 + topic.len() + id_bytes + payload.len());
    text(out, topic);
    if qos > 0 {
        out.extend(id.to_be_bytes());
    }
    out.extend_from_slice(payload);
}

/// PUBREL: the second half of QoS 2.
pub(crate) fn pubrel(out: &mut Vec<u8>, id: u16) {
    let [high, low] = id.to_be_bytes();
    out.extend([0x62, 2, high, low]);
}

/// PINGREQ.
pub(crate) fn pingreq(out: &mut Vec<u8>) {
    out.extend([0xC0, 0]);
}

/// DISCONNECT.
pub(crate) fn disconnect(out: &mut Vec<u8>) {
    out.extend([0xE0, 0]);
}

/// What a server says to a client that only publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// CONNACK with its return code; 0 is yes.
    Welcome(u8),
    /// PUBACK or PUBCOMP: the message with this id is the server's now.
    Done(u16),
    /// PUBREC: to be answered with PUBREL.
    Received(u16),
    /// PINGRESP: everything before the ping has been read.
    Pong,
}

/// Takes the first packet off `bytes`: what it says and how long it is. `None` while it is not complete.
///
/// # Errors
/// What no server says to such a client.
pub(crate) fn take(bytes: &[u8]) -> Result<Option<(Heard, usize)>, String> {
    let [first, length, body @ ..] = bytes else { return Ok(None) };
    let (first, length) = (*first, usize::from(*length));
    let expected = match first {
        0x20 | 0x40 | 0x50 | 0x70 => 2,
        0xD0 => 0,
        _ => return Err(format!("a packet that begins with {first:#04x} was not asked for")),
    };
    if length != expected {
        return Err(format!("a packet that begins with {first:#04x} has {expected} bytes, not {length}"));
    }
    if body.len() < length {
        return Ok(None);
    }
    let id = || u16::from_be_bytes([body[0], body[1]]);
    let heard = match first {
        0x20 => Heard::Welcome(body[1]),
        0x50 => Heard::Received(id()),
        0xD0 => Heard::Pong,
        _ => Heard::Done(id()),
    };
    Ok(Some((heard, 2 + length)))
}

fn head(out: &mut Vec<u8>, first: u8, mut length: usize) {
    out.push(first);
    while length > 0x7F {
        out.push(length as u8 & 0x7F | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

/// A text with its length before it; options see to it that none is longer than 65,535 bytes.
fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_those_of_the_standard() {
        let hello = Hello { client: "d1", keep_alive_s: 60, login: Some(("d1@t", "pw")) };
        assert_eq!(hello.packet(), b"\x10\x18\x00\x04MQTT\x04\xC2\x00\x3C\x00\x02d1\x00\x04d1@t\x00\x02pw");
        let anonymous = Hello { client: "d1", keep_alive_s: 0, login: None };
        assert_eq!(anonymous.packet(), b"\x10\x0E\x00\x04MQTT\x04\x02\x00\x00\x00\x02d1");
        let mut out = Vec::new();
        publish(&mut out, 0, 7, "t", b"x");
        publish(&mut out, 1, 7, "t", b"x");
        publish(&mut out, 2, 0x102, "t", b"");
        pubrel(&mut out, 0x102);
        pingreq(&mut out);
        disconnect(&mut out);
        let expected = b"\x30\x04\0\x01tx\x32\x06\0\x01t\0\x07x\x34\x05\0\x01t\x01\x02\x62\x02\x01\x02\xC0\0\xE0\0";
        assert_eq!(out, expected);
    }

    #[test]
    fn a_length_above_127_takes_several_bytes() {
        for (payload, length) in [(124, &[0x7F][..]), (125, &[0x80, 0x01]), (16_381, &[0x80, 0x80, 0x01])] {
            let mut out = Vec::new();
            publish(&mut out, 0, 0, "t", &vec![0; payload]);
            assert_eq!((&out[1..=length.len()], out.len()), (length, 1 + length.len() + 3 + payload));
        }
    }

    #[test]
    fn what_a_server_says_is_taken_packet_by_packet() {
        let bytes = b"\x20\x02\0\x05\x40\x02\x01\x02\x50\x02\0\x03\x70\x02\0\x04\xD0\0";
        let expected = [Heard::Welcome(5), Heard::Done(0x102), Heard::Received(3), Heard::Done(4), Heard::Pong];
        let (mut rest, mut heard) = (&bytes[..], Vec::new());
        while let Some((one, length)) = take(rest).unwrap() {
            heard.push(one);
            rest = &rest[length..];
        }
        assert_eq!((heard, rest.len()), (expected.to_vec(), 0));
        for end in 0..4 {
            assert_eq!(take(&bytes[..end]), Ok(None));
        }
        for wrong in [&b"\x30\x02\0\0"[..], b"\x40\x03\0\x01\0", b"\x40\x00", b"\0\0"] {
            assert!(take(wrong).is_err(), "{wrong:?}");
        }
    }
}
