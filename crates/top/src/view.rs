//! The screen, drawn from what was seen and what was chosen. Knows no terminal: it draws into a
//! buffer, so that tests see what people see.
//!
//! Only the terminal's own colours and red are used, which are legible on light and dark; what
//! red says is also said in words.

use crate::keys::{Controls, HELP, Pane};
use crate::layout::{Place, places};
use crate::tables::{self, Row, SORTS, Table, Tone};
use crate::text::time_of_day;
use crate::watch::{Seen, unix_seconds};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use std::time::{Duration, Instant};
use unicode_width::UnicodeWidthStr;

/// Smaller than this there is no room for a table.
const SIZE_MIN: (u16, u16) = (40, 8);
/// What stands before words that go on in the next line.
const TAIL_INDENT: &str = "    ";

/// What is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'s> {
    /// The processes.
    pub seen: &'s [Seen],
    /// What was chosen.
    pub controls: &'s Controls,
    /// The time between rounds now, and whether it is longer than asked.
    pub interval: (Duration, bool),
    /// True if colours are left out.
    pub is_plain: bool,
    /// The time.
    pub now: Instant,
}

impl Scene<'_> {
    /// Fills the buffer. Returns how many lines can be scrolled past.
    pub fn draw(&self, area: Rect, buffer: &mut Buffer) -> usize {
        let size = (area.width, area.height);
        if size.0 < SIZE_MIN.0 || size.1 < SIZE_MIN.1 {
            let text = format!("{} x {} at least", SIZE_MIN.0, SIZE_MIN.1);
            buffer.set_stringn(area.x, area.y, text, area.width.into(), Style::new());
            return 0;
        }
        let last = area.bottom() - 1;
        self.draw_bar(&self.head(), area.y, area, buffer);
        self.draw_bar(&self.foot(), last, area, buffer);
        let lines = if self.controls.has_help {
            HELP.iter().map(|line| Line::raw(*line)).collect()
        } else {
            self.lines(area.width)
        };
        let height = usize::from(area.height) - 2;
        let scroll_max = lines.len().saturating_sub(height);
        let scroll = if self.controls.has_help { 0 } else { self.controls.scroll };
        let shown = lines.iter().skip(scroll.min(scroll_max)).take(height);
        for (y, line) in (area.y + 1..).zip(shown) {
            buffer.set_line(area.x, y, line, area.width);
        }
        scroll_max
    }

    fn draw_bar(&self, text: &str, y: u16, area: Rect, buffer: &mut Buffer) {
        let bar = Rect { y, height: 1, ..area };
        buffer.set_style(bar, Style::new().add_modifier(Modifier::REVERSED));
        buffer.set_stringn(area.x, y, text, area.width.into(), Style::new());
    }

    fn head(&self) -> String {
        let all = self.seen.len();
        let gone = self.seen.iter().filter(|seen| seen.gone.is_some()).count();
        let mut text = format!(" keyway top  {}", time_of_day(unix_seconds()));
        let plural = if all == 1 { "" } else { "es" };
        text += &format!("  {all} process{plural}");
        if gone > 0 {
            text += &format!(", {gone} unread");
        }
        let (interval, is_slowed) = self.interval;
        text += &match (self.controls.is_paused, is_slowed) {
            (true, _) => "  PAUSED".to_owned(),
            (false, false) => format!("  every {}s", interval.as_secs_f64()),
            (false, true) => format!("  every {:.0}s to stay cheap", interval.as_secs_f64()),
        };
        let turned = if self.controls.choice.is_reversed { " reversed" } else { "" };
        text += &format!("  by {}{turned}", SORTS[self.controls.choice.sort]);
        if self.controls.choice.is_merged {
            text += "  added up";
        }
        if !self.controls.choice.filter.is_empty() {
            text += &format!("  only {}", self.controls.choice.filter);
        }
        text
    }

    fn foot(&self) -> String {
        let filter = &self.controls.choice.filter;
        if self.controls.is_typing {
            return format!(" show only: {filter}_   Enter keeps it, Esc shows all");
        }
        let mut text = String::new();
        for (index, (pane, name)) in Pane::ALL.iter().enumerate() {
            let is_shown = *pane == self.controls.pane;
            let (left, right) = if is_shown { ('[', ']') } else { (' ', ' ') };
            text += &format!("{left}{} {name}{right}", index + 1);
        }
        text + " s sort ? help q end"
    }

    fn lines(&self, width: u16) -> Vec<Line<'static>> {
        let (seen, choice) = (self.seen, &self.controls.choice);
        let mut shown = vec![tables::processes(seen, self.now)];
        let pane = self.controls.pane;
        let is_wanted = |one| pane == Pane::All || pane == one;
        if is_wanted(Pane::Pools) {
            shown.push(tables::pools(seen, choice));
        }
        if is_wanted(Pane::Servers) {
            shown.push(tables::servers(seen, choice));
        }
        if is_wanted(Pane::Stores) {
            shown.push(tables::stores(seen, choice));
        }
        if is_wanted(Pane::Errors) {
            shown.push(tables::errors(seen, choice));
        }
        if is_wanted(Pane::Keys) {
            shown.push(tables::hot_keys(seen, choice));
            shown.push(tables::big_keys(seen, choice));
        }
        let mut lines = Vec::new();
        for table in &shown {
            // Among all, what is not there is not worth a line.
            let is_left_out = pane == Pane::All && table.rows.is_empty();
            if is_left_out && choice.filter.is_empty() {
                continue;
            }
            if !lines.is_empty() {
                lines.push(Line::raw(""));
            }
            self.write_table(table, width, &mut lines);
        }
        lines
    }

    fn write_table(&self, table: &Table, width: u16, lines: &mut Vec<Line<'static>>) {
        let places = places(table, width);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut spans = Vec::new();
        for place in &places {
            let column = &table.columns[place.index];
            let is_order = column.sort == Some(self.controls.choice.sort)
                && !["processes", "errors", "hot keys", "big keys"].contains(&table.title);
            let style = if is_order { bold.add_modifier(Modifier::UNDERLINED) } else { bold };
            let (before, title, behind) = place.fill_title(column);
            spans.push(Span::raw(before));
            spans.push(Span::styled(title, style));
            spans.push(Span::raw(behind));
        }
        lines.push(Line::from(spans));
        if table.rows.is_empty() {
            lines.push(Line::raw(format!("{}: {}", table.title, table.if_empty)));
        }
        for row in &table.rows {
            self.write_row(table, row, &places, width.into(), lines);
        }
    }

    /// A row, and below it what its tail has no room for.
    fn write_row(
        &self,
        table: &Table,
        row: &Row,
        places: &[Place],
        room: usize,
        lines: &mut Vec<Line<'static>>,
    ) {
        let style = match row.tone {
            Tone::Plain => Style::new(),
            Tone::Bad if self.is_plain => Style::new().add_modifier(Modifier::BOLD),
            Tone::Bad => Style::new().fg(Color::Red),
        };
        let mut text = String::new();
        for place in places {
            let Some(cell) = row.cells.get(place.index) else { break };
            let (before, cell, behind) = place.fill(&table.columns[place.index], cell);
            text.extend([before, cell, behind]);
        }
        for word in row.tail.iter().flat_map(|tail| tail.split(' ')) {
            if text.width() + word.width() > room {
                lines.push(Line::styled(std::mem::take(&mut text), style));
                text.push_str(TAIL_INDENT);
            }
            text.extend([word, " "]);
        }
        lines.push(Line::styled(text, style));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::tests::{choice, seen};

    fn drawn(seen: &[Seen], controls: &Controls, width: u16, height: u16) -> (Vec<String>, Buffer) {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        let interval = (Duration::from_secs(2), false);
        let now = Instant::now();
        let scene = Scene { seen, controls, interval, is_plain: false, now };
        scene.draw(area, &mut buffer);
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        ((0..height).map(line).collect(), buffer)
    }

    fn controls() -> Controls {
        Controls::new(choice(1), Duration::from_secs(2))
    }

    #[test]
    fn everything_fits_on_a_small_terminal_and_a_large_one_has_more_columns() {
        let all = [seen("127.0.0.1:9380", 1)];
        for (width, height, has_more) in [(80, 24, false), (200, 60, true)] {
            let (lines, _) = drawn(&all, &controls(), width, height);
            let text = lines.join("\n");
            for word in
                ["keyway top", "POOL", "web", "cache", "alpha", "ejected", "1.0M", "timeout"]
            {
                assert!(text.contains(word), "{word}:\n{text}");
            }
            assert_eq!(text.contains("PAUSES/S"), has_more, "{text}");
            assert!(lines[usize::from(height) - 1].contains("q end"), "{text}");
            // The last column that fits is whole.
            let head = lines.iter().find(|line| line.contains("OUT/S")).expect("pools");
            assert!(head.trim_end().len() <= usize::from(width));
        }
    }

    #[test]
    fn servers_are_told_apart_on_a_small_terminal() {
        let names: Vec<String> = (1..=6).map(|n| format!("192.168.100.10{n}:7000")).collect();
        let all = with_servers(&["127.0.0.1:9380"]);
        let (lines, _) = drawn(&all, &controls(), 80, 24);
        let text = lines.join("\n");
        for word in names.iter().map(String::as_str).chain(["ROLE", "primary", "2730", "ERR/S"]) {
            assert!(text.contains(word), "{word}:\n{text}");
        }
    }

    /// Processes with these names, each of which has six servers of a cluster.
    fn with_servers(processes: &[&str]) -> Vec<Seen> {
        let reading = |process: &&str| {
            let (mut one, at) = (Seen::new(process), Instant::now());
            let names = (1..=6).map(|n| format!("192.168.100.10{n}:7000"));
            let mut metrics = "keyway_process_build_info{version=\"1\"} 1\n".to_owned();
            let mut list = Vec::new();
            for name in names {
                metrics += &format!(
                    "keyway_backend_requests_total{{pool=\"sessions\",backend=\"{name}\"}} 100000\n"
                );
                list.push(format!(
                    "{{\"backend\": {name:?}, \"state\": \"up\", \"role\": \"primary\", \"slots\": 2730}}"
                ));
            }
            let backends = format!(
                "{{\"pools\": [{{\"pool\": \"sessions\", \"backends\": [{}]}}]}}",
                list.join(",")
            );
            let pages =
                crate::reading::Pages { metrics, backends: Some(backends), ..Default::default() };
            one.on_result(Ok(crate::reading::Reading::new(&pages, at).expect("a reading")), at, 0);
            one
        };
        processes.iter().map(reading).collect()
    }

    #[test]
    fn rows_of_two_processes_with_long_names_take_one_line_and_differ() {
        for (processes, marks) in [
            (
                [
                    "keyway-west-1a.internal.example.com:9380",
                    "keyway-west-1b.internal.example.com:9380",
                ],
                ["a~", "b~"],
            ),
            (
                ["keyway.internal.example.com:9380", "keyway.internal.example.com:9381"],
                ["9380", "9381"],
            ),
        ] {
            let all = with_servers(&processes);
            let controls = Controls { pane: Pane::Servers, ..controls() };
            let (lines, _) = drawn(&all, &controls, 80, 24);
            let text = lines.join("\n");
            let head = lines.iter().position(|line| line.contains("SERVER")).expect("a table");
            assert!(lines[head].trim_end().ends_with("ERR/S"), "{text}");
            let rows = &lines[head + 1..=head + 12];
            for (index, row) in rows.iter().enumerate() {
                let server = format!("10{}:7000", index / 2 + 1);
                let has_server =
                    row.contains(&server) || row.contains(&format!("10{}~", index / 2 + 1));
                assert!(has_server && row.contains(marks[index % 2]), "{row}:\n{text}");
            }
            assert!(lines[head + 13].trim().is_empty(), "{text}");
        }
    }

    #[test]
    fn no_size_is_too_small_or_too_large_to_draw() {
        let all = [seen("127.0.0.1:9380", 1), Seen::new("b:2")];
        for (width, height) in [(1, 1), (10, 3), (40, 8), (39, 100), (500, 9), (41, 200)] {
            for pane in Pane::ALL {
                let controls = Controls { pane: pane.0, scroll: 3, ..controls() };
                drawn(&all, &controls, width, height);
            }
        }
    }

    #[test]
    fn panes_help_and_filter_show_what_they_say() {
        let all = [seen("a:1", 1)];
        let text = |controls: &Controls| drawn(&all, controls, 80, 24).0.join("\n");
        let servers = text(&Controls { pane: Pane::Servers, ..controls() });
        assert!(servers.contains("alpha") && !servers.contains("CLIENTS  REQ/S  P50"), "{servers}");
        assert!(servers.contains("[3 servers]"), "{servers}");
        let keys = text(&Controls { pane: Pane::Keys, ..controls() });
        for word in ["[6 keys]", "HOT KEY", "user:1", "25.0%", "1.5%", "BIG KEY", "page", "1.0M"] {
            assert!(keys.contains(word), "{word}:\n{keys}");
        }
        let help = text(&Controls { has_help: true, ..controls() });
        assert!(help.contains("turn the order round") && !help.contains("alpha"), "{help}");
        let mut typing = Controls { is_typing: true, ..controls() };
        typing.choice.filter = "alp".into();
        let typing = text(&typing);
        assert!(typing.contains("show only: alp_"), "{typing}");
        assert!(typing.contains("alpha") && !typing.contains("beta"), "{typing}");
        assert!(text(&Controls { is_paused: true, ..controls() }).contains("PAUSED"));
    }

    #[test]
    fn help_fits_on_the_smallest_usual_terminal() {
        assert!(HELP.len() <= 22 && HELP.iter().all(|line| line.len() <= 80));
    }

    #[test]
    fn only_the_terminals_own_colours_and_red_are_used() {
        let all = [seen("a:1", 1)];
        let (_, buffer) = drawn(&all, &controls(), 120, 40);
        for cell in buffer.content() {
            assert!(matches!(cell.fg, Color::Reset | Color::Red), "{cell:?}");
            assert_eq!(cell.bg, Color::Reset);
            assert!(!cell.modifier.contains(Modifier::DIM));
        }
    }

    #[test]
    fn what_is_said_of_one_that_is_gone_is_said_whole() {
        let mut gone = Seen::new("b:2");
        let why = "nobody listens there ".repeat(8) + "end.";
        gone.on_result(Err(why), Instant::now(), 0);
        let (lines, _) = drawn(&[gone], &controls(), 80, 24);
        let (from, to) = (lines[2].starts_with("b:2"), lines[4].trim_end().ends_with("end."));
        assert!(from && to, "{lines:#?}");
    }
}
