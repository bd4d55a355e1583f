//! A source of events that has a waker of its own. A task with many sources looks at those alone that have called it: to ask
//! all of them each time costs a message as much as the message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A flag that is set when its waker is called.
pub(super) struct WakeFlag {
    call: Arc<FlagWaker>,
    waker: Waker,
}

struct FlagWaker {
    has_called: AtomicBool,
    task: Waker,
}

impl Wake for FlagWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_called.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

impl Default for WakeFlag {
    fn default() -> Self {
        Self::of(Waker::noop().clone())
    }
}

impl WakeFlag {
    fn of(task: Waker) -> Self {
        let call = Arc::new(FlagWaker { has_called: AtomicBool::new(true), task });
        Self { waker: Waker::from(Arc::clone(&call)), call }
    }

    /// Looks at the source if it has called since it was last seen to have nothing, or was never looked at.
    ///
    /// `look` has to poll with the context that it is given. When it answers [`Poll::Pending`], it must have left its
    /// waker with all of the source.
    pub(super) fn poll<T>(&mut self, cx: &Context<'_>, look: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        if !self.call.task.will_wake(cx.waker()) {
            *self = Self::of(cx.waker().clone());
        }
        // Taken back before the look, so that a call during the look is not missed.
        let call = &self.call;
        if !call.has_called.load(Ordering::Relaxed) || !call.has_called.swap(false, Ordering::Acquire) {
            return Poll::Pending;
        }
        let seen = look(&mut Context::from_waker(&self.waker));
        if seen.is_ready() {
            // There may be more.
            call.has_called.store(true, Ordering::Relaxed);
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_source_is_polled_at_first_after_a_wake_and_while_it_has_more() {
        let (task, other) = (Arc::new(Task::default()), Arc::new(Task::default()));
        let (waker, other_waker) = (Waker::from(task.clone()), Waker::from(other.clone()));
        let (cx, other_cx) = (Context::from_waker(&waker), Context::from_waker(&other_waker));
        let (mut flag, mut left) = (WakeFlag::default(), None);
        let mut looks = 0;
        let mut look = |flag: &mut WakeFlag, cx: &Context<'_>, answers: Poll<()>| {
            let before = looks;
            let seen = flag.poll(cx, |cx| {
                looks += 1;
                left = Some(cx.waker().clone());
                answers
            });
            (looks > before, seen, left.clone())
        };
        let (is_looked_at, _, left) = look(&mut flag, &cx, Poll::Pending);
        assert!(is_looked_at, "nobody has looked before");
        assert!(!look(&mut flag, &cx, Poll::Ready(())).0, "it had nothing and has not called");
        left.unwrap().wake();
        assert_eq!(task.0.load(Ordering::SeqCst), 1);
        let (is_looked_at, seen, _) = look(&mut flag, &cx, Poll::Ready(()));
        assert!(is_looked_at && seen.is_ready());
        assert!(look(&mut flag, &cx, Poll::Pending).0, "it had something and may have more");
        assert!(!look(&mut flag, &cx, Poll::Pending).0);
        let (is_looked_at, _, left) = look(&mut flag, &other_cx, Poll::Pending);
        assert!(is_looked_at, "another task has to be called from now on");
        left.unwrap().wake();
        assert_eq!((task.0.load(Ordering::SeqCst), other.0.load(Ordering::SeqCst)), (1, 1));
    }

    #[test]
    fn a_wake_during_a_poll_is_not_missed() {
        let cx = Context::from_waker(Waker::noop());
        let mut flag = WakeFlag::default();
        let calls = |cx: &mut Context<'_>| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        };
        assert!(flag.poll(&cx, calls).is_pending());
        assert!(flag.poll(&cx, |_| Poll::Ready(())).is_ready());
    }
}
