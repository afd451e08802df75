//! Files of scenarios: those that are built in, and mistakes.

use keyway_scenario::{BUILT_IN, Error, Scenario, SystemKind, load, text};

#[test]
fn every_built_in_scenario_is_read_and_compares_something() {
    for (name, _) in BUILT_IN {
        let scenario = load(name).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((scenario.name.as_str(), scenario.table.as_str()), (name, name));
        assert!(scenario.systems.len() > 2 && !scenario.items.is_empty(), "{name}");
        let is_own = |kind: &SystemKind| match kind {
            SystemKind::Command { words, .. } => words[0] == "keyway",
            SystemKind::Channel(_) => true,
            _ => false,
        };
        assert!(scenario.systems.iter().any(|system| is_own(&system.kind)), "{name}");
        assert!(scenario.baseline.is_some() && scenario.full.seconds > scenario.usual.seconds);
        assert!(text(name).unwrap().contains(&format!("keyway bench run {name}")));
    }
}

fn errors(text: &str) -> String {
    match Scenario::parse("mine", "mine.toml", text) {
        Err(Error::File(errors)) => {
            errors.iter().map(|error| format!("{error}\n")).collect::<String>()
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was taken:\n{text}"),
    }
}

const RIGHT: &str = r#"title = "mine"
[[servers]]
name = "redis"
kind = "redis"
[[system]]
name = "redis itself"
direct = "redis"
[[item]]
id = "get"
mix = "get"
"#;

#[test]
fn a_short_file_is_enough() {
    let scenario = Scenario::parse("mine", "mine.toml", RIGHT).unwrap();
    assert_eq!((scenario.usual.rounds, scenario.table.as_str()), (3, "mine"));
}

#[test]
fn every_mistake_has_its_line_and_a_way_out() {
    let mut missed = String::new();
    for (from, to, told) in [
        (
            "title",
            "tittle",
            "mine.toml:1: unknown key \"tittle\" in the file; did you mean \"title\"?",
        ),
        (
            "title = \"mine\"",
            "peer = \"redis itsel\"",
            "mine.toml:1: peer is \"redis itsel\"; did you mean \"redis itself\"?",
        ),
        (
            "kind = \"redis\"",
            "kind = \"redsi\"",
            "mine.toml:4: kind is \"redsi\"; did you mean \"redis\"?",
        ),
        (
            "direct = \"redis\"",
            "direct = \"rediss\"",
            "mine.toml:7: direct is \"rediss\"; did you mean \"redis\"?",
        ),
        (
            "direct = \"redis\"",
            "direct = \"redis\"\naddress = \"a:1\"",
            "a system comes from one place",
        ),
        ("direct = \"redis\"", "", "mine.toml:6: nothing says where this system comes from"),
        (
            "direct = \"redis\"",
            "command = [\"a\", \"{prot}\"]",
            "mine.toml:7: nothing stands for {prot}",
        ),
        ("direct = \"redis\"", "command = [\"a\", \"{redi.port}\"]", "did you mean {redis.port}?"),
        ("direct = \"redis\"", "command = []", "a command has at least one word"),
        (
            "direct = \"redis\"",
            "direct = \"redis\"\nprotocol = \"resp4\"",
            "mine.toml:8: \"resp4\" is no protocol",
        ),
        ("direct = \"redis\"", "address = \"nowhere\"", "mine.toml:7: "),
        ("direct = \"redis\"", "channel = \"shm\"", "messages are for channels"),
        ("mix = \"get\"", "", "an item has one kind of work"),
        ("mix = \"get\"", "mix = \"got\"", "mine.toml:10: \"got\" is no command by name"),
        ("mix = \"get\"", "mix = \"get\"\nsuite = \"get\"", "an item has one kind of work"),
        ("mix = \"get\"", "suite = \"lrange\"", "mine.toml:10: suite is \"lrange\"; did you mean"),
        (
            "mix = \"get\"",
            "mix = \"get\"\nthreads = \"two\"",
            "mine.toml:11: threads in [[item]] is no number",
        ),
        ("mix = \"get\"", "mix = \"get\"\nkeys = { full = 4 }", "give usual, per_core or per_gib"),
        ("mix = \"get\"", "mix = \"get\"\nkeys = { per_cor = 4 }", "did you mean \"per_core\"?"),
        (
            "mix = \"get\"",
            "mix = \"get\"\nsize = \"x\"",
            "mine.toml:11: \"x\" is no number of bytes",
        ),
        ("mix = \"get\"", "mix = \"get\"\npipeline = 0", "from 1 to 65536 is possible"),
        ("mix = \"get\"", "read_write = \"1\"", "\"1\" is no ratio"),
        ("id = \"get\"", "", "[[item]] has no id"),
        (
            "[[system]]",
            "[[system]]\nname = \"redis itself\"\ndirect = \"redis\"\n[[system]]",
            "is there twice",
        ),
        (
            "title = \"mine\"",
            "title = \"mine\"\nbaseline = \"redis\"",
            "mine.toml:2: baseline is \"redis\"",
        ),
        (
            "title = \"mine\"",
            "title = \"mine\"\nrounds = 0",
            "rounds in the file is no number in its range",
        ),
        ("title = \"mine\"", "title = mine", "mine.toml:1: "),
    ] {
        let wrong = errors(&RIGHT.replacen(from, to, 1));
        if !wrong.contains(told) {
            missed.push_str(&format!("wanted {told}\ngot    {wrong}"));
        }
    }
    assert!(missed.is_empty(), "{missed}");
}

#[test]
fn all_mistakes_are_told_at_once() {
    let wrong = errors("tittle = 1\n[[system]]\nname = \"a\"\nadress = \"b:1\"\n");
    let lines: Vec<&str> = wrong.lines().collect();
    assert!(lines.len() >= 4 && lines[0].starts_with("mine.toml:1:"), "{wrong}");
    assert!(wrong.contains("did you mean \"address\"?") && wrong.contains("no work is given"));
}

#[test]
fn a_name_that_is_none_is_told() {
    let why = load("codis-vs-twemprox").unwrap_err().to_string();
    assert!(why.contains("did you mean \"codis-vs-twemproxy\"?"), "{why}");
    assert!(load("no/such.toml").unwrap_err().to_string().contains("cannot read no/such.toml"));
}

#[test]
fn the_example_of_the_document_is_right() {
    let document = include_str!("../../../docs/bench.md");
    let (_, behind) = document.split_once("```toml\n").unwrap();
    let (example, _) = behind.split_once("```").unwrap();
    let scenario = Scenario::parse("example", "docs/bench.md", example).unwrap();
    assert_eq!((scenario.systems.len(), scenario.items.len()), (2, 1));
}
