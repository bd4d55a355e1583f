//! The signal that a login has ended: its credentials were withdrawn, or have expired.

use tokio::sync::watch;

/// Ends the logins that hold its [`Revocation`]; dropping it ends them, too.
#[derive(Debug)]
pub struct Revoker(watch::Sender<bool>);

/// Tells a connection that the login it uses has ended. A clone tells the same.
#[derive(Debug, Clone)]
pub struct Revocation(watch::Receiver<bool>);

impl Default for Revoker {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Revoker {
    /// The signal for one more holder of the login.
    pub fn revocation(&self) -> Revocation {
        Revocation(self.0.subscribe())
    }

    /// Number of signals that somebody holds.
    pub fn holders(&self) -> usize {
        self.0.receiver_count()
    }

    /// Gives the signal to all holders.
    pub fn revoke(&self) {
        self.0.send_replace(true);
    }
}

impl Revocation {
    /// Resolves when the login has ended.
    pub async fn revoked(mut self) {
        // An error means that the revoker is gone, which ends the login as well.
        let _ = self.0.wait_for(|has_ended| *has_ended).await;
    }

    /// `true` once the login has ended.
    pub fn is_revoked(&self) -> bool {
        self.0.has_changed().is_err() || *self.0.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_login_ends_when_it_is_revoked_or_its_revoker_is_gone() {
        for is_dropped in [false, true] {
            let revoker = Revoker::default();
            let revocation = revoker.revocation();
            let other = revocation.clone();
            assert!(!revocation.is_revoked());
            if is_dropped {
                drop(revoker);
            } else {
                revoker.revoke();
            }
            other.revoked().await;
            assert!(revocation.is_revoked());
        }
    }
}
