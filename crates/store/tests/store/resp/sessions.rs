//! Connections: logins, what clients may see of each other, settings and statistics.

use super::client::Server;
use super::memory::MemoryHost;

#[test]
fn what_is_not_known_is_named_as_redis_names_it() {
    let mut client = Server::new().client();
    client.check(&[
        ("nonsense", "-ERR unknown command 'nonsense', with args beginning with:"),
        ("hset a b c", "-ERR unknown command 'hset', with args beginning with: 'a' 'b' 'c'"),
        ("get", "-ERR wrong number of arguments for 'get' command"),
        ("GeT a b", "-ERR wrong number of arguments for 'get' command"),
        ("client", "-ERR wrong number of arguments for 'client' command"),
        ("client nonsense", "-ERR unknown subcommand 'nonsense'. Try CLIENT HELP."),
        ("client kill", "-ERR wrong number of arguments for 'client|kill' command"),
        ("debug sleep 0", "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server."),
        ("cluster info", "-ERR This instance has cluster support disabled"),
        ("echo hi", "$2 hi"),
        ("ping hi", "$2 hi"),
        ("ping a b", "-ERR wrong number of arguments for 'ping' command"),
        ("select 16", "-ERR DB index is out of range"),
        ("select -1", "-ERR DB index is out of range"),
        ("select x", "-ERR value is not an integer or out of range"),
        ("role", "*3 $6 master :0 *0"),
        ("wait 0 10", ":0"),
        ("waitaof 1 0 0", "*2 :1 :0"),
        ("waitaof 2 0 0", "-ERR value is out of range, must be between 0 and 1"),
    ]);
    assert!(!client.is_closed);
}

#[test]
fn a_broken_request_is_answered_and_closes_the_connection() {
    let mut client = Server::new().client();
    let replies = client.send(b"set a 1\r\n*1\r\nx\r\nset a 2\r\n");
    assert_eq!(replies, b"+OK\r\n-ERR Protocol error: expected '$', got 'x'\r\n");
    assert!(client.is_closed);
}

#[test]
fn databases_have_their_own_keys() {
    let server = Server::new();
    let mut client = server.client();
    client.check(&[
        ("set a 0", "+OK"),
        ("select 3", "+OK"),
        ("get a", "$-1"),
        ("set a 3", "+OK"),
        ("select 0", "+OK"),
        ("get a", "$1 0"),
        ("copy a b db 99", "-ERR DB index is out of range"),
        ("copy a b db", "-ERR syntax error"),
        ("copy a b db 0", ":1"),
        ("flushall", "+OK"),
        ("select 3", "+OK"),
        ("dbsize", ":0"),
    ]);
}

#[test]
fn a_key_is_copied_to_another_database() {
    let server = Server::new();
    let (mut client, mut listener) = (server.client(), server.client());
    client.check(&[("config set notify-keyspace-events KEg", "+OK"), ("set a 1 ex 100", "+OK")]);
    listener.ask("psubscribe *");
    client.check(&[
        ("copy none b db 3", ":0"),
        ("copy a b db 3", ":1"),
        ("copy a b db 3", ":0"),
        ("set a 2", "+OK"),
        ("copy a b replace db 3", ":1"),
        ("copy a a db 3 db 4", ":1"),
        ("copy a a db 3 db 0", "-ERR source and destination objects are the same"),
        ("select 3", "+OK"),
        ("get b", "$1 2"),
        ("exists a", ":0"),
        ("select 4", "+OK"),
        ("get a", "$1 2"),
        ("ttl a", ":-1"),
        ("select 0", "+OK"),
        ("exists b", ":0"),
    ]);
    let copied = |database, key| {
        let [keyspace, keyevent] =
            [format!("__keyspace@{database}__:{key}"), format!("__keyevent@{database}__:copy_to")];
        let event = |channel: &str, message: &str| {
            format!("*4 $8 pmessage $1 * ${} {channel} ${} {message}", channel.len(), message.len())
        };
        [event(&keyspace, "copy_to"), event(&keyevent, key)].join(" ")
    };
    assert_eq!(listener.messages(), [copied(3, "b"), copied(3, "b"), copied(4, "a")].join(" "));

    // In a transaction, in a pipeline, behind CLIENT REPLY SKIP, and with its time to live.
    client.check(&[
        ("set a 3 ex 100", "+OK"),
        ("multi", "+OK"),
        ("incr a", "+QUEUED"),
        ("copy a c db 3", "+QUEUED"),
        ("select 3", "+QUEUED"),
        ("copy c a db 0", "+QUEUED"),
        ("ttl c", "+QUEUED"),
        ("exec", "*5 :4 :1 +OK :0 :100"),
        ("client reply skip", ""),
        ("copy c d db 5", ""),
    ]);
    let replies = client.send(b"select 5\r\nget d\r\ncopy d e db 6\r\nselect 6\r\nget e\r\n");
    assert_eq!(String::from_utf8(replies).unwrap(), "+OK\r\n$1\r\n4\r\n:1\r\n+OK\r\n$1\r\n4\r\n");

    // What the other bucket refuses is told.
    server.host.buckets[7].max_keys.store(0, std::sync::atomic::Ordering::Relaxed);
    let full = "-OOM command not allowed: the bucket holds 0 keys and may hold 0 (max_keys); deletes still work";
    client.check(&[("copy e e db 7", full), ("config set maxmemory 1", "+OK")]);
    client.check(&[("copy e e db 8", "-OOM command not allowed when used memory > 'maxmemory'.")]);
}

#[test]
fn an_idle_connection_is_closed_unless_it_listens() {
    let server = Server::new();
    let (mut client, mut idle, mut listener) = (server.client(), server.client(), server.client());
    listener.ask("subscribe c");
    client.check(&[
        ("config set timeout -1", "-ERR CONFIG SET failed (possibly related to argument 'timeout') - argument must be between 0 and 2147483647 inclusive"),
        ("config get timeout", "*2 $7 timeout $1 0"),
    ]);
    server.host.clock.advance(1_000_000_000);
    server.shared.close_idle_and_slow();
    idle.ask("ping");
    assert!(!idle.is_closed, "without a timeout a connection stays");
    client.check(&[("config set timeout 70", "+OK"), ("config get timeout", "*2 $7 timeout $2 70")]);
    for (ms, is_closed) in [(69_000, false), (2_000, true)] {
        server.host.clock.advance(ms);
        client.ask("ping");
        server.shared.close_idle_and_slow();
        assert_eq!(idle.look_closed(), is_closed);
    }
    listener.ask("ping");
    client.ask("ping");
    assert!(!listener.is_closed && !client.is_closed);
}

#[test]
fn settings_of_one_tenant_do_not_touch_another() {
    let server = Server::with(MemoryHost::stopped(true));
    let (mut admin, mut other, mut listener) = (server.client(), server.client(), server.client());
    admin.ask("auth default secret");
    let logins = [("auth other secret", "+OK")];
    other.check(&logins);
    listener.check(&logins);
    listener.ask("psubscribe *");
    let settings = [
        ("timeout", "1"),
        ("proto-max-bulk-len", "1048576"),
        ("slowlog-log-slower-than", "0"),
        ("slowlog-max-len", "1"),
        ("latency-monitor-threshold", "1"),
        ("notify-keyspace-events", "AKE"),
    ];
    let get = |name: &str| format!("config get {name}");
    let before = settings.map(|(name, _)| other.ask(&get(name)));
    for (name, value) in settings {
        assert_eq!(admin.ask(&format!("config set {name} {value}")), "+OK");
        let shown = format!("*2 ${} {name} ${} {value}", name.len(), value.len());
        assert_eq!(admin.ask(&get(name)), shown);
    }
    assert_eq!(settings.map(|(name, _)| other.ask(&get(name))), before);
    server.host.clock.advance(60_000);
    server.shared.close_idle_and_slow();
    assert!(admin.look_closed() && !other.look_closed());
    let value = "v".repeat(2 << 20);
    let set = format!("*3\r\n$3\r\nset\r\n$1\r\na\r\n${}\r\n{value}\r\n", value.len());
    assert_eq!(other.send(set.as_bytes()), b"+OK\r\n");
    other.check(&[("slowlog len", ":0"), ("latency latest", "*0")]);
    assert_eq!(listener.messages(), "", "no events were asked for");
}

#[test]
fn a_login_gives_a_tenant_and_rights() {
    let server = Server::with(MemoryHost::stopped(true));
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[
        ("get a", "-NOAUTH Authentication required."),
        ("ping", "-NOAUTH Authentication required."),
        ("hello 3", "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time"),
        ("auth reader wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("auth nobody secret", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("auth a b c", "-ERR syntax error"),
        ("auth reader secret", "+OK"),
        ("acl whoami", "$6 reader"),
        ("get a", "$-1"),
        ("set a 1", "-NOPERM this user has no permissions to run the 'set' command"),
        ("config get *", "-NOPERM this user has no permissions to run the 'config|get' command"),
        ("hello 2 auth writer secret setname me", "*14 $6 server $5 redis $7 version $6 7.0.15 $5 proto :2 $2 id :1 $4 mode $10 standalone $4 role $6 master $7 modules *0"),
        ("set a 1", "+OK"),
        ("client getname", "$2 me"),
        ("reset", "+RESET"),
        ("get a", "-NOAUTH Authentication required."),
        ("auth secret", "+OK"),
        ("acl whoami", "$7 default"),
        ("acl dryrun reader set a 1", "$53 This user has no permissions to run the 'set' command"),
        ("acl dryrun writer set a 1", "+OK"),
        ("acl setuser x", "-ERR users are tokens of the server and are not managed over this protocol; change its configuration"),
    ]);
    other.check(&[("auth other secret", "+OK"), ("subscribe c", "*3 $9 subscribe $1 c :1")]);
    client.check(&[("publish c hi", ":0")]);
    assert_eq!(other.messages(), "");
    assert!(!client.ask("client list").contains("user=other"), "a tenant does not see another one's clients");
}

#[test]
fn a_server_without_logins_says_so() {
    Server::new().client().check(&[
        ("auth x", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"),
        ("auth default x", "+OK"),
        ("auth nobody x", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("hello 4", "-NOPROTO unsupported protocol version"),
        ("hello x", "-ERR Protocol version is not an integer or out of range"),
        ("hello 2 nonsense", "-ERR Syntax error in HELLO option 'nonsense'"),
        ("acl getuser nobody", "$-1"),
    ]);
}

#[test]
fn clients_describe_themselves() {
    let server = Server::new();
    let mut client = server.client();
    client.check(&[
        ("client id", ":1"),
        ("client getname", "$-1"),
        ("client setname \"a b\"", "-ERR Client names cannot contain spaces, newlines or special characters."),
        ("client setname me", "+OK"),
        ("client setinfo lib-name redis-py", "+OK"),
        ("client setinfo lib-ver 1.0", "+OK"),
        ("client setinfo nonsense 1.0", "-ERR Unrecognized option 'nonsense'"),
        ("client no-evict on", "+OK"),
        ("client no-evict off", "+OK"),
        ("client no-touch maybe", "-ERR syntax error"),
        ("client tracking off", "+OK"),
        ("client getredir", ":-1"),
        ("client unblock 1", ":0"),
    ]);
    let info = String::from_utf8(client.send(b"*2\r\n$6\r\nclient\r\n$4\r\ninfo\r\n")).unwrap();
    for field in [
        "id=1 addr=10.1.2.3:40000 laddr=127.0.0.1:6379 fd=-1 name=me age=0 idle=0 flags=N db=0 sub=0 psub=0 ssub=0 multi=-1",
        " qbuf=26 ",
        " cmd=client|info user=default redir=-1 resp=2 lib-name=redis-py lib-ver=1.0\n",
    ] {
        assert!(info.contains(field), "{field} in {info}");
    }
    let list = client.ask("client list type pubsub");
    assert_eq!(list, "$0");
    client.check(&[
        ("client list id 99", "$0"),
        ("client list id x", "-ERR Invalid client ID"),
        ("client list type x", "-ERR Unknown client type 'x'"),
        ("client list x", "-ERR syntax error"),
    ]);
}

#[test]
fn clients_are_closed_by_number_address_or_kind() {
    let server = Server::new();
    let (mut client, mut second, mut third) = (server.client(), server.client(), server.client());
    third.ask("subscribe a");
    client.check(&[
        ("client kill id 10 wrong", "-ERR syntax error"),
        ("client kill id 0", "-ERR client-id should be greater than 0"),
        ("client kill id str", "-ERR client-id should be greater than 0"),
        ("client kill type wrong", "-ERR Unknown client type 'wrong'"),
        ("client kill user wrong", "-ERR No such user 'wrong'"),
        ("client kill skipme maybe", "-ERR syntax error"),
        ("client kill 1.2.3.4:5", "-ERR No such client"),
        ("client kill type pubsub", ":1"),
        ("client kill id 2", ":1"),
    ]);
    second.messages();
    third.messages();
    assert!(second.is_closed && third.is_closed);
    drop((second, third));
    client.check(&[("client kill skipme yes", ":0"), ("client kill skipme no", ":1")]);
    assert!(client.is_closed);
}

#[test]
fn replies_are_turned_off_and_skipped() {
    let mut client = Server::new().client();
    client.check(&[
        ("client reply off", ""),
        ("set a 1", ""),
        ("nonsense", ""),
        ("multi", ""),
        ("incr a", ""),
        ("exec", ""),
        ("client reply on", "+OK"),
        ("get a", "$1 2"),
        ("client reply skip", ""),
        ("incr a", ""),
        ("incr a", ":4"),
        ("client reply skip", ""),
        ("nonsense", ""),
        ("ping", "+PONG"),
        ("client reply skip", ""),
        ("client reply on", "+OK"),
        ("ping", "+PONG"),
    ]);
    let replies = client.send(b"client reply skip\r\nincr a\r\nincr a\r\nping\r\n");
    assert_eq!(replies, b":6\r\n+PONG\r\n");
}

#[test]
fn settings_are_read_and_changed() {
    let server = Server::new();
    let mut client = server.client();
    client.check(&[
        ("config get slowlog*", "*4 $23 slowlog-log-slower-than $5 10000 $15 slowlog-max-len $3 128"),
        ("config get SAVE appendonly", "*4 $10 appendonly $2 no $4 save $0"),
        ("config get nonsense", "*0"),
        ("config set slowlog-max-len 2 maxmemory 5", "+OK"),
        ("config get maxmemory", "*2 $9 maxmemory $1 5"),
        ("config set slowlog-max-len -1", "-ERR CONFIG SET failed (possibly related to argument 'slowlog-max-len') - argument must be between 0 and 9223372036854775807 inclusive"),
        ("config set maxmemory 6 appendonly yes", "-ERR CONFIG SET failed (possibly related to argument 'appendonly') - it is the bucket's"),
        ("config get maxmemory", "*2 $9 maxmemory $1 5"),
        ("config set maxmemory 6 maxmemory 7", "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - duplicate parameter"),
        ("config set nonsense 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'nonsense'"),
        ("config set a", "-ERR wrong number of arguments for 'config|set' command"),
        ("config set proto-max-bulk-len 2mb", "+OK"),
        ("config get proto-max-bulk-len", "*2 $18 proto-max-bulk-len $7 2097152"),
        ("setrange s 2097152 x", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
        ("config rewrite", "-ERR The server is running without a config file"),
    ]);
    let replies = client.send(b"*1\r\n$2097153\r\n");
    assert_eq!(replies, b"-ERR Protocol error: invalid bulk length\r\n");
}

#[test]
fn slow_commands_are_kept() {
    let server = Server::new();
    let mut client = server.client();
    client.check(&[
        ("slowlog len", ":0"),
        ("config set slowlog-max-len 2 slowlog-log-slower-than 0", "+OK"),
        ("set a 1", "+OK"),
        ("set b 2", "+OK"),
        ("config set slowlog-log-slower-than -1", "+OK"),
        ("slowlog len", ":2"),
    ]);
    let log = client.ask("slowlog get 1");
    assert!(log.starts_with("*1 *6 :2 :") && log.ends_with(" *3 $3 set $1 b $1 2 $14 10.1.2.3:40000 $0"), "{log}");
    let log = client.ask("slowlog get -1");
    assert!(log.contains(" *3 $3 set $1 a $1 1 "), "{log}");
    client.check(&[
        ("slowlog get x", "-ERR count should be greater than or equal to -1"),
        ("slowlog get -2", "-ERR count should be greater than or equal to -1"),
        ("slowlog reset", "+OK"),
        ("slowlog len", ":0"),
    ]);
}

#[test]
fn events_of_the_latency_monitor_are_kept_if_it_is_on() {
    let mut client = Server::new().client();
    let long = "ab".repeat(2_000);
    client.ask(&format!("mset a {long} b {}", "ba".repeat(2_000)));
    client.check(&[
        ("lcs a b len", ":3999"),
        ("latency latest", "*0"),
        ("config set latency-monitor-threshold 1", "+OK"),
        ("lcs a b len", ":3999"),
        ("config set latency-monitor-threshold 0", "+OK"),
    ]);
    let latest = client.ask("latency latest");
    assert!(latest.starts_with("*1 *4 $7 command :"), "16 M cells take more than a millisecond: {latest}");
    assert!(client.ask("latency history command").starts_with("*1 *2 :"));
    assert!(client.ask("latency doctor").contains("command: slow in 1 seconds"));
    client.check(&[
        ("latency history nonsense", "*0"),
        ("latency reset nonsense", ":0"),
        ("latency reset", ":1"),
        ("latency latest", "*0"),
    ]);
}

#[test]
fn reset_makes_a_connection_as_new() {
    let server = Server::new();
    let mut client = server.client();
    client.ask("hello 3 setname me");
    client.ask("select 3");
    client.ask("subscribe c");
    client.check(&[
        ("multi", "+OK"),
        ("reset", "+RESET"),
        ("exec", "-ERR EXEC without MULTI"),
        ("client getname", "$-1"),
    ]);
    assert!(client.ask("client list").contains(" flags=N db=0 sub=0 "));
    client.check(&[("publish c hi", ":0"), ("get a", "$-1")]);
}

#[test]
fn statistics_count_calls_and_errors() {
    let server = Server::new();
    let mut client = server.client();
    client.check(&[
        ("config resetstat", "+OK"),
        ("multi", "+OK"),
        ("set a x", "+QUEUED"),
        ("incr a", "+QUEUED"),
        ("exec", "*2 +OK -ERR value is not an integer or out of range"),
        ("set k", "-ERR wrong number of arguments for 'set' command"),
        ("nonsense", "-ERR unknown command 'nonsense', with args beginning with:"),
        ("exec", "-ERR EXEC without MULTI"),
    ]);
    let info = client.ask("info commandstats errorstats stats");
    for (command, rejected, failed) in [("set", 1, 0), ("incr", 0, 1), ("exec", 0, 1)] {
        let line = info.split(' ').find(|line| line.starts_with(&format!("cmdstat_{command}:"))).unwrap();
        assert!(line.ends_with(&format!("rejected_calls={rejected},failed_calls={failed}")), "{line}");
    }
    assert!(info.contains("errorstat_ERR:count=4") && info.contains("total_error_replies:4"), "{info}");
    client.ask("config resetstat");
    assert!(!client.ask("info errorstats").contains("errorstat_"));
    let info = client.ask("info");
    for part in ["# Server redis_version:7.0.15", "redis_mode:standalone", "# Keyspace db0:keys=1,expires=0"] {
        assert!(info.contains(part), "{part} in {info}");
    }
}

#[test]
fn the_table_of_commands_is_told() {
    let mut client = Server::new().client();
    client.check(&[
        ("command getkeys get key", "*1 $3 key"),
        ("command getkeys mset a 1 b 2", "*2 $1 a $1 b"),
        ("command getkeys memory usage key", "*1 $3 key"),
        ("command getkeys lcs a b", "*2 $1 a $1 b"),
        ("command getkeys ping x", "-ERR The command has no key arguments"),
        ("command getkeys nonsense x", "-ERR Invalid command specified"),
        ("command getkeys get a b", "-ERR Invalid number of arguments specified for command"),
        ("command getkeysandflags set k v", "*1 *2 $1 k *2 +OW +update"),
        ("command list bad", "-ERR syntax error"),
        ("command list filterby bad bad", "-ERR syntax error"),
        ("command list filterby aclcat nonsense", "*0"),
        ("command list filterby module x", "*0"),
        ("command list filterby pattern set", "*1 $3 set"),
        ("command info get|key", "*1 $-1"),
        ("command info get", "*1 *10 $3 get :2 *2 +readonly +fast :1 :1 :1 *3 +@read +@string +@fast *0 *1 *6 $5 flags *2 +RO +access $12 begin_search *4 $4 type $5 index $4 spec *2 $5 index :1 $9 find_keys *4 $4 type $5 range $4 spec *6 $7 lastkey :0 $7 keystep :1 $5 limit :0 *0"),
        ("command docs echo", "*2 $4 echo *8 $7 summary $21 Returns its argument. $5 since $5 1.0.0 $5 group $10 connection $10 complexity $4 O(1)"),
    ]);
    let count: usize = client.ask("command count")[1..].parse().unwrap();
    assert!(client.ask("command").starts_with(&format!("*{count} ")));
    for line in [
        "client help",
        "object help",
        "command help",
        "acl cat",
        "acl cat string",
        "latency histogram",
        "lolwut",
        "time",
    ] {
        assert!(client.ask(line).starts_with(['*', '$']), "{line}");
    }
}

#[test]
fn a_pause_holds_commands_back_until_it_ends() {
    let server = Server::with(MemoryHost::new(false));
    let (mut client, mut admin) = (server.client(), server.client());
    admin.check(&[
        ("client pause x", "-ERR timeout is not an integer or out of range"),
        ("client pause -1", "-ERR timeout is negative"),
        ("client pause 3600000 write", "+OK"),
    ]);
    client.check(&[("get a", "$-1")]);
    admin.check(&[("client unpause", "+OK")]);
    client.check(&[("set a 1", "+OK")]);
    let before = server.host.clock.now_ms();
    admin.check(&[("client pause 50", "+OK")]);
    client.check(&[("get a", "$1 1")]);
    assert!(server.host.clock.now_ms() - before >= 50);
}
