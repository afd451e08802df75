//! Reading a segment, and telling a torn tail from damage.
//!
//! A process that is killed, or a system that stops, leaves what was not on the disk in part:
//! the last record may be cut, and after a crash of the system pages before it may be missing.
//! That is a *torn tail*, and it is cut. A record that is wrong although a later one says that it
//! was on the disk is *damage*, which no crash explains. So is any fault in a segment that is not
//! the last one, which was on the disk before the next was begun.

use crate::fault::LogFault;
use crate::record::{RECORD_HEAD_LEN, RecordHead, SEGMENT_HEAD_LEN, SegmentHead};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that are looked at at once.
const WINDOW_LEN: usize = 1 << 20;

/// The end of a segment that was not on the disk whole, and is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The place in the file from which on there is no whole record.
    pub at: u64,
    /// Bytes from there to the end.
    pub len: u64,
}

/// The records of a segment, one after the other.
pub(crate) struct Segment<'p> {
    path: &'p Path,
    file: File,
    id: u64,
    is_last: bool,
    len: u64,
    /// The place of the next record in the file.
    position: u64,
    /// The offset of the stream that it must have.
    offset: u64,
    /// The units of the last record.
    units: Vec<u8>,
}

impl<'p> Segment<'p> {
    /// Opens a segment that must begin at this offset.
    pub(crate) fn open(path: &'p Path, head: SegmentHead, is_last: bool) -> Result<Self, LogFault> {
        let failed = |error| LogFault::io("read", path, error);
        let mut file = File::open(path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        let mut bytes = [0; SEGMENT_HEAD_LEN];
        let is_whole = match file.read_exact(&mut bytes) {
            Ok(()) => SegmentHead::decode(&bytes, head.id) == Some(head),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
            Err(error) => return Err(failed(error)),
        };
        if !is_whole {
            return Err(LogFault::Damaged { path: path.into(), at: 0, offset: head.offset });
        }
        let position = SEGMENT_HEAD_LEN as u64;
        let SegmentHead { id, offset, .. } = head;
        Ok(Self { path, file, id, is_last, len, position, offset, units: Vec::new() })
    }

    /// The offset of the stream behind the last record.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The place in the file behind the last record.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The units of the next record, none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, LogFault> {
        loop {
            match self.read().map_err(|error| LogFault::io("read", self.path, error))? {
                Some(0) => {}
                Some(_) => return Ok(Some(&self.units)),
                None => return Ok(None),
            }
        }
    }

    /// Reads the next record if it is whole; the length of its units.
    fn read(&mut self) -> io::Result<Option<usize>> {
        let rest = self.len - self.position;
        let mut bytes = [0; RECORD_HEAD_LEN];
        if rest < RECORD_HEAD_LEN as u64 {
            return Ok(None);
        }
        self.file.seek(SeekFrom::Start(self.position))?;
        self.file.read_exact(&mut bytes)?;
        let Some(head) = RecordHead::decode(&bytes) else { return Ok(None) };
        let len = head.len as usize;
        if head.offset != self.offset || u64::from(head.len) > rest - RECORD_HEAD_LEN as u64 {
            return Ok(None);
        }
        self.units.resize(len, 0);
        self.file.read_exact(&mut self.units)?;
        let mut sum = head.begin_sum(self.id);
        sum.update(&self.units);
        if sum.sum() != head.checksum {
            return Ok(None);
        }
        self.position += (RECORD_HEAD_LEN + len) as u64;
        self.offset += len as u64;
        Ok(Some(len))
    }

    /// The bytes behind the last whole record, once [`Segment::next`] has returned none.
    ///
    /// # Errors
    /// [`LogFault::Damaged`] if that is no torn tail.
    pub(crate) fn end(&self) -> Result<Option<Cut>, LogFault> {
        let len = self.len - self.position;
        if len == 0 {
            return Ok(None);
        }
        let failed = |error| LogFault::io("read", self.path, error);
        if !self.is_last || self.was_synced().map_err(failed)? {
            let (path, at) = (self.path.into(), self.position);
            return Err(LogFault::Damaged { path, at, offset: self.offset });
        }
        Ok(Some(Cut { at: self.position, len }))
    }

    /// Returns whether a later record says that the wrong one was on the disk.
    fn was_synced(&self) -> io::Result<bool> {
        let mut window = vec![0; WINDOW_LEN];
        let mut at = self.position;
        while self.len - at >= RECORD_HEAD_LEN as u64 {
            let len = (self.len - at).min(WINDOW_LEN as u64) as usize;
            self.file.read_exact_at(&mut window[..len], at)?;
            for (index, bytes) in window[..len].windows(RECORD_HEAD_LEN).enumerate() {
                let head = bytes.first_chunk().and_then(RecordHead::decode);
                let is_later = |head: &RecordHead| {
                    head.synced > self.offset && head.offset - self.offset <= self.len
                };
                if let Some(head) = head.filter(is_later)
                    && self.is_whole(head, at + index as u64)?
                {
                    return Ok(true);
                }
            }
            // The last heads may be in part in this window.
            at += (len - (RECORD_HEAD_LEN - 1)) as u64;
        }
        Ok(false)
    }

    /// Returns whether a record with this head at `at` is whole.
    fn is_whole(&self, head: RecordHead, at: u64) -> io::Result<bool> {
        let mut at = at + RECORD_HEAD_LEN as u64;
        let mut rest = u64::from(head.len);
        if rest > self.len - at {
            return Ok(false);
        }
        let mut sum = head.begin_sum(self.id);
        let mut buffer = vec![0; WINDOW_LEN.min(rest as usize)];
        while rest > 0 {
            let len = rest.min(WINDOW_LEN as u64) as usize;
            self.file.read_exact_at(&mut buffer[..len], at)?;
            sum.update(&buffer[..len]);
            (at, rest) = (at + len as u64, rest - len as u64);
        }
        Ok(sum.sum() == head.checksum)
    }
}

/// Reads a file as the last segment of the log with this id, for tests and fuzzing: calls `take`
/// with the units of each record. Returns what of it is to be cut.
///
/// # Errors
/// [`LogFault`] as at a start.
pub fn read_segment(
    path: &Path,
    (id, number, offset): (u64, u64, u64),
    mut take: impl FnMut(&[u8]),
) -> Result<Option<Cut>, LogFault> {
    let mut segment = Segment::open(path, SegmentHead { id, number, offset }, true)?;
    while let Some(units) = segment.next()? {
        take(units);
    }
    segment.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::Writer;
    use keyway_testkit::TempDir;
    use proptest::prelude::*;
    use std::path::PathBuf;

    const HEAD: SegmentHead = SegmentHead { id: 0x5eed, number: 3, offset: 1000 };

    /// The units of each record, and whether all was synced behind it.
    type Records = Vec<(Vec<u8>, bool)>;

    fn write(folder: &TempDir, records: &Records) -> (PathBuf, Vec<u8>) {
        let path = folder.path().join("log.3");
        let _ = std::fs::remove_file(&path);
        let mut writer = Writer::create(path.clone(), HEAD).unwrap();
        for (units, is_synced) in records {
            writer.units().bytes().extend_from_slice(units);
            writer.write().unwrap();
            if *is_synced {
                writer.sync().unwrap();
            }
        }
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(writer.len(), bytes.len() as u64);
        (path, bytes)
    }

    fn read(path: &Path, is_last: bool) -> (Vec<Vec<u8>>, Result<Option<Cut>, LogFault>) {
        let mut segment = match Segment::open(path, HEAD, is_last) {
            Ok(segment) => segment,
            Err(fault) => return (Vec::new(), Err(fault)),
        };
        let mut all = Vec::new();
        while let Some(units) = segment.next().unwrap() {
            all.push(units.to_vec());
        }
        (all, segment.end())
    }

    fn some_records() -> Records {
        let units = |nth: u8| vec![nth; 5 + 3 * usize::from(nth)];
        // The last two are not known to be on the disk.
        [true, false, true, true, false, false]
            .into_iter()
            .enumerate()
            .map(|(nth, is_synced)| (units(nth as u8), is_synced))
            .collect()
    }

    /// The place behind each record.
    fn ends(records: &Records) -> Vec<u64> {
        let mut at = SEGMENT_HEAD_LEN;
        let end = |(units, _): &(Vec<u8>, bool)| {
            at += RECORD_HEAD_LEN + units.len();
            at as u64
        };
        records.iter().map(end).collect()
    }

    #[test]
    fn a_tail_that_is_torn_anywhere_is_cut_behind_the_last_whole_record() {
        let folder = TempDir::new();
        let records = some_records();
        let (path, bytes) = write(&folder, &records);
        let ends = ends(&records);
        for len in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..len]).unwrap();
            let (all, end) = read(&path, true);
            if len < SEGMENT_HEAD_LEN {
                assert!(matches!(end, Err(LogFault::Damaged { at: 0, .. })), "{len}: {end:?}");
                continue;
            }
            let whole = ends.iter().filter(|end| **end <= len as u64).count();
            let at = if whole == 0 { SEGMENT_HEAD_LEN as u64 } else { ends[whole - 1] };
            let expected: Vec<_> =
                records[..whole].iter().map(|(units, _)| units.clone()).collect();
            assert_eq!(all, expected, "{len}");
            let rest = len as u64 - at;
            assert_eq!(end.unwrap(), (rest > 0).then_some(Cut { at, len: rest }), "{len}");
            // In front of another segment nothing may be torn.
            let (_, end) = read(&path, false);
            assert_eq!(end.is_err(), rest > 0, "{len}");
        }
    }

    #[test]
    fn a_byte_that_is_wrong_is_damage_where_it_was_on_the_disk_and_a_torn_tail_behind() {
        let folder = TempDir::new();
        let records = some_records();
        let (path, bytes) = write(&folder, &records);
        let ends = ends(&records);
        // The last record says that the first four are on the disk.
        let synced = ends[3];
        for at in 0..bytes.len() {
            for bit in [0, 7] {
                let mut wrong = bytes.clone();
                wrong[at] ^= 1 << bit;
                std::fs::write(&path, &wrong).unwrap();
                let (all, end) = read(&path, true);
                let whole = ends.iter().filter(|end| **end <= at as u64).count();
                let start = if whole == 0 { SEGMENT_HEAD_LEN as u64 } else { ends[whole - 1] };
                match end {
                    Err(LogFault::Damaged { at: told, offset, path: of }) => {
                        let is_head = at < SEGMENT_HEAD_LEN;
                        assert!(is_head || start < synced, "{at}: no damage");
                        assert_eq!(told, if is_head { 0 } else { start }, "{at}");
                        let before: usize = all.iter().map(Vec::len).sum();
                        assert_eq!(offset, HEAD.offset + before as u64, "{at}");
                        assert_eq!(of, path);
                    }
                    Ok(Some(cut)) => {
                        assert!(start >= synced, "{at}: damage is cut");
                        assert_eq!((cut.at, all.len()), (start, whole), "{at}");
                    }
                    other => panic!("{at}: {other:?}"),
                }
                assert!(read(&path, false).1.is_err(), "{at}");
            }
        }
    }

    #[test]
    fn a_mark_behind_the_last_record_makes_any_fault_in_front_of_it_damage() {
        let folder = TempDir::new();
        let path = folder.path().join("log.3");
        let mut writer = Writer::create(path.clone(), HEAD).unwrap();
        writer.units().bytes().extend_from_slice(b"units");
        writer.write().unwrap();
        writer.mark_synced().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(read(&path, true).0, [b"units".to_vec()]);
        for at in SEGMENT_HEAD_LEN..bytes.len() - RECORD_HEAD_LEN {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            std::fs::write(&path, &wrong).unwrap();
            assert!(matches!(read(&path, true).1, Err(LogFault::Damaged { .. })), "{at}");
        }
    }

    #[test]
    fn a_value_that_looks_like_records_is_no_record() {
        let folder = TempDir::new();
        let (_, other) = write(&folder, &some_records());
        // A torn record whose units are a whole segment of another log.
        let path = folder.path().join("log.4");
        let head = SegmentHead { id: 7, number: 3, offset: 0 };
        let mut writer = Writer::create(path.clone(), head).unwrap();
        writer.units().bytes().extend_from_slice(&other[SEGMENT_HEAD_LEN..]);
        writer.units().bytes().push(0);
        writer.write().unwrap();
        let len = std::fs::metadata(&path).unwrap().len();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len - 1).unwrap();
        let cut = read_segment(&path, (7, 3, 0), |_| panic!("a record")).unwrap();
        assert_eq!(cut.map(|cut| cut.at), Some(SEGMENT_HEAD_LEN as u64));
    }

    #[test]
    fn a_fault_is_found_in_front_of_a_record_beyond_a_window() {
        let folder = TempDir::new();
        let records: Records =
            vec![(vec![1; 2 * WINDOW_LEN + 9], true), (vec![2; 3 * WINDOW_LEN], true)];
        let (path, mut bytes) = write(&folder, &records);
        bytes[SEGMENT_HEAD_LEN + RECORD_HEAD_LEN + 5] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(matches!(read(&path, true).1, Err(LogFault::Damaged { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn what_is_read_is_always_the_first_records_as_they_were_written(
            records in proptest::collection::vec(
                (proptest::collection::vec(any::<u8>(), 1..60), any::<bool>()), 1..8),
            holes in proptest::collection::vec((any::<usize>(), 1usize..50), 0..3),
            lost in 0usize..80,
        ) {
            let folder = TempDir::new();
            let (path, mut bytes) = write(&folder, &records);
            for (at, len) in holes {
                let at = SEGMENT_HEAD_LEN + at % (bytes.len() - SEGMENT_HEAD_LEN);
                let end = (at + len).min(bytes.len());
                bytes[at..end].fill(0);
            }
            bytes.truncate(bytes.len().saturating_sub(lost).max(SEGMENT_HEAD_LEN));
            std::fs::write(&path, &bytes).unwrap();
            let (all, end) = read(&path, true);
            let written: Vec<_> = records.iter().map(|(units, _)| units.clone()).collect();
            prop_assert!(written.starts_with(&all));
            if let Ok(Some(cut)) = end {
                prop_assert_eq!(cut.at + cut.len, bytes.len() as u64);
            }
        }
    }
}
