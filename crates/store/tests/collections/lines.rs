//! Random command lines.

use crate::common::Random;
use crate::shapes::*;
use keyway_rdb::payload;

/// Random command lines over few keys, some of them wrong.
pub struct Lines {
    pub random: Random,
    pub family: &'static [&'static str],
    /// Lines that come next, the last one first.
    pub queue: Vec<Vec<Vec<u8>>>,
    /// The millisecond of the newest ids.
    pub newest: usize,
    /// The number of keys.
    pub keys: usize,
}

impl Lines {
    pub fn next(&mut self) -> Vec<Vec<u8>> {
        if let Some(words) = self.queue.pop() {
            return words;
        }
        let shape = match self.random.below(if self.keys < KEYS.len() { 160 } else { 40 }) {
            0..3 => *self.random.pick(&ANY),
            3 => *self.random.pick(&STRANGERS),
            _ => *self.random.pick(self.family),
        };
        let mut words: Vec<Vec<u8>> = Vec::new();
        if shape == "MANY" {
            return self.queue_adds();
        }
        for word in shape.split(' ') {
            self.add_word(word, &mut words);
        }
        // A random pick of endless count would never end, there as here; short
        // times pass on one side and not on the other.
        const FIXED: [&str; 9] =
            ["rand", "spop", "zadd K 0 ", "ZEROS", "block", "claim", "idle", "clock", "restore"];
        let is_fixed = FIXED.iter().any(|part| shape.contains(part));
        if !is_fixed && self.random.once_in(40) {
            let at = 1 + self.random.below(words.len());
            match self.random.below(3) {
                0 if words.len() > 1 => drop(words.remove(at.min(words.len() - 1))),
                1 if at < words.len() => words[at] = self.random.pick(&NUMBERS).as_bytes().into(),
                _ => words.insert(at, self.random.pick(&NUMBERS).as_bytes().into()),
            }
        }
        words
    }

    fn add_word(&mut self, kind: &str, words: &mut Vec<Vec<u8>>) {
        match kind {
            "NUMBERS" => {
                let (from, count) = (self.random.below(100_000), 1 + self.random.below(3000));
                words.extend((from..from + count).map(|number| number.to_string().into_bytes()));
            }
            "POINTS" => {
                let (from, count) = (self.random.below(300), 1 + self.random.below(140));
                for number in from..from + count {
                    words.extend([self.degrees(180), self.degrees(85)]);
                    words.push(format!("f{number}").into_bytes());
                }
            }
            "OPTS" => {
                for _ in 0..self.random.below(4) {
                    let options = [
                        "asc",
                        "desc",
                        "withdist",
                        "withhash",
                        "withcoord",
                        "count N",
                        "count FEW",
                        "count FEW",
                        "count FEW any",
                        "WITHDIST",
                        "ANY",
                        "count FEW desc",
                    ];
                    for word in self.random.pick(&options).split(' ') {
                        words.push(self.word(word));
                    }
                }
            }
            "PAIRS" => {
                let (from, count) = (self.random.below(300), self.random.below(140));
                for number in from..from + count {
                    words.push(format!("f{number}").into_bytes());
                    words.push(self.value());
                }
            }
            "IDS" => {
                let from = self.newest.saturating_sub(self.random.below(400));
                for ms in from..=from + self.random.below(100) {
                    words.push(format!("{ms}-{}", self.random.below(2)).into_bytes());
                }
            }
            "CLAIM" => {
                for _ in 0..1 + self.random.below(4) {
                    words.push(self.id());
                }
                self.add_word("FORCED", words);
            }
            "FORCED" => {
                for _ in 0..self.random.below(3) {
                    let option = *self.random.pick(&[
                        "force",
                        "force",
                        "justid",
                        "idle I",
                        "time 1000",
                        "retrycount I",
                        "lastid ID",
                        "idle N",
                        "time N",
                        "retrycount N",
                    ]);
                    option.split(' ').for_each(|word| words.push(self.word(word)));
                }
            }
            "AUTO" => {
                for _ in 0..self.random.below(3) {
                    let option = *self.random.pick(&["justid", "count I", "count 2", "count N"]);
                    option.split(' ').for_each(|word| words.push(self.word(word)));
                }
            }
            "MEMBERS" => {
                let (from, count) = (self.random.below(400), 1 + self.random.below(300));
                words.extend((from..from + count).map(|number| format!("f{number}").into_bytes()));
            }
            "INTEGERS" => {
                let (from, count) = (self.random.below(900), 1 + self.random.below(300));
                words.extend((from..from + count).map(|number| number.to_string().into_bytes()));
            }
            "VALUES" => {
                let count = 1 + self.random.below(60);
                words.extend((0..count).map(|_| self.value()));
            }
            "ZEROS" => {
                let (from, count) = (self.random.below(300), 1 + self.random.below(140));
                for number in from..from + count {
                    words.extend([b"0".to_vec(), format!("f{number}").into_bytes()]);
                }
            }
            "SCORES" => {
                let (from, count) = (self.random.below(300), 1 + self.random.below(140));
                for number in from..from + count {
                    words.push(self.number(12));
                    words.push(format!("f{number}").into_bytes());
                }
            }
            kind => {
                let word = self.word(kind);
                words.push(word);
            }
        }
    }

    /// Entries for one stream, until its blocks are full; the first of them.
    fn queue_adds(&mut self) -> Vec<Vec<u8>> {
        let key = KEYS[self.random.below(self.keys)];
        let long = self.random.once_in(3);
        for _ in 0..20 + self.random.below(130) {
            let id = self.word("UP");
            let mut words = [b"xadd", key.as_bytes(), &id, b"f1"].map(<[u8]>::to_vec).to_vec();
            words.push(if long { self.long() } else { self.value() });
            words.push(if self.random.once_in(10) { b"x".to_vec() } else { b"f2".to_vec() });
            words.push(self.value());
            self.queue.insert(0, words);
        }
        self.queue.pop().expect("a line")
    }

    fn id(&mut self) -> Vec<u8> {
        let back = [20, 100, 400, self.newest][self.random.below(4)];
        let ms = (self.newest + 3).saturating_sub(self.random.below(back));
        match self.random.below(60) {
            0 => self.random.pick(&IDS).as_bytes().to_vec(),
            1..20 => format!("{ms}").into_bytes(),
            _ => format!("{ms}-{}", self.random.below(2)).into_bytes(),
        }
    }

    /// An id that mostly is greater than all before.
    fn greater_id(&mut self) -> String {
        self.newest += [0, 1, 1, 1, 1, 20][self.random.below(6)];
        let seq = self.random.below(2);
        format!("{}-{seq}", self.newest)
    }

    fn number(&mut self, reach: usize) -> Vec<u8> {
        (self.random.below(2 * reach) as i64 - reach as i64).to_string().into_bytes()
    }

    fn word(&mut self, kind: &str) -> Vec<u8> {
        let chosen = match kind {
            "K" => KEYS[self.random.below(self.keys)],
            "N" => *self.random.pick(&NUMBERS),
            "BIG" => {
                *self.random.pick(&["0", "-3", "9223372036854775807", "-9223372036854775808", "x"])
            }
            "D" => *self.random.pick(&FLOATS),
            "T" => *self.random.pick(&[
                "w*", "w*", "w*", "h*->x", "h*->x", "#", "h*->", "*", "w", "nosort", "w*->x", "",
            ]),
            "WK" | "HK" => {
                let number = self.random.below(20);
                return format!("{}{number}", kind[..1].to_ascii_lowercase()).into_bytes();
            }
            "PAYLOAD" => {
                let mut payload = self.random.pick(&PAYLOADS).to_vec();
                payload::seal(&mut payload);
                return payload;
            }
            "G" => *self.random.pick(&["*", "f*", "?1*", "[a-c]*", "nothing"]),
            "ID" => return self.id(),
            "UP" => return self.greater_id().into_bytes(),
            "UPSTAR" => return format!("{}-*", self.newest + self.random.below(3)).into_bytes(),
            "AGE" => {
                *self.random.pick(&["0", "-1", "500000000", "9223372036854775807", "x", "1.5"])
            }
            "COUNT" => return self.random.below(400).to_string().into_bytes(),
            "GROUP" => {
                *self.random.pick(&["g", "g", "g", "g", "g", "h", "none", "no\0ne", "no\r\nne"])
            }
            "CONSUMER" => *self.random.pick(&["alice", "bob", "c"]),
            "END" => {
                let open = if self.random.once_in(4) { "(" } else { "" };
                let id = match self.random.below(10) {
                    0 => b"-".to_vec(),
                    1 => b"+".to_vec(),
                    _ => self.id(),
                };
                return [open.as_bytes(), &id].concat();
            }
            "I" => return self.number(20),
            "F" => return format!("f{}", self.random.below(30)).into_bytes(),
            "V" => return self.value(),
            "L" => return self.long(),
            "W" => *self.random.pick(&["left", "RIGHT", "left", "right", "up"]),
            "GO" => *self.random.pick(&["nx", "XX", "ch", "NX", "CH", "gt"]),
            "UNIT" => *self.random.pick(&["m", "km", "KM", "mi", "ft", "km", "km", "miles"]),
            "LON" => return self.degrees(180),
            "LAT" => return self.degrees(85),
            "R" => return self.radius(),
            "FEW" => return (1 + self.random.below(60)).to_string().into_bytes(),
            "HUGE" => *self.random.pick(&[
                "4503599627370495",
                "4503599627370496",
                "9223372036854775807",
                "9223372036854775808",
                "18446744073709551615",
                "18446744073709551616",
                "-9223372036854775809",
                "3e15",
            ]),
            // In the header: Redis reads and writes beyond the end of a string that
            // ends within an opcode.
            "AT" => return self.random.below(16).to_string().into_bytes(),
            "OPCODE" => return self.opcodes(1),
            "SKETCH" => return self.sketch(),
            "MIN" | "MAX" => return self.bound(),
            "LEX" => *self
                .random
                .pick(&["-", "+", "[f1", "(f1", "[f2", "(f25", "[f9", "(", "[", "f", ""]),
            "O" => *self.random.pick(&["nx", "xx", "gt", "LT", "ch", "incr", "NX", "CH"]),
            literal => return literal.as_bytes().to_vec(),
        };
        chosen.as_bytes().to_vec()
    }

    /// Degrees, often such that many places are equally far away.
    fn degrees(&mut self, bound: usize) -> Vec<u8> {
        let whole = self.random.below(2 * bound + 1) as i64 - bound as i64;
        let text = match self.random.below(12) {
            0 => format!("{whole}"),
            1 => format!("{}", whole / 45 * 45),
            2 => ["180", "-180", "85.05112878", "-85.05112878", "90", "-0"][self.random.below(6)]
                .to_string(),
            3 => format!("{whole}.{}", self.random.next()),
            4..8 => format!("{}", self.random.below(5) as i64 - 2),
            _ => format!("0.{}", self.random.below(5)),
        };
        text.into_bytes()
    }

    fn radius(&mut self) -> Vec<u8> {
        let whole = self.random.below(1000);
        let text = match self.random.below(8) {
            0 => "0".to_owned(),
            1 => format!("{}", whole * 20),
            2 => format!("{}", whole * 20_000),
            3 => format!("{whole}.{}", self.random.below(1000)),
            4 => format!("0.{whole}"),
            _ => format!("{whole}"),
        };
        text.into_bytes()
    }

    /// Opcodes of a sparse HyperLogLog, none of which takes two bytes.
    fn opcodes(&mut self, count: usize) -> Vec<u8> {
        let mut opcode = || self.random.next() as u8;
        (0..count).map(|_| opcode()).map(|byte| byte & !(0x40 & !byte >> 1)).collect()
    }

    /// Makes a value that looks like a HyperLogLog, and sometimes is one.
    fn sketch(&mut self) -> Vec<u8> {
        let mut bytes = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        bytes[15] = [0, 0x80][self.random.below(2)];
        match self.random.below(5) {
            0 => bytes[self.random.below(16)] = self.random.next() as u8,
            1 => {
                bytes[4] = 0;
                bytes.extend((0..12_288).map(|_| self.random.next() as u8));
                return bytes;
            }
            2 => bytes.truncate(self.random.below(16)),
            _ => {}
        }
        let count = self.random.below(60);
        bytes.extend(self.opcodes(count));
        if self.random.once_in(2) && bytes.len() > 16 {
            // Filled up with zeros to the right number of registers.
            let covered: usize = bytes[16..]
                .iter()
                .map(|byte| usize::from(if byte >> 7 == 0 { byte & 0x3f } else { byte & 3 }) + 1)
                .sum();
            let rest = 16_384 - covered - 1;
            bytes.extend([0x40 | (rest >> 8) as u8, rest as u8]);
        }
        bytes
    }

    fn bound(&mut self) -> Vec<u8> {
        let mut text = if self.random.once_in(3) { b"(".to_vec() } else { Vec::new() };
        match self.random.below(4) {
            0 => text.extend_from_slice(self.random.pick(&FLOATS).as_bytes()),
            _ => text.extend(self.number(12)),
        }
        text
    }

    fn long(&mut self) -> Vec<u8> {
        let len = [63, 64, 65, 100, 300, 3000, 9000][self.random.below(7)];
        vec![b'l'; len]
    }

    fn value(&mut self) -> Vec<u8> {
        if self.family == &SORTING[..] {
            const NUMBERS: [&str; 12] =
                ["", " 5", "1.5", "0x10", "abc", "inf", "-inf", "nan", "1e3", "5\0x", "1 ", "b\0c"];
            return match self.random.below(30) {
                0 => self.random.pick(&NUMBERS).as_bytes().to_vec(),
                1 => format!("f{}", self.random.below(30)).into_bytes(),
                2 => self.number(1000),
                _ => self.number(20),
            };
        }
        match self.random.below(12) {
            0 => Vec::new(),
            1 => self.random.next().to_string().into_bytes(),
            2 => vec![b'v'; [63, 64, 65, 20, 30][self.random.below(5)]],
            3 => self.random.pick(&FLOATS).as_bytes().to_vec(),
            4 => self.number(1000),
            _ => self.number(12),
        }
    }
}
