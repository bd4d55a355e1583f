//! COPY to another database.
//!
//! The keys are in two buckets, so it is two transactions: the value is read in one and stored in the other. A change of the
//! source between them is not in the copy.

use bytes::Bytes;

use super::RespSession;
use crate::resp::command::CommandId;
use crate::resp::context::{Fault, Outcome};
use crate::resp::events::{EventClass, KeyEvent};
use crate::resp::keys::CopyOptions;
use crate::resp::unit::{CommandUnit, Purpose};

impl RespSession {
    /// `true` if a unit runs the command: it works on keys of the database.
    pub(super) fn runs_in_unit(&self, command: CommandId, arguments: &[Bytes]) -> bool {
        command.command().is_data() && !self.copies_elsewhere(command, arguments)
    }

    /// `true` if the command is a COPY to another database.
    pub(super) fn copies_elsewhere(&self, command: CommandId, arguments: &[Bytes]) -> bool {
        let [_, _, _, options @ ..] = arguments else { return false };
        !options.is_empty()
            && command.full_name() == "copy"
            && self.copy_options(options).is_ok_and(|options| options.database != self.database)
    }

    fn copy_options(&self, options: &[Bytes]) -> Result<CopyOptions, Fault> {
        CopyOptions::parse(options, self.database, self.shared.host.databases())
    }

    pub(super) async fn copy_elsewhere(&mut self, arguments: &[Bytes]) -> Outcome {
        let [_, from, to, options @ ..] = arguments else { return Err(Fault::arity("copy")) };
        let CopyOptions { replace, database } = self.copy_options(options)?;
        let Some(user) = self.user.clone() else { return Err(Fault::error("NOAUTH Authentication required.")) };
        let target = self.shared.host.select(&user, database)?;
        if let Some(failure) = target.is_full() {
            return Err(failure.into());
        }
        let unit = self.execute(CommandUnit::with_purpose(Purpose::Read(from.clone()))).await?;
        if let Some(failure) = unit.refusal() {
            return Err(failure.into());
        }
        let mut is_stored = false;
        if let Some(value) = unit.value {
            let store = Purpose::Store { key: to.clone(), value, replace };
            let unit = self.execute_in(&*target, CommandUnit::with_purpose(store)).await?;
            if let Some(failure) = unit.refusal() {
                return Err(failure.into());
            }
            is_stored = unit.is_stored;
        }
        if is_stored
            && self.settings().classes().contains(EventClass::Generic)
            && let Some(tenant) = &self.tenant
        {
            let event = KeyEvent { class: EventClass::Generic, name: "copy_to", key: to.clone() };
            self.shared.publish(tenant, database, &event);
        }
        self.reply().integer(is_stored.into());
        Ok(())
    }
}
