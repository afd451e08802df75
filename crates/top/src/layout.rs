//! How wide the columns of a table are, and how cells that have no room are cut: so that cells
//! which differ still differ.

use crate::tables::{Column, Table, WORDS_MIN};
use std::collections::BTreeSet;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Spaces between columns.
const GAP: usize = 2;

/// Stands for what is cut off.
const CUT: &str = "~";

/// Most names that are compared with each other. Names beyond these are cut in the same way.
const COMPARED_MAX: usize = 200;

/// A column that is shown.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its position in the table.
    pub index: usize,
    width: usize,
    way: ShownPart,
}

/// Which part of a long text is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShownPart {
    /// Its start.
    Start,
    /// Its end.
    End,
    /// Its end without the last of its characters, which all texts have in common.
    BeforeEnd(usize),
    /// What follows its first characters, which all texts have in common.
    Behind(usize),
    /// Half of what follows the common characters, and its end.
    BehindAndEnd(usize),
}

/// The columns that a terminal of this width has room for. Each is as wide as its widest cell, but
/// words give way where there is not room for all. Names are first cut as far as they still
/// differ, and then further.
pub fn places(table: &Table, room: u16) -> Vec<Place> {
    let shown = table.columns.iter().enumerate().filter(|(_, column)| column.from_width <= room);
    let place = |(index, _)| Place { index, width: natural(table, index), way: ShownPart::Start };
    let mut places: Vec<Place> = shown.map(place).collect();
    let room = usize::from(room);
    if total(&places) > room {
        let column = |place: &Place| &table.columns[place.index];
        let usual = |place: &Place| usize::from(column(place).width_min);
        shrink(&mut places, room, table, |place| usual(place).max(apart(table, place)));
        shrink(&mut places, room, table, |place| apart(table, place));
        shrink(&mut places, room, table, |_| usize::from(WORDS_MIN));
    }
    for place in &mut places {
        if table.columns[place.index].ends_matter {
            place.way = best_way(&names(table, place.index), place.width).0;
        }
    }
    places
}

impl Place {
    /// A cell with the spaces before and behind it, cut to its column.
    pub fn fill(&self, column: &Column, cell: &str) -> (String, String, String) {
        let cell = cut(cell, self.width, self.way);
        self.filled(column, cell)
    }

    /// The same of the column's title.
    pub fn fill_title(&self, column: &Column) -> (String, String, String) {
        self.filled(column, shortened(column.title, self.width))
    }

    fn filled(&self, column: &Column, cell: String) -> (String, String, String) {
        let fill = " ".repeat(self.width.saturating_sub(cell.width()));
        let gap = " ".repeat(GAP);
        if column.is_text { (String::new(), cell, fill + &gap) } else { (fill, cell, gap) }
    }
}

fn natural(table: &Table, index: usize) -> usize {
    let cells = table.rows.iter().filter_map(|row| row.cells.get(index));
    let widest = cells.map(|cell| cell.width()).max().unwrap_or(0);
    widest.max(table.columns[index].title.len())
}

/// What a line needs: no gap is needed behind its last column.
fn total(places: &[Place]) -> usize {
    let widths: usize = places.iter().map(|place| place.width).sum();
    widths + GAP * places.len().saturating_sub(1)
}

/// Takes from the widest columns of words, down to a least width for each, until a line fits.
fn shrink(places: &mut [Place], room: usize, table: &Table, least: impl Fn(&Place) -> usize) {
    let least: Vec<usize> = places.iter().map(least).collect();
    while total(places) > room {
        let may_shrink =
            |place: &Place, least: usize| table.columns[place.index].is_text && place.width > least;
        let shrinking =
            places.iter_mut().zip(&least).filter(|(place, least)| may_shrink(place, **least));
        let Some((widest, _)) = shrinking.max_by_key(|(place, _)| place.width) else { break };
        widest.width -= 1;
    }
}

/// The least width at which a column's names still differ.
fn apart(table: &Table, place: &Place) -> usize {
    let least = usize::from(WORDS_MIN);
    if !table.columns[place.index].ends_matter {
        return least;
    }
    let names = names(table, place.index);
    let differ = |width: &usize| best_way(&names, *width).1 == names.len();
    (least..place.width).find(differ).unwrap_or(place.width)
}

/// The different cells of a column.
fn names(table: &Table, index: usize) -> BTreeSet<&str> {
    let cells = table.rows.iter().filter_map(|row| row.cells.get(index));
    let cells = cells.map(String::as_str).filter(|cell| !cell.is_empty());
    let mut names = BTreeSet::new();
    for cell in cells {
        if names.len() == COMPARED_MAX {
            break;
        }
        names.insert(cell);
    }
    names
}

/// The first way to cut names by which most of them differ, and how many do. A long name ends in
/// its port, so its end is tried first.
fn best_way(names: &BTreeSet<&str>, width: usize) -> (ShownPart, usize) {
    let long: Vec<&str> = names.iter().copied().filter(|name| name.width() > width).collect();
    let (front, behind) = in_common(&long);
    let ways = [
        ShownPart::End,
        ShownPart::BeforeEnd(behind),
        ShownPart::Behind(front),
        ShownPart::BehindAndEnd(front),
    ];
    let differ =
        |way| names.iter().map(|name| cut(name, width, way)).collect::<BTreeSet<_>>().len();
    let counted = ways.map(|way| (way, differ(way)));
    let most = counted.iter().map(|(_, count)| *count).max().unwrap_or(0);
    counted.into_iter().find(|(_, count)| *count == most).unwrap_or((ShownPart::End, 0))
}

/// How many characters the texts have in common at their starts, and how many at their ends.
fn in_common(texts: &[&str]) -> (usize, usize) {
    let Some((first, others)) = texts.split_first().filter(|(_, others)| !others.is_empty()) else {
        return (0, 0);
    };
    let front = |text: &&str| first.chars().zip(text.chars()).take_while(|(a, b)| a == b).count();
    let behind = |text: &&str| {
        first.chars().rev().zip(text.chars().rev()).take_while(|(a, b)| a == b).count()
    };
    (others.iter().map(front).min().unwrap_or(0), others.iter().map(behind).min().unwrap_or(0))
}

/// Text of at most `width` columns, with `~` where it goes on.
fn cut(text: &str, width: usize, way: ShownPart) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let behind = |front: usize, width: usize| {
        let rest: String = text.chars().skip(front).collect();
        if front == 0 {
            shortened(&rest, width)
        } else {
            CUT.to_owned() + &shortened(&rest, width.saturating_sub(1))
        }
    };
    match way {
        ShownPart::Start => shortened(text, width),
        ShownPart::End | ShownPart::BeforeEnd(0) => end_of(text, width),
        ShownPart::BeforeEnd(count) => {
            let kept = text.chars().count().saturating_sub(count);
            let kept: String = text.chars().take(kept).collect();
            end_of(&kept, width.saturating_sub(1)) + CUT
        }
        ShownPart::Behind(front) => behind(front, width),
        ShownPart::BehindAndEnd(front) => {
            let half = width.div_ceil(2);
            let end = end_of(text, width - half + 1);
            behind(front, half) + end.trim_start_matches(CUT)
        }
    }
}

fn shortened(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut room = width.saturating_sub(1);
    for c in text.chars() {
        let needed = c.width().unwrap_or(0);
        if needed > room {
            break;
        }
        room -= needed;
        short.push(c);
    }
    short + CUT
}

/// The end of a text, with `~` for what was before it.
fn end_of(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let turned: String = text.chars().rev().collect();
    shortened(&turned, width).chars().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_give_way_and_wide_ones_are_cut_whole() {
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdefg", 6), "abcde~");
        assert_eq!(shortened("日本語", 4), "日~");
        assert_eq!(end_of("127.0.0.1:9380", 8), "~.1:9380");
        assert_eq!(end_of("a:9380", 8), "a:9380");
    }

    #[test]
    fn names_are_cut_where_they_are_the_same() {
        for (names, width, expected) in [
            (vec!["127.0.0.1:9380", "127.0.0.1:9381"], 8, vec!["~.1:9380", "~.1:9381"]),
            (
                vec!["keyway-a.example.com:9380", "keyway-b.example.com:9380"],
                8,
                vec!["~yway-a~", "~yway-b~"],
            ),
            (
                vec![
                    "eu-a.keyway.example.com:9380",
                    "eu-a.keyway.example.com:9381",
                    "eu-b.keyway.example.com:9380",
                ],
                8,
                vec!["~a.~9380", "~a.~9381", "~b.~9380"],
            ),
            (vec!["a:9380", "keyway-b.example.com:9380"], 8, vec!["a:9380", "~om:9380"]),
        ] {
            let names: BTreeSet<&str> = names.into_iter().collect();
            let (way, count) = best_way(&names, width);
            assert_eq!(count, names.len());
            let cut: Vec<String> = names.iter().map(|name| cut(name, width, way)).collect();
            assert!(cut.iter().all(|text| text.width() <= width), "{cut:?}");
            assert_eq!(cut, expected);
        }
    }

    #[test]
    fn cut_names_fit_whatever_they_are() {
        let hosts =
            ["a", "keyway-日本-a.example.com", "keyway-日本-b.example.com", "日本語日本語日本語"];
        let names: Vec<String> = hosts.iter().map(|host| format!("{host}:9380")).collect();
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        for width in usize::from(WORDS_MIN)..40 {
            for way in [
                ShownPart::Start,
                ShownPart::End,
                ShownPart::BeforeEnd(7),
                ShownPart::Behind(99),
                ShownPart::BehindAndEnd(8),
            ] {
                for name in &names {
                    let text = cut(name, width, way);
                    assert!(text.width() <= width, "{name} {width} {way:?}: {text}");
                    assert!(name.width() > width || text == *name);
                }
            }
            let most = best_way(&names, width).1;
            let by_end: BTreeSet<String> = names.iter().map(|name| end_of(name, width)).collect();
            assert!(most >= by_end.len());
        }
    }
}
