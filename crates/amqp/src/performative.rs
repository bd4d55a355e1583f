//! The performatives (AMQP 1.0, section 2.7).

use crate::Error;
use crate::composite::{Composite, composite};
use crate::delivery_state::{DeliveryState, ErrorInfo};
use crate::terminus::{Source, TargetTerminus};
use crate::value::{Described, Symbol};
use crate::value::{Map, Multiple};

composite! {
    /// Opens a connection.
    #[derive(Default)]
    Open<'a> = 0x10 {
        /// The sender's name.
        container_id: &'a str,
        /// The host that it wants to reach.
        hostname: Option<&'a str>,
        /// Largest frame that it takes, bytes.
        max_frame_size: u32 = u32::MAX,
        /// Highest channel that it takes.
        channel_max: u16 = u16::MAX,
        /// Time without frames after which it closes, milliseconds.
        idle_time_out: Option<u32>,
        /// Languages of its texts.
        outgoing_locales: Multiple<'a> = Multiple::None,
        /// Languages that it understands.
        incoming_locales: Multiple<'a> = Multiple::None,
        /// Extensions that it has.
        offered_capabilities: Multiple<'a> = Multiple::None,
        /// Extensions that it wants.
        desired_capabilities: Multiple<'a> = Multiple::None,
        /// More about the sender.
        properties: Option<Map<'a>>,
    }
}

composite! {
    /// Begins a session.
    #[derive(Default)]
    Begin<'a> = 0x11 {
        /// The channel of the peer's half, in an answer.
        remote_channel: Option<u16>,
        /// The id of the next transfer.
        next_outgoing_id: u32,
        /// Transfers that it takes.
        incoming_window: u32,
        /// Transfers that it keeps.
        outgoing_window: u32,
        /// Highest handle of a link that it takes.
        handle_max: u32 = u32::MAX,
        /// Extensions that it has.
        offered_capabilities: Multiple<'a> = Multiple::None,
        /// Extensions that it wants.
        desired_capabilities: Multiple<'a> = Multiple::None,
        /// More about the session.
        properties: Option<Map<'a>>,
    }
}

composite! {
    /// Attaches a link.
    #[derive(Default)]
    Attach<'a> = 0x12 {
        /// Its name; with the direction it is unique between two containers.
        name: &'a str,
        /// Its number in the session.
        handle: u32,
        /// False for a sender, true for a receiver.
        role: bool,
        /// 0 unsettled, 1 settled, 2 mixed.
        snd_settle_mode: u8 = 2,
        /// 0 first, 1 second.
        rcv_settle_mode: u8 = 0,
        /// The end that sends.
        source: Option<Source<'a>>,
        /// The end that receives.
        target: Option<TargetTerminus<'a>>,
        /// Deliveries that are not settled.
        unsettled: Option<Map<'a>>,
        /// True if those are not all.
        incomplete_unsettled: bool = false,
        /// The count of deliveries at which a sender begins.
        initial_delivery_count: Option<u32>,
        /// Largest message that it takes, bytes; 0 or none for any.
        max_message_size: Option<u64>,
        /// Extensions that it has.
        offered_capabilities: Multiple<'a> = Multiple::None,
        /// Extensions that it wants.
        desired_capabilities: Multiple<'a> = Multiple::None,
        /// More about the link.
        properties: Option<Map<'a>>,
    }
}

composite! {
    /// Tells the windows of a session and the credit of a link.
    #[derive(Default)]
    Flow<'a> = 0x13 {
        /// The id of the next transfer that it expects; none before it knows.
        next_incoming_id: Option<u32>,
        /// Transfers that it takes.
        incoming_window: u32,
        /// The id of its next transfer.
        next_outgoing_id: u32,
        /// Transfers that it keeps.
        outgoing_window: u32,
        /// The link; none for the session alone.
        handle: Option<u32>,
        /// The sender's count of deliveries.
        delivery_count: Option<u32>,
        /// Deliveries that may be sent beyond that count.
        link_credit: Option<u32>,
        /// Messages that wait at the sender.
        available: Option<u32>,
        /// True if the credit is to be used up at once.
        drain: bool = false,
        /// True if the peer is to answer with its own.
        echo: bool = false,
        /// More about the link.
        properties: Option<Map<'a>>,
    }
}

composite! {
    /// Carries a message, or a part of one, in the bytes behind it.
    #[derive(Default)]
    Transfer<'a> = 0x14 {
        /// The link.
        handle: u32,
        /// The id of the delivery; in the first of its frames.
        delivery_id: Option<u32>,
        /// The name of the delivery; in the first of its frames.
        delivery_tag: Option<&'a [u8]>,
        /// The format of the message; 0 is AMQP's.
        message_format: Option<u32>,
        /// True if the sender has forgotten it.
        settled: Option<bool>,
        /// True if more of the message follows.
        more: bool = false,
        /// The mode of settlement of this delivery.
        rcv_settle_mode: Option<u8>,
        /// The state at the sender.
        state: Option<DeliveryState<'a>>,
        /// True for a delivery that is resumed.
        resume: bool = false,
        /// True if the delivery ends without its rest.
        aborted: bool = false,
        /// True if its outcome need not be told at once.
        batchable: bool = false,
    }
}

composite! {
    /// Tells the state of deliveries.
    #[derive(Default)]
    Disposition<'a> = 0x15 {
        /// The role of the one who tells: false for the sender.
        role: bool,
        /// The first delivery.
        first: u32,
        /// The last one; the first if it is left out.
        last: Option<u32>,
        /// True if the teller has forgotten them.
        settled: bool = false,
        /// Their state.
        state: Option<DeliveryState<'a>>,
        /// True if the effect need not be told at once.
        batchable: bool = false,
    }
}

composite! {
    /// Detaches a link.
    #[derive(Default)]
    Detach<'a> = 0x16 {
        /// The link.
        handle: u32,
        /// True if it is closed for good.
        closed: bool = false,
        /// The cause.
        error: Option<ErrorInfo<'a>>,
    }
}

composite! {
    /// Ends a session.
    #[derive(Default)]
    End<'a> = 0x17 {
        /// The cause.
        error: Option<ErrorInfo<'a>>,
    }
}

composite! {
    /// Closes a connection.
    #[derive(Default)]
    Close<'a> = 0x18 {
        /// The cause.
        error: Option<ErrorInfo<'a>>,
    }
}

/// A performative.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "each is documented as its type")]
#[allow(clippy::large_enum_variant, reason = "it is read on the stack, once a frame, and not kept")]
pub enum Performative<'a> {
    Open(Open<'a>),
    Begin(Begin<'a>),
    Attach(Attach<'a>),
    Flow(Flow<'a>),
    Transfer(Transfer<'a>),
    Disposition(Disposition<'a>),
    Detach(Detach<'a>),
    End(End<'a>),
    Close(Close<'a>),
}

impl<'a> Performative<'a> {
    pub(crate) fn read(described: Described<'a>) -> Result<Self, Error> {
        let fields = described.fields();
        Ok(match described.descriptor {
            Open::DESCRIPTOR => Self::Open(Open::read(fields?)?),
            Begin::DESCRIPTOR => Self::Begin(Begin::read(fields?)?),
            Attach::DESCRIPTOR => Self::Attach(Attach::read(fields?)?),
            Flow::DESCRIPTOR => Self::Flow(Flow::read(fields?)?),
            Transfer::DESCRIPTOR => Self::Transfer(Transfer::read(fields?)?),
            Disposition::DESCRIPTOR => Self::Disposition(Disposition::read(fields?)?),
            Detach::DESCRIPTOR => Self::Detach(Detach::read(fields?)?),
            End::DESCRIPTOR => Self::End(End::read(fields?)?),
            Close::DESCRIPTOR => Self::Close(Close::read(fields?)?),
            descriptor => return Err(Error::Descriptor { descriptor }),
        })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Open(open) => open.write(out),
            Self::Begin(begin) => begin.write(out),
            Self::Attach(attach) => attach.write(out),
            Self::Flow(flow) => flow.write(out),
            Self::Transfer(transfer) => transfer.write(out),
            Self::Disposition(disposition) => disposition.write(out),
            Self::Detach(detach) => detach.write(out),
            Self::End(end) => end.write(out),
            Self::Close(close) => close.write(out),
        }
    }
}

impl<'a> ErrorInfo<'a> {
    /// An error with a text.
    pub fn new(condition: &'a str, description: &'a str) -> Self {
        Self { condition: Symbol(condition), description: Some(description), info: None }
    }
}
