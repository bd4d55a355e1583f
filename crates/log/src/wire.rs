//! Reading little-endian integers and lengths that nobody has vouched for.

/// What is left to read; every step is `None` if there is not enough.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
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

    /// A text with its length (u16) in front.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = self.u16()?;
        std::str::from_utf8(self.bytes(usize::from(length))?).ok()
    }

    /// `Some` of the next u64, or `None` where the flag in front of it says so.
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

/// Writing what [`Reader`] reads.
pub(crate) trait Writer {
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

    /// Names and groups; their length is limited where they enter.
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

impl Writer for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
