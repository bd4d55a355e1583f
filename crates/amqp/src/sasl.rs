//! The frames of a login (AMQP 1.0, section 5.3.3).

use crate::Error;
use crate::composite::{Composite, composite};
use crate::value::Multiple;
use crate::value::{Described, Symbol};

composite! {
    /// The ways to log in that the server has.
    #[derive(Default)]
    SaslMechanisms<'a> = 0x40 {
        /// Their names.
        mechanisms: Multiple<'a> = Multiple::None,
    }
}

composite! {
    /// The client's choice.
    SaslInit<'a> = 0x41 {
        /// The mechanism.
        mechanism: Symbol<'a>,
        /// Its first message, if it has one.
        initial_response: Option<&'a [u8]>,
        /// The host that the client wants to reach.
        hostname: Option<&'a str>,
    }
}

composite! {
    /// A message of the server.
    SaslChallenge<'a> = 0x42 {
        /// Its bytes.
        challenge: &'a [u8],
    }
}

composite! {
    /// A message of the client.
    SaslResponse<'a> = 0x43 {
        /// Its bytes.
        response: &'a [u8],
    }
}

composite! {
    /// The end of a login.
    SaslOutcome<'a> = 0x44 {
        /// 0 success, 1 refused, 2 system error, 3 permanent, 4 temporary.
        code: u8,
        /// The last message of the mechanism.
        additional_data: Option<&'a [u8]>,
    }
}

/// The body of a frame of a login.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "each is documented as its type")]
pub enum Sasl<'a> {
    Mechanisms(SaslMechanisms<'a>),
    Init(SaslInit<'a>),
    Challenge(SaslChallenge<'a>),
    Response(SaslResponse<'a>),
    Outcome(SaslOutcome<'a>),
}

impl<'a> Sasl<'a> {
    pub(crate) fn read(described: Described<'a>) -> Result<Self, Error> {
        let fields = described.fields();
        Ok(match described.descriptor {
            SaslMechanisms::DESCRIPTOR => Self::Mechanisms(SaslMechanisms::read(fields?)?),
            SaslInit::DESCRIPTOR => Self::Init(SaslInit::read(fields?)?),
            SaslChallenge::DESCRIPTOR => Self::Challenge(SaslChallenge::read(fields?)?),
            SaslResponse::DESCRIPTOR => Self::Response(SaslResponse::read(fields?)?),
            SaslOutcome::DESCRIPTOR => Self::Outcome(SaslOutcome::read(fields?)?),
            descriptor => return Err(Error::Descriptor { descriptor }),
        })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Mechanisms(mechanisms) => mechanisms.write(out),
            Self::Init(init) => init.write(out),
            Self::Challenge(challenge) => challenge.write(out),
            Self::Response(response) => response.write(out),
            Self::Outcome(outcome) => outcome.write(out),
        }
    }
}
