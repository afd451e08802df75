use keyway_base::ByteRange;

/// The arguments of one request (the command name is argument 0), as ranges
/// into the buffer they were read into.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    buf: &'a [u8],
    ranges: &'a [ByteRange],
}

impl<'a> Args<'a> {
    /// Arguments `ranges` of `buf`; every range must lie in `buf`.
    pub fn new(buf: &'a [u8], ranges: &'a [ByteRange]) -> Self {
        Self { buf, ranges }
    }

    /// Number of arguments, the command name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is not even a command name.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Argument `index`, or `None` past the end.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.ranges.get(index).map(|range| range.of(self.buf))
    }

    /// Arguments from `index` on.
    pub fn from(&self, index: usize) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.ranges.iter().skip(index).map(|range| range.of(self.buf))
    }

    /// The ranges of all arguments, to place them in the wire bytes.
    #[inline]
    pub fn ranges(&self) -> &'a [ByteRange] {
        self.ranges
    }

    /// The buffer the ranges point into.
    #[inline]
    pub fn buf(&self) -> &'a [u8] {
        self.buf
    }
}

impl std::ops::Index<usize> for Args<'_> {
    type Output = [u8];
    /// # Panics
    /// Past the end: only for arguments the arity check has proved present.
    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        self.ranges[index].of(self.buf)
    }
}
