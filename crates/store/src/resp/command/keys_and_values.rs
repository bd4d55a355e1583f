//! The rows of commands that work on keys and their values.

use super::{RedisCommand, Run, commands};
use crate::resp::session::{WaitingCommand, help};
use crate::resp::{bitfield, bitmaps, counters, expiry, keys, lcs, strings};

/// All tables of this file.
pub(super) const TABLES: &[&[RedisCommand]] = &[STRINGS, BITMAPS, GENERIC];

commands! {
    static STRINGS: String = {
        "append" 3 [Write DenyOom Fast] (1, 1, 1) [String] Run::Data(strings::append),
            "2.0.0" "O(1)" "Appends bytes to a value.";
        "decr" 2 [Write DenyOom Fast] (1, 1, 1) [String] Run::Data(counters::decr),
            "1.0.0" "O(1)" "Decrements an integer by one.";
        "decrby" 3 [Write DenyOom Fast] (1, 1, 1) [String] Run::Data(counters::decrby),
            "1.0.0" "O(1)" "Decrements an integer.";
        "delifeq" 3 [Write Fast] (1, 1, 1) [Keyspace String] Run::Data(keys::delifeq),
            "9.0.0" "O(1)" "Deletes a key if its value is the given one.";
        "get" 2 [ReadOnly Fast] (1, 1, 1) [String] Run::Data(strings::get),
            "1.0.0" "O(1)" "Returns a value.";
        "getdel" 2 [Write Fast] (1, 1, 1) [String] Run::Data(strings::getdel),
            "6.2.0" "O(1)" "Returns a value and deletes its key.";
        "getex" -2 [Write Fast] (1, 1, 1) [String] Run::Data(strings::getex),
            "6.2.0" "O(1)" "Returns a value and sets or removes its expiry.";
        "getrange" 4 [ReadOnly] (1, 1, 1) [String] Run::Data(strings::getrange),
            "2.4.0" "O(N)" "Returns a part of a value.";
        "getset" 3 [Write DenyOom Fast] (1, 1, 1) [String] Run::Data(strings::getset),
            "1.0.0" "O(1)" "Sets a value and returns the old one.";
        "incr" 2 [Write DenyOom Fast] (1, 1, 1) [String] Run::Data(counters::incr),
            "1.0.0" "O(1)" "Increments an integer by one.";
        "incrby" 3 [Write DenyOom Fast] (1, 1, 1) [String] Run::Data(counters::incrby),
            "1.0.0" "O(1)" "Increments an integer.";
        "incrbyfloat" 3 [Write DenyOom Fast] (1, 1, 1) [String] Run::Data(counters::incrbyfloat),
            "2.6.0" "O(1)" "Increments a floating-point number.";
        "lcs" -3 [ReadOnly] (1, 2, 1) [String] Run::Data(lcs::lcs),
            "7.0.0" "O(N*M)" "Finds the longest common subsequence of two values.";
        "mget" -2 [ReadOnly Fast] (1, -1, 1) [String] Run::Data(strings::mget),
            "1.0.0" "O(N)" "Returns the values of keys.";
        "mset" -3 [Write DenyOom] (1, -1, 2) [String] Run::Data(strings::mset),
            "1.0.1" "O(N)" "Sets the values of keys.";
        "msetnx" -3 [Write DenyOom] (1, -1, 2) [String] Run::Data(strings::msetnx),
            "1.0.1" "O(N)" "Sets the values of keys if none of them is there.";
        "psetex" 4 [Write DenyOom] (1, 1, 1) [String] Run::Data(strings::psetex),
            "2.6.0" "O(1)" "Sets a value that expires after milliseconds.";
        "set" -3 [Write DenyOom] (1, 1, 1) [String] Run::Data(strings::set),
            "1.0.0" "O(1)" "Sets a value.";
        "setex" 4 [Write DenyOom] (1, 1, 1) [String] Run::Data(strings::setex),
            "2.0.0" "O(1)" "Sets a value that expires after seconds.";
        "setnx" 3 [Write DenyOom Fast] (1, 1, 1) [String] Run::Data(strings::setnx),
            "1.0.0" "O(1)" "Sets a value if the key is not there.";
        "setrange" 4 [Write DenyOom] (1, 1, 1) [String] Run::Data(strings::setrange),
            "2.2.0" "O(1)" "Overwrites a part of a value.";
        "strlen" 2 [ReadOnly Fast] (1, 1, 1) [String] Run::Data(strings::strlen),
            "2.2.0" "O(1)" "Returns the length of a value.";
        "substr" 4 [ReadOnly] (1, 1, 1) [String] Run::Data(strings::getrange),
            "1.0.0" "O(N)" "Returns a part of a value; the older name of GETRANGE.";
    }
}

commands! {
    static BITMAPS: Bitmap = {
        "bitcount" -2 [ReadOnly] (1, 1, 1) [Bitmap] Run::Data(bitmaps::bitcount),
            "2.6.0" "O(N)" "Counts the bits that are set.";
        "bitfield" -2 [Write DenyOom] (1, 1, 1) [Bitmap] Run::Data(bitfield::bitfield),
            "3.2.0" "O(1)" "Reads and writes integers of any width inside a value.";
        "bitfield_ro" -2 [ReadOnly Fast] (1, 1, 1) [Bitmap] Run::Data(bitfield::bitfield_ro),
            "6.0.0" "O(1)" "Reads integers of any width inside a value.";
        "bitop" -4 [Write DenyOom] (2, -1, 1) [Bitmap] Run::Data(bitmaps::bitop),
            "2.6.0" "O(N)" "Combines values bit by bit and stores the result.";
        "bitpos" -3 [ReadOnly] (1, 1, 1) [Bitmap] Run::Data(bitmaps::bitpos),
            "2.8.7" "O(N)" "Finds the first bit that is set or clear.";
        "getbit" 3 [ReadOnly Fast] (1, 1, 1) [Bitmap] Run::Data(bitmaps::getbit),
            "2.2.0" "O(1)" "Returns a bit.";
        "setbit" 4 [Write DenyOom] (1, 1, 1) [Bitmap] Run::Data(bitmaps::setbit),
            "2.2.0" "O(1)" "Sets or clears a bit.";
    }
}

commands! {
    static GENERIC: Generic = {
        "copy" -3 [Write DenyOom] (1, 2, 1) [Keyspace] Run::Data(keys::copy),
            "6.2.0" "O(N)" "Copies a value to another key.";
        "del" -2 [Write] (1, -1, 1) [Keyspace] Run::Data(keys::del),
            "1.0.0" "O(N)" "Deletes keys.";
        "exists" -2 [ReadOnly Fast] (1, -1, 1) [Keyspace] Run::Data(keys::exists),
            "1.0.0" "O(N)" "Counts the keys that are there.";
        "expire" -3 [Write Fast] (1, 1, 1) [Keyspace] Run::Data(expiry::expire),
            "1.0.0" "O(1)" "Sets the expiry of a key in seconds.";
        "expireat" -3 [Write Fast] (1, 1, 1) [Keyspace] Run::Data(expiry::expireat),
            "1.2.0" "O(1)" "Sets the expiry of a key to a Unix time.";
        "expiretime" 2 [ReadOnly Fast] (1, 1, 1) [Keyspace] Run::Data(expiry::expiretime),
            "7.0.0" "O(1)" "Returns the Unix time at which a key expires.";
        "keys" 2 [ReadOnly] (0, 0, 0) [Keyspace Dangerous] Run::Waiting(WaitingCommand::Keys),
            "1.0.0" "O(N)" "Lists the keys that match a pattern.";
        "object" -2 [] (0, 0, 0) [] Run::Container(OBJECT),
            "2.2.3" "O(N)" "Looks into keys.";
        "persist" 2 [Write Fast] (1, 1, 1) [Keyspace] Run::Data(expiry::persist),
            "2.2.0" "O(1)" "Removes the expiry of a key.";
        "pexpire" -3 [Write Fast] (1, 1, 1) [Keyspace] Run::Data(expiry::pexpire),
            "2.6.0" "O(1)" "Sets the expiry of a key in milliseconds.";
        "pexpireat" -3 [Write Fast] (1, 1, 1) [Keyspace] Run::Data(expiry::pexpireat),
            "2.6.0" "O(1)" "Sets the expiry of a key to a Unix time in milliseconds.";
        "pexpiretime" 2 [ReadOnly Fast] (1, 1, 1) [Keyspace] Run::Data(expiry::pexpiretime),
            "7.0.0" "O(1)" "Returns the Unix time in milliseconds at which a key expires.";
        "pttl" 2 [ReadOnly Fast] (1, 1, 1) [Keyspace] Run::Data(expiry::pttl),
            "2.6.0" "O(1)" "Returns the milliseconds until a key expires.";
        "randomkey" 1 [ReadOnly] (0, 0, 0) [Keyspace] Run::Waiting(WaitingCommand::RandomKey),
            "1.0.0" "O(1)" "Returns a key by chance.";
        "rename" 3 [Write] (1, 2, 1) [Keyspace] Run::Data(keys::rename),
            "1.0.0" "O(1)" "Renames a key and replaces the new one.";
        "renamenx" 3 [Write Fast] (1, 2, 1) [Keyspace] Run::Data(keys::renamenx),
            "1.0.0" "O(1)" "Renames a key if the new name is free.";
        "scan" -2 [ReadOnly] (0, 0, 0) [Keyspace] Run::Waiting(WaitingCommand::Scan),
            "2.8.0" "O(1)" "Lists keys page by page.";
        "touch" -2 [ReadOnly Fast] (1, -1, 1) [Keyspace] Run::Data(keys::exists),
            "3.2.1" "O(N)" "Counts the keys that are there.";
        "ttl" 2 [ReadOnly Fast] (1, 1, 1) [Keyspace] Run::Data(expiry::ttl),
            "1.0.0" "O(1)" "Returns the seconds until a key expires.";
        "type" 2 [ReadOnly Fast] (1, 1, 1) [Keyspace] Run::Data(keys::type_of),
            "1.0.0" "O(1)" "Returns the type of a value.";
        "unlink" -2 [Write Fast] (1, -1, 1) [Keyspace] Run::Data(keys::del),
            "4.0.0" "O(1)" "Deletes keys.";
        "wait" 3 [NoScript] (0, 0, 0) [Connection] Run::Waiting(WaitingCommand::Wait),
            "3.0.0" "O(1)" "Waits for replicas, of which there are none.";
        "waitaof" 4 [NoScript] (0, 0, 0) [Connection] Run::Waiting(WaitingCommand::WaitAof),
            "7.2.0" "O(1)" "Waits until the writes of this connection are synced to disk.";
    }
}

commands! {
    static OBJECT: Generic = {
        "encoding" 3 [ReadOnly] (2, 2, 1) [Keyspace] Run::Data(keys::object_encoding),
            "2.2.3" "O(1)" "Tells how Redis would keep a value.";
        "freq" 3 [ReadOnly] (2, 2, 1) [Keyspace] Run::Data(keys::object_freq),
            "4.0.0" "O(1)" "Tells how often a key of a cache is used.";
        "help" 2 [Loading Stale] (0, 0, 0) [Keyspace] Run::Session(help::object),
            "6.2.0" "O(1)" "Lists the subcommands.";
        "idletime" 3 [ReadOnly] (2, 2, 1) [Keyspace] Run::Data(keys::object_idletime),
            "2.2.3" "O(1)" "Tells how long a key of a cache has not been used.";
        "refcount" 3 [ReadOnly] (2, 2, 1) [Keyspace] Run::Data(keys::object_refcount),
            "2.2.3" "O(1)" "Tells how often a value is referred to.";
    }
}
