//! Encodes and decodes little-endian integers and texts; decoding trusts no length.

/// The bytes still to be decoded; each method returns `None` if too few are left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WireReader<'a>(&'a [u8]);

impl<'a> WireReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    /// A text after its length (u16).
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = self.u16()?;
        std::str::from_utf8(self.bytes(usize::from(length))?).ok()
    }

    /// A u64 after a flag (u8): 0 for none, 1 for some.
    pub(crate) fn optional_u64(&mut self) -> Option<Option<u64>> {
        match (self.u8()?, self.u64()?) {
            (0, 0) => Some(None),
            (1, value) => Some(Some(value)),
            _ => None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Encodes the values that [`WireReader`] decodes.
pub(crate) trait WireWriter {
    fn put(&mut self, bytes: &[u8]);

    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    fn put_i64(&mut self, value: i64) {
        self.put(&value.to_le_bytes());
    }

    fn put_u128(&mut self, value: u128) {
        self.put(&value.to_le_bytes());
    }

    /// A name or a group, whose length was limited when it was accepted.
    fn put_text(&mut self, text: &str) {
        let length = u16::try_from(text.len()).expect("texts are limited to 64 KiB where they enter");
        self.put_u16(length);
        self.put(text.as_bytes());
    }

    fn put_optional_u64(&mut self, value: Option<u64>) {
        self.put_u8(u8::from(value.is_some()));
        self.put_u64(value.unwrap_or(0));
    }
}

impl WireWriter for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
