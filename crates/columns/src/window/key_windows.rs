//! The open windows of one key.

use super::extent::WindowExtent;
use super::shape::WindowShape;

/// The sum of the records of a pane.
pub trait WindowState {
    /// Adds what another pane has come to.
    fn merge(&mut self, other: &Self);
}

/// The panes of one key, and the windows that were given.
///
/// Always true
/// - Panes are in the order of their times and do not touch.
/// - A window that closes at or before `given_ms` was given, unless it has got records since.
#[derive(Debug, Clone)]
pub struct KeyWindows<S> {
    panes: Vec<Pane<S>>,
    /// Windows that close up to here were given.
    given_ms: i64,
}

#[derive(Debug, Clone)]
struct Pane<S> {
    extent: WindowExtent,
    state: S,
}

/// How far time has come for windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowTimes {
    /// Windows that close up to here are given.
    pub due_ms: i64,
    /// Windows that close up to here are gone, and their records are late.
    pub gone_ms: i64,
}

impl<S> Default for KeyWindows<S> {
    fn default() -> Self {
        Self { panes: Vec::new(), given_ms: i64::MIN }
    }
}

impl<S: WindowState> KeyWindows<S> {
    /// The state that a record of this time is to be added to; `None` if all its windows are gone.
    pub fn state(
        &mut self,
        shape: &WindowShape,
        time_ms: i64,
        gone_ms: i64,
        fresh: impl FnOnce() -> S,
    ) -> Option<&mut S> {
        let mut extent = shape.pane(time_ms);
        let touches = |known: &WindowExtent| match shape {
            WindowShape::Session { gap_ms } => {
                known.start_ms.saturating_sub(*gap_ms) <= time_ms && time_ms <= known.end_ms.saturating_add(*gap_ms)
            }
            _ => *known == extent,
        };
        let first = match shape {
            WindowShape::Session { .. } => self.panes.iter().position(|pane| touches(&pane.extent)),
            _ => self.panes.binary_search_by_key(&extent.start_ms, |pane| pane.extent.start_ms).ok(),
        };
        let Some(first) = first else {
            if shape.last_close_ms(extent).is_some_and(|close_ms| close_ms <= gone_ms) {
                return None;
            }
            let place = self.panes.partition_point(|pane| pane.extent.start_ms < extent.start_ms);
            // Most keys have one pane: room for four, as a list takes by itself, would be most of their memory.
            if self.panes.len() == self.panes.capacity() {
                self.panes.reserve_exact(1 + self.panes.len() / 2);
            }
            self.panes.insert(place, Pane { extent, state: fresh() });
            return Some(&mut self.panes[place].state);
        };
        let count = self.panes[first..].iter().take_while(|pane| touches(&pane.extent)).count();
        for pane in &self.panes[first..first + count] {
            extent.start_ms = extent.start_ms.min(pane.extent.start_ms);
            extent.end_ms = extent.end_ms.max(pane.extent.end_ms);
        }
        let others: Vec<Pane<S>> = self.panes.drain(first + 1..first + count).collect();
        let kept = &mut self.panes[first];
        kept.extent = extent;
        others.iter().for_each(|other| kept.state.merge(&other.state));
        Some(&mut kept.state)
    }

    /// Gives the windows with this time that have closed by `due_ms`, once more if they were given before: a record that is
    /// late has come to them. Those that have closed by `gone_ms` are left out, as the record is too late for them. All others that
    /// are due must have been given.
    pub fn give_again(
        &mut self,
        shape: &WindowShape,
        time_ms: i64,
        times: WindowTimes,
        fresh: impl Fn() -> S,
        mut give: impl FnMut(WindowExtent, &S),
    ) {
        let WindowTimes { due_ms, gone_ms } = times;
        let pane = shape.pane(time_ms);
        // A window closes with its last pane at the earliest; most records are not late for any.
        if shape.close_ms(pane) > due_ms {
            return;
        }
        let holds = |known: &&Pane<S>| match shape {
            WindowShape::Session { .. } => known.extent.start_ms <= time_ms && time_ms <= known.extent.end_ms,
            _ => known.extent == pane,
        };
        let Some(extent) = self.panes.iter().find(holds).map(|pane| pane.extent) else { return };
        let mut after_ms = gone_ms;
        while let Some(window) = shape.window_after(extent, after_ms) {
            after_ms = shape.close_ms(window);
            if after_ms > due_ms {
                break;
            }
            self.give(window, &fresh, &mut give);
            self.given_ms = self.given_ms.max(due_ms);
        }
    }

    /// Gives the windows that have closed by `due_ms` and were not given, in the order of their ends.
    pub fn give_due(
        &mut self,
        shape: &WindowShape,
        due_ms: i64,
        fresh: impl Fn() -> S,
        mut give: impl FnMut(WindowExtent, &S),
    ) {
        while let Some(window) = self.next_window(shape).filter(|window| shape.close_ms(*window) <= due_ms) {
            self.give(window, &fresh, &mut give);
            self.given_ms = shape.close_ms(window);
        }
        self.given_ms = self.given_ms.max(due_ms);
    }

    /// Gives all windows that were not given, as if time had come to its end.
    pub fn give_all(&mut self, shape: &WindowShape, fresh: impl Fn() -> S, mut give: impl FnMut(WindowExtent, &S)) {
        while let Some(window) = self.next_window(shape) {
            self.give(window, &fresh, &mut give);
            self.given_ms = shape.close_ms(window);
        }
        if *shape == WindowShape::Global {
            self.panes.iter().for_each(|pane| give(pane.extent, &pane.state));
        }
    }

    /// The next window that has records and was not given.
    fn next_window(&self, shape: &WindowShape) -> Option<WindowExtent> {
        self.panes.iter().find_map(|pane| shape.window_after(pane.extent, self.given_ms))
    }

    fn give(&self, window: WindowExtent, fresh: &impl Fn() -> S, give: &mut impl FnMut(WindowExtent, &S)) {
        let first = self.panes.partition_point(|pane| pane.extent.start_ms < window.start_ms);
        let is_inside = |pane: &&Pane<S>| pane.extent.end_ms <= window.end_ms;
        let mut inside = self.panes[first..].iter().take_while(is_inside);
        match (inside.next(), inside.next()) {
            (None, _) => {}
            (Some(one), None) => give(window, &one.state),
            (Some(one), Some(other)) => {
                let mut whole = fresh();
                [one, other].into_iter().chain(inside).for_each(|pane| whole.merge(&pane.state));
                give(window, &whole);
            }
        }
    }

    /// Forgets the panes whose windows have all closed by `gone_ms`.
    pub fn forget(&mut self, shape: &WindowShape, gone_ms: i64) {
        self.panes.retain(|pane| shape.last_close_ms(pane.extent).is_none_or(|close_ms| close_ms > gone_ms));
    }

    /// The time at which a window is to be given, or a pane to be forgotten `lateness_ms` after its last window.
    pub fn next_ms(&self, shape: &WindowShape, lateness_ms: i64) -> Option<i64> {
        let due_ms = self.next_window(shape).map(|window| shape.close_ms(window));
        let gone_ms = self.panes.first().and_then(|pane| shape.last_close_ms(pane.extent)?.checked_add(lateness_ms));
        [due_ms, gone_ms].into_iter().flatten().min()
    }

    /// `true` without any records.
    pub fn is_empty(&self) -> bool {
        self.panes.is_empty()
    }

    /// The number of panes.
    pub fn panes(&self) -> usize {
        self.panes.len()
    }

    /// The states of the panes.
    pub fn states(&self) -> impl Iterator<Item = &S> {
        self.panes.iter().map(|pane| &pane.state)
    }

    /// Appends the stored form: the time up to which windows were given, and of each pane its bounds and its state, which
    /// `write` appends. Integers are big endian.
    pub fn write(&self, out: &mut Vec<u8>, write: impl Fn(&S, &mut Vec<u8>)) {
        out.extend_from_slice(&self.given_ms.to_be_bytes());
        for Pane { extent, state } in &self.panes {
            out.extend_from_slice(&extent.start_ms.to_be_bytes());
            out.extend_from_slice(&extent.end_ms.to_be_bytes());
            let length_at = out.len();
            out.extend_from_slice(&[0; 4]);
            write(state, out);
            let length = (out.len() - length_at - 4) as u32;
            out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
        }
    }

    /// Reads the stored form; `None` if it is none.
    pub fn read(stored: &[u8], read: impl Fn(&[u8]) -> Option<S>) -> Option<Self> {
        let (given_ms, mut rest) = stored.split_first_chunk()?;
        let mut windows = Self { panes: Vec::new(), given_ms: i64::from_be_bytes(*given_ms) };
        while !rest.is_empty() {
            let (start_ms, after) = rest.split_first_chunk()?;
            let (end_ms, after) = after.split_first_chunk()?;
            let (length, after) = after.split_first_chunk()?;
            let (state, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            let extent = WindowExtent { start_ms: i64::from_be_bytes(*start_ms), end_ms: i64::from_be_bytes(*end_ms) };
            windows.panes.push(Pane { extent, state: read(state)? });
            rest = after;
        }
        Some(windows)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The values of a window, in order.
    #[derive(Debug, Clone, Default, PartialEq)]
    struct Values(Vec<u8>);

    impl WindowState for Values {
        fn merge(&mut self, other: &Self) {
            self.0.extend(&other.0);
            self.0.sort_unstable();
        }
    }

    /// A window with its bounds and values.
    type Given = (i64, i64, Vec<u8>);

    /// One key, whose time is that of its records.
    struct Key {
        shape: WindowShape,
        lateness_ms: i64,
        windows: KeyWindows<Values>,
        time_ms: i64,
        given: Vec<Given>,
        late: Vec<u8>,
    }

    impl Key {
        fn new(shape: WindowShape, lateness_ms: i64) -> Self {
            let windows = KeyWindows::default();
            Self { shape, lateness_ms, windows, time_ms: i64::MIN, given: Vec::new(), late: Vec::new() }
        }

        fn see(&mut self, time_ms: i64, value: u8) {
            let given = &mut self.given;
            let mut give =
                |window: WindowExtent, state: &Values| given.push((window.start_ms, window.end_ms, state.0.clone()));
            let gone_ms = self.time_ms.saturating_sub(self.lateness_ms);
            match self.windows.state(&self.shape, time_ms, gone_ms, Values::default) {
                None => self.late.push(value),
                Some(state) => {
                    state.merge(&Values(vec![value]));
                    let times = WindowTimes { due_ms: self.time_ms, gone_ms };
                    self.windows.give_again(&self.shape, time_ms, times, Values::default, &mut give);
                }
            }
            self.time_ms = self.time_ms.max(time_ms);
            self.windows.give_due(&self.shape, self.time_ms, Values::default, &mut give);
            self.windows.forget(&self.shape, self.time_ms.saturating_sub(self.lateness_ms));
        }

        fn store_and_read(&mut self) {
            let mut stored = Vec::new();
            self.windows.write(&mut stored, |state, out| out.extend_from_slice(&state.0));
            self.windows = KeyWindows::read(&stored, |state| Some(Values(state.to_vec()))).unwrap();
        }

        fn end(&mut self) {
            let given = &mut self.given;
            let give =
                |window: WindowExtent, state: &Values| given.push((window.start_ms, window.end_ms, state.0.clone()));
            self.windows.give_all(&self.shape, Values::default, give);
        }
    }

    fn given(shape: WindowShape, lateness_ms: i64, records: &[(i64, u8)]) -> (Vec<Given>, Vec<u8>) {
        let mut key = Key::new(shape, lateness_ms);
        records.iter().for_each(|(time_ms, value)| key.see(*time_ms, *value));
        key.end();
        (key.given, key.late)
    }

    #[test]
    fn a_tumbling_window_is_given_once_it_is_over_and_again_for_a_record_that_is_not_too_late() {
        let records = [(1, 1), (9, 2), (10, 3), (5, 4), (15, 5), (3, 6), (21, 7)];
        let (windows, late) = given(WindowShape::tumbling(10, 0), 5, &records);
        let of = |start, values: &[u8]| (start, start + 10, values.to_vec());
        assert_eq!(windows, [of(0, &[1, 2]), of(0, &[1, 2, 4]), of(10, &[3, 5]), of(20, &[7])]);
        assert_eq!(late, [6]);
        let (windows, late) = given(WindowShape::tumbling(10, 0), 0, &records);
        assert_eq!(windows, [of(0, &[1, 2]), of(10, &[3, 5]), of(20, &[7])]);
        assert_eq!(late, [4, 6]);
    }

    #[test]
    fn sessions_grow_to_both_sides_and_merge_and_a_late_record_gives_the_merged_one_again_once() {
        let records = [(0, 1), (5, 2), (20, 3), (10, 4), (14, 5), (30, 6)];
        let session = || WindowShape::Session { gap_ms: 5 };
        let (windows, late) = given(session(), 100, &records);
        assert_eq!(
            windows,
            [
                (0, 5, vec![1, 2]),
                (0, 10, vec![1, 2, 4]),
                (0, 14, vec![1, 2, 4, 5]),
                (20, 20, vec![3]),
                (30, 30, vec![6])
            ]
        );
        assert!(late.is_empty());
        let (windows, late) = given(session(), 0, &records);
        assert_eq!(windows, [(0, 5, vec![1, 2]), (20, 20, vec![3]), (30, 30, vec![6])]);
        assert_eq!(late, [4, 5]);
    }

    #[test]
    fn all_records_are_one_window_without_bounds() {
        let (windows, late) = given(WindowShape::Global, 0, &[(5, 1), (1, 2)]);
        assert_eq!((windows, late), (vec![(i64::MIN, i64::MAX, vec![1, 2])], vec![]));
    }

    #[test]
    fn the_stored_form_is_read_and_a_part_of_it_is_refused() {
        let mut windows = KeyWindows { panes: Vec::new(), given_ms: 7 };
        windows.panes.push(Pane { extent: WindowExtent { start_ms: 1, end_ms: 2 }, state: Values(vec![9, 8]) });
        let mut stored = Vec::new();
        windows.write(&mut stored, |state, out| out.extend_from_slice(&state.0));
        let expected = b"\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x02\x09\x08";
        assert_eq!(stored, expected);
        let read = |stored: &[u8]| KeyWindows::read(stored, |state| Some(Values(state.to_vec())));
        assert_eq!(read(&stored).unwrap().panes[0].state, Values(vec![9, 8]));
        assert!((0..stored.len()).filter(|end| *end != 8).all(|end| read(&stored[..end]).is_none()));
    }

    /// The last that is given of each window, of all records of it that are not late: computed for each window by itself.
    fn expected(shape: &WindowShape, records: &[(i64, u8)], late: &[u8]) -> BTreeMap<(i64, i64), Vec<u8>> {
        let WindowShape::Time { size_ms, slide_ms, offset_ms } = *shape else { return BTreeMap::new() };
        let mut windows: BTreeMap<(i64, i64), Vec<u8>> = BTreeMap::new();
        for (time_ms, value) in records.iter().filter(|(_, value)| !late.contains(value)) {
            for start_ms in (-200..200).map(|number| offset_ms + number * slide_ms) {
                if start_ms <= *time_ms && *time_ms < start_ms + size_ms {
                    windows.entry((start_ms, start_ms + size_ms)).or_default().push(*value);
                }
            }
        }
        windows.values_mut().for_each(|values| values.sort_unstable());
        windows
    }

    proptest! {
        #[test]
        fn the_last_of_each_window_has_all_its_records(
            times in prop::collection::vec(0..60_i64, 0..40), size in 1..20_i64, slide in 1..20_i64, offset in 0..5_i64,
            cuts in prop::collection::vec(any::<bool>(), 40),
        ) {
            let shape = WindowShape::Time { size_ms: size, slide_ms: slide.min(size), offset_ms: offset };
            let records: Vec<(i64, u8)> = times.into_iter().zip(0..).collect();
            // Nothing is too late.
            let mut key = Key::new(shape.clone(), 1_000);
            for ((time_ms, value), stores) in records.iter().zip(cuts) {
                key.see(*time_ms, *value);
                if stores {
                    key.store_and_read();
                }
            }
            key.end();
            prop_assert_eq!(&key.late, &Vec::<u8>::new());
            let last: BTreeMap<(i64, i64), Vec<u8>> =
                key.given.iter().map(|(start, end, values)| ((*start, *end), values.clone())).collect();
            prop_assert_eq!(last, expected(&shape, &records, &[]));
            prop_assert_eq!(given(shape, 1_000, &records).0, key.given);
        }

        #[test]
        fn sessions_are_the_records_without_longer_pauses(
            times in prop::collection::vec(0..100_i64, 0..30), gap in 0..10_i64,
        ) {
            let records: Vec<(i64, u8)> = times.into_iter().zip(0..).collect();
            let (windows, late) = given(WindowShape::Session { gap_ms: gap }, 1_000, &records);
            prop_assert_eq!(late, Vec::<u8>::new());
            let mut sorted = records.clone();
            sorted.sort_unstable();
            let mut sessions: Vec<Given> = Vec::new();
            for (time_ms, value) in sorted {
                match sessions.last_mut().filter(|session| time_ms - session.1 <= gap) {
                    Some(session) => {
                        session.1 = time_ms;
                        session.2.push(value);
                    }
                    None => sessions.push((time_ms, time_ms, vec![value])),
                }
            }
            for session in &mut sessions {
                session.2.sort_unstable();
                prop_assert!(windows.contains(session), "{:?} has no {:?}", windows, session);
            }
        }
    }
}
