//! Pins servers and load generators to different cores.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

/// The cores of a run: one for servers, one for generators, or all for both.
#[derive(Debug, Clone)]
pub(crate) struct Cores {
    pinned: Option<Pinned>,
}

#[derive(Debug, Clone, Copy)]
struct Pinned {
    server: usize,
    generator: usize,
}

impl Cores {
    /// Leaves the placement to the kernel.
    pub(crate) fn shared() -> Self {
        Self { pinned: None }
    }

    /// Pins servers to one core and this process to another if the machine has two.
    pub(crate) fn apart() -> anyhow::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if cores < 2 {
            return Ok(Self::shared());
        }
        let pinned = Pinned { server: 0, generator: 1 };
        pin_self(&pinned.generator.to_string())?;
        Ok(Self { pinned: Some(pinned) })
    }

    /// Unpins this process and the servers that are started later.
    pub(crate) fn together(&self) -> anyhow::Result<Self> {
        if let Some(Pinned { server, generator }) = self.pinned {
            pin_self(&format!("{server},{generator}"))?;
        }
        Ok(Self::shared())
    }

    /// Builds the command that runs `program` on the server core.
    pub(crate) fn server_command(&self, program: &Path) -> Command {
        match self.pinned {
            None => Command::new(program),
            Some(Pinned { server, .. }) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &server.to_string()]).arg(program);
                command
            }
        }
    }
}

/// Keeps all threads of this process to these cores.
fn pin_self(cores: &str) -> anyhow::Result<()> {
    let told = Command::new("taskset").args(["-a", "-c", "-p", cores, &std::process::id().to_string()]).output();
    let told = told.context("cannot run taskset (of util-linux), which keeps server and generator apart")?;
    ensure!(told.status.success(), "taskset: {}", String::from_utf8_lossy(&told.stderr));
    Ok(())
}

impl std::fmt::Display for Cores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pinned {
            Some(Pinned { server, generator }) => {
                write!(f, "the server has core {server} to itself, the generator core {generator}")
            }
            None => f.write_str("server and generator share all cores"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_started_on_its_core() {
        let cores = Cores { pinned: Some(Pinned { server: 3, generator: 1 }) };
        let command = cores.server_command(Path::new("serve"));
        assert_eq!(format!("{command:?}"), r#""taskset" "-c" "3" "serve""#);
        let anywhere = Cores::shared().server_command(Path::new("serve"));
        assert_eq!(format!("{anywhere:?}"), r#""serve""#);
    }
}
