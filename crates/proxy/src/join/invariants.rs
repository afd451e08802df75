//! Laws of joins: whatever servers answer, and in whichever order, the reply is that of a plain
//! implementation of the rule. Also what unused joins hold.

use super::*;
use keyway_base::{BackendFault, Sent};
use proptest::prelude::*;

const NAMES: [&str; 11] = ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10"];

const RULES: [Rule; 11] = [
    Rule::Array,
    Rule::Sum,
    Rule::AllOk,
    Rule::Concat,
    Rule::Same,
    Rule::AllOnes,
    Rule::Max,
    Rule::Min,
    Rule::Each,
    Rule::Union,
    Rule::Counts,
];

/// Complete elements of arrays, of either version of RESP.
const ELEMENTS: [&str; 8] = [
    "$1\r\na\r\n",
    "$-1\r\n",
    ":7\r\n",
    "*2\r\n:1\r\n*1\r\n+x\r\n",
    "_\r\n",
    "$4\r\n\r\n\r\n\r\n",
    "%1\r\n+k\r\n:1\r\n",
    "*0\r\n",
];

const TIMEOUT: Fault = Fault::Backend { fault: BackendFault::Timeout, sent: Sent::Maybe };
const CONNECT: Fault = Fault::Backend { fault: BackendFault::Connect, sent: Sent::No };
const PROTOCOL: Fault = Fault::Backend { fault: BackendFault::Protocol, sent: Sent::Maybe };

/// The end of a fragment.
#[derive(Clone, Debug)]
enum End {
    Fine,
    Refused(String),
    Fault(Fault),
    /// A reply of the wrong form.
    Wrong(usize),
}

/// A fragment, with numbers from which its reply is created.
#[derive(Clone, Debug)]
struct Part {
    backend: u16,
    keys: u32,
    end: End,
    numbers: [i64; 3],
}

#[derive(Clone, Debug)]
struct Case {
    rule: Rule,
    is_whole: bool,
    /// Number of elements of replies whose length all servers share.
    len: usize,
    parts: Vec<Part>,
    certain: Vec<bool>,
    /// For each reply, the number that picks its fragment among those that remain.
    turns: Vec<usize>,
}

fn ends() -> impl Strategy<Value = End> {
    let texts = [
        "ERR no".to_owned(),
        "OOM full".to_owned(),
        "LOADING".to_owned(),
        "UNBLOCKED by somebody".to_owned(),
        format!("ERR {}", "ü".repeat(300)),
        format!("BUSY {}", "ü".repeat(301)),
    ];
    prop_oneof![
        4 => Just(End::Fine),
        1 => proptest::sample::select(texts.to_vec()).prop_map(End::Refused),
        1 => proptest::sample::select(vec![TIMEOUT, CONNECT, PROTOCOL]).prop_map(End::Fault),
        1 => (0..8_usize).prop_map(End::Wrong),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let number = prop_oneof![8 => 0..4_i64, 1 => -3..0_i64, 1 => Just(i64::MAX)];
    let part = (0..11_u16, 1..4_u32, ends(), [number.clone(), number.clone(), number]);
    let part = part.prop_map(|(backend, keys, end, numbers)| Part { backend, keys, end, numbers });
    // Every third case is without failures. Otherwise replies of many servers would rarely occur.
    let parts = (0..3_u8, proptest::collection::vec(part, 1..16)).prop_map(|(calm, mut parts)| {
        parts.iter_mut().filter(|_| calm == 0).for_each(|part| part.end = End::Fine);
        parts.iter_mut().filter(|_| calm == 1).for_each(|part| {
            if matches!(part.end, End::Fine) {
                part.end = End::Refused("ERR no".into());
            }
        });
        parts
    });
    (
        proptest::sample::select(RULES.to_vec()),
        any::<bool>(),
        1..4_usize,
        parts,
        proptest::collection::vec(any::<bool>(), 0..4),
        proptest::collection::vec(any::<usize>(), 16),
    )
        .prop_map(|(rule, is_whole, len, parts, certain, turns)| Case {
            rule,
            is_whole,
            len,
            parts,
            certain,
            turns,
        })
}

fn array_of(elements: &[String]) -> String {
    format!("*{}\r\n{}", elements.len(), elements.concat())
}

/// Returns the elements of the fragment's reply, if it is an array.
fn elements_of(case: &Case, part: &Part) -> Vec<String> {
    let number = |at: usize| part.numbers[at % 3];
    let any = |at: usize| ELEMENTS[(number(at).unsigned_abs() % 8) as usize].to_owned();
    match case.rule {
        Rule::Array => (0..part.keys as usize).map(any).collect(),
        // The count has one digit or two.
        Rule::Concat | Rule::Union => {
            (0..[0, 1, 2, 12][number(0).unsigned_abs() as usize % 4]).map(any).collect()
        }
        Rule::Counts => {
            let pair = |at: usize| [format!("$1\r\n{at}\r\n"), format!(":{}\r\n", number(at))];
            (0..case.len).flat_map(pair).collect()
        }
        Rule::AllOnes => (0..case.len).map(|at| format!(":{}\r\n", number(at) & 1)).collect(),
        _ => Vec::new(),
    }
}

fn fine_reply(case: &Case, part: &Part) -> (Kind, String) {
    let number = part.numbers[0];
    let is_even = number % 2 == 0;
    match case.rule {
        Rule::Sum | Rule::Max | Rule::Min => (Kind::Integer, format!(":{number}\r\n")),
        Rule::AllOk => (Kind::Simple, "+OK\r\n".to_owned()),
        Rule::Same if case.len == 1 => (Kind::Simple, "+same\r\n".to_owned()),
        Rule::Same => (Kind::Bulk, "$4\r\nsame\r\n".to_owned()),
        Rule::Each if is_even => (Kind::Bulk, format!("$6\r\na\r\nb:{}\r\n", number & 1)),
        Rule::Each => (Kind::Verbatim, "=8\r\ntxt:a\r\nb\r\n".to_owned()),
        _ => (Kind::Array, array_of(&elements_of(case, part))),
    }
}

/// Returns a reply that the rule cannot use.
fn wrong_reply(case: &Case, part: &Part, nth: usize) -> (Kind, String) {
    let mut elements = elements_of(case, part);
    match (case.rule, nth) {
        (Rule::Sum | Rule::Max | Rule::Min, 0..4) => (Kind::Integer, ":x\r\n".to_owned()),
        (Rule::Array, 0..4) => {
            elements.push(ELEMENTS[nth].to_owned());
            (Kind::Array, array_of(&elements))
        }
        (Rule::Array, 4) => (Kind::Array, array_of(&elements[1..])),
        (Rule::Array, 5) => (Kind::Array, array_of(&elements) + ":1\r\n"),
        (Rule::AllOnes, 0) => (Kind::Array, array_of(&elements) + ":1\r\n"),
        (Rule::AllOnes, 1) => (Kind::Array, array_of(&elements[1..]) + ":2\r\n"),
        (Rule::AllOnes, 2) => (Kind::Array, array_of(&elements) + "_\r\n"),
        (Rule::AllOnes, 3) => {
            elements[0] = ":2\r\n".to_owned();
            (Kind::Array, array_of(&elements))
        }
        (Rule::Union | Rule::Counts, 0..4) => (Kind::Array, "*1\r\n".to_owned()),
        (Rule::Same, 0..4) => (Kind::Array, array_of(&[])),
        _ => (Kind::Null, "_\r\n".to_owned()),
    }
}

fn describe(backend: u16, fault: Fault) -> String {
    format!("{backend} {fault:?}")
}

fn cut(text: &str) -> String {
    let cut: String = text.chars().take(300).collect();
    if cut == text { cut } else { cut + "..." }
}

/// Returns the failure of a fragment.
fn failure(part: &Part) -> Option<Result<Fault, &str>> {
    match &part.end {
        End::Fine => None,
        End::Refused(text) => Some(Err(text)),
        End::Fault(fault) => Some(Ok(*fault)),
        End::Wrong(_) => Some(Ok(PROTOCOL)),
    }
}

fn expected_error(case: &Case) -> String {
    let failed: Vec<&Part> = case.parts.iter().filter(|part| failure(part).is_some()).collect();
    let text_of = |part: &Part| failure(part).and_then(Result::err).map(str::to_owned);
    let first = text_of(&case.parts[0]);
    if case.is_whole && first.is_some() && case.parts.iter().all(|part| text_of(part) == first) {
        return format!("-{}\r\n", first.unwrap_or_default());
    }
    let mut servers: Vec<u16> = Vec::new();
    for part in &failed {
        if !servers.contains(&part.backend) {
            servers.push(part.backend);
        }
    }
    let mut code = "ERR".to_owned();
    let mut told = Vec::new();
    for &server in servers.iter().take(8) {
        let of_server = || failed.iter().filter(|part| part.backend == server);
        let keys: u32 = of_server().map(|part| part.keys).sum();
        let words = match of_server().next().and_then(|part| failure(part)) {
            Some(Err(text)) => {
                let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
                code = if code == "ERR" { word.to_owned() } else { code };
                rest.to_owned()
            }
            Some(Ok(fault)) => describe(server, fault),
            None => unreachable!("it has failed"),
        };
        let of = if case.is_whole { String::new() } else { format!(" ({keys} of the keys)") };
        told.push(format!("{}{of}: {}", NAMES[server as usize], cut(&words)));
    }
    if servers.len() > 8 {
        told.push(format!("and {} more", servers.len() - 8));
    }
    let rest = match (case.rule, case.is_whole) {
        _ if failed.len() == case.parts.len() => "",
        (Rule::AllOk, false) => "; the other keys were written",
        (Rule::Sum, false) => "; done for the other keys",
        (Rule::AllOk | Rule::Same, true) => "; done on the other servers",
        (_, false) => "; nothing is returned for the other keys",
        (_, true) => "; nothing is returned for the other servers",
    };
    let asked: std::collections::BTreeSet<u16> =
        case.parts.iter().map(|part| part.backend).collect();
    format!(
        "-{code} MSET X failed on {} of {} servers: {}{rest}\r\n",
        servers.len(),
        asked.len(),
        told.join("; ")
    )
}

/// Returns the expected reply, with the fragments answered in this order.
fn expected(case: &Case, order: &[usize]) -> String {
    let fine = || case.parts.iter().filter(|part| failure(part).is_none());
    let refusals = case.parts.iter().filter_map(|part| failure(part)?.err());
    let ended = refusals.into_iter().find(|text| text.starts_with("UNBLOCKED"));
    if let (Rule::Min, Some(text)) = (case.rule, ended) {
        return format!("-{text}\r\n");
    }
    let is_away = |part: &Part| matches!(failure(part), None | Some(Ok(TIMEOUT | CONNECT)));
    let is_agreed = case.rule == Rule::Same && fine().count() > 0 && case.parts.iter().all(is_away);
    if fine().count() < case.parts.len() && !is_agreed {
        return expected_error(case);
    }
    // A sum that reaches the largest number depends on the order.
    let numbers = || order.iter().map(|&at| case.parts[at].numbers[0]);
    let elements = |part| elements_of(case, part);
    match case.rule {
        Rule::Sum => format!(":{}\r\n", numbers().fold(0, i64::saturating_add)),
        Rule::Max => format!(":{}\r\n", numbers().fold(0, i64::max)),
        Rule::Min => format!(":{}\r\n", numbers().fold(i64::MAX, i64::min)),
        Rule::AllOk => "+OK\r\n".to_owned(),
        Rule::Same => fine().map(|part| fine_reply(case, part).1).next().unwrap_or_default(),
        Rule::Each => String::new(),
        Rule::Array => array_of(&case.parts.iter().flat_map(elements).collect::<Vec<_>>()),
        Rule::Concat => {
            array_of(&order.iter().flat_map(|&at| elements(&case.parts[at])).collect::<Vec<_>>())
        }
        Rule::Union => {
            let all: std::collections::BTreeSet<String> =
                case.parts.iter().flat_map(elements).collect();
            array_of(&all.into_iter().collect::<Vec<_>>())
        }
        Rule::Counts => {
            let pair = |at: usize| {
                let sum = order.iter().map(|&part| case.parts[part].numbers[at % 3]);
                let sum = sum.fold(0, i64::saturating_add);
                [format!("$1\r\n{at}\r\n"), format!(":{sum}\r\n")]
            };
            array_of(&(0..case.len).flat_map(pair).collect::<Vec<_>>())
        }
        Rule::AllOnes => {
            let one = |at: usize| {
                let all = case.parts.iter().all(|part| part.numbers[at % 3] & 1 == 1);
                let is_one = all || case.certain.get(at) == Some(&true);
                format!(":{}\r\n", u8::from(is_one))
            };
            array_of(&(0..case.len).map(one).collect::<Vec<_>>())
        }
    }
}

/// Runs the case on a join. Returns the order in which the fragments were answered.
fn play(case: &Case, join: &mut Join) -> Vec<usize> {
    join.restart(case.rule);
    (join.command, join.is_whole) = ("mset|x", case.is_whole);
    join.certain.clone_from(&case.certain);
    for (at, part) in case.parts.iter().enumerate() {
        assert_eq!(join.add_fragment(part.backend, part.keys), at as u16);
        (0..part.keys).for_each(|_| join.add_owner(at as u16));
    }
    let mut left: Vec<usize> = (0..case.parts.len()).collect();
    let mut order = Vec::new();
    for turn in &case.turns {
        if left.is_empty() {
            break;
        }
        let at = left.remove(turn % left.len());
        let part = &case.parts[at];
        let (kind, bytes) = match &part.end {
            End::Fine => fine_reply(case, part),
            End::Wrong(nth) => wrong_reply(case, part, *nth),
            End::Refused(text) => (Kind::Error, format!("-{text}\r\n")),
            End::Fault(_) => (Kind::Null, String::new()),
        };
        let is_last = match part.end {
            End::Fault(fault) => join.on_fault(at as u16, fault),
            _ => join.on_reply(at as u16, kind, bytes.as_bytes()),
        };
        assert_eq!(is_last, left.is_empty());
        // A fragment ends only once: a later fault changes nothing.
        assert_eq!(join.on_fault(at as u16, TIMEOUT), left.is_empty());
        order.push(at);
    }
    order
}

fn check(case: &Case, join: &mut Join) {
    let order = play(case, join);
    let first_fault = case.parts.iter().find_map(|part| failure(part)?.ok());
    assert_eq!(join.fault(), first_fault);
    let is_refused = case.parts.iter().any(|part| matches!(part.end, End::Refused(_)));
    assert_eq!(join.has_errors(), is_refused);
    let mut reply = Vec::new();
    join.write_reply(&mut reply, |server| NAMES[server as usize], describe);
    let (reply, expected) = (String::from_utf8_lossy(&reply).into_owned(), expected(case, &order));
    assert_eq!(reply, expected);
    let is_agreed = case.rule == Rule::Same && !expected.starts_with('-');
    assert_eq!(join.agreed(), is_agreed.then_some(&b"same"[..]));
    if case.rule == Rule::Each {
        for ((backend, answer), part) in join.answers().zip(&case.parts) {
            assert_eq!(backend, part.backend);
            let text = format!("a\r\nb:{}", part.numbers[0] & 1);
            let is_even = part.numbers[0] % 2 == 0;
            let text = if is_even { text } else { "a\r\nb".to_owned() };
            let expected = match failure(part) {
                None => Ok(text.as_bytes()),
                Some(Ok(fault)) => Err(NoAnswer::Fault(fault)),
                Some(Err(text)) => Err(NoAnswer::Refused(text.as_bytes())),
            };
            assert_eq!(answer, expected);
        }
        assert_eq!(join.answers().count(), case.parts.len());
    }
}

/// Returns a configuration with eight times the usual number of cases, because there are many
/// rules.
fn many() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: 8 * usual.cases, ..usual }
}

proptest! {
    #![proptest_config(many())]

    /// The second case uses the buffers of the first.
    #[test]
    fn a_join_replies_as_its_rule_says(first in cases(), second in cases()) {
        let mut pool = JoinPool::default();
        for case in [&first, &second] {
            let mut join = pool.take();
            check(case, &mut join);
            pool.give(join);
        }
    }
}

#[test]
fn a_buffer_above_its_bound_is_given_back_and_one_at_the_bound_is_kept() {
    for (bytes, is_kept) in [(KEPT_MAX, true), (KEPT_MAX + 8, false)] {
        let join = Join {
            owners: Vec::with_capacity(bytes / 2),
            bytes: Vec::with_capacity(bytes),
            ends: Vec::with_capacity(bytes / size_of::<usize>()),
            ..Join::default()
        };
        let mut pool = JoinPool::default();
        pool.give(Box::new(join));
        let join = pool.take();
        assert_eq!(join.owners.capacity() > 0, is_kept);
        assert_eq!(join.bytes.capacity() > 0, is_kept);
        assert_eq!(join.ends.capacity() > 0, is_kept);
        assert_eq!(pool.held, 0);
    }
    assert_eq!([KEPT_MAX, POOL_KEPT_MAX], [16_384, 2_097_152]);
}

#[test]
fn what_a_join_holds_is_the_sum_of_its_buffers() {
    let join = Join {
        owners: Vec::with_capacity(3),
        fragments: Vec::with_capacity(5),
        certain: Vec::with_capacity(7),
        bytes: Vec::with_capacity(11),
        ends: Vec::with_capacity(13),
        errors: Vec::with_capacity(17),
        ..Join::default()
    };
    let buffers = 3 * 2 + 5 * size_of::<Fragment>() + 7 + 11 + 13 * size_of::<usize>() + 17;
    assert_eq!(join.held(), size_of::<Join>() + buffers);
}

#[test]
fn a_pool_keeps_as_many_joins_and_bytes_as_its_bounds_allow() {
    let mut small = JoinPool::default();
    (0..POOL_JOINS_MAX + 3).for_each(|_| small.give(Box::default()));
    assert_eq!(small.free.len(), POOL_JOINS_MAX);
    assert_eq!(small.held, POOL_JOINS_MAX * size_of::<Join>());
    let mut large = JoinPool::default();
    let join = || Box::new(Join { bytes: Vec::with_capacity(KEPT_MAX), ..Join::default() });
    (0..200).for_each(|_| large.give(join()));
    let one = KEPT_MAX + size_of::<Join>();
    assert_eq!(large.free.len(), POOL_KEPT_MAX / one);
    assert_eq!(large.held, large.free.len() * one);
}
