//! Attempts at commands that may wait: the client that makes one, and its result.

use super::call::Call;
use keyway_base::ByteRange;

/// For whom an attempt is made.
#[derive(Clone, Copy)]
pub(crate) enum How<'a> {
    /// A transaction, which does not wait: it takes what is there.
    Now,
    /// Somebody who has just come: what others wait for is theirs.
    Newcomer,
    /// Somebody who waits, now that this key may have something.
    Ready(&'a [u8]),
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The reply is written.
    Answered,
    /// None of the keys has anything.
    Nothing,
    /// The key is there, and has nothing for this command.
    NotForIt,
}

/// Arguments of a request, and where each of them is.
pub(crate) type Frame = (Box<[u8]>, Box<[ByteRange]>);

/// The arguments as they are.
pub(super) fn frame_of(call: &Call<'_>) -> Frame {
    (call.args.buf().into(), call.args.ranges().into())
}
