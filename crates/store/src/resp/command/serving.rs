//! The rows of commands that work on the connection or the server.

use super::{RedisCommand, Run};
use crate::resp::keys;
use crate::resp::session::{
    WaitingCommand, acl, client, commands, config, connection, help, latency, multi, pubsub, server, slowlog,
};

/// All tables of this file.
pub(super) const TABLES: &[&[RedisCommand]] = &[CONNECTION, SERVER, PUBSUB, TRANSACTIONS, CLUSTER];

super::commands! {
    static CONNECTION: Connection = {
        "auth" -2 [NoScript Loading Stale Fast NoAuth AllowBusy] (0, 0, 0) [Connection] Run::Waiting(WaitingCommand::Auth),
            "1.0.0" "O(N)" "Logs in.";
        "client" -2 [] (0, 0, 0) [] Run::Container(CLIENT),
            "2.4.0" "O(N)" "Looks at connections and changes them.";
        "echo" 2 [Loading Stale Fast] (0, 0, 0) [Connection] Run::Session(connection::echo),
            "1.0.0" "O(1)" "Returns its argument.";
        "hello" -1 [NoScript Loading Stale Fast NoAuth AllowBusy] (0, 0, 0) [Connection] Run::Waiting(WaitingCommand::Hello),
            "6.0.0" "O(1)" "Chooses the version of the protocol.";
        "ping" -1 [Fast] (0, 0, 0) [Connection] Run::Session(connection::ping),
            "1.0.0" "O(1)" "Answers PONG.";
        "quit" -1 [NoScript Loading Stale Fast NoAuth AllowBusy] (0, 0, 0) [Connection] Run::Session(connection::quit),
            "1.0.0" "O(1)" "Closes the connection.";
        "reset" 1 [NoScript Loading Stale Fast NoAuth AllowBusy] (0, 0, 0) [Connection] Run::Waiting(WaitingCommand::Reset),
            "6.2.0" "O(1)" "Makes the connection as new.";
        "select" 2 [Loading Stale Fast] (0, 0, 0) [Connection] Run::Waiting(WaitingCommand::Select),
            "1.0.0" "O(1)" "Changes the database.";
    }
}

super::commands! {
    static CLIENT: Connection = {
        "caching" 3 [NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::caching),
            "6.0.0" "O(1)" "Refused: keys are not tracked for clients.";
        "getname" 2 [NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::get_name),
            "2.6.9" "O(1)" "Returns the name of the connection.";
        "getredir" 2 [NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::get_redir),
            "6.0.0" "O(1)" "Tells where messages of tracking go: nowhere.";
        "help" 2 [Loading Stale] (0, 0, 0) [Connection] Run::Session(client::help),
            "5.0.0" "O(1)" "Lists the subcommands.";
        "id" 2 [NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::id),
            "5.0.0" "O(1)" "Returns the number of the connection.";
        "info" 2 [NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::info),
            "6.2.0" "O(1)" "Describes the connection.";
        "kill" -3 [Admin NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::kill),
            "2.4.0" "O(N)" "Closes connections.";
        "list" -2 [Admin NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::list),
            "2.4.0" "O(N)" "Describes connections.";
        "no-evict" 3 [Admin NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::no_evict),
            "7.0.0" "O(1)" "Accepted: clients are not evicted.";
        "no-touch" 3 [NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::no_touch),
            "7.2.0" "O(1)" "Accepted: the last use of keys is not kept.";
        "pause" -3 [Admin NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::pause),
            "2.9.50" "O(1)" "Holds commands of clients back for a time.";
        "reply" 3 [NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::reply),
            "3.2.0" "O(1)" "Turns replies off and on.";
        "setinfo" 4 [NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::set_info),
            "7.2.0" "O(1)" "Names the library of the client.";
        "setname" 3 [NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::set_name),
            "2.6.9" "O(1)" "Names the connection.";
        "tracking" -3 [NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::tracking),
            "6.0.0" "O(1)" "Refused when turned on: keys are not tracked for clients.";
        "trackinginfo" 2 [NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::tracking_info),
            "6.2.0" "O(1)" "Tells that keys are not tracked.";
        "unblock" -3 [Admin NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::unblock),
            "5.0.0" "O(log N)" "Wakes a client that waits for a key, of which there are none.";
        "unpause" 2 [Admin NoScript Loading Stale] (0, 0, 0) [Connection] Run::Session(client::unpause),
            "6.2.0" "O(N)" "Ends CLIENT PAUSE.";
    }
}

super::commands! {
    static SERVER: Server = {
        "acl" -2 [] (0, 0, 0) [] Run::Container(ACL),
            "6.0.0" "O(N)" "Looks at users and their rights.";
        "command" -1 [Loading Stale] (0, 0, 0) [Connection] Run::Container(COMMAND),
            "2.8.13" "O(N)" "Describes commands.";
        "config" -2 [] (0, 0, 0) [] Run::Container(CONFIG),
            "2.0.0" "O(N)" "Reads and changes settings.";
        "dbsize" 1 [ReadOnly Fast] (0, 0, 0) [Keyspace] Run::Waiting(WaitingCommand::DbSize),
            "1.0.0" "O(1)" "Counts the keys of the database.";
        "debug" -2 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(server::debug),
            "1.0.0" "O(N)" "Refused.";
        "flushall" -1 [Write] (0, 0, 0) [Keyspace Dangerous] Run::Waiting(WaitingCommand::FlushAll),
            "1.0.0" "O(N)" "Deletes the keys of all databases.";
        "flushdb" -1 [Write] (0, 0, 0) [Keyspace Dangerous] Run::Waiting(WaitingCommand::FlushDb),
            "1.0.0" "O(N)" "Deletes the keys of the database.";
        "function" -2 [] (0, 0, 0) [] Run::Container(FUNCTION),
            "7.0.0" "O(1)" "Looks at functions, of which there are none.";
        "info" -1 [Loading Stale] (0, 0, 0) [Dangerous] Run::Waiting(WaitingCommand::Info),
            "1.0.0" "O(1)" "Describes the server.";
        "latency" -2 [] (0, 0, 0) [] Run::Container(LATENCY),
            "2.8.13" "O(N)" "Looks at slow events.";
        "lolwut" -1 [ReadOnly Fast] (0, 0, 0) [] Run::Session(server::lolwut),
            "5.0.0" "O(1)" "Shows the version.";
        "memory" -2 [] (0, 0, 0) [] Run::Container(MEMORY),
            "4.0.0" "O(N)" "Looks at memory.";
        "role" 1 [NoScript Loading Stale Fast] (0, 0, 0) [Dangerous] Run::Session(server::role),
            "2.8.12" "O(1)" "Tells the role in replication.";
        "shutdown" -1 [Admin NoScript Loading Stale NoMulti AllowBusy] (0, 0, 0) [] Run::Session(server::shutdown),
            "1.0.0" "O(N)" "Stops the server.";
        "slowlog" -2 [] (0, 0, 0) [] Run::Container(SLOWLOG),
            "2.2.12" "O(N)" "Looks at slow commands.";
        "swapdb" 3 [Write Fast] (0, 0, 0) [Keyspace Dangerous] Run::Session(server::swapdb),
            "4.0.0" "O(N)" "Refused.";
        "time" 1 [Loading Stale Fast] (0, 0, 0) [] Run::Session(server::time),
            "2.6.0" "O(1)" "Returns the time.";
    }
}

super::commands! {
    static ACL: Server = {
        "cat" -2 [NoScript Loading Stale] (0, 0, 0) [] Run::Session(acl::cat),
            "6.0.0" "O(1)" "Lists categories, or the commands of one.";
        "deluser" -3 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(acl::managed),
            "6.0.0" "O(1)" "Refused: users are managed outside.";
        "dryrun" -4 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(acl::dry_run),
            "7.0.0" "O(1)" "Tells whether a user may run a command.";
        "getuser" 3 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(acl::get_user),
            "6.0.0" "O(N)" "Describes a user.";
        "help" 2 [Loading Stale] (0, 0, 0) [] Run::Session(acl::help),
            "6.0.0" "O(1)" "Lists the subcommands.";
        "list" 2 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(acl::list),
            "6.0.0" "O(N)" "Lists users as rules.";
        "load" 2 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(acl::managed),
            "6.0.0" "O(N)" "Refused: users are managed outside.";
        "log" -2 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(acl::log),
            "6.0.0" "O(N)" "Lists refused commands, of which none are kept.";
        "save" 2 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(acl::managed),
            "6.0.0" "O(N)" "Refused: users are managed outside.";
        "setuser" -3 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(acl::managed),
            "6.0.0" "O(N)" "Refused: users are managed outside.";
        "users" 2 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(acl::users),
            "6.0.0" "O(N)" "Lists the names of users.";
        "whoami" 2 [NoScript Loading Stale] (0, 0, 0) [] Run::Session(acl::who_am_i),
            "6.0.0" "O(1)" "Returns the name of the user.";
    }
}

super::commands! {
    static COMMAND: Server = {
        "count" 2 [Loading Stale] (0, 0, 0) [Connection] Run::Session(commands::count),
            "2.8.13" "O(1)" "Counts commands.";
        "docs" -2 [Loading Stale] (0, 0, 0) [Connection] Run::Session(commands::docs),
            "7.0.0" "O(N)" "Describes commands for people.";
        "getkeys" -4 [Loading Stale] (0, 0, 0) [Connection] Run::Session(commands::get_keys),
            "2.8.13" "O(N)" "Finds the keys in a command.";
        "getkeysandflags" -4 [Loading Stale] (0, 0, 0) [Connection] Run::Session(commands::get_keys_and_flags),
            "7.0.0" "O(N)" "Finds the keys in a command, and what it does to them.";
        "help" 2 [Loading Stale] (0, 0, 0) [Connection] Run::Session(commands::help),
            "5.0.0" "O(1)" "Lists the subcommands.";
        "info" -2 [Loading Stale] (0, 0, 0) [Connection] Run::Session(commands::info),
            "2.8.13" "O(N)" "Describes commands for programs.";
        "list" -2 [Loading Stale] (0, 0, 0) [Connection] Run::Session(commands::list),
            "7.0.0" "O(N)" "Lists the names of commands.";
    }
}

super::commands! {
    static CONFIG: Server = {
        "get" -3 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(config::get),
            "2.0.0" "O(N)" "Returns settings.";
        "help" 2 [Loading Stale] (0, 0, 0) [] Run::Session(config::help),
            "5.0.0" "O(1)" "Lists the subcommands.";
        "resetstat" 2 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(config::reset_statistics),
            "2.0.0" "O(1)" "Sets statistics to zero.";
        "rewrite" 2 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(config::rewrite),
            "2.8.0" "O(1)" "Refused: there is no configuration file of Redis.";
        "set" -4 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(config::set),
            "2.0.0" "O(N)" "Changes settings.";
    }
}

super::commands! {
    static FUNCTION: Server = {
        "flush" -2 [Write NoScript] (0, 0, 0) [] Run::Session(server::function_flush),
            "7.0.0" "O(1)" "Deletes all functions, of which there are none.";
        "help" 2 [Loading Stale] (0, 0, 0) [] Run::Session(help::function),
            "7.0.0" "O(1)" "Lists the subcommands.";
        "list" -2 [NoScript] (0, 0, 0) [] Run::Session(server::function_list),
            "7.0.0" "O(1)" "Lists functions, of which there are none.";
    }
}

super::commands! {
    static LATENCY: Server = {
        "doctor" 2 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(latency::doctor),
            "2.8.13" "O(1)" "Tells about slow events.";
        "help" 2 [Loading Stale] (0, 0, 0) [] Run::Session(latency::help),
            "2.8.13" "O(1)" "Lists the subcommands.";
        "histogram" -2 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(latency::histogram),
            "7.0.0" "O(N)" "Returns how long commands take.";
        "history" 3 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(latency::history),
            "2.8.13" "O(1)" "Returns the latest times of an event.";
        "latest" 2 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(latency::latest),
            "2.8.13" "O(1)" "Returns the latest of each slow event.";
        "reset" -2 [Admin NoScript Loading Stale] (0, 0, 0) [] Run::Session(latency::reset),
            "2.8.13" "O(1)" "Forgets slow events.";
    }
}

super::commands! {
    static MEMORY: Server = {
        "help" 2 [Loading Stale] (0, 0, 0) [] Run::Session(help::memory),
            "4.0.0" "O(1)" "Lists the subcommands.";
        "usage" -3 [ReadOnly] (2, 2, 1) [] Run::Data(keys::memory_usage),
            "4.0.0" "O(N)" "Estimates the memory of a key.";
    }
}

super::commands! {
    static SLOWLOG: Server = {
        "get" -2 [Admin Loading Stale] (0, 0, 0) [] Run::Session(slowlog::get),
            "2.2.12" "O(N)" "Returns slow commands.";
        "help" 2 [Loading Stale] (0, 0, 0) [] Run::Session(slowlog::help),
            "6.2.0" "O(1)" "Lists the subcommands.";
        "len" 2 [Admin Loading Stale] (0, 0, 0) [] Run::Session(slowlog::len),
            "2.2.12" "O(1)" "Counts slow commands.";
        "reset" 2 [Admin Loading Stale] (0, 0, 0) [] Run::Session(slowlog::reset),
            "2.2.12" "O(N)" "Forgets slow commands.";
    }
}

super::commands! {
    static PUBSUB: PubSub = {
        "psubscribe" -2 [PubSub NoScript Loading Stale] (0, 0, 0) [] Run::Session(pubsub::psubscribe),
            "2.0.0" "O(N)" "Receives messages of channels that match patterns.";
        "publish" 3 [PubSub Loading Stale Fast] (0, 0, 0) [] Run::Session(pubsub::publish),
            "2.0.0" "O(N+M)" "Sends a message to a channel.";
        "pubsub" -2 [] (0, 0, 0) [] Run::Container(PUBSUB_SUBCOMMANDS),
            "2.8.0" "O(N)" "Looks at channels.";
        "punsubscribe" -1 [PubSub NoScript Loading Stale] (0, 0, 0) [] Run::Session(pubsub::punsubscribe),
            "2.0.0" "O(N+M)" "Ends subscriptions of patterns.";
        "subscribe" -2 [PubSub NoScript Loading Stale] (0, 0, 0) [] Run::Session(pubsub::subscribe),
            "2.0.0" "O(N)" "Receives messages of channels.";
        "unsubscribe" -1 [PubSub NoScript Loading Stale] (0, 0, 0) [] Run::Session(pubsub::unsubscribe),
            "2.0.0" "O(N)" "Ends subscriptions of channels.";
    }
}

super::commands! {
    static PUBSUB_SUBCOMMANDS: PubSub = {
        "channels" -2 [PubSub Loading Stale] (0, 0, 0) [] Run::Session(pubsub::channels),
            "2.8.0" "O(N)" "Lists channels with subscribers.";
        "help" 2 [Loading Stale] (0, 0, 0) [] Run::Session(help::pubsub),
            "6.2.0" "O(1)" "Lists the subcommands.";
        "numpat" 2 [PubSub Loading Stale] (0, 0, 0) [] Run::Session(pubsub::pattern_count),
            "2.8.0" "O(1)" "Counts patterns.";
        "numsub" -2 [PubSub Loading Stale] (0, 0, 0) [] Run::Session(pubsub::subscriber_counts),
            "2.8.0" "O(N)" "Counts the subscribers of channels.";
    }
}

super::commands! {
    static TRANSACTIONS: Transactions = {
        "discard" 1 [NoScript Loading Stale Fast AllowBusy] (0, 0, 0) [Transaction] Run::Session(multi::discard),
            "2.0.0" "O(N)" "Leaves MULTI and forgets the queued commands.";
        "exec" 1 [NoScript Loading Stale SkipSlowLog] (0, 0, 0) [Transaction] Run::Waiting(WaitingCommand::Exec),
            "1.2.0" "O(N)" "Runs the queued commands as one.";
        "multi" 1 [NoScript Loading Stale Fast AllowBusy] (0, 0, 0) [Transaction] Run::Session(multi::multi),
            "1.2.0" "O(1)" "Queues the commands that follow.";
        "unwatch" 1 [NoScript Loading Stale Fast AllowBusy] (0, 0, 0) [Transaction] Run::Session(multi::unwatch),
            "2.2.0" "O(1)" "Forgets watched keys.";
        "watch" -2 [NoScript Loading Stale Fast AllowBusy] (1, -1, 1) [Transaction] Run::Waiting(WaitingCommand::Watch),
            "2.2.0" "O(1)" "Makes EXEC depend on keys being unchanged.";
    }
}

super::commands! {
    static CLUSTER: Cluster = {
        "cluster" -2 [] (0, 0, 0) [] Run::Session(server::cluster),
            "3.0.0" "O(N)" "Refused: there is no cluster mode.";
    }
}
