//! A table whose entries have numbers while they exist.

/// So many lie together. Growing makes another block and moves nothing: there is no table of twice the size to be filled,
/// and none of half the size that leaves a hole.
const BLOCK: usize = 1024;

/// A table of numbered entries; the numbers are reused.
#[derive(Debug)]
pub struct Slab<T> {
    blocks: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
    end: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { blocks: Vec::new(), free: Vec::new(), end: 0 }
    }
}

impl<T> Slab<T> {
    /// Inserts an entry; returns its number.
    pub fn insert(&mut self, item: T) -> u32 {
        self.insert_with(|_| item)
    }

    /// Inserts the value that `make` builds from its number.
    pub fn insert_with(&mut self, make: impl FnOnce(u32) -> T) -> u32 {
        if let Some(number) = self.free.pop() {
            if let Some(place) = self.place(number) {
                *place = Some(make(number));
            }
            return number;
        }
        let number = self.end;
        self.end += 1;
        if number as usize / BLOCK == self.blocks.len() {
            self.blocks.push(Vec::new());
        }
        self.blocks[number as usize / BLOCK].push(Some(make(number)));
        number
    }

    /// Removes the entry with this number.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let item = self.place(number)?.take()?;
        self.free.push(number);
        Some(item)
    }

    /// The entry with this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        self.blocks.get(number as usize / BLOCK)?.get(number as usize % BLOCK)?.as_ref()
    }

    /// The entry with this number.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.place(number)?.as_mut()
    }

    fn place(&mut self, number: u32) -> Option<&mut Option<T>> {
        self.blocks.get_mut(number as usize / BLOCK)?.get_mut(number as usize % BLOCK)
    }

    /// True if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of entries that are taken.
    pub fn len(&self) -> usize {
        self.end as usize - self.free.len()
    }

    /// The entries, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().flatten().flatten()
    }
}
