//! Windows: parts of the records of one key, by their times.
//!
//! ```text
//!  records ──► panes ──► windows        a pane has the records of a time that no window divides; tumbling windows
//!                                       are their panes, sliding ones merge several, a session grows and merges
//! ```
//!
//! An engine that calls this decides when: it tells how far time has come, and gets the windows that have closed. Windows that
//! [triggers](Trigger) give as well have a state each in place of panes.

mod calendar;
mod extent;
mod key_windows;
mod shape;
mod trigger;
mod triggered;

pub use calendar::{CalendarStep, CalendarWindows};
pub use extent::WindowExtent;
pub use key_windows::{KeyWindows, WindowState, WindowTimes};
pub use shape::WindowShape;
pub use trigger::{Trigger, TriggerPlan, TriggerWhen};
pub use triggered::{TriggeredWindows, TriggeringRecord};
