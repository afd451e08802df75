//! One reply of the answers of several members.
//!
//! Numbers of the same thing are added up; what differs between members is listed with its member.
//! `missing` has the members that have not answered, and why.

use super::{MemberAnswer, MemberReply};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Longest reason of a member that is repeated, in characters.
const WHY_LEN_MAX: usize = 1000;

/// Reads all answers. Returns those that are JSON of a good status, and the members that have not
/// answered so, with the reason.
fn read_all(answers: &[MemberAnswer]) -> (Vec<(&MemberAnswer, Value)>, Vec<Value>) {
    let (mut good, mut missing) = (Vec::new(), Vec::new());
    for one in answers {
        match read(one) {
            Ok(value) => good.push((one, value)),
            Err(why) => missing.push(json!({"member": one.id, "zone": one.zone, "why": why})),
        }
    }
    (good, missing)
}

/// Reads an answer.
///
/// # Errors
/// Returns the reason why there is none, or the one that the member gives.
fn read(answer: &MemberAnswer) -> Result<Value, String> {
    let reply = answer.outcome.as_ref().map_err(Clone::clone)?;
    let value: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    match (200..300).contains(&reply.status) && value.is_object() {
        true => Ok(value),
        false => Err(why(reply, &value)),
    }
}

fn why(reply: &MemberReply, value: &Value) -> String {
    let errors = list(&value["errors"]).iter().filter_map(Value::as_str);
    let words: Vec<&str> = value["detail"].as_str().into_iter().chain(errors).collect();
    match words.is_empty() {
        true => format!("it answers with HTTP status {}", reply.status),
        false => words.join("; ").chars().take(WHY_LEN_MAX).collect(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_default()
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// Adds the member to an object of its answer.
fn with_member(mut value: Value, of: &MemberAnswer) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.insert("member".to_owned(), of.id.clone().into());
        object.insert("zone".to_owned(), of.zone.into());
    }
    value
}

/// Members, and what they have together.
#[derive(Default)]
struct Sum {
    members: u64,
    draining: u64,
    workers: u64,
    clients: u64,
}

impl Sum {
    fn add(&mut self, status: &Value) {
        self.members += 1;
        self.draining += u64::from(status["draining"] == true);
        self.workers = self.workers.saturating_add(number(status, "workers"));
        self.clients = self.clients.saturating_add(number(status, "clients"));
    }

    fn to_json(&self) -> Map<String, Value> {
        let Sum { members, draining, workers, clients } = *self;
        let fields = [
            ("members", members),
            ("draining", draining),
            ("workers", workers),
            ("clients", clients),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
    }
}

/// Returns the status of all, of each zone and of each member.
pub(super) fn status(answers: &[MemberAnswer]) -> Value {
    let (good, missing) = read_all(answers);
    let (mut all, mut zones) = (Sum::default(), BTreeMap::<u64, Sum>::new());
    let (mut versions, mut each) = (BTreeMap::<String, u64>::new(), Vec::new());
    for (of, status) in good {
        all.add(&status);
        zones.entry(of.zone).or_default().add(&status);
        *versions.entry(text(&status, "version").to_owned()).or_default() += 1;
        each.push(with_member(status, of));
    }
    let zones = zones.iter().map(|(zone, sum)| {
        let mut fields = sum.to_json();
        fields.insert("zone".to_owned(), (*zone).into());
        Value::Object(fields)
    });
    let mut whole = all.to_json();
    whole.insert("versions".to_owned(), json!(versions));
    whole.insert("zones".to_owned(), zones.collect());
    whole.insert("each".to_owned(), each.into());
    whole.insert("missing".to_owned(), missing.into());
    Value::Object(whole)
}

/// A server, as several members see it.
struct Server {
    /// The answer of the first member.
    first: Map<String, Value>,
    states: BTreeMap<String, u64>,
    links: u64,
    in_flight: u64,
}

/// The servers of a pool, in the order in which they are met.
#[derive(Default)]
struct Servers {
    places: BTreeMap<(String, String), usize>,
    all: Vec<Server>,
}

impl Servers {
    fn add(&mut self, server: &Value) {
        let Some(object) = server.as_object() else { return };
        let key = (text(server, "name").to_owned(), text(server, "address").to_owned());
        let place = *self.places.entry(key).or_insert_with(|| {
            let (first, states) = (object.clone(), BTreeMap::new());
            self.all.push(Server { first, states, links: 0, in_flight: 0 });
            self.all.len() - 1
        });
        let Some(known) = self.all.get_mut(place) else { return };
        *known.states.entry(text(server, "state").to_owned()).or_default() += 1;
        known.links = known.links.saturating_add(number(server, "links"));
        known.in_flight = known.in_flight.saturating_add(number(server, "in_flight"));
        let first = &mut known.first;
        // The reason of any of them, and the latest change.
        if first.get("reason").is_none_or(Value::is_null) && !server["reason"].is_null() {
            first.insert("reason".to_owned(), server["reason"].clone());
        }
        if first.get("since").and_then(Value::as_str) < server["since"].as_str() {
            first.insert("since".to_owned(), server["since"].clone());
        }
        if server["by_hand"] == true {
            first.insert("by_hand".to_owned(), true.into());
        }
    }

    fn into_json(self) -> Vec<Value> {
        let one = |server: Server| {
            let mut object = server.first;
            let is_one = server.states.len() == 1;
            let state = server.states.keys().next().filter(|_| is_one).cloned();
            object.insert("state".to_owned(), state.unwrap_or_else(|| "mixed".to_owned()).into());
            object.insert("states".to_owned(), json!(server.states));
            object.insert("links".to_owned(), server.links.into());
            object.insert("in_flight".to_owned(), server.in_flight.into());
            Value::Object(object)
        };
        self.all.into_iter().map(one).collect()
    }
}

/// Returns every pool with its servers.
pub(super) fn pools(answers: &[MemberAnswer]) -> Value {
    let (good, missing) = read_all(answers);
    let mut pools = BTreeMap::<(String, String), (u64, Servers)>::new();
    for (_, answer) in good {
        for pool in list(&answer["pools"]) {
            let key = (text(pool, "name").to_owned(), text(pool, "kind").to_owned());
            let (members, servers) = pools.entry(key).or_default();
            *members += 1;
            list(&pool["servers"]).iter().for_each(|server| servers.add(server));
        }
    }
    let pools = pools.into_iter().map(|((name, kind), (members, servers))| {
        json!({"name": name, "kind": kind, "members": members, "servers": servers.into_json()})
    });
    json!({"pools": pools.collect::<Vec<_>>(), "missing": missing})
}

/// Returns every server, of all pools or of one.
pub(super) fn servers(answers: &[MemberAnswer]) -> Value {
    let (good, missing) = read_all(answers);
    let mut pools = BTreeMap::<String, Servers>::new();
    for (_, answer) in good {
        for server in list(&answer["servers"]) {
            pools.entry(text(server, "pool").to_owned()).or_default().add(server);
        }
    }
    let all = pools.into_values().flat_map(Servers::into_json);
    json!({"servers": all.collect::<Vec<_>>(), "missing": missing})
}

/// Returns clients of all members, the oldest first.
pub(super) fn connections(answers: &[MemberAnswer], limit: usize) -> Value {
    let (good, missing) = read_all(answers);
    let (mut total, mut clients) = (0u64, Vec::new());
    for (of, answer) in good {
        total = total.saturating_add(number(&answer, "total"));
        clients.extend(list(&answer["clients"]).iter().cloned().map(|one| with_member(one, of)));
    }
    clients.sort_by_cached_key(|one| text(one, "since").to_owned());
    clients.truncate(limit);
    json!({"total": total, "clients": clients, "missing": missing})
}

/// Returns slow requests of all members, the latest first.
pub(super) fn slow_log(answers: &[MemberAnswer], limit: usize) -> Value {
    let (good, missing) = read_all(answers);
    let mut requests = Vec::new();
    for (of, answer) in good {
        requests.extend(list(&answer["requests"]).iter().cloned().map(|one| with_member(one, of)));
    }
    requests.sort_by_cached_key(|one| Reverse(text(one, "at").to_owned()));
    requests.truncate(limit);
    json!({"requests": requests, "missing": missing})
}

/// Keys that are asked for, by several members.
#[derive(Default)]
struct HotKeys {
    rate: f64,
    keys: BTreeMap<String, HotKey>,
}

/// Accesses per second to a key, and their error.
#[derive(Default)]
struct HotKey {
    rate: f64,
    error: f64,
}

impl HotKeys {
    fn add(&mut self, of_member: &Value) {
        let float = |value: &Value| value.as_f64().unwrap_or_default().max(0.0);
        let total = float(&of_member["rate"]);
        self.rate += total;
        for key in list(&of_member["keys"]) {
            let known = self.keys.entry(text(key, "key").to_owned()).or_default();
            known.rate += float(&key["rate"]);
            known.error += float(&key["share_error"]) * total;
        }
    }

    fn into_json(self, limit: usize) -> Value {
        let HotKeys { rate, keys } = self;
        let mut keys: Vec<_> = keys.into_iter().collect();
        keys.sort_by(|(_, one), (_, other)| other.rate.total_cmp(&one.rate));
        keys.truncate(limit);
        let share = |part: f64| if rate > 0.0 { rounded((part / rate).min(1.0), 1e6) } else { 0.0 };
        let keys = keys.into_iter().map(|(key, known)| {
            json!({"key": key, "share": share(known.rate), "share_error": share(known.error),
                   "rate": rounded(known.rate, 1e3)})
        });
        json!({"rate": rounded(rate, 1e3), "keys": keys.collect::<Vec<_>>()})
    }
}

fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

/// The keys of a pool that stand out.
#[derive(Default)]
struct KeysOfPool {
    reads: HotKeys,
    writes: HotKeys,
    big: BTreeMap<String, Value>,
}

/// Returns hot and big keys. A key that several members serve has the sum of their rates, and the
/// largest of its values.
pub(super) fn hot_keys(answers: &[MemberAnswer], limit: usize) -> Value {
    let (good, missing) = read_all(answers);
    let mut pools = BTreeMap::<String, KeysOfPool>::new();
    let (mut every, mut from) = (0, 0);
    for (_, answer) in good {
        every = every.max(number(&answer, "hot_keys_every"));
        from = from.max(number(&answer, "big_values_from"));
        for pool in list(&answer["pools"]) {
            let known = pools.entry(text(pool, "pool").to_owned()).or_default();
            known.reads.add(&pool["reads"]);
            known.writes.add(&pool["writes"]);
            for key in list(&pool["big"]) {
                let largest = known.big.entry(text(key, "key").to_owned()).or_default();
                if number(key, "bytes") > number(largest, "bytes") {
                    largest.clone_from(key);
                }
            }
        }
    }
    let pools = pools.into_iter().map(|(name, KeysOfPool { reads, writes, big })| {
        let mut big: Vec<Value> = big.into_values().filter(Value::is_object).collect();
        big.sort_by_key(|key| Reverse(number(key, "bytes")));
        big.truncate(limit);
        let (reads, writes) = (reads.into_json(limit), writes.into_json(limit));
        json!({"pool": name, "reads": reads, "writes": writes, "big": big})
    });
    let pools = pools.collect::<Vec<_>>();
    json!({"hot_keys_every": every, "big_values_from": from, "pools": pools,
           "missing": missing})
}

/// Returns the answer of each member as it is.
pub(super) fn each(answers: &[MemberAnswer]) -> Value {
    let (good, missing) = read_all(answers);
    let each = good.into_iter().map(|(of, answer)| with_member(answer, of));
    json!({"each": each.collect::<Vec<_>>(), "missing": missing})
}

/// Returns the outcome of a change at each member, and how many it failed at.
pub(super) fn changed(answers: &[MemberAnswer]) -> Value {
    let mut whole = each(answers);
    let failed = list(&whole["missing"]).len();
    whole["failed"] = failed.into();
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(bodies: &[Value]) -> Vec<MemberAnswer> {
        let one = |(at, body): (usize, &Value)| MemberAnswer {
            id: format!("z{at}.p.0.1"),
            zone: at as u64 % 2,
            outcome: Ok(MemberReply {
                status: 200,
                content_type: "application/json".into(),
                body: body.to_string().into_bytes(),
            }),
        };
        let mut all: Vec<_> = bodies.iter().enumerate().map(one).collect();
        all.push(MemberAnswer { id: "mute".into(), zone: 7, outcome: Err("no answer".into()) });
        let detail = br#"{"detail":"no such pool","errors":["a"]}"#.to_vec();
        let reply = MemberReply { status: 404, content_type: String::new(), body: detail };
        all.push(MemberAnswer { id: "other".into(), zone: 7, outcome: Ok(reply) });
        all
    }

    #[test]
    fn a_status_is_summed_over_all_and_over_zones() {
        let status = |version: &str, clients: u64, draining: bool| json!({"version": version, "workers": 2, "clients": clients, "draining": draining});
        let of = [status("1", 10, false), status("1", 20, true), status("2", 5, false)];
        let whole = status_of(&of);
        assert_eq!((&whole["members"], &whole["clients"]), (&json!(3), &json!(35)));
        assert_eq!((&whole["workers"], &whole["draining"]), (&json!(6), &json!(1)));
        assert_eq!(whole["versions"], json!({"1": 2, "2": 1}));
        let zones = json!([
            {"zone": 0, "members": 2, "workers": 4, "clients": 15, "draining": 0},
            {"zone": 1, "members": 1, "workers": 2, "clients": 20, "draining": 1},
        ]);
        assert_eq!(whole["zones"], zones);
        assert_eq!(whole["each"][1]["member"], "z1.p.0.1");
        let missing = json!([{"member": "mute", "zone": 7, "why": "no answer"},
                             {"member": "other", "zone": 7, "why": "no such pool; a"}]);
        assert_eq!(whole["missing"], missing);
    }

    fn status_of(bodies: &[Value]) -> Value {
        status(&answers(bodies))
    }

    #[test]
    fn a_server_that_members_see_differently_is_mixed() {
        let server = |state: &str, reason: Value, links: u64| {
            json!({"name": "a", "address": "a:1", "state": state, "reason": reason, "links": links,
                   "in_flight": 1, "since": "2026-01-01T00:00:00Z", "by_hand": false})
        };
        let of = |servers: Value| json!({"pools": [{"name": "p", "kind": "sharded", "servers": servers}]});
        let (up, out) = (server("up", Value::Null, 3), server("ejected", "timeout".into(), 0));
        let whole = pools(&answers(&[of(json!([up])), of(json!([out])), of(json!([up]))]));
        let pool = &whole["pools"][0];
        assert_eq!((&pool["members"], &pool["servers"][0]["state"]), (&json!(3), &json!("mixed")));
        assert_eq!(pool["servers"][0]["states"], json!({"up": 2, "ejected": 1}));
        assert_eq!(pool["servers"][0]["reason"], "timeout");
        assert_eq!(
            (&pool["servers"][0]["links"], &pool["servers"][0]["in_flight"]),
            (&json!(6), &json!(3))
        );
    }

    #[test]
    fn hot_keys_have_the_sum_of_their_rates() {
        let key = |key: &str, rate: f64| json!({"key": key, "rate": rate, "share_error": 0.01});
        let of = |total: f64, keys: Value, big: Value| {
            json!({"hot_keys_every": 100, "big_values_from": 10, "pools": [
                {"pool": "p", "reads": {"rate": total, "keys": keys},
                 "writes": {"rate": 0.0, "keys": []}, "big": big}]})
        };
        let big = |bytes: u64| json!([{"key": "b", "bytes": bytes}]);
        let whole = hot_keys(
            &answers(&[
                of(100.0, json!([key("a", 50.0)]), big(20)),
                of(300.0, json!([key("b", 90.0), key("a", 60.0)]), big(30)),
            ]),
            2,
        );
        let reads = &whole["pools"][0]["reads"];
        assert_eq!(reads["rate"], 400.0);
        let keys: Vec<_> = list(&reads["keys"]).iter().map(|key| text(key, "key")).collect();
        assert_eq!(keys, ["a", "b"]);
        assert_eq!(
            (&reads["keys"][0]["share"], &reads["keys"][0]["share_error"]),
            (&json!(0.275), &json!(0.01))
        );
        assert_eq!(whole["pools"][0]["big"], big(30));
    }

    #[test]
    fn lists_are_in_order_and_bounded() {
        let at = |at: &str| json!({"at": at, "since": at});
        let whole = slow_log(
            &answers(&[
                json!({"requests": [at("2026-01-03"), at("2026-01-01")]}),
                json!({"requests": [at("2026-01-02")]}),
            ]),
            2,
        );
        let times: Vec<_> = list(&whole["requests"]).iter().map(|one| text(one, "at")).collect();
        assert_eq!(times, ["2026-01-03", "2026-01-02"]);
        assert_eq!(whole["requests"][1]["member"], "z1.p.0.1");
        let clients = |since: &str| json!({"total": 5, "clients": [at(since)]});
        let whole = connections(&answers(&[clients("2"), clients("1")]), 1);
        assert_eq!((&whole["total"], &whole["clients"][0]["since"]), (&json!(10), &json!("1")));
    }

    #[test]
    fn nothing_that_a_member_says_is_taken_for_granted() {
        for body in [
            json!({}),
            json!({"pools": 5}),
            json!({"pools": [1, null, {"servers": [2]}]}),
            json!({"clients": [null], "total": -1, "requests": [[]]}),
        ] {
            let all = answers(&[body]);
            for whole in [
                status(&all),
                pools(&all),
                servers(&all),
                connections(&all, 5),
                slow_log(&all, 5),
                hot_keys(&all, 5),
                each(&all),
            ] {
                assert_eq!(list(&whole["missing"]).len(), 2);
            }
            assert_eq!(changed(&all)["failed"], 2);
        }
    }
}
