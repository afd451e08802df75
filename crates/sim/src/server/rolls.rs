//! Rolls: long lists and streams whose elements are not checked. Clients that do not read ask for
//! them whole. A stream is kept as the list of its values.

use super::*;

impl Server {
    pub(super) fn push_rolls(
        &mut self,
        database: u32,
        (key, elements): (&[u8], &[Vec<u8>]),
        ledger: &mut Ledger,
    ) -> usize {
        self.check_place(database, key, ledger);
        let list = self.lists.entry((database, key.to_vec())).or_default();
        list.extend(elements.iter().cloned());
        let len = list.len();
        self.touch(database, key);
        len
    }

    fn rolls(&self, database: u32, key: &[u8]) -> Vec<&Vec<u8>> {
        self.lists.get(&(database, key.to_vec())).into_iter().flatten().collect()
    }

    /// Answers `LRANGE` of the whole list.
    pub(super) fn write_rolls(&self, database: u32, key: &[u8], reply: &mut Vec<u8>) {
        let elements = self.rolls(database, key);
        reply.extend_from_slice(format!("*{}\r\n", elements.len()).as_bytes());
        elements.into_iter().for_each(|element| write_bulk(reply, element));
    }

    /// Answers `XRANGE` of the whole stream.
    pub(super) fn write_entries(&self, database: u32, key: &[u8], reply: &mut Vec<u8>) {
        let values = self.rolls(database, key);
        reply.extend_from_slice(format!("*{}\r\n", values.len()).as_bytes());
        for (number, value) in values.into_iter().enumerate() {
            reply.extend_from_slice(b"*2\r\n");
            write_bulk(reply, format!("{}-0", number + 1).as_bytes());
            reply.extend_from_slice(b"*2\r\n$1\r\nf\r\n");
            write_bulk(reply, value);
        }
    }

    /// Answers `SCAN` with all keys at once.
    pub(super) fn write_keys(&self, database: u32, reply: &mut Vec<u8>) {
        let keys: Vec<_> = self.databases.get(&database).into_iter().flatten().collect();
        reply.extend_from_slice(format!("*2\r\n$1\r\n0\r\n*{}\r\n", keys.len()).as_bytes());
        keys.into_iter().for_each(|(key, _)| write_bulk(reply, key));
    }
}
