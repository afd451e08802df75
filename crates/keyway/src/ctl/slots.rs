//! Slots that move, on the command line: what is, orders about plans, and plans for whole pools.

use super::client::{Answer, Client, Unreachable};
use super::show::{list, text};
use super::{Ctl, REFUSED, UNREACHABLE, fail, print, tell};
use clap::{Args, Subcommand};
use keyway_fleet::SlotRanges;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Time between two looks at a plan that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Looks without an answer after which a plan is not waited for any more: for half a minute at least.
const SILENT_LOOKS_MAX: u32 = 100;

/// The path of the API.
const PATH: &str = "/v1/fleet/slots";

/// An order, or a question without one.
#[derive(Debug, Args)]
pub struct SlotsOf {
    #[command(subcommand)]
    what: Option<Word>,
}

#[derive(Debug, Subcommand)]
enum Word {
    /// The slots of each group, and the plans with what they wait for.
    Status {
        /// Only this pool.
        pool: Option<String>,
    },
    /// Move slots to a group while clients use them.
    Move {
        /// The pool.
        pool: String,
        /// The slots, as 0-99,200. Each group that has some of them gets a plan of its own.
        slots: SlotRanges,
        /// The group that gets them.
        #[arg(long, value_name = "GROUP")]
        to: String,
        #[command(flatten)]
        pace: PaceOf,
        /// Print the plans, and make none.
        #[arg(long)]
        dry_run: bool,
        /// Wait until all of them are over. Status 1 if one is aborted.
        #[arg(long, conflicts_with = "dry_run")]
        wait: bool,
    },
    /// Give every group its share of the slots, and move as few as possible.
    Rebalance {
        /// The pool.
        pool: String,
        /// The weight of a group, as GROUP=WEIGHT; 1 without it. One of 0 gets no slots.
        #[arg(long, value_name = "GROUP=WEIGHT", value_parser = weight)]
        weight: Vec<(String, u32)>,
        #[command(flatten)]
        doing: Doing,
    },
    /// Move all slots of a group to the others, so that it can be removed.
    Evacuate {
        /// The pool.
        pool: String,
        /// The group.
        group: String,
        #[command(flatten)]
        doing: Doing,
    },
    /// Give a plan up: the source keeps the slots, and the target's copies are deleted.
    Cancel(PlanOf),
    /// Have a plan wait. It copies nothing meanwhile, and begins its copy anew when it is resumed.
    Pause(PlanOf),
    /// Have a plan go on.
    Resume(PlanOf),
    /// Change the pace of a plan. Without a bound it copies as fast as it can.
    Pace {
        #[command(flatten)]
        plan: PlanOf,
        #[command(flatten)]
        pace: PaceOf,
    },
}

/// How a plan for a whole pool is carried out.
#[derive(Debug, Args)]
struct Doing {
    /// Make the plans. Without it they are only printed.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    pace: PaceOf,
    /// Wait until all of them are over. Status 1 if one is aborted.
    #[arg(long, requires = "yes")]
    wait: bool,
}

#[derive(Debug, Args)]
struct PlanOf {
    /// The pool.
    pool: String,
    /// The number of the plan.
    plan: u64,
}

#[derive(Clone, Copy, Debug, Args)]
struct PaceOf {
    /// Largest number of keys that are copied in a second.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    keys_per_second: Option<u64>,
    /// Largest number of bytes that are copied in a second.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    bytes_per_second: Option<u64>,
}

impl PaceOf {
    fn json(self) -> Value {
        let mut pace = json!({});
        if let Some(keys) = self.keys_per_second {
            pace["keys_per_second"] = keys.into();
        }
        if let Some(bytes) = self.bytes_per_second {
            pace["bytes_per_second"] = bytes.into();
        }
        pace
    }
}

/// Reads the weight of a group.
fn weight(text: &str) -> Result<(String, u32), String> {
    let parts = text.split_once('=');
    let read = parts.and_then(|(group, weight)| {
        Some((group.to_owned(), weight.parse().ok().filter(|weight| *weight <= 1000)?))
    });
    read.ok_or_else(|| "it is GROUP=WEIGHT, with a weight from 0 to 1000".to_owned())
}

/// A move that is to be ordered.
#[derive(Debug, PartialEq, Eq)]
struct Transfer {
    slots: SlotRanges,
    from: String,
    to: String,
}

/// Carries out an order, and returns the exit status.
pub fn run(ctl: &Ctl, client: &Client, of: &SlotsOf) -> ExitCode {
    let done = match of.what.as_ref() {
        None | Some(Word::Status { .. }) => ask(client).map(|answer| tell(ctl, &answer)),
        Some(Word::Move { pool, slots, to, dry_run: true, .. }) => {
            planned(client, pool, |groups| parts(groups, slots, to)).and_then(|transfers| {
                print(&told(&transfers)).map_err(|_| fail("nothing could be printed", REFUSED))?;
                Ok(ExitCode::SUCCESS)
            })
        }
        Some(Word::Move { pool, slots, to, pace, wait, .. }) => {
            let order = json!({
                "pool": pool, "action": "move", "slots": slots.to_string(), "to": to,
                "pace": pace.json()
            });
            post(client, &order).map(|answer| match (*wait, is_done(&answer)) {
                (true, true) => await_plans(client, pool, &[answer]),
                _ => tell(ctl, &answer),
            })
        }
        Some(Word::Rebalance { pool, weight, doing }) => {
            planned(client, pool, |groups| balanced(groups, &weights(groups, weight)?))
                .and_then(|transfers| carry_out(ctl, client, pool, &transfers, doing))
        }
        Some(Word::Evacuate { pool, group, doing }) => {
            planned(client, pool, |groups| evacuated(groups, group))
                .and_then(|transfers| carry_out(ctl, client, pool, &transfers, doing))
        }
        Some(Word::Cancel(of)) => order(ctl, client, of, "cancel", None),
        Some(Word::Pause(of)) => order(ctl, client, of, "pause", None),
        Some(Word::Resume(of)) => order(ctl, client, of, "resume", None),
        Some(Word::Pace { plan, pace }) => order(ctl, client, plan, "pace", Some(pace.json())),
    };
    done.unwrap_or_else(|status| status)
}

/// Returns the answer for people.
pub fn shown(of: &SlotsOf, body: &Value) -> String {
    let only = match of.what.as_ref() {
        Some(Word::Status { pool }) => pool.as_deref(),
        Some(
            Word::Move { pool, .. }
            | Word::Rebalance { pool, .. }
            | Word::Evacuate { pool, .. }
            | Word::Cancel(PlanOf { pool, .. })
            | Word::Pause(PlanOf { pool, .. })
            | Word::Resume(PlanOf { pool, .. })
            | Word::Pace { plan: PlanOf { pool, .. }, .. },
        ) => Some(&**pool),
        None => None,
    };
    let pools = list(&body["pools"]).iter();
    let pools: Vec<&Value> =
        pools.filter(|pool| only.is_none_or(|only| pool["pool"] == only)).collect();
    match (pools.is_empty(), only) {
        (true, Some(only)) => {
            format!("no pool {only} of kind \"slots\" with failover is in the document\n")
        }
        (true, None) => "no pool of kind \"slots\" with failover is in the document\n".to_owned(),
        (false, _) => pools.into_iter().map(pool_lines).collect(),
    }
}

fn pool_lines(pool: &Value) -> String {
    let mut out =
        format!("{}: {} slots, epoch {}\n", text(&pool["pool"]), pool["slots"], pool["epoch"]);
    for group in list(&pool["groups"]) {
        let (name, count) = (text(&group["group"]), &group["count"]);
        let _ = writeln!(out, "  {name:16} {count:>5}  {}", shortened(&text(&group["slots"])));
    }
    list(&pool["plans"]).iter().for_each(|plan| out += &plan_lines(plan));
    out
}

fn plan_lines(plan: &Value) -> String {
    let mut out = format!(
        "  plan {}: {} to {}, slots {}: {}",
        plan["plan"],
        text(&plan["from"]),
        text(&plan["to"]),
        shortened(&text(&plan["slots"])),
        text(&plan["step"])
    );
    if plan["paused"] == true {
        out += ", paused";
    }
    out.push('\n');
    if let Some(progress) = plan["progress"].as_object().filter(|_| plan["over"] == false) {
        let _ = write!(out, "    {} keys", progress["keys"]);
        if let Some(total) = progress["keys_total"].as_u64() {
            let _ = write!(out, " of {total}");
        }
        let _ = write!(out, ", {} bytes", progress["bytes"]);
        if progress["keys_per_second"] != 0 {
            let _ = write!(out, ", {} keys/s", progress["keys_per_second"]);
        }
        if let Some(behind) = progress["behind_bytes"].as_u64() {
            let _ = write!(out, ", {behind} bytes behind");
        }
        out.push('\n');
    }
    for (name, label) in [("waits_for", "waits for"), ("why", "because")] {
        let words = text(&plan[name]);
        if !words.is_empty() {
            let _ = writeln!(out, "    {label} {words}");
        }
    }
    out
}

/// Returns ranges, without the end of a list that fills a screen.
fn shortened(ranges: &str) -> String {
    let shown: Vec<&str> = ranges.split(',').take(8).collect();
    match ranges.split(',').count() - shown.len() {
        0 if ranges.is_empty() => "none".to_owned(),
        0 => ranges.to_owned(),
        more => format!("{} and {more} more ranges", shown.join(",")),
    }
}

fn ask(client: &Client) -> Result<Answer, ExitCode> {
    client.ask("GET", PATH, None).map_err(|Unreachable(what)| fail(&what, UNREACHABLE))
}

fn post(client: &Client, order: &Value) -> Result<Answer, ExitCode> {
    let answer = client.ask("POST", PATH, Some(order));
    answer.map_err(|Unreachable(what)| fail(&what, UNREACHABLE))
}

fn is_done(answer: &Answer) -> bool {
    answer.status == 200
}

fn order(
    ctl: &Ctl,
    client: &Client,
    of: &PlanOf,
    action: &str,
    pace: Option<Value>,
) -> Result<ExitCode, ExitCode> {
    let mut order = json!({"pool": of.pool, "action": action, "plan": of.plan});
    if let Some(pace) = pace {
        order["pace"] = pace;
    }
    post(client, &order).map(|answer| tell(ctl, &answer))
}

/// The slots of each group.
type Groups = BTreeMap<String, SlotRanges>;

/// Returns the moves that a pool needs, as `plan` says it of the slots of its groups.
fn planned(
    client: &Client,
    pool: &str,
    plan: impl FnOnce(&Groups) -> Result<Vec<Transfer>, String>,
) -> Result<Vec<Transfer>, ExitCode> {
    let answer = ask(client)?;
    if !is_done(&answer) {
        return Err(fail(&text(&answer.body["detail"]), REFUSED));
    }
    let pools = list(&answer.body["pools"]);
    let Some(found) = pools.iter().find(|one| one["pool"] == pool) else {
        let what = format!("no pool {pool} of kind \"slots\" with failover is in the document");
        return Err(fail(&what, REFUSED));
    };
    if list(&found["plans"]).iter().any(|plan| plan["over"] == false) {
        let what = format!("pool {pool} has plans that go on: wait for their end, or cancel them");
        return Err(fail(&what, REFUSED));
    }
    let groups = list(&found["groups"]).iter().map(|group| {
        let slots = group["slots"].as_str().unwrap_or_default().parse();
        (text(&group["group"]), slots.unwrap_or_default())
    });
    plan(&groups.collect()).map_err(|what| fail(&format!("pool {pool}: {what}"), REFUSED))
}

fn told(transfers: &[Transfer]) -> String {
    match transfers {
        [] => "nothing is to be moved\n".to_owned(),
        transfers => transfers
            .iter()
            .map(|one| {
                format!(
                    "{} slots from {} to {}: {}\n",
                    one.slots.len(),
                    one.from,
                    one.to,
                    one.slots
                )
            })
            .collect(),
    }
}

/// Orders moves, or prints them.
fn carry_out(
    ctl: &Ctl,
    client: &Client,
    pool: &str,
    transfers: &[Transfer],
    doing: &Doing,
) -> Result<ExitCode, ExitCode> {
    print(&told(transfers))?;
    if transfers.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    if !doing.yes {
        print("nothing was done: the same with --yes does it\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut answers = Vec::new();
    for one in transfers {
        let order = json!({
            "pool": pool, "action": "move", "slots": one.slots.to_string(), "to": one.to,
            "pace": doing.pace.json()
        });
        let answer = post(client, &order)?;
        if !is_done(&answer) {
            return Ok(tell(ctl, &answer));
        }
        answers.push(answer);
    }
    match (doing.wait, answers.last()) {
        (true, _) => Ok(await_plans(client, pool, &answers)),
        (false, Some(last)) => Ok(tell(ctl, last)),
        (false, None) => Ok(ExitCode::SUCCESS),
    }
}

/// Waits until the plans of some orders are over, and prints each step.
fn await_plans(client: &Client, pool: &str, answers: &[Answer]) -> ExitCode {
    let first = answers.iter().filter_map(|answer| answer.body["plan"].as_u64()).min();
    let mut shown: BTreeMap<u64, String> = BTreeMap::new();
    let mut silent_looks = 0;
    loop {
        let answer = match client.ask("GET", PATH, None) {
            Ok(answer) if is_done(&answer) => answer,
            // A control node that is restarted, or another one that leads, goes on.
            outcome => {
                silent_looks += 1;
                if silent_looks > SILENT_LOOKS_MAX {
                    return match outcome {
                        Ok(answer) => fail(&text(&answer.body["detail"]), REFUSED),
                        Err(Unreachable(what)) => fail(&what, UNREACHABLE),
                    };
                }
                std::thread::park_timeout(LOOK_EVERY);
                continue;
            }
        };
        silent_looks = 0;
        let pools = list(&answer.body["pools"]).iter();
        let plans = pools.filter(|one| one["pool"] == pool).flat_map(|one| list(&one["plans"]));
        let ours: Vec<&Value> = plans.filter(|plan| plan["plan"].as_u64() >= first).collect();
        for plan in &ours {
            let id = plan["plan"].as_u64().unwrap_or_default();
            let step = text(&plan["step"]);
            if shown.get(&id) != Some(&step) {
                if let Err(status) = print(&plan_lines(plan)) {
                    return status;
                }
                shown.insert(id, step);
            }
        }
        if ours.iter().all(|plan| plan["over"] == true) {
            let is_aborted = ours.iter().any(|plan| plan["step"] == "aborted");
            return if is_aborted { ExitCode::from(REFUSED) } else { ExitCode::SUCCESS };
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// Returns the moves of slots to a group, one for each group that has some of them.
fn parts(groups: &Groups, slots: &SlotRanges, to: &str) -> Result<Vec<Transfer>, String> {
    if !groups.contains_key(to) {
        return Err(no_group(groups, to));
    }
    let others = groups.iter().filter(|(group, _)| *group != to);
    let parts = others.map(|(from, own)| Transfer {
        slots: own.and(slots),
        from: from.clone(),
        to: to.to_owned(),
    });
    Ok(parts.filter(|one| !one.slots.is_empty()).collect())
}

fn no_group(groups: &Groups, name: &str) -> String {
    let names: Vec<&str> = groups.keys().map(String::as_str).collect();
    format!("it has no group {name}; it has {}", names.join(", "))
}

fn weights(groups: &Groups, given: &[(String, u32)]) -> Result<BTreeMap<String, u32>, String> {
    let mut weights: BTreeMap<String, u32> = groups.keys().map(|name| (name.clone(), 1)).collect();
    for (name, weight) in given {
        match weights.get_mut(name) {
            Some(known) => *known = *weight,
            None => return Err(no_group(groups, name)),
        }
    }
    match weights.values().all(|weight| *weight == 0) {
        true => Err("one group at least needs a weight above 0".to_owned()),
        false => Ok(weights),
    }
}

fn evacuated(groups: &Groups, group: &str) -> Result<Vec<Transfer>, String> {
    if !groups.contains_key(group) {
        return Err(no_group(groups, group));
    }
    if groups.len() < 2 {
        return Err("it has no other group".to_owned());
    }
    let own = groups.get(group).cloned().unwrap_or_default();
    let mut left = own.clone();
    // The others keep what they have, and those with the fewest get most.
    let mut counts: BTreeMap<&String, u32> = groups
        .iter()
        .filter(|(name, _)| *name != group)
        .map(|(name, own)| (name, own.len()))
        .collect();
    let mut gets: BTreeMap<&String, u32> = BTreeMap::new();
    for _ in 0..own.len() {
        let Some((name, count)) = counts.iter_mut().min_by_key(|(_, count)| **count) else { break };
        *count += 1;
        *gets.entry(name).or_default() += 1;
    }
    let transfers = gets.into_iter().map(|(to, count)| {
        let slots = last_of(&left, count);
        left = left.without(&slots);
        Transfer { slots, from: group.to_owned(), to: to.clone() }
    });
    Ok(transfers.collect())
}

/// Returns the moves after which every group has its share. Each slot moves once at most.
fn balanced(groups: &Groups, weights: &BTreeMap<String, u32>) -> Result<Vec<Transfer>, String> {
    let total: u64 = groups.values().map(|own| u64::from(own.len())).sum();
    let sum: u64 = weights.values().map(|weight| u64::from(*weight)).sum();
    let mut shares: Vec<(&String, u32, u64)> = Vec::new();
    for (name, weight) in weights {
        let exact = total * u64::from(*weight);
        shares.push((name, (exact / sum.max(1)) as u32, exact % sum.max(1)));
    }
    let given: u64 = shares.iter().map(|(_, share, _)| u64::from(*share)).sum();
    // The rest of a division goes to the groups that it was taken from, first to those that have more.
    let has = |name: &str| groups.get(name).map_or(0, SlotRanges::len);
    shares.sort_by_key(|(name, share, rest)| {
        (std::cmp::Reverse(*rest), std::cmp::Reverse(i64::from(has(name)) - i64::from(*share)))
    });
    for (_, share, _) in shares.iter_mut().take((total - given) as usize) {
        *share += 1;
    }
    let mut spare: Vec<(&String, SlotRanges)> = Vec::new();
    for (name, share, _) in &shares {
        if let Some(own) = groups.get(*name).filter(|own| own.len() > *share) {
            spare.push((name, last_of(own, own.len() - share)));
        }
    }
    let mut transfers = Vec::new();
    for (to, share, _) in &shares {
        let mut lacks = share.saturating_sub(has(to));
        while lacks > 0 {
            let Some((from, left)) = spare.iter_mut().find(|(_, left)| !left.is_empty()) else {
                break;
            };
            let slots = last_of(left, lacks);
            lacks -= slots.len();
            *left = left.without(&slots);
            transfers.push(Transfer { slots, from: (*from).clone(), to: (*to).clone() });
        }
    }
    Ok(transfers)
}

/// Returns the last slots of a set, this number at most.
fn last_of(slots: &SlotRanges, count: u32) -> SlotRanges {
    let skipped = slots.len().saturating_sub(count) as usize;
    SlotRanges::new(slots.iter().skip(skipped).map(|slot| (slot, slot)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(of: &[(&str, &str)]) -> Groups {
        of.iter().map(|(name, slots)| (name.to_string(), slots.parse().unwrap())).collect()
    }

    fn after(groups: &Groups, transfers: &[Transfer]) -> Groups {
        let mut after = groups.clone();
        for one in transfers {
            let own = after.get_mut(&one.from).unwrap();
            assert_eq!(own.and(&one.slots), one.slots, "{} has not got them", one.from);
            *own = own.without(&one.slots);
            let own = after.get_mut(&one.to).unwrap();
            *own = own.or(&one.slots);
        }
        after
    }

    fn moved(transfers: &[Transfer]) -> u32 {
        transfers.iter().map(|one| one.slots.len()).sum()
    }

    #[test]
    fn a_new_group_gets_its_share_and_nothing_else_moves() {
        let groups = groups(&[("a", "0-511"), ("b", "512-1023"), ("c", "")]);
        let transfers = balanced(&groups, &weights(&groups, &[]).unwrap()).unwrap();
        let after = after(&groups, &transfers);
        let counts: Vec<u32> = after.values().map(SlotRanges::len).collect();
        assert_eq!(counts.iter().sum::<u32>(), 1024);
        assert!(counts.iter().all(|count| (341..=342).contains(count)), "{counts:?}");
        assert_eq!(moved(&transfers), after["c"].len());
        let again = balanced(&after, &weights(&after, &[]).unwrap()).unwrap();
        assert_eq!(again, [], "a balanced pool stays as it is");
    }

    #[test]
    fn weights_are_shares_and_zero_is_none() {
        let groups = groups(&[("a", "0-1023"), ("b", ""), ("c", "")]);
        let given = [("a".to_owned(), 0), ("b".to_owned(), 3)];
        let transfers = balanced(&groups, &weights(&groups, &given).unwrap()).unwrap();
        let after = after(&groups, &transfers);
        assert_eq!([after["a"].len(), after["b"].len(), after["c"].len()], [0, 768, 256]);
        assert!(weights(&groups, &[("x".to_owned(), 1)]).unwrap_err().contains("no group x"));
        for wrong in ["a", "a=", "a=-1", "a=1001", "=x"] {
            assert!(weight(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_evacuated_group_has_nothing_and_the_others_are_level() {
        let groups = groups(&[("a", "0-99"), ("b", "100-149"), ("c", "150-199")]);
        let transfers = evacuated(&groups, "a").unwrap();
        let after = after(&groups, &transfers);
        assert!(after["a"].is_empty());
        assert_eq!((after["b"].len(), after["c"].len()), (100, 100));
        assert_eq!(moved(&transfers), 100);
        assert!(evacuated(&groups, "x").is_err());
    }

    #[test]
    fn a_move_is_split_by_the_groups_that_have_the_slots() {
        let groups = groups(&[("a", "0-9"), ("b", "10-19"), ("c", "20-29")]);
        let transfers = parts(&groups, &"5-22".parse().unwrap(), "c").unwrap();
        let told: Vec<String> =
            transfers.iter().map(|one| format!("{}:{}", one.from, one.slots)).collect();
        assert_eq!(told, ["a:5-9", "b:10-19"]);
    }
}
