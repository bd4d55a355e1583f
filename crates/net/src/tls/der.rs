//! Elements of DER (X.690), read in place and never beyond the end of the bytes.

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const OID: u8 = 0x06;

/// The content of an element that has this tag, and the bytes behind it.
pub(super) fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    element(bytes).filter(|(found, ..)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// Tag and content of the first element, and the bytes behind it.
pub(super) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7F => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// An element with this tag as it lies there, tag and length included, and the bytes behind it.
pub(super) fn whole(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (_, rest) = expect(bytes, tag)?;
    Some(bytes.split_at(bytes.len() - rest.len()))
}
