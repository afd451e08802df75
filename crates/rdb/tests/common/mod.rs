//! Files as lists of their pieces.
#![allow(dead_code, reason = "each test uses a part of it")]

use keyway_rdb::{Event, Fault, Feed, FeedError, Part, ReadLimits, Reader, Step, checksum};

/// Formats a piece, without what a writer does not write.
pub fn show(event: Event<'_>) -> String {
    let event = match event {
        Event::Part(Part::Block(mut block)) => {
            block.len = 0;
            Event::Part(Part::Block(block))
        }
        other => other,
    };
    format!("{event:?}")
}

/// Returns the pieces of a file that is present as a whole.
pub fn read_at_once(file: &[u8]) -> Result<Vec<String>, Fault> {
    let mut reader = Reader::new(ReadLimits::default());
    let (mut at, mut pieces) = (0, Vec::new());
    loop {
        match reader.read(&file[at..])? {
            Step::Event { consumed, event } => {
                pieces.push(show(event));
                at += consumed;
            }
            Step::More { consumed, at_least } => {
                assert!(at + consumed + at_least > file.len(), "there is more to read");
                return Err(reader.finish().expect_err("the file is over and wants more"));
            }
            Step::Over => {
                assert_eq!(at, file.len());
                assert_eq!(reader.offset(), file.len() as u64);
                return Ok(pieces);
            }
        }
    }
}

/// Returns the pieces of a file that arrives in pieces of `size`.
pub fn read_by(file: &[u8], size: usize) -> Result<Vec<String>, Fault> {
    let (mut feed, mut pieces) = (Feed::new(ReadLimits::default()), Vec::new());
    for bytes in file.chunks(size) {
        let fed = feed.feed(bytes, &mut |event| {
            pieces.push(show(event));
            Ok::<(), ()>(())
        });
        match fed {
            Ok(len) => assert_eq!(len, bytes.len()),
            Err(FeedError::Fault(fault)) => return Err(fault),
            Err(FeedError::Visitor(())) => unreachable!("the visitor takes all"),
        }
    }
    feed.finish().map(|()| pieces)
}

/// Returns a file with these bytes between header and end.
pub fn file(header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut file = [header, body, &[0xff]].concat();
    file.extend_from_slice(&checksum(&file).to_le_bytes());
    file
}
