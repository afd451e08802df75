//! Requests of memcached clients, and what two servers say to them made alike:
//! numbers of values have to be told apart alike, and times differ.

use std::collections::BTreeMap;

use crate::memcached::memcached_packet;
use crate::random::Random;

/// What one of two servers has said so far.
#[derive(Debug, Default)]
pub struct MemcachedEar {
    /// The order in which numbers of values were first told.
    numbers: BTreeMap<u64, usize>,
    /// The last one told of each key: those of different keys have no order.
    last: BTreeMap<String, u64>,
}

/// Numbers that clients give themselves are below.
pub const MEMCACHED_CAS_MIN: u64 = 1000;

impl MemcachedEar {
    fn number(&mut self, key: &str, cas: u64) -> String {
        if cas < MEMCACHED_CAS_MIN {
            return cas.to_string();
        }
        self.last.insert(key.to_owned(), cas);
        let next = self.numbers.len();
        format!("#{}", self.numbers.entry(cas).or_insert(next))
    }

    /// Replies to a request about `key`, with what may differ made alike.
    ///
    /// # Panics
    /// On bytes that are no whole replies.
    pub fn hear(&mut self, said: &[u8], is_binary: bool, key: &str) -> String {
        let (mut rest, mut told) = (said, String::new());
        while !rest.is_empty() {
            let len = element_len(rest, is_binary);
            told += &match is_binary {
                true => self.hear_packet(&rest[..len], key),
                false => self.hear_element(&rest[..len], key),
            };
            rest = &rest[len..];
        }
        told
    }

    fn hear_packet(&mut self, packet: &[u8], key: &str) -> String {
        let cas = u64::from_be_bytes(packet[16..24].try_into().unwrap());
        format!("{} {} {}\n", shown(&packet[..16]), self.number(key, cas), shown(&packet[24..]))
    }

    fn hear_element(&mut self, element: &[u8], key: &str) -> String {
        let end = element.windows(2).position(|pair| pair == b"\r\n").unwrap();
        let (line, rest) = element.split_at(end);
        let line = String::from_utf8_lossy(line).into_owned();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().ok();
        let mut told = String::new();
        for (index, word) in words.iter().enumerate() {
            let (letter, value) = word.split_at(usize::from(!word.is_empty()));
            let alike = match (words[0], letter) {
                ("VALUE", _) if index == 4 => self.number(words[1], number(word).unwrap()),
                ("VA" | "HD", "c") if index > 0 => {
                    format!("c{}", self.number(key, number(value).unwrap()))
                }
                // Seconds left are multiples of fifty when set.
                ("VA" | "HD", "t") if index > 0 => {
                    format!("t{}", number(value).map_or(-1, |left| left.div_ceil(50) as i64 * 50))
                }
                // memcached does not count the first read.
                ("VA" | "HD", "l") if index > 0 => "l".to_owned(),
                // Later memcached releases tell a length for a value that ms did not store.
                ("EX" | "NS" | "NF", "s") => continue,
                // Its sizes and classes are its own.
                ("ME", _) if !word.starts_with("fetch=") && index > 1 => String::new(),
                _ => (*word).to_owned(),
            };
            told = format!("{told} {alike}");
        }
        format!("{told} {}\n", shown(rest))
    }
}

/// One request, with room for a number that was told: `LAST`.
#[derive(Clone, Debug)]
pub enum MemcachedStep {
    /// Classic or meta.
    Text(String),
    /// A packet.
    Binary {
        /// The operation.
        opcode: u8,
        /// Whether it is on the number last told of the key.
        with_cas: bool,
        /// What stands before the key.
        extras: Vec<u8>,
        /// The key.
        key: &'static str,
        /// The value.
        value: Vec<u8>,
    },
}

impl MemcachedStep {
    /// The key it is about; of several the first.
    pub fn key(&self) -> &str {
        match self {
            MemcachedStep::Text(text) => text.split_ascii_whitespace().nth(1).unwrap_or_default(),
            MemcachedStep::Binary { key, .. } => key,
        }
    }

    /// What is sent to the server that told `heard`.
    pub fn bytes(&self, heard: &MemcachedEar) -> Vec<u8> {
        let last = heard.last.get(self.key()).copied().unwrap_or_default();
        match self {
            MemcachedStep::Text(text) => text.replace("LAST", &last.to_string()).into_bytes(),
            MemcachedStep::Binary { opcode, with_cas, extras, key, value } => {
                let cas = if *with_cas { last } else { 0 };
                memcached_packet(*opcode, cas, extras, key.as_bytes(), value)
            }
        }
    }
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Bytes of the first reply, or of the first item of one.
fn element_len(bytes: &[u8], is_binary: bool) -> usize {
    let len = if is_binary {
        assert!(bytes.len() >= 24, "no packet: {}", shown(bytes));
        24 + u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize
    } else {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n");
        let end = end.unwrap_or_else(|| panic!("no line: {}", shown(bytes)));
        let line = String::from_utf8_lossy(&bytes[..end]);
        let words: Vec<&str> = line.split(' ').collect();
        let value = match words[0] {
            "VALUE" => Some(words[3]),
            "VA" => Some(words[1]),
            _ => None,
        };
        let value = value.map(|len| len.parse::<usize>().expect("a length") + 2);
        end + 2 + value.unwrap_or(0)
    };
    assert!(len <= bytes.len(), "a reply is cut: {}", shown(bytes));
    len
}

/// A conversation in classic commands.
pub const MEMCACHED_CLASSIC: &[&str] = &[
    "get k\r\n",
    "set k 7 0 3\r\nabc\r\n",
    "get k\r\n",
    "gets k\r\n",
    "gets k x k\r\n",
    "cas k 1 0 1 LAST\r\nx\r\n",
    "cas k 1 0 1 LAST\r\ny\r\n",
    "cas k 1 0 1 0\r\ny\r\n",
    "cas none 1 0 1 LAST\r\ny\r\n",
    "gets k\r\n",
    "add k 0 0 1\r\nz\r\n",
    "add new 4294967295 0 1\r\nz\r\n",
    "get k new\r\n",
    "replace k 9 0 2\r\nyz\r\n",
    "replace none 9 0 2\r\nyz\r\n",
    "append k 1 0 2\r\n>>\r\n",
    "prepend k 1 0 2\r\n<<\r\n",
    "append none 1 0 2\r\n>>\r\n",
    "get k\r\n",
    "touch k 100\r\n",
    "touch none 100\r\n",
    "mg k t f v\r\n",
    "gat 1000 k new none\r\n",
    "gats 0 k new none\r\n",
    "mg k t\r\n",
    "gat 100\r\n",
    "set n 5 0 2\r\n99\r\n",
    "incr n 1\r\n",
    "get n\r\n",
    "decr n 1\r\n",
    "get n\r\n",
    "decr n 1000\r\n",
    "get n\r\n",
    "incr n 18446744073709551615\r\n",
    "incr n 1\r\n",
    "gets n\r\n",
    "incr k 1\r\n",
    "incr none 1\r\n",
    "set e 0 0 0\r\n\r\n",
    "incr e 1\r\n",
    "set b 0 0 5\r\n 12 x\r\n",
    "incr b 1\r\n",
    "get b\r\n",
    "delete b\r\n",
    "delete b\r\n",
    "get b\r\n",
    "set k 0 -1 1\r\na\r\n",
    "get k\r\n",
    "set k 0 1 1 noreply\r\na\r\n",
    "set k 0 2592001 1\r\na\r\n",
    "get k\r\n",
    "set k 0 0 1\r\na\r\n",
    "touch k -1\r\n",
    "get k\r\n",
    "set k 0 0 1\r\na\r\n",
    "gat -1 k\r\n",
    "get k\r\n",
    "flush_all\r\n",
    "get n new\r\n",
];

/// A conversation in meta commands.
pub const MEMCACHED_META: &[&str] = &[
    "mg k v\r\n",
    "ms k 3 F5 T100\r\nabc\r\n",
    "mg k\r\n",
    "mg k v f t s k h l O9\r\n",
    "mg k v f t s k h l O9 q\r\n",
    "mg k c\r\n",
    "mg k c u\r\n",
    "ms k 3 c CLAST\r\nabd\r\n",
    "ms k 3 c C1 k O3\r\nabd\r\n",
    "mg k t c\r\n",
    "ms f 1\r\nx\r\n",
    "mg f h u\r\n",
    "mg f h\r\n",
    "mg f h\r\n",
    "me f\r\n",
    "me none\r\n",
    "ms a 1 MA\r\na\r\n",
    "ms a 1 T50 F3\r\na\r\n",
    "mg a t f v\r\n",
    "ms a 2 MA c\r\nbc\r\n",
    "ms a 2 MP c\r\n<<\r\n",
    "mg a t f v c h\r\n",
    "ms a 2 ME\r\nzz\r\n",
    "ms a 2 MR F1\r\nzz\r\n",
    "ms none 2 MR\r\nzz\r\n",
    "ms a 2 MA CLAST\r\nzz\r\n",
    "ms a 2 MA C1\r\nzz\r\n",
    "mg a v f t\r\n",
    "md none\r\n",
    "md a C1\r\n",
    "md a I T50 k\r\n",
    "mg a v t c\r\n",
    "mg a v t c\r\n",
    "ms a 1 c I CLAST\r\ny\r\n",
    "mg a v t c\r\n",
    "md a I\r\n",
    "mg a c\r\n",
    "ms a 2 I C2 c\r\nol\r\n",
    "mg a v t c\r\n",
    "md a q\r\n",
    "mg a v\r\n",
    "mg w N50 v t c h\r\n",
    "mg w N50 v t c h\r\n",
    "ms w 1 T100\r\nx\r\n",
    "mg w R50 v t\r\n",
    "mg w R150 v t\r\n",
    "mg w R150 v t\r\n",
    "mg w t T1000\r\n",
    "mg w T0 t\r\n",
    "mg w R150 t\r\n",
    "mg y t N50\r\n",
    "mg y t T100 t\r\n",
    "mg y N1000 q\r\n",
    "ma n\r\n",
    "ma n N100 J13 v t\r\n",
    "ma n v t\r\n",
    "ma n MD D5 v c\r\n",
    "ma n CLAST v\r\n",
    "ma n CLAST v\r\n",
    "ma n MD D100 v\r\n",
    "mg n v\r\n",
    "ma n q\r\n",
    "ma n T50 t\r\n",
    "ma o N0 J7 t T100 v\r\n",
    "mg o v t f\r\n",
    "ma f\r\n",
    "ms a2V5 3 b\r\nabc\r\n",
    "mg a2V5 b v k\r\n",
    "mg key v\r\n",
    "md a2V5 b\r\n",
    "mg key v\r\n",
    "ms p 1 T-1 c\r\nx\r\n",
    "mg p v\r\n",
    "ms p 1\r\nx\r\n",
    "mg p v T-1\r\n",
    "mg p v\r\n",
    "mg p N-1 v\r\n",
    "mg p v\r\n",
    "ms x 3 F4 T100\r\nabc\r\n",
];

/// Meta flags that came after memcached 1.6.18.
pub const MEMCACHED_META_RECENT: &[&str] = &[
    "ms k 3 s\r\nabc\r\n",
    "ms a 1 MA N50 F3 s\r\na\r\n",
    "mg a t f v\r\n",
    "ms a 2 MP c N100\r\n<<\r\n",
    "mg a t f v\r\n",
    "ms k 3 MA s c\r\nabc\r\n",
    "ms k 3 E77 c T100\r\nabc\r\n",
    "mg k c v t\r\n",
    "ms k 3 I C76 E78 c\r\nabd\r\n",
    "mg k c v t\r\n",
    "md k E79 I\r\n",
    "mg k c v t\r\n",
    "md k x E80\r\n",
    "mg k c v t f\r\n",
    "md k x I F7 T100\r\n",
    "mg k c v t f h\r\n",
    "ma k N0 E5 v c\r\n",
    "ma n N0 E5 J4 v c\r\n",
    "ma n E6 v c\r\n",
    "mg n c v\r\n",
    "mg new N100 E9 c\r\n",
    "mg new c\r\n",
];

const KEYS: [&str; 4] = ["a", "b", "key", "n"];

fn any_value(random: &mut Random) -> String {
    const VALUES: &[&str] = &["", "x", "abc", "0", "7", "99", "100", "12 ", "18446744073709551615"];
    match random.below(12) {
        0 => "v".repeat(random.below(600)),
        _ => (*random.pick(VALUES)).to_owned(),
    }
}

/// A classic command on one of a few keys.
pub fn any_memcached_classic(random: &mut Random) -> String {
    let key = *random.pick(&KEYS);
    let value = any_value(random);
    let len = value.len();
    let flags = *random.pick(&["0", "0", "1", "4294967295"]);
    let seconds = *random.pick(&["0", "0", "0", "50", "1000", "-1", "2592001"]);
    let quiet = if random.below(6) == 0 { " noreply" } else { "" };
    let other = *random.pick(&KEYS);
    match random.below(16) {
        0 => format!("get {key}\r\n"),
        1 => format!("gets {key}\r\n"),
        2 => format!("get {key} {other} none {key}\r\n"),
        3 => format!("gats {seconds} {key} {other}\r\n"),
        4 => format!("gat {seconds} {key}\r\n"),
        5 | 6 => format!("set {key} {flags} {seconds} {len}{quiet}\r\n{value}\r\n"),
        7 => format!("add {key} {flags} {seconds} {len}{quiet}\r\n{value}\r\n"),
        8 => format!("replace {key} {flags} {seconds} {len}{quiet}\r\n{value}\r\n"),
        9 => format!("append {key} {flags} {seconds} {len}{quiet}\r\n{value}\r\n"),
        10 => format!("prepend {key} {flags} {seconds} {len}{quiet}\r\n{value}\r\n"),
        11 => format!("cas {key} {flags} {seconds} {len} LAST{quiet}\r\n{value}\r\n"),
        12 => format!("delete {key}{quiet}\r\n"),
        13 => {
            format!("incr {key} {}{quiet}\r\n", random.pick(&["1", "900", "18446744073709551615"]))
        }
        14 => format!("decr {key} {}{quiet}\r\n", random.pick(&["1", "90", "1000"])),
        _ => format!("touch {key} {seconds}{quiet}\r\n"),
    }
}

/// A meta command on the same keys, without recent flags unless `is_recent`.
pub fn any_memcached_meta(random: &mut Random, is_recent: bool) -> String {
    let key = *random.pick(&KEYS);
    let value = any_value(random);
    let mut words: Vec<&str> = Vec::new();
    let (command, mut offered): (&str, Vec<&str>) = match random.below(8) {
        0..3 => (
            "mg",
            vec![
                // No time to live is so near to these that a second more or less decides.
                "v", "f", "t", "s", "k", "h", "l", "c", "u", "q", "O1", "T50", "N100", "R150", "R20",
            ],
        ),
        3..5 => (
            "ms",
            vec![
                "k", "c", "q", "O2", "F9", "T100", "CLAST", "C1", "I", "ME", "MA", "MP", "MR", "MS",
            ],
        ),
        5 => ("md", vec!["k", "q", "O3", "I", "T50", "CLAST", "C1"]),
        6 => (
            "ma",
            vec!["v", "t", "c", "k", "q", "O4", "N100", "J13", "D7", "T50", "MD", "M+", "CLAST"],
        ),
        _ => ("me", vec![]),
    };
    if is_recent {
        match command {
            "mg" => offered.push("E5"),
            "ms" => offered.extend(["E6", "s", "N50"]),
            "md" => offered.extend(["E7", "x"]),
            _ => {}
        }
    }
    for _ in 0..random.below(6) {
        if offered.is_empty() {
            break;
        }
        words.push(offered.swap_remove(random.below(offered.len())));
        let letter = words[words.len() - 1].as_bytes()[0];
        // ma that makes a number is told even with q.
        let excluded = match (command, letter) {
            ("ma", b'q') => b'N',
            ("ma", b'N') => b'q',
            _ => letter,
        };
        offered.retain(|word| ![letter, excluded].contains(&word.as_bytes()[0]));
    }
    let words = words.iter().fold(String::new(), |all, word| format!("{all} {word}"));
    match command {
        "ms" => format!("ms {key} {}{words}\r\n{value}\r\n", value.len()),
        _ => format!("{command} {key}{words}\r\n"),
    }
}

/// A packet on the same keys.
pub fn any_memcached_binary(random: &mut Random) -> MemcachedStep {
    let key = *random.pick(&KEYS);
    let with_cas = random.below(4) == 0;
    let seconds = *random.pick(&[0u32, 0, 50, 1000]);
    let value = any_value(random).into_bytes();
    let step = |opcode, with_cas, extras: &[u8], value: Vec<u8>| MemcachedStep::Binary {
        opcode,
        with_cas,
        extras: extras.to_vec(),
        key,
        value,
    };
    let flags_and_seconds = [[0, 0, 0, 7], seconds.to_be_bytes()].concat();
    match random.below(8) {
        0 => step(*random.pick(&[0x00, 0x09, 0x0c, 0x0d]), false, &[], vec![]),
        1 => step(
            *random.pick(&[0x1c, 0x1d, 0x1e, 0x23, 0x24]),
            false,
            &seconds.to_be_bytes(),
            vec![],
        ),
        2 | 3 => {
            step(*random.pick(&[1, 2, 3, 0x11, 0x12, 0x13]), with_cas, &flags_and_seconds, value)
        }
        4 => step(*random.pick(&[0x0e, 0x0f, 0x19, 0x1a]), with_cas, &[], value),
        5 => step(*random.pick(&[0x04, 0x14]), with_cas, &[], vec![]),
        _ => {
            let expiry = *random.pick(&[0u32, 50, u32::MAX]);
            let number = |value: u64| value.to_be_bytes();
            let extras = [&number(3)[..], &number(11), &expiry.to_be_bytes()].concat();
            step(*random.pick(&[0x05, 0x06, 0x15, 0x16]), with_cas, &extras, vec![])
        }
    }
}
