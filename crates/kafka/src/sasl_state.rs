//! The mechanisms of SASL, and the progress of a connection's login.

use millstream_net::{Login, ScramExchange, ScramMechanism};

const PLAIN: &str = "PLAIN";
const OAUTHBEARER: &str = "OAUTHBEARER";

/// The progress of a connection's login.
#[derive(Debug, Default)]
pub(crate) enum SaslState {
    /// A handshake chooses a mechanism first.
    #[default]
    Initial,
    Plain,
    /// The client shows a token alone.
    OAuthBearer,
    Scram(ScramMechanism),
    /// The client's proof comes next.
    ScramProof(Box<ScramExchange>, Login),
}

impl SaslState {
    pub(crate) fn named(mechanism: &str) -> Option<Self> {
        let scram = || ScramMechanism::ALL.into_iter().find(|known| known.as_str() == mechanism);
        match mechanism {
            PLAIN => Some(Self::Plain),
            OAUTHBEARER => Some(Self::OAuthBearer),
            _ => scram().map(Self::Scram),
        }
    }
}

/// The names of all mechanisms.
pub(crate) fn mechanisms() -> impl Iterator<Item = &'static str> {
    [PLAIN, OAUTHBEARER].into_iter().chain(ScramMechanism::ALL.map(ScramMechanism::as_str))
}
