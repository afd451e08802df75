//! The keys that stand out.

use super::{Choice, Order, Row, Seen, Table, Tone, figure, sorted, with_process, words};
use crate::text::{age, bytes, number, percent};
use crate::watch::unix_seconds;

/// Their own order is the one that helps; and what two processes say of a key is not added up.
fn own_order(choice: &Choice) -> Choice {
    Choice { sort: 0, is_reversed: false, is_merged: false, ..choice.clone() }
}

/// The keys asked for most, the hottest first.
pub fn hot_keys(seen: &[Seen], choice: &Choice) -> Table {
    let columns = vec![
        words("POOL", 0),
        words("HOT KEY", 0),
        words("ACCESS", 0),
        sorted("/S", 1),
        figure("SHARE", 0),
        figure("+-", 0),
    ];
    let mut found = Vec::new();
    for one in seen {
        let Some((reading, _)) = one.now() else { continue };
        for hot in &reading.hot_keys {
            if choice.takes(&(hot.pool.clone(), hot.key.clone(), one.target.clone())) {
                found.push((one.target.clone(), hot));
            }
        }
    }
    found.sort_by(|(_, a), (_, b)| b.rate.total_cmp(&a.rate));
    let rows = found.into_iter().map(|(process, hot)| {
        let cells = vec![
            hot.pool.clone(),
            hot.key.clone(),
            hot.access.to_owned(),
            number(hot.rate),
            percent(Some(hot.share)),
            percent(Some(hot.share_error)),
        ];
        (process, Row { cells, tail: None, tone: Tone::Plain, order: Order::default() })
    });
    let rows = rows.collect();
    let if_empty = "none stands out, or hot_keys_every is 0";
    let table = Table { title: "hot keys", columns, rows: Vec::new(), if_empty };
    with_process(seen, &own_order(choice), 1, table, rows)
}

/// The keys with the largest values, the largest first.
pub fn big_keys(seen: &[Seen], choice: &Choice) -> Table {
    let columns = vec![
        words("POOL", 0),
        words("BIG KEY", 0),
        words("COMMAND", 0),
        words("IN", 0),
        figure("BYTES", 0),
        figure("AGO", 0),
    ];
    let mut found = Vec::new();
    for one in seen {
        let Some((reading, _)) = one.now() else { continue };
        for big in &reading.big_keys {
            if choice.takes(&(big.pool.clone(), big.key.clone(), one.target.clone())) {
                found.push((one.target.clone(), big));
            }
        }
    }
    found.sort_by(|(_, a), (_, b)| b.bytes.total_cmp(&a.bytes));
    let now = unix_seconds() as f64;
    let rows = found.into_iter().map(|(process, big)| {
        let cells = vec![
            big.pool.clone(),
            big.key.clone(),
            big.command.clone(),
            big.direction.clone(),
            bytes(big.bytes),
            big.at_unix_seconds.map_or_else(|| "-".to_owned(), |at| age(now - at)),
        ];
        (process, Row { cells, tail: None, tone: Tone::Plain, order: Order::default() })
    });
    let rows = rows.collect();
    let if_empty = "none in the last hour, or big_values_from is 0";
    let table = Table { title: "big keys", columns, rows: Vec::new(), if_empty };
    with_process(seen, &own_order(choice), 1, table, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::tests::{choice, seen};

    #[test]
    fn the_hottest_and_the_largest_come_first_whatever_the_order_of_other_tables() {
        let seen = [seen("a:1", 1), seen("b:1", 2)];
        let turned = Choice { is_reversed: true, is_merged: true, ..choice(6) };
        let hot = hot_keys(&seen, &turned);
        let cells: Vec<_> = hot.rows.iter().map(|row| row.cells[1..5].join(" ")).collect();
        assert_eq!(
            cells,
            ["b:1 user:1 read 500", "a:1 user:1 read 250", "b:1 log write 10", "a:1 log write 5.0"]
        );
        assert_eq!(hot.rows[1].cells[5..], ["25.0%".to_owned(), "1.5%".to_owned()]);
        let big = big_keys(&seen, &turned);
        assert_eq!(big.rows[0].cells[..6], ["web", "a:1", "page", "get", "reply", "1.0M"]);
        assert_eq!(big.rows.len(), 2);
        let only = Choice { filter: "LOG".into(), ..choice(0) };
        assert_eq!((hot_keys(&seen, &only).rows.len(), big_keys(&seen, &only).rows.len()), (2, 0));
    }
}
