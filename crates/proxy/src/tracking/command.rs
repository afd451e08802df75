use super::Tracking;
use keyway_command::Args;
use keyway_resp::{Protocol, parse_integer, reply};
use std::collections::BTreeSet;
use std::ops::Bound::{Included, Unbounded};

/// Largest number of prefixes of one client. With more, each change would take more memory for its
/// message, on each of its links as well as here.
const PREFIXES_MAX: usize = 1024;

/// Largest number of bytes of all prefixes together.
const PREFIXES_LEN_MAX: usize = 64 << 10;

const SYNTAX: &str = "ERR syntax error";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const ONE_REDIRECT: &str = "ERR A client can only redirect to a single other client";
const NO_CLIENT: &str = "ERR The client ID you want redirect to does not exist";
const PREFIX_ALONE: &str = "ERR PREFIX option requires BCAST mode to be enabled";
const BCAST_CHANGES: &str = "ERR You can't switch BCAST mode on/off before disabling tracking for \
     this client, and then re-enabling it with a different mode.";
const BCAST_CHOICE: &str = "ERR OPTIN and OPTOUT are not compatible with BCAST";
const BOTH_CHOICES: &str = "ERR You can't specify both OPTIN mode and OPTOUT mode";
const CHOICE_CHANGES: &str = "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for \
     this client, and then re-enabling it with a different mode.";
const NO_TRACKING: &str = "ERR CLIENT CACHING can be called only when the client is in tracking \
     mode with OPTIN or OPTOUT mode enabled";
const YES_WITHOUT_OPTIN: &str =
    "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.";
const NO_WITHOUT_OPTOUT: &str =
    "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.";

/// The change that `CLIENT TRACKING` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This tracking from now on, in place of the earlier one.
    On(Box<Tracking>),
    /// No tracking from now on.
    Off,
}

/// Parses `CLIENT TRACKING ON|OFF [REDIRECT id] [PREFIX prefix]... [BCAST] [OPTIN] [OPTOUT]
/// [NOLOOP]` of a client that has `current`. `exists` returns whether there is a client with an id
/// to which it may redirect.
///
/// # Errors
/// Returns the text of the error reply. Nothing must be changed then.
pub fn parse(
    args: &Args,
    current: Option<&Tracking>,
    exists: impl Fn(u64) -> bool,
) -> Result<Change, String> {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let mut asked = Tracking::default();
    let mut prefixes: Vec<&[u8]> = Vec::new();
    let mut index = 3;
    while let Some(option) = args.get(index) {
        let value = args.get(index + 1);
        match value {
            Some(id) if is(option, "redirect") => {
                asked.redirect = Some(redirection(id, asked.redirect, &exists)?);
                index += 1;
            }
            Some(prefix) if is(option, "prefix") => {
                prefixes.push(prefix);
                index += 1;
            }
            _ if is(option, "bcast") => asked.bcast = true,
            _ if is(option, "optin") => asked.optin = true,
            _ if is(option, "optout") => asked.optout = true,
            _ if is(option, "noloop") => asked.noloop = true,
            _ => return Err(SYNTAX.to_owned()),
        }
        index += 1;
    }
    match args.get(2) {
        Some(word) if is(word, "on") => {}
        Some(word) if is(word, "off") => return Ok(Change::Off),
        _ => return Err(SYNTAX.to_owned()),
    }
    check_modes(&asked, current, !prefixes.is_empty())?;
    if let Some(current) = current {
        asked.prefixes.clone_from(&current.prefixes);
        asked.caching = current.caching;
    }
    if asked.bcast {
        add_prefixes(&mut asked.prefixes, &prefixes)?;
    }
    Ok(Change::On(Box::new(asked)))
}

fn redirection(
    text: &[u8],
    before: Option<u64>,
    exists: &impl Fn(u64) -> bool,
) -> Result<u64, &'static str> {
    if before.is_some() {
        return Err(ONE_REDIRECT);
    }
    let id = parse_integer(text).ok_or(NOT_AN_INTEGER)?;
    u64::try_from(id).ok().filter(|&id| exists(id)).ok_or(NO_CLIENT)
}

/// Checks that modes fit together and with the current ones.
fn check_modes(
    asked: &Tracking,
    current: Option<&Tracking>,
    has_prefixes: bool,
) -> Result<(), &'static str> {
    if has_prefixes && !asked.bcast {
        return Err(PREFIX_ALONE);
    }
    if current.is_some_and(|current| current.bcast != asked.bcast) {
        return Err(BCAST_CHANGES);
    }
    if asked.bcast && (asked.optin || asked.optout) {
        return Err(BCAST_CHOICE);
    }
    if asked.optin && asked.optout {
        return Err(BOTH_CHOICES);
    }
    let switches =
        |current: &Tracking| (asked.optin && current.optout) || (asked.optout && current.optin);
    if current.is_some_and(switches) { Err(CHOICE_CHANGES) } else { Ok(()) }
}

/// Adds prefixes that overlap neither with existing ones nor with each other: a client is told of a
/// key only once. Redis itself answers some overlaps with the error and a second reply. Here
/// nothing follows an error.
fn add_prefixes(existing: &mut BTreeSet<Vec<u8>>, added: &[&[u8]]) -> Result<(), String> {
    let lens = existing.iter().map(Vec::len).chain(added.iter().map(|prefix| prefix.len()));
    if existing.len() + added.len() > PREFIXES_MAX || lens.sum::<usize>() > PREFIXES_LEN_MAX {
        return Err(format!(
            "ERR A client cannot have more than {PREFIXES_MAX} prefixes, nor more than \
             {PREFIXES_LEN_MAX} bytes of them"
        ));
    }
    check_overlaps(existing, added)?;
    existing.extend(added.iter().map(|prefix| prefix.to_vec()));
    if added.is_empty() {
        existing.insert(Vec::new());
    }
    Ok(())
}

/// Checks that prefixes overlap with none. In sorted order those that overlap are neighbours:
/// between a prefix and a longer one that begins with it there is nothing else.
fn check_overlaps(existing: &BTreeSet<Vec<u8>>, added: &[&[u8]]) -> Result<(), String> {
    let mut sorted: Vec<(&[u8], usize)> =
        added.iter().enumerate().map(|(index, prefix)| (*prefix, index)).collect();
    sorted.sort_unstable();
    let overlapping = sorted.windows(2).filter(|pair| pair[1].0.starts_with(pair[0].0));
    // The one that was named first.
    let among_added =
        overlapping.map(|pair| (pair[0].1.min(pair[1].1), pair[0].1.max(pair[1].1))).min();
    let with_existing = added
        .iter()
        .enumerate()
        .find_map(|(index, prefix)| Some((index, overlap_with(existing, prefix)?)));
    let (index, what, other) = match (with_existing, among_added) {
        (Some((index, other)), pair) if pair.is_none_or(|(first, _)| index <= first) => {
            (index, "an existing", other)
        }
        (_, Some((first, second))) => (first, "another provided", added[second]),
        _ => return Ok(()),
    };
    let (prefix, other) = (String::from_utf8_lossy(added[index]), String::from_utf8_lossy(other));
    Err(format!(
        "ERR Prefix '{prefix}' overlaps with {what} prefix '{other}'. Prefixes for a single \
         client must not overlap."
    ))
}

/// Returns one of `existing` that overlaps with `prefix`. They do not overlap among themselves,
/// except that the empty one may be there with others.
fn overlap_with<'a>(existing: &'a BTreeSet<Vec<u8>>, prefix: &[u8]) -> Option<&'a [u8]> {
    let everything = existing.first().filter(|first| first.is_empty());
    let before = || existing.range::<[u8], _>((Unbounded, Included(prefix))).next_back();
    let behind = || existing.range::<[u8], _>((Included(prefix), Unbounded)).next();
    let found = everything
        .or_else(|| before().filter(|other| prefix.starts_with(other)))
        .or_else(|| behind().filter(|other| other.starts_with(prefix)));
    found.map(Vec::as_slice)
}

/// Executes `CLIENT CACHING YES|NO`.
///
/// # Errors
/// Returns the text of the error reply.
pub fn caching(args: &Args, tracking: Option<&mut Tracking>) -> Result<(), &'static str> {
    let tracking = tracking.ok_or(NO_TRACKING)?;
    let word = args.get(2).unwrap_or_default();
    match () {
        () if word.eq_ignore_ascii_case(b"yes") && !tracking.optin => Err(YES_WITHOUT_OPTIN),
        () if word.eq_ignore_ascii_case(b"no") && !tracking.optout => Err(NO_WITHOUT_OPTOUT),
        () if word.eq_ignore_ascii_case(b"yes") || word.eq_ignore_ascii_case(b"no") => {
            tracking.caching = true;
            Ok(())
        }
        () => Err(SYNTAX),
    }
}

/// Returns the id for `CLIENT GETREDIR`: that of the client that is told in place of this one, 0
/// without one, -1 without tracking.
fn redirection_of(tracking: Option<&Tracking>) -> i64 {
    tracking.map_or(-1, |tracking| tracking.redirect.unwrap_or(0) as i64)
}

/// Appends the reply to `CLIENT GETREDIR`.
pub fn write_redirection(tracking: Option<&Tracking>, out: &mut Vec<u8>) {
    reply::integer(out, redirection_of(tracking));
}

/// Appends the reply to `CLIENT TRACKINGINFO`.
pub fn write_info(tracking: Option<&Tracking>, protocol: Protocol, out: &mut Vec<u8>) {
    protocol.map(out, 3);
    reply::bulk(out, b"flags");
    let flags = flags(tracking);
    protocol.set(out, flags.len());
    flags.iter().for_each(|flag| reply::bulk(out, flag.as_bytes()));
    reply::bulk(out, b"redirect");
    reply::integer(out, redirection_of(tracking));
    reply::bulk(out, b"prefixes");
    let prefixes = tracking.map(|tracking| &tracking.prefixes);
    reply::array(out, prefixes.map_or(0, BTreeSet::len));
    prefixes.into_iter().flatten().for_each(|prefix| reply::bulk(out, prefix));
}

fn flags(tracking: Option<&Tracking>) -> Vec<&'static str> {
    let Some(tracking) = tracking else { return vec!["off"] };
    let Tracking { bcast, optin, optout, noloop, is_broken, caching, .. } = *tracking;
    [
        (true, "on"),
        (bcast, "bcast"),
        (optin, "optin"),
        (optin && caching, "caching-yes"),
        (optout, "optout"),
        (optout && caching, "caching-no"),
        (noloop, "noloop"),
        (is_broken, "broken_redirect"),
    ]
    .into_iter()
    .filter_map(|(is_set, flag)| is_set.then_some(flag))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::ByteRange;

    /// Calls `with` with the arguments in `line`, separated by spaces.
    fn args<T>(line: &str, with: impl FnOnce(&Args) -> T) -> T {
        let (mut buf, mut ranges) = (Vec::new(), Vec::new());
        for word in line.split(' ') {
            ranges.push(ByteRange::new(buf.len(), buf.len() + word.len()));
            buf.extend_from_slice(word.as_bytes());
        }
        with(&Args::new(&buf, &ranges))
    }

    /// Parses a change. Clients 3 and 4 exist.
    fn change(line: &str, current: Option<&Tracking>) -> Result<Change, String> {
        args(&format!("CLIENT TRACKING {line}"), |args| {
            parse(args, current, |id| (3..5).contains(&id))
        })
    }

    fn on(line: &str) -> Tracking {
        match change(line, None) {
            Ok(Change::On(tracking)) => *tracking,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused_in_the_words_of_redis() {
        let (plain, optin) = (on("ON"), on("on OPTIN"));
        let bcast = on("ON BCAST PREFIX b PREFIX aa");
        for (line, current, text) in [
            ("maybe", None, "syntax error"),
            ("ON FOO", None, "syntax error"),
            ("ON PREFIX", None, "syntax error"),
            ("ON REDIRECT", None, "syntax error"),
            ("OFF FOO", None, "syntax error"),
            ("ON REDIRECT x", None, "value is not an integer or out of range"),
            ("maybe REDIRECT 9", None, "The client ID you want redirect to does not exist"),
            ("ON REDIRECT 0", None, "The client ID you want redirect to does not exist"),
            ("ON REDIRECT -5", None, "The client ID you want redirect to does not exist"),
            ("ON REDIRECT 3 REDIRECT 4", None, "A client can only redirect to a single"),
            ("ON PREFIX a", None, "PREFIX option requires BCAST"),
            ("ON OPTIN BCAST", None, "OPTIN and OPTOUT are not compatible with BCAST"),
            ("ON OPTIN OPTOUT", None, "You can't specify both OPTIN mode and OPTOUT mode"),
            ("ON BCAST", Some(&plain), "You can't switch BCAST mode on/off"),
            ("ON", Some(&bcast), "You can't switch BCAST mode on/off"),
            ("ON OPTOUT", Some(&optin), "You can't switch OPTIN/OPTOUT mode"),
            ("ON BCAST PREFIX aa PREFIX a", None, "Prefix 'aa' overlaps with another provided"),
            ("ON BCAST PREFIX c PREFIX a PREFIX ab", None, "Prefix 'a' overlaps with another"),
            ("ON BCAST PREFIX a", Some(&bcast), "Prefix 'a' overlaps with an existing prefix 'aa'"),
        ] {
            let refusal = change(line, current).unwrap_err();
            assert!(refusal.starts_with(&format!("ERR {text}")), "{line}: {refusal}");
        }
    }

    #[test]
    fn overlaps_are_found_as_by_comparing_each_with_each() {
        let overlap = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
        let mut state = 7u64;
        let mut refused = 0;
        for _ in 0..2000 {
            let mut word = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let len = (state >> 40) as usize % 5;
                (0..len).map(|at| b'a' + (state >> (42 + 2 * at)) as u8 % 3).collect::<Vec<u8>>()
            };
            let mut existing = BTreeSet::new();
            for word in [word(), word(), word()] {
                if !existing.iter().any(|other: &Vec<u8>| overlap(&word, other)) {
                    existing.insert(word);
                }
            }
            if word().is_empty() {
                existing.insert(Vec::new());
            }
            let added = [word(), word(), word()];
            let added: Vec<&[u8]> = added.iter().map(Vec::as_slice).collect();
            let with_existing =
                added.iter().any(|word| existing.iter().any(|other| overlap(word, other)));
            let among = (0..3).any(|one| (0..one).any(|two| overlap(added[one], added[two])));
            let refusal = check_overlaps(&existing, &added);
            assert_eq!(refusal.is_err(), with_existing || among, "{existing:?} {added:?}");
            refused += u32::from(refusal.is_err());
        }
        assert!((100..1900).contains(&refused), "{refused}");
    }

    #[test]
    fn prefixes_are_bounded_over_all_commands() {
        let lines = |count: usize, len: usize| {
            let words = (0..count).map(|nth| format!(" PREFIX {nth:0len$}"));
            format!("ON BCAST{}", words.collect::<String>())
        };
        let full = on(&lines(PREFIXES_MAX, 4));
        assert_eq!(full.prefixes.len(), PREFIXES_MAX);
        for (line, current) in [
            ("ON BCAST PREFIX a".to_owned(), Some(&full)),
            (lines(PREFIXES_MAX + 1, 4), None),
            (lines(2, PREFIXES_LEN_MAX / 2 + 1), None),
        ] {
            let refusal = change(&line, current).unwrap_err();
            assert!(refusal.starts_with("ERR A client cannot have more than 1024"), "{refusal}");
        }
        assert_eq!(on(&lines(2, PREFIXES_LEN_MAX / 2)).prefixes.len(), 2);
    }

    #[test]
    fn what_is_switched_on_again_replaces_all_but_the_prefixes() {
        let first = on("ON BCAST PREFIX b NOLOOP REDIRECT 3");
        assert_eq!((first.noloop, first.redirect), (true, Some(3)));
        let Ok(Change::On(second)) = change("ON BCAST PREFIX a", Some(&first)) else { panic!() };
        assert_eq!((second.noloop, second.redirect), (false, None));
        assert_eq!(second.prefixes, BTreeSet::from([b"a".to_vec(), b"b".to_vec()]));
        let Ok(Change::On(third)) = change("ON BCAST", Some(&second)) else { panic!() };
        assert!(third.prefixes.contains(&b""[..]));
        assert_eq!(change("OFF PREFIX a", Some(&third)), Ok(Change::Off));
        assert!(on("ON").prefixes.is_empty());
    }

    #[test]
    fn caching_is_said_in_the_mode_that_it_is_for() {
        let say = |line: &str, tracking: Option<&mut Tracking>| {
            args(&format!("CLIENT CACHING {line}"), |args| caching(args, tracking))
        };
        assert_eq!(say("maybe", None), Err(NO_TRACKING));
        let (mut plain, mut optin, mut optout) = (on("ON"), on("ON OPTIN"), on("ON OPTOUT"));
        assert_eq!(say("YES", Some(&mut plain)), Err(YES_WITHOUT_OPTIN));
        assert_eq!(say("no", Some(&mut optin)), Err(NO_WITHOUT_OPTOUT));
        assert_eq!(say("maybe", Some(&mut optin)), Err(SYNTAX));
        assert!(!optin.caching);
        assert_eq!((say("yes", Some(&mut optin)), say("NO", Some(&mut optout))), (Ok(()), Ok(())));
        assert!(optin.caching && optout.caching);
    }

    #[test]
    fn what_is_tracked_is_told_as_redis_tells_it() {
        let info = |tracking: Option<&Tracking>, protocol| {
            let mut out = Vec::new();
            write_info(tracking, protocol, &mut out);
            String::from_utf8(out).unwrap()
        };
        let off = "*6\r\n$5\r\nflags\r\n*1\r\n$3\r\noff\r\n$8\r\nredirect\r\n:-1\r\n$8\r\nprefixes\r\n*0\r\n";
        assert_eq!(info(None, Protocol::Resp2), off);
        let tracking = on("ON BCAST PREFIX b PREFIX a NOLOOP REDIRECT 4");
        let told = "%3\r\n$5\r\nflags\r\n~3\r\n$2\r\non\r\n$5\r\nbcast\r\n$6\r\nnoloop\r\n\
                    $8\r\nredirect\r\n:4\r\n$8\r\nprefixes\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n";
        assert_eq!(info(Some(&tracking), Protocol::Resp3), told);
        let mut optout = on("ON OPTOUT");
        optout.caching = true;
        assert_eq!(flags(Some(&optout)), ["on", "optout", "caching-no"]);
        let mut out = Vec::new();
        write_redirection(None, &mut out);
        write_redirection(Some(&optout), &mut out);
        write_redirection(Some(&tracking), &mut out);
        assert_eq!(out, b":-1\r\n:0\r\n:4\r\n");
    }
}
