//! `stats` over the servers of a pool.

use indexmap::IndexMap;
use keyway_memcache::{Answer, ErrorKind, Outcome, ReplyLimits, ReplyParsed, Wire, parse_reply};

/// Statistics of a single process, whose sums have no meaning.
const OWN: [&str; 10] = [
    "pid",
    "uptime",
    "time",
    "pointer_size",
    "accepting_conns",
    "hash_power_level",
    "hash_is_expanding",
    "threads",
    "max_connections",
    "slab_global_page_pool",
];

/// Merges the statistics of all servers: counts are added up, statistics of a single process are
/// left out, other values are returned if the servers agree. First are `servers`, `servers_failed`,
/// and the number of servers out of use, which were not asked.
pub(super) fn sums<'a>(
    answers: impl Iterator<Item = (String, Option<Answer<'a>>)>,
    out_of_use: impl Iterator<Item = &'static str>,
) -> Vec<(String, String)> {
    let (mut servers, mut failed) = (0, 0);
    let mut sums: IndexMap<String, Figure> = IndexMap::new();
    for (_, answer) in answers {
        servers += 1;
        let Some(answer) = answer else {
            failed += 1;
            continue;
        };
        each(&answer, |name, value| {
            if !OWN.contains(&name) {
                let value = String::from_utf8_lossy(value);
                match sums.get_mut(name) {
                    Some(sum) => sum.add(&value),
                    None => {
                        sums.insert(name.to_owned(), Figure::of(&value));
                    }
                }
            }
        });
    }
    let (mut ejected, mut quarantined) = (0, 0);
    out_of_use.for_each(|state| match state {
        "quarantined" => quarantined += 1,
        _ => ejected += 1,
    });
    let told = [
        ("servers", servers),
        ("servers_failed", failed),
        ("servers_ejected", ejected),
        ("servers_quarantined", quarantined),
    ];
    let told = told.into_iter().map(|(name, count)| (name.to_owned(), count.to_string()));
    told.chain(sums.into_iter().map(|(name, figure)| (name, figure.text()))).collect()
}

enum Figure {
    Count(u64),
    /// Seconds with six decimals.
    Micros(u64),
    Words(String),
    /// The servers do not agree.
    Mixed,
}

impl Figure {
    fn of(value: &str) -> Figure {
        if let Ok(count) = value.parse() {
            return Figure::Count(count);
        }
        match micros(value) {
            Some(micros) => Figure::Micros(micros),
            None => Figure::Words(value.to_owned()),
        }
    }

    fn add(&mut self, value: &str) {
        *self = match (std::mem::replace(self, Figure::Mixed), Figure::of(value)) {
            (Figure::Count(sum), Figure::Count(count)) => Figure::Count(sum.saturating_add(count)),
            (Figure::Micros(sum), Figure::Micros(micros)) => {
                Figure::Micros(sum.saturating_add(micros))
            }
            (Figure::Words(words), Figure::Words(other)) if words == other => Figure::Words(words),
            _ => Figure::Mixed,
        };
    }

    fn text(&self) -> String {
        match self {
            Figure::Count(count) => count.to_string(),
            Figure::Micros(micros) => format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000),
            Figure::Words(words) => words.clone(),
            Figure::Mixed => "mixed".to_owned(),
        }
    }
}

/// Parses a time like `rusage_user`: seconds, a point, six digits.
fn micros(value: &str) -> Option<u64> {
    let (seconds, rest) = value.split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(seconds) || !is_number(rest) || rest.len() != 6 {
        return None;
    }
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(rest.parse().ok()?)
}

/// Visits each statistic of a server's reply.
pub(super) fn each(answer: &Answer<'_>, mut tell: impl FnMut(&str, &[u8])) {
    const LIMITS: ReplyLimits = ReplyLimits { reply_len_max: u32::MAX };
    let mut rest = answer.bytes;
    while let Ok(ReplyParsed::Ready { len, reply }) = parse_reply(rest, answer.wire, &LIMITS) {
        match reply.outcome {
            Outcome::Stat { name, value } => tell(&String::from_utf8_lossy(name), value),
            Outcome::Error { text, .. } => return tell("error", text),
            _ => return,
        }
        rest = &rest[len..];
    }
}

/// Returns whether a server does not know such statistics.
pub(super) fn is_unknown(answer: &Answer<'_>) -> bool {
    const LIMITS: ReplyLimits = ReplyLimits { reply_len_max: u32::MAX };
    let parsed = parse_reply(answer.bytes, answer.wire, &LIMITS);
    let Ok(ReplyParsed::Ready { reply, .. }) = parsed else { return false };
    matches!(reply.outcome, Outcome::NotFound | Outcome::Error { kind: ErrorKind::Unknown, .. })
}

/// Returns whether a server has executed a `stats` that changes something. In the binary protocol,
/// the reply is an empty list.
pub(super) fn is_done(answer: &Answer<'_>) -> bool {
    const LIMITS: ReplyLimits = ReplyLimits { reply_len_max: u32::MAX };
    let parsed = parse_reply(answer.bytes, answer.wire, &LIMITS);
    let Ok(ReplyParsed::Ready { reply, .. }) = parsed else { return false };
    match answer.wire {
        Wire::Text => matches!(reply.outcome, Outcome::Done(_)),
        Wire::Binary => reply.outcome == Outcome::End,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_memcache::Expect;

    #[test]
    fn counts_and_times_are_added_and_words_are_kept_where_all_agree() {
        let replies = [
            &b"STAT cmd_get 3\r\nSTAT rusage_user 1.500000\r\nSTAT version 1.6.1\r\nSTAT a x\r\nEND\r\n"[..],
            b"STAT cmd_get 4\r\nSTAT rusage_user 0.600001\r\nSTAT version 1.6.2\r\nSTAT a x\r\nEND\r\n",
        ];
        let answers = replies.iter().map(|bytes| {
            let answer = Answer { bytes, wire: Wire::Text, expect: Expect::List };
            (String::new(), Some(answer))
        });
        let out_of_use = ["ejected", "quarantined", "rejoining"];
        let told = sums(answers.chain([(String::new(), None)]), out_of_use.into_iter());
        let told: Vec<_> = told.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(
            told,
            [
                ("servers", "3"),
                ("servers_failed", "1"),
                ("servers_ejected", "2"),
                ("servers_quarantined", "1"),
                ("cmd_get", "7"),
                ("rusage_user", "2.100001"),
                ("version", "mixed"),
                ("a", "x"),
            ]
        );
    }
}
