//! memcached's packets.

use super::ycsb::record_len;
use super::{Cursor, Program};

const REQUEST: u8 = 0x80;

pub(super) const GET: u8 = 0x00;
pub(super) const SET: u8 = 0x01;
pub(super) const DELETE: u8 = 0x04;
pub(super) const INCREMENT: u8 = 0x05;
pub(super) const GET_QUIETLY: u8 = 0x09;
pub(super) const NOOP: u8 = 0x0a;
pub(super) const TOUCH: u8 = 0x1c;

/// A packet of one operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) opcode: u8,
    /// Which of the keys it is about; what the reply carries.
    pub(super) opaque: u32,
    /// True if it has an expiry even where the workload has none.
    pub(super) expires: bool,
    /// A record of YCSB in place of a value: the length of its fields.
    pub(super) field_len: Option<u32>,
}

impl Packet {
    pub(super) fn new(opcode: u8) -> Packet {
        Packet { opcode, opaque: 0, expires: false, field_len: None }
    }
}

impl Program {
    pub(super) fn push_packet(&self, packet: &Packet, cursor: &mut Cursor<'_>, out: &mut Vec<u8>) {
        let (extras, extras_len): ([u8; 20], usize) = self.extras(packet, cursor);
        let key_len = if packet.opcode == NOOP { 0 } else { self.key_len(cursor.key) };
        let value_len = match packet.field_len {
            Some(len) => record_len(len),
            None if packet.opcode == SET => self.value_len(&mut cursor.random),
            None => 0,
        };
        let body = (extras_len + key_len + value_len) as u32;
        out.extend_from_slice(&[REQUEST, packet.opcode]);
        out.extend_from_slice(&(key_len as u16).to_be_bytes());
        out.extend_from_slice(&[extras_len as u8, 0, 0, 0]);
        out.extend_from_slice(&body.to_be_bytes());
        out.extend_from_slice(&packet.opaque.to_be_bytes());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&extras[..extras_len]);
        if key_len > 0 {
            self.push_key(cursor.key, out);
        }
        if let Some(len) = packet.field_len {
            self.push_record(len, cursor, out);
        } else if packet.opcode == SET {
            self.push_value(value_len, cursor, out);
        }
    }

    fn extras(&self, packet: &Packet, cursor: &mut Cursor<'_>) -> ([u8; 20], usize) {
        let mut extras = [0; 20];
        let len = match packet.opcode {
            SET => {
                let expires = packet.expires || self.expiry.is_some();
                let ttl = if expires { self.ttl(&mut cursor.random) as u32 } else { 0 };
                extras[4..8].copy_from_slice(&ttl.to_be_bytes());
                8
            }
            // By one, from zero where there is none.
            INCREMENT => {
                extras[7] = 1;
                20
            }
            TOUCH => {
                let ttl = self.ttl(&mut cursor.random) as u32;
                extras[..4].copy_from_slice(&ttl.to_be_bytes());
                4
            }
            _ => 0,
        };
        (extras, len)
    }
}
