//! Tests that the oracles can fail: each deliberate defect is found and named.

use keyway_sim::{Defect, Options, run_seed};

/// The reports of a reply that belongs to another request.
const MISPLACED: [&str; 8] = [
    "is none of",
    "another kind",
    "can only",
    "never executed",
    "of the keys exist",
    "no reason",
    "nobody may be told",
    "but the keys live on",
];

/// Runs seeds with a defect. A report must be one of `texts`, and there must be many reports: not
/// every seed gives a defect a chance to show.
fn assert_found(name: &str, options: impl Fn(u64) -> Options, texts: &[&str]) {
    let (mut found, seeds) = (0, 48);
    for seed in 0..seeds {
        if let Err(violation) = run_seed(seed, &options(seed)) {
            let text = &violation.text;
            assert!(texts.iter().any(|part| text.contains(part)), "{name}, seed {seed}: {text}");
            assert!(violation.to_string().contains(&format!("--from {seed}")));
            found += 1;
        }
    }
    assert!(found * 6 >= seeds, "{name} was found in {found} of {seeds} seeds");
    println!("{name} was found in {found} of {seeds} seeds");
}

fn with(defect: Defect) -> impl Fn(u64) -> Options {
    move |_| Options { defect: Some(defect), ..Options::default() }
}

#[test]
fn without_a_defect_nothing_is_found() {
    for seed in 0..24 {
        let violation = run_seed(seed, &with(Defect::None)(seed)).err();
        assert_eq!(violation.map(|violation| violation.text), None, "seed {seed}");
    }
}

#[test]
fn swapped_replies_are_found() {
    let texts = [&MISPLACED[..], &["hangs"]].concat();
    assert_found("a pair of swapped replies", with(Defect::SwappedReplies), &texts);
}

#[test]
fn a_lost_reply_is_found() {
    let texts = [&MISPLACED[..], &["hangs"]].concat();
    assert_found("a lost reply", with(Defect::LostReply), &texts);
}

#[test]
fn a_doubled_reply_is_found() {
    assert_found("a doubled reply", with(Defect::DoubledReply), &MISPLACED);
}

#[test]
fn a_forgotten_write_is_found() {
    let texts = ["can only hold", "of the keys exist"];
    assert_found("a forgotten write", with(Defect::ForgottenWrite), &texts);
}

#[test]
fn another_keys_value_is_found() {
    assert_found("another key's value", with(Defect::WrongValue), &["is none of"]);
}

#[test]
fn an_older_value_is_found() {
    assert_found("an older value", with(Defect::OldValue), &["can only hold"]);
}

#[test]
fn a_groundless_error_is_found() {
    let texts = ["nobody may be told", "no reason"];
    assert_found("a groundless error", with(Defect::GroundlessError), &texts);
}

#[test]
fn a_write_executed_twice_is_found() {
    assert_found("a doubled write", with(Defect::DoubledWrite), &["executed twice"]);
}

#[test]
fn a_torn_transaction_is_found() {
    let texts = ["was torn", "never executed"];
    assert_found("a torn transaction", with(Defect::TornTransaction), &texts);
}

#[test]
fn an_update_lost_to_a_blind_watch_is_found() {
    assert_found("a blind watch", with(Defect::BlindWatch), &["lost update"]);
}

#[test]
fn an_element_given_to_nobody_is_found() {
    assert_found("a lost element", with(Defect::LostElement), &["got lost"]);
}

#[test]
fn a_lost_message_is_found() {
    assert_found("a lost message", with(Defect::LostMessage), &["was missed"]);
}

#[test]
fn a_message_told_twice_is_found() {
    assert_found("a doubled message", with(Defect::DoubledMessage), &["was told before"]);
}

#[test]
fn a_message_that_overtakes_another_is_found() {
    let texts = ["was overtaken", "was missed"];
    assert_found("a pair of swapped messages", with(Defect::SwappedMessages), &texts);
}

#[test]
fn a_change_that_nobody_is_told_of_is_found() {
    assert_found("a lost invalidation", with(Defect::LostInvalidation), &["nobody told of"]);
}

#[test]
fn an_edge_that_is_never_told_is_found_as_a_hang() {
    let options = |seed| Options { dropped_edge: Some(60 + seed * 7), ..Options::default() };
    assert_found("a dropped edge", options, &["hangs", "no reason", "holds something"]);
}
