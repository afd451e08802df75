//! Connections of nodes of one process. The dialler makes rings of private memory and leaves them
//! here under a number. It sends the number through a socket to the other end. So that memory never
//! has a descriptor that another process could open.

use keyway_ring::{HELLO_LEN, Private};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;

/// The beginning of the message of a dialler that has left rings. The number follows, then zeros.
pub(crate) const LEFT_MAGIC: [u8; 8] = *b"\0KWMEM1\n";
/// Length of a ring in one direction, in bytes.
const RING_LEN: usize = 256 << 10;

/// Rings that have not been taken yet, of dials that have not ended: no more than a driver has at
/// once.
static LEFT: Mutex<(u64, BTreeMap<u64, Pair>)> = Mutex::new((0, BTreeMap::new()));

/// Both rings of a connection, as one end has them.
pub(crate) struct Pair {
    pub out: Private,
    pub back: Private,
}

/// Rings that were left. If they were not taken, they are dropped with this.
pub(crate) struct Left(u64);

impl Drop for Left {
    fn drop(&mut self) {
        let untaken = LEFT.lock().1.remove(&self.0);
        // They are dropped after the lock is released.
        drop(untaken);
    }
}

/// Leaves rings for the other end.
pub(crate) fn leave(mut socket: &UnixStream) -> io::Result<(Pair, Left)> {
    let (out, back) = (Private::new(RING_LEN), Private::new(RING_LEN));
    let theirs = Pair { out: back.clone(), back: out.clone() };
    let left = {
        let mut all = LEFT.lock();
        all.0 += 1;
        let number = all.0;
        all.1.insert(number, theirs);
        Left(number)
    };
    let mut hello = [0; HELLO_LEN];
    hello[..8].copy_from_slice(&LEFT_MAGIC);
    hello[8..16].copy_from_slice(&left.0.to_le_bytes());
    socket.write_all(&hello)?;
    Ok((Pair { out, back }, left))
}

/// Takes the rings that a dialler has left.
pub(crate) fn take(hello: &[u8; HELLO_LEN]) -> Option<Pair> {
    let number = u64::from_le_bytes(hello[8..16].try_into().ok()?);
    LEFT.lock().1.remove(&number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_was_left_is_taken_once_and_goes_with_who_left_it() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let mut heard = || {
            let mut hello = [0; HELLO_LEN];
            other.read_exact(&mut hello).unwrap();
            assert_eq!(hello[..8], LEFT_MAGIC);
            hello
        };
        let (_pair, left) = leave(&one).unwrap();
        let hello = heard();
        assert!(take(&hello).is_some() && take(&hello).is_none());
        drop(left);
        let (_pair, left) = leave(&one).unwrap();
        drop(left);
        assert!(take(&heard()).is_none());
    }
}
