//! The table of commands: what each is called, takes and does. Dispatch, COMMAND, ACL CAT and statistics all read it.

mod keys_and_values;
mod registry;
mod serving;

use bytes::Bytes;

pub(crate) use registry::{CommandId, Registry};

use crate::resp::context::{Context, Outcome};
use crate::resp::session::{RespSession, WaitingCommand};

/// A command, or a subcommand of a container.
#[derive(Debug)]
pub(crate) struct RedisCommand {
    /// The name in small letters.
    pub(crate) name: &'static str,
    /// Number of arguments with the name; the least number if it is negative.
    pub(crate) arity: i8,
    pub(crate) flags: &'static [Flag],
    /// First key, last key (negative: from the end), step; all 0 if there are none.
    pub(crate) keys: (i8, i8, i8),
    /// Categories beside those that follow from the flags.
    pub(crate) categories: &'static [Category],
    pub(crate) group: Group,
    pub(crate) since: &'static str,
    pub(crate) complexity: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) run: Run,
}

/// The function that carries a command out.
pub(crate) enum Run {
    /// Works on keys, inside a transaction.
    Data(fn(&mut Context<'_>, &[Bytes]) -> Outcome),
    /// Works on the session, at once.
    Session(fn(&mut RespSession, &[Bytes]) -> Outcome),
    /// Works on the session, which may have to wait.
    Waiting(WaitingCommand),
    /// Has subcommands, which do the work.
    Container(&'static [RedisCommand]),
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Data(_) => "Data",
            Self::Session(_) => "Session",
            Self::Waiting(_) => "Waiting",
            Self::Container(_) => "Container",
        })
    }
}

macro_rules! words {
    ($(#[$attribute:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[$about])* $variant,)* }

        impl $name {
            /// The word that COMMAND and ACL CAT show.
            pub(crate) fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}

words! {
    /// A property of a command.
    Flag {
        Write = "write",
        /// Reads keys and changes none.
        ReadOnly = "readonly",
        DenyOom = "denyoom",
        Admin = "admin",
        PubSub = "pubsub",
        /// Not for scripts, of which there are none.
        NoScript = "noscript",
        Blocking = "blocking",
        /// Answered while data is loaded.
        Loading = "loading",
        /// Answered by a stale replica.
        Stale = "stale",
        /// Never put into the slow log.
        SkipSlowLog = "skip_slowlog",
        /// Takes constant time, or nearly so.
        Fast = "fast",
        NoAuth = "no_auth",
        /// Answered while a script runs.
        AllowBusy = "allow_busy",
        NoMulti = "no_multi",
    }
}

words! {
    /// A category of access control.
    Category {
        Keyspace = "keyspace",
        Read = "read",
        Write = "write",
        String = "string",
        Bitmap = "bitmap",
        PubSub = "pubsub",
        Admin = "admin",
        Fast = "fast",
        Slow = "slow",
        Blocking = "blocking",
        Dangerous = "dangerous",
        Connection = "connection",
        Transaction = "transaction",
    }
}

impl Category {
    /// In the order in which ACL CAT lists them.
    pub(crate) const ALL: &[Self] = &[
        Self::Keyspace,
        Self::Read,
        Self::Write,
        Self::String,
        Self::Bitmap,
        Self::PubSub,
        Self::Admin,
        Self::Fast,
        Self::Slow,
        Self::Blocking,
        Self::Dangerous,
        Self::Connection,
        Self::Transaction,
    ];
}

words! {
    /// The chapter that a command belongs to.
    Group {
        Generic = "generic",
        String = "string",
        Bitmap = "bitmap",
        Connection = "connection",
        Server = "server",
        PubSub = "pubsub",
        Transactions = "transactions",
        Cluster = "cluster",
    }
}

impl RedisCommand {
    pub(crate) fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    pub(crate) fn takes(&self, arguments: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { arguments >= least } else { arguments == least }
    }

    pub(crate) fn is_in(&self, category: Category) -> bool {
        match category {
            Category::Read => self.has(Flag::ReadOnly),
            Category::Write => self.has(Flag::Write),
            Category::PubSub => self.has(Flag::PubSub),
            Category::Admin => self.has(Flag::Admin),
            Category::Blocking => self.has(Flag::Blocking),
            Category::Fast => self.has(Flag::Fast),
            Category::Slow => !self.has(Flag::Fast),
            Category::Dangerous => self.has(Flag::Admin) || self.categories.contains(&category),
            other => self.categories.contains(&other),
        }
    }

    pub(crate) fn subcommands(&self) -> &'static [RedisCommand] {
        match self.run {
            Run::Container(subcommands) => subcommands,
            _ => &[],
        }
    }

    /// The places of the keys among `count` arguments.
    pub(crate) fn key_places(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let (first, last, step) = self.keys;
        let place = |place: i8| {
            if place < 0 { count.checked_sub(place.unsigned_abs().into()) } else { usize::try_from(place).ok() }
        };
        let places = match (first, place(last)) {
            (1.., Some(last)) => usize::from(first.unsigned_abs())..last.min(count.saturating_sub(1)) + 1,
            _ => 0..0,
        };
        places.step_by(usize::from(step.unsigned_abs().max(1)))
    }
}

/// Rows of the table: `name arity [flags] (keys) [categories] run, since complexity summary;`
macro_rules! commands {
    ($visibility:vis static $name:ident: $group:ident = {
        $($command:literal $arity:literal [$($flag:ident)*] $keys:tt [$($category:ident)*] $run:expr,
          $since:literal $complexity:literal $summary:literal;)*
    }) => {
        $visibility static $name: &[$crate::resp::command::RedisCommand] = &[$($crate::resp::command::RedisCommand {
            name: $command,
            arity: $arity,
            flags: &[$($crate::resp::command::Flag::$flag,)*],
            keys: $keys,
            categories: &[$($crate::resp::command::Category::$category,)*],
            group: $crate::resp::command::Group::$group,
            since: $since,
            complexity: $complexity,
            summary: $summary,
            run: $run,
        },)*];
    };
}
use commands;
