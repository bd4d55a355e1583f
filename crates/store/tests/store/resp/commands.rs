//! Data commands: replies and error texts as Redis 7.0 gives them.

use super::client::Server;

const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range";
const SYNTAX: &str = "-ERR syntax error";

#[test]
fn set_and_its_options() {
    Server::new().client().check(&[
        ("set a 1", "+OK"),
        ("get a", "$1 1"),
        ("set a 2 nx", "$-1"),
        ("set b 2 xx", "$-1"),
        ("set a 2 xx get", "$1 1"),
        ("set n 2 nx get", "$-1"),
        ("get n", "$1 2"),
        ("set a 3 ifeq 1", "$-1"),
        ("set a 3 ifeq 2", "+OK"),
        ("set none 3 ifeq 2", "$-1"),
        ("set a 4 ex 100", "+OK"),
        ("ttl a", ":100"),
        ("set a 5 keepttl", "+OK"),
        ("ttl a", ":100"),
        ("set a 5", "+OK"),
        ("ttl a", ":-1"),
        ("set a 5 px 100000", "+OK"),
        ("ttl a", ":100"),
        ("set a 5 exat 99999999999", "+OK"),
        ("expiretime a", ":99999999999"),
        ("set a 5 pxat 99999999999000", "+OK"),
        ("pexpiretime a", ":99999999999000"),
        ("set a 5 pxat 1", "+OK"),
        ("get a", "$-1"),
        ("set a 5 nx xx", SYNTAX),
        ("set a 5 ex 1 px 1", SYNTAX),
        ("set a 5 keepttl ex 1", SYNTAX),
        ("set a 5 ex", SYNTAX),
        ("set a 5 ex 7 ex 100", "+OK"),
        ("ttl a", ":100"),
        ("set a 5 nx nx", "$-1"),
        ("set a 5 persist", SYNTAX),
        ("set a 5 ex 0", "-ERR invalid expire time in 'set' command"),
        ("set a 5 ex -1", "-ERR invalid expire time in 'set' command"),
        ("set a 5 ex 9223372036854775807", "-ERR invalid expire time in 'set' command"),
        ("set a 5 px 9223372036854775807", "-ERR invalid expire time in 'set' command"),
        ("set a 5 ex x", NOT_AN_INTEGER),
        ("set a", "-ERR wrong number of arguments for 'set' command"),
        ("setex a 0 1", "-ERR invalid expire time in 'setex' command"),
        ("psetex a -5 1", "-ERR invalid expire time in 'psetex' command"),
        ("setex a 10 1", "+OK"),
        ("setnx a 2", ":0"),
        ("setnx free 2", ":1"),
    ]);
}

#[test]
fn values_are_read_and_changed() {
    Server::new().client().check(&[
        ("getset a 1", "$-1"),
        ("getset a 2", "$1 1"),
        ("getdel a", "$1 2"),
        ("getdel a", "$-1"),
        ("mset a 1 b 2", "+OK"),
        ("mset a 1 b", "-ERR wrong number of arguments for 'mset' command"),
        ("mget a none b", "*3 $1 1 $-1 $1 2"),
        ("msetnx c 1 b 2", ":0"),
        ("exists c", ":0"),
        ("msetnx c 1 d 2", ":1"),
        ("msetnx c 1 d", "-ERR wrong number of arguments for 'msetnx' command"),
        ("append a 23", ":3"),
        ("append new xy", ":2"),
        ("get a", "$3 123"),
        ("strlen a", ":3"),
        ("strlen none", ":0"),
        ("set s \"Hello World\"", "+OK"),
        ("getrange s 0 4", "$5 Hello"),
        ("getrange s -5 -1", "$5 World"),
        ("substr s -3 100", "$3 rld"),
        ("getrange s 5 4", "$0"),
        ("getrange s -1 -5", "$0"),
        ("getrange none 0 -1", "$0"),
        ("getrange s a 1", NOT_AN_INTEGER),
        ("setrange s 6 Redis", ":11"),
        ("get s", "$11 Hello Redis"),
        ("setrange n2 2 ab", ":4"),
        ("get n2", "$4 \0\0ab"),
        ("setrange n3 5 \"\"", ":0"),
        ("exists n3", ":0"),
        ("setrange s -1 x", "-ERR offset is out of range"),
        ("setrange s 536870912 x", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
        ("setrange s 9223372036854775807 x", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
        ("set e v ex 100", "+OK"),
        ("getex e", "$1 v"),
        ("ttl e", ":100"),
        ("getex e persist", "$1 v"),
        ("ttl e", ":-1"),
        ("getex e ex 50", "$1 v"),
        ("ttl e", ":50"),
        ("getex e ex 0", "-ERR invalid expire time in 'getex' command"),
        ("getex e nx", SYNTAX),
        ("getex e pxat 1", "$1 v"),
        ("getex e", "$-1"),
    ]);
}

#[test]
fn counters() {
    Server::new().client().check(&[
        ("incr c", ":1"),
        ("incrby c 20", ":21"),
        ("decr c", ":20"),
        ("decrby c 5", ":15"),
        ("set c 17179869184", "+OK"),
        ("incr c", ":17179869185"),
        ("set c 9223372036854775807", "+OK"),
        ("incr c", "-ERR increment or decrement would overflow"),
        ("incrby c x", NOT_AN_INTEGER),
        ("decrby c -9223372036854775808", "-ERR decrement would overflow"),
        ("set c \"  11\"", "+OK"),
        ("incr c", NOT_AN_INTEGER),
        ("set t 5 ex 100", "+OK"),
        ("incr t", ":6"),
        ("ttl t", ":100"),
        ("incrbyfloat f 3.0", "$1 3"),
        ("incrbyfloat f 1.1", "$3 4.1"),
        ("incrbyfloat f -4.1e0", "$1 0"),
        ("incrbyfloat f abc", "-ERR value is not a valid float"),
        ("incrbyfloat f inf", "-ERR increment would produce NaN or Infinity"),
        ("set infinite inf", "+OK"),
        ("incrbyfloat infinite 1", "-ERR increment would produce NaN or Infinity"),
        ("incrbyfloat infinite x", "-ERR value is not a valid float"),
        ("incrbyfloat c 1", "-ERR value is not a valid float"),
        ("set f 17179869184", "+OK"),
        ("incrbyfloat f 1.5", "$13 17179869185.5"),
    ]);
}

#[test]
fn keys_and_expiry() {
    let server = Server::new();
    let mut client = server.client();
    client.check(&[
        ("mset a 1 b 2 c 3", "+OK"),
        ("del a none b", ":2"),
        ("unlink c", ":1"),
        ("exists a", ":0"),
        ("mset a 1 b 2", "+OK"),
        ("exists a a none", ":2"),
        ("touch a none", ":1"),
        ("type a", "+string"),
        ("type none", "+none"),
        ("rename none x", "-ERR no such key"),
        ("rename a a", "+OK"),
        ("pexpire a 100000", ":1"),
        ("rename a x", "+OK"),
        ("ttl x", ":100"),
        ("renamenx x b", ":0"),
        ("renamenx x x", ":0"),
        ("renamenx x y", ":1"),
        ("copy y y", "-ERR source and destination objects are the same"),
        ("copy y z", ":1"),
        ("ttl z", ":100"),
        ("copy y b", ":0"),
        ("copy y b replace", ":1"),
        ("copy none b replace", ":0"),
        ("copy y b nonsense", SYNTAX),
        ("delifeq b 2", ":0"),
        ("delifeq b 1", ":1"),
        ("persist y", ":1"),
        ("persist y", ":0"),
        ("ttl y", ":-1"),
        ("ttl none", ":-2"),
        ("pttl none", ":-2"),
        ("expiretime none", ":-2"),
        ("expire y 100 xx", ":0"),
        ("expire y 100 gt", ":0"),
        ("expire y 100 nx", ":1"),
        ("expire y 200 nx", ":0"),
        ("expire y 50 gt", ":0"),
        ("expire y 200 gt", ":1"),
        ("expire y 300 lt", ":0"),
        ("expire y 100 lt", ":1"),
        ("ttl y", ":100"),
        ("expire y 1 nx gt", "-ERR NX and XX, GT or LT options at the same time are not compatible"),
        ("expire y 1 gt lt", "-ERR GT and LT options at the same time are not compatible"),
        ("expire y 1 ab", "-ERR Unsupported option ab"),
        ("expire y x", NOT_AN_INTEGER),
        ("expire y 9223372036854775807", "-ERR invalid expire time in 'expire' command"),
        ("pexpire y 9223372036854775807", "-ERR invalid expire time in 'pexpire' command"),
        ("expireat y -1", ":1"),
        ("exists y", ":0"),
        ("set k v px 1000", "+OK"),
    ]);
    server.host.clock.advance(999);
    client.check(&[("exists k", ":1"), ("dbsize", ":2")]);
    server.host.clock.advance(1);
    client.check(&[("exists k", ":0"), ("get k", "$-1"), ("ttl k", ":-2"), ("keys k", "*0"), ("dbsize", ":1")]);
}

#[test]
fn what_a_value_looks_like_inside() {
    let long = "a".repeat(45);
    Server::new().client().check(&[
        ("set i 123", "+OK"),
        ("object encoding i", "$3 int"),
        ("set e 0123", "+OK"),
        ("object encoding e", "$6 embstr"),
        (&format!("set r {long}"), "+OK"),
        ("object encoding r", "$3 raw"),
        ("object encoding none", "$-1"),
        ("object refcount i", ":2147483647"),
        ("object refcount e", ":1"),
        ("object nonsense i", "-ERR unknown subcommand 'nonsense'. Try OBJECT HELP."),
        ("object encoding", "-ERR wrong number of arguments for 'object|encoding' command"),
        ("memory usage none", "$-1"),
        ("memory usage i", ":68"),
        ("memory usage i samples 0", ":68"),
        ("memory usage i nonsense 0", SYNTAX),
    ]);
}

#[test]
fn bits() {
    Server::new().client().check(&[
        ("setbit b 1 1", ":0"),
        ("setbit b 1 0", ":1"),
        ("setbit b 7 1", ":0"),
        ("get b", "$1 \u{1}"),
        ("getbit b 7", ":1"),
        ("getbit b 1000", ":0"),
        ("setbit b 1 2", "-ERR bit is not an integer or out of range"),
        ("setbit b -1 1", "-ERR bit offset is not an integer or out of range"),
        ("setbit b 4294967296 1", "-ERR bit offset is not an integer or out of range"),
        ("set s foobar", "+OK"),
        ("bitcount s", ":26"),
        ("bitcount s 0 0", ":4"),
        ("bitcount s 1 1 byte", ":6"),
        ("bitcount s 5 30 bit", ":17"),
        ("bitcount s -2 -1", ":7"),
        ("bitcount s 0", SYNTAX),
        ("bitcount s -1 -3 nonsense", ":0"),
        ("bitcount s 0 -1 nonsense", SYNTAX),
        ("bitcount none 0 -1", ":0"),
        ("set p \"\\xff\\xf0\\x00\"", "+OK"),
        ("bitpos p 0", ":12"),
        ("bitpos p 1 2", ":-1"),
        ("bitpos p 1 0", ":0"),
        ("bitpos p 0 7 15 bit", ":12"),
        ("bitpos p 0 0 x nonsense", SYNTAX),
        ("bitpos p 0 -5 -7", ":-1"),
        ("bitpos p 1 -5 -7", ":0"),
        ("bitpos p 2", "-ERR The bit argument must be 1 or 0."),
        ("set ones \"\\xff\\xff\"", "+OK"),
        ("bitpos ones 0", ":16"),
        ("bitpos ones 0 0 -1", ":-1"),
        ("bitpos none 0", ":0"),
        ("bitpos none 1", ":-1"),
        ("set x abc", "+OK"),
        ("set y a", "+OK"),
        ("bitop and d x y", ":3"),
        ("get d", "$3 a\0\0"),
        ("bitop or d x y", ":3"),
        ("get d", "$3 abc"),
        ("bitop xor d x x", ":3"),
        ("get d", "$3 \0\0\0"),
        ("bitop and d x", ":3"),
        ("get d", "$3 abc"),
        ("bitop not d x y", "-ERR BITOP NOT must be called with a single source key."),
        ("bitop nand d x", SYNTAX),
        ("bitop and d none", ":0"),
        ("exists d", ":0"),
    ]);
}

#[test]
fn a_bit_that_is_so_already_is_not_written() {
    let server = Server::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.ask("setbit b 7 1");
    let cases = [
        ("setbit b 7 1", true),
        ("setbit b 100 0", false),
        ("bitfield b set u1 7 1", true),
        ("bitfield b set u1 7 0", false),
    ];
    for (line, is_unchanged) in cases {
        client.check(&[("watch b", "+OK"), ("multi", "+OK")]);
        other.ask(line);
        assert_eq!(client.ask("exec"), if is_unchanged { "*0" } else { "*-1" }, "{line}");
    }
}

#[test]
fn bit_fields() {
    let bad_type = "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
    Server::new().client().check(&[
        ("bitfield f set u8 0 255 get u8 0 get i8 0", "*3 :0 :255 :-1"),
        ("bitfield f incrby u8 0 10", "*1 :9"),
        ("bitfield f overflow sat incrby u8 0 255", "*1 :255"),
        ("bitfield f overflow fail incrby u8 0 1 get u8 0", "*2 $-1 :255"),
        ("bitfield f set i8 #1 -100 incrby i8 #1 -100", "*2 :0 :56"),
        ("bitfield f overflow sat incrby i8 #1 -300", "*1 :-128"),
        ("bitfield f get u4 4", "*1 :15"),
        ("bitfield f set i64 64 -9223372036854775808 incrby i64 64 -1", "*2 :0 :9223372036854775807"),
        ("bitfield f get u64 0", bad_type),
        ("bitfield f get i65 0", bad_type),
        ("bitfield f get x8 0", bad_type),
        ("bitfield f get u8 -1", "-ERR bit offset is not an integer or out of range"),
        ("bitfield f overflow nonsense", "-ERR Invalid OVERFLOW type specified"),
        ("bitfield f nonsense u8 0", SYNTAX),
        ("bitfield f set u8 0", SYNTAX),
        ("bitfield_ro f get u8 0", "*1 :255"),
        ("bitfield_ro f set u8 0 1", "-ERR BITFIELD_RO only supports the GET subcommand"),
        ("bitfield_ro f set u8 0 x", NOT_AN_INTEGER),
        ("bitfield none get u8 0", "*1 :0"),
        ("exists none", ":0"),
    ]);
}

#[test]
fn longest_common_subsequences() {
    let both = "-ERR If you want both the length and indexes, please just use IDX.";
    Server::new().client().check(&[
        ("mset a ohmytext b mynewtext", "+OK"),
        ("lcs a b", "$6 mytext"),
        ("lcs a b len", ":6"),
        ("lcs a b idx", "*4 $7 matches *2 *2 *2 :4 :7 *2 :5 :8 *2 *2 :2 :3 *2 :0 :1 $3 len :6"),
        ("lcs a b idx minmatchlen 4 withmatchlen", "*4 $7 matches *1 *3 *2 :4 :7 *2 :5 :8 :4 $3 len :6"),
        ("lcs a none", "$0"),
        ("lcs a b idx len", both),
        ("lcs a b nonsense", SYNTAX),
    ]);
}

#[test]
fn keys_are_listed() {
    let mut client = Server::new().client();
    client.check(&[
        ("keys *", "*0"),
        ("randomkey", "$-1"),
        ("mset user:1 a user:2 b other c", "+OK"),
        ("keys user:?", "*2 $6 user:1 $6 user:2"),
        ("dbsize", ":3"),
        ("scan 0", "*2 $1 0 *3 $5 other $6 user:1 $6 user:2"),
        ("scan 0 match u*2 count 100", "*2 $1 0 *1 $6 user:2"),
        ("scan 0 type string count 1000", "*2 $1 0 *3 $5 other $6 user:1 $6 user:2"),
        ("scan 0 type hash", "*2 $1 0 *0"),
        ("scan 0 count 0", SYNTAX),
        ("scan 0 count x", NOT_AN_INTEGER),
        ("scan 0 match", SYNTAX),
        ("scan x", "-ERR invalid cursor"),
        ("scan 12", "-ERR cursor 12 is not known any more; start the scan again with 0"),
        ("flushdb nonsense", SYNTAX),
        ("flushdb", "+OK"),
        ("dbsize", ":0"),
    ]);
    for number in 0..1_000 {
        client.ask(&format!("set key:{number:04} x"));
    }
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let reply = client.ask(&format!("scan {cursor} count 7"));
        let mut words = reply.split(' ').filter(|word| !word.starts_with(['*', '$'])).map(str::to_owned);
        cursor = words.next().unwrap();
        found.extend(words);
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, (0..1_000).map(|number| format!("key:{number:04}")).collect::<Vec<_>>());
}
