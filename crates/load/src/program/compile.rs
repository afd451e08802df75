//! From commands to bytes and what is put between them.

use super::packet::{self, Packet};
use super::template::Template;
use super::ycsb;
use super::{DATA_PLACES, Judge, Op, Part, Program, Stamps, Step};
use crate::error::Error;
use crate::random::Random;
use crate::target::Protocol;
use crate::verify::Ledger;
use crate::workload::{Command, CommandKind, KeyForm, Piece, Sizes, Word, Workload};
use keyway_memcache::Expect;

/// Makes a workload ready for a protocol.
///
/// # Errors
/// [`Error::Asked`] for what the protocol has no words for.
pub(crate) fn compile(
    workload: &Workload,
    protocol: Protocol,
    is_cluster: bool,
    run: u32,
) -> Result<Program, Error> {
    workload.check()?;
    let mut ends = Vec::new();
    for (_, weight) in &workload.mix {
        ends.push(ends.last().unwrap_or(&0) + u64::from(*weight));
    }
    let keys = workload.keys.clone();
    // Those that YCSB inserts come behind.
    let last = keys.first + keys.count - 1;
    let digits = match keys.form {
        KeyForm::Digits(digits) if digits > 0 && super::write::digits_of(last) <= digits.into() => {
            Some(digits)
        }
        _ => None,
    };
    let compiler = Compiler { workload, protocol, is_cluster, digits };
    let ops =
        workload.mix.iter().map(|(command, _)| compiler.op(command)).collect::<Result<_, _>>()?;
    let longest = workload.sizes.longest() as usize + DATA_PLACES as usize;
    Ok(Program {
        ops,
        ends,
        digits,
        write_pattern: workload.write_pattern,
        read_pattern: workload.read_pattern,
        sizes_sum: match &workload.sizes {
            Sizes::Weighted(list) => list.iter().map(|(_, weight)| u64::from(*weight)).sum(),
            _ => 0,
        },
        sizes: workload.sizes.clone(),
        expiry: workload.expiry,
        data: letters(longest),
        ledger: workload.is_verified.then(|| Ledger::new(keys.count, run)),
        keys,
    })
}

/// Bytes that are easy to look at and hard to compress.
fn letters(len: usize) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
    let mut random = Random::new(len as u64);
    (0..len).map(|_| LETTERS[(random.next() & 63) as usize]).collect()
}

struct Compiler<'a> {
    workload: &'a Workload,
    protocol: Protocol,
    is_cluster: bool,
    /// Digits of every key, if all have as many.
    digits: Option<u8>,
}

impl Compiler<'_> {
    fn op(&self, command: &Command) -> Result<Op, Error> {
        let (kind, pieces) = self.pieces(&command.kind);
        let of = |kind| Command { name: command.name.clone(), kind };
        let steps = match (self.protocol, &kind) {
            (Protocol::Resp2 | Protocol::Resp3, kind) => self.redis(kind)?,
            (_, CommandKind::YcsbModify) => {
                let both = [CommandKind::YcsbRead, CommandKind::YcsbUpdate];
                both.into_iter().map(|kind| self.memcached(&of(kind))).collect::<Result<_, _>>()?
            }
            (_, kind) => vec![self.memcached(&of(kind.clone()))?],
        };
        let kind = &kind;
        let finish = |step| {
            let step = self.verified(kind, self.settled(step));
            Step { template: Template::of(&step), ..step }
        };
        let steps = steps.into_iter().map(finish).collect();
        Ok(Op {
            name: command.name.clone(),
            steps,
            pieces,
            is_write: kind.is_write(),
            inserts: *kind == CommandKind::YcsbInsert,
        })
    }

    /// What a request of several keys is sent as where nobody takes it as a whole: a cluster does not
    /// but for keys of one slot, and memcached has no words for writes.
    fn pieces(&self, kind: &CommandKind) -> (CommandKind, u32) {
        let prefix = &self.workload.keys.prefix;
        let is_tagged = prefix.find('{').is_some_and(|at| prefix[at + 1..].find('}') > Some(0));
        let is_apart = self.is_cluster && !is_tagged;
        match kind {
            CommandKind::Mget(keys) if is_apart => (CommandKind::Get, *keys),
            CommandKind::Mset(keys) if is_apart || !self.protocol.is_redis() => {
                (CommandKind::Set, *keys)
            }
            _ => (kind.clone(), 1),
        }
    }

    fn memcached(&self, command: &Command) -> Result<Step, Error> {
        match self.protocol {
            Protocol::MemcachedMeta => self.meta(command),
            Protocol::MemcachedBinary => self.binary(command),
            _ => self.text(command),
        }
    }

    /// The length of all fields of a record.
    fn field_len(&self) -> Result<u32, Error> {
        match self.workload.sizes {
            Sizes::Fixed(len) => Ok(len),
            _ => Err(Error::asked("records of memcached have fields of one length")),
        }
    }

    /// With all lengths written out that are known now: most of a request never changes.
    fn settled(&self, step: Step) -> Step {
        let (parts, bytes) = (step.parts, step.bytes);
        let mut settled = Step { parts: Vec::new(), bytes: Vec::new(), ..step };
        for part in parts {
            match (part, self.digits, &self.workload.sizes) {
                (Part::Bytes { from, to }, ..) => {
                    settled.push(&bytes[from as usize..to as usize]);
                }
                (Part::KeyBulk, Some(digits), _) => {
                    let prefix = &self.workload.keys.prefix;
                    let head = format!("${}\r\n{prefix}", prefix.len() + usize::from(digits));
                    settled.push(head.as_bytes()).part(Part::KeyDigits { digits }).push(b"\r\n");
                }
                (Part::ValueBulk, _, Sizes::Fixed(len)) => {
                    let value = Part::Value { len: *len as usize };
                    settled.push(format!("${len}\r\n").as_bytes()).part(value).push(b"\r\n");
                }
                (Part::Key, Some(digits), _) => {
                    let prefix = self.workload.keys.prefix.as_bytes();
                    settled.push(prefix).part(Part::KeyDigits { digits });
                }
                (Part::ValueText, _, Sizes::Fixed(len)) => {
                    let value = Part::Value { len: *len as usize };
                    settled.push(format!("{len}\r\n").as_bytes()).part(value).push(b"\r\n");
                }
                (other, ..) => {
                    settled.part(other);
                }
            }
        }
        settled
    }

    fn verified(&self, kind: &CommandKind, mut step: Step) -> Step {
        if self.workload.is_verified {
            step.verified_keys = kind.keys();
            step.stamps = if kind.is_write() { Stamps::Write } else { Stamps::Read };
        }
        step
    }

    fn redis(&self, kind: &CommandKind) -> Result<Vec<Step>, Error> {
        use CommandKind as Kind;
        use Piece as P;
        let (text, of) = (Word::text, Word::of);
        let one = |words: Vec<Word>, judge| Ok(vec![words_step(&words, judge)]);
        match kind {
            Kind::Get => one(vec![text("GET"), of(P::Key)], Judge::One),
            Kind::Set => {
                let mut words = vec![text("SET"), of(P::Key), of(P::Data)];
                if self.workload.expiry.is_some() {
                    words.extend([text("EX"), of(P::Ttl)]);
                }
                one(words, Judge::One)
            }
            Kind::Setex => {
                one(vec![text("SETEX"), of(P::Key), of(P::Ttl), of(P::Data)], Judge::One)
            }
            Kind::Mget(keys) => Ok(vec![many_step("MGET", *keys, false)]),
            Kind::Mset(keys) => Ok(vec![many_step("MSET", *keys, true)]),
            Kind::Delete => one(vec![text("DEL"), of(P::Key)], Judge::One),
            Kind::Increment => one(vec![text("INCR"), of(P::Key)], Judge::One),
            Kind::Touch => one(vec![text("EXPIRE"), of(P::Key), of(P::Ttl)], Judge::One),
            Kind::Words(words) => one(words.clone(), Judge::One),
            Kind::Bytes(bytes) => {
                let mut step = Step::new(Judge::One);
                step.push(bytes);
                Ok(vec![step])
            }
            Kind::YcsbRead => Ok(vec![ycsb::read()]),
            Kind::YcsbUpdate => Ok(vec![ycsb::update()]),
            Kind::YcsbModify => Ok(vec![ycsb::read(), ycsb::update()]),
            Kind::YcsbInsert | Kind::YcsbLoad => Ok(vec![ycsb::write(), ycsb::index()]),
            Kind::YcsbScan => Ok(vec![ycsb::scan()]),
        }
    }

    fn text(&self, command: &Command) -> Result<Step, Error> {
        use CommandKind as Kind;
        let mut step = Step::new(Judge::One);
        match &command.kind {
            Kind::Get | Kind::YcsbRead => {
                step.push(b"get ").part(Part::Key).push(b"\r\n").expect = Expect::List;
            }
            Kind::Mget(keys) => {
                step.push(b"get ").part(Part::Key);
                for _ in 1..*keys {
                    step.push(b" ").part(Part::NextKey).part(Part::Key);
                }
                step.push(b"\r\n");
                (step.expect, step.judge) = (Expect::List, Judge::Many(*keys));
            }
            Kind::Set | Kind::Setex => {
                step.push(b"set ").part(Part::Key).push(b" 0 ");
                self.text_ttl(&command.kind, &mut step);
                step.push(b" ").part(Part::ValueText);
            }
            Kind::Delete => {
                step.push(b"delete ").part(Part::Key).push(b"\r\n");
            }
            Kind::Increment => {
                step.push(b"incr ").part(Part::Key).push(b" 1\r\n");
            }
            Kind::Touch => {
                step.push(b"touch ").part(Part::Key).push(b" ").part(Part::Ttl).push(b"\r\n");
            }
            Kind::Words(words) => return text_words(words),
            Kind::Bytes(bytes) => {
                step.push(bytes);
            }
            Kind::YcsbUpdate | Kind::YcsbInsert | Kind::YcsbLoad => {
                return Ok(ycsb::text_write(b"set ", b" 0 0 ", self.field_len()?));
            }
            _ => return Err(self.unspoken(command)),
        }
        Ok(step)
    }

    fn text_ttl(&self, kind: &CommandKind, step: &mut Step) {
        if self.workload.expiry.is_some() || *kind == CommandKind::Setex {
            step.part(Part::Ttl);
        } else {
            step.push(b"0");
        }
    }

    fn meta(&self, command: &Command) -> Result<Step, Error> {
        use CommandKind as Kind;
        let mut step = Step::new(Judge::One);
        match &command.kind {
            Kind::Get | Kind::YcsbRead => {
                step.push(b"mg ").part(Part::Key).push(b" v\r\n");
            }
            Kind::Mget(keys) => {
                for index in 0..*keys {
                    if index > 0 {
                        step.part(Part::NextKey);
                    }
                    // Opaque: which of them it is, for those that are not there say nothing.
                    let flags = format!(" v q O{index}\r\n");
                    step.push(b"mg ").part(Part::Key).push(flags.as_bytes());
                }
                step.push(b"mn\r\n");
                (step.expect, step.judge) = (Expect::UntilNoop, Judge::Many(*keys));
            }
            Kind::Set | Kind::Setex => return self.meta_set(command, step),
            Kind::Delete => {
                step.push(b"md ").part(Part::Key).push(b"\r\n");
            }
            Kind::Increment => {
                step.push(b"ma ").part(Part::Key).push(b" N0 J0 v\r\n");
            }
            Kind::Touch => {
                step.push(b"mg ").part(Part::Key).push(b" T").part(Part::Ttl).push(b"\r\n");
            }
            Kind::Bytes(bytes) => {
                step.push(bytes);
            }
            Kind::YcsbUpdate | Kind::YcsbInsert | Kind::YcsbLoad => {
                return Ok(ycsb::text_write(b"ms ", b" ", self.field_len()?));
            }
            _ => return Err(self.unspoken(command)),
        }
        Ok(step)
    }

    fn meta_set(&self, command: &Command, mut step: Step) -> Result<Step, Error> {
        step.push(b"ms ").part(Part::Key).push(b" ");
        match self.workload.expiry {
            None if command.kind == CommandKind::Set => {
                step.part(Part::ValueText);
                Ok(step)
            }
            expiry => {
                let (from, to) = expiry.unwrap_or((60, 60));
                if from != to {
                    return Err(Error::asked("meta commands have one expiry here, not a range"));
                }
                step.part(Part::ValueMeta { ttl: from });
                Ok(step)
            }
        }
    }

    fn binary(&self, command: &Command) -> Result<Step, Error> {
        use CommandKind as Kind;
        let mut step = Step::new(Judge::One);
        let packet = |opcode| Part::Packet(Packet::new(opcode));
        match &command.kind {
            Kind::Get | Kind::YcsbRead => step.part(packet(packet::GET)),
            Kind::YcsbUpdate | Kind::YcsbInsert | Kind::YcsbLoad => {
                let field_len = Some(self.field_len()?);
                step.part(Part::Packet(Packet { field_len, ..Packet::new(packet::SET) }))
            }
            Kind::Set => step.part(packet(packet::SET)),
            Kind::Setex => {
                step.part(Part::Packet(Packet { expires: true, ..Packet::new(packet::SET) }))
            }
            Kind::Delete => step.part(packet(packet::DELETE)),
            Kind::Increment => step.part(packet(packet::INCREMENT)),
            Kind::Touch => step.part(packet(packet::TOUCH)),
            Kind::Bytes(bytes) => step.push(bytes),
            Kind::Mget(keys) => {
                for opaque in 0..*keys {
                    if opaque > 0 {
                        step.part(Part::NextKey);
                    }
                    step.part(Part::Packet(Packet { opaque, ..Packet::new(packet::GET_QUIETLY) }));
                }
                step.part(packet(packet::NOOP));
                (step.expect, step.judge) = (Expect::UntilNoop, Judge::Many(*keys));
                &mut step
            }
            _ => return Err(self.unspoken(command)),
        };
        Ok(step)
    }

    fn unspoken(&self, command: &Command) -> Error {
        Error::asked(format!("{} cannot be said in {}", command.name, self.protocol))
    }
}

/// Words of memcached's text: a line, and a value behind it where there is one.
fn text_words(words: &[Word]) -> Result<Step, Error> {
    let mut step = Step::new(Judge::One);
    for (index, word) in words.iter().enumerate() {
        if word.has_data() {
            let is_last = index + 1 == words.len() && word.0.len() == 1;
            if !is_last {
                return Err(Error::asked(
                    "memcached's text has __data__ at the end only, where \
                    its length and the value go: set __key__ 0 0 __data__",
                ));
            }
            step.push(b" ").part(Part::ValueText);
            return Ok(step);
        }
        if index > 0 {
            step.push(b" ");
        }
        step.part(Part::Plain(word.0.clone()));
    }
    step.push(b"\r\n");
    let reads = ["get", "gets", "gat", "gats"].map(Word::text);
    if reads.contains(&words[0]) {
        step.expect = Expect::List;
    }
    Ok(step)
}

/// An array of bulks.
pub(super) fn words_step(words: &[Word], judge: Judge) -> Step {
    let mut step = Step::new(judge);
    step.push(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        match word.0.as_slice() {
            [Piece::Bytes(bytes)] => {
                step.push(format!("${}\r\n", bytes.len()).as_bytes()).push(bytes).push(b"\r\n")
            }
            [Piece::Key] => step.part(Part::KeyBulk),
            [Piece::Data] => step.part(Part::ValueBulk),
            [Piece::Ttl] => step.part(Part::TtlBulk),
            pieces => step.part(Part::Bulk(pieces.to_vec())),
        };
    }
    step.route = route(words);
    step
}

/// The word that a cluster goes by: the first with a key, else the second if it never changes.
fn route(words: &[Word]) -> Vec<Piece> {
    let is_fixed = |piece: &Piece| matches!(piece, Piece::Bytes(_) | Piece::Key);
    let keyed = words.iter().find(|word| word.0.contains(&Piece::Key));
    let word = keyed.or(words.get(1)).filter(|word| word.0.iter().all(is_fixed));
    word.map(|word| word.0.clone()).unwrap_or_default()
}

fn many_step(verb: &str, keys: u32, has_values: bool) -> Step {
    let mut step = Step::new(if has_values { Judge::One } else { Judge::Many(keys) });
    let words = 1 + keys as usize * if has_values { 2 } else { 1 };
    step.push(format!("*{words}\r\n${}\r\n{verb}\r\n", verb.len()).as_bytes());
    for index in 0..keys {
        if index > 0 {
            step.part(Part::NextKey);
        }
        step.part(Part::KeyBulk);
        if has_values {
            step.part(Part::ValueBulk);
        }
    }
    step.route = vec![Piece::Key];
    step
}

impl Step {
    pub(super) fn new(judge: Judge) -> Step {
        Step {
            parts: Vec::new(),
            bytes: Vec::new(),
            expect: Expect::One,
            judge,
            verified_keys: 0,
            stamps: Stamps::None,
            route: Vec::new(),
            template: None,
        }
    }

    /// Bytes that never change; put together with those before them.
    pub(super) fn push(&mut self, bytes: &[u8]) -> &mut Step {
        let from = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        let end = self.bytes.len() as u32;
        match self.parts.last_mut() {
            Some(Part::Bytes { to, .. }) if *to == from => *to = end,
            _ => self.parts.push(Part::Bytes { from, to: end }),
        }
        self
    }

    pub(super) fn part(&mut self, part: Part) -> &mut Step {
        self.parts.push(part);
        self
    }
}
