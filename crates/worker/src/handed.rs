//! Clients on their way to another process, as bytes.

use std::io;
use std::os::fd::BorrowedFd;

/// The other process, as workers know it.
pub trait Heir: Send + Sync {
    /// Gives it a client with its socket.
    ///
    /// # Errors
    /// The other process is gone, or does not take it. The client is to be closed then.
    fn take(&self, client: &HandedClient, socket: BorrowedFd<'_>) -> io::Result<()>;
}

/// A client of an embedded store between two of its requests, or in one that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandedClient {
    /// The index of its listener, in the process that gives it.
    pub listener: u16,
    /// Its id.
    pub id: u64,
    /// Its address.
    pub addr: String,
    /// The local address to which it connected.
    pub laddr: String,
    /// Unix time at which it connected, in seconds.
    pub connected_unix: u64,
    /// The name of its user, if it has logged in.
    pub user: Option<String>,
    /// True if it speaks RESP3.
    pub is_resp3: bool,
    /// The database that it has selected.
    pub database: u32,
    /// The setting of `CLIENT REPLY`: 0 on, 1 off, 2 off for the next request.
    pub reply_mode: u8,
    /// True if it has sent `CLIENT NO-EVICT ON`.
    pub no_evict: bool,
    /// True if it has sent `CLIENT NO-TOUCH ON`.
    pub no_touch: bool,
    /// The name, the library's name and its version that it has announced.
    pub told: [String; 3],
    /// Of a client of memcached: 0 if its first byte has yet to come, 1 for lines, 2 for packets.
    pub memcached_wire: u8,
    /// Of a client of memcached: bytes of a refused value that must still be dropped.
    pub memcached_skip: u64,
    /// Requests that bring it into the state that it has begun. Their replies are not sent.
    pub state: Vec<u8>,
    /// A key that it watches has changed.
    pub has_changed_watch: bool,
    /// A command of its transaction was refused.
    pub is_transaction_refused: bool,
    /// It is to be told that all keys which it caches may have changed.
    pub has_cache: bool,
    /// The request in which it waits; empty if it does not.
    pub waits_in: Vec<u8>,
    /// The time for which it still waits, in milliseconds; 0 for ever.
    pub waits_for: u64,
    /// Requests that it has sent and that were not begun.
    pub input: Vec<u8>,
}

impl HandedClient {
    /// Appends its form as bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut number = |number: u64| out.extend_from_slice(&number.to_le_bytes());
        let flags = [
            self.is_resp3,
            self.no_evict,
            self.no_touch,
            self.has_changed_watch,
            self.is_transaction_refused,
            self.has_cache,
            self.user.is_some(),
        ];
        let bits = flags.iter().rev().fold(0, |bits, flag| bits << 1 | u64::from(*flag));
        [self.listener.into(), self.id, self.connected_unix, self.database.into()]
            .into_iter()
            .chain([self.reply_mode.into(), self.memcached_wire.into(), self.memcached_skip])
            .chain([bits, self.waits_for])
            .for_each(&mut number);
        let [name, lib_name, lib_ver] = &self.told;
        let user = self.user.as_deref().unwrap_or_default();
        let texts = [&self.addr, &self.laddr, name, lib_name, lib_ver].map(|text| text.as_bytes());
        let texts = texts.into_iter().chain([user.as_bytes(), &self.state, &self.waits_in]);
        for text in texts.chain([&self.input[..]]) {
            out.extend_from_slice(&(text.len() as u64).to_le_bytes());
            out.extend_from_slice(text);
        }
    }

    /// Reads what [`HandedClient::write`] has written; none if it is anything else.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut number = || {
            let (first, others) = rest.split_first_chunk()?;
            rest = others;
            Some(u64::from_le_bytes(*first))
        };
        let mut numbers = [0; 9];
        for place in &mut numbers {
            *place = number()?;
        }
        let [listener, id, connected_unix, database, reply_mode, wire, skip, bits, waits_for] =
            numbers;
        let mut text = || {
            let (len, others) = rest.split_first_chunk()?;
            let (text, others) =
                others.split_at_checked(u64::from_le_bytes(*len).try_into().ok()?)?;
            rest = others;
            Some(text)
        };
        let word = |text: &[u8]| String::from_utf8(text.to_vec()).ok();
        let (addr, laddr) = (word(text()?)?, word(text()?)?);
        let told = [word(text()?)?, word(text()?)?, word(text()?)?];
        let flag = |nth: u32| bits >> nth & 1 != 0;
        let user = word(text()?)?;
        Some(Self {
            listener: listener.try_into().ok()?,
            id,
            addr,
            laddr,
            connected_unix,
            user: flag(6).then_some(user),
            is_resp3: flag(0),
            database: database.try_into().ok()?,
            reply_mode: reply_mode.try_into().ok()?,
            no_evict: flag(1),
            no_touch: flag(2),
            told,
            memcached_wire: wire.try_into().ok()?,
            memcached_skip: skip,
            state: text()?.to_vec(),
            has_changed_watch: flag(3),
            is_transaction_refused: flag(4),
            has_cache: flag(5),
            waits_in: text()?.to_vec(),
            waits_for,
            input: text()?.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_read_as_it_was_written_and_no_part_of_it_is_one() {
        let client = HandedClient {
            listener: 3,
            id: 1 << 40,
            addr: "127.0.0.1:9".to_owned(),
            laddr: "[::1]:6379".to_owned(),
            connected_unix: 7,
            user: Some("ann".to_owned()),
            is_resp3: true,
            database: 5,
            reply_mode: 2,
            no_evict: false,
            no_touch: true,
            told: ["n".to_owned(), String::new(), "v".to_owned()],
            memcached_wire: 2,
            memcached_skip: 9,
            state: b"*1\r\n$5\r\nMULTI\r\n".to_vec(),
            has_changed_watch: true,
            is_transaction_refused: false,
            has_cache: true,
            waits_in: vec![0, 255],
            waits_for: 12,
            input: vec![1; 1000],
        };
        for client in [client, HandedClient::default()] {
            let mut bytes = Vec::new();
            client.write(&mut bytes);
            assert_eq!(HandedClient::read(&bytes).as_ref(), Some(&client));
            for len in 0..bytes.len() {
                assert_eq!(HandedClient::read(&bytes[..len]), None, "{len}");
            }
        }
    }
}
