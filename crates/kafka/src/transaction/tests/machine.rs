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
    assert_eq!(of.add_positions(of.producer, "g", [position("g", 0, 1)], LIMITS), Err(E::InvalidTxnState));
    let of = open();
    assert_eq!(of.may_produce(of.producer, &partition(0)), Ok(()));
    assert_eq!(of.may_produce(of.producer, &partition(2)), Err(E::InvalidTxnState));
    assert_eq!(of.add_positions(of.producer, "other", [], LIMITS), Err(E::InvalidTxnState));
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
        assert_eq!(of.add_positions(who, "g", [], LIMITS), Err(error));
        assert_eq!(of.end(who, true, 12), Err(error));
        assert_eq!(of.may_produce(who, &partition(0)), Err(producing));
    }
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
    assert_eq!(of.add_positions(of.producer, "g", many, LIMITS), Err(E::PolicyViolation));
    let again = of.add_positions(of.producer, "g", [position("g", 3, 9)], LIMITS).unwrap().unwrap();
    assert_eq!(again.positions().cloned().collect::<Vec<_>>(), [position("g", 3, 9)], "the last one counts");
}
