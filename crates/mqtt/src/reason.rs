//! Reason codes of MQTT 5 (section 2.4). Codes from 0x80 on are refusals.

/// The request is done as asked.
pub const SUCCESS: u8 = 0x00;
/// UNSUBACK: there was no such subscription.
pub const NO_SUBSCRIPTION_EXISTED: u8 = 0x11;
/// Refused for a reason that has no code of its own.
pub const UNSPECIFIED: u8 = 0x80;
/// The packet could not be read.
pub const MALFORMED: u8 = 0x81;
/// The packet breaks a rule of the protocol.
pub const PROTOCOL_ERROR: u8 = 0x82;
/// Valid, but not supported by this receiver.
pub const IMPLEMENTATION: u8 = 0x83;
/// The server does not speak this version of MQTT.
pub const UNSUPPORTED_VERSION: u8 = 0x84;
/// The client id is not allowed.
pub const BAD_CLIENT_ID: u8 = 0x85;
/// Wrong user name or password.
pub const BAD_LOGIN: u8 = 0x86;
/// The client may not do this.
pub const NOT_AUTHORISED: u8 = 0x87;
/// The server is not available.
pub const UNAVAILABLE: u8 = 0x88;
/// The server is busy; try again later.
pub const BUSY: u8 = 0x89;
/// The server is shutting down.
pub const SHUTTING_DOWN: u8 = 0x8B;
/// The authentication method is not supported.
pub const BAD_AUTHENTICATION_METHOD: u8 = 0x8C;
/// No packet came for one and a half times the keep alive.
pub const KEEP_ALIVE: u8 = 0x8D;
/// Another connection uses the same client id.
pub const TAKEN_OVER: u8 = 0x8E;
/// The topic filter is not allowed.
pub const BAD_FILTER: u8 = 0x8F;
/// The topic is not allowed.
pub const BAD_TOPIC: u8 = 0x90;
/// No message is in flight under this packet id.
pub const UNKNOWN_ID: u8 = 0x92;
/// More messages in flight than the receiver allows.
pub const RECEIVE_MAXIMUM: u8 = 0x93;
/// A topic alias of 0 or above the receiver's maximum.
pub const BAD_ALIAS: u8 = 0x94;
/// The packet is larger than the receiver allows.
pub const TOO_LARGE: u8 = 0x95;
/// A quota is used up.
pub const QUOTA: u8 = 0x97;
/// An operator has ended the connection.
pub const ADMINISTRATIVE_ACTION: u8 = 0x98;
/// The server does not support this quality of service.
pub const QOS: u8 = 0x9B;
/// Use another server for now.
pub const ANOTHER_SERVER: u8 = 0x9C;
/// Connections come faster than the server allows.
pub const CONNECTION_RATE: u8 = 0x9F;
