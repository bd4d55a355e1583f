//! INFO: figures of the server, in sections.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

use super::RespSession;
use super::login::REDIS_VERSION;
use crate::resp::command::Registry;
use crate::resp::context::{Fault, Outcome, is};
use crate::resp::host::ServerInfo;

/// The sections in their order, and whether INFO without arguments shows them.
const SECTIONS: [(&str, bool); 12] = [
    ("server", true),
    ("clients", true),
    ("memory", true),
    ("persistence", true),
    ("stats", true),
    ("replication", true),
    ("cpu", true),
    ("modules", true),
    ("commandstats", false),
    ("errorstats", true),
    ("cluster", true),
    ("keyspace", true),
];

impl RespSession {
    pub(super) async fn info(&mut self, arguments: &[Bytes]) -> Outcome {
        let Some(user) = self.user.clone() else { return Err(Fault::error("NOAUTH Authentication required.")) };
        let info = self.shared.host.info(&user).await;
        let wanted = &arguments[1..];
        let named = |name: &str| wanted.iter().any(|argument| is(argument, name));
        let by_default = wanted.is_empty() || named("default");
        let all = named("all") || named("everything");
        let mut text = String::new();
        for (section, is_default) in SECTIONS {
            if all || named(section) || (by_default && is_default) {
                if !text.is_empty() {
                    text.push_str("\r\n");
                }
                self.section(&mut text, section, &info);
            }
        }
        self.reply().verbatim(&text);
        Ok(())
    }

    fn section(&self, text: &mut String, section: &str, info: &ServerInfo) {
        let title = match section {
            "cpu" => "CPU".to_owned(),
            section => section[..1].to_ascii_uppercase() + &section[1..],
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "# {title}\r\n");
        match section {
            "server" => server(text, info),
            "clients" => fields(
                text,
                &[
                    ("connected_clients", &self.shared.clients.count()),
                    ("blocked_clients", &self.tenant.as_ref().map_or(0, |tenant| tenant.pause.held())),
                    ("tracking_clients", &0),
                ],
            ),
            "memory" => memory(text, info),
            "persistence" => fields(
                text,
                &[
                    ("loading", &0),
                    ("async_loading", &0),
                    // There are no dumps, so all changes are since the last one.
                    ("rdb_changes_since_last_save", &info.changes),
                    ("rdb_bgsave_in_progress", &0),
                    ("rdb_last_bgsave_status", &"ok"),
                    ("aof_enabled", &u8::from(info.is_durable)),
                    ("aof_rewrite_in_progress", &0),
                    ("aof_last_write_status", &"ok"),
                ],
            ),
            "stats" => self.stats(text, info),
            "replication" => fields(text, &[("role", &"master"), ("connected_slaves", &0), ("master_repl_offset", &0)]),
            "cpu" => fields(
                text,
                &[
                    ("used_cpu_sys", &format_args!("{:.6}", info.cpu_system_seconds)),
                    ("used_cpu_user", &format_args!("{:.6}", info.cpu_user_seconds)),
                ],
            ),
            "commandstats" => self.command_stats(text),
            "errorstats" => {
                for (code, count) in self.shared.statistics.errors() {
                    let _ = write!(text, "errorstat_{code}:count={count}\r\n");
                }
            }
            "cluster" => fields(text, &[("cluster_enabled", &0)]),
            "keyspace" => {
                for database in info.databases.iter().filter(|database| database.keys > 0) {
                    let (number, keys, expires) = (database.number, database.keys, database.expires);
                    let _ = write!(text, "db{number}:keys={keys},expires={expires}");
                    if let Some(average_ttl_ms) = database.average_ttl_ms {
                        let _ = write!(text, ",avg_ttl={average_ttl_ms}");
                    }
                    text.push_str("\r\n");
                }
            }
            _ => {}
        }
    }

    fn stats(&self, text: &mut String, info: &ServerInfo) {
        let statistics = &self.shared.statistics;
        let (channels, patterns) = self.shared.channel_counts();
        fields(
            text,
            &[
                ("total_connections_received", &self.shared.clients.total()),
                ("total_commands_processed", &statistics.calls()),
                ("total_net_input_bytes", &statistics.input_bytes.load(Relaxed)),
                ("total_net_output_bytes", &statistics.output_bytes.load(Relaxed)),
                ("rejected_connections", &statistics.rejected_connections.load(Relaxed)),
                ("expired_keys", &info.expired_keys),
                ("evicted_keys", &info.evicted_keys),
                ("keyspace_hits", &info.hits),
                ("keyspace_misses", &info.misses),
                ("pubsub_channels", &channels),
                ("pubsub_patterns", &patterns),
                ("total_error_replies", &statistics.error_replies.load(Relaxed)),
            ],
        );
    }

    fn command_stats(&self, text: &mut String) {
        for id in Registry::all() {
            let counters = self.shared.statistics.of(id);
            let (calls, rejected) = (counters.calls.load(Relaxed), counters.rejected.load(Relaxed));
            let (microseconds, failed) = (counters.microseconds.load(Relaxed), counters.failed.load(Relaxed));
            if calls + rejected > 0 {
                let each = if calls > 0 { microseconds as f64 / calls as f64 } else { 0.0 };
                let _ = write!(
                    text,
                    "cmdstat_{}:calls={calls},usec={microseconds},usec_per_call={each:.2},rejected_calls={rejected},\
                     failed_calls={failed}\r\n",
                    id.full_name(),
                );
            }
        }
    }
}

fn fields(text: &mut String, fields: &[(&str, &dyn std::fmt::Display)]) {
    for (name, value) in fields {
        let _ = write!(text, "{name}:{value}\r\n");
    }
}

fn server(text: &mut String, info: &ServerInfo) {
    fields(
        text,
        &[
            ("redis_version", &REDIS_VERSION),
            ("redis_mode", &"standalone"),
            ("millstream_version", &info.version),
            ("os", &std::env::consts::OS),
            ("arch_bits", &usize::BITS),
            ("process_id", &info.process_id),
            ("run_id", &info.run_id),
            ("tcp_port", &info.tcp_port),
            ("uptime_in_seconds", &info.uptime_seconds),
            ("uptime_in_days", &(info.uptime_seconds / 86_400)),
            ("config_file", &""),
        ],
    );
}

fn memory(text: &mut String, info: &ServerInfo) {
    let policy = if info.memory_policy.is_empty() { "noeviction" } else { &info.memory_policy };
    fields(
        text,
        &[
            ("used_memory", &info.memory_used_bytes),
            ("used_memory_rss", &info.memory_used_bytes),
            ("used_memory_peak", &info.memory_peak_bytes),
            ("maxmemory", &info.memory_max_bytes),
            ("maxmemory_policy", &policy),
        ],
    );
}
