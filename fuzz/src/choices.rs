use std::time::Duration;

/// An input, taken apart into decisions. Once it is used up every decision is
/// the first one, so a machine driven by it comes to rest.
#[derive(Clone, Copy, Debug)]
pub struct Choices<'a> {
    rest: &'a [u8],
}

impl<'a> Choices<'a> {
    /// Decisions from `data`.
    pub fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    /// Whether the input is used up.
    pub fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    /// All that is left, as it stands.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((&byte, rest)) => {
                self.rest = rest;
                byte
            }
            None => 0,
        }
    }

    /// A number from 0 to `bound` - 1; `bound` is at most 65,536.
    pub fn below(&mut self, bound: usize) -> usize {
        let number = match bound {
            0..=256 => usize::from(self.byte()),
            _ => usize::from(self.byte()) | usize::from(self.byte()) << 8,
        };
        number % bound.max(1)
    }

    /// Yes or no.
    pub fn flip(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// One of `items`, which are not none.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// Up to `len_max` bytes of the input itself.
    pub fn bytes(&mut self, len_max: usize) -> &'a [u8] {
        let len = self.below(len_max + 1).min(self.rest.len());
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    /// A span of time: often none, mostly milliseconds, at times many seconds.
    pub fn span(&mut self) -> Duration {
        let byte = self.byte();
        let unit = [0, 1_000, 1_000_000, 20_000_000, 100_000_000, 1_000_000_000];
        Duration::from_nanos(u64::from(byte / 6) * unit[usize::from(byte % 6)])
    }
}
