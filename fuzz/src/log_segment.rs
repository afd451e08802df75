//! A segment of a store's log with wrong bytes: what is read are the first records as they were
//! written, what is cut is the rest, and a segment that was cut is whole.

use crate::Choices;
use keyway_log::{LogFault, read_segment};
use keyway_rdb::Crc64;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const ID: u64 = 0x1234_5678_9abc_def0;
const NUMBER: u64 = 7;
const OFFSET: u64 = 1000;
const SEGMENT_HEAD_LEN: usize = 40;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut file = segment_head();
    let (mut offset, mut synced) = (OFFSET, OFFSET);
    let mut written = Vec::new();
    for _ in 0..choices.below(6) {
        let units = vec![choices.byte(); 1 + choices.below(40)];
        append(&mut file, &units, offset, synced);
        offset += units.len() as u64;
        if choices.byte() & 1 == 1 {
            synced = offset;
        }
        written.push(units);
    }
    for _ in 0..choices.below(4) {
        let at = SEGMENT_HEAD_LEN + choices.below(file.len() - SEGMENT_HEAD_LEN + 1);
        match (file.get_mut(at), choices.byte()) {
            (Some(byte), change) if change & 3 != 0 => *byte ^= change,
            _ => file.truncate(at),
        }
    }
    file.extend_from_slice(choices.rest());
    let path = path();
    let (read, end) = read(&path, &file);
    assert!(written.starts_with(&read), "records that were never written");
    match end {
        Ok(None) => {}
        Ok(Some((at, len))) => {
            assert_eq!(at + len, file.len() as u64);
            let (again, end) = self::read(&path, &file[..at as usize]);
            assert_eq!(again, read);
            assert!(matches!(end, Ok(None)), "{end:?}");
        }
        Err(at) => assert!(at <= file.len() as u64),
    }
    // A file that is left over harms nobody.
    let _ = std::fs::remove_file(path);
}

/// The units of a segment, and what is to be cut or where the damage is.
fn read(path: &Path, bytes: &[u8]) -> (Vec<Vec<u8>>, Result<Option<(u64, u64)>, u64>) {
    std::fs::write(path, bytes).expect("a file in the temporary directory");
    let mut all = Vec::new();
    let end = read_segment(path, (ID, NUMBER, OFFSET), |units| all.push(units.to_vec()));
    let end = match end {
        Ok(cut) => Ok(cut.map(|cut| (cut.at, cut.len))),
        Err(LogFault::Damaged { at, .. }) => Err(at),
        Err(fault) => panic!("{fault}"),
    };
    (all, end)
}

fn path() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nth = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("keyway-fuzz-{}-{nth}.log", std::process::id()))
}

fn segment_head() -> Vec<u8> {
    let mut head = b"KWAYLOG1".to_vec();
    [ID, NUMBER, OFFSET].iter().for_each(|number| head.extend(number.to_le_bytes()));
    let sum = sum_of(&head);
    head.extend(sum.to_le_bytes());
    head
}

fn append(file: &mut Vec<u8>, units: &[u8], offset: u64, synced: u64) {
    let mut rest = Vec::new();
    [offset, synced, units.len() as u64].iter().for_each(|it| rest.extend(it.to_le_bytes()));
    rest.extend_from_slice(units);
    file.extend(sum_of(&rest).to_le_bytes());
    file.extend(rest);
}

fn sum_of(bytes: &[u8]) -> u64 {
    let mut sum = Crc64::default();
    sum.update(&ID.to_le_bytes());
    sum.update(bytes);
    sum.sum()
}
