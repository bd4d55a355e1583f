//! A small MQTT 3.1.1 client for generators: it publishes, sees when what it has published is confirmed, and nothing else.
//!
//! Many packets leave in one write and are worked off from one read; nothing is allocated for each message.

mod line;
mod packet;

pub(crate) use line::Line;
pub(crate) use packet::{Heard, Hello, disconnect, pingreq, publish, pubrel};
