//! The command line's clients: subcommands of `millstream` that ask a running server over its public HTTP API.
//!
//! Each subcommand is a module with its arguments and what it prints. `job new`, `job validate` and `job test` also work
//! without a server, by `flow`'s documents and test runner.
//!
//! Not here: what starts a server, looks through its directory or makes files for it (`serve`, `demo`, `log`, `backup`, `restore`,
//! `config`, `tls`), which stays in `server` with the list of all subcommands.

mod append_command;
mod client;
mod client_tls;
mod device_command;
mod entity_command;
mod group_command;
mod health_command;
mod job_client;
mod job_command;
mod job_document;
mod job_events_command;
mod job_graph_command;
mod job_new_command;
mod job_parallelism_command;
mod job_run_command;
mod job_tap_command;
mod job_test_command;
mod job_validate_command;
mod job_watch_command;
mod kv_command;
mod kv_transfer;
mod query_command;
mod send_command;
mod tenant_command;
mod terminal;
mod token_command;
mod topic_command;

use std::path::Path;

use millstream_flow::FlowConfig;

pub use client::{Server, accepted, encoded, exchange};
pub use client_tls::Authorities;
pub use device_command::DeviceArgs;
pub use entity_command::EntityArgs;
pub use group_command::GroupArgs;
pub use health_command::{HealthArgs, Unhealthy};
pub use job_command::JobArgs;
pub use kv_command::KvArgs;
pub use query_command::QueryArgs;
pub use send_command::CommandArgs;
pub use tenant_command::TenantArgs;
pub use terminal::{aligned, is_broken_pipe, run_until_interrupted, show};
pub use token_command::TokenArgs;
pub use topic_command::TopicArgs;

/// Gives the arguments of each subcommand the method that runs it.
macro_rules! runs {
    ($($arguments:ident: $module:ident),* $(,)?) => {$(
        impl $arguments {
            /// Runs the subcommand and prints what it finds.
            ///
            /// # Errors
            /// The arguments do not fit, the server cannot be reached or refuses the request; the message says what to do.
            pub fn run(&self) -> anyhow::Result<()> {
                $module::run(self)
            }
        }
    )*};
}

runs! {
    DeviceArgs: device_command,
    EntityArgs: entity_command,
    GroupArgs: group_command,
    HealthArgs: health_command,
    KvArgs: kv_command,
    QueryArgs: query_command,
    CommandArgs: send_command,
    TenantArgs: tenant_command,
    TokenArgs: token_command,
    TopicArgs: topic_command,
}

impl JobArgs {
    /// Runs the subcommand and prints what it finds; `settings` reads those of jobs from a configuration file.
    ///
    /// # Errors
    /// The arguments do not fit, the server cannot be reached or refuses the request; the message says what to do.
    pub fn run(&self, settings: impl FnOnce(&Path) -> anyhow::Result<FlowConfig>) -> anyhow::Result<()> {
        job_command::run(self, settings)
    }
}
