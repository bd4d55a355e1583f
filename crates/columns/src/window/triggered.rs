//! The windows of one key that triggers give: each has a state of its own.

mod window;

use self::window::Window;
use super::extent::WindowExtent;
use super::key_windows::WindowState;
use super::shape::WindowShape;
use super::trigger::{TriggerPlan, TriggerWhen};

/// The windows of one key.
///
/// Always true
/// - Windows are in the order of their bounds, each once.
/// - Each has got at least one record.
#[derive(Debug, Clone)]
pub struct TriggeredWindows<S> {
    windows: Vec<Window<S>>,
    /// Records of the key since each trigger by records has given windows, by trigger.
    counts: Vec<u64>,
}

/// A record for [`TriggeredWindows::add`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TriggeringRecord {
    /// Its time.
    pub time_ms: i64,
    /// The time that has come before it.
    pub now_ms: i64,
    /// A bit for each [`TriggerWhen::Record`] that it fires.
    pub fires: u32,
}

impl<S> Default for TriggeredWindows<S> {
    fn default() -> Self {
        Self { windows: Vec::new(), counts: Vec::new() }
    }
}

impl<S: WindowState> TriggeredWindows<S> {
    /// Adds a record to its windows, and gives those that it lets triggers give, with the number of the trigger; `false` if all its
    /// windows are gone.
    pub fn add(
        &mut self,
        plan: &TriggerPlan,
        record: TriggeringRecord,
        fresh: impl Fn() -> S,
        mut add: impl FnMut(&mut S),
        mut give: impl FnMut(usize, WindowExtent, &mut S),
    ) -> bool {
        let of_record = self.windows_of(plan, record, fresh);
        if of_record.is_empty() {
            return false;
        }
        let is_of_record = |window: &Window<S>| of_record.binary_search(&window.extent()).is_ok();
        for window in self.windows.iter_mut().filter(|window| is_of_record(window)) {
            window.add(&mut add);
        }
        self.counts.resize(plan.triggers.len(), 0);
        for (number, trigger) in plan.triggers.iter().enumerate() {
            let is_fired = match trigger.when {
                TriggerWhen::Records(every) => {
                    self.counts[number] += 1;
                    let is_full = self.counts[number] >= every;
                    if is_full {
                        self.counts[number] = 0;
                    }
                    is_full
                }
                TriggerWhen::Record => record.fires & (1 << number) != 0,
                TriggerWhen::Clock => false,
                TriggerWhen::Closed { delay_ms } => {
                    let is_closed = |window: &Window<S>| {
                        plan.closed_ms(window.extent(), delay_ms).is_some_and(|at| at <= record.now_ms)
                    };
                    self.give(plan, number, |window| is_of_record(window) && is_closed(window), &mut give);
                    continue;
                }
                TriggerWhen::Part(part) => {
                    let come = self.come_to(part, number, record.time_ms, is_of_record);
                    let is_given = |window: &Window<S>| trigger.gives_all || come.contains(&window.extent());
                    if !come.is_empty() {
                        self.give(plan, number, is_given, &mut give);
                    }
                    continue;
                }
            };
            if is_fired {
                self.give(plan, number, |window| trigger.gives_all || is_of_record(window), &mut give);
            }
        }
        true
    }

    /// The bounds of the windows that a record is in, in their order. Those that are new are made.
    fn windows_of(
        &mut self,
        plan: &TriggerPlan,
        TriggeringRecord { time_ms, now_ms, .. }: TriggeringRecord,
        fresh: impl Fn() -> S,
    ) -> Vec<WindowExtent> {
        let is_gone = |extent| plan.gone_ms(extent).is_some_and(|gone_ms| gone_ms <= now_ms);
        let pane = plan.shape.pane(time_ms);
        let WindowShape::Session { gap_ms } = plan.shape else {
            let mut found = Vec::new();
            let mut after_ms = i64::MIN;
            let next = |after_ms| match plan.shape {
                WindowShape::Global => (after_ms == i64::MIN).then_some(pane),
                _ => plan.shape.window_after(pane, after_ms),
            };
            while let Some(extent) = next(after_ms) {
                after_ms = plan.shape.close_ms(extent);
                if !is_gone(extent) {
                    if let Err(place) = self.windows.binary_search_by_key(&extent, Window::extent) {
                        self.windows.insert(place, Window::new(extent, fresh()));
                    }
                    found.push(extent);
                }
            }
            return found;
        };
        let touches = |known: &WindowExtent| {
            known.start_ms.saturating_sub(gap_ms) <= time_ms && time_ms <= known.end_ms.saturating_add(gap_ms)
        };
        let (touched, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.windows).into_iter().partition(|window| touches(&window.extent()));
        self.windows = others;
        let merged = touched.into_iter().reduce(|mut whole, part| {
            whole.merge(&part);
            whole
        });
        let window = match merged {
            Some(mut whole) => {
                whole.extend_to(time_ms);
                whole
            }
            None if is_gone(pane) => return Vec::new(),
            None => Window::new(pane, fresh()),
        };
        let extent = window.extent();
        let place = self.windows.partition_point(|known| known.extent() < extent);
        self.windows.insert(place, window);
        vec![extent]
    }

    /// The windows of a record whose part `part` it is the first to come to; they are marked as given by the trigger.
    fn come_to(
        &mut self,
        part: f64,
        number: usize,
        time_ms: i64,
        is_of_record: impl Fn(&Window<S>) -> bool,
    ) -> Vec<WindowExtent> {
        let is_new =
            |window: &Window<S>| !window.has_reached(number) && is_of_record(window) && window.is_past(part, time_ms);
        let mut come = Vec::new();
        for window in self.windows.iter_mut().filter(|window| is_new(window)) {
            window.reach(number);
            come.push(window.extent());
        }
        come
    }

    /// Gives some windows by a trigger, in their order.
    fn give(
        &mut self,
        plan: &TriggerPlan,
        number: usize,
        is_given: impl Fn(&Window<S>) -> bool,
        give: &mut impl FnMut(usize, WindowExtent, &mut S),
    ) {
        let (clocks, discards) = (plan.clocks(), plan.triggers[number].discards);
        self.windows.retain_mut(|window| {
            if !is_given(window) {
                return true;
            }
            window.give(number, clocks, &mut *give);
            !discards
        });
    }

    /// Gives the windows that are due by time, in the order of their ends, and drops those that are gone. One that is dropped without
    /// having been given since its last record is given then.
    pub fn advance(&mut self, plan: &TriggerPlan, now_ms: i64, mut give: impl FnMut(usize, WindowExtent, &mut S)) {
        for (number, trigger) in plan.triggers.iter().enumerate() {
            let TriggerWhen::Closed { delay_ms } = trigger.when else { continue };
            let is_due = |window: &Window<S>| {
                window.has_changed(number)
                    && plan.closed_ms(window.extent(), delay_ms).is_some_and(|closed_ms| closed_ms <= now_ms)
            };
            self.give(plan, number, is_due, &mut give);
        }
        let last = plan.last_trigger();
        self.windows.retain_mut(|window| {
            let is_gone = plan.gone_ms(window.extent()).is_some_and(|gone_ms| gone_ms <= now_ms);
            if is_gone && window.has_changed(last) {
                window.give(last, 0, &mut give);
            }
            !is_gone
        });
    }

    /// Gives the windows that have changed since the trigger last gave them.
    pub fn give_changed(
        &mut self,
        plan: &TriggerPlan,
        number: usize,
        mut give: impl FnMut(usize, WindowExtent, &mut S),
    ) {
        self.give(plan, number, |window| window.has_changed(number), &mut give);
    }

    /// `true` if a window has changed since the trigger last gave it.
    pub fn has_changed(&self, number: usize) -> bool {
        self.windows.iter().any(|window| window.has_changed(number))
    }

    /// Gives the windows that have changed since they were last given, as if time had come to its end.
    pub fn give_all(&mut self, plan: &TriggerPlan, give: impl FnMut(usize, WindowExtent, &mut S)) {
        self.give_changed(plan, plan.last_trigger(), give);
    }

    /// The time at which a window is to be given or dropped.
    pub fn next_ms(&self, plan: &TriggerPlan) -> Option<i64> {
        let due_ms = |window: &Window<S>| {
            let by_trigger = plan.triggers.iter().enumerate().filter_map(|(number, trigger)| match trigger.when {
                TriggerWhen::Closed { delay_ms } if window.has_changed(number) => {
                    plan.closed_ms(window.extent(), delay_ms)
                }
                _ => None,
            });
            by_trigger.chain(plan.gone_ms(window.extent())).min()
        };
        self.windows.iter().filter_map(due_ms).min()
    }

    /// `true` without any window, and with nothing counted.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty() && self.counts.iter().all(|count| *count == 0)
    }

    /// The states of the windows.
    pub fn states(&self) -> impl Iterator<Item = &S> {
        self.windows.iter().map(Window::state)
    }

    /// All windows that are kept, with their states.
    pub fn windows(&self) -> impl Iterator<Item = (WindowExtent, &S)> {
        self.windows.iter().map(|window| (window.extent(), window.state()))
    }

    /// Appends the stored form: the number of triggers (1 byte) and the count of each (8), and of each window its bounds (8, 8),
    /// the bits of its triggers (4, 4), and the length (4) and bytes of its state, which `write` appends. Integers are big endian.
    pub fn write(&self, out: &mut Vec<u8>, write: impl Fn(&S, &mut Vec<u8>)) {
        out.push(self.counts.len() as u8);
        self.counts.iter().for_each(|count| out.extend_from_slice(&count.to_be_bytes()));
        self.windows.iter().for_each(|window| window.write(out, &write));
    }

    /// Reads the stored form; `None` if it is none.
    pub fn read(stored: &[u8], read: impl Fn(&[u8]) -> Option<S>) -> Option<Self> {
        let ([triggers], mut rest) = stored.split_first_chunk()?;
        let mut number = || -> Option<i64> {
            let (bytes, after) = rest.split_first_chunk()?;
            rest = after;
            Some(i64::from_be_bytes(*bytes))
        };
        let counts = (0..*triggers).map(|_| number().map(|count| count as u64)).collect::<Option<_>>()?;
        let mut windows = Vec::new();
        while !rest.is_empty() {
            let (window, after) = Window::read(rest, &read)?;
            windows.push(window);
            rest = after;
        }
        Some(Self { windows, counts })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{KeyWindows, Trigger, WindowTimes};
    use super::*;

    #[derive(Debug, Clone, Default, PartialEq)]
    struct Values(Vec<u8>);

    impl WindowState for Values {
        fn merge(&mut self, other: &Self) {
            self.0.extend(&other.0);
            self.0.sort_unstable();
        }
    }

    /// A window that was given: the trigger, the bounds and the values.
    type Given = (usize, i64, i64, Vec<u8>);

    struct Key {
        plan: TriggerPlan,
        windows: TriggeredWindows<Values>,
        now_ms: i64,
        given: Vec<Given>,
        late: Vec<u8>,
    }

    impl Key {
        fn new(shape: WindowShape, triggers: &[Trigger], kept_ms: i64) -> Self {
            let plan = TriggerPlan { shape, triggers: triggers.to_vec(), kept_ms };
            let windows = TriggeredWindows::default();
            Self { plan, windows, now_ms: i64::MIN, given: Vec::new(), late: Vec::new() }
        }

        fn see(&mut self, time_ms: i64, value: u8, fires: u32) {
            let record = TriggeringRecord { time_ms, now_ms: self.now_ms, fires };
            let given = &mut self.given;
            let give = |trigger, window: WindowExtent, state: &mut Values| {
                given.push((trigger, window.start_ms, window.end_ms, state.0.clone()));
            };
            let add = |state: &mut Values| state.merge(&Values(vec![value]));
            if !self.windows.add(&self.plan, record, Values::default, add, give) {
                self.late.push(value);
            }
            self.come_to(self.now_ms.max(time_ms));
        }

        fn come_to(&mut self, now_ms: i64) {
            self.now_ms = now_ms;
            let given = &mut self.given;
            self.windows.advance(&self.plan, now_ms, |trigger, window, state| {
                given.push((trigger, window.start_ms, window.end_ms, state.0.clone()));
            });
            assert!(
                self.windows.next_ms(&self.plan).is_none_or(|next_ms| next_ms > now_ms),
                "all that is due was given"
            );
        }

        fn tick(&mut self, trigger: usize) {
            let given = &mut self.given;
            self.windows.give_changed(&self.plan, trigger, |trigger, window, state| {
                given.push((trigger, window.start_ms, window.end_ms, state.0.clone()));
            });
        }

        fn end(&mut self) {
            let given = &mut self.given;
            self.windows.give_all(&self.plan, |trigger, window, state| {
                given.push((trigger, window.start_ms, window.end_ms, state.0.clone()));
            });
        }

        fn store_and_read(&mut self) {
            let mut stored = Vec::new();
            self.windows.write(&mut stored, |state, out| out.extend_from_slice(&state.0));
            let read = |stored: &[u8]| TriggeredWindows::read(stored, |state| Some(Values(state.to_vec())));
            self.windows = read(&stored).unwrap();
        }
    }

    const fn trigger(when: TriggerWhen) -> Trigger {
        Trigger { when, gives_all: false, discards: false }
    }

    const fn discarding(when: TriggerWhen) -> Trigger {
        Trigger { discards: true, ..trigger(when) }
    }

    fn given(shape: WindowShape, triggers: &[Trigger], records: &[(i64, u8)]) -> Vec<Given> {
        let mut key = Key::new(shape, triggers, 0);
        records.iter().for_each(|(time_ms, value)| key.see(*time_ms, *value, 0));
        key.end();
        key.given
    }

    #[test]
    fn records_are_counted_for_the_key_and_what_is_left_is_given_at_the_end() {
        let records: Vec<(i64, u8)> = (0..5).map(|number| (0, number)).collect();
        let all = |trigger, values: &[u8]| (trigger, i64::MIN, i64::MAX, values.to_vec());
        let counted = given(WindowShape::Global, &[trigger(TriggerWhen::Records(2))], &records);
        assert_eq!(counted, [all(0, &[0, 1]), all(0, &[0, 1, 2, 3]), all(0, &[0, 1, 2, 3, 4])]);
        let counted = given(WindowShape::Global, &[discarding(TriggerWhen::Records(2))], &records);
        assert_eq!(counted, [all(0, &[0, 1]), all(0, &[2, 3]), all(0, &[4])]);
        // Nothing is given twice at the end.
        assert_eq!(given(WindowShape::Global, &[trigger(TriggerWhen::Records(5))], &records).len(), 1);
        // The counter is that of the key, and the window that of the record.
        let spread = [(0, 1), (12, 2), (1, 3), (13, 4)];
        let mut key = Key::new(WindowShape::tumbling(10, 0), &[trigger(TriggerWhen::Records(3))], 100);
        spread.iter().for_each(|(time_ms, value)| key.see(*time_ms, *value, 0));
        assert_eq!(key.given, [(0, 0, 10, vec![1, 3])]);
        let all_windows = Trigger { gives_all: true, ..trigger(TriggerWhen::Records(3)) };
        let mut key = Key::new(WindowShape::tumbling(10, 0), &[all_windows], 100);
        spread.iter().for_each(|(time_ms, value)| key.see(*time_ms, *value, 0));
        assert_eq!(key.given, [(0, 0, 10, vec![1, 3]), (0, 10, 20, vec![2])]);
    }

    #[test]
    fn early_and_last_results_of_a_window_have_their_triggers() {
        let triggers = [trigger(TriggerWhen::Closed { delay_ms: 2 }), trigger(TriggerWhen::Clock)];
        let mut key = Key::new(WindowShape::tumbling(10, 0), &triggers, 2);
        key.see(1, 1, 0);
        key.tick(1);
        // Nothing has changed since, neither by a record nor for the clock after the end.
        key.tick(1);
        key.see(11, 2, 0);
        key.see(9, 3, 0);
        key.see(12, 4, 0);
        key.tick(1);
        key.see(9, 5, 0);
        key.end();
        let expected = [(1, 0, 10, vec![1]), (0, 0, 10, vec![1, 3]), (1, 10, 20, vec![2, 4]), (0, 10, 20, vec![2, 4])];
        assert_eq!(key.given, expected);
        assert_eq!(key.late, [5]);
    }

    #[test]
    fn a_record_decides_and_a_part_of_the_window_fires_once() {
        let mut key = Key::new(WindowShape::tumbling(10, 0), &[trigger(TriggerWhen::Record)], 0);
        key.see(1, 1, 0);
        key.see(2, 2, 1);
        key.see(3, 3, 0);
        key.see(10, 4, 0);
        key.end();
        // A window that goes is given with what has come since.
        assert_eq!(key.given, [(0, 0, 10, vec![1, 2]), (0, 0, 10, vec![1, 2, 3]), (0, 10, 20, vec![4])]);
        let half = given(WindowShape::tumbling(10, 0), &[trigger(TriggerWhen::Part(0.5))], &[(1, 1), (6, 2), (7, 3)]);
        assert_eq!(half, [(0, 0, 10, vec![1, 2]), (0, 0, 10, vec![1, 2, 3])]);
    }

    #[test]
    fn a_discarded_window_begins_anew_with_late_records() {
        let mut key = Key::new(WindowShape::tumbling(10, 0), &[discarding(TriggerWhen::Closed { delay_ms: 0 })], 5);
        [(1, 1), (11, 2), (2, 3), (3, 4)].iter().for_each(|(time_ms, value)| key.see(*time_ms, *value, 0));
        assert_eq!(key.given, [(0, 0, 10, vec![1]), (0, 0, 10, vec![3]), (0, 0, 10, vec![4])]);
    }

    fn shapes() -> impl Strategy<Value = WindowShape> {
        prop_oneof![
            (1..20_i64, 1..20_i64, 0..5_i64).prop_map(|(size_ms, slide, offset_ms)| WindowShape::Time {
                size_ms,
                slide_ms: slide.min(size_ms),
                offset_ms
            }),
            (0..10_i64).prop_map(|gap_ms| WindowShape::Session { gap_ms }),
            Just(WindowShape::Global),
        ]
    }

    fn triggers() -> impl Strategy<Value = Vec<Trigger>> {
        let when = prop_oneof![
            (1..4_u64).prop_map(TriggerWhen::Records),
            Just(TriggerWhen::Record),
            Just(TriggerWhen::Clock),
            (0..6_i64).prop_map(|delay_ms| TriggerWhen::Closed { delay_ms }),
            (0..=4_u8).prop_map(|part| TriggerWhen::Part(f64::from(part) / 4.0)),
        ];
        let one = (when, any::<bool>(), any::<bool>());
        let one = one.prop_map(|(when, gives_all, discards)| Trigger { when, gives_all, discards });
        prop::collection::vec(one, 1..4)
    }

    proptest! {
        /// A trigger by time is what windows without triggers do.
        #[test]
        fn a_trigger_by_time_gives_what_panes_give(
            shape in shapes(), lateness_ms in 0..20_i64, times in prop::collection::vec(0..60_i64, 0..40),
        ) {
            let mut key = Key::new(shape.clone(), &[trigger(TriggerWhen::Closed { delay_ms: 0 })], lateness_ms);
            let mut panes = KeyWindows::default();
            let (mut expected, mut late, mut now_ms) = (Vec::new(), Vec::new(), i64::MIN);
            for (time_ms, value) in times.into_iter().zip(0..) {
                key.see(time_ms, value, 0);
                let mut give = |window: WindowExtent, state: &Values| {
                    expected.push((0, window.start_ms, window.end_ms, state.0.clone()));
                };
                let times = WindowTimes { due_ms: now_ms, gone_ms: now_ms.saturating_sub(lateness_ms) };
                match panes.state(&shape, time_ms, times.gone_ms, Values::default) {
                    Some(state) => state.merge(&Values(vec![value])),
                    None => late.push(value),
                }
                if late.last() != Some(&value) {
                    panes.give_again(&shape, time_ms, times, Values::default, &mut give);
                }
                now_ms = now_ms.max(time_ms);
                panes.give_due(&shape, now_ms, Values::default, &mut give);
                panes.forget(&shape, now_ms.saturating_sub(lateness_ms));
            }
            key.end();
            panes.give_all(&shape, Values::default, |window, state| {
                expected.push((0, window.start_ms, window.end_ms, state.0.clone()));
            });
            prop_assert_eq!(&key.late, &late);
            prop_assert_eq!(&key.given, &expected);
        }

        #[test]
        fn storing_between_records_changes_nothing(
            shape in shapes(), triggers in triggers(), kept_ms in 5..20_i64,
            records in prop::collection::vec((0..60_i64, 0..8_u32, any::<bool>()), 0..40),
        ) {
            let mut keys = [(); 2].map(|()| Key::new(shape.clone(), &triggers, kept_ms));
            for ((time_ms, fires, stores), value) in records.into_iter().zip(0..) {
                keys.iter_mut().for_each(|key| key.see(time_ms, value, fires));
                if stores {
                    keys[0].store_and_read();
                }
            }
            keys.iter_mut().for_each(Key::end);
            prop_assert_eq!(&keys[0].given, &keys[1].given);
            prop_assert_eq!(&keys[0].late, &keys[1].late);
        }

        /// Without `discards`, the last that is given of each window has all its records.
        #[test]
        fn no_record_that_is_taken_is_left_out_of_all_results(
            shape in shapes(), triggers in triggers(), kept_ms in 5..20_i64,
            records in prop::collection::vec((0..60_i64, 0..8_u32), 0..40),
        ) {
            let mut key = Key::new(shape, &triggers, kept_ms);
            let count = records.len() as u8;
            for ((time_ms, fires), value) in records.into_iter().zip(0..) {
                key.see(time_ms, value, fires);
            }
            key.end();
            for value in (0..count).filter(|value| !key.late.contains(value)) {
                prop_assert!(key.given.iter().any(|(.., values)| values.contains(&value)), "{} of {:?}", value, key.given);
            }
        }
    }

    #[test]
    fn the_stored_form_is_read_and_a_part_of_it_is_refused() {
        let stored =
            b"\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x02\x09\x08";
        let read = |stored: &[u8]| TriggeredWindows::read(stored, |state| Some(Values(state.to_vec())));
        let windows = read(stored).unwrap();
        let extent = WindowExtent { start_ms: 1, end_ms: 2 };
        assert_eq!(windows.counts, [5]);
        assert_eq!(windows.windows().collect::<Vec<_>>(), [(extent, &Values(vec![9, 8]))]);
        assert_eq!([0, 1, 2].map(|number| windows.has_changed(number)), [true, true, false]);
        assert_eq!([0, 1, 2].map(|number| windows.windows[0].has_reached(number)), [false, false, true]);
        let mut written = Vec::new();
        windows.write(&mut written, |state, out| out.extend_from_slice(&state.0));
        assert_eq!(written, stored);
        assert!((0..stored.len()).filter(|end| *end != 9).all(|end| read(&stored[..end]).is_none()));
    }
}
