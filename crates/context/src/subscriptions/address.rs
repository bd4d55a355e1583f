//! The address of a receiver.

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    /// A name, or an IP address.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) is_tls: bool,
}
