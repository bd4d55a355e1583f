//! The compactor's sampling: finds directories with old files and runs one sampling job in pieces.

use std::sync::atomic::Ordering;

use millstream_types::TenantId;

use crate::Error;
use crate::compactor::Compactor;
use crate::sampling_job::{Remaining, SamplingJob, choose};

impl Compactor {
    /// Adds the directories with due files to the queue.
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

    /// Does a piece of the sampling job; returns whether more is due.
    pub(crate) fn sample(&mut self) -> Result<bool, Error> {
        match self.sample_a_piece() {
            Err(error) if self.leaves_alone(&error) => Ok(true),
            sampled => sampled,
        }
    }

    fn sample_a_piece(&mut self) -> Result<bool, Error> {
        let begun = self.sampling.take().filter(|sampling| sampling.is_current(&self.catalog.table));
        let Some(mut sampling) = begun.map_or_else(|| self.begin_sampling(), |begun| Ok(Some(begun)))? else {
            return Ok(false);
        };
        if sampling.work()? == Remaining::Some {
            self.sampling = Some(sampling);
            return Ok(true);
        }
        let (edit, left_out) = sampling.finish()?;
        self.catalog.commit(edit)?;
        self.state.show(self.catalog.table.clone(), None);
        self.state.counters.sampled_out.fetch_add(left_out, Ordering::Relaxed);
        Ok(true)
    }

    fn begin_sampling(&mut self) -> Result<Option<SamplingJob>, Error> {
        let now_ms = self.wall.now_ms();
        while let Some(directory) = self.old.first().cloned() {
            let chosen = TenantId::new(&directory.0).ok().and_then(|tenant| {
                let rules = self.rules.sampling(&tenant, &directory.1);
                choose(self.catalog.table.siblings(&directory)?, &rules, now_ms)
            });
            match chosen {
                Some(chosen) => return SamplingJob::begin(&mut self.catalog, chosen).map(Some),
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

    use millstream_log::{Embedded, Log, LogConfig, SystemFiles};
    use millstream_types::{ManualClock, SystemClock};
    use proptest::prelude::*;

    use super::*;
    use crate::catalog::{CatalogEdit, FileCatalog};
    use crate::catalog_record::FileRecord;
    use crate::columns::PointRow;
    use crate::compactor::CompactorLimits;
    use crate::config::{HistoryRule, Sample};
    use crate::file_reader::{OpenFile, RowRange};
    use crate::file_table::DataFile;
    use crate::point::{DELETED, day, number};
    use crate::rules::{NoTenantRules, RuleSet};
    use crate::sampling_job::PIECE_ROWS;
    use crate::sampling_plan::SamplingRules;
    use crate::state::HistoryState;
    use std::sync::Arc;

    const DAY_MS: i64 = 86_400_000;
    const MINUTE_MS: i64 = 60_000;

    /// A compactor without a thread; the tests call its steps.
    struct SamplingWorld {
        compactor: Compactor,
        clock: Arc<ManualClock>,
        dir: tempfile::TempDir,
    }

    impl SamplingWorld {
        fn new(rules: Vec<HistoryRule>) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let system = Arc::new(SystemClock::default());
            let config = LogConfig { dir: dir.path().join("log"), ..LogConfig::default() };
            let log: Arc<dyn Log> = Embedded::open(config, Arc::new(SystemFiles), system.clone(), system).unwrap();
            let catalog = FileCatalog::open(&dir.path().join("history"), Arc::new(SystemFiles), &log).unwrap();
            let clock = Arc::new(ManualClock::default());
            let limits = CompactorLimits {
                memtable_max_bytes: 1 << 20,
                flush_interval: Duration::from_secs(1),
                files_max: 1_000,
                merge_max_bytes: 1 << 20,
            };
            let compactor = Compactor {
                state: Arc::new(HistoryState::new(catalog.table.clone())),
                log,
                catalog,
                rules: Arc::new(RuleSet { general: rules, tenant_rules: Arc::new(NoTenantRules) }),
                clock: clock.clone(),
                wall: clock.clone(),
                limits,
                ended: None,
                changed: Default::default(),
                old: Default::default(),
                sampling: None,
                may_roll_up: false,
                is_crowded: false,
                may_lack_copies: false,
                may_lack_files: false,
                may_lack_checksums: false,
                flushed_at: Duration::ZERO,
                retained_at: Duration::ZERO,
            };
            Self { compactor, clock, dir }
        }

        fn pass(&self, ms: i64) {
            self.clock.advance(Duration::from_millis(ms.unsigned_abs()));
        }

        /// Adds a file with these rows of one day; its age starts now.
        fn add(&mut self, mut rows: Vec<PointRow>) {
            rows.sort_by(|a, b| a.order().cmp(&b.order()));
            let of_day = day(rows[0].observed);
            let like = FileRecord { day: of_day, ..record(0, of_day, 0, 0) };
            let catalog = &mut self.compactor.catalog;
            let number = catalog.number();
            let path = catalog.path_of(&like.tenant, &like.kind, like.period(), number);
            let mut writer = crate::file_writer::FileWriter::create(&catalog.files, &catalog.root, &path).unwrap();
            rows.into_iter().for_each(|row| writer.push(row).unwrap());
            let kept_ms = millstream_types::WallClock::now_ms(&*self.clock);
            let record = FileRecord::new(
                (like.tenant.clone(), like.kind.clone(), like.period()),
                number,
                writer.finish().unwrap(),
                kept_ms,
            );
            catalog.commit(CatalogEdit { added: vec![record], ..CatalogEdit::default() }).unwrap();
        }

        /// Samples until nothing is due; returns the number of steps.
        fn sample(&mut self) -> usize {
            self.compactor.find_old();
            let steps = (0..1_000).take_while(|_| self.compactor.sample().unwrap()).count();
            assert!(steps < 1_000, "it comes to no end");
            steps
        }

        fn files(&self) -> Vec<Arc<DataFile>> {
            self.compactor.catalog.table.files().cloned().collect()
        }

        /// Returns the rows of all named files, in order.
        fn rows(&self) -> Vec<PointRow> {
            let mut rows = Vec::new();
            for file in self.files() {
                let open = OpenFile::open(&SystemFiles, &file.path, &file.record).unwrap();
                for group in 0..open.groups() {
                    let mut columns = open.read(&RowRange { group, rows: 0..open.group_rows(group) }).unwrap();
                    rows.extend((0..columns.len()).map(|at| columns.take_row(at)));
                }
            }
            rows.sort_by(|a, b| a.order().cmp(&b.order()));
            rows
        }

        /// Returns the names of all files on disk.
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

    fn row(entity: u8, attribute: u8, observed: i64, offset: usize, value: &str) -> PointRow {
        PointRow {
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
            checksums: Vec::new(),
            copy: None,
            paths: Vec::new(),
            attributes: Vec::new(),
            number,
            tenant,
            kind,
            day,
            span: crate::file_period::Span::Day,
            rows,
            bytes,
            observed_ms: times,
            modified_ms: times,
            ids,
            kept_ms,
            sampled,
        }
    }

    /// Each case gives (bytes, age, already sampled) per file and the sizes of the chosen files.
    #[test]
    fn a_directory_is_due_when_it_pays() {
        let mut rules = SamplingRules::default();
        rules.add([rule("*", 100, 10)].iter());
        let plan = rules.plan(101);
        for (files, expected) in [
            (&[(9, 100, false)][..], None),
            (&[(9, 101, false)], Some(vec![9])),
            (&[(9, 101, true)], None),
            // Both files are old, and one period may have points in both.
            (&[(9, 101, true), (8, 500, true)], Some(vec![8, 9])),
            (&[(9, 101, true), (1, 500, false)], Some(vec![1, 9])),
            // One file is not old; a small late file is not worth a rewrite of the larger one.
            (&[(9, 101, true), (8, 500, true), (1, 5, false)], None),
            (&[(9, 101, true), (8, 500, false), (1, 5, false)], None),
            (&[(9, 101, true), (9, 500, false), (1, 5, false)], Some(vec![9, 9])),
            (&[(9, 101, false), (1, 5, false)], Some(vec![9])),
        ] {
            let mut world = SamplingWorld::new(Vec::new());
            let added = files.iter().zip(1..).map(|((bytes, age, is_sampled), number)| FileRecord {
                sampled: if *is_sampled { plan.clone() } else { Vec::new() },
                ..record(number, 0, *bytes, 1_000 - age)
            });
            let edit = CatalogEdit { added: added.collect(), ..CatalogEdit::default() };
            world.compactor.catalog.commit(edit).unwrap();
            let siblings = world.files();
            let chosen = choose(&siblings, &rules, 1_000);
            assert!(chosen.as_ref().is_none_or(|chosen| chosen.plan == plan));
            let found = chosen.map(|chosen| chosen.files.iter().map(|file| file.record.bytes).collect::<Vec<_>>());
            assert_eq!(found, expected, "{files:?}");
        }
    }

    #[test]
    fn a_rule_of_longer_periods_samples_again_and_one_of_shorter_ones_reads_nothing() {
        let mut world = SamplingWorld::new(vec![rule("*", DAY_MS, 10 * MINUTE_MS)]);
        world.add((0..120).map(|minute| row(0, 1, minute * MINUTE_MS, minute as usize, "1")).collect());
        assert_eq!(world.sample(), 0, "nothing is old");
        world.pass(DAY_MS + 1);
        assert_eq!((world.sample(), world.rows().len()), (1, 12));
        assert_eq!((world.sample(), world.rows().len()), (0, 12), "a second time there is nothing to do");
        for (period, steps, left) in [(5, 0, 12), (60, 1, 2), (60, 0, 2), (10, 0, 2), (40, 1, 2)] {
            world.compactor.rules = Arc::new(RuleSet {
                general: vec![rule("*", DAY_MS, period * MINUTE_MS)],
                tenant_rules: Arc::new(NoTenantRules),
            });
            assert_eq!((world.sample(), world.rows().len()), (steps, left), "{period}");
        }
        let times: Vec<i64> = world.rows().iter().map(|row| row.observed / MINUTE_MS).collect();
        assert_eq!(times, [59, 119]);
    }

    #[test]
    fn steps_of_age_thin_more_and_more() {
        let steps = vec![rule("*", DAY_MS, MINUTE_MS), rule("*", 10 * DAY_MS, 60 * MINUTE_MS)];
        let mut world = SamplingWorld::new(steps);
        world.add((0..3_600).map(|second| row(0, 1, second * 1_000, second as usize, "1")).collect());
        for (days, left) in [(1, 60), (5, 60), (5, 1), (30, 1)] {
            world.pass(days * DAY_MS + 1);
            world.sample();
            assert_eq!(world.rows().len(), left, "after {days} more days");
        }
    }

    /// The job reads files in pieces, and its output is dropped if an input file is replaced.
    #[test]
    fn large_files_are_sampled_in_pieces_and_not_if_they_go_meanwhile() {
        let mut world = SamplingWorld::new(vec![rule("*", DAY_MS, MINUTE_MS)]);
        let rows = 3 * PIECE_ROWS as i64;
        let step = DAY_MS / rows;
        let large = || (0..rows).map(|n| row(0, 1, n * step, n as usize, "1")).collect::<Vec<_>>();
        world.add(large());
        world.pass(DAY_MS + 1);
        world.compactor.find_old();
        assert!(world.compactor.sample().unwrap() && world.compactor.sampling.is_some());
        assert_eq!(world.rows().len() as i64, rows, "before it is whole it counts for nothing");
        let removed = world.files();
        world.compactor.catalog.commit(CatalogEdit { removed, ..CatalogEdit::default() }).unwrap();
        assert!(!world.compactor.sample().unwrap(), "it was given up");
        assert_eq!((world.files().len(), world.names()), (0, Vec::new()));

        world.add(large());
        world.pass(DAY_MS + 1);
        assert_eq!(world.sample(), 4, "three pieces, and the end");
        let minutes = (rows - 1) * step / MINUTE_MS + 1;
        assert_eq!((world.rows().len() as i64, world.names().len()), (minutes, 1));
        assert_eq!(world.compactor.state.counters.sampled_out.load(Ordering::Relaxed) as i64, rows - minutes);
    }

    #[derive(Debug, Clone)]
    enum SamplingStep {
        /// Entity, attribute, day, minute and value; value 0 is a deletion.
        Write(Vec<(u8, u8, i64, i64, u8)>),
        Pass(i64),
        Sample,
    }

    fn step() -> impl Strategy<Value = SamplingStep> {
        let point = (0_u8..2, 0_u8..3, 0_i64..2, 0_i64..1_440, 0_u8..12);
        prop_oneof![
            3 => prop::collection::vec(point, 1..40).prop_map(SamplingStep::Write),
            2 => (1_i64..72).prop_map(SamplingStep::Pass),
            2 => Just(SamplingStep::Sample),
        ]
    }

    /// A period of a series: entity, attribute, period number.
    type Period = (Vec<u8>, Vec<u8>, i64);

    fn is_deletion(row: &PointRow) -> bool {
        row.value.data() == DELETED.as_bytes()
    }

    /// Returns the last value of each series in each period.
    fn last_values(rows: &[PointRow], period_ms: i64) -> BTreeMap<Period, (i64, i64)> {
        // The rows are in time order.
        let values = rows.iter().filter(|row| !is_deletion(row));
        values.map(|row| (period(row, period_ms), (row.observed, row.offset))).collect()
    }

    fn period(row: &PointRow, period_ms: i64) -> Period {
        (row.id.data().to_vec(), row.attribute.data().to_vec(), row.observed.div_euclid(period_ms))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Random early, late and deleted points: no point that must stay is lost, no point is duplicated, and old data
        /// is reduced exactly as the rules require.
        #[test]
        fn sampling_of_any_history_matches_brute_force(steps in prop::collection::vec(step(), 1..25)) {
            const MINUTES: [i64; 2] = [10, 120];
            let all = HistoryRule { attribute: "a0".into(), sample: Some(Sample::All), ..HistoryRule::default() };
            let of_age = |days: i64, minutes: i64| rule("*", days * DAY_MS, minutes * MINUTE_MS);
            let mut world = SamplingWorld::new(vec![all, of_age(1, MINUTES[0]), of_age(4, MINUTES[1])]);
            let mut written: Vec<PointRow> = Vec::new();
            let last = [SamplingStep::Pass(24 * 5), SamplingStep::Sample];
            for step in steps.into_iter().chain(last) {
                match step {
                    SamplingStep::Pass(hours) => world.pass(hours * 60 * MINUTE_MS + 1),
                    SamplingStep::Sample => drop(world.sample()),
                    SamplingStep::Write(points) => {
                        let mut days: BTreeMap<i64, Vec<PointRow>> = BTreeMap::new();
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
                let times = |rows: &[PointRow], of: fn(&PointRow) -> bool| {
                    let times = rows.iter().filter(|row| of(row)).map(|row| (row.observed, row.offset));
                    times.collect::<Vec<_>>()
                };
                for stays in [is_deletion, |row: &PointRow| row.attribute.data() == b"a0"] {
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
                let same = |row: &PointRow| period(row, MINUTES[1] * MINUTE_MS);
                let are_values = !pair.iter().any(is_deletion) && pair[0].attribute.data() != b"a0";
                prop_assert!(!(are_values && same(&pair[0]) == same(&pair[1])), "two values of one period: {pair:?}");
            }
        }
    }
}
