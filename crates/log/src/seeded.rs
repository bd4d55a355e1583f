//! Turns in place of threads: what the threads of an engine do, the caller's thread does, in an order that a seed decides.
//!
//! A test that is run again with its seed makes the same calls and the same changes to its disk, byte by byte. Nothing runs
//! beside the test, so no timer and no wake-up costs time.
//!
//! A task is a function that takes one turn. Turns are taken by [`SeededScheduler::turn`], while somebody waits
//! ([`SeededScheduler::until`]), and in the middle of another turn ([`SeededScheduler::interleave`]): a simulated disk calls
//! that before each change. A task that is in the middle of its turn does not begin another.

use std::fmt;

use parking_lot::Mutex;

/// Turns in a row without any work after which nobody can go on: each timer had its chance many times.
const IDLE_TURNS_MAX: u32 = 20_000;
/// Turns that are in the middle of others, at most.
const DEPTH_MAX: u32 = 4;
/// Of a hundred changes to a disk so many have turns of others before them.
const INTERLEAVED_PERCENT: u64 = 25;

/// One turn; `true` if there was something to do.
type Turn = Box<dyn FnMut() -> bool + Send>;

/// A task that was added to a [`SeededScheduler`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskId(u64);

/// The caller that a task belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskOwner {
    /// It works for others: it may go on while they wait.
    Engine,
    /// It calls an engine, and may hold what another caller needs: it takes no turn while one of them waits.
    Caller,
}

struct Task {
    id: TaskId,
    name: &'static str,
    owner: TaskOwner,
    /// `None` in the middle of its turn.
    turn: Option<Turn>,
}

#[derive(Default)]
struct State {
    random: u64,
    tasks: Vec<Task>,
    next_id: u64,
    depth: u32,
    /// Callers that wait for an engine.
    waiting: u32,
    turns: u64,
}

impl State {
    /// The next number of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
    fn bits(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound.max(1)
    }

    /// Takes one of the tasks that may begin a turn.
    fn begin(&mut self) -> Option<(TaskId, Turn)> {
        let has_waiting = self.waiting > 0;
        let may_begin = |task: &Task| task.turn.is_some() && !(has_waiting && task.owner == TaskOwner::Caller);
        let ready = self.tasks.iter().filter(|task| may_begin(task)).count();
        if ready == 0 {
            return None;
        }
        let chosen = self.below(ready as u64) as usize;
        let task = self.tasks.iter_mut().filter(|task| may_begin(task)).nth(chosen)?;
        let id = task.id;
        let turn = task.turn.take()?;
        self.depth += 1;
        self.turns += 1;
        Some((id, turn))
    }

    fn end(&mut self, id: TaskId, turn: Turn) {
        self.depth -= 1;
        // A task that was removed meanwhile is dropped.
        if let Some(task) = self.tasks.iter_mut().find(|task| task.id == id) {
            task.turn = Some(turn);
        }
    }
}

/// Takes the turns of tasks on the caller's thread, in an order that the seed decides. For one thread: tasks of several
/// threads would not be in an order.
pub struct SeededScheduler(Mutex<State>);

impl SeededScheduler {
    /// A scheduler without tasks.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(State { random: seed, ..State::default() }))
    }

    /// Adds a task that works for others, as a thread of an engine does. `turn` takes one turn, and returns whether there
    /// was something to do.
    pub fn add(&self, name: &'static str, turn: impl FnMut() -> bool + Send + 'static) -> TaskId {
        self.insert(name, TaskOwner::Engine, Box::new(turn))
    }

    /// Adds a task that calls an engine. While one such task waits for the engine, no other begins a turn. It waits only where
    /// it may: see [`SeededScheduler::may_wait`].
    pub fn add_caller(&self, name: &'static str, turn: impl FnMut() -> bool + Send + 'static) -> TaskId {
        self.insert(name, TaskOwner::Caller, Box::new(turn))
    }

    fn insert(&self, name: &'static str, owner: TaskOwner, turn: Turn) -> TaskId {
        let mut state = self.0.lock();
        let id = TaskId(state.next_id);
        state.next_id += 1;
        state.tasks.push(Task { id, name, owner, turn: Some(turn) });
        id
    }

    /// Removes a task; one in the middle of its turn takes no further one.
    pub fn remove(&self, id: TaskId) {
        let mut state = self.0.lock();
        let removed = state.tasks.extract_if(.., |task| task.id == id).collect::<Vec<_>>();
        drop(state);
        drop(removed);
    }

    /// Takes a turn of some task. `true` if there was something to do.
    pub fn turn(&self) -> bool {
        let begun = self.0.lock().begin();
        let Some((id, mut turn)) = begun else { return false };
        let worked = turn();
        self.0.lock().end(id, turn);
        worked
    }

    /// Takes turns of the engine's tasks until `done` has a value.
    ///
    /// # Panics
    /// If nobody can go on any more.
    pub fn until<T>(&self, mut done: impl FnMut() -> Option<T>) -> T {
        self.0.lock().waiting += 1;
        let mut idle = 0;
        let value = loop {
            if let Some(value) = done() {
                break value;
            }
            idle = if self.turn() { 0 } else { idle + 1 };
            assert!(idle < IDLE_TURNS_MAX, "somebody waits for ever: {self:?}");
        };
        self.0.lock().waiting -= 1;
        value
    }

    /// `true` if the task that takes its turn may wait: no other is in the middle of one, which could be the one that it would
    /// wait for.
    pub fn may_wait(&self) -> bool {
        self.0.lock().depth <= 1
    }

    /// By chance takes a few turns of others. For a moment in the middle of a turn, without any lock held that another task
    /// takes.
    pub fn interleave(&self) {
        let mut state = self.0.lock();
        if state.depth >= DEPTH_MAX || state.below(100) >= INTERLEAVED_PERCENT {
            return;
        }
        let turns = 1 + state.below(4);
        drop(state);
        for _ in 0..turns {
            self.turn();
        }
    }

    /// `true` if the task is in the middle of a turn.
    pub fn is_in_turn(&self, id: TaskId) -> bool {
        self.0.lock().tasks.iter().any(|task| task.id == id && task.turn.is_none())
    }

    /// `true` with this probability.
    pub fn chance(&self, percent: u64) -> bool {
        self.0.lock().below(100) < percent
    }

    /// 64 random bits.
    pub fn bits(&self) -> u64 {
        self.0.lock().bits()
    }

    /// Turns so far.
    pub fn turns(&self) -> u64 {
        self.0.lock().turns
    }
}

impl fmt::Debug for SeededScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        let names =
            state.tasks.iter().map(|task| (task.name, if task.turn.is_some() { "ready" } else { "in its turn" }));
        write!(f, "SeededScheduler({} turns, {} waiting): ", state.turns, state.waiting)?;
        f.debug_map().entries(names).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// The order in which three tasks take turns, the second of which lets others in.
    fn order(seed: u64) -> Vec<u32> {
        let scheduler = Arc::new(SeededScheduler::new(seed));
        let order = Arc::new(Mutex::new(Vec::new()));
        for number in 0..3 {
            let (taken, inner) = (Arc::clone(&order), Arc::downgrade(&scheduler));
            scheduler.add("task", move || {
                taken.lock().push(number);
                if number == 1
                    && let Some(scheduler) = inner.upgrade()
                {
                    scheduler.interleave();
                    taken.lock().push(10);
                }
                true
            });
        }
        for _ in 0..200 {
            scheduler.turn();
        }
        order.lock().split_off(0)
    }

    #[test]
    fn a_seed_decides_the_order_of_turns() {
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
    }

    #[test]
    fn a_task_in_the_middle_of_its_turn_begins_no_other() {
        let taken = order(7);
        let mut is_open = false;
        for turn in &taken {
            match turn {
                1 => assert!(!std::mem::replace(&mut is_open, true), "{taken:?}"),
                10 => is_open = false,
                _ => {}
            }
        }
        assert!(taken.windows(2).any(|pair| pair[0] == 1 && pair[1] != 10), "others were let in");
    }

    #[test]
    fn callers_stand_still_while_one_of_them_waits() {
        let scheduler = SeededScheduler::new(1);
        scheduler.add_caller("caller", || panic!("takes a turn"));
        let mut left = 100;
        scheduler.add("engine", || true);
        assert_eq!(
            scheduler.until(|| {
                left -= 1;
                (left == 0).then_some(5)
            }),
            5
        );
    }

    #[test]
    #[should_panic(expected = "somebody waits for ever")]
    fn a_wait_that_nobody_ends_is_told() {
        let scheduler = SeededScheduler::new(1);
        scheduler.add("engine", || false);
        scheduler.until(|| None::<()>);
    }
}
