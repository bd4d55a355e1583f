//! Request by request.

use super::*;
use ResponseError as E;

fn taken_over(of: &Transaction, given: Option<ProducerIdAndEpoch>) -> Result<Option<Transition>, E> {
    of.take_over(given, TIMEOUT_MS, 20, || Some(8))
}

#[test]
fn the_end_of_a_transaction_covers_all_added_partitions_and_positions() {
    let of = open();
    assert_eq!((of.stage, of.since_ms), (TransactionState::Ongoing, 10));
    assert_eq!(of.add_partitions(of.producer, [partition(0)], LIMITS, 12), Ok(None), "it is there already");
    assert_eq!(of.add_group(of.producer, "g", LIMITS, 12), Ok(None));
    for (commit, stage, positions) in [
        (true, TransactionState::CompleteCommit, vec![position("g", 3, 5)]),
        (false, TransactionState::CompleteAbort, Vec::new()),
    ] {
        let Transition { next, ending } = of.end(of.producer, commit, 30).unwrap().unwrap();
        let ending = ending.unwrap();
        assert_eq!((ending.commit, ending.producer, ending.positions), (commit, of.producer, positions));
        assert_eq!(ending.partitions, [partition(0), partition(1)].into());
        assert_eq!((next.stage, next.producer, next.partitions.len(), next.groups.len()), (stage, of.producer, 0, 0));
        assert_eq!(next.end(of.producer, commit, 31), Ok(None), "the answer was lost");
        assert_eq!(next.end(of.producer, !commit, 31), Err(E::InvalidTxnState));
        let again = next.add_partitions(of.producer, [partition(2)], LIMITS, 40).unwrap().unwrap();
        assert_eq!((again.stage, again.since_ms, again.partitions.len()), (TransactionState::Ongoing, 40, 1));
    }
}

#[test]
fn a_transaction_that_has_not_begun_cannot_end_or_take_batches_or_positions() {
    let of = fresh();
    assert_eq!(of.end(of.producer, true, 1), Err(E::InvalidTxnState));
    assert_eq!(of.may_produce(of.producer, &partition(0)), Err(E::InvalidTxnState));
    assert_eq!(of.add_positions(of.producer, "g", [position("g", 0, 1)], LIMITS, None), Err(E::InvalidTxnState));
    let of = open();
    assert_eq!(of.may_produce(of.producer, &partition(0)), Ok(()));
    assert_eq!(of.may_produce(of.producer, &partition(2)), Err(E::InvalidTxnState));
    assert_eq!(of.add_positions(of.producer, "other", [], LIMITS, None), Err(E::InvalidTxnState));
}

#[test]
fn a_request_that_names_another_producer_changes_nothing() {
    let of = open();
    let current = of.producer;
    for (who, error, producing) in [
        (ProducerIdAndEpoch { id: 8, ..current }, E::InvalidProducerIdMapping, E::InvalidProducerIdMapping),
        (ProducerIdAndEpoch { epoch: 1, ..current }, E::ProducerFenced, E::InvalidProducerEpoch),
        (ProducerIdAndEpoch { epoch: -1, ..current }, E::ProducerFenced, E::InvalidProducerEpoch),
    ] {
        assert_eq!(of.add_partitions(who, [partition(2)], LIMITS, 12), Err(error));
        assert_eq!(of.add_group(who, "h", LIMITS, 12), Err(error));
        assert_eq!(of.add_positions(who, "g", [], LIMITS, None), Err(error));
        assert_eq!(of.end(who, true, 12), Err(error));
        assert_eq!(of.may_produce(who, &partition(0)), Err(producing));
    }
}

#[test]
fn a_transaction_of_version_2_ends_its_epoch_and_a_repeated_end_has_the_same_answer() {
    let of = open();
    let next_producer = ProducerIdAndEpoch { epoch: 1, ..of.producer };
    for (commit, stage) in [(true, TransactionState::CompleteCommit), (false, TransactionState::CompleteAbort)] {
        let Transition { next, ending } = of.end_epoch(of.producer, commit, 30, || None).unwrap().unwrap();
        let ending = ending.unwrap();
        assert_eq!((ending.producer, ending.commit, ending.partitions.len()), (next_producer, commit, 2));
        assert_eq!(ending.positions.len(), usize::from(commit));
        assert_eq!((next.producer, next.stage, next.previous), (next_producer, stage, Some(of.producer)));
        assert_eq!(next.end_epoch(of.producer, commit, 31, || None), Ok(None), "the answer was lost");
        assert_eq!(next.end_epoch(of.producer, !commit, 31, || None), Err(E::InvalidTxnState));
        assert_eq!(next.end_epoch(next_producer, true, 31, || None), Err(E::InvalidTxnState), "it has begun none");
        assert_eq!(next.end(of.producer, commit, 31), Err(E::ProducerFenced), "an older request");
        assert_eq!(next.may_produce(of.producer, &partition(0)), Err(E::InvalidProducerEpoch), "a late batch");
        assert_eq!(taken_over(&next, Some(of.producer)), Ok(None), "it has missed the answer");

        let again = next.add_partitions(next_producer, [partition(2)], LIMITS, 40).unwrap().unwrap();
        assert_eq!(again.end_epoch(of.producer, commit, 41, || None), Err(E::ProducerFenced));
        assert_eq!(taken_over(&again, Some(of.producer)), Err(E::ProducerFenced));

        let Transition { next: empty, ending } = next.end_epoch(next_producer, false, 50, || None).unwrap().unwrap();
        assert_eq!((empty.producer.epoch, empty.stage, ending), (2, TransactionState::CompleteAbort, None));
    }
    let last = ProducerIdAndEpoch { epoch: i16::MAX - 1, ..of.producer };
    let of = Transaction { producer: last, ..of };
    assert_eq!(of.end_epoch(last, true, 30, || None), Err(E::UnknownServerError));
    let Transition { next, ending } = of.end_epoch(last, true, 30, || Some(8)).unwrap().unwrap();
    assert_eq!((next.producer.id, next.producer.epoch, ending.unwrap().producer.epoch), (8, 0, i16::MAX));
    assert_eq!(next.end_epoch(last, true, 31, || None), Ok(None));
}

#[test]
fn positions_of_version_2_add_their_group() {
    let of = fresh();
    let next = of.add_positions(of.producer, "g", [position("g", 0, 1)], LIMITS, Some(5)).unwrap().unwrap();
    assert_eq!((next.stage, next.since_ms, next.positions().count()), (TransactionState::Ongoing, 5, 1));
    assert_eq!(next.add_positions(of.producer, "g", [position("g", 0, 1)], LIMITS, Some(6)), Ok(None));
}

#[test]
fn a_takeover_aborts_the_open_transaction_under_an_epoch_of_its_own() {
    let Transition { next, ending } = taken_over(&open(), None).unwrap().unwrap();
    let ending = ending.unwrap();
    assert_eq!((ending.commit, ending.producer.epoch, ending.partitions.len()), (false, 1, 2));
    assert!(ending.positions.is_empty());
    assert_eq!((next.producer, next.stage), (ProducerIdAndEpoch { id: 7, epoch: 2 }, TransactionState::Empty));
    let Transition { next, ending } = taken_over(&fresh(), None).unwrap().unwrap();
    assert_eq!((next.producer.epoch, ending), (1, None));
}

#[test]
fn a_returning_producer_names_its_last_epoch_and_may_repeat_the_request() {
    let of = open();
    let Transition { next, .. } = taken_over(&of, Some(of.producer)).unwrap().unwrap();
    assert_eq!(taken_over(&next, Some(of.producer)), Ok(None), "the answer was lost");
    let Transition { next: other, .. } = taken_over(&next, None).unwrap().unwrap();
    for stale in [of.producer, next.producer] {
        assert_eq!(taken_over(&other, Some(stale)), Err(E::ProducerFenced), "another one has it now");
    }
    assert_eq!(taken_over(&other, Some(ProducerIdAndEpoch { id: 9, epoch: 0 })), Err(E::ProducerFenced));
}

#[test]
fn epochs_that_are_used_up_are_followed_by_another_producer_id() {
    let last = ProducerIdAndEpoch { id: 7, epoch: i16::MAX - 1 };
    let of = Transaction { producer: last, ..fresh() };
    let Transition { next, .. } = taken_over(&of, Some(last)).unwrap().unwrap();
    assert_eq!(next.producer, ProducerIdAndEpoch { id: 8, epoch: 0 });
    assert_eq!(taken_over(&next, Some(last)), Ok(None), "the answer was lost");
    let Transition { next, ending } = taken_over(&Transaction { producer: last, ..open() }, None).unwrap().unwrap();
    assert_eq!(
        ending.unwrap().producer,
        ProducerIdAndEpoch { id: 7, epoch: i16::MAX },
        "there is always one to fence with"
    );
    assert_eq!(next.producer, ProducerIdAndEpoch { id: 8, epoch: 0 });
    assert_eq!(of.take_over(None, 1, 1, || None), Err(E::UnknownServerError));
}

#[test]
fn a_transaction_whose_time_is_up_is_aborted_and_its_producer_fenced() {
    let of = open();
    assert_eq!(of.time_out(10 + i64::from(TIMEOUT_MS) - 1), None);
    let Transition { next, ending } = of.time_out(10 + i64::from(TIMEOUT_MS)).unwrap();
    let fencing = ProducerIdAndEpoch { epoch: 1, ..of.producer };
    assert_eq!(
        (ending.unwrap().producer, next.producer, next.stage),
        (fencing, fencing, TransactionState::CompleteAbort)
    );
    assert_eq!(next.end(of.producer, true, 2_000), Err(E::ProducerFenced));
    assert_eq!(taken_over(&next, Some(of.producer)), Err(E::ProducerFenced));
    assert_eq!(next.time_out(i64::MAX), None);
    assert!(next.is_unused(50, 10 + i64::from(TIMEOUT_MS) + 50) && !of.is_unused(0, i64::MAX));
}

#[test]
fn more_than_the_limit_is_refused_and_changes_nothing() {
    let of = open();
    let many = (0..5).map(partition);
    assert_eq!(of.add_partitions(of.producer, many, LIMITS, 12), Err(E::PolicyViolation));
    let many = (0..5).map(|number| position("g", number, 1));
    assert_eq!(of.add_positions(of.producer, "g", many, LIMITS, None), Err(E::PolicyViolation));
    let again = of.add_positions(of.producer, "g", [position("g", 3, 9)], LIMITS, None).unwrap().unwrap();
    assert_eq!(again.positions().cloned().collect::<Vec<_>>(), [position("g", 3, 9)], "the last one counts");
}
