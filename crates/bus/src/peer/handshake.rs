//! The registration: the dialler proves that it knows a token, then the acceptor does.
//!
//! ```text
//!  dialler                                   acceptor
//!    HELLO versions, relation, nonce, windows ──►
//!    ◄── CHALLENGE version, nonce, windows           (its dst is the dialler's id, given to a guest)
//!    REGISTER identity, proof by each token ────►    (proof: HMAC-SHA256 of all above and the binding)
//!    ◄── WELCOME identity, proof                     (by the token that fitted), or REJECT
//! ```

use crate::fault::Reason;
use crate::frame::{CHANNELS, Frame, Head, Kind, VERSION, append};
use crate::id::NodeId;
use crate::labels::Labels;
use crate::settings::{Settings, URLS_MAX, WINDOW_MAX, WINDOW_MIN};
use crate::token::{PROOF_LEN, Side, TOKENS_MAX, Transcript};
use crate::url::{Place, Url};
use crate::wire::{Reader, Writer};
use std::fmt;
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"KWBUS\r\n\x01";

/// The relation that a connection's dialler wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Relation {
    /// The dialler is below the acceptor.
    Child = 0,
    /// The dialler is beside it: messages between the two go directly.
    Sibling = 1,
}

/// Returns the name in the certificate of a node: its id followed by `.bus.keyway`; for a guest, or
/// for [`NodeId::NONE`], `guest.bus.keyway`.
pub fn certificate_name(id: NodeId) -> String {
    match id.is_none() || id.is_guest() {
        true => "guest.bus.keyway".to_owned(),
        false => format!("{id}.bus.keyway"),
    }
}

/// Tells for an id whether the other side's certificate is made out to it; for [`NodeId::NONE`],
/// whether it is a guest's.
#[derive(Clone)]
pub struct Vouch(Arc<dyn Fn(NodeId) -> bool + Send + Sync>);

impl Vouch {
    /// Creates one that calls `is_of`.
    pub fn new(is_of: impl Fn(NodeId) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_of))
    }

    fn check(&self, id: NodeId) -> Result<(), Reason> {
        if (self.0)(id) { Ok(()) } else { Err(Reason::CertificateName) }
    }
}

impl fmt::Debug for Vouch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vouch")
    }
}

/// The transport's description of a connection.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Bytes that are the same at both ends and that no other connection has: a TLS exporter.
    /// Without TLS, the kind of channel, such as `tcp`.
    pub binding: Vec<u8>,
    /// Set if the transport has checked certificates of both sides. Then tokens are not asked for,
    /// and only an id that the certificate is made out to is accepted.
    pub vouch: Option<Vouch>,
    /// 32 random bytes that cannot be guessed, drawn for this connection.
    pub nonce: [u8; 32],
    /// True if it stays within the host: the system then tells either side at once that the other
    /// is gone.
    pub is_within_host: bool,
    /// Address of the dialler, for people; `None` if it is not known.
    pub from: Option<Box<str>>,
}

/// A node's description of itself in its registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its id.
    pub id: NodeId,
    /// Its incarnation, which grows with each of its starts.
    pub incarnation: u64,
    /// The place where it runs.
    pub place: Place,
    /// Its labels.
    pub labels: Labels,
    /// The addresses at which it can be dialled.
    pub urls: Vec<Url>,
}

/// The end of valid incarnations: in milliseconds, shifted left by 20, it is the year 2248.
const INCARNATION_END: u64 = 1 << 63;

impl Identity {
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        out.u64(self.incarnation);
        out.raw(&self.place.host);
        out.u64(self.place.process);
        self.labels.write(out);
        write_urls(&self.urls, out);
    }

    /// Returns the number of bytes that it takes.
    pub(crate) fn len(&self) -> usize {
        let labels: usize =
            self.labels.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        let urls: usize = self.urls.iter().map(|url| url.to_string().len() + 1).sum();
        8 + 16 + 8 + 1 + labels + 1 + urls
    }

    pub(crate) fn read(id: NodeId, from: &mut Reader<'_>) -> Option<Self> {
        let incarnation = from.u64().filter(|incarnation| *incarnation < INCARNATION_END)?;
        let place = Place { host: from.array()?, process: from.u64()? };
        Some(Self { id, incarnation, place, labels: Labels::read(from)?, urls: read_urls(from)? })
    }
}

fn write_urls(urls: &[Url], out: &mut Writer<'_>) {
    out.u8(urls.len().min(URLS_MAX) as u8);
    for url in urls.iter().take(URLS_MAX) {
        out.text(&url.to_string());
    }
}

/// Reads addresses. Those of a scheme that this version does not know are left out.
fn read_urls(from: &mut Reader<'_>) -> Option<Vec<Url>> {
    let count = from.u8()?;
    let mut urls = Vec::new();
    for _ in 0..count {
        urls.extend(from.text()?.parse::<Url>());
    }
    (usize::from(count) <= URLS_MAX).then_some(urls)
}

/// One side's handshake until a connection is registered.
pub(crate) struct Handshake {
    state: State,
    transcript: Transcript,
    vouch: Option<Vouch>,
    nonce: [u8; 32],
    /// The own id, and the id that is expected there or offered to a guest.
    our_id: NodeId,
    other_id: NodeId,
    relation: Relation,
    windows: [u32; CHANNELS],
}

enum State {
    HelloSent,
    RegisterSent,
    AwaitHello,
    AwaitRegister,
    /// The token of the dialler. Its identity is known.
    Deciding(Option<usize>),
    Done,
}

/// The result of a frame of a registration.
#[derive(Debug)]
pub(crate) enum Progress {
    /// More frames are needed.
    Going,
    /// The acceptor must decide, and then call [`Handshake::welcome`].
    Asked(Identity),
    /// The dialler is accepted.
    Welcome(Identity),
}

fn write_hello(relation: Relation, nonce: &[u8; 32], settings: &Settings) -> Vec<u8> {
    let mut body = Vec::new();
    let mut out = Writer::new(&mut body);
    out.raw(&MAGIC);
    out.u8(VERSION);
    out.u8(VERSION);
    out.u8(relation as u8);
    out.raw(nonce);
    settings.windows.iter().for_each(|window| out.u32(*window));
    body
}

fn read_windows(from: &mut Reader<'_>) -> Option<[u32; CHANNELS]> {
    let mut windows = [0; CHANNELS];
    for window in &mut windows {
        *window = from.u32().filter(|len| (WINDOW_MIN..=WINDOW_MAX).contains(len))?;
    }
    Some(windows)
}

impl Handshake {
    pub fn dial(
        settings: &Settings,
        our_id: NodeId,
        line: &Line,
        expected: NodeId,
        relation: Relation,
        out: &mut Vec<u8>,
    ) -> Self {
        let mut this = Self::new(State::HelloSent, our_id, expected, line);
        this.relation = relation;
        let body = write_hello(relation, &line.nonce, settings);
        this.say(out, Kind::Hello, expected, &body, body.len());
        this
    }

    pub fn accept(our_id: NodeId, line: &Line, guest_id: NodeId) -> Self {
        Self::new(State::AwaitHello, our_id, guest_id, line)
    }

    fn new(state: State, our_id: NodeId, other_id: NodeId, line: &Line) -> Self {
        Self {
            state,
            transcript: Transcript::new(&line.binding),
            vouch: line.vouch.clone(),
            nonce: line.nonce,
            our_id,
            other_id,
            relation: Relation::Child,
            windows: [0; CHANNELS],
        }
    }

    /// Returns the relation that the dialler wants.
    pub fn relation(&self) -> Relation {
        self.relation
    }

    /// Returns the own id. A guest has got one by now.
    pub fn our_id(&self) -> NodeId {
        self.our_id
    }

    /// Returns how many bytes may be sent ahead on each channel.
    pub fn windows(&self) -> [u32; CHANNELS] {
        self.windows
    }

    /// Appends a frame. The first `len` bytes of its body are included in the proof.
    fn say(&mut self, out: &mut Vec<u8>, kind: Kind, dst: NodeId, body: &[u8], len: usize) {
        let head = Head::plain(kind, self.our_id, dst);
        self.note(&head, &body[..len]);
        append(out, &head, &[], [body, &[]]);
    }

    fn note(&mut self, head: &Head, body: &[u8]) {
        self.transcript.add(&[head.kind as u8]);
        self.transcript.add(&head.src.0.to_le_bytes());
        self.transcript.add(&head.dst.0.to_le_bytes());
        self.transcript.add(body);
    }

    pub fn handle(
        &mut self,
        frame: &Frame<'_>,
        settings: &Settings,
        out: &mut Vec<u8>,
    ) -> Result<Progress, Reason> {
        match (&self.state, frame.head.kind) {
            (State::AwaitHello, Kind::Hello) => self.on_hello(frame, settings, out),
            (State::HelloSent, Kind::Challenge) => self.on_challenge(frame, settings, out),
            (State::AwaitRegister, Kind::Register) => self.on_register(frame, settings),
            (State::RegisterSent, Kind::Welcome) => self.on_welcome(frame, settings),
            (State::HelloSent | State::RegisterSent, Kind::Reject) => {
                let code = Reader::new(frame.body).u16().ok_or(Reason::Malformed)?;
                Err(Reason::of(code))
            }
            _ => Err(Reason::Unexpected),
        }
    }

    fn on_hello(
        &mut self,
        frame: &Frame<'_>,
        settings: &Settings,
        out: &mut Vec<u8>,
    ) -> Result<Progress, Reason> {
        let mut from = Reader::new(frame.body);
        let (oldest, newest) = match from.array::<8>() {
            Some(MAGIC) => (from.u8(), from.u8()),
            _ => return Err(Reason::NoFrame),
        };
        let (oldest, newest) = oldest.zip(newest).ok_or(Reason::Malformed)?;
        if oldest > VERSION || newest < VERSION {
            return Err(Reason::Version);
        }
        self.relation = match from.u8() {
            Some(0) => Relation::Child,
            Some(1) => Relation::Sibling,
            _ => return Err(Reason::Malformed),
        };
        from.take(32).ok_or(Reason::Malformed)?;
        self.windows = read_windows(&mut from).ok_or(Reason::Malformed)?;
        from.end().ok_or(Reason::Malformed)?;
        let Head { src, dst, .. } = frame.head;
        if !dst.is_none() && dst != self.our_id {
            return Err(Reason::IdMismatch);
        }
        if src == self.our_id {
            return Err(Reason::OwnId);
        }
        if let Some(vouch) = &self.vouch {
            vouch.check(src)?;
        }
        // A node without an id gets the one that was drawn for it; a node cannot choose the id of a
        // guest.
        if src.is_guest() {
            return Err(Reason::IdRefused);
        }
        if !src.is_none() {
            self.other_id = src;
        }
        // A guest is checked by the id that it is given.
        if !settings.accept.iter().any(|range| range.contains(self.other_id)) {
            return Err(Reason::IdRefused);
        }
        self.note(&frame.head, frame.body);
        let mut body = Vec::new();
        let mut writer = Writer::new(&mut body);
        writer.u8(VERSION);
        let nonce = self.nonce;
        writer.raw(&nonce);
        settings.windows.iter().for_each(|window| writer.u32(*window));
        let dst = self.other_id;
        self.say(out, Kind::Challenge, dst, &body, body.len());
        self.state = State::AwaitRegister;
        Ok(Progress::Going)
    }

    fn on_challenge(
        &mut self,
        frame: &Frame<'_>,
        settings: &Settings,
        out: &mut Vec<u8>,
    ) -> Result<Progress, Reason> {
        let mut from = Reader::new(frame.body);
        if from.u8() != Some(VERSION) {
            return Err(Reason::Version);
        }
        from.take(32).ok_or(Reason::Malformed)?;
        self.windows = read_windows(&mut from).ok_or(Reason::Malformed)?;
        from.end().ok_or(Reason::Malformed)?;
        let Head { src, dst, .. } = frame.head;
        if src.is_none() || (!self.other_id.is_none() && src != self.other_id) {
            return Err(Reason::IdMismatch);
        }
        if src == self.our_id {
            return Err(Reason::OwnId);
        }
        if let Some(vouch) = &self.vouch {
            vouch.check(src)?;
        }
        self.other_id = src;
        match self.our_id.is_none() {
            true if dst.is_guest() => self.our_id = dst,
            false if dst == self.our_id => {}
            _ => return Err(Reason::IdMismatch),
        }
        self.note(&frame.head, frame.body);
        let mut body = own_identity(settings, self.our_id);
        let len = body.len();
        self.note(&Head::plain(Kind::Register, self.our_id, src), &body);
        let proofs = settings.tokens.proofs(Side::Dialler, &self.transcript.digest());
        body.push(proofs.len() as u8);
        body.extend(proofs.concat());
        debug_assert!(len < body.len());
        append(out, &Head::plain(Kind::Register, self.our_id, src), &[], [&body, &[]]);
        self.state = State::RegisterSent;
        Ok(Progress::Going)
    }

    fn on_register(&mut self, frame: &Frame<'_>, settings: &Settings) -> Result<Progress, Reason> {
        if frame.head.src != self.other_id || frame.head.dst != self.our_id {
            return Err(Reason::IdMismatch);
        }
        let (identity, proofs) = self.read_identity(frame)?;
        if proofs.len() > TOKENS_MAX * PROOF_LEN {
            return Err(Reason::Malformed);
        }
        let tokens = &settings.tokens;
        let token = tokens.matching(Side::Dialler, &self.transcript.digest(), proofs);
        if token.is_none() && !tokens.is_empty() && self.vouch.is_none() {
            return Err(Reason::Denied);
        }
        self.state = State::Deciding(token);
        Ok(Progress::Asked(identity))
    }

    /// Reads and notes the identity in a body. Returns it and the proofs after it.
    fn read_identity<'a>(&mut self, frame: &Frame<'a>) -> Result<(Identity, &'a [u8]), Reason> {
        let mut from = Reader::new(frame.body);
        let identity = Identity::read(frame.head.src, &mut from).ok_or(Reason::Malformed)?;
        let len = frame.body.len() - from.rest().len();
        let count = usize::from(from.u8().ok_or(Reason::Malformed)?);
        let proofs = from.rest();
        if proofs.len() != count * PROOF_LEN {
            return Err(Reason::Malformed);
        }
        self.note(&frame.head, &frame.body[..len]);
        Ok((identity, proofs))
    }

    /// Accepts the dialler.
    pub fn welcome(&mut self, settings: &Settings, out: &mut Vec<u8>) {
        let State::Deciding(token) = self.state else { return };
        let mut body = own_identity(settings, self.our_id);
        let head = Head::plain(Kind::Welcome, self.our_id, self.other_id);
        self.note(&head, &body);
        match token {
            Some(at) => {
                body.push(1);
                let digest = self.transcript.digest();
                body.extend(settings.tokens.proof_by(at, Side::Acceptor, &digest));
            }
            None => body.push(0),
        }
        append(out, &head, &[], [&body, &[]]);
        self.state = State::Done;
    }

    fn on_welcome(&mut self, frame: &Frame<'_>, settings: &Settings) -> Result<Progress, Reason> {
        if frame.head.src != self.other_id || frame.head.dst != self.our_id {
            return Err(Reason::IdMismatch);
        }
        let (identity, proofs) = self.read_identity(frame)?;
        let tokens = &settings.tokens;
        let is_proved =
            tokens.matching(Side::Acceptor, &self.transcript.digest(), proofs).is_some();
        if !is_proved && !tokens.is_empty() && self.vouch.is_none() {
            return Err(Reason::Unproven);
        }
        self.state = State::Done;
        Ok(Progress::Welcome(identity))
    }
}

fn own_identity(settings: &Settings, id: NodeId) -> Vec<u8> {
    let identity = Identity {
        id,
        incarnation: settings.incarnation,
        place: settings.place,
        labels: settings.labels.clone(),
        urls: settings.urls.clone(),
    };
    let mut body = Vec::new();
    identity.write(&mut Writer::new(&mut body));
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Parsed, STRANGER_BODY_MAX, parse};

    #[test]
    fn windows_that_no_frame_fits_in_are_refused() {
        let windows = |len: u32| {
            let bytes: Vec<u8> =
                [WINDOW_MIN, len, WINDOW_MAX].iter().flat_map(|len| len.to_le_bytes()).collect();
            read_windows(&mut Reader::new(&bytes)).is_some()
        };
        assert!(windows(WINDOW_MIN) && windows(WINDOW_MAX));
        assert!(!windows(0) && !windows(WINDOW_MIN - 1) && !windows(WINDOW_MAX + 1));
    }

    const TOKEN: &str = "a token that is long enough";

    fn settings(id: u64, tokens: &[&str]) -> Settings {
        let mut settings = Settings::of(NodeId(id));
        tokens.iter().for_each(|token| settings.tokens.add(token.as_bytes()).unwrap());
        settings.labels.set("rack", "b1").unwrap();
        settings.urls = vec!["tcp://127.0.0.1:1".parse().unwrap()];
        settings
    }

    fn line(nonce: u8) -> Line {
        Line { binding: b"tcp".to_vec(), nonce: [nonce; 32], ..Line::default() }
    }

    /// A registration: the result of each side, and everything that was sent.
    struct Run {
        dialler: Result<Option<Identity>, Reason>,
        acceptor: Result<Option<Identity>, Reason>,
        said: Vec<Vec<u8>>,
    }

    fn step(
        handshake: &mut Handshake,
        settings: &Settings,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Identity>, Reason> {
        let Ok(Parsed::Frame(frame)) = parse(bytes, STRANGER_BODY_MAX) else {
            return Err(Reason::NoFrame);
        };
        Ok(match handshake.handle(&frame, settings, out)? {
            Progress::Going => None,
            Progress::Asked(identity) => {
                handshake.welcome(settings, out);
                Some(identity)
            }
            Progress::Welcome(identity) => Some(identity),
        })
    }

    fn run(dialler: (&Settings, Line), acceptor: (&Settings, Line), expected: NodeId) -> Run {
        let mut out = Vec::new();
        let guest = NodeId::guest(acceptor.0.id, 77);
        let mut d = Handshake::dial(
            dialler.0,
            dialler.0.id,
            &dialler.1,
            expected,
            Relation::Child,
            &mut out,
        );
        let mut a = Handshake::accept(acceptor.0.id, &acceptor.1, guest);
        let mut run = Run { dialler: Ok(None), acceptor: Ok(None), said: Vec::new() };
        for turn in 0..4 {
            let bytes = std::mem::take(&mut out);
            if bytes.is_empty() {
                break;
            }
            run.said.push(bytes.clone());
            match turn % 2 {
                0 => run.acceptor = step(&mut a, acceptor.0, &bytes, &mut out),
                _ => run.dialler = step(&mut d, dialler.0, &bytes, &mut out),
            }
        }
        run
    }

    #[test]
    fn two_that_know_a_token_let_each_other_in() {
        let (child, root) =
            (settings(2, &["a newer token, long enough", TOKEN]), settings(1, &[TOKEN]));
        let run = run((&child, line(1)), (&root, line(2)), NodeId(1));
        let seen = run.acceptor.unwrap().unwrap();
        assert_eq!((seen.id, seen.labels.get("rack"), seen.urls.len()), (NodeId(2), Some("b1"), 1));
        assert_eq!(run.dialler.unwrap().unwrap().id, NodeId(1));
    }

    #[test]
    fn each_side_finds_out_one_that_does_not() {
        let other = ["another token, long enough"];
        let root = settings(1, &[TOKEN]);
        let denied = run((&settings(2, &other), line(1)), (&root, line(2)), NodeId::NONE);
        assert_eq!(denied.acceptor, Err(Reason::Denied));
        let denied = run((&settings(2, &[]), line(1)), (&root, line(2)), NodeId::NONE);
        assert_eq!(denied.acceptor, Err(Reason::Denied));
        // An acceptor without tokens accepts any dialler, and cannot prove itself.
        let unproven =
            run((&settings(2, &[TOKEN]), line(1)), (&settings(1, &[]), line(2)), NodeId::NONE);
        assert_eq!(unproven.dialler, Err(Reason::Unproven));
        let open = run((&settings(2, &[]), line(1)), (&settings(1, &[]), line(2)), NodeId::NONE);
        assert!(matches!(open.dialler, Ok(Some(_))));
    }

    #[test]
    fn a_proof_is_bound_to_its_channel() {
        let (child, root) = (settings(2, &[TOKEN]), settings(1, &[TOKEN]));
        let tls =
            |secret: u8| Line { binding: vec![secret; 32], nonce: [secret; 32], ..Line::default() };
        let run = run((&child, tls(1)), (&root, tls(2)), NodeId(1));
        assert_eq!(run.acceptor, Err(Reason::Denied));
    }

    #[test]
    fn a_certificate_lets_in_the_id_it_is_made_out_to_and_no_other() {
        let certified = |secret: u8, id: u64| Line {
            vouch: Some(Vouch::new(move |other| other == NodeId(id))),
            ..line(secret)
        };
        // Neither knows a token of the other; certificates are enough.
        let (child, root) = (settings(2, &[TOKEN]), settings(1, &["another token, long enough"]));
        let both = run((&child, certified(1, 1)), (&root, certified(2, 2)), NodeId(1));
        assert!(matches!(both.dialler, Ok(Some(_))) && matches!(both.acceptor, Ok(Some(_))));
        let thief = run((&child, certified(1, 1)), (&root, certified(2, 3)), NodeId(1));
        assert_eq!(thief.acceptor, Err(Reason::CertificateName));
        let liar = run((&child, certified(1, 9)), (&root, certified(2, 2)), NodeId::NONE);
        assert_eq!(liar.dialler, Err(Reason::CertificateName));
        // A guest's certificate is not a node's, and a node's is not a guest's.
        let guest = settings(0, &[]);
        let as_guest = run((&guest, certified(1, 1)), (&root, certified(2, 0)), NodeId(1));
        assert!(matches!(as_guest.dialler, Ok(Some(_))));
        let as_node = run((&guest, certified(1, 1)), (&root, certified(2, 2)), NodeId(1));
        assert_eq!(as_node.acceptor, Err(Reason::CertificateName));
    }

    #[test]
    fn what_was_said_once_lets_nobody_in_again() {
        let (child, root) = (settings(2, &[TOKEN]), settings(1, &[TOKEN]));
        let good = run((&child, line(1)), (&root, line(2)), NodeId(1));
        assert!(good.acceptor.is_ok());
        // On another connection, with another nonce of the acceptor, the dialler's frames are
        // replayed.
        let mut again = Handshake::accept(root.id, &line(3), NodeId::guest(root.id, 1));
        let mut out = Vec::new();
        step(&mut again, &root, &good.said[0], &mut out).unwrap();
        assert_eq!(step(&mut again, &root, &good.said[2], &mut out), Err(Reason::Denied));
        // The acceptor's frames are replayed to a dialler with another nonce.
        let mut out = Vec::new();
        let mut dialler =
            Handshake::dial(&child, child.id, &line(4), NodeId(1), Relation::Child, &mut out);
        step(&mut dialler, &child, &good.said[1], &mut out).unwrap();
        assert_eq!(step(&mut dialler, &child, &good.said[3], &mut out), Err(Reason::Unproven));
    }

    #[test]
    fn no_bit_of_a_registration_can_be_changed() {
        let (child, root) = (settings(2, &[TOKEN]), settings(1, &[TOKEN]));
        let good = run((&child, line(1)), (&root, line(2)), NodeId(1));
        let register = &good.said[2];
        // The proof is at the end, and covers every bit of the body before it. The checksum is
        // computed anew, as an attacker would do.
        for at in 0..(register.len() - crate::frame::HEAD_LEN) {
            let mut a = Handshake::accept(root.id, &line(2), NodeId::guest(root.id, 1));
            let mut out = Vec::new();
            step(&mut a, &root, &good.said[0], &mut out).unwrap();
            let Ok(Parsed::Frame(frame)) = parse(register, STRANGER_BODY_MAX) else { panic!() };
            let mut body = frame.body.to_vec();
            body[at] ^= 1;
            let mut bent = Vec::new();
            append(&mut bent, &frame.head, &[], [&body, &[]]);
            assert!(step(&mut a, &root, &bent, &mut out).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_guest_gets_an_id_and_nobody_takes_one() {
        let (guest, root) = (settings(0, &[TOKEN]), settings(1, &[TOKEN]));
        let run_guest = run((&guest, line(1)), (&root, line(2)), NodeId::NONE);
        assert!(run_guest.acceptor.unwrap().unwrap().id.is_guest());
        let mut thief = settings(2, &[TOKEN]);
        thief.id = NodeId::guest(NodeId(1), 5);
        assert_eq!(
            run((&thief, line(1)), (&root, line(2)), NodeId::NONE).acceptor,
            Err(Reason::IdRefused)
        );
    }

    #[test]
    fn ids_that_are_not_meant_are_refused() {
        let (child, mut root) = (settings(2, &[]), settings(1, &[]));
        assert_eq!(
            run((&child, line(1)), (&root, line(2)), NodeId(9)).acceptor,
            Err(Reason::IdMismatch)
        );
        let double = settings(1, &[]);
        assert_eq!(
            run((&double, line(1)), (&root, line(2)), NodeId::NONE).acceptor,
            Err(Reason::OwnId)
        );
        root.accept = vec!["z1.proxy".parse().unwrap()];
        assert_eq!(
            run((&child, line(1)), (&root, line(2)), NodeId::NONE).acceptor,
            Err(Reason::IdRefused)
        );
    }
}
