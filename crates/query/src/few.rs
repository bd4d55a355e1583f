//! Lists that mostly have one element, which then takes no memory of its own.

#[derive(Debug, Default)]
#[allow(clippy::box_collection, reason = "every entry of a large table would be half as large again")]
pub(crate) enum Few<T> {
    #[default]
    None,
    One(T),
    Many(Box<Vec<T>>),
}

impl<T: Copy + PartialEq> Few<T> {
    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            Self::None => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    pub(crate) fn push(&mut self, item: T) {
        match self {
            Self::None => *self = Self::One(item),
            Self::One(first) => *self = Self::Many(Box::new(vec![*first, item])),
            Self::Many(many) => many.push(item),
        }
    }

    /// Takes out the element at `position`; the last one takes its place.
    pub(crate) fn swap_remove(&mut self, position: usize) {
        match self {
            Self::Many(many) => drop(many.swap_remove(position)),
            _ => *self = Self::None,
        }
    }

    /// Takes out an element, if it is there.
    pub(crate) fn remove(&mut self, item: T) {
        if let Some(position) = self.as_slice().iter().position(|known| *known == item) {
            self.swap_remove(position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_list_however_many_there_are() {
        let mut few = Few::default();
        for n in 0..4 {
            assert_eq!((few.is_empty(), few.as_slice().len()), (n == 0, n));
            few.push(n);
        }
        few.swap_remove(0);
        assert_eq!(few.as_slice(), [3, 1, 2]);
        for (gone, rest) in [(1, &[3, 2][..]), (7, &[3, 2]), (3, &[2]), (2, &[])] {
            few.remove(gone);
            assert_eq!(few.as_slice(), rest);
        }
        few.push(5);
        few.remove(5);
        assert!(few.is_empty());
    }
}
