//! PSYNC's handshake: a primary that answers with any bytes, and a replica that
//! asks with any. Neither end panics, pieces do not matter, and a replica that
//! goes on does so where both ends say it is.

use crate::Choices;
use keyway_rdb::replication::{
    Answer, Body, Decision, HandshakeEvent, HandshakeFault, HandshakeStep, History,
    ReplicaHandshake, ReplicaProfile, ReplicaSettings, ReplicationId, Request, Resume,
    TransferStep, write_continue, write_full_resync, write_length, write_mark,
};

/// Words that mean something to either end.
const WORDS: [&[u8]; 16] = [
    b"listening-port",
    b"6380",
    b"capa",
    b"eof",
    b"psync2",
    b"ack",
    b"fack",
    b"9223372036854775807",
    b"version",
    b"9.0.0",
    b"rdb-only",
    b"1",
    b"ip-address",
    b"getack",
    b"rdb-filter-only",
    b"functions",
];

/// The mark behind a snapshot, which is not one by chance here.
const MARK: [u8; 40] = [0x1a; 40];

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    if choices.flip() {
        answered_by_anyone(&mut choices);
    } else {
        both_ends(&mut choices);
    }
}

fn id(choices: &mut Choices<'_>) -> ReplicationId {
    ReplicationId::of_random([choices.byte() & 1; 20])
}

fn settings(choices: &mut Choices<'_>) -> ReplicaSettings {
    let text = |is_there: bool| is_there.then(|| "x".to_owned());
    let resume = choices.flip();
    let id = id(choices);
    ReplicaSettings {
        username: text(choices.flip()),
        password: text(choices.flip()),
        listening_port: choices.flip().then_some(6380),
        address: text(choices.flip()),
        version: text(choices.flip()),
        resume: resume.then(|| Resume { id, offset: choices.byte().into() }),
        hands_over: choices.flip(),
        knows_flags: choices.flip(),
        node: choices.flip().then_some(id),
    }
}

fn answered_by_anyone(choices: &mut Choices<'_>) {
    let settings = settings(choices);
    let size = choices.pick(&[1, 5, 60]);
    let mut answers = Vec::new();
    for _ in 0..choices.below(8) {
        answers.extend_from_slice(choices.pick(&[
            &b"+PONG\r\n"[..],
            b"+OK\r\n",
            b"\n",
            b"-ERR no\r\n",
            b"+CONTINUE\r\n",
            b"$5\r\n",
            b"+FULLRESYNC 0123456789012345678901234567890123456789 7\r\n",
            b"$EOF:0123456789012345678901234567890123456789\r\n",
            b"-LOADING\r\n",
        ]));
    }
    answers.extend_from_slice(choices.rest());
    let at_once = hear(&settings, &answers, answers.len().max(1));
    assert_eq!(hear(&settings, &answers, size), at_once, "pieces of {size}");
}

/// Events and bytes of a snapshot, from answers in pieces of `size`.
fn hear(
    settings: &ReplicaSettings,
    answers: &[u8],
    size: usize,
) -> Result<(Vec<HandshakeEvent>, Vec<u8>), HandshakeFault> {
    let mut handshake = ReplicaHandshake::new(settings.clone());
    let (mut kept, mut events, mut snapshot) = (Vec::new(), Vec::new(), Vec::new());
    let (mut transfer, mut is_over) = (None, false);
    for piece in answers.chunks(size) {
        kept.extend_from_slice(piece);
        while transfer.is_none() && !is_over {
            let mut sent = Vec::new();
            handshake.take_output(&mut sent);
            match handshake.read(&kept)? {
                HandshakeStep::Event { consumed, event } => {
                    kept.drain(..consumed);
                    match &event {
                        HandshakeEvent::Snapshot(found) => transfer = Some(found.clone()),
                        HandshakeEvent::Continue { .. } => is_over = true,
                        _ => {}
                    }
                    events.push(event);
                }
                HandshakeStep::More { consumed } => {
                    kept.drain(..consumed);
                    break;
                }
            }
        }
        while let Some(found) = &mut transfer {
            match found.read(&kept) {
                TransferStep::Data { len } => snapshot.extend(kept.drain(..len)),
                TransferStep::More { at_least } => {
                    assert!(at_least > kept.len());
                    break;
                }
                TransferStep::End { .. } => break,
            }
        }
    }
    Ok((events, snapshot))
}

fn both_ends(choices: &mut Choices<'_>) {
    let mut profile = ReplicaProfile::default();
    for _ in 0..choices.below(6) {
        let words: Vec<&[u8]> = (0..choices.below(6))
            .map(|_| if choices.flip() { choices.pick(&WORDS) } else { choices.bytes(8) })
            .collect();
        let before = profile.acknowledged();
        let answer = profile.replconf(&words);
        assert!(profile.acknowledged() >= before, "an offset went back");
        assert!(answer == Ok(Answer::Acknowledged) || profile.acknowledged() == before);
    }
    let history = History::new(id(choices), choices.byte().into(), choices.byte().into())
        .with_second(id(choices), choices.byte().into());
    let settings = settings(choices);
    let (id, next) = match settings.resume {
        Some(resume) => (resume.id.to_string(), (resume.offset + 1).to_string()),
        None => ("?".to_owned(), "-1".to_owned()),
    };
    let request = Request::parse(&[id.as_bytes(), next.as_bytes()]).expect("a request");
    let mut answers = b"+PONG\r\n".to_vec();
    let replies = 1
        + usize::from(settings.password.is_some())
        + usize::from(settings.listening_port.is_some())
        + usize::from(settings.address.is_some())
        + usize::from(settings.version.is_some());
    answers.extend_from_slice(&b"+OK\r\n".repeat(replies));
    let decision = history.decide(&request);
    let snapshot = choices.rest();
    match decision {
        Decision::Continue { .. } => write_continue(&history, &profile, &mut answers),
        Decision::Full(_) => {
            write_full_resync(&history.id(), history.end(), &mut answers);
            if profile.takes_mark() {
                write_mark(&MARK, &mut answers);
                answers.extend_from_slice(snapshot);
                answers.extend_from_slice(&MARK);
            } else {
                write_length(snapshot.len() as u64, &mut answers);
                answers.extend_from_slice(snapshot);
            }
        }
    }
    let (events, received) = hear(&settings, &answers, 7).expect("two ends that agree");
    match (decision, &events[..]) {
        (Decision::Continue { offset }, [HandshakeEvent::Continue { offset: told, .. }]) => {
            assert_eq!(Some(offset), settings.resume.map(|resume| resume.offset));
            assert_eq!(offset, *told);
        }
        (
            Decision::Full(_),
            [HandshakeEvent::Full { id, offset }, HandshakeEvent::Snapshot(end)],
        ) => {
            assert_eq!((*id, *offset), (history.id(), history.end()));
            let is_marked = matches!(end.body(), Body::Mark(_));
            assert!(received == snapshot || (is_marked && holds_mark(snapshot)));
        }
        other => panic!("{other:?}"),
    }
}

/// Whether the mark begins in a snapshot, so that it ends there.
fn holds_mark(snapshot: &[u8]) -> bool {
    snapshot.ends_with(&MARK[..1]) || snapshot.windows(MARK.len()).any(|bytes| bytes == MARK)
}
