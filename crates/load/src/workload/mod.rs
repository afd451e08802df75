//! What is sent.

mod names;
mod suite;
mod template;
mod ycsb;

pub use names::parse_mix;
pub use suite::{SUITE, suite};
pub use template::{Piece, TemplateError, Word, parse_template};
pub use ycsb::{FIELDS, ycsb};

use crate::error::Error;

/// The most keys that are verified: 16 bytes are kept for each.
pub const VERIFIED_KEYS_MAX: u64 = 20_000_000;

/// The longest value.
pub const VALUE_LEN_MAX: u32 = 512 << 20;

/// The most keys of one request.
pub const KEYS_PER_REQUEST_MAX: u32 = 65_536;

/// What is sent: commands, and what their keys and values are.
#[derive(Clone, Debug)]
pub struct Workload {
    /// What it is called in outcomes.
    pub name: String,
    /// Commands, each with how often it comes among all.
    pub mix: Vec<(Command, u32)>,
    /// The keys.
    pub keys: Keys,
    /// Which keys are written.
    pub write_pattern: Pattern,
    /// Which keys are read.
    pub read_pattern: Pattern,
    /// How long values are.
    pub sizes: Sizes,
    /// Seconds until a written value expires, from the first number to the second; never without.
    pub expiry: Option<(u32, u32)>,
    /// True if values carry a checksum and a version, which replies are checked for.
    pub is_verified: bool,
}

/// The keys of a workload, numbered from 0 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// What keys begin with.
    pub prefix: String,
    /// The number that the first key carries.
    pub first: u64,
    /// How many there are.
    pub count: u64,
    /// How numbers are written.
    pub form: KeyForm,
}

/// How the number of a key is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// With zeros in front, to so many digits; 0 is without.
    Digits(u8),
    /// As YCSB does: its hash.
    Ycsb,
}

impl Keys {
    /// `key:000000000000` and so on, as redis-benchmark has them.
    pub fn new(count: u64) -> Keys {
        Keys { prefix: "key:".to_owned(), first: 0, count, form: KeyForm::Digits(12) }
    }
}

/// Which key comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Any, each as often.
    Random,
    /// Each connection through all of them, one after the other.
    Sequential,
    /// Each connection through a part of its own.
    Parallel,
    /// Around a median, as often as the normal distribution has it.
    Gaussian {
        /// Number of the middle key; half of all by default.
        median: Option<f64>,
        /// Standard deviation in keys; a sixth of all by default.
        deviation: Option<f64>,
    },
    /// Few often and many seldom; popular keys do not lie side by side.
    Zipf {
        /// How steep: above 0 and below 1.
        theta: f64,
    },
    /// The same as YCSB does it.
    YcsbZipf,
    /// YCSB's: what was inserted last most often.
    Latest,
}

/// How long values are, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All alike.
    Fixed(u32),
    /// From the first number to the second, each as often.
    Range(u32, u32),
    /// Each with how often it comes among all.
    Weighted(Vec<(u32, u32)>),
}

impl Sizes {
    /// The longest.
    pub fn longest(&self) -> u32 {
        match self {
            Sizes::Fixed(len) => *len,
            Sizes::Range(_, to) => *to,
            Sizes::Weighted(list) => list.iter().map(|(len, _)| *len).max().unwrap_or(0),
        }
    }

    /// The shortest.
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

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The class that it is counted in.
    pub name: String,
    /// What it is.
    pub kind: CommandKind,
}

/// What a request does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// Reads a key.
    Get,
    /// Writes a key, with an expiry where the workload has one.
    Set,
    /// Writes a key by SETEX; the expiry is the workload's, or a minute.
    Setex,
    /// Reads so many keys at once.
    Mget(u32),
    /// Writes so many keys at once.
    Mset(u32),
    /// Deletes a key.
    Delete,
    /// Adds one to the number of a key.
    Increment,
    /// Gives a key an expiry.
    Touch,
    /// Any words, of which some are replaced.
    Words(Vec<Word>),
    /// Bytes as they are, with one reply.
    Bytes(Vec<u8>),
    /// YCSB: reads all fields of a record.
    YcsbRead,
    /// YCSB: writes one field of a record.
    YcsbUpdate,
    /// YCSB: adds a record and its place in the index.
    YcsbInsert,
    /// YCSB: looks up to a hundred records up in the index, and reads each.
    YcsbScan,
    /// YCSB: reads a record, then writes one of its fields.
    YcsbModify,
    /// YCSB: writes the records that are there at first; not part of any measured mix.
    YcsbLoad,
}

impl CommandKind {
    /// Returns whether it writes, and so has its keys by the pattern of writes.
    pub fn is_write(&self) -> bool {
        use CommandKind as Kind;
        match self {
            Kind::Get | Kind::Mget(_) | Kind::YcsbRead | Kind::YcsbScan | Kind::Touch => false,
            Kind::Words(words) => words.iter().any(Word::has_data),
            _ => true,
        }
    }

    /// Returns whether its values can be verified.
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
    /// These commands, each with how often it comes; a million keys, values of 100 bytes.
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

    /// What writes every key of this workload once, by [`Workload::fill_count`] requests.
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

    /// Refuses what cannot be sent.
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
