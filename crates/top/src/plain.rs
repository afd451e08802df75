//! The tables as text: `--once` and `--batch`.

use crate::tables::{Choice, Table, big_keys, errors, hot_keys, pools, processes, servers, stores};
use crate::watch::{Seen, unix_seconds};
use std::fmt::Write;
use std::time::Instant;
use unicode_width::UnicodeWidthStr;

/// Everything there is to see, with every column.
pub fn page(seen: &[Seen], choice: &Choice, now: Instant) -> String {
    let mut text = format!("keyway top {}\n", crate::text::time_of_day(unix_seconds()));
    for table in [
        processes(seen, now),
        pools(seen, choice),
        servers(seen, choice),
        stores(seen, choice),
        errors(seen, choice),
        hot_keys(seen, choice),
        big_keys(seen, choice),
    ] {
        text.push('\n');
        write_table(&table, &mut text);
    }
    text
}

fn write_table(table: &Table, text: &mut String) {
    let _ = writeln!(text, "{}", table.title);
    if table.rows.is_empty() {
        let _ = writeln!(text, "  {}", table.if_empty);
        return;
    }
    let width = |index: usize| {
        let cells = table.rows.iter().filter_map(|row| row.cells.get(index));
        let widest = cells.map(|cell| cell.width()).max().unwrap_or(0);
        widest.max(table.columns[index].title.len())
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let titles: Vec<String> = table.columns.iter().map(|it| it.title.to_owned()).collect();
    write_line(table, &widths, &titles, None, text);
    for row in &table.rows {
        write_line(table, &widths, &row.cells, row.tail.as_deref(), text);
    }
}

fn write_line(
    table: &Table,
    widths: &[usize],
    cells: &[String],
    tail: Option<&str>,
    text: &mut String,
) {
    let mut line = String::new();
    for ((column, width), cell) in table.columns.iter().zip(widths).zip(cells) {
        let gap = " ".repeat(width.saturating_sub(cell.width()));
        let empty = if cell.is_empty() && tail.is_none() { "-" } else { "" };
        let gap = &gap[empty.len().min(gap.len())..];
        let (before, behind) = if column.is_text { ("", gap) } else { (gap, "") };
        let _ = write!(line, "  {before}{cell}{empty}{behind}");
    }
    if let Some(tail) = tail {
        let _ = write!(line, "  {tail}");
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::tests::{choice, seen};

    #[test]
    fn every_line_of_a_table_has_as_many_words_as_its_head() {
        let mut all = vec![seen("a:1", 1), Seen::new("b:2")];
        all[1].on_result(Err("nobody listens there".into()), Instant::now(), 0);
        let page = page(&all, &choice(1), Instant::now());
        let pools = page.split("\npools\n").nth(1).and_then(|rest| rest.split("\n\n").next());
        let lines: Vec<usize> =
            pools.expect("pools").lines().map(|line| line.split_whitespace().count()).collect();
        assert_eq!(lines, [14, 14, 14], "{page}");
        assert!(page.contains("b:2"), "{page}");
        assert!(page.contains("no answer: nobody listens there"), "{page}");
        for title in ["processes", "servers", "stores", "errors", "hot keys", "big keys"] {
            assert!(page.contains(&format!("\n{title}\n")), "{page}");
        }
    }

    #[test]
    fn what_is_not_there_is_said() {
        let page = page(&[Seen::new("b:2")], &choice(0), Instant::now());
        assert!(page.contains("asked, no answer yet"), "{page}");
        assert!(page.contains("errors\n  none since the start"), "{page}");
    }
}
