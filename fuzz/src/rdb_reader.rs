//! An RDB file of any bytes: the reader gives the same pieces however the bytes
//! come, never holds more than it may, and what it has read as a whole the
//! writer writes so that it reads the same again.

use crate::Choices;
use keyway_rdb::{
    Event, Fault, Feed, FeedError, Kind, Part, ReadLimits, Reader, Step, Version, WriteFault,
    Writer, checksum,
};

/// Bounds that inputs reach.
const LIMITS: ReadLimits = ReadLimits { string_len_max: 500, block_len_max: 300 };

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let size = choices.pick(&[1, 3, 64, 4096]);
    let header = choices.pick(&[
        &b""[..],
        b"REDIS0009",
        b"REDIS0010",
        b"REDIS0011",
        b"REDIS0012",
        b"VALKEY080",
        b"VALKEY081",
    ]);
    let mut file = [header, choices.rest()].concat();
    if !header.is_empty() {
        file.push(0xff);
        file.extend_from_slice(&checksum(&file).to_le_bytes());
    }
    let at_once = read_at_once(&file);
    assert_eq!(read_in_pieces(&file, size), at_once, "pieces of {size}");
    if at_once.is_ok() {
        written_reads_the_same(&file);
    }
}

/// All that a piece says, but for what a writer does not write.
fn shown(event: Event<'_>) -> String {
    match event {
        Event::Part(Part::Block(mut block)) => {
            (block.len, block.deleted) = (0, 0);
            format!("{:?}", Part::Block(block))
        }
        other => format!("{other:?}"),
    }
}

fn check_bounds(event: &Event<'_>) {
    let longest = match event {
        Event::Aux { name, value } => name.len().max(value.len()),
        Event::Library(code) => code.len(),
        Event::Key(key) => key.name.len(),
        Event::Part(
            Part::Text(text)
            | Part::Element(text)
            | Part::Member(text)
            | Part::Scored { member: text, .. }
            | Part::BlockField(text),
        ) => text.len(),
        Event::Part(Part::Field { name, value, .. } | Part::EntryField { name, value }) => {
            name.len().max(value.len())
        }
        _ => 0,
    };
    assert!(longest <= 500, "a string of {longest} bytes");
}

fn read_at_once(file: &[u8]) -> Result<Vec<String>, Fault> {
    let mut reader = Reader::new(LIMITS);
    let (mut at, mut pieces) = (0, Vec::new());
    loop {
        match reader.read(&file[at..])? {
            Step::Event { consumed, event } => {
                check_bounds(&event);
                pieces.push(shown(event));
                at += consumed;
            }
            Step::More { consumed, at_least } => {
                assert!(at + consumed + at_least > file.len(), "there is more to read");
                assert!(at_least <= 2000, "{at_least} bytes are waited for");
                reader.finish()?;
            }
            Step::Over => return Ok(pieces),
        }
    }
}

fn read_in_pieces(file: &[u8], size: usize) -> Result<Vec<String>, Fault> {
    let (mut feed, mut pieces) = (Feed::new(LIMITS), Vec::new());
    for piece in file.chunks(size) {
        let fed = feed.feed(piece, &mut |event| {
            pieces.push(shown(event));
            Ok::<(), ()>(())
        });
        if let Err(FeedError::Fault(fault)) = fed {
            return Err(fault);
        }
    }
    feed.finish().map(|()| pieces)
}

/// Writes what is read, in the newest version that has it all.
fn written_reads_the_same(file: &[u8]) {
    let version = match Reader::new(LIMITS).read(file) {
        Ok(Step::Event { event: Event::Start(version), .. }) => version,
        other => panic!("{other:?}"),
    };
    let version = if version.is_of_valkey() { version } else { Version::Redis12 };
    let (mut writer, mut reader, mut at, mut pieces) =
        (Writer::new(version), Reader::new(LIMITS), 0, Vec::new());
    while let Step::Event { consumed, event } = reader.read(&file[at..]).expect("it was read") {
        at += consumed;
        match writer.write(&event) {
            Ok(()) => pieces.push(written(event)),
            // The elements of a list in nodes were not counted.
            Err(WriteFault::Uncounted) => return,
            // The earliest time of a hash may be a lie.
            Err(WriteFault::Order) if matches!(event, Event::Part(Part::Field { .. })) => return,
            Err(fault) => panic!("{fault}: {event:?}"),
        }
    }
    let (mut reader, mut at, out) = (Reader::new(LIMITS), 0, writer.output());
    let mut again = Vec::new();
    loop {
        match reader.read(&out[at..]) {
            Ok(Step::Event { consumed, event }) => {
                again.push(written(event));
                at += consumed;
            }
            Ok(Step::Over) => break,
            // A listpack may have become longer than the bound.
            Err(fault) => {
                assert!(matches!(fault.what(), keyway_rdb::What::BlockLong { .. }), "{fault}");
                return;
            }
            Ok(Step::More { .. }) => panic!("what was written ends early"),
        }
    }
    assert_eq!(again, pieces);
}

/// What a piece says that a file of the newest version says too.
fn written(event: Event<'_>) -> String {
    match event {
        Event::Start(_) => "start".to_owned(),
        Event::End { checked } => format!("end {checked}"),
        Event::Key(mut key) => {
            key.value.earliest_ms = None;
            if key.value.kind == Kind::Text {
                key.value.count = None;
            }
            format!("{key:?}")
        }
        Event::Part(Part::Totals(mut totals)) => {
            totals.history = None;
            format!("{totals:?}")
        }
        Event::Part(Part::Group { name, last, pending, .. }) => {
            format!("group {name:?} {last:?} {pending}")
        }
        Event::Part(Part::Consumer { name, seen_ms, pending, .. }) => {
            format!("consumer {name:?} {seen_ms} {pending}")
        }
        other => shown(other),
    }
}
