//! Worker threads that give turns to the tasks of all jobs.
//!
//! The tenant that has used the least time is next, and of its jobs the one that has. So busy tenants get equal parts of the
//! time, whatever their numbers of jobs, and so do the busy jobs of a tenant, whatever their numbers of tasks and the length of
//! their turns. One that was idle starts with the time of the others: it cannot catch up on what it did not need, but has its
//! turn before all that are busy. Most turns of a job go to the oldest busy job of its tenant that is greedy, so that greed
//! costs no other tenant anything.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_log::run_in_background;
use millstream_types::{MonotonicClock, TenantId};
use parking_lot::{Condvar, Mutex};

use super::time_shares::TimeShares;
use crate::document::Scheduler;

/// Turns of another job of its tenant that a greedy job takes before that one gets a turn itself.
const GREEDY_TURNS: u32 = 15;
/// A turn counts as at least so long, so that turns are shared while a clock stands still.
const TURN_MIN: Duration = Duration::from_micros(1);
/// A turn counts as at most so long: the process, or its machine, may have been halted meanwhile.
const TURN_MAX: Duration = Duration::from_secs(1);

/// The work of a task.
pub(crate) trait Turn: Send {
    /// Works for a short time.
    fn turn(&mut self) -> TurnOutcome;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnOutcome {
    /// There is more to do.
    Again,
    /// Nothing to do until the task is woken, or this time has passed.
    Wait(Option<Duration>),
    /// The task is over and gets no further turn.
    Ended,
}

const IDLE: u8 = 0;
const READY: u8 = 1;
const RUNNING: u8 = 2;
const WOKEN: u8 = 3;
const ENDED: u8 = 4;

/// A task of a job.
pub(crate) struct Task {
    id: u64,
    job: u64,
    state: AtomicU8,
    /// The queue has a timer for the task.
    has_timer: AtomicBool,
    body: Mutex<Option<Box<dyn Turn>>>,
    /// Turns of the whole job.
    turns: Arc<AtomicU64>,
    workers: Arc<Shared>,
}

impl Task {
    /// Gives the task a turn soon.
    pub(crate) fn wake(self: &Arc<Self>) {
        if self.become_ready() {
            self.workers.push(Arc::clone(self));
        }
    }

    /// `true` if the caller has to queue the task.
    fn become_ready(&self) -> bool {
        let next = |state| match state {
            IDLE => Some(READY),
            RUNNING => Some(WOKEN),
            _ => None,
        };
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) == Ok(IDLE)
    }

    fn run(self: &Arc<Self>) {
        self.state.store(RUNNING, Ordering::Release);
        self.turns.fetch_add(1, Ordering::Relaxed);
        let outcome = match &mut *self.body.lock() {
            Some(body) => body.turn(),
            None => TurnOutcome::Ended,
        };
        match outcome {
            TurnOutcome::Again => self.queue(),
            TurnOutcome::Wait(timeout) => {
                // The timer is set first: once the task is idle, another worker may run it.
                if timeout.is_some() || self.has_timer.load(Ordering::Relaxed) {
                    self.workers.set_timer(self, timeout);
                }
                if self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_err() {
                    self.queue();
                }
            }
            TurnOutcome::Ended => {
                self.state.store(ENDED, Ordering::Release);
                self.body.lock().take();
            }
        }
    }

    fn queue(self: &Arc<Self>) {
        self.state.store(READY, Ordering::Release);
        self.workers.push(Arc::clone(self));
    }
}

struct Shared {
    queue: Mutex<RunQueue>,
    news: Condvar,
    clock: Arc<dyn MonotonicClock>,
    next_id: AtomicU64,
}

#[derive(Default)]
struct RunQueue {
    jobs: HashMap<u64, ReadyJob>,
    tenants: TimeShares<TenantId>,
    jobs_of_tenants: HashMap<TenantId, TimeShares<u64>>,
    timers: BTreeMap<(Duration, u64), Arc<Task>>,
    deadlines: HashMap<u64, Duration>,
    /// Tenants and numbers of the greedy jobs that have ready tasks.
    greedy: BTreeSet<(TenantId, u64)>,
    is_stopped: bool,
}

#[derive(Default)]
struct ReadyJob {
    tenant: TenantId,
    is_greedy: bool,
    /// Turns that greedy jobs took since its own last one.
    given: u32,
    ready: VecDeque<Arc<Task>>,
}

/// A task that is to have a turn.
struct ChosenTask {
    task: Arc<Task>,
    /// The job that the turn's time is counted for; another one than the task's if that is greedy.
    payer: u64,
}

impl Shared {
    fn push(&self, task: Arc<Task>) {
        self.queue.lock().push(task);
        self.news.notify_one();
    }

    /// Sets the time at which the task gets a turn without being woken, in place of an earlier one.
    fn set_timer(&self, task: &Arc<Task>, timeout: Option<Duration>) {
        let deadline = timeout.map(|timeout| self.clock.now() + timeout);
        let mut queue = self.queue.lock();
        let first = queue.timers.first_key_value().map(|((first, _), _)| *first);
        if let Some(former) = queue.deadlines.remove(&task.id) {
            queue.timers.remove(&(former, task.id));
        }
        task.has_timer.store(deadline.is_some(), Ordering::Relaxed);
        let Some(deadline) = deadline else { return };
        queue.deadlines.insert(task.id, deadline);
        queue.timers.insert((deadline, task.id), Arc::clone(task));
        drop(queue);
        // A worker may sleep beyond the new deadline.
        if first.is_none_or(|first| deadline < first) {
            self.news.notify_one();
        }
    }

    fn work(&self) {
        let mut queue = self.queue.lock();
        while !queue.is_stopped {
            let now = self.clock.now();
            queue.fire_timers(now);
            if let Some(ChosenTask { task, payer }) = queue.choose() {
                drop(queue);
                task.run();
                let time = self.clock.now().saturating_sub(now);
                // Threads that answer somebody may wait for this core; without this they wait for a whole time slice.
                std::thread::yield_now();
                queue = self.queue.lock();
                queue.charge(payer, time);
                continue;
            }
            match queue.timers.first_key_value().map(|((deadline, _), _)| deadline.saturating_sub(now)) {
                Some(timeout) => drop(self.news.wait_for(&mut queue, timeout)),
                None => self.news.wait(&mut queue),
            }
        }
    }
}

impl RunQueue {
    /// Queues a task, unless its job is over.
    fn push(&mut self, task: Arc<Task>) {
        let number = task.job;
        let Some(job) = self.jobs.get_mut(&number) else { return };
        if job.ready.is_empty() {
            let jobs = self.jobs_of_tenants.entry(job.tenant.clone()).or_default();
            if jobs.is_idle() {
                self.tenants.enter(&job.tenant);
            }
            jobs.enter(&number);
            if job.is_greedy {
                self.greedy.insert((job.tenant.clone(), number));
            }
        }
        job.ready.push_back(task);
    }

    fn choose(&mut self) -> Option<ChosenTask> {
        let tenant = self.tenants.first()?;
        let payer = self.jobs_of_tenants.get_mut(&tenant)?.first()?;
        let job = self.jobs.get_mut(&payer)?;
        let greedy = self.greedy.range((tenant.clone(), 0)..).next();
        let greedy = greedy.filter(|(other_tenant, other)| *other_tenant == tenant && *other != payer);
        let number = match greedy {
            Some((_, other)) if job.given < GREEDY_TURNS => {
                job.given += 1;
                *other
            }
            _ => {
                job.given = 0;
                payer
            }
        };
        self.take(number).map(|task| ChosenTask { task, payer })
    }

    /// The next task of a job that has one.
    fn take(&mut self, number: u64) -> Option<Arc<Task>> {
        let job = self.jobs.get_mut(&number)?;
        let task = job.ready.pop_front();
        if job.ready.is_empty() {
            let jobs = self.jobs_of_tenants.get_mut(&job.tenant)?;
            jobs.leave(&number);
            if jobs.is_idle() {
                self.tenants.leave(&job.tenant);
            }
            self.greedy.remove(&(job.tenant.clone(), number));
        }
        task
    }

    /// Counts the time of a turn for a job and its tenant.
    fn charge(&mut self, number: u64, time: Duration) {
        let Some(job) = self.jobs.get(&number) else { return };
        let time = time.clamp(TURN_MIN, TURN_MAX);
        self.tenants.charge(&job.tenant, time);
        if let Some(jobs) = self.jobs_of_tenants.get_mut(&job.tenant) {
            jobs.charge(&number, time);
        }
    }

    fn fire_timers(&mut self, now: Duration) {
        while let Some(entry) = self.timers.first_entry().filter(|entry| entry.key().0 <= now) {
            let task = entry.remove();
            self.deadlines.remove(&task.id);
            if task.become_ready() {
                self.push(task);
            }
        }
    }

    fn forget(&mut self, job: u64) {
        if let Some(ReadyJob { tenant, .. }) = self.jobs.remove(&job) {
            if let Some(jobs) = self.jobs_of_tenants.get_mut(&tenant) {
                jobs.forget(&job);
                if jobs.is_idle() {
                    self.tenants.leave(&tenant);
                }
                if jobs.is_empty() {
                    self.jobs_of_tenants.remove(&tenant);
                    self.tenants.forget(&tenant);
                }
            }
            self.greedy.remove(&(tenant, job));
        }
        let is_other = |task: &Arc<Task>| task.job != job;
        self.timers.retain(|_, task| is_other(task));
        let left: BTreeSet<u64> = self.timers.keys().map(|(_, task)| *task).collect();
        self.deadlines.retain(|task, _| left.contains(task));
    }
}

/// The result of one [`Workers::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnStep {
    /// A task has had a turn.
    Turn,
    /// No task is ready before this time of the clock, if ever.
    Idle(Option<Duration>),
}

pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    count: usize,
}

impl Workers {
    pub(crate) fn start(count: usize, clock: Arc<dyn MonotonicClock>) -> std::io::Result<Arc<Self>> {
        let shared =
            Arc::new(Shared { queue: Mutex::default(), news: Condvar::new(), clock, next_id: AtomicU64::new(0) });
        let spawn = |number: usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("flow-{number}")).spawn(move || {
                run_in_background();
                shared.work();
            })
        };
        let threads = (0..count).map(spawn).collect::<Result<_, _>>()?;
        Ok(Arc::new(Self { shared, threads: Mutex::new(threads), count }))
    }

    /// Workers without a thread; [`Workers::step`] gives the turns.
    pub(crate) fn by_hand(clock: Arc<dyn MonotonicClock>) -> Arc<Self> {
        let shared =
            Arc::new(Shared { queue: Mutex::default(), news: Condvar::new(), clock, next_id: AtomicU64::new(0) });
        Arc::new(Self { shared, threads: Mutex::default(), count: 1 })
    }

    /// Gives the next task its turn, in the calling thread.
    pub(crate) fn step(&self) -> TurnStep {
        let mut queue = self.shared.queue.lock();
        let now = self.shared.clock.now();
        queue.fire_timers(now);
        match queue.choose() {
            Some(ChosenTask { task, payer }) => {
                drop(queue);
                task.run();
                let time = self.shared.clock.now().saturating_sub(now);
                self.shared.queue.lock().charge(payer, time);
                TurnStep::Turn
            }
            None => TurnStep::Idle(queue.timers.first_key_value().map(|((deadline, _), _)| *deadline)),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// A number for a new job; older jobs have lower ones.
    pub(crate) fn new_job(&self, tenant: &TenantId, scheduler: Scheduler) -> u64 {
        let number = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let is_greedy = scheduler == Scheduler::Greedy;
        let job = ReadyJob { tenant: tenant.clone(), is_greedy, ..ReadyJob::default() };
        self.shared.queue.lock().jobs.insert(number, job);
        number
    }

    /// A task without work; [`Workers::begin`] gives it some.
    pub(crate) fn new_task(&self, job: u64, turns: &Arc<AtomicU64>) -> Arc<Task> {
        Arc::new(Task {
            id: self.shared.next_id.fetch_add(1, Ordering::Relaxed),
            job,
            // Nobody runs it before it has its work.
            state: AtomicU8::new(WOKEN),
            has_timer: AtomicBool::new(false),
            body: Mutex::new(None),
            turns: Arc::clone(turns),
            workers: Arc::clone(&self.shared),
        })
    }

    /// Gives the task its work and its first turn.
    pub(crate) fn begin(task: &Arc<Task>, body: Box<dyn Turn>) {
        *task.body.lock() = Some(body);
        task.queue();
    }

    /// Forgets the queued turns and timers of a job that is over.
    pub(crate) fn forget(&self, job: u64) {
        self.shared.queue.lock().forget(job);
    }

    /// Ends the threads after their turns.
    pub(crate) fn stop(&self) {
        self.shared.queue.lock().is_stopped = true;
        self.shared.news.notify_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of jobs panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use millstream_types::ManualClock;

    use super::*;

    struct Count {
        left: u32,
        job: usize,
        told: Sender<usize>,
    }

    impl Turn for Count {
        fn turn(&mut self) -> TurnOutcome {
            self.told.send(self.job).unwrap();
            self.left -= 1;
            if self.left == 0 { TurnOutcome::Ended } else { TurnOutcome::Again }
        }
    }

    #[test]
    fn busy_jobs_get_turns_in_equal_measure_whatever_their_number_of_tasks() {
        let (told, turns) = channel();
        let clock = Arc::new(ManualClock::default());
        let shared =
            Arc::new(Shared { queue: Mutex::default(), news: Condvar::new(), clock, next_id: AtomicU64::new(0) });
        let workers = Workers { shared: Arc::clone(&shared), threads: Mutex::default(), count: 1 };
        let mut totals = Vec::new();
        for (job, tasks) in [1, 4].into_iter().enumerate() {
            let number = workers.new_job(&TenantId::default(), Scheduler::Balanced);
            let total = Arc::new(AtomicU64::new(0));
            for _ in 0..tasks {
                let task = workers.new_task(number, &total);
                Workers::begin(&task, Box::new(Count { left: 400 / tasks, job, told: told.clone() }));
            }
            totals.push(total);
        }
        drop(told);
        // The tasks are queued before the only thread begins, so that their order is fixed.
        let worker = std::thread::spawn(move || shared.work());
        let order: Vec<usize> = turns.iter().take(800).collect();
        for (at, pair) in order.chunks(2).enumerate() {
            assert_eq!(pair.iter().sum::<usize>(), 1, "turns {at}: {pair:?}");
        }
        workers.stop();
        worker.join().unwrap();
        assert_eq!(totals.iter().map(|total| total.load(Ordering::Relaxed)).collect::<Vec<_>>(), [400, 400]);
    }

    #[test]
    fn a_greedy_job_takes_most_turns_of_its_tenant_and_none_of_others() {
        let workers = Workers::by_hand(Arc::new(ManualClock::default()));
        let (told, turns) = channel();
        let tenants = ["a", "a", "a", "b"].map(|name| TenantId::new(name).unwrap());
        let greedy = [false, true, true, false];
        for (job, (tenant, is_greedy)) in tenants.iter().zip(greedy).enumerate() {
            let scheduler = if is_greedy { Scheduler::Greedy } else { Scheduler::Balanced };
            let (number, total) = (workers.new_job(tenant, scheduler), Arc::new(AtomicU64::new(0)));
            let task = workers.new_task(number, &total);
            // The older greedy job has work for a while only.
            let left = if job == 1 { 240 } else { 10_000 };
            Workers::begin(&task, Box::new(Count { left, job, told: told.clone() }));
        }
        let count = |steps: usize| {
            (0..steps).for_each(|_| assert_eq!(workers.step(), TurnStep::Turn));
            let mut counts = [0_u32; 4];
            turns.try_iter().for_each(|job: usize| counts[job] += 1);
            counts
        };
        let [balanced, older, younger, other] = count(400);
        assert!(other.abs_diff(200) <= 2 && older.abs_diff(192) <= 4, "{balanced} {older} {younger} {other}");
        assert!(balanced.abs_diff(4) <= 2 && younger.abs_diff(4) <= 2, "{balanced} {older} {younger} {other}");
        // The older greedy job ends.
        count(200);
        let [balanced, older, younger, other] = count(480);
        assert_eq!(older, 0, "it has no work");
        assert!(other.abs_diff(240) <= 2 && balanced.abs_diff(7) <= 2 && younger > 220, "{balanced} {younger} {other}");
    }

    /// Turns that take some time; the task waits to be woken after some of them.
    struct Slow {
        turn: Duration,
        until_wait: u32,
        clock: Arc<ManualClock>,
        used: Arc<AtomicU64>,
    }

    impl Turn for Slow {
        fn turn(&mut self) -> TurnOutcome {
            self.clock.advance(self.turn);
            self.used.fetch_add(self.turn.as_micros() as u64, Ordering::Relaxed);
            self.until_wait -= 1;
            if self.until_wait == 0 { TurnOutcome::Wait(None) } else { TurnOutcome::Again }
        }
    }

    #[test]
    fn tenants_and_their_jobs_get_equal_parts_of_the_time_whatever_their_numbers_and_the_length_of_turns() {
        let clock = Arc::new(ManualClock::default());
        let workers = Workers::by_hand(clock.clone());
        let job = |tenant: &str, turn_us: u64| {
            let number = workers.new_job(&TenantId::new(tenant).unwrap(), Scheduler::Balanced);
            let task = workers.new_task(number, &Arc::default());
            let used = Arc::new(AtomicU64::new(0));
            let (turn, clock) = (Duration::from_micros(turn_us), clock.clone());
            Workers::begin(&task, Box::new(Slow { turn, until_wait: u32::MAX, clock, used: Arc::clone(&used) }));
            used
        };
        let jobs =
            [("a", 10_000), ("a", 1_000), ("a", 5_000), ("b", 500)].map(|(tenant, turn_us)| job(tenant, turn_us));
        while clock.now() < Duration::from_secs(6) {
            assert_eq!(workers.step(), TurnStep::Turn);
        }
        let used_ms = jobs.map(|used| used.load(Ordering::Relaxed) / 1_000);
        for (used_ms, expected_ms) in used_ms.into_iter().zip([1_000, 1_000, 1_000, 3_000]) {
            assert!(used_ms.abs_diff(expected_ms) <= 20, "{used_ms:?} of {expected_ms}");
        }
    }

    #[test]
    fn a_job_does_not_pay_for_an_hour_in_which_the_machine_was_halted() {
        let clock = Arc::new(ManualClock::default());
        let workers = Workers::by_hand(clock.clone());
        let begin = |turn: Duration, until_wait: u32| {
            let number = workers.new_job(&TenantId::default(), Scheduler::Balanced);
            let task = workers.new_task(number, &Arc::default());
            let used = Arc::default();
            Workers::begin(&task, Box::new(Slow { turn, until_wait, clock: clock.clone(), used }));
            task
        };
        let halted = begin(Duration::from_secs(3600), 2);
        begin(Duration::from_millis(10), u32::MAX);
        let turns = (0..).find(|_| {
            assert_eq!(workers.step(), TurnStep::Turn);
            halted.state.load(Ordering::Acquire) == IDLE
        });
        assert!(turns.is_some_and(|turns| turns < 110), "{turns:?} turns until it had its second one");
    }

    #[test]
    fn a_job_that_has_little_to_do_does_not_wait_for_the_turns_of_all_busy_jobs() {
        let clock = Arc::new(ManualClock::default());
        let workers = Workers::by_hand(clock.clone());
        let begin = |tenant: &str, turn: Duration, until_wait: u32| {
            let number = workers.new_job(&TenantId::new(tenant).unwrap(), Scheduler::Balanced);
            let task = workers.new_task(number, &Arc::default());
            Workers::begin(&task, Box::new(Slow { turn, until_wait, clock: clock.clone(), used: Arc::default() }));
            task
        };
        for number in 0..40 {
            begin("a", Duration::from_micros(20_000 + number * 137), u32::MAX);
        }
        (0..500).for_each(|_| assert_eq!(workers.step(), TurnStep::Turn));
        for tenant in ["a", "b"] {
            let task = begin(tenant, Duration::from_micros(20), 5);
            let begun = clock.now();
            while task.state.load(Ordering::Acquire) != IDLE {
                assert_eq!(workers.step(), TurnStep::Turn);
            }
            let waited = clock.now().saturating_sub(begun);
            assert!(waited <= Duration::from_millis(60), "{waited:?} for five short turns in tenant {tenant}");
        }
    }
}
