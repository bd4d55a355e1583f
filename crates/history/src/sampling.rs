//! Files of a directory that have become old made one with fewer points, a piece at a time: points of now are written meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_types::TenantId;

use crate::Error;
use crate::catalog::{Catalog, Directory, Edit, KeptFile, Table};
use crate::columns::Row;
use crate::keeper::Keeper;
use crate::merge::{FAN_IN, Merged, Merging};
use crate::thinner::Thinner;
use crate::thinning::{Plan, SamplingRules, is_covered};

/// Rows that are read before other things get their turn.
const PIECE_ROWS: usize = 64 << 10;

/// Files that are to be sampled together, and how.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) files: Vec<Arc<KeptFile>>,
    pub(crate) plan: Plan,
}

/// What is due in a directory at a moment; `None` if nothing is.
///
/// A file is old once its newest point is. Old files become one, the smallest first: points of one period may lie in several.
/// While others are not old, it waits until what is not sampled is at least as large as what is, so that no byte is rewritten
/// often only because a late point comes now and then.
pub(crate) fn choose(siblings: &[Arc<KeptFile>], rules: &SamplingRules, now_ms: i64) -> Option<Chosen> {
    let plan_of = |file: &KeptFile| rules.plan(now_ms.saturating_sub(file.record.kept_ms));
    let mut old: Vec<_> =
        siblings.iter().map(|file| (file, plan_of(file))).filter(|(_, plan)| !plan.is_empty()).collect();
    let is_due = |(file, plan): &&(&Arc<KeptFile>, Plan)| !is_covered(plan, &file.record.sampled);
    let due = old.iter().filter(is_due).count();
    let bytes: u64 = old.iter().map(|(file, _)| file.record.bytes).sum();
    let due_bytes: u64 = old.iter().filter(is_due).map(|(file, _)| file.record.bytes).sum();
    let are_all_old = old.len() == siblings.len();
    if (due == 0 && (old.len() <= 1 || !are_all_old)) || (!are_all_old && due_bytes < bytes - due_bytes) {
        return None;
    }
    old.sort_by_key(|(file, _)| file.record.bytes);
    old.truncate(FAN_IN);
    // What is right for the youngest is right for all; more is done once it is older.
    let youngest = old.iter().max_by_key(|(file, _)| file.record.kept_ms);
    let plan = youngest.map(|(_, plan)| plan.clone()).unwrap_or_default();
    Some(Chosen { files: old.into_iter().map(|(file, _)| file.clone()).collect(), plan })
}

/// Whether there are more rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    Some,
    None,
}

/// Files that are being sampled. What it has written yet counts for nothing, and goes with it.
pub(crate) struct Sampling {
    files: Vec<Arc<KeptFile>>,
    rows: Merging,
    thinner: Thinner,
    merged: Merged,
    rows_read: u64,
    /// Rows that a row has settled.
    settled: Vec<Row>,
}

impl Sampling {
    pub(crate) fn begin(catalog: &mut Catalog, Chosen { files, plan }: Chosen) -> Result<Self, Error> {
        let rows = Merging::open(catalog, &files)?;
        let merged = Merged::begin(catalog, &files, plan.clone());
        Ok(Self { files, rows, thinner: Thinner::new(plan), merged, rows_read: 0, settled: Vec::new() })
    }

    /// Whether its files are all still there: none was deleted, merged, or rewritten without what was deleted of it.
    pub(crate) fn is_current(&self, table: &Table) -> bool {
        let is_there = |file: &Arc<KeptFile>| {
            let record = &file.record;
            let directory: Directory = (record.tenant.as_str().into(), record.kind.as_str().into(), record.day);
            table.siblings(&directory).is_some_and(|siblings| siblings.iter().any(|sibling| Arc::ptr_eq(sibling, file)))
        };
        self.files.iter().all(is_there)
    }

    /// Does a piece of the work.
    pub(crate) fn work(&mut self) -> Result<Rest, Error> {
        for _ in 0..PIECE_ROWS {
            let Some(row) = self.rows.next_row()? else {
                self.thinner.finish().map_or(Ok(()), |last| self.merged.push(last))?;
                return Ok(Rest::None);
            };
            self.rows_read += 1;
            self.thinner.push(row, &mut self.settled);
            self.settled.drain(..).try_for_each(|row| self.merged.push(row))?;
        }
        Ok(Rest::Some)
    }

    /// Makes the new file durable. The edit that puts it in the place of the others, and how many points are left out.
    pub(crate) fn finish(self) -> Result<(Edit, u64), Error> {
        let added = self.merged.finish()?;
        let left_out = self.rows_read - added.as_ref().map_or(0, |record| record.rows);
        Ok((Edit { added: added.into_iter().collect(), removed: self.files, ..Edit::default() }, left_out))
    }
}

impl Keeper {
    /// Notes the directories in which something is to be sampled.
    pub(crate) fn find_old(&mut self) {
        let now_ms = self.wall.now_ms();
        let directories: Vec<_> = self.catalog.table.directories().collect();
        for of_kind in directories.chunk_by(|(a, _), (b, _)| (&a.0, &a.1) == (&b.0, &b.1)) {
            let Some(((tenant, kind, _), _)) = of_kind.first() else { continue };
            let Ok(tenant) = TenantId::new(tenant) else { continue };
            let rules = self.rules.sampling(&tenant, kind);
            if !rules.is_empty() {
                let is_due = |siblings: &[_]| choose(siblings, &rules, now_ms).is_some();
                let due = of_kind.iter().filter(|(_, siblings)| is_due(siblings));
                self.old.extend(due.map(|(directory, _)| (*directory).clone()));
            }
        }
    }

    /// Does a piece of a sampling. Whether there is more to do.
    pub(crate) fn sample(&mut self) -> Result<bool, Error> {
        let begun = self.sampling.take().filter(|sampling| sampling.is_current(&self.catalog.table));
        let Some(mut sampling) = begun.map_or_else(|| self.begin_sampling(), |begun| Ok(Some(begun)))? else {
            return Ok(false);
        };
        if sampling.work()? == Rest::Some {
            self.sampling = Some(sampling);
            return Ok(true);
        }
        let (edit, left_out) = sampling.finish()?;
        self.catalog.commit(edit)?;
        self.shared.show(self.catalog.table.clone(), None);
        self.shared.counters.sampled_out.fetch_add(left_out, Ordering::Relaxed);
        Ok(true)
    }

    fn begin_sampling(&mut self) -> Result<Option<Sampling>, Error> {
        let now_ms = self.wall.now_ms();
        while let Some(directory) = self.old.first().cloned() {
            let chosen = TenantId::new(&directory.0).ok().and_then(|tenant| {
                let rules = self.rules.sampling(&tenant, &directory.1);
                choose(self.catalog.table.siblings(&directory)?, &rules, now_ms)
            });
            match chosen {
                Some(chosen) => return Sampling::begin(&mut self.catalog, chosen).map(Some),
                None => drop(self.old.remove(&directory)),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use millstream_log::{Embedded, LogConfig, SystemFiles};
    use millstream_types::{ManualClock, SystemClock};
    use proptest::prelude::*;

    use super::*;
    use crate::catalog_record::FileRecord;
    use crate::config::{HistoryRule, NoTenantRules, Rules, Sample};
    use crate::file_reader::{OpenFile, Rows};
    use crate::keeper::KeeperLimits;
    use crate::point::{DELETED, day, number};
    use crate::shared::Shared;

    const DAY_MS: i64 = 86_400_000;
    const MINUTE_MS: i64 = 60_000;

    /// A keeper whose thread does not run: the tests take its steps.
    struct World {
        keeper: Keeper,
        clock: Arc<ManualClock>,
        dir: tempfile::TempDir,
    }

    impl World {
        fn new(rules: Vec<HistoryRule>) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let system = Arc::new(SystemClock::default());
            let config = LogConfig { dir: dir.path().join("log"), ..LogConfig::default() };
            let log = Embedded::open(config, Arc::new(SystemFiles), system.clone(), system).unwrap();
            let (catalog, _) = Catalog::open(&dir.path().join("history"), Arc::new(SystemFiles), &*log).unwrap();
            let clock = Arc::new(ManualClock::default());
            let limits = KeeperLimits {
                generation_max_bytes: 1 << 20,
                flush_interval: Duration::from_secs(1),
                files_max: 1_000,
                merge_max_bytes: 1 << 20,
            };
            let keeper = Keeper {
                shared: Arc::new(Shared::new(catalog.table.clone())),
                log,
                catalog,
                rules: Arc::new(Rules { general: rules, own: Arc::new(NoTenantRules) }),
                clock: clock.clone(),
                wall: clock.clone(),
                limits,
                ended: None,
                changed: Default::default(),
                old: Default::default(),
                sampling: None,
                flushed_at: Duration::ZERO,
                retained_at: Duration::ZERO,
            };
            Self { keeper, clock, dir }
        }

        fn pass(&self, ms: i64) {
            self.clock.advance(Duration::from_millis(ms.unsigned_abs()));
        }

        /// Adds a file of a day with these rows, kept now.
        fn add(&mut self, mut rows: Vec<Row>) {
            rows.sort_by(|a, b| a.order().cmp(&b.order()));
            let of_day = day(rows[0].observed);
            let like = FileRecord { day: of_day, ..record(0, of_day, 0, 0) };
            let catalog = &mut self.keeper.catalog;
            let number = catalog.number();
            let path = catalog.path_of(&like.tenant, &like.kind, of_day, number);
            let mut writer = crate::file_writer::FileWriter::create(&catalog.files, &catalog.root, &path).unwrap();
            rows.into_iter().for_each(|row| writer.push(row).unwrap());
            let kept_ms = millstream_types::WallClock::now_ms(&*self.clock);
            let record = FileRecord::new((like.tenant, like.kind, of_day), number, writer.finish().unwrap(), kept_ms);
            catalog.commit(Edit { added: vec![record], ..Edit::default() }).unwrap();
        }

        /// Samples until nothing is due. How many steps it took.
        fn sample(&mut self) -> usize {
            self.keeper.find_old();
            let steps = (0..1_000).take_while(|_| self.keeper.sample().unwrap()).count();
            assert!(steps < 1_000, "it comes to no end");
            steps
        }

        fn files(&self) -> Vec<Arc<KeptFile>> {
            self.keeper.catalog.table.files().cloned().collect()
        }

        /// All rows that count, in their order.
        fn rows(&self) -> Vec<Row> {
            let mut rows = Vec::new();
            for file in self.files() {
                let open = OpenFile::open(&SystemFiles, &file.path).unwrap();
                for group in 0..open.groups() {
                    let mut columns = open.read(&Rows { group, rows: 0..open.group_rows(group) }).unwrap();
                    rows.extend((0..columns.len()).map(|at| columns.take_row(at)));
                }
            }
            rows.sort_by(|a, b| a.order().cmp(&b.order()));
            rows
        }

        /// Names of all files on the disk.
        fn names(&self) -> Vec<String> {
            let mut folders = vec![self.dir.path().join("history")];
            let mut names = Vec::new();
            while let Some(folder) = folders.pop() {
                for entry in std::fs::read_dir(folder).unwrap() {
                    let path = entry.unwrap().path();
                    let name = path.file_name().unwrap().to_string_lossy().into_owned();
                    if path.is_dir() { folders.push(path) } else { names.push(name) }
                }
            }
            names
        }
    }

    fn row(entity: u8, attribute: u8, observed: i64, offset: usize, value: &str) -> Row {
        Row {
            id: format!("e{entity}").as_str().into(),
            path: "/".into(),
            attribute: format!("a{attribute}").as_str().into(),
            kind: "Number".into(),
            observed,
            modified: observed,
            value: value.into(),
            number: number(value),
            metadata: None,
            offset: offset as i64,
        }
    }

    fn rule(attribute: &str, after_ms: i64, period_ms: i64) -> HistoryRule {
        HistoryRule {
            attribute: attribute.into(),
            sample_after_ms: Some(after_ms.unsigned_abs()),
            sample_period_ms: Some(period_ms.unsigned_abs()),
            ..HistoryRule::default()
        }
    }

    fn record(number: u64, day: i32, bytes: u64, kept_ms: i64) -> FileRecord {
        let (tenant, kind, ids) = ("acme".to_owned(), "Room".to_owned(), ("a".to_owned(), "z".to_owned()));
        let (rows, times, sampled) = (1, (0, 0), Vec::new());
        FileRecord {
            number,
            tenant,
            kind,
            day,
            rows,
            bytes,
            observed_ms: times,
            modified_ms: times,
            ids,
            kept_ms,
            sampled,
        }
    }

    /// What is due in a directory of files of so many bytes, kept so long ago, of which some were sampled by the rule.
    #[test]
    fn a_directory_is_due_when_it_pays() {
        let mut rules = SamplingRules::default();
        rules.add([rule("*", 100, 10)].iter());
        let plan = rules.plan(101);
        for (files, expected) in [
            (&[(9, 100, false)][..], None),
            (&[(9, 101, false)], Some(vec![9])),
            (&[(9, 101, true)], None),
            // Both are old: points of one period may lie in either.
            (&[(9, 101, true), (8, 500, true)], Some(vec![8, 9])),
            (&[(9, 101, true), (1, 500, false)], Some(vec![1, 9])),
            // One is not old: a late point alone is not worth it, as much as there is already is.
            (&[(9, 101, true), (8, 500, true), (1, 5, false)], None),
            (&[(9, 101, true), (8, 500, false), (1, 5, false)], None),
            (&[(9, 101, true), (9, 500, false), (1, 5, false)], Some(vec![9, 9])),
            (&[(9, 101, false), (1, 5, false)], Some(vec![9])),
        ] {
            let mut world = World::new(Vec::new());
            let added = files.iter().zip(1..).map(|((bytes, age, is_sampled), number)| FileRecord {
                sampled: if *is_sampled { plan.clone() } else { Vec::new() },
                ..record(number, 0, *bytes, 1_000 - age)
            });
            let edit = Edit { added: added.collect(), ..Edit::default() };
            world.keeper.catalog.commit(edit).unwrap();
            let siblings = world.files();
            let chosen = choose(&siblings, &rules, 1_000);
            assert!(chosen.as_ref().is_none_or(|chosen| chosen.plan == plan));
            let found = chosen.map(|chosen| chosen.files.iter().map(|file| file.record.bytes).collect::<Vec<_>>());
            assert_eq!(found, expected, "{files:?}");
        }
    }

    #[test]
    fn a_rule_of_longer_periods_samples_again_and_one_of_shorter_ones_reads_nothing() {
        let mut world = World::new(vec![rule("*", DAY_MS, 10 * MINUTE_MS)]);
        world.add((0..120).map(|minute| row(0, 1, minute * MINUTE_MS, minute as usize, "1")).collect());
        assert_eq!(world.sample(), 0, "nothing is old");
        world.pass(DAY_MS + 1);
        assert_eq!((world.sample(), world.rows().len()), (1, 12));
        assert_eq!((world.sample(), world.rows().len()), (0, 12), "a second time there is nothing to do");
        for (period, steps, left) in [(5, 0, 12), (60, 1, 2), (60, 0, 2), (10, 0, 2), (40, 1, 2)] {
            world.keeper.rules =
                Arc::new(Rules { general: vec![rule("*", DAY_MS, period * MINUTE_MS)], own: Arc::new(NoTenantRules) });
            assert_eq!((world.sample(), world.rows().len()), (steps, left), "{period}");
        }
        let times: Vec<i64> = world.rows().iter().map(|row| row.observed / MINUTE_MS).collect();
        assert_eq!(times, [59, 119]);
    }

    #[test]
    fn steps_of_age_thin_more_and_more() {
        let steps = vec![rule("*", DAY_MS, MINUTE_MS), rule("*", 10 * DAY_MS, 60 * MINUTE_MS)];
        let mut world = World::new(steps);
        world.add((0..3_600).map(|second| row(0, 1, second * 1_000, second as usize, "1")).collect());
        for (days, left) in [(1, 60), (5, 60), (5, 1), (30, 1)] {
            world.pass(days * DAY_MS + 1);
            world.sample();
            assert_eq!(world.rows().len(), left, "after {days} more days");
        }
    }

    /// Files are read a piece at a time; what has been written of the new one goes if an old one does not count any more.
    #[test]
    fn large_files_are_sampled_in_pieces_and_not_if_they_go_meanwhile() {
        let mut world = World::new(vec![rule("*", DAY_MS, MINUTE_MS)]);
        let rows = 3 * PIECE_ROWS as i64;
        let step = DAY_MS / rows;
        let large = || (0..rows).map(|n| row(0, 1, n * step, n as usize, "1")).collect::<Vec<_>>();
        world.add(large());
        world.pass(DAY_MS + 1);
        world.keeper.find_old();
        assert!(world.keeper.sample().unwrap() && world.keeper.sampling.is_some());
        assert_eq!(world.rows().len() as i64, rows, "before it is whole it counts for nothing");
        let removed = world.files();
        world.keeper.catalog.commit(Edit { removed, ..Edit::default() }).unwrap();
        assert!(!world.keeper.sample().unwrap(), "it was given up");
        assert_eq!((world.files().len(), world.names()), (0, Vec::new()));

        world.add(large());
        world.pass(DAY_MS + 1);
        assert_eq!(world.sample(), 4, "three pieces, and the end");
        let minutes = (rows - 1) * step / MINUTE_MS + 1;
        assert_eq!((world.rows().len() as i64, world.names().len()), (minutes, 1));
        assert_eq!(world.keeper.shared.counters.sampled_out.load(Ordering::Relaxed) as i64, rows - minutes);
    }

    #[derive(Debug, Clone)]
    enum Step {
        /// Entity, attribute, day, minute and what it is: 0 a deletion, else a value.
        Write(Vec<(u8, u8, i64, i64, u8)>),
        Pass(i64),
        Sample,
    }

    fn step() -> impl Strategy<Value = Step> {
        let point = (0_u8..2, 0_u8..3, 0_i64..2, 0_i64..1_440, 0_u8..12);
        prop_oneof![
            3 => prop::collection::vec(point, 1..40).prop_map(Step::Write),
            2 => (1_i64..72).prop_map(Step::Pass),
            2 => Just(Step::Sample),
        ]
    }

    /// Period of a series, by entity and attribute.
    type Period = (Vec<u8>, Vec<u8>, i64);

    fn is_deletion(row: &Row) -> bool {
        row.value.data() == DELETED.as_bytes()
    }

    /// The last value of each series in each period.
    fn last_values(rows: &[Row], period_ms: i64) -> BTreeMap<Period, (i64, i64)> {
        // The rows are in the order of time.
        let values = rows.iter().filter(|row| !is_deletion(row));
        values.map(|row| (period(row, period_ms), (row.observed, row.offset))).collect()
    }

    fn period(row: &Row, period_ms: i64) -> Period {
        (row.id.data().to_vec(), row.attribute.data().to_vec(), row.observed.div_euclid(period_ms))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Whatever is written when, early, late, deleted: nothing is lost that is to stay, nothing is there twice, and once
        /// all is old what is left is what the rules say.
        #[test]
        fn what_is_left_of_any_history_is_what_brute_force_finds(steps in prop::collection::vec(step(), 1..25)) {
            const MINUTES: [i64; 2] = [10, 120];
            let all = HistoryRule { attribute: "a0".into(), sample: Some(Sample::All), ..HistoryRule::default() };
            let of_age = |days: i64, minutes: i64| rule("*", days * DAY_MS, minutes * MINUTE_MS);
            let mut world = World::new(vec![all, of_age(1, MINUTES[0]), of_age(4, MINUTES[1])]);
            let mut written: Vec<Row> = Vec::new();
            let last = [Step::Pass(24 * 5), Step::Sample];
            for step in steps.into_iter().chain(last) {
                match step {
                    Step::Pass(hours) => world.pass(hours * 60 * MINUTE_MS + 1),
                    Step::Sample => drop(world.sample()),
                    Step::Write(points) => {
                        let mut days: BTreeMap<i64, Vec<Row>> = BTreeMap::new();
                        for (entity, attribute, day, minute, kind) in points {
                            let value = if kind == 0 { DELETED.to_owned() } else { kind.to_string() };
                            let row = row(entity, attribute, day * DAY_MS + minute * MINUTE_MS, written.len(), &value);
                            written.push(row.clone());
                            days.entry(day).or_default().push(row);
                        }
                        days.into_values().for_each(|rows| world.add(rows));
                    }
                }
                written.sort_by(|a, b| a.order().cmp(&b.order()));
                let left = world.rows();
                let times = |rows: &[Row], of: fn(&Row) -> bool| {
                    let times = rows.iter().filter(|row| of(row)).map(|row| (row.observed, row.offset));
                    times.collect::<Vec<_>>()
                };
                for stays in [is_deletion, |row: &Row| row.attribute.data() == b"a0"] {
                    prop_assert_eq!(times(&left, stays), times(&written, stays));
                }
                prop_assert_eq!(last_values(&left, MINUTES[1] * MINUTE_MS), last_values(&written, MINUTES[1] * MINUTE_MS));
                let mut offsets: Vec<i64> = left.iter().map(|row| row.offset).collect();
                let before = offsets.len();
                offsets.sort_unstable();
                offsets.dedup();
                prop_assert_eq!(offsets.len(), before, "nothing is there twice");
            }
            let left = world.rows();
            let mut days: Vec<i32> = world.files().iter().map(|file| file.record.day).collect();
            days.dedup();
            prop_assert_eq!(days.len(), world.files().len(), "one file a day");
            prop_assert_eq!(world.sample(), 0, "a second time there is nothing to do");
            for pair in left.windows(2) {
                let same = |row: &Row| period(row, MINUTES[1] * MINUTE_MS);
                let are_values = !pair.iter().any(is_deletion) && pair[0].attribute.data() != b"a0";
                prop_assert!(!(are_values && same(&pair[0]) == same(&pair[1])), "two values of one period: {pair:?}");
            }
        }
    }
}
