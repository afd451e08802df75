//! The cursor of a SCAN over a pool: a server's own cursor, with the server and a tag of the
//! servers in use in its low bits.
//!
//! ```text
//!   63                        16 + bits          16            0
//!   | the server's own cursor | which server     | tag         |
//! ```
//! The tag represents the servers in use. A server that leaves or returns during a scan moves keys,
//! so the rest of the scan would silently be incomplete. The tag depends on nothing else, so that
//! any process with the same servers can continue a scan that another began.

use keyway_topology::Server;

/// Bits of the tag.
const TAG_BITS: u32 = 16;

/// Why a cursor is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorFault {
    /// It is no number.
    NoNumber,
    /// It does not belong to a scan over the servers that are in use now.
    Stale,
}

/// The servers of a pool that a scan visits.
#[derive(Clone, Debug)]
pub struct ServersInUse {
    is_used: Vec<bool>,
    tag: u64,
    /// Number of bits that identify a server.
    bits: u32,
}

/// The state of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanCursor {
    /// Index of the server to ask.
    pub server: u16,
    /// That server's own cursor.
    pub inner: u64,
}

impl ServersInUse {
    /// Returns those of `servers` for which `is_used` is true.
    pub fn new(servers: &[Server], is_used: impl Fn(usize) -> bool) -> Self {
        let is_used: Vec<bool> = (0..servers.len()).map(is_used).collect();
        // FNV-1a, over what distinguishes servers.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for (server, &used) in servers.iter().zip(&is_used) {
            for byte in server.ring_name().bytes().chain([b'\n', u8::from(used)]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        let folded = (hash >> 48) ^ (hash >> 32) ^ (hash >> 16) ^ hash;
        // It is never zero. Otherwise the cursor could be zero, which ends a scan.
        let tag = (folded & ((1 << TAG_BITS) - 1)).max(1);
        let bits = servers.len().next_power_of_two().trailing_zeros();
        Self { is_used, tag, bits }
    }

    /// Returns the first server at or after index `from`.
    pub fn first_from(&self, from: usize) -> Option<u16> {
        (from..self.is_used.len()).find(|&index| self.is_used[index]).map(|index| index as u16)
    }

    /// Returns the number of servers.
    pub fn count(&self) -> usize {
        self.is_used.iter().filter(|used| **used).count()
    }

    /// Returns the meaning of a client's cursor, or `None` if no server is in use.
    ///
    /// # Errors
    /// Returns [`CursorFault`] if [`ServersInUse::encode`] did not return it for these servers.
    pub fn decode(&self, text: &[u8]) -> Result<Option<ScanCursor>, CursorFault> {
        let cursor = parse(text).ok_or(CursorFault::NoNumber)?;
        if cursor == 0 {
            return Ok(self.first_from(0).map(|server| ScanCursor { server, inner: 0 }));
        }
        let rest = cursor >> TAG_BITS;
        let server = (rest & ((1 << self.bits) - 1)) as u16;
        let is_ours = cursor & ((1 << TAG_BITS) - 1) == self.tag;
        if !is_ours || self.is_used.get(usize::from(server)) != Some(&true) {
            return Err(CursorFault::Stale);
        }
        Ok(Some(ScanCursor { server, inner: rest >> self.bits }))
    }

    /// Returns the client's cursor after `server` answered with its own. It is 0 after the last
    /// server, and `None` if a server's cursor is too large.
    pub fn encode(&self, server: u16, inner: u64) -> Option<u64> {
        let (server, inner) = match inner {
            0 => match self.first_from(usize::from(server) + 1) {
                Some(next) => (next, 0),
                None => return Some(0),
            },
            inner => (server, inner),
        };
        let shift = TAG_BITS + self.bits;
        let placed = inner.checked_shl(shift).filter(|placed| placed >> shift == inner)?;
        Some(placed | u64::from(server) << TAG_BITS | self.tag)
    }
}

/// Parses a cursor in the forms that C's `strtoul` accepts, like Redis.
pub(crate) fn parse(text: &[u8]) -> Option<u64> {
    let (negative, digits) = match text {
        [] => return Some(0),
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(count: usize) -> Vec<Server> {
        (0..count).map(|nth| Server::parse(&format!("10.0.0.{nth}:6379")).unwrap()).collect()
    }

    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn what_is_given_out_leads_back_to_where_it_came_from() {
        let mut state = 1;
        for count in [1, 2, 3, 4, 5, 31, 32, 33, 200] {
            let servers = servers(count);
            for _ in 0..300 {
                let used: Vec<bool> =
                    (0..count).map(|_| !random(&mut state).is_multiple_of(4)).collect();
                let in_use = ServersInUse::new(&servers, |index| used[index]);
                let Some(server) = in_use.first_from(random(&mut state) as usize % count) else {
                    continue;
                };
                let inner = random(&mut state) >> (24 + random(&mut state) % 40);
                let cursor = in_use.encode(server, inner).expect("it fits");
                let got = in_use.decode(cursor.to_string().as_bytes()).unwrap();
                match (inner, in_use.first_from(usize::from(server) + 1)) {
                    (0, None) => assert_eq!(cursor, 0, "the scan is over"),
                    (0, Some(next)) => {
                        assert_eq!(got, Some(ScanCursor { server: next, inner: 0 }));
                    }
                    (inner, _) => assert_eq!(got, Some(ScanCursor { server, inner })),
                }
            }
        }
    }

    #[test]
    fn a_walk_visits_every_server_in_use_once_and_ends() {
        let in_use = ServersInUse::new(&servers(7), |index| index != 0 && index != 4);
        assert_eq!(in_use.count(), 5);
        let (mut text, mut visited) = ("0".to_owned(), Vec::new());
        loop {
            let at = in_use.decode(text.as_bytes()).unwrap().unwrap();
            visited.push(at.server);
            text = in_use.encode(at.server, 0).unwrap().to_string();
            if text == "0" {
                break;
            }
        }
        assert_eq!(visited, [1, 2, 3, 5, 6]);
    }

    #[test]
    fn a_cursor_is_of_the_servers_in_use_only() {
        let all = servers(4);
        let cursor = ServersInUse::new(&all, |_| true).encode(1, 77).unwrap().to_string();
        let decode = |in_use: ServersInUse| in_use.decode(cursor.as_bytes());
        assert!(decode(ServersInUse::new(&all, |_| true)).is_ok());
        assert_eq!(decode(ServersInUse::new(&all, |index| index != 3)), Err(CursorFault::Stale));
        assert_eq!(decode(ServersInUse::new(&all[..3], |_| true)), Err(CursorFault::Stale));
        assert_eq!(decode(ServersInUse::new(&servers(5), |_| true)), Err(CursorFault::Stale));
    }

    #[test]
    fn any_text_is_a_place_or_a_fault() {
        let in_use = ServersInUse::new(&servers(3), |index| index != 1);
        for text in ["x", "1x", " 1", "1 ", "0x0", "18446744073709551616", "--1", "1.0"] {
            assert_eq!(in_use.decode(text.as_bytes()), Err(CursorFault::NoNumber), "{text}");
        }
        for text in ["", "0", "+0", "-0", "00"] {
            let start = Some(ScanCursor { server: 0, inner: 0 });
            assert_eq!(in_use.decode(text.as_bytes()), Ok(start), "{text}");
        }
        let mut state = 9;
        for _ in 0..100_000 {
            let text = (random(&mut state) >> (random(&mut state) % 64)).to_string();
            if let Ok(Some(at)) = in_use.decode(text.as_bytes()) {
                assert_ne!(at.server, 1, "not in use");
            }
        }
        let none = ServersInUse::new(&servers(3), |_| false);
        assert_eq!(none.decode(b"0"), Ok(None));
    }

    #[test]
    fn a_cursor_too_large_to_carry_is_told() {
        let in_use = ServersInUse::new(&servers(4), |_| true);
        assert!(in_use.encode(0, (1 << 46) - 1).is_some());
        assert_eq!(in_use.encode(0, 1 << 46), None);
        assert_eq!(in_use.encode(3, u64::MAX), None);
    }
}
