//! Plays every checked-in seed, and changed copies of it, through its target:
//! what a machine without a nightly toolchain can do, and the regression test
//! of every input that once found a bug.

use keyway_fuzz::TARGETS;
use std::fs;
use std::path::{Path, PathBuf};

/// Changed copies of each seed.
const COPIES: u64 = 100;

fn seeds(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// A copy with a few bytes replaced, repeated or left out.
fn changed(seed: &[u8], number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 8) as usize % below.max(1)
    };
    let mut copy = seed.to_vec();
    for _ in 0..=random(6) {
        let at = random(copy.len());
        match random(3) {
            0 if !copy.is_empty() => copy[at] = random(256) as u8,
            1 if !copy.is_empty() => copy.truncate(at),
            _ => {
                let end = at + random(copy.len() - at + 1);
                let part = copy[at..end].to_vec();
                copy.extend(part);
            }
        }
    }
    copy
}

#[test]
fn every_seed_and_its_changed_copies_pass() {
    for (target, run) in TARGETS {
        let seeds = seeds(target);
        assert!(!seeds.is_empty(), "{target} has no seed");
        run(b"");
        for path in seeds {
            // Shown if what follows panics.
            println!("{}", path.display());
            let seed = fs::read(&path).unwrap();
            run(&seed);
            for number in 0..COPIES {
                println!("copy {number}");
                run(&changed(&seed, number));
            }
        }
    }
}

/// Whether libFuzzer reads this line: a name, `=` and bytes in double quotes.
fn is_word(line: &str) -> bool {
    let Some((name, rest)) = line.split_once('=') else { return false };
    let quoted = rest.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let Some(mut bytes) = quoted.map(str::as_bytes).filter(|bytes| !bytes.is_empty()) else {
        return false;
    };
    while let [first, rest @ ..] = bytes {
        bytes = match (first, rest) {
            (b'\\', [b'x', high, low, rest @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                rest
            }
            (b'\\' | b'"', _) => return false,
            (first, rest) if first.is_ascii_graphic() => rest,
            _ => return false,
        };
    }
    name.bytes().all(is_name)
}

#[test]
fn every_dictionary_is_a_target_s_and_can_be_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("dictionaries");
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let target = path.file_stem().unwrap().to_str().unwrap();
        assert!(TARGETS.iter().any(|(name, _)| *name == target), "{target} is no target");
        let text = fs::read_to_string(&path).unwrap();
        let is_said = |line: &&str| !line.is_empty() && !line.starts_with('#');
        let mut names = std::collections::BTreeSet::new();
        for line in text.lines().filter(is_said) {
            assert!(is_word(line), "{line}");
            assert!(names.insert(line.split('=').next()), "{line} is there twice");
        }
        assert!(!names.is_empty(), "{path:?}");
    }
}
