//! Things that have a number as long as they are there.

/// So many lie together. Growing makes another block and moves nothing: there is no table of twice the size to be filled,
/// and none of half the size that leaves a hole.
const BLOCK: usize = 1024;

/// Numbers are used again.
#[derive(Debug)]
pub(crate) struct Slab<T> {
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
    pub(crate) fn insert(&mut self, item: T) -> u32 {
        self.insert_with(|_| item)
    }

    /// Inserts what `make` makes of its number.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(u32) -> T) -> u32 {
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

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let item = self.place(number)?.take()?;
        self.free.push(number);
        Some(item)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.blocks.get(number as usize / BLOCK)?.get(number as usize % BLOCK)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.place(number)?.as_mut()
    }

    fn place(&mut self, number: u32) -> Option<&mut Option<T>> {
        self.blocks.get_mut(number as usize / BLOCK)?.get_mut(number as usize % BLOCK)
    }

    pub(crate) fn len(&self) -> usize {
        self.end as usize - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().flatten().flatten()
    }
}
