//! Locations in a persistent set: each is in the smallest quadtree cell that contains its rectangle.
//!
//! A cell's code is its path from the root, two bits a level, so that everything within a cell is one range of the set.
//! A location across a border is in a larger cell, which every search passes on its way down.

use std::ops::Range;

use geo::Rect;
use imbl::OrdSet;

use crate::model::entity::ListPosition;

/// Levels of cells; the smallest are about a metre wide.
const LEVEL_MAX: u8 = 25;
/// Levels below the width of the searched area that a search distinguishes: 1 / 2^2 of its width.
const LEVELS_WITHIN: u8 = 2;

type Entry = (u64, u8, Option<ListPosition>);

#[derive(Debug, Clone, Default)]
pub(crate) struct Cells(OrdSet<Entry>);

/// A square of longitude and latitude, each cut into 2^level parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    level: u8,
    x: u32,
    y: u32,
}

impl Cells {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn insert(&mut self, area: Rect, place: ListPosition) {
        self.0.insert(Cell::holding(area).entry(Some(place)));
    }

    pub(crate) fn remove(&mut self, area: Rect, place: ListPosition) {
        self.0.remove(&Cell::holding(area).entry(Some(place)));
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &ListPosition> {
        self.0.iter().filter_map(|(.., place)| place.as_ref())
    }

    /// Positions that may lie within `area`, and some beside it, until `found` returns false.
    pub(crate) fn within(&self, area: Rect, found: &mut impl FnMut(&ListPosition) -> bool) -> bool {
        let finest = Cell::holding_width(area).saturating_add(LEVELS_WITHIN).min(LEVEL_MAX);
        self.search(Cell { level: 0, x: 0, y: 0 }, &Bounds::of(area), finest, found)
    }

    /// Returns false once `found` did.
    fn search(&self, cell: Cell, area: &Bounds, finest: u8, found: &mut impl FnMut(&ListPosition) -> bool) -> bool {
        match area.relation(cell) {
            Overlap::None => true,
            Overlap::Whole => self.each(cell.stretch(), found),
            Overlap::Part if cell.level >= finest => self.each(cell.stretch(), found),
            Overlap::Part => {
                self.each(cell.alone(), found)
                    && cell.parts().into_iter().all(|part| self.search(part, area, finest, found))
            }
        }
    }

    fn each(&self, range: Range<Entry>, found: &mut impl FnMut(&ListPosition) -> bool) -> bool {
        self.0.range(range).filter_map(|(.., place)| place.as_ref()).all(found)
    }
}

impl Cell {
    /// The smallest cell that contains `area`.
    fn holding(area: Rect) -> Self {
        let bounds = Bounds::of(area);
        let differing = (bounds.west ^ bounds.east) | (bounds.south ^ bounds.north);
        let level = (differing.leading_zeros() as u8).min(LEVEL_MAX);
        let at = |value: u32| if level == 0 { 0 } else { value >> (32 - level) };
        Self { level, x: at(bounds.west), y: at(bounds.south) }
    }

    fn holding_width(area: Rect) -> u8 {
        let part = (area.width() / 360.0).max(area.height() / 180.0).clamp(1e-9, 1.0);
        (-part.log2()) as u8
    }

    /// Interleaved bits from the top, x before y.
    fn code(self) -> u64 {
        let path = (0..self.level).rev().fold(0_u64, |path, bit| {
            (path << 2) | u64::from((self.x >> bit) & 1) << 1 | u64::from((self.y >> bit) & 1)
        });
        if self.level == 0 { 0 } else { path << (62 - 2 * u32::from(self.level)) }
    }

    fn entry(self, place: Option<ListPosition>) -> Entry {
        (self.code(), self.level, place)
    }

    /// The range of entries in this very cell.
    fn alone(self) -> Range<Entry> {
        self.entry(None)..(self.code(), self.level + 1, None)
    }

    /// The range of entries in this cell and all cells within it.
    fn stretch(self) -> Range<Entry> {
        let size = 1_u64 << (62 - 2 * u32::from(self.level));
        self.entry(None)..(self.code() + size, 0, None)
    }

    fn parts(self) -> [Self; 4] {
        let (level, x, y) = (self.level + 1, self.x * 2, self.y * 2);
        [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(dx, dy)| Self { level, x: x + dx, y: y + dy })
    }
}

/// A rectangle in 2^32 parts of the earth's width and height, borders included.
struct Bounds {
    west: u32,
    east: u32,
    south: u32,
    north: u32,
}

enum Overlap {
    None,
    Part,
    Whole,
}

impl Bounds {
    fn of(area: Rect) -> Self {
        let part = |value: f64| (value.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32;
        let (x, y) = (|degrees: f64| part((degrees + 180.0) / 360.0), |degrees: f64| part((degrees + 90.0) / 180.0));
        Self { west: x(area.min().x), east: x(area.max().x), south: y(area.min().y), north: y(area.max().y) }
    }

    fn relation(&self, cell: Cell) -> Overlap {
        let span = |at: u32| {
            let shift = 32 - u32::from(cell.level);
            let first = u64::from(at) << shift;
            (first, first + (1_u64 << shift) - 1)
        };
        let ((west, east), (south, north)) = (span(cell.x), span(cell.y));
        let wide = (u64::from(self.west), u64::from(self.east));
        let high = (u64::from(self.south), u64::from(self.north));
        if wide.0 > east || wide.1 < west || high.0 > north || high.1 < south {
            Overlap::None
        } else if wide.0 <= west && wide.1 >= east && high.0 <= south && high.1 >= north {
            Overlap::Whole
        } else {
            Overlap::Part
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::model::entity::Key;

    fn area() -> impl Strategy<Value = Rect> {
        let centre = (-180.0..180.0_f64, -90.0..90.0_f64);
        let size = prop_oneof![Just(0.0), 0.0..0.01, 0.0..100.0_f64];
        (centre, size).prop_map(|((x, y), size)| Rect::new((x, y), ((x + size).min(180.0), (y + size).min(90.0))))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn a_search_misses_nothing(areas in prop::collection::vec(area(), 1..200), searched in area()) {
            let mut cells = Cells::default();
            let place = |n: usize| {
                let key = Key { id: n.to_string().into(), kind: "T".into(), path: "/".into() };
                ListPosition { created_us: n as i64, key: Arc::new(key) }
            };
            for (n, area) in areas.iter().enumerate() {
                cells.insert(*area, place(n));
            }
            let overlap = |a: &Rect, b: &Rect| {
                a.min().x <= b.max().x && b.min().x <= a.max().x && a.min().y <= b.max().y && b.min().y <= a.max().y
            };
            let mut found = Vec::new();
            cells.within(searched, &mut |place| {
                found.push(place.created_us as usize);
                true
            });
            for (n, area) in areas.iter().enumerate() {
                prop_assert!(!overlap(area, &searched) || found.contains(&n), "{area:?} is missing");
            }
            let distinct: std::collections::BTreeSet<_> = found.iter().collect();
            prop_assert_eq!(distinct.len(), found.len(), "each is found once");
            for (n, area) in areas.iter().enumerate() {
                cells.remove(*area, place(n));
            }
            prop_assert_eq!(cells.len(), 0);
        }
    }

    #[test]
    fn a_search_visits_few_entries_beside_its_results() {
        let mut cells = Cells::default();
        for n in 0..40_000 {
            let (x, y) = (f64::from(n % 200) * 0.01, f64::from(n / 200) * 0.01);
            let key = Key { id: n.to_string().into(), kind: "T".into(), path: "/".into() };
            cells.insert(Rect::new((x, y), (x, y)), ListPosition { created_us: 0, key: Arc::new(key) });
        }
        let mut looked_at = 0;
        cells.within(Rect::new((1.0, 1.0), (1.1, 1.1)), &mut |_| {
            looked_at += 1;
            true
        });
        assert!((121..1_000).contains(&looked_at), "{looked_at} of 40,000 for 121");
    }
}
