//! The backlog: all effects in their order, and how far each reader has come.
//!
//! The stream lies in blocks. A unit is never split between two blocks, so a reader that
//! takes a block to its end has whole units.

use super::account::Account;
use super::lane::{Head, Staged};
use super::unit::write_select;
use std::collections::VecDeque;

/// Length of a block in bytes. A longer unit has a block of its own. Smaller takes more
/// calls for the same stream; larger is the least that a backlog takes.
const BLOCK_LEN: usize = 64 << 10;
/// Places for blocks that a table keeps.
const TABLE_LEN: usize = 256;
const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";
/// Longest SELECT with MULTI and EXEC.
const AROUND_LEN_MAX: usize = 64;

/// The bounds on the buffers of effects. If there are several readers, the largest figures count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectLimits {
    /// Bytes of all buffers. From half of it on the oldest effects are dropped, or a reader
    /// that keeps all of them makes writers wait. Beyond it all readers are lost, unless one
    /// keeps all: then the requests that are executed already are told all the same. They are
    /// one a thread, of any length. 1 MiB is little.
    pub room: usize,
    /// Bytes that are kept though all readers have them, for a reader that comes back.
    pub history: usize,
}

/// The handling of a reader that is slower than the writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// It loses its place, and has to begin with a new cut. Writers never wait for it.
    Newest,
    /// It gets everything: writers are to wait while the store's effects are full. It is never
    /// lost for want of room.
    All,
}

/// Effects are missing: the reader has to begin with a new cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost;

struct Block {
    /// The offset of its first byte.
    start: u64,
    bytes: Vec<u8>,
}

impl Block {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

struct Reader {
    number: u64,
    position: u64,
    /// The reader has all units whose tickets are lower.
    told: u64,
    keeping: Keeping,
    is_lost: bool,
}

/// The stream, with its readers.
#[derive(Default)]
pub(super) struct Backlog {
    blocks: VecDeque<Block>,
    /// A buffer for the next block.
    spare: Option<Vec<u8>>,
    /// The offset behind the last unit. Offsets go on when reading is begun again.
    end: u64,
    /// The database that the stream has selected.
    selected: Option<u32>,
    /// The ticket of the next unit.
    next_ticket: u64,
    history: usize,
    readers: Vec<Reader>,
    /// Number of readers that are to come. Effects are noted for them already.
    pub(super) expected: u32,
    reader_count: u64,
    /// Units that were taken from each lane.
    pub(super) staged: Vec<Staged>,
}

impl Backlog {
    /// Begins with the unit that has this ticket.
    pub(super) fn begin(&mut self, next_ticket: u64, lanes: usize, account: &Account) {
        self.next_ticket = next_ticket;
        self.selected = None;
        self.history = 0;
        let before = self.tables_len();
        self.staged = (0..lanes).map(|_| Staged::default()).collect();
        account.change(before, self.tables_len());
    }

    pub(super) fn keep_history(&mut self, bytes: usize) {
        self.history = self.history.max(bytes);
    }

    /// Number of bytes that are kept although all readers have them.
    pub(super) fn history(&self) -> usize {
        self.history
    }

    /// Frees all buffers.
    pub(super) fn free(&mut self, account: &Account) {
        let blocks = self.blocks.drain(..).map(|block| block.bytes);
        account.give(blocks.chain(self.spare.take()).map(|bytes| bytes.capacity()).sum());
        self.staged.iter_mut().for_each(|staged| staged.free(account));
        let before = self.tables_len();
        (self.blocks, self.staged) = (VecDeque::new(), Vec::new());
        account.change(before, self.tables_len());
        // Effects until a next stream begins are in no stream. Without a gap a replica that has
        // all of this stream would be taken for one that has the beginning of the next.
        self.end += 1;
    }

    /// Goes on at another offset. Nothing may be kept.
    pub(super) fn move_to(&mut self, offset: u64) {
        debug_assert!(self.blocks.is_empty(), "readers find what is kept by its offsets");
        self.end = offset;
    }

    /// Goes on with units of the store, of which the next has this ticket.
    pub(super) fn go_on(&mut self, next_ticket: u64) {
        self.next_ticket = next_ticket;
        self.selected = None;
    }

    /// Notes the database that the relayed stream has selected.
    pub(super) fn select(&mut self, database: Option<u32>) {
        self.selected = database;
    }

    /// The database that the stream has selected.
    pub(super) fn selected(&self) -> Option<u32> {
        self.selected
    }

    /// The offset behind the last unit.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The offsets in front of the first unit that is kept, and behind the last one.
    pub(super) fn kept(&self) -> (u64, u64) {
        (self.blocks.front().map_or(self.end, |block| block.start), self.end)
    }

    /// Returns whether all units up to a ticket are here.
    pub(super) fn has_all(&self, next_ticket: u64) -> bool {
        self.next_ticket == next_ticket
    }

    /// Appends the bytes of a relayed unit; returns whether there was room.
    pub(super) fn push_relayed(&mut self, unit: &[u8], account: &Account) -> bool {
        if !self.make_block(unit.len(), account) {
            return false;
        }
        let Some(block) = self.blocks.back_mut() else { return false };
        block.bytes.extend_from_slice(unit);
        self.end += unit.len() as u64;
        true
    }

    /// Adds a reader of what comes from now on, which knows what is selected; its number and
    /// offset.
    pub(super) fn join_relayed(&mut self, keeping: Keeping) -> (u64, u64) {
        (self.add(self.end, self.next_ticket, keeping), self.end)
    }

    /// Bytes of the tables of blocks and lanes.
    fn tables_len(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>() + self.staged.capacity() * size_of::<Staged>()
    }

    pub(super) fn has_keeper(&self) -> bool {
        self.readers.iter().any(|reader| reader.keeping == Keeping::All && !reader.is_lost)
    }

    /// Moves units to the blocks as long as the next one is there; returns whether there
    /// was room.
    pub(super) fn merge_staged(&mut self, account: &Account) -> bool {
        let mut staged = std::mem::take(&mut self.staged);
        let mut has_room = true;
        while has_room && let Some(lane) = staged.iter_mut().find(|lane| self.is_next(lane)) {
            while has_room
                && let Some((head, bytes)) = lane.next()
                && head.ticket == self.next_ticket
            {
                has_room = self.push(head, bytes, account);
                lane.advance();
            }
        }
        staged.iter_mut().for_each(|lane| lane.release(account));
        self.staged = staged;
        has_room
    }

    fn is_next(&self, lane: &Staged) -> bool {
        lane.next().is_some_and(|(head, _)| head.ticket == self.next_ticket)
    }

    /// Appends a unit; returns whether there was room.
    fn push(&mut self, head: Head, unit: &[u8], account: &Account) -> bool {
        if !self.make_block(unit.len() + AROUND_LEN_MAX, account) {
            return false;
        }
        let Some(block) = self.blocks.back_mut() else { return false };
        let block = &mut block.bytes;
        let before = block.len();
        if self.selected != Some(head.first) {
            write_select(head.first, block);
        }
        if head.is_many {
            block.extend_from_slice(MULTI);
        }
        block.extend_from_slice(unit);
        if head.is_many {
            block.extend_from_slice(EXEC);
        }
        self.end += (block.len() - before) as u64;
        self.selected = Some(head.last);
        self.next_ticket += 1;
        true
    }

    /// Sees to it that the last block has room for so many bytes. If there is no room for
    /// another block, the oldest ones go. If a reader must not lose them, the block is made
    /// all the same: writers wait already.
    fn make_block(&mut self, len: usize, account: &Account) -> bool {
        let has_room = |block: &Block| block.bytes.capacity() - block.bytes.len() >= len;
        if self.blocks.back().is_some_and(has_room) {
            return true;
        }
        let start = self.end;
        let bytes = match self.spare.take_if(|spare| spare.capacity() >= len) {
            Some(spare) => spare,
            None => {
                let len = len.max(BLOCK_LEN);
                while !account.try_take(len) {
                    if self.is_first_needed(true) {
                        if !self.has_keeper() {
                            return false;
                        }
                        account.take_beyond(len);
                        break;
                    }
                    self.drop_first(account);
                    self.free_spare(account);
                }
                Vec::with_capacity(len)
            }
        };
        let before = self.tables_len();
        self.blocks.push_back(Block { start, bytes });
        account.change(before, self.tables_len());
        true
    }

    /// Adds a reader of what comes from now on; its number and offset.
    pub(super) fn join(&mut self, keeping: Keeping) -> (u64, u64) {
        // The reader does not know what is selected.
        self.selected = None;
        (self.add(self.end, self.next_ticket, keeping), self.end)
    }

    /// Adds a reader that knows the stream up to `offset`.
    pub(super) fn join_at(&mut self, offset: u64, keeping: Keeping) -> Option<u64> {
        let (start, end) = self.kept();
        (start..=end).contains(&offset).then(|| self.add(offset, 0, keeping))
    }

    fn add(&mut self, position: u64, told: u64, keeping: Keeping) -> u64 {
        self.reader_count += 1;
        let number = self.reader_count;
        self.readers.push(Reader { number, position, told, keeping, is_lost: false });
        number
    }

    pub(super) fn leave(&mut self, number: u64) {
        self.readers.retain(|reader| reader.number != number);
    }

    /// Returns whether no reader is left that has its place, and none is to come.
    pub(super) fn is_unread(&self) -> bool {
        self.expected == 0 && self.readers.iter().all(|reader| reader.is_lost)
    }

    pub(super) fn lose_all(&mut self) {
        self.readers.iter_mut().for_each(|reader| reader.is_lost = true);
    }

    pub(super) fn position(&self, number: u64) -> Result<u64, Lost> {
        self.reader(number).map(|reader| reader.position)
    }

    /// The ticket below which a reader has all units.
    pub(super) fn told(&self, number: u64) -> Result<u64, Lost> {
        self.reader(number).map(|reader| reader.told)
    }

    fn reader(&self, number: u64) -> Result<&Reader, Lost> {
        let reader = self.readers.iter().find(|reader| reader.number == number);
        reader.filter(|reader| !reader.is_lost).ok_or(Lost)
    }

    /// Appends what is in the block at the reader's place to `out`.
    pub(super) fn read(&mut self, number: u64, out: &mut Vec<u8>) -> Result<usize, Lost> {
        let position = self.position(number)?;
        let index = self.blocks.partition_point(|block| block.end() <= position);
        let (len, end) = match self.blocks.get(index) {
            None => (0, position),
            Some(block) => {
                let bytes = &block.bytes[(position - block.start) as usize..];
                out.extend_from_slice(bytes);
                (bytes.len(), block.end())
            }
        };
        if let Some(reader) = self.readers.iter_mut().find(|reader| reader.number == number) {
            reader.position = end;
            if end == self.end {
                reader.told = self.next_ticket;
            }
        }
        Ok(len)
    }

    /// Frees blocks that all readers have read, but for the history; and the oldest ones
    /// as long as more than the soft bound is taken, unless a reader must not lose them.
    ///
    /// The last block stays for the next units, unless it is long or memory is short. With
    /// nothing to be read, a shortage therefore frees everything but the tables.
    pub(super) fn trim(&mut self, account: &Account) {
        loop {
            let is_short = account.is_short();
            if is_short {
                self.free_spare(account);
            }
            let is_last = self.blocks.len() == 1;
            let is_spare = |block: &Block| {
                block.bytes.is_empty() || !is_short && block.bytes.capacity() == BLOCK_LEN
            };
            let stays = is_last && self.blocks.front().is_some_and(is_spare);
            if stays || self.is_first_needed(is_short) {
                return self.shrink_tables(account);
            }
            self.drop_first(account);
        }
    }

    /// Frees what tables have grown by, once they are nearly empty.
    fn shrink_tables(&mut self, account: &Account) {
        if self.blocks.capacity() > TABLE_LEN && self.blocks.len() < TABLE_LEN / 2 {
            let before = self.tables_len();
            self.blocks.shrink_to(TABLE_LEN);
            account.change(before, self.tables_len());
        }
    }

    /// Returns whether the first block must stay: there is none, or it is needed. In a
    /// `shortage` only readers that keep everything need it.
    fn is_first_needed(&self, shortage: bool) -> bool {
        let Some(end) = self.blocks.front().map(Block::end) else { return true };
        let is_history = self.end - end < self.history as u64;
        let is_needed = |reader: &Reader| {
            let is_kept = !shortage || reader.keeping == Keeping::All;
            !reader.is_lost && reader.position < end && is_kept
        };
        !shortage && is_history || self.readers.iter().any(is_needed)
    }

    /// Frees the first block. Readers that have not read it are lost.
    fn drop_first(&mut self, account: &Account) {
        let Some(mut block) = self.blocks.pop_front() else { return };
        let end = block.end();
        let is_behind = |reader: &&mut Reader| reader.position < end;
        self.readers.iter_mut().filter(is_behind).for_each(|reader| reader.is_lost = true);
        if self.spare.is_none() && block.bytes.capacity() == BLOCK_LEN {
            block.bytes.clear();
            self.spare = Some(block.bytes);
        } else {
            account.give(block.bytes.capacity());
        }
    }

    fn free_spare(&mut self, account: &Account) {
        account.give(self.spare.take().map_or(0, |spare| spare.capacity()));
    }
}
