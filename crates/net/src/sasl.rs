//! Logins by SASL (RFC 4422), which several protocols have: the mechanisms' messages, and the logins that a listener accepts.
//!
//! Not here: how a protocol carries the messages, and what it says of a refusal.

mod logins;
mod messages;
mod scram;

pub use logins::{Login, LoginCheck, Logins, ScramUser};
pub use messages::{bearer_message, plain_message};
pub use scram::{ClientFirst, ScramCredential, ScramExchange, ScramMechanism};
