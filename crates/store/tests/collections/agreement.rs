//! When two replies that differ agree all the same.

use crate::common::Reply;

pub fn lower(word: &[u8]) -> String {
    String::from_utf8_lossy(word).to_ascii_lowercase()
}

pub fn show(words: &[Vec<u8>]) -> String {
    words.iter().map(|word| format!("{:?} ", String::from_utf8_lossy(word))).collect()
}

pub fn show_reply(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(4000)]).into_owned()
}

/// The reply with what has no order in order: elements one by one, or in
/// groups of `group`.
fn ordered(reply: Reply, group: usize) -> Reply {
    let sort = |mut elements: Vec<Reply>| {
        let mut groups: Vec<Vec<Reply>> = Vec::new();
        while !elements.is_empty() {
            let rest = elements.split_off(group.min(elements.len()));
            groups.push(std::mem::replace(&mut elements, rest));
        }
        groups.sort();
        groups.concat()
    };
    match reply {
        Reply::Array(Some(elements)) => Reply::Array(Some(sort(elements))),
        Reply::Map(elements) => Reply::Map(sort(elements)),
        Reply::Set(elements) => Reply::Set(sort(elements)),
        other => other,
    }
}

/// Returns the kind and the number of elements.
fn shape(reply: &Reply) -> (u8, usize) {
    match reply {
        Reply::Array(Some(elements)) => (1, elements.len()),
        Reply::Set(elements) => (2, elements.len()),
        Reply::Bulk(Some(_)) => (3, 0),
        _ => (0, 0),
    }
}

/// Returns whether two different replies to a SORT agree: equal texts, which are in the
/// order they were found in or in none, and sets that are not sorted.
fn sorts_agree(words: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let says = |word: &str| words.iter().any(|other| lower(other) == word);
    let has_ties = says("by") && says("alpha");
    let is_unsorted =
        words.windows(2).any(|pair| lower(&pair[0]) == "by" && !pair[1].contains(&b'*'));
    !says("store") && (has_ties || is_unsorted) && shape(ours) == shape(theirs)
}

/// Returns whether a field of a stream's reply is each side's own: times, and nodes of its tree.
fn is_own(name: &[u8]) -> bool {
    let own: [&[u8]; 3] = [b"radix-tree-nodes", b"seen-time", b"idle"];
    own.contains(&name)
}

/// Returns whether replies about streams differ in nothing but times, and the nodes of
/// trees: integers far apart are none.
fn alike(words: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    const CLOSE: u64 = 60_000;
    match (ours, theirs) {
        (Reply::Array(Some(ours)), Reply::Array(Some(theirs)))
        | (Reply::Map(ours), Reply::Map(theirs)) => {
            let mut last: &[u8] = b"";
            ours.len() == theirs.len()
                && ours.iter().zip(theirs).enumerate().all(|(index, (ours, theirs))| {
                    let own = is_own(last) || (index == 2 && lower(&words[0]) == "xpending");
                    // Of a delivery: its id, for the group its consumer, its time.
                    let times = lower(&words[0]) == "xinfo" && index > 0;
                    last = match ours {
                        Reply::Bulk(Some(bytes)) => bytes,
                        _ => b"",
                    };
                    match (ours, theirs) {
                        (Reply::Integer(ours), Reply::Integer(theirs)) if own || times => {
                            ours == theirs
                                || own
                                || (*ours > 1_000_000_000_000 && ours.abs_diff(*theirs) < CLOSE)
                        }
                        _ => alike(words, ours, theirs),
                    }
                })
        }
        // The text of Redis depends on an error before it.
        (Reply::Error(ours), Reply::Error(_)) => {
            lower(&words[0]) == "xadd" && ours.contains("equal or smaller")
        }
        (ours, theirs) => ours == theirs,
    }
}

/// Returns whether two different replies to a command agree all the same; `is_table`
/// says that its key has no order.
pub fn agree(words: &[Vec<u8>], is_table: bool, ours: &[u8], theirs: &[u8]) -> bool {
    let (ours, theirs) = (Reply::read(&mut &ours[..]), Reply::read(&mut &theirs[..]));
    let in_any_order = |group| ordered(ours.clone(), group) == ordered(theirs.clone(), group);
    match lower(&words[0]).as_str() {
        "hgetall" => is_table && in_any_order(2),
        "hkeys" | "hvals" | "smembers" => is_table && in_any_order(1),
        "sinter" | "sunion" | "sdiff" | "spop" => in_any_order(1),
        "hrandfield" | "srandmember" | "zrandmember" => {
            shape(&ours).0 != 0 && shape(&ours) == shape(&theirs)
        }
        name @ ("scan" | "hscan" | "sscan" | "zscan") => match (ours, theirs) {
            (Reply::Array(Some(ours)), Reply::Array(Some(theirs))) => {
                let group = if name == "hscan" || name == "zscan" { 2 } else { 1 };
                // Comparable if both have seen all.
                let end = Reply::Bulk(Some(b"0".to_vec()));
                let cursor = words.get(if name == "scan" { 1 } else { 2 });
                cursor.is_none_or(|cursor| cursor != b"0")
                    || ours[0] != end
                    || theirs[0] != end
                    || ordered(ours[1].clone(), group) == ordered(theirs[1].clone(), group)
            }
            _ => false,
        },
        "sort" | "sort_ro" => sorts_agree(words, &ours, &theirs),
        "dump" => match (ours, theirs) {
            (Reply::Bulk(Some(ours)), Reply::Bulk(Some(theirs))) => {
                // A list's blocks tell how it came about, and a stream's; and
                // deliveries when they were.
                (is_table || [0x12, 0x13].contains(&ours[0])) && ours[0] == theirs[0]
            }
            _ => false,
        },
        "xadd" if words[1] == b"clock" => shape(&ours) == shape(&theirs),
        name if name.starts_with('x') => alike(words, &ours, &theirs),
        "object" => lower(&words[1]) == "refcount" && matches!(ours, Reply::Integer(_)),
        _ => false,
    }
}
