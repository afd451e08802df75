//! What keys do to what is shown.

use crate::tables::{Choice, SORTS};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::time::Duration;

/// What is shown below the processes. What admin listeners come to tell beyond that is one more
/// of these, one more of [`crate::reading::Pages`], and a function in [`crate::tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pane {
    /// Every table.
    All,
    /// Pools.
    Pools,
    /// Servers.
    Servers,
    /// Stores.
    Stores,
    /// What went wrong.
    Errors,
    /// Keys that stand out.
    Keys,
}

impl Pane {
    /// All of them, in the order of their keys, with their names.
    pub const ALL: [(Pane, &'static str); 6] = [
        (Pane::All, "all"),
        (Pane::Pools, "pools"),
        (Pane::Servers, "servers"),
        (Pane::Stores, "stores"),
        (Pane::Errors, "errors"),
        (Pane::Keys, "keys"),
    ];
}

/// Longest filter that can be typed, in characters.
const FILTER_LEN_MAX: usize = 60;
/// Times between readings that `+` and `-` go through.
const INTERVALS: [Duration; 6] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
];

/// What the one at the keyboard has chosen.
#[derive(Clone, Debug)]
pub struct Controls {
    /// Rows and their order.
    pub choice: Choice,
    /// What is shown.
    pub pane: Pane,
    /// Lines scrolled past.
    pub scroll: usize,
    /// True if help covers the rest.
    pub has_help: bool,
    /// True if a filter is being typed.
    pub is_typing: bool,
    /// True if no new readings are taken.
    pub is_paused: bool,
    /// Time between readings, as asked.
    pub interval: Duration,
    /// Whether to end.
    pub is_over: bool,
}

impl Controls {
    /// What is shown at first.
    pub fn new(choice: Choice, interval: Duration) -> Controls {
        Controls {
            choice,
            pane: Pane::All,
            scroll: 0,
            has_help: false,
            is_typing: false,
            is_paused: false,
            interval,
            is_over: false,
        }
    }

    /// Does what a key stands for.
    pub fn on_key(&mut self, key: KeyEvent) {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => self.is_over = true,
            _ if self.is_typing => self.on_typed(key.code, is_control),
            _ if self.has_help => self.has_help = false,
            code => self.on_command(code),
        }
    }

    fn on_typed(&mut self, code: KeyCode, is_control: bool) {
        let filter = &mut self.choice.filter;
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                filter.clear();
                self.is_typing = false;
            }
            KeyCode::Backspace => {
                filter.pop();
            }
            KeyCode::Char('u') if is_control => filter.clear(),
            KeyCode::Char(c) if !is_control && filter.chars().count() < FILTER_LEN_MAX => {
                filter.push(c);
            }
            _ => {}
        }
        self.scroll = 0;
    }

    fn on_command(&mut self, code: KeyCode) {
        const PAGE: usize = 10;
        match code {
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Char('?' | 'h') => self.has_help = true,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => self.choice.filter.clear(),
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('m') => self.choice.is_merged = !self.choice.is_merged,
            KeyCode::Char('r') => self.choice.is_reversed = !self.choice.is_reversed,
            KeyCode::Char('s' | '>') => self.sort_by(self.choice.sort + 1),
            KeyCode::Char('S' | '<') => self.sort_by(self.choice.sort + SORTS.len() - 1),
            KeyCode::Char('+') => self.step_interval(true),
            KeyCode::Char('-') => self.step_interval(false),
            KeyCode::Tab => self.turn_to(self.pane_index() + 1),
            KeyCode::BackTab => self.turn_to(self.pane_index() + Pane::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='6') => self.turn_to(digit as usize - '1' as usize),
            KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll += PAGE,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(PAGE),
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
    }

    fn pane_index(&self) -> usize {
        Pane::ALL.iter().position(|(pane, _)| *pane == self.pane).unwrap_or(0)
    }

    fn turn_to(&mut self, index: usize) {
        self.pane = Pane::ALL[index % Pane::ALL.len()].0;
        self.scroll = 0;
    }

    fn sort_by(&mut self, index: usize) {
        self.choice.sort = index % SORTS.len();
        self.choice.is_reversed = false;
    }

    fn step_interval(&mut self, is_longer: bool) {
        let next = if is_longer {
            INTERVALS.iter().find(|next| **next > self.interval)
        } else {
            INTERVALS.iter().rev().find(|next| **next < self.interval)
        };
        self.interval = next.copied().unwrap_or(self.interval);
    }
}

/// What `?` tells.
pub const HELP: &[&str] = &[
    "1-6, Tab     all, pools, servers, stores, errors, keys that stand out",
    "s, S         order by the next, the previous of: name, requests, p50, p99,",
    "             errors, clients, memory; the ordering column is underlined",
    "r            turn the order round",
    "/            show only what has this in a name; Esc shows all again",
    "m            add up pools and servers of the same name in several processes",
    "p, Space     stop reading, go on reading",
    "+, -         read less often, more often",
    "arrows, j k, PgUp PgDn, Home   scroll",
    "q, Ctrl-C    end",
    "",
    "Rates are by second, between the last two readings; so are P50 and P99, as near",
    "as buckets that double tell. FLIGHT is requests sent or queued without a reply.",
    "Wider terminals show more columns. Any key goes back.",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::tests::choice;

    fn pressed(keys: &str) -> Controls {
        let mut controls = Controls::new(choice(1), Duration::from_secs(2));
        for c in keys.chars() {
            let code = match c {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                '\t' => KeyCode::Tab,
                '\x08' => KeyCode::Backspace,
                c => KeyCode::Char(c),
            };
            controls.on_key(KeyEvent::new(code, KeyModifiers::NONE));
        }
        controls
    }

    #[test]
    fn a_filter_is_typed_kept_and_cleared() {
        assert_eq!(pressed("/qs\x08x\n").choice.filter, "qx");
        assert!(!pressed("/q\n").is_over);
        assert_eq!(pressed("/abc\x1b").choice.filter, "");
        assert_eq!(pressed("/abc\n\x1b").choice.filter, "");
        assert!(pressed("/abc").is_typing);
        let long: String = std::iter::once('/').chain(['x'; 500]).collect();
        assert_eq!(pressed(&long).choice.filter.len(), FILTER_LEN_MAX);
    }

    #[test]
    fn orders_panes_and_intervals_go_round() {
        assert_eq!(pressed("s").choice.sort, 2);
        assert_eq!(pressed("SS").choice.sort, SORTS.len() - 1);
        assert!(pressed("r").choice.is_reversed);
        assert_eq!(pressed("3").pane, Pane::Servers);
        assert_eq!(pressed("6\t").pane, Pane::All);
        assert_eq!(pressed("++++++++").interval, Duration::from_secs(30));
        assert_eq!(pressed("--------").interval, Duration::from_millis(500));
        assert!(pressed("p").is_paused && !pressed("pp").is_paused);
        assert!(pressed("m").choice.is_merged);
        assert_eq!(pressed("jjk").scroll, 1);
    }

    #[test]
    fn any_key_leaves_the_help_and_does_nothing_else() {
        let controls = pressed("?q");
        assert!(!controls.has_help && !controls.is_over);
        assert!(pressed("q").is_over);
        let mut controls = pressed("/a");
        controls.on_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(controls.is_over);
    }
}
