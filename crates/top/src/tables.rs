//! Rows and columns made of what was seen, for the screen and the plain form alike.

mod key_stats;

pub use key_stats::{big_keys, hot_keys};

use crate::figures::{Figure, Figures};
use crate::text::{age, bytes, count, latency, number, percent, time_of_day};
use crate::watch::{Gone, Seen};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Instant;

/// What rows can be ordered by: names rising, all else falling.
pub const SORTS: &[&str] = &["name", "requests", "p50", "p99", "errors", "clients", "memory"];

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its heading.
    pub title: &'static str,
    /// Width of the terminal from which there is room for it.
    pub from_width: u16,
    /// True if it holds words rather than numbers.
    pub is_text: bool,
    /// True if its words matter most at their ends, as ports do.
    pub ends_matter: bool,
    /// Smallest width of a column of words.
    pub width_min: u8,
    /// The entry of [`SORTS`] that orders rows by it.
    pub sort: Option<usize>,
}

/// How a row is to be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing to say.
    #[default]
    Plain,
    /// Something is wrong.
    Bad,
}

/// A row.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// As many as there are columns, or fewer and a `tail`.
    pub cells: Vec<String>,
    /// Words in place of the columns that are left.
    pub tail: Option<String>,
    /// How it is to be seen.
    pub tone: Tone,
    order: Order,
}

/// What a row is ordered by, an entry for each of [`SORTS`]; that of names is not used.
type Order = [f64; 7];

/// One table.
#[derive(Clone, Debug)]
pub struct Table {
    /// What it is of.
    pub title: &'static str,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, in order.
    pub rows: Vec<Row>,
    /// What is said when there are none.
    pub if_empty: &'static str,
}

/// Which rows, and in which order.
#[derive(Clone, Debug)]
pub struct Choice {
    /// An entry of [`SORTS`].
    pub sort: usize,
    /// True if the order is turned round.
    pub is_reversed: bool,
    /// Only rows whose names hold this, in either case; empty for all.
    pub filter: String,
    /// True if rows of the same name in several processes are added up.
    pub is_merged: bool,
}

/// Smallest width of a name.
pub const WORDS_MIN: u8 = 6;

/// Width of an IPv4 address with its port. Servers differ in this part, so it is shown whole where
/// the other columns leave room.
const ADDRESS_LEN: u8 = 21;

const fn words(title: &'static str, from_width: u16) -> Column {
    let (is_text, ends_matter, width_min) = (true, false, WORDS_MIN);
    Column { title, from_width, is_text, ends_matter, width_min, sort: None }
}

const fn named(title: &'static str) -> Column {
    Column { sort: Some(0), ..words(title, 0) }
}

/// The column of processes, which are told apart by their ports as much as by their hosts.
const PROCESS: Column = Column { ends_matter: true, ..words("PROCESS", 0) };

const fn figure(title: &'static str, from_width: u16) -> Column {
    Column { is_text: false, ..words(title, from_width) }
}

const fn sorted(title: &'static str, sort: usize) -> Column {
    Column { sort: Some(sort), ..figure(title, 0) }
}

/// Every process, in the order they were named.
pub fn processes(seen: &[Seen], now: Instant) -> Table {
    let columns = vec![
        PROCESS,
        words("STATE", 0),
        words("VERSION", 100),
        figure("UP", 0),
        figure("WORKERS", 90),
        figure("CPU", 0),
        figure("MEMORY", 0),
        figure("FDS", 110),
        sorted("CLIENTS", 5),
        sorted("REQ/S", 1),
        sorted("ERR/S", 4),
    ];
    let rows = seen.iter().flat_map(|one| process_rows(one, now)).collect();
    Table { title: "processes", columns, rows, if_empty: "none" }
}

fn process_rows(seen: &Seen, now: Instant) -> Vec<Row> {
    if let Some(gone) = &seen.gone {
        return vec![gone_row(seen, gone, now)];
    }
    let Some((reading, change)) = seen.now() else {
        let tail = Some("asked, no answer yet".to_owned());
        return vec![Row { cells: vec![seen.target.clone()], tail, ..Row::default() }];
    };
    let process = &change.process;
    let up = crate::watch::unix_seconds() as f64 - process.get(Figure::StartTime);
    let rate = |value: f64| change.seconds.map_or_else(|| "-".to_owned(), |_| number(value));
    let is_ready = reading.not_ready.is_empty();
    let errors = change.of_pools(Figure::Errors) + change.of_pools(Figure::Refused);
    let cells = vec![
        seen.target.clone(),
        if is_ready { "ready" } else { "not ready" }.to_owned(),
        reading.version.clone(),
        age(up),
        count(process.get(Figure::Workers)),
        percent(change.seconds.map(|_| process.get(Figure::Cpu))),
        bytes(process.get(Figure::Resident)),
        count(process.get(Figure::Descriptors)),
        count(change.of_pools(Figure::Clients)),
        rate(change.of_pools(Figure::Requests)),
        rate(errors),
    ];
    let tone = if is_ready { Tone::Plain } else { Tone::Bad };
    let mut rows = vec![Row { cells, tone, ..Row::default() }];
    if let Some(first) = reading.not_ready.first() {
        let more = reading.not_ready.len() - 1;
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        let tail = Some(format!("not ready: {first}{more}"));
        rows.push(Row { cells: vec![String::new()], tail, tone, ..Row::default() });
    }
    rows
}

fn gone_row(seen: &Seen, gone: &Gone, now: Instant) -> Row {
    let for_long = age((now - gone.since).as_secs_f64());
    let since = time_of_day(gone.since_unix_seconds);
    let tail = Some(match (crate::fetch::has_answered(&gone.why), &seen.latest) {
        // It is there, and refuses or is something else.
        (true, _) => gone.why.clone(),
        (false, Some(_)) => format!("gone since {since} ({for_long}): {}", gone.why),
        (false, None) => format!("no answer: {}", gone.why),
    });
    Row { cells: vec![seen.target.clone()], tail, tone: Tone::Bad, ..Row::default() }
}

/// What rows are told apart by: names, then the process.
type Names = (String, String, String);

/// Figures of one row, and what cannot be added up.
#[derive(Clone, Debug, Default)]
struct Part {
    figures: Figures,
    has_rates: bool,
    /// Words that processes report: the kind of a pool; or state, reason, role and slots of a
    /// server. Different words are listed once each.
    words: [Vec<String>; 4],
}

impl Part {
    fn add(&mut self, figures: &Figures, has_rates: bool, words: &[&str]) {
        self.figures += figures;
        self.has_rates |= has_rates;
        for (list, text) in self.words.iter_mut().zip(words) {
            if !text.is_empty() && !list.iter().any(|known| known == text) {
                list.push((*text).to_owned());
            }
        }
    }

    fn rate(&self, figure: Figure) -> String {
        self.rate_of(self.figures.get(figure), number)
    }

    fn rate_of(&self, value: f64, text: fn(f64) -> String) -> String {
        if self.has_rates { text(value) } else { "-".to_owned() }
    }

    fn level(&self, figure: Figure) -> String {
        count(self.figures.get(figure))
    }

    fn order(&self, requests: Figure, errors: f64, clients: Figure) -> Order {
        let latency = |share| self.figures.latency.quantile(share).unwrap_or(-1.0);
        [
            0.0,
            self.figures.get(requests),
            latency(0.5),
            latency(0.99),
            errors,
            self.figures.get(clients),
            self.figures.get(Figure::Memory),
        ]
    }
}

/// Adds up what has the same names, in one process or, if merged, in all.
fn parts(
    seen: &[Seen],
    choice: &Choice,
    mut each: impl FnMut(&Seen, &mut dyn FnMut((&str, &str), &Figures, bool, &[&str])),
) -> BTreeMap<Names, Part> {
    let mut parts = BTreeMap::<Names, Part>::new();
    for one in seen {
        let process = if choice.is_merged { "" } else { &one.target };
        each(one, &mut |(first, second), figures, has_rates, words| {
            let names = (first.to_owned(), second.to_owned(), process.to_owned());
            if choice.takes(&names) {
                parts.entry(names).or_default().add(figures, has_rates, words);
            }
        });
    }
    parts
}

fn pool_parts(seen: &[Seen], choice: &Choice) -> BTreeMap<Names, Part> {
    parts(seen, choice, |one, add| {
        let Some((reading, change)) = one.now() else { return };
        for (name, figures) in &change.pools {
            let kind = reading.kinds.get(name).map_or("", String::as_str);
            add((name, ""), figures, change.seconds.is_some(), &[kind]);
        }
    })
}

impl Choice {
    fn takes(&self, (first, second, process): &Names) -> bool {
        let wanted = self.filter.to_lowercase();
        [first, second, process].iter().any(|name| name.to_lowercase().contains(&wanted))
    }

    /// Puts rows, which come ordered by name, into the order that is wanted.
    fn ordered(&self, mut rows: Vec<Row>) -> Vec<Row> {
        if self.sort != 0 {
            let by = |a: &Row, b: &Row| -> Ordering {
                b.order[self.sort].total_cmp(&a.order[self.sort])
            };
            rows.sort_by(by);
        }
        if self.is_reversed {
            rows.reverse();
        }
        rows
    }
}

/// Puts in, behind the names, the process, where there are several and rows are theirs.
fn with_process(
    seen: &[Seen],
    choice: &Choice,
    at: usize,
    mut table: Table,
    rows: Vec<(String, Row)>,
) -> Table {
    let has_process = seen.len() > 1 && !choice.is_merged;
    if has_process {
        table.columns.insert(at, PROCESS);
    }
    let rows = rows.into_iter().map(|(process, mut row)| {
        if has_process {
            row.cells.insert(at, process);
        }
        row
    });
    table.rows = choice.ordered(rows.collect());
    table
}

/// Every pool: its clients, rates, latencies and errors.
pub fn pools(seen: &[Seen], choice: &Choice) -> Table {
    let columns = vec![
        named("POOL"),
        words("KIND", 100),
        sorted("CLIENTS", 5),
        sorted("REQ/S", 1),
        sorted("P50", 2),
        sorted("P99", 3),
        figure(">8MS/S", 110),
        sorted("ERR/S", 4),
        figure("REFUSED/S", 120),
        figure("IN/S", 0),
        figure("OUT/S", 0),
        figure("CONN/S", 130),
        figure("PAUSES/S", 140),
    ];
    let rows = pool_parts(seen, choice).into_iter().map(|((name, _, process), part)| {
        let figures = &part.figures;
        let errors = figures.get(Figure::Errors);
        let cells = vec![
            name,
            part.words[0].join(","),
            part.level(Figure::Clients),
            part.rate(Figure::Requests),
            latency(figures.latency.quantile(0.5)),
            latency(figures.latency.quantile(0.99)),
            part.rate(Figure::Slow),
            part.rate(Figure::Errors),
            part.rate(Figure::Refused),
            part.rate_of(figures.get(Figure::Received), bytes),
            part.rate_of(figures.get(Figure::Sent), bytes),
            part.rate(Figure::Accepted),
            part.rate(Figure::Pauses),
        ];
        let tone = if errors > 0.0 { Tone::Bad } else { Tone::Plain };
        let order =
            part.order(Figure::Requests, errors + figures.get(Figure::Refused), Figure::Clients);
        (process, Row { cells, tail: None, tone, order })
    });
    let rows = rows.collect();
    let table = Table { title: "pools", columns, rows: Vec::new(), if_empty: "none" };
    with_process(seen, choice, 1, table, rows)
}

/// Columns of servers. A terminal of 80 columns has no room for all of them if servers have roles.
fn server_columns(has_roles: bool) -> Vec<Column> {
    let from_width = if has_roles { 100 } else { 0 };
    let mut columns = vec![
        words("POOL", 0),
        Column { ends_matter: true, width_min: ADDRESS_LEN, ..named("SERVER") },
        words("STATE", 0),
        words("REASON", 110),
        sorted("REQ/S", 1),
        sorted("P50", 2),
        sorted("P99", 3),
        Column { from_width, ..sorted("FLIGHT", 5) },
        figure("UNSENT", 100),
        figure("LINKS", from_width),
        sorted("ERR/S", 4),
        figure("ERRREPL/S", 120),
        figure("RECONN/S", 130),
        figure("EJECTED/S", 140),
    ];
    if has_roles {
        columns.splice(2..2, [words("ROLE", 0), figure("SLOTS", 0)]);
    }
    columns
}

/// Every server of every pool.
pub fn servers(seen: &[Seen], choice: &Choice) -> Table {
    let parts = parts(seen, choice, |one, add| {
        let Some((_, change)) = one.now() else { return };
        for ((pool, name), server) in &change.servers {
            let words = [&*server.state, &*server.reason, &*server.role, &*server.slots];
            add((pool, name), &server.figures, change.seconds.is_some(), &words);
        }
    });
    let has_roles = parts.values().any(|part| !part.words[2].is_empty());
    let rows = parts.into_iter().map(|((pool, name, process), part)| {
        let figures = &part.figures;
        let errors = figures.get(Figure::ServerErrors);
        let [states, reasons, roles, slots] = &part.words;
        let is_up = states.iter().all(|state| matches!(state.as_str(), "up" | "unknown"));
        let order = part.order(Figure::ServerRequests, errors, Figure::InFlight);
        let mut cells = vec![
            pool,
            name,
            states.join(","),
            reasons.join(","),
            part.rate(Figure::ServerRequests),
            latency(figures.latency.quantile(0.5)),
            latency(figures.latency.quantile(0.99)),
            part.level(Figure::InFlight),
            bytes(figures.get(Figure::Unsent)),
            part.level(Figure::Links),
            part.rate(Figure::ServerErrors),
            part.rate(Figure::ErrorReplies),
            part.rate(Figure::Reconnects),
            part.rate(Figure::Ejections),
        ];
        if has_roles {
            cells.splice(2..2, [roles.join(","), slots.join(",")]);
        }
        let tone = if is_up && errors <= 0.0 { Tone::Plain } else { Tone::Bad };
        (process, Row { cells, tail: None, tone, order })
    });
    let (columns, rows) = (server_columns(has_roles), rows.collect());
    let table = Table { title: "servers", columns, rows: Vec::new(), if_empty: "none" };
    with_process(seen, choice, 2, table, rows)
}

/// Every embedded store.
pub fn stores(seen: &[Seen], choice: &Choice) -> Table {
    let columns = vec![
        named("STORE"),
        figure("ITEMS", 0),
        sorted("MEMORY", 6),
        figure("HIT", 0),
        figure("HITS/S", 0),
        figure("MISSES/S", 0),
        figure("EVICT/S", 0),
        figure("EXPIRE/S", 0),
    ];
    let parts = pool_parts(seen, choice).into_iter().filter(|(_, part)| {
        part.words[0].iter().any(|kind| kind == "store") || part.figures.get(Figure::Memory) > 0.0
    });
    let rows = parts.map(|((name, _, process), part)| {
        let figures = &part.figures;
        let (hits, misses) = (figures.get(Figure::Hits), figures.get(Figure::Misses));
        let share = (part.has_rates && hits + misses > 0.0).then(|| hits / (hits + misses));
        let cells = vec![
            name,
            part.level(Figure::Items),
            bytes(figures.get(Figure::Memory)),
            percent(share),
            part.rate(Figure::Hits),
            part.rate(Figure::Misses),
            part.rate(Figure::Evictions),
            part.rate(Figure::Expirations),
        ];
        let order = part.order(Figure::Requests, figures.get(Figure::Errors), Figure::Clients);
        (process, Row { cells, tail: None, tone: Tone::Plain, order })
    });
    let rows = rows.collect();
    let table = Table { title: "stores", columns, rows: Vec::new(), if_empty: "none" };
    with_process(seen, choice, 1, table, rows)
}

/// What went wrong, the most frequent first.
pub fn errors(seen: &[Seen], choice: &Choice) -> Table {
    let columns = vec![
        words("OF", 0),
        words("WHAT", 0),
        words("WHY", 0),
        sorted("/S", 4),
        figure("TOTAL", 0),
    ];
    let mut sums = BTreeMap::<(Names, &'static str), (f64, f64)>::new();
    for one in seen {
        let Some((reading, change)) = one.now() else { continue };
        let process = if choice.is_merged { "" } else { &one.target };
        for (what, total) in &reading.faults {
            let rate = change.faults.get(what).unwrap_or(&0.0);
            let names = (what.0.clone(), what.2.clone(), process.to_owned());
            if choice.takes(&names) {
                let sum = sums.entry((names, what.1)).or_default();
                *sum = (sum.0 + rate, sum.1 + total);
            }
        }
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|(_, a), (_, b)| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)));
    let rows = sums.into_iter().map(|(((of, why, process), what), (rate, total))| {
        let cells = vec![of, what.to_owned(), why, number(rate), count(total)];
        let tone = if rate > 0.0 { Tone::Bad } else { Tone::Plain };
        (process, Row { cells, tail: None, tone, order: Order::default() })
    });
    let rows = rows.collect();
    let table =
        Table { title: "errors", columns, rows: Vec::new(), if_empty: "none since the start" };
    // Their own order is the one that helps.
    let choice = Choice { sort: 0, is_reversed: false, ..choice.clone() };
    with_process(seen, &choice, 1, table, rows)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::reading::{Pages, Reading};
    use std::time::Duration;

    /// A process with two pools and two servers, that has been read twice, a second apart.
    pub(crate) fn seen(target: &str, factor: u32) -> Seen {
        let at = Instant::now();
        let mut seen = Seen::new(target);
        for second in 1..=2_u32 {
            let n = second * factor;
            let metrics = format!(
                "keyway_process_build_info{{version=\"1\"}} 1\n\
                 keyway_pool_requests_total{{pool=\"web\"}} {n}00\n\
                 keyway_pool_errors_total{{pool=\"web\",fault=\"timeout\"}} {n}\n\
                 keyway_client_connections{{pool=\"web\"}} 3\n\
                 keyway_pool_reply_latency_seconds_bucket{{pool=\"web\",le=\"0.001\"}} {n}00\n\
                 keyway_pool_reply_latency_seconds_bucket{{pool=\"web\",le=\"+Inf\"}} {n}00\n\
                 keyway_pool_requests_total{{pool=\"cache\"}} {n}0\n\
                 keyway_store_memory_bytes{{pool=\"cache\"}} 1048576\n\
                 keyway_store_hits_total{{pool=\"cache\"}} {n}0\n\
                 keyway_backend_requests_total{{pool=\"web\",backend=\"alpha\"}} {n}0\n\
                 keyway_backend_requests_total{{pool=\"web\",backend=\"beta\"}} {n}5\n\
                 keyway_backend_health_state{{pool=\"web\",backend=\"beta\"}} 2\n"
            );
            let keys = format!(
                r#"{{"pools": [{{"pool": "web",
                    "reads": {{"keys": [{{"key": "user:1", "share": 0.25, "share_error": 0.015,
                                          "rate": {}}}]}},
                    "writes": {{"keys": [{{"key": "log", "share": 1, "share_error": 0, "rate": {}}}]}},
                    "big": [{{"key": "page", "bytes": 1048576, "command": "get", "direction": "reply",
                              "at": "2026-01-01T00:00:00Z"}}]}}]}}"#,
                250 * factor,
                5 * factor
            );
            let pages = Pages { metrics, keys: Some(keys), ..Pages::default() };
            let at = at + Duration::from_secs(u64::from(second));
            seen.on_result(Ok(Reading::new(&pages, at).expect("a reading")), at, 0);
        }
        seen
    }

    pub(crate) fn choice(sort: usize) -> Choice {
        Choice { sort, is_reversed: false, filter: String::new(), is_merged: false }
    }

    fn firsts(table: &Table) -> Vec<&str> {
        table.rows.iter().map(|row| row.cells[0].as_str()).collect()
    }

    #[test]
    fn every_row_has_a_cell_for_each_column() {
        for seen in [vec![seen("a:1", 1)], vec![seen("a:1", 1), seen("b:1", 2)]] {
            for is_merged in [false, true] {
                let choice = Choice { is_merged, ..choice(1) };
                for table in [
                    processes(&seen, Instant::now()),
                    pools(&seen, &choice),
                    servers(&seen, &choice),
                    stores(&seen, &choice),
                    errors(&seen, &choice),
                    hot_keys(&seen, &choice),
                    big_keys(&seen, &choice),
                ] {
                    assert!(!table.rows.is_empty(), "{}", table.title);
                    let columns = table.columns.len();
                    assert!(table.rows.iter().all(|row| row.cells.len() == columns), "{table:?}");
                }
            }
        }
    }

    #[test]
    fn rows_are_ordered_as_asked() {
        let seen = [seen("a:1", 1)];
        assert_eq!(firsts(&pools(&seen, &choice(0))), ["cache", "web"]);
        assert_eq!(firsts(&pools(&seen, &choice(1))), ["web", "cache"]);
        assert_eq!(firsts(&pools(&seen, &choice(6))), ["cache", "web"]);
        let turned = Choice { is_reversed: true, ..choice(1) };
        assert_eq!(firsts(&pools(&seen, &turned)), ["cache", "web"]);
        assert_eq!(firsts(&stores(&seen, &choice(1))), ["cache"]);
    }

    #[test]
    fn rows_of_several_processes_are_added_up_if_wanted() {
        let seen = [seen("a:1", 1), seen("b:1", 2)];
        assert_eq!(firsts(&pools(&seen, &choice(0))), ["cache", "cache", "web", "web"]);
        let merged = pools(&seen, &Choice { is_merged: true, ..choice(0) });
        assert_eq!(firsts(&merged), ["cache", "web"]);
        let web = &merged.rows[1].cells;
        assert_eq!((web[2].as_str(), web[3].as_str()), ("6", "300"));
        assert_eq!(web[4], "500us");
    }

    #[test]
    fn a_filter_takes_any_name_in_either_case() {
        let seen = [seen("a:1", 1), seen("b:1", 2)];
        let filtered = |text: &str| Choice { filter: text.into(), ..choice(0) };
        assert_eq!(firsts(&pools(&seen, &filtered("WE"))), ["web", "web"]);
        assert_eq!(firsts(&pools(&seen, &filtered("b:1"))), ["cache", "web"]);
        assert_eq!(servers(&seen, &filtered("alph")).rows.len(), 2);
        assert!(pools(&seen, &filtered("nothing")).rows.is_empty());
    }

    #[test]
    fn what_is_wrong_is_seen() {
        let seen = [seen("a:1", 1)];
        let servers = servers(&seen, &choice(0));
        assert_eq!(servers.rows[1].tone, Tone::Bad);
        assert_eq!(servers.rows[1].cells[2], "ejected");
        assert_eq!(
            errors(&seen, &choice(0)).rows[0].cells[..3],
            ["web", "errors answered", "timeout"]
        );
    }

    #[test]
    fn servers_of_a_cluster_have_roles_and_slots() {
        let (mut one, at) = (Seen::new("a:1"), Instant::now());
        let metrics = [7001, 7002].map(|port| {
            format!(
                "keyway_backend_requests_total{{pool=\"web\",backend=\"127.0.0.1:{port}\"}} 1\n"
            )
        });
        let backends = r#"{"pools": [{"pool": "web", "kind": "cluster", "backends": [
            {"backend": "127.0.0.1:7001", "state": "no-replica", "role": "primary", "slots": 16384},
            {"backend": "127.0.0.1:7002", "state": "up", "role": "replica", "slots": null}]}]}"#;
        let metrics = format!("keyway_process_build_info{{version=\"1\"}} 1\n{}", metrics.concat());
        let pages = Pages { metrics, backends: Some(backends.into()), ..Pages::default() };
        one.on_result(Ok(Reading::new(&pages, at).expect("a reading")), at, 0);
        let table = servers(&[one], &choice(0));
        let shown = ["127.0.0.1:7001", "primary", "16384", "no-replica"];
        assert_eq!(table.rows[0].cells[1..5], shown);
        assert_eq!(table.rows[1].cells[2..5], ["replica", "", "up"]);
        assert_eq!([table.rows[0].tone, table.rows[1].tone], [Tone::Bad, Tone::Plain]);
    }

    #[test]
    fn one_that_is_gone_says_since_when_and_has_no_rows() {
        let mut one = seen("a:1", 1);
        let now = Instant::now();
        one.on_result(Err("nobody listens there".into()), now, 3_661);
        let table = processes(&[one.clone()], now + Duration::from_secs(9));
        let tail = table.rows[0].tail.as_deref();
        assert_eq!(tail, Some("gone since 01:01:01Z (9s): nobody listens there"));
        assert!(pools(&[one], &choice(0)).rows.is_empty());
    }

    #[test]
    fn gone_is_only_one_that_was_there_and_is_not_now() {
        let now = Instant::now();
        let tail = |seen: &Seen| processes(std::slice::from_ref(seen), now).rows[0].tail.clone();
        let mut never = Seen::new("a:1");
        never.on_result(Err("nobody listens there".into()), now, 0);
        assert_eq!(tail(&never).as_deref(), Some("no answer: nobody listens there"));
        let wanted = "the admin listener asks for a token: give --token-file FILE";
        for mut there in [Seen::new("a:1"), seen("a:1", 1)] {
            there.on_result(Err(wanted.into()), now, 0);
            assert_eq!(tail(&there).as_deref(), Some(wanted));
        }
    }
}
