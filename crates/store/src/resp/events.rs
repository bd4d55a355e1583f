//! Keyspace events: which classes of them are on, and what has happened to a key.

use std::fmt;

use bytes::Bytes;

/// A class of events, named by the letter that `notify-keyspace-events` has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum EventClass {
    /// `K`: publish on `__keyspace@<db>__:<key>`.
    Keyspace = 1,
    /// `E`: publish on `__keyevent@<db>__:<event>`.
    Keyevent = 1 << 1,
    /// `g`: commands that work on keys of every type, such as DEL and EXPIRE.
    Generic = 1 << 2,
    /// `$`: commands on strings.
    String = 1 << 3,
    /// `x`: keys that have expired.
    Expired = 1 << 4,
    /// `e`: keys that were evicted.
    Evicted = 1 << 5,
    /// `m`: reads of keys that are not there. `A` does not include it.
    KeyMiss = 1 << 6,
    /// `n`: new keys. `A` does not include it.
    New = 1 << 7,
    /// `l`: lists, of which there are none.
    List = 1 << 8,
    /// `s`: sets, of which there are none.
    Set = 1 << 9,
    /// `h`: hashes, of which there are none.
    Hash = 1 << 10,
    /// `z`: sorted sets, of which there are none.
    SortedSet = 1 << 11,
    /// `t`: streams, of which there are none.
    Stream = 1 << 12,
    /// `d`: types of modules, of which there are none.
    Module = 1 << 13,
}

/// The letters in the order in which CONFIG GET shows them; those before `K` are all in `A`.
const LETTERS: [(u8, EventClass); 14] = [
    (b'g', EventClass::Generic),
    (b'$', EventClass::String),
    (b'l', EventClass::List),
    (b's', EventClass::Set),
    (b'h', EventClass::Hash),
    (b'z', EventClass::SortedSet),
    (b'x', EventClass::Expired),
    (b'e', EventClass::Evicted),
    (b't', EventClass::Stream),
    (b'd', EventClass::Module),
    (b'K', EventClass::Keyspace),
    (b'E', EventClass::Keyevent),
    (b'm', EventClass::KeyMiss),
    (b'n', EventClass::New),
];
/// Classes that `A` stands for.
const ALL: usize = 10;

/// Classes of events that are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventClasses(u16);

impl EventClasses {
    /// Reads a value of `notify-keyspace-events`; `None` if a letter is unknown.
    pub fn parse(letters: &[u8]) -> Option<Self> {
        let mut classes = 0;
        for letter in letters {
            classes |= match letter {
                b'A' => LETTERS[..ALL].iter().fold(0, |all, (_, class)| all | *class as u16),
                letter => LETTERS.iter().find(|(known, _)| known == letter)?.1 as u16,
            };
        }
        Some(Self(classes))
    }

    /// `true` if events of `class` are published at all: also a channel must be chosen by `K` or `E`.
    pub fn contains(self, class: EventClass) -> bool {
        self.0 & class as u16 != 0 && self.0 & (EventClass::Keyspace as u16 | EventClass::Keyevent as u16) != 0
    }

    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    pub(crate) fn from_bits(bits: u16) -> Self {
        Self(bits)
    }
}

impl fmt::Display for EventClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = |class: &EventClass| self.0 & *class as u16 != 0;
        let all = LETTERS[..ALL].iter().all(|(_, class)| has(class));
        if all {
            f.write_str("A")?;
        }
        let letters = if all { &LETTERS[ALL..] } else { &LETTERS[..] };
        letters.iter().filter(|(_, class)| has(class)).try_for_each(|(letter, _)| write!(f, "{}", char::from(*letter)))
    }
}

/// Something that has happened to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEvent {
    /// The class by which `notify-keyspace-events` selects it.
    pub class: EventClass,
    /// Its name, such as `set` or `expired`.
    pub name: &'static str,
    /// The key that has changed, expired or been evicted.
    pub key: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_shown_in_the_order_of_redis() {
        let cases = [("KEA", "AKE"), ("KE$lshzxeg", "g$lshzxeKE"), ("", ""), ("nmKEA", "AKEmn"), ("E$x", "$xE")];
        for (letters, expected) in cases {
            assert_eq!(EventClasses::parse(letters.as_bytes()).unwrap().to_string(), expected);
        }
        assert_eq!(EventClasses::parse(b"KEy"), None);
        assert!(
            !EventClasses::parse(b"A").unwrap().contains(EventClass::String),
            "without a channel nothing is published"
        );
    }
}
