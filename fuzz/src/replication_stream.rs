//! A stream of commands of any bytes, as a primary may send it: the same
//! commands come of it however the bytes come, their offsets leave no gap, and
//! what a replica acknowledges never runs ahead or cuts a transaction in two.

use crate::Choices;
use keyway_rdb::replication::{CommandFault, CommandKind, CommandStep, CommandStream};
use keyway_resp::ParseLimits;

const START: u64 = 1_000;
const LIMITS: ParseLimits = ParseLimits {
    args_max: 64,
    bulk_len_max: 1 << 16,
    request_len_max: 1 << 17,
    inline_len_max: 512,
};

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let size = choices.pick(&[1, 2, 17, 1024]);
    let bytes = choices.rest();
    assert_eq!(read(bytes, size), read(bytes, bytes.len().max(1)), "pieces of {size}");
}

/// Commands, each with its end, and what became of the stream.
type Outcome = (Vec<(CommandKind, u64)>, Result<u64, CommandFault>);

fn read(bytes: &[u8], size: usize) -> Outcome {
    let mut stream = CommandStream::new(START, None, LIMITS);
    let (mut kept, mut commands) = (Vec::new(), Vec::new());
    let (mut end, mut is_open) = (START, false);
    for piece in bytes.chunks(size) {
        kept.extend_from_slice(piece);
        loop {
            let (consumed, kind) = match stream.read(&kept) {
                Err(fault) => {
                    assert_eq!(fault.offset(), end);
                    return (commands, Err(fault));
                }
                Ok(CommandStep::More { at_least }) => {
                    assert!(at_least > kept.len());
                    break;
                }
                Ok(CommandStep::Command { consumed, command }) => {
                    assert_eq!(command.start(), end);
                    assert_eq!(command.raw(), &kept[..consumed]);
                    end = command.end();
                    (consumed, command.kind())
                }
            };
            is_open = match kind {
                CommandKind::Multi => true,
                CommandKind::Exec => false,
                _ => is_open,
            };
            assert_eq!(stream.offset(), end);
            assert!(stream.settled() <= end && (is_open || stream.settled() == end));
            kept.drain(..consumed);
            commands.push((kind, end));
        }
    }
    (commands, Ok(stream.settled()))
}
