//! Keeps the rooms of a worker apart: how many doors each has, and which room may call which.
//!
//! A *room* is a folder or file of `crates/worker/src/core`. All of them add methods to the same
//! two types, `Plane` and `Core`. A *door* is such a method that code outside of its room can see.
//! What is in no room ("the hall", `core/mod.rs` and the files beside it) may call every room and
//! be called by every room.
//!
//! Reads the layout of `cargo fmt`. Tests are exempt.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Where the rooms are, from the root of the repository.
const CORE: &str = "crates/worker/src/core";

/// One room.
struct Room {
    /// Its folder or file in `core`, without extension.
    path: &'static str,
    /// The number of its doors. A new door is an interface that others will rely on, so raising
    /// this number needs a reason. A smaller one must be lowered here too.
    doors: usize,
    /// The rooms of which it calls doors.
    calls: &'static [&'static str],
}

/// The rooms, in the order of a request's walk.
const ROOMS: &[Room] = &[
    Room { path: "clients", doors: 2, calls: &["pools/cluster"] },
    Room {
        path: "front",
        doors: 42,
        calls: &[
            "clients",
            "pools/store",
            "pools/servers",
            "pools/memcached",
            "pools/cluster",
            "pools/routed",
            "pubsub",
            "pending",
            "upstream",
            "observe",
        ],
    },
    Room { path: "pools", doors: 9, calls: &[] },
    Room {
        path: "pools/store",
        doors: 27,
        calls: &["clients", "front", "pubsub", "upstream", "observe"],
    },
    Room {
        path: "pools/servers",
        doors: 40,
        calls: &["front", "pools", "pools/cluster", "pubsub", "pending", "upstream", "observe"],
    },
    Room {
        path: "pools/memcached",
        doors: 17,
        calls: &[
            "clients",
            "front",
            "pools",
            "pools/store",
            "pools/cluster",
            "pools/routed",
            "pending",
            "upstream",
            "observe",
        ],
    },
    Room {
        path: "pools/cluster",
        doors: 66,
        calls: &[
            "clients",
            "front",
            "pools",
            "pools/servers",
            "pubsub",
            "pending",
            "upstream",
            "observe",
        ],
    },
    Room {
        path: "pools/routed",
        doors: 16,
        calls: &["clients", "front", "pools/cluster", "pending", "upstream", "observe"],
    },
    Room {
        path: "pubsub",
        doors: 18,
        calls: &["front", "pools", "pools/cluster", "pending", "upstream", "observe"],
    },
    Room {
        path: "pending",
        doors: 20,
        calls: &[
            "front",
            "pools",
            "pools/servers",
            "pools/memcached",
            "pools/cluster",
            "upstream",
            "observe",
        ],
    },
    Room {
        path: "upstream",
        doors: 73,
        calls: &[
            "clients",
            "front",
            "pools",
            "pools/store",
            "pools/servers",
            "pools/memcached",
            "pools/cluster",
            "pubsub",
            "pending",
            "observe",
        ],
    },
    Room { path: "observe", doors: 32, calls: &["front", "upstream"] },
];

/// A source file of a worker's core.
struct Source {
    /// Its modules below `core`, such as `["pools", "cluster", "hedge"]`.
    module: Vec<String>,
    /// What it says of itself at its beginning.
    about: String,
    /// Its text without comments and tests, with each chain of calls on one line.
    text: String,
}

impl Source {
    fn new(module: Vec<String>, text: &str) -> Self {
        let about = text.lines().filter(|line| line.starts_with("//!")).collect();
        Self { module, about, text: plain(text) }
    }
}

/// The type of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Plane,
    Core,
}

/// The doors of all rooms: which room has each.
type Doors = BTreeMap<(Owner, String), &'static str>;

/// Appends what is wrong with the rooms of the worker below `root`.
pub(super) fn check(root: &Path, faults: &mut Vec<String>) {
    let mut sources = Vec::new();
    read_folder(&root.join(CORE), &mut Vec::new(), &mut sources);
    if sources.is_empty() {
        faults.push(format!("{CORE} has no sources: the rooms of a worker cannot be checked"));
        return;
    }
    let doors = doors_of(&sources);
    let calls = calls_of(&sources, &doors);
    for room in ROOMS {
        faults.extend(doors_fault(room, doors.values().filter(|at| **at == room.path).count()));
        faults.extend(calls_faults(room, &calls));
        faults.extend(lists_fault(room, &sources, &doors));
    }
}

/// A reader finds the doors of a room at the beginning of its `mod.rs`.
fn lists_fault(room: &Room, sources: &[Source], doors: &Doors) -> Option<String> {
    let about = sources.iter().find(|source| source.module.join("/") == room.path);
    let about = about.map_or("", |source| &source.about);
    let is_missing = |name: &&String| !about.contains(&format!("`{name}`"));
    let own = doors.iter().filter(|(_, at)| **at == room.path).map(|((_, name), _)| name);
    let missing: Vec<&str> = own.filter(is_missing).map(String::as_str).collect();
    (!missing.is_empty()).then(|| {
        format!(
            "{CORE}/{} has doors that the comment at the beginning of its module does not list: {}",
            room.path,
            missing.join(", ")
        )
    })
}

fn doors_fault(room: &Room, doors: usize) -> Option<String> {
    let Room { path, doors: known, .. } = room;
    let advice = match doors.cmp(known) {
        std::cmp::Ordering::Equal => return None,
        std::cmp::Ordering::Greater => "let callers use a door that is there, or narrow one",
        std::cmp::Ordering::Less => "write the smaller number down, so that it stays",
    };
    Some(format!(
        "{CORE}/{path} has {doors} methods that are visible outside, and {known} in the table ROOMS \
         of crates/testkit/src/bin/layer_check/rooms.rs: {advice}"
    ))
}

fn calls_faults(room: &Room, calls: &BTreeMap<(&str, &str), BTreeSet<String>>) -> Vec<String> {
    let mut faults = Vec::new();
    for ((from, to), names) in calls.iter().filter(|((from, _), _)| *from == room.path) {
        if !room.calls.contains(to) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            faults.push(format!(
                "{CORE}/{from} calls {to} ({}), which the table ROOMS does not allow: ask a room \
                 that it may call, or move the method",
                names.join(", ")
            ));
        }
    }
    for to in room.calls.iter().filter(|to| !calls.contains_key(&(room.path, **to))) {
        faults.push(format!(
            "{CORE}/{} does not call {to} any more: remove that from the table ROOMS",
            room.path
        ));
    }
    faults
}

fn read_folder(folder: &Path, module: &mut Vec<String>, sources: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if matches!(stem.as_str(), "tests" | "invariants") {
            continue;
        }
        if stem != "mod" {
            module.push(stem.clone());
        }
        if path.is_dir() {
            read_folder(&path, module, sources);
        } else if let Ok(text) = fs::read_to_string(&path) {
            sources.push(Source::new(module.clone(), &text));
        }
        if stem != "mod" {
            module.pop();
        }
    }
}

/// Removes comments and the test module at the end, and joins lines that begin with a dot to the
/// line before.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for line in text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().lines() {
        let line = line.split("//").next().unwrap_or_default();
        if !line.trim_start().starts_with('.') {
            plain.push('\n');
            plain.push_str(line);
        } else {
            plain.push_str(line.trim_start());
        }
    }
    plain
}

/// Returns the room of a module, or `None` for the hall.
fn room_of(module: &[String]) -> Option<&'static str> {
    let path = module.join("/");
    let is_in = |room: &str| path == room || path.starts_with(&format!("{room}/"));
    let rooms = ROOMS.iter().map(|room| room.path).filter(|room| is_in(room));
    rooms.max_by_key(|room| room.len())
}

/// Calls `each` for each line of the blocks `impl Plane` and `impl Core`.
fn each_line<'a>(text: &'a str, mut each: impl FnMut(Option<Owner>, &'a str)) {
    let mut owner = None;
    for line in text.lines() {
        match line {
            "impl Plane {" => owner = Some(Owner::Plane),
            "impl Core {" => owner = Some(Owner::Core),
            "}" => owner = None,
            _ => each(owner, line),
        }
    }
}

fn doors_of(sources: &[Source]) -> Doors {
    let mut doors = Doors::new();
    for source in sources {
        let Some(room) = room_of(&source.module) else { continue };
        let mut before = "";
        each_line(&source.text, |owner, line| {
            let is_for_tests = std::mem::replace(&mut before, line).trim() == "#[cfg(test)]";
            let (Some(owner), Some((name, seen_from))) = (owner, method(line, &source.module))
            else {
                return;
            };
            if !is_for_tests && seen_from < room.split('/').count() {
                doors.insert((owner, name.to_owned()), room);
            }
        });
    }
    doors
}

/// Returns the name of the method that a line begins, and the depth below `core` of the module in
/// which it is visible: 0 for `core` itself and everything above.
fn method<'a>(line: &'a str, module: &[String]) -> Option<(&'a str, usize)> {
    let line = line.strip_prefix("    ").filter(|rest| !rest.starts_with(' '))?;
    let (before, after) = line.split_once("fn ")?;
    let name = after.split(['(', '<']).next()?;
    let words = before.trim_end_matches("const ").trim();
    let depth = match words {
        "" => module.len(),
        "pub(super)" => module.len().saturating_sub(1),
        _ => match words.strip_prefix("pub(in crate::core").and_then(|it| it.strip_suffix(')')) {
            Some(path) => path.matches("::").count(),
            None => 0,
        },
    };
    Some((name, depth))
}

/// Returns the doors of other rooms that each room calls, by the two rooms.
fn calls_of(
    sources: &[Source],
    doors: &Doors,
) -> BTreeMap<(&'static str, &'static str), BTreeSet<String>> {
    let mut calls: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        let Some(from) = room_of(&source.module) else { continue };
        each_line(&source.text, |within, line| {
            for (owner, name) in called(within, line) {
                if let Some(to) = doors.get(&(owner, name.to_owned())).filter(|to| **to != from) {
                    calls.entry((from, *to)).or_default().insert(name.to_owned());
                }
            }
        });
    }
    calls
}

/// Returns the methods of the two types that a line calls or names. A receiver is known by its
/// name: `plane` and `core` everywhere, `self` in the blocks of the types.
fn called(within: Option<Owner>, line: &str) -> Vec<(Owner, &str)> {
    let is_word = |it: char| it.is_alphanumeric() || it == '_';
    let mut found = Vec::new();
    let mut start = 0;
    while let Some(len) = line[start..].find(is_word) {
        let begin = start + len;
        let end = line[begin..].find(|it| !is_word(it)).map_or(line.len(), |len| begin + len);
        start = end;
        let (before, after) = (&line[..begin], &line[end..]);
        let (receiver, is_path) = match (before.strip_suffix('.'), before.strip_suffix("::")) {
            (Some(receiver), _) if after.starts_with('(') || after.starts_with("::<") => {
                (receiver, false)
            }
            (None, Some(receiver)) => (receiver, true),
            _ => continue,
        };
        let owner = match (receiver.rsplit(|it| !is_word(it)).next(), is_path) {
            (Some("plane"), false) | (Some("Plane"), true) => Some(Owner::Plane),
            (Some("core"), false) | (Some("Core"), true) => Some(Owner::Core),
            (Some("self"), false) | (Some("Self"), true) => within,
            _ => None,
        };
        found.extend(owner.map(|owner| (owner, &line[begin..end])));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(module: &[&str], text: &str) -> Source {
        let module = module.iter().map(|part| (*part).to_owned()).collect();
        Source::new(module, text)
    }

    #[test]
    fn a_door_is_a_method_that_is_visible_outside_its_room() {
        let cluster = ["pools", "cluster", "hedge"].map(str::to_owned);
        for (line, depth) in [
            ("    fn a(&self) {", 3),
            ("    pub(super) fn a(&self) {", 2),
            ("    pub(in crate::core::pools) fn a<T>(&self) {", 1),
            ("    pub(in crate::core) fn a(", 0),
            ("    pub(crate) const fn a() -> u8 {", 0),
            ("    pub fn a() -> u8 {", 0),
        ] {
            assert_eq!(method(line, &cluster), Some(("a", depth)), "{line}");
        }
        for line in ["        fn inner() {", "    let a = 1;", "impl Plane {"] {
            assert_eq!(method(line, &cluster), None, "{line}");
        }
        let text = "impl Plane {\n    pub(super) fn a(&self) {\n    }\n}\nimpl State {\n    \
                    pub(in crate::core) fn b(&self) {\n    }\n}\n";
        assert!(doors_of(&[source(&["pools", "cluster", "hedge"], text)]).is_empty());
        assert_eq!(doors_of(&[source(&["clients"], text)]).len(), 1);
        assert!(doors_of(&[source(&["follow"], text)]).is_empty());
        let text = text.replace("    pub(super)", "    #[cfg(test)]\n    pub(super)");
        assert!(doors_of(&[source(&["clients"], &text)]).is_empty());
    }

    #[test]
    fn a_call_is_known_by_its_receiver() {
        let within = Some(Owner::Plane);
        for (line, owners) in [
            ("self.a(1)", vec![Owner::Plane]),
            ("core.a(plane.a())", vec![Owner::Core, Owner::Plane]),
            ("self.plane.a::<true>()", vec![Owner::Plane]),
            ("let it = names.map(Self::a);", vec![Owner::Plane]),
            ("self.a = 1; self.state.a(); itself.a()", vec![]),
        ] {
            let found: Vec<Owner> =
                called(within, line).iter().filter(|it| it.1 == "a").map(|it| it.0).collect();
            assert_eq!(found, owners, "{line}");
        }
        assert!(called(None, "self.a()").is_empty());
    }

    #[test]
    fn a_room_calls_what_it_is_allowed_to_and_nothing_else() {
        let door = source(&["observe", "slow"], "impl Plane {\n    pub(crate) fn a(&self) {}\n}\n");
        let caller =
            source(&["front"], "impl Core {\n    fn b(&self) { self\n  .plane\n  .a() }\n}");
        let sources = [door, caller];
        let calls = calls_of(&sources, &doors_of(&sources));
        let front = |calls| Room { path: "front", doors: 0, calls };
        assert!(calls_faults(&front(&["observe"]), &calls).is_empty());
        assert_eq!(calls_faults(&front(&[]), &calls).len(), 1);
        assert_eq!(calls_faults(&front(&["observe", "pending"]), &calls).len(), 1);
    }

    #[test]
    fn the_number_of_doors_is_the_one_in_the_table() {
        let room = Room { path: "front", doors: 2, calls: &[] };
        assert!(doors_fault(&room, 2).is_none());
        assert!(doors_fault(&room, 3).is_some_and(|fault| fault.contains("narrow")));
        assert!(doors_fault(&room, 1).is_some_and(|fault| fault.contains("smaller")));
    }

    #[test]
    fn doors_are_listed_at_the_beginning_of_their_room() {
        let door = source(&["front", "read"], "impl Plane {\n    pub(crate) fn a(&self) {}\n}\n");
        let room = Room { path: "front", doors: 1, calls: &[] };
        for (about, is_listed) in [("//! - `a`\n", true), ("//! - `ab`\n", false)] {
            let sources = [source(&["front"], about), source(&["front", "read"], "")];
            let doors = doors_of(std::slice::from_ref(&door));
            assert_eq!(lists_fault(&room, &sources, &doors).is_none(), is_listed, "{about}");
        }
    }

    #[test]
    fn comments_and_tests_are_left_out() {
        let text = "a // self.b()\n#[cfg(test)]\nmod tests {\n    self.c()\n}\n";
        assert_eq!(plain(text).trim(), "a");
    }
}
