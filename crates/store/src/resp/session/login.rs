//! Who a connection speaks for: AUTH, HELLO, SELECT and RESET.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

use super::{ReplyMode, RespSession};
use crate::resp::codec::RespVersion;
use crate::resp::context::{Fault, Outcome, integer_argument, is};
use crate::resp::host::{ErrorReply, LoginError, User};
use crate::resp::number::integer;
use crate::resp::shared::owned;

/// The name of the user that AUTH with a password alone means.
const DEFAULT_USER: &str = "default";
/// The version that HELLO and INFO tell as Redis's: that whose behaviour the commands have.
pub(super) const REDIS_VERSION: &str = "7.0.15";

impl RespSession {
    /// Makes `user` the one that the connection speaks for. Another tenant's channels are left.
    pub(super) fn log_in(&mut self, user: User) {
        if self.user.as_ref().is_none_or(|old| old.tenant != user.tenant) {
            self.unsubscribe_all();
            self.watched.clear();
            let tenant = self.shared.tenant(&user.tenant);
            self.client.take_all_messages(&mut self.out);
            self.client.draw_messages_on(&tenant.messages);
            self.tenant = Some(tenant);
        }
        {
            let mut about = self.client.about.lock();
            about.user = Some(Arc::clone(&user.name));
            about.tenant = Some(Arc::clone(&user.tenant));
        }
        self.bucket = self.shared.host.select(&user, self.database);
        self.user = Some(user);
    }

    pub(super) fn tenant_name(&self) -> Arc<str> {
        self.user.as_ref().map_or_else(|| Arc::from(""), |user| Arc::clone(&user.tenant))
    }

    async fn check_password(&mut self, name: &[u8], password: &[u8]) -> Outcome {
        const WRONG: Fault = Fault::error("WRONGPASS invalid username-password pair or user is disabled.");
        // The default user of a listener without logins takes any password, as Redis's does.
        if let Some(user) = self.shared.host.default_user()
            && *name == *user.name.as_bytes()
        {
            self.log_in(user);
            return Ok(());
        }
        let Ok(name) = std::str::from_utf8(name) else { return Err(WRONG) };
        match self.shared.host.login(name, password, self.client.peer).await {
            Ok(user) => {
                self.log_in(user);
                Ok(())
            }
            Err(LoginError::Wrong) => Err(WRONG),
            Err(LoginError::Failed(failure)) => Err(failure.into()),
        }
    }

    pub(super) async fn auth(&mut self, arguments: &[Bytes]) -> Outcome {
        match &arguments[1..] {
            [_] if self.shared.host.default_user().is_some() => {
                return Err(Fault::error(
                    "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                     configuration is correct?",
                ));
            }
            [password] => self.check_password(DEFAULT_USER.as_bytes(), password).await?,
            [name, password] => self.check_password(name, password).await?,
            _ => return Err(Fault::SYNTAX),
        }
        self.reply().ok();
        Ok(())
    }

    pub(super) async fn hello(&mut self, arguments: &[Bytes]) -> Outcome {
        const NO_PROTOCOL: Fault = Fault::error("NOPROTO unsupported protocol version");
        let protocol = match arguments.get(1) {
            None => self.protocol,
            Some(version) => match integer(version) {
                Some(2) => RespVersion::V2,
                Some(3) => RespVersion::V3,
                Some(_) => return Err(NO_PROTOCOL),
                None => return Err(Fault::error("ERR Protocol version is not an integer or out of range")),
            },
        };
        let (mut name, mut rest) = (None, arguments.get(2..).unwrap_or_default());
        let mut login = None;
        while let [option, after @ ..] = rest {
            rest = match after {
                [user, password, after @ ..] if is(option, "auth") => {
                    login = Some((user, password));
                    after
                }
                [wanted, after @ ..] if is(option, "setname") => {
                    name = Some(wanted);
                    after
                }
                _ => {
                    let option = crate::resp::context::shown(option);
                    return Err(Fault::from(format!("ERR Syntax error in HELLO option '{option}'")));
                }
            };
        }
        if let Some((user, password)) = login {
            self.check_password(user, password).await?;
        }
        if self.user.is_none() {
            return Err(Fault::error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
                 <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
            ));
        }
        if let Some(name) = name {
            super::client::check_name(name)?;
            self.client.about.lock().name = owned(name);
        }
        self.speak(protocol);
        self.reply_hello();
        Ok(())
    }

    fn reply_hello(&mut self) {
        let (id, number) = (self.client.id.cast_signed(), i64::from(self.protocol.number()));
        let mut reply = self.reply();
        reply.map(7);
        for (name, value) in [("server", Some("redis")), ("version", Some(REDIS_VERSION)), ("proto", None)] {
            reply.bulk(name.as_bytes());
            match value {
                Some(value) => reply.bulk(value.as_bytes()),
                None => reply.integer(number),
            }
        }
        reply.bulk(b"id");
        reply.integer(id);
        for (name, value) in [("mode", "standalone"), ("role", "master")] {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
        }
        reply.bulk(b"modules");
        reply.array(0);
    }

    fn speak(&mut self, protocol: RespVersion) {
        self.protocol = protocol;
        self.client.protocol.store(protocol.number(), Relaxed);
    }

    pub(super) fn select(&mut self, arguments: &[Bytes]) -> Outcome {
        const OUT_OF_RANGE: Fault = Fault::error("ERR DB index is out of range");
        let number = integer_argument(&arguments[1])?;
        let database = u32::try_from(number).ok().filter(|number| *number < self.shared.host.databases());
        let database = database.ok_or(OUT_OF_RANGE)?;
        let Some(user) = &self.user else { return Err(Fault::error("NOAUTH Authentication required.")) };
        self.bucket = Ok(self.shared.host.select(user, database)?);
        self.database = database;
        self.client.about.lock().database = database;
        self.reply().ok();
        Ok(())
    }

    /// Makes the connection as it was when it was accepted.
    pub(super) fn reset(&mut self) -> Outcome {
        self.queue = None;
        self.watched.clear();
        self.unsubscribe_all();
        self.reply_mode = ReplyMode::On;
        self.database = 0;
        self.speak(RespVersion::V2);
        *self.client.about.lock() = crate::resp::clients::About::default();
        (self.user, self.tenant) = (None, None);
        self.bucket = Err(ErrorReply("NOAUTH Authentication required.".into()));
        if let Some(user) = self.shared.host.default_user() {
            self.log_in(user);
        }
        self.reply().simple("RESET");
        Ok(())
    }
}
