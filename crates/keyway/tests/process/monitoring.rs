//! The shipped board and alert rules use only metrics and labels that exist, and the rules fire
//! when they should.

use keyway_control::MemberState;
use keyway_fleet::GroupState;
use keyway_metrics::{CATALOGUE, Kind, Label, Metric};
use keyway_testkit::{
    Keyway, KeywayConfig, Pool, RedisServer, TempDir, run_tool, skipped_for_want_of,
    tool_is_installed, watchdog,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
const RULES: &str = "prometheus/keyway.rules.yml";
const RULES_TESTS: &str = "prometheus/keyway.test.yml";
const BOARD: &str = "grafana/keyway.json";
/// Labels that Prometheus adds, or that a rule sets.
const ADDED: &[&str] = &["job", "instance"];

fn read(file: &str) -> String {
    fs::read_to_string(format!("{DEPLOY}/{file}")).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn board() -> Value {
    serde_json::from_str(&read(BOARD)).expect("the board is JSON")
}

/// Collects every string under a key of that name, anywhere in the board.
fn strings<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_str().filter(|_| name == key) {
                    Some(text) => found.push(text),
                    None => strings(field, key, found),
                }
            }
        }
        Value::Array(entries) => entries.iter().for_each(|entry| strings(entry, key, found)),
        _ => {}
    }
}

/// Returns all expressions for Prometheus: of the rules, the board's panels and its variables.
fn expressions() -> Vec<String> {
    let rules = read(RULES);
    let of_rules = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: '"));
    let mut all: Vec<String> =
        of_rules.map(|rest| rest.trim_end_matches('\'').to_owned()).collect();
    let board = board();
    let mut of_board = Vec::new();
    strings(&board, "expr", &mut of_board);
    strings(&board, "definition", &mut of_board);
    all.extend(of_board.into_iter().map(str::to_owned));
    all
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// One metric of an expression, with the labels that select it and the values they are compared
/// with.
struct Use {
    name: String,
    labels: Vec<(String, String)>,
}

fn uses(expression: &str) -> Vec<Use> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find("keyway_") {
        let behind = &rest[at..];
        let end = behind.find(|c| !is_name(c)).unwrap_or(behind.len());
        let selector = behind[end..].strip_prefix('{').and_then(|it| it.split_once('}'));
        let labels = selector.map_or_else(Vec::new, |(inside, _)| selected(inside));
        found.push(Use { name: behind[..end].to_owned(), labels });
        rest = &behind[end..];
    }
    found
}

fn selected(inside: &str) -> Vec<(String, String)> {
    let one = |part: &str| {
        let at = part.find(['=', '!']).unwrap_or_else(|| panic!("{part} is no matcher"));
        let value = part[at..].trim_start_matches(['=', '!', '~']).trim_matches('"');
        (part[..at].trim().to_owned(), value.to_owned())
    };
    inside.split(", ").map(one).collect()
}

/// Returns the labels in `by (…)`, `without (…)` and the like.
fn grouped(expression: &str) -> Vec<&str> {
    let words = ["by (", "without (", "on (", "ignoring (", "group_left (", "group_right ("];
    let lists = words.iter().flat_map(|word| expression.split(word).skip(1));
    let lists = lists.filter_map(|rest| rest.split(')').next());
    lists.flat_map(|list| list.split(", ")).filter(|label| !label.is_empty()).collect()
}

/// Returns the metric that a series belongs to.
fn metric(series: &str) -> &'static Metric {
    let found = CATALOGUE.iter().find(|metric| {
        let part = series.strip_prefix(metric.name);
        match metric.kind {
            Kind::Histogram => matches!(part, Some("_bucket" | "_sum" | "_count")),
            _ => part == Some(""),
        }
    });
    found.unwrap_or_else(|| panic!("there is no metric with the series {series}"))
}

fn has_label(series: &str, label: &str) -> bool {
    let of_metric = metric(series).labels.iter().any(|one: &Label| one.as_str() == label);
    of_metric || ADDED.contains(&label) || (label == "le" && series.ends_with("_bucket"))
}

#[test]
fn every_metric_and_label_is_in_the_catalogue() {
    let expressions = expressions();
    assert!(expressions.len() > 60, "{}", expressions.len());
    for expression in &expressions {
        let uses = uses(expression);
        assert!(!uses.is_empty() || expression.starts_with("up{"), "{expression}");
        for one in &uses {
            for (label, _) in &one.labels {
                assert!(has_label(&one.name, label), "{label} of {} in {expression}", one.name);
            }
            // Grouping by a label that does not exist would give an empty value.
            for label in grouped(expression) {
                let is_there = uses.iter().any(|one| has_label(&one.name, label));
                assert!(is_there, "{label} in {expression}");
            }
        }
    }
    for text in [read(RULES), read(BOARD), read("../docs/monitoring.md")] {
        for part in text.split("keyway_").skip(1) {
            let end = part.find(|c| !is_name(c)).unwrap_or(part.len());
            let name = format!("keyway_{}", &part[..end]);
            let is_there = CATALOGUE.iter().any(|metric| metric.name == name);
            assert!(is_there || std::panic::catch_unwind(|| metric(&name)).is_ok(), "{name}");
        }
    }
}

#[test]
fn legends_name_labels_that_their_series_have() {
    let board = board();
    let panels = board["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64()), "two panels have the id of {}", panel["title"]);
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().expect("an expression");
            let grouped = grouped(expression);
            let uses = uses(expression);
            let legend = target["legendFormat"].as_str().unwrap_or_default();
            for part in legend.split("{{").skip(1) {
                let label = part.split("}}").next().unwrap_or_default();
                let is_kept = match grouped.is_empty() {
                    true => uses.iter().all(|one| has_label(&one.name, label)),
                    false => grouped.contains(&label),
                };
                assert!(is_kept, "{label} in the legend of {expression}");
            }
        }
    }
}

#[test]
fn values_that_labels_are_compared_with_occur() {
    let _watch = watchdog(Duration::from_secs(30), "metrics of a process");
    let servers = RedisServer::start_many(1);
    let pools = vec![Pool::over("far", &servers), Pool::store("near")];
    let page = Keyway::start(env!("CARGO_BIN_EXE_keyway"), KeywayConfig::new(pools)).metrics();
    let mut compared = 0;
    for expression in expressions() {
        for one in uses(&expression) {
            let fixed = one.labels.iter().filter(|(label, value)| {
                !ADDED.contains(&label.as_str()) && !value.starts_with('$')
            });
            for (label, value) in fixed {
                let states: Vec<&str> = match one.name.as_str() {
                    "keyway_fleet_group_state_info" => {
                        GroupState::ALL.iter().map(|(_, name)| *name).collect()
                    }
                    "keyway_fleet_members" => {
                        MemberState::ALL.iter().map(|(_, name)| *name).collect()
                    }
                    _ => Vec::new(),
                };
                // This process is no control node.
                if !states.is_empty() {
                    let is_state = |name: &str| states.contains(&name);
                    assert!(value.split('|').all(is_state), "{value} in {expression}");
                    continue;
                }
                let sample = format!("{label}=\"{value}\"");
                assert!(page.count(&one.name, &[&sample]) > 0, "{sample} in {expression}");
                compared += 1;
            }
        }
    }
    assert!(compared >= 4, "{compared}");
}

fn has_promtool() -> bool {
    let is_there = tool_is_installed("promtool");
    if !is_there {
        skipped_for_want_of("promtool", "rules as Prometheus reads them");
    }
    is_there
}

fn promtool(arguments: &[&str]) -> String {
    let bound = Duration::from_secs(60);
    run_tool("promtool", arguments, b"", bound).expect_success("promtool").text
}

#[test]
fn alerts_fire_when_they_should_and_each_is_tried() {
    if !has_promtool() {
        return;
    }
    let (rules, tests) = (format!("{DEPLOY}/{RULES}"), format!("{DEPLOY}/{RULES_TESTS}"));
    promtool(&["check", "rules", &rules]);
    promtool(&["test", "rules", &tests]);
    let (rules, tests) = (read(RULES), read(RULES_TESTS));
    let alerts: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    let page = read("../docs/monitoring.md");
    for alert in alerts {
        let begin = format!("- alertname: {alert}\n");
        let of_alert = tests.split(&begin).skip(1);
        let fires = of_alert.filter(|test| test.contains("exp_labels")).count();
        assert!(fires > 0, "no test lets {alert} fire");
        assert!(page.contains(&format!("`{alert}`")), "docs/monitoring.md lacks {alert}");
    }
}

#[test]
fn prometheus_understands_every_panel() {
    if !has_promtool() {
        return;
    }
    let board = board();
    let mut expressions = Vec::new();
    strings(&board, "expr", &mut expressions);
    let mut rules = "groups:\n  - name: board\n    rules:\n".to_owned();
    for (index, expression) in expressions.iter().enumerate() {
        let plain = expression.replace("$__rate_interval", "5m");
        // A JSON string is a YAML string.
        let quoted = Value::from(plain).to_string();
        rules += &format!("      - record: 'board:panel{index}'\n        expr: {quoted}\n");
    }
    let directory = TempDir::new();
    let file = directory.write("board.yml", &rules);
    let said = promtool(&["check", "rules", &file.to_string_lossy()]);
    assert!(said.contains(&format!("{} rules found", expressions.len())), "{said}");
}
