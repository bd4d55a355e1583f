//! The signal that a listener stops.

use tokio::sync::watch;

/// Tells a connection that its listener stops. A clone tells the same.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// The signal, and the sender that gives it; dropping the sender gives it too.
    pub(crate) fn channel() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// A signal that is never given, for a protocol without a listener.
    pub fn never() -> Self {
        let (sender, never) = Self::channel();
        // Nothing is leaked but a few bytes: the sender would give the signal if it were dropped.
        std::mem::forget(sender);
        never
    }

    /// Resolves when the listener begins to stop.
    pub async fn begun(mut self) {
        // An error means that the listener is gone altogether.
        let _ = self.0.wait_for(|has_begun| *has_begun).await;
    }

    /// True once the listener has begun to stop. An atomic load.
    pub fn has_begun(&self) -> bool {
        // This receiver never marks a value as seen, and the value changes once.
        self.0.has_changed().unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_signal_is_given_by_the_sender_or_by_its_end() {
        for gives_by_end in [false, true] {
            let (sender, shutdown) = Shutdown::channel();
            let other = shutdown.clone();
            assert!(!shutdown.has_begun());
            if gives_by_end {
                drop(sender);
            } else {
                sender.send_replace(true);
            }
            shutdown.clone().begun().await;
            assert!(shutdown.has_begun() && other.has_begun());
        }
        assert!(!Shutdown::never().has_begun());
    }
}
