//! The counted size of the states of aggregates, beside the memory that the process takes for them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(unsafe_code, reason = "an allocator that counts is the one exact measure, and it is in no program")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millstream_columns::{
    AggregateShape, AggregateState, DistributionKind, FigureKind, FigureOf, Points, SketchSizes, Value, write_input,
};

/// Counts the bytes that are allocated, each as large as the class of sizes that the server's allocator puts it into.
struct Counting;

static TAKEN_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The most that was taken at a time, since it was set.
static MOST_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The size of an allocation's class: 16 bytes apart at first, later a quarter of a power of two.
fn class_bytes(size: usize) -> usize {
    match size {
        0..=64 => size.next_multiple_of(16),
        _ => size.next_multiple_of(1 << (size - 1).ilog2() >> 2),
    }
}

// SAFETY: every call is handed to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let class_bytes = class_bytes(layout.size());
        let taken = TAKEN_BYTES.fetch_add(class_bytes, Ordering::Relaxed) + class_bytes;
        MOST_BYTES.fetch_max(taken, Ordering::Relaxed);
        // SAFETY: the caller holds to the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAKEN_BYTES.fetch_sub(class_bytes(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller holds to the contract of `dealloc`, which is the same.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// By so much the count of a small state may differ from what it takes.
const FEW_BYTES: usize = 1024;

fn figures(keys: usize, kind: FigureKind) -> AggregateShape {
    let figure = FigureOf { name: "f".to_owned(), kind, inputs: keys..keys + 1 };
    AggregateShape::Groups { keys, figures: Arc::new([figure]) }
}

/// The inputs of the record with this number.
type Inputs = fn(usize) -> Vec<Value<'static>>;

fn number(n: usize) -> Vec<Value<'static>> {
    vec![Value::Integer(n as i64)]
}

fn text(n: usize) -> Vec<Value<'static>> {
    vec![Value::Text(format!("thing number {n}").into())]
}

fn keyed(n: usize) -> Vec<Value<'static>> {
    vec![Value::Text(format!("group {n}").into()), Value::Integer(n as i64)]
}

fn keyed_text(n: usize) -> Vec<Value<'static>> {
    vec![Value::Integer(n as i64), Value::Text(format!("the text of {n}").into())]
}

fn keyed_long(n: usize) -> Vec<Value<'static>> {
    vec![Value::Text(format!("{n:0200}").into()), Value::Integer(1)]
}

/// The largest share of the counted bytes in those that are taken.
const MOST_SHARE: f64 = 1.25;

#[test]
fn states_of_every_kind_are_counted_with_the_memory_that_they_take() {
    let wide = SketchSizes::new(1 << 17, 1 << 14);
    let top = AggregateShape::Top { k: 10, threshold: 1 };
    let raw = AggregateShape::Raw { rows_max: 1_000_000 };
    let sorted = AggregateShape::Sorted { rows_max: 5_000, descending: [true, false].into() };
    let quantiles = AggregateShape::Distribution { kind: DistributionKind::Quantile, points: Points::Linear(10) };
    let distinct = FigureKind::CountDistinct;
    let cases: [(&str, AggregateShape, usize, Inputs); 20] = [
        ("groups of counts", figures(1, FigureKind::Count), 20_000, keyed),
        ("groups with long keys", figures(1, FigureKind::Count), 10_000, keyed_long),
        ("groups without figures", AggregateShape::Groups { keys: 1, figures: Arc::new([]) }, 20_000, text),
        ("few groups", figures(1, FigureKind::Sum), 100, keyed),
        ("groups of texts", figures(1, FigureKind::Max), 20_000, keyed_text),
        ("groups of last texts", figures(1, FigureKind::Last), 20_000, keyed_text),
        ("groups of deviations", figures(1, FigureKind::StandardDeviation), 20_000, keyed),
        ("groups of quantiles", figures(1, FigureKind::Quantile(0.5)), 10_000, keyed),
        ("groups of distinct values", figures(1, distinct), 10_000, keyed),
        ("few distinct values", figures(0, distinct), 10, number),
        ("many distinct values", figures(0, distinct), 20_000, number),
        ("a quantile of few", figures(0, FigureKind::Quantile(0.5)), 300, number),
        ("a quantile of some", figures(0, FigureKind::Quantile(0.5)), 2_000, number),
        ("one quantile", figures(0, FigureKind::Quantile(0.5)), 20_000, number),
        ("a distribution", quantiles, 20_000, number),
        ("a few of the top", top.clone(), 10, text),
        ("the top", top, 20_000, text),
        ("rows", raw.clone(), 10_000, text),
        ("sorted rows", sorted.clone(), 10_000, keyed_text),
        ("one count", figures(0, FigureKind::Count), 10, number),
    ];
    let mut wrong = Vec::new();
    for (what, shape, records, inputs) in &cases {
        for is_merged in [false, true] {
            if is_merged && matches!(shape, AggregateShape::Raw { .. }) {
                continue;
            }
            let before = TAKEN_BYTES.load(Ordering::Relaxed);
            let mut state = AggregateState::new(shape, wide);
            for n in 0..*records {
                match shape {
                    AggregateShape::Sorted { .. } => {
                        let mut written = Vec::new();
                        inputs(n).iter().for_each(|key| write_input(&mut written, key));
                        written.extend_from_slice(format!("the row {n}").as_bytes());
                        state.add_written(&written).unwrap();
                    }
                    AggregateShape::Raw { .. } => state.add_written(format!("the row {n}").as_bytes()).unwrap(),
                    _ => state.add(&inputs(n)).unwrap(),
                }
            }
            if is_merged {
                let mut whole = AggregateState::new(shape, wide);
                whole.merge(&state);
                state = whole;
            }
            // The state itself stands where its owner is.
            let taken = TAKEN_BYTES.load(Ordering::Relaxed) - before + size_of_val(&state);
            let counted = state.size_bytes();
            let peak = |work: &mut dyn FnMut()| {
                let before = TAKEN_BYTES.load(Ordering::Relaxed);
                MOST_BYTES.store(before, Ordering::Relaxed);
                work();
                MOST_BYTES.load(Ordering::Relaxed) - before
            };
            let working = state.working_bytes();
            let mut whole = AggregateState::new(shape, wide);
            whole.merge(&state);
            let peaks = [
                peak(&mut || drop(state.rows())),
                peak(&mut || drop(state.sketches())),
                peak(&mut || drop(state.write())),
                peak(&mut || whole.merge(&state)),
            ];
            println!(
                "{what}, merged {is_merged}: {taken} taken, {counted} counted, at work {peaks:?}, {working} counted"
            );
            let most = peaks.into_iter().max().unwrap();
            if working + FEW_BYTES < most || working > 2 * most + FEW_BYTES {
                wrong
                    .push(format!("{what}, merged {is_merged}: {most} bytes are taken at work, {working} are counted"));
            }
            if counted + FEW_BYTES < taken || counted as f64 > taken as f64 * MOST_SHARE + FEW_BYTES as f64 {
                wrong.push(format!("{what}, merged {is_merged}: {taken} bytes are taken, {counted} are counted"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
