//! Workloads: the commands that are sent, with their keys and values.

mod names;
mod suite;
mod template;
mod ycsb;

pub use names::parse_mix;
pub use suite::{SUITE, suite};
pub use template::{Piece, TemplateError, Word, parse_template};
pub use ycsb::{FIELDS, ycsb};

use crate::error::Error;

/// Largest number of keys that can be verified. Each takes 16 bytes of memory.
pub const VERIFIED_KEYS_MAX: u64 = 20_000_000;

/// Length of the longest value, in bytes.
pub const VALUE_LEN_MAX: u32 = 512 << 20;

/// Largest number of keys of one request.
pub const KEYS_PER_REQUEST_MAX: u32 = 65_536;

/// A workload: commands with their keys and values.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The name in outcomes.
    pub name: String,
    /// The commands, each with its weight.
    pub mix: Vec<(Command, u32)>,
    /// The keys.
    pub keys: Keys,
    /// Which keys are written.
    pub write_pattern: Pattern,
    /// Which keys are read.
    pub read_pattern: Pattern,
    /// The lengths of values.
    pub sizes: Sizes,
    /// The expiry of a written value, in seconds, from the first number to the second. `None` means
    /// that values never expire.
    pub expiry: Option<(u32, u32)>,
    /// True if values carry a checksum and a version, and replies are verified.
    pub is_verified: bool,
}

/// The keys of a workload, numbered from 0 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The prefix of all keys.
    pub prefix: String,
    /// The number of the first key.
    pub first: u64,
    /// The number of keys.
    pub count: u64,
    /// The form of the numbers.
    pub form: KeyForm,
}

/// The form of the number in a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// The number is padded with zeros to this number of digits. 0 means no padding.
    Digits(u8),
    /// The number is replaced by its hash, as in YCSB.
    Ycsb,
}

impl Keys {
    /// Returns `count` keys with the names of redis-benchmark: `key:000000000000` and so on.
    pub fn new(count: u64) -> Keys {
        Keys { prefix: "key:".to_owned(), first: 0, count, form: KeyForm::Digits(12) }
    }
}

/// The order of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// All keys have the same chance.
    Random,
    /// Each connection walks through all keys in order.
    Sequential,
    /// Each connection walks through its own part of the keys.
    Parallel,
    /// A normal distribution around a median.
    Gaussian {
        /// Number of the middle key. The default is half the number of keys.
        median: Option<f64>,
        /// Standard deviation in keys. The default is a sixth of the number of keys.
        deviation: Option<f64>,
    },
    /// A Zipf distribution: few keys are used often, and many seldom. Popular keys are not
    /// neighbours.
    Zipf {
        /// The steepness, above 0 and below 1.
        theta: f64,
    },
    /// The Zipf distribution of YCSB.
    YcsbZipf,
    /// YCSB's distribution that prefers the keys inserted last.
    Latest,
}

/// The lengths of values, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All values have this length.
    Fixed(u32),
    /// All lengths from the first number to the second have the same chance.
    Range(u32, u32),
    /// Each length has its weight.
    Weighted(Vec<(u32, u32)>),
}

impl Sizes {
    /// Returns the greatest length.
    pub fn longest(&self) -> u32 {
        match self {
            Sizes::Fixed(len) => *len,
            Sizes::Range(_, to) => *to,
            Sizes::Weighted(list) => list.iter().map(|(len, _)| *len).max().unwrap_or(0),
        }
    }

    /// Returns the smallest length.
    pub fn shortest(&self) -> u32 {
        match self {
            Sizes::Fixed(len) => *len,
            Sizes::Range(from, _) => *from,
            Sizes::Weighted(list) => list.iter().map(|(len, _)| *len).min().unwrap_or(0),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let is_right = match self {
            Sizes::Fixed(_) => true,
            Sizes::Range(from, to) => from <= to,
            Sizes::Weighted(list) => !list.is_empty() && list.iter().any(|(_, weight)| *weight > 0),
        };
        if !is_right {
            return Err(Error::asked(
                "sizes are a number, a range from the smaller to the larger, \
                or a list of sizes with their weights",
            ));
        }
        if self.longest() > VALUE_LEN_MAX {
            return Err(Error::asked(format!("a value is at most {VALUE_LEN_MAX} bytes long")));
        }
        Ok(())
    }
}

/// One command of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The class that its requests are counted in.
    pub name: String,
    /// The kind of its requests.
    pub kind: CommandKind,
}

/// The effect of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// Reads a key.
    Get,
    /// Writes a key, with an expiry where the workload has one.
    Set,
    /// Writes a key by SETEX. The expiry is that of the workload, or a minute.
    Setex,
    /// Reads this number of keys at once.
    Mget(u32),
    /// Writes this number of keys at once.
    Mset(u32),
    /// Deletes a key.
    Delete,
    /// Adds one to the number of a key.
    Increment,
    /// Gives a key an expiry.
    Touch,
    /// A command of any words. Placeholders among them are replaced.
    Words(Vec<Word>),
    /// Literal bytes with one reply.
    Bytes(Vec<u8>),
    /// YCSB: reads all fields of a record.
    YcsbRead,
    /// YCSB: writes one field of a record.
    YcsbUpdate,
    /// YCSB: adds a record and its entry in the index.
    YcsbInsert,
    /// YCSB: finds up to a hundred records in the index, and reads each.
    YcsbScan,
    /// YCSB: reads a record, then writes one of its fields.
    YcsbModify,
    /// YCSB: writes the records that exist at the start. No measured mix contains it.
    YcsbLoad,
}

impl CommandKind {
    /// Returns whether the command writes. Its keys then follow the pattern of writes.
    pub fn is_write(&self) -> bool {
        use CommandKind as Kind;
        match self {
            Kind::Get | Kind::Mget(_) | Kind::YcsbRead | Kind::YcsbScan | Kind::Touch => false,
            Kind::Words(words) => words.iter().any(Word::has_data),
            _ => true,
        }
    }

    /// Returns whether the values of the command can be verified.
    pub fn is_verifiable(&self) -> bool {
        use CommandKind as Kind;
        matches!(self, Kind::Get | Kind::Set | Kind::Setex | Kind::Mget(_) | Kind::Mset(_))
    }

    pub(crate) fn keys(&self) -> u32 {
        match self {
            CommandKind::Mget(keys) | CommandKind::Mset(keys) => *keys,
            _ => 1,
        }
    }
}

impl Workload {
    /// Creates a workload of commands with their weights, a million keys, and values of 100 bytes.
    pub fn new(name: &str, mix: Vec<(Command, u32)>) -> Workload {
        Workload {
            name: name.to_owned(),
            mix,
            keys: Keys::new(1_000_000),
            write_pattern: Pattern::Random,
            read_pattern: Pattern::Random,
            sizes: Sizes::Fixed(100),
            expiry: None,
            is_verified: false,
        }
    }

    /// Returns the workload that writes every key of this one once, in [`Workload::fill_count`]
    /// requests.
    pub fn filling(&self) -> Workload {
        let is_ycsb = self.keys.form == KeyForm::Ycsb;
        let kind = if is_ycsb { CommandKind::YcsbLoad } else { CommandKind::Set };
        let command = Command { name: "fill".to_owned(), kind };
        let mut fill = self.clone();
        fill.name = format!("fill of {}", self.name);
        fill.mix = vec![(command, 1)];
        fill.write_pattern = Pattern::Sequential;
        fill
    }

    /// Refuses a workload that cannot be sent.
    ///
    /// # Errors
    /// [`Error::Asked`].
    pub fn check(&self) -> Result<(), Error> {
        if self.mix.iter().all(|(_, weight)| *weight == 0) {
            return Err(Error::asked("no command has a weight above 0"));
        }
        if self
            .mix
            .iter()
            .any(|(command, _)| !(1..=KEYS_PER_REQUEST_MAX).contains(&command.kind.keys()))
        {
            let what = format!("a request has from 1 to {KEYS_PER_REQUEST_MAX} keys");
            return Err(Error::asked(what));
        }
        if self.keys.count == 0 || self.keys.first.checked_add(self.keys.count).is_none() {
            return Err(Error::asked("there is at least one key, and no number above 2^64"));
        }
        if self.expiry.is_some_and(|(from, to)| from == 0 || from > to) {
            return Err(Error::asked("an expiry is a range of seconds, from 1 on"));
        }
        self.sizes.check()?;
        [self.write_pattern, self.read_pattern].into_iter().try_for_each(check_pattern)?;
        if self.is_verified { self.check_verified() } else { Ok(()) }
    }

    fn check_verified(&self) -> Result<(), Error> {
        let other = self.mix.iter().find(|(command, _)| !command.kind.is_verifiable());
        if let Some((command, _)) = other {
            return Err(Error::asked(format!(
                "what {} does cannot be verified: get, set, setex, mget and mset can",
                command.name
            )));
        }
        if self.keys.count > VERIFIED_KEYS_MAX {
            return Err(Error::asked(format!("at most {VERIFIED_KEYS_MAX} keys can be verified")));
        }
        if (self.sizes.shortest() as usize) < crate::verify::STAMP_LEN {
            return Err(Error::asked(format!(
                "a value that is verified has at least {} bytes",
                crate::verify::STAMP_LEN
            )));
        }
        if self.expiry.is_some() {
            return Err(Error::asked(
                "what expires cannot be told from what was lost: verify \
                without an expiry",
            ));
        }
        Ok(())
    }
}

fn check_pattern(pattern: Pattern) -> Result<(), Error> {
    match pattern {
        Pattern::Zipf { theta } if !(theta > 0.0 && theta < 1.0) => {
            Err(Error::asked("the exponent of zipf is above 0 and below 1"))
        }
        Pattern::Gaussian { deviation: Some(deviation), .. }
            if !(deviation > 0.0 && deviation.is_finite()) =>
        {
            Err(Error::asked("a standard deviation is above 0"))
        }
        Pattern::Gaussian { median: Some(median), .. }
            if !(median >= 0.0 && median.is_finite()) =>
        {
            Err(Error::asked("a median is the number of a key"))
        }
        _ => Ok(()),
    }
}
