//! Lua's patterns, with a limit on the work. Lua's own matcher may run for hours, and uses the C
//! stack for each item of a pattern.
//!
//! A matcher follows a pattern and a subject as Lua 5.1's manual describes them (section 5.4.1),
//! and counts its steps.

use super::arguments::{bad_argument, number_at, string_at};
use crate::number::truncate;
use crate::raised::Raised;
use crate::state::State;
use mlua::{Lua, MultiValue, Table, Value, Variadic};
use std::cell::Cell;
use std::rc::Rc;

/// Largest number of captures of one pattern.
const CAPTURES_MAX: usize = 32;
/// Largest depth of recursion of a match: each level takes stack.
const DEPTH_MAX: usize = 200;
/// Number of steps between two checks of the time: some tenths of a millisecond.
const STEPS_PER_LOOK: u32 = 1 << 16;

/// The length of a capture that is still open.
const OPEN: isize = -1;
/// The length of a position capture.
const POSITION: isize = -2;

#[derive(Clone, Copy, Default)]
struct Capture {
    start: usize,
    len: isize,
}

struct Matcher<'a> {
    state: &'a State,
    lua: &'a Lua,
    subject: &'a [u8],
    pattern: &'a [u8],
    captures: [Capture; CAPTURES_MAX],
    level: usize,
    depth: usize,
    steps: Cell<u32>,
}

type Found = mlua::Result<Option<usize>>;

impl<'a> Matcher<'a> {
    fn new(state: &'a State, lua: &'a Lua, subject: &'a [u8], pattern: &'a [u8]) -> Self {
        let captures = [Capture::default(); CAPTURES_MAX];
        Self { state, lua, subject, pattern, captures, level: 0, depth: 0, steps: Cell::new(0) }
    }

    fn fail<T>(&self, text: &str) -> mlua::Result<T> {
        Err(Raised::text(self.lua, text))
    }

    fn step(&self) -> mlua::Result<()> {
        let steps = self.steps.get().wrapping_add(1);
        self.steps.set(steps);
        if steps.is_multiple_of(STEPS_PER_LOOK) { self.state.check_end(self.lua) } else { Ok(()) }
    }

    /// Matches the whole pattern from `at` on. Returns the end of the match.
    fn begin(&mut self, at: usize, from: usize) -> Found {
        self.level = 0;
        self.depth = 0;
        self.run(at, from)
    }

    fn run(&mut self, at: usize, item: usize) -> Found {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.fail("pattern too complex");
        }
        let found = self.items(at, item);
        self.depth -= 1;
        found
    }

    /// Matches the items of the pattern one after the other.
    fn items(&mut self, mut at: usize, mut item: usize) -> Found {
        loop {
            self.step()?;
            let Some(&kind) = self.pattern.get(item) else { return Ok(Some(at)) };
            let next = self.pattern.get(item + 1).copied();
            match (kind, next) {
                (b'(', Some(b')')) => return self.open(at, item + 2, POSITION),
                (b'(', _) => return self.open(at, item + 1, OPEN),
                (b')', _) => return self.close(at, item + 1),
                (b'$', None) => return Ok((at == self.subject.len()).then_some(at)),
                (b'%', Some(b'b')) => match self.balance(at, item + 2)? {
                    Some(end) => (at, item) = (end, item + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => {
                    let set = item + 2;
                    if self.pattern.get(set) != Some(&b'[') {
                        return self.fail("missing '[' after '%f' in pattern");
                    }
                    let end = self.class_end(set)?;
                    let before = at.checked_sub(1).map_or(0, |at| self.subject[at]);
                    let here = self.subject.get(at).copied().unwrap_or(0);
                    let is_edge =
                        !self.in_set(before, set, end - 1) && self.in_set(here, set, end - 1);
                    if !is_edge {
                        return Ok(None);
                    }
                    item = end;
                }
                (b'%', Some(digit)) if digit.is_ascii_digit() => {
                    match self.same_again(at, digit)? {
                        Some(end) => (at, item) = (end, item + 2),
                        None => return Ok(None),
                    }
                }
                _ => {
                    let end = self.class_end(item)?;
                    match self.pattern.get(end) {
                        Some(b'?') => {
                            if self.is_single(at, item, end)
                                && let Some(found) = self.run(at + 1, end + 1)?
                            {
                                return Ok(Some(found));
                            }
                            item = end + 1;
                        }
                        Some(b'*') => return self.longest(at, (item, end), 0),
                        Some(b'+') => return self.longest(at, (item, end), 1),
                        Some(b'-') => return self.shortest(at, (item, end)),
                        _ => {
                            if !self.is_single(at, item, end) {
                                return Ok(None);
                            }
                            (at, item) = (at + 1, end);
                        }
                    }
                }
            }
        }
    }

    fn longest(&mut self, at: usize, (item, end): (usize, usize), least: usize) -> Found {
        let mut count = 0;
        while self.is_single(at + count, item, end) {
            self.step()?;
            count += 1;
        }
        while count >= least {
            if let Some(found) = self.run(at + count, end + 1)? {
                return Ok(Some(found));
            }
            let Some(less) = count.checked_sub(1) else { break };
            count = less;
        }
        Ok(None)
    }

    fn shortest(&mut self, mut at: usize, (item, end): (usize, usize)) -> Found {
        loop {
            if let Some(found) = self.run(at, end + 1)? {
                return Ok(Some(found));
            }
            if !self.is_single(at, item, end) {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn open(&mut self, at: usize, item: usize, len: isize) -> Found {
        let Some(capture) = self.captures.get_mut(self.level) else {
            return self.fail("too many captures");
        };
        *capture = Capture { start: at, len };
        self.level += 1;
        let found = self.run(at, item)?;
        if found.is_none() {
            self.level -= 1;
        }
        Ok(found)
    }

    fn close(&mut self, at: usize, item: usize) -> Found {
        let open = (0..self.level).rev().find(|index| self.captures[*index].len == OPEN);
        let Some(index) = open else { return self.fail("invalid pattern capture") };
        self.captures[index].len = (at - self.captures[index].start) as isize;
        let found = self.run(at, item)?;
        if found.is_none() {
            self.captures[index].len = OPEN;
        }
        Ok(found)
    }

    fn balance(&self, at: usize, item: usize) -> Found {
        let (Some(&open), Some(&close)) = (self.pattern.get(item), self.pattern.get(item + 1))
        else {
            return self.fail("unbalanced pattern");
        };
        if self.subject.get(at) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for (index, byte) in self.subject.iter().enumerate().skip(at + 1) {
            self.step()?;
            if *byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(index + 1));
                }
            } else if *byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    fn same_again(&self, at: usize, digit: u8) -> Found {
        let index = usize::from(digit).wrapping_sub(usize::from(b'1'));
        let capture = self.captures[..self.level].get(index).filter(|one| one.len != OPEN);
        let Some(capture) = capture else { return self.fail("invalid capture index") };
        let len = capture.len.max(0) as usize;
        let text = &self.subject[capture.start..capture.start + len];
        Ok(self.subject[at..].starts_with(text).then_some(at + len))
    }

    /// Returns where the item after one character class begins.
    fn class_end(&self, item: usize) -> mlua::Result<usize> {
        let malformed = "malformed pattern (ends with '%')";
        match self.pattern[item] {
            b'%' if item + 1 >= self.pattern.len() => self.fail(malformed),
            b'%' => Ok(item + 2),
            b'[' => {
                let mut at = item + 1;
                if self.pattern.get(at) == Some(&b'^') {
                    at += 1;
                }
                // The first character may be the bracket itself.
                loop {
                    let Some(&byte) = self.pattern.get(at) else {
                        return self.fail("malformed pattern (missing ']')");
                    };
                    at += if byte == b'%' { 2 } else { 1 };
                    if self.pattern.get(at) == Some(&b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(item + 1),
        }
    }

    /// Returns whether the character at `at` belongs to the class from `item` to `end`.
    fn is_single(&self, at: usize, item: usize, end: usize) -> bool {
        let Some(&byte) = self.subject.get(at) else { return false };
        match self.pattern[item] {
            b'.' => true,
            b'%' => is_of_class(byte, self.pattern[item + 1]),
            b'[' => self.in_set(byte, item, end - 1),
            other => other == byte,
        }
    }

    /// Returns whether a character belongs to the set from the bracket at `item` to that at `last`.
    fn in_set(&self, byte: u8, item: usize, last: usize) -> bool {
        let mut at = item + 1;
        let is_in = self.pattern.get(at) != Some(&b'^');
        if !is_in {
            at += 1;
        }
        while at < last {
            let one = self.pattern[at];
            if one == b'%' && at + 1 < last {
                if is_of_class(byte, self.pattern[at + 1]) {
                    return is_in;
                }
                at += 2;
            } else if at + 2 < last && self.pattern[at + 1] == b'-' {
                if (one..=self.pattern[at + 2]).contains(&byte) {
                    return is_in;
                }
                at += 3;
            } else {
                if one == byte {
                    return is_in;
                }
                at += 1;
            }
        }
        !is_in
    }

    /// Returns capture `index` of a match, or the whole match if there are no captures.
    fn capture(&self, index: usize, (start, end): (usize, usize)) -> mlua::Result<Value> {
        if index >= self.level {
            if index > 0 {
                return self.fail("invalid capture index");
            }
            return Ok(Value::String(self.lua.create_string(&self.subject[start..end])?));
        }
        let capture = self.captures[index];
        match capture.len {
            OPEN => self.fail("unfinished capture"),
            POSITION => Ok(Value::Number((capture.start + 1) as f64)),
            len => {
                let text = &self.subject[capture.start..capture.start + len as usize];
                Ok(Value::String(self.lua.create_string(text)?))
            }
        }
    }

    /// Returns all captures, or the whole match if there are none.
    fn all(&self, range: (usize, usize)) -> mlua::Result<Vec<Value>> {
        (0..self.level.max(1)).map(|index| self.capture(index, range)).collect()
    }
}

fn is_of_class(byte: u8, class: u8) -> bool {
    let is_of = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 11,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_of != class.is_ascii_uppercase()
}

/// Adds the functions to `strings`.
pub(crate) fn add(state: &Rc<State>, lua: &Lua, strings: &Table) -> mlua::Result<()> {
    for (name, finds) in [("find", true), ("match", false)] {
        let own = Rc::clone(state);
        let function =
            move |lua: &Lua, args: Variadic<Value>| find(&own, lua, &args, (name, finds));
        strings.set(name, lua.create_function(function)?)?;
    }
    let own = Rc::clone(state);
    let gmatch = move |lua: &Lua, args: Variadic<Value>| gmatch(&own, lua, &args);
    let gmatch = lua.create_function(gmatch)?;
    strings.set("gmatch", gmatch.clone())?;
    strings.set("gfind", gmatch)?;
    let own = Rc::clone(state);
    let next_match = move |lua: &Lua, args: Variadic<Value>| next_match(&own, lua, &args);
    strings.set("next_match", lua.create_function(next_match)?)?;
    let own = Rc::clone(state);
    let gsub = move |lua: &Lua, args: Variadic<Value>| gsub(&own, lua, &args);
    strings.set("gsub", lua.create_function(gsub)?)
}

/// Runs `string.find` and `string.match`.
fn find(
    state: &State,
    lua: &Lua,
    args: &[Value],
    (name, finds): (&str, bool),
) -> mlua::Result<MultiValue> {
    let (subject, pattern) = (string_at(lua, args, 1, name)?, string_at(lua, args, 2, name)?);
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let from = match args.get(2) {
        None | Some(Value::Nil) => 1,
        Some(_) => truncate(number_at(lua, args, 3, name)?),
    };
    let from = if from < 0 { from + subject.len() as i64 + 1 } else { from };
    let start = (from.max(1) as usize - 1).min(subject.len());
    let place = |start: usize, end: usize| {
        vec![Value::Number((start + 1) as f64), Value::Number(end as f64)]
    };
    let is_plain = args.get(3).is_some_and(|it| !matches!(it, Value::Nil | Value::Boolean(false)));
    let is_special = |byte: &u8| b"^$*+?.([%-".contains(byte);
    if finds && (is_plain || !pattern.iter().any(is_special)) {
        let found = find_plain(&subject[start..], &pattern).map(|at| start + at);
        let values = found.map_or_else(|| vec![Value::Nil], |at| place(at, at + pattern.len()));
        return Ok(MultiValue::from_vec(values));
    }
    let is_anchored = pattern.first() == Some(&b'^');
    let first = usize::from(is_anchored);
    let mut matcher = Matcher::new(state, lua, &subject, &pattern);
    let last = if is_anchored { start } else { subject.len() };
    for at in start..=last {
        if let Some(end) = matcher.begin(at, first)? {
            let mut values = if finds { place(at, end) } else { Vec::new() };
            if !finds || matcher.level > 0 {
                values.extend(matcher.all((at, end))?);
            }
            return Ok(MultiValue::from_vec(values));
        }
    }
    Ok(MultiValue::from_vec(vec![Value::Nil]))
}

/// Returns where `wanted` is in `text`. The time grows only with their lengths.
fn find_plain(text: &[u8], wanted: &[u8]) -> Option<usize> {
    if wanted.is_empty() {
        return Some(0);
    }
    // For each index of `wanted`, the length of its own beginning that ends there.
    let mut fits = vec![0; wanted.len()];
    let mut len = 0;
    for at in 1..wanted.len() {
        while len > 0 && wanted[at] != wanted[len] {
            len = fits[len - 1];
        }
        len += usize::from(wanted[at] == wanted[len]);
        fits[at] = len;
    }
    let mut len = 0;
    for (at, byte) in text.iter().enumerate() {
        while len > 0 && *byte != wanted[len] {
            len = fits[len - 1];
        }
        len += usize::from(*byte == wanted[len]);
        if len == wanted.len() {
            return Some(at + 1 - len);
        }
    }
    None
}

/// Returns the iterator of `string.gmatch`.
fn gmatch(state: &Rc<State>, lua: &Lua, args: &[Value]) -> mlua::Result<mlua::Function> {
    let subject = string_at(lua, args, 1, "gmatch")?;
    let pattern = string_at(lua, args, 2, "gmatch")?;
    let (state, next) = (Rc::clone(state), Cell::new(0));
    lua.create_function(move |lua, _: Variadic<Value>| {
        let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
        let mut matcher = Matcher::new(&state, lua, &subject, &pattern);
        for at in next.get()..=subject.len() {
            if let Some(end) = matcher.begin(at, 0)? {
                next.set(if end == at { end + 1 } else { end });
                return Ok(MultiValue::from_vec(matcher.all((at, end))?));
            }
        }
        next.set(usize::MAX >> 1);
        Ok(MultiValue::new())
    })
}

/// Returns the next match from an index on: its begin, its end, its captures. The prelude's
/// `string.gsub` uses it.
fn next_match(state: &State, lua: &Lua, args: &[Value]) -> mlua::Result<MultiValue> {
    let (subject, pattern) = (string_at(lua, args, 1, "gsub")?, string_at(lua, args, 2, "gsub")?);
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let start = (number_at(lua, args, 3, "gsub")? as usize).saturating_sub(1);
    let is_anchored = pattern.first() == Some(&b'^');
    let mut matcher = Matcher::new(state, lua, &subject, &pattern);
    let last = if is_anchored { start } else { subject.len() };
    for at in start..=last {
        if let Some(end) = matcher.begin(at, usize::from(is_anchored))? {
            let place = [(at + 1) as f64, end as f64].map(Value::Number);
            let values = place.into_iter().chain(matcher.all((at, end))?);
            return Ok(MultiValue::from_iter(values));
        }
    }
    Ok(MultiValue::new())
}

/// The replacement of a match by `string.gsub`.
enum Replacement {
    Text(Vec<u8>),
    Table(Table),
}

/// Runs `string.gsub`, except with a function as the replacement. The prelude does that, so that
/// errors of the function stay unchanged.
fn gsub(state: &State, lua: &Lua, args: &[Value]) -> mlua::Result<MultiValue> {
    let (subject, pattern) = (string_at(lua, args, 1, "gsub")?, string_at(lua, args, 2, "gsub")?);
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let replacement = match args.get(2) {
        Some(Value::Table(table)) => Replacement::Table(table.clone()),
        Some(Value::String(_) | Value::Number(_) | Value::Integer(_)) => {
            Replacement::Text(string_at(lua, args, 3, "gsub")?.as_bytes().to_vec())
        }
        _ => {
            return Err(bad_argument(lua, 3, "gsub", "string/function/table expected"));
        }
    };
    let max = match args.get(3) {
        None | Some(Value::Nil) => i64::MAX,
        Some(_) => truncate(number_at(lua, args, 4, "gsub")?),
    };
    let is_anchored = pattern.first() == Some(&b'^');
    let mut matcher = Matcher::new(state, lua, &subject, &pattern);
    let (mut out, mut at, mut count) = (Vec::new(), 0, 0);
    while count < max {
        let found = matcher.begin(at, usize::from(is_anchored))?;
        if let Some(end) = found {
            count += 1;
            replace(&matcher, (at, end), &replacement, &mut out)?;
            if out.len() > state.memory_max() {
                return Err(state.end_now(lua, crate::ends::End::Memory));
            }
        }
        match found {
            Some(end) if end > at => at = end,
            _ if at < subject.len() => {
                out.push(subject[at]);
                at += 1;
            }
            _ => break,
        }
        if is_anchored {
            break;
        }
    }
    out.extend_from_slice(subject.get(at..).unwrap_or_default());
    let text = Value::String(lua.create_string(out)?);
    Ok(MultiValue::from_vec(vec![text, Value::Number(count as f64)]))
}

fn replace(
    matcher: &Matcher<'_>,
    (start, end): (usize, usize),
    replacement: &Replacement,
    out: &mut Vec<u8>,
) -> mlua::Result<()> {
    let value = match replacement {
        Replacement::Text(text) => {
            let mut bytes = text.iter();
            while let Some(byte) = bytes.next() {
                if *byte != b'%' {
                    out.push(*byte);
                    continue;
                }
                match bytes.next() {
                    Some(b'0') => out.extend_from_slice(&matcher.subject[start..end]),
                    Some(digit) if digit.is_ascii_digit() => {
                        let index = usize::from(digit - b'1');
                        let capture = matcher.capture(index, (start, end))?;
                        if let Some(text) = matcher.lua.coerce_string(capture)? {
                            out.extend_from_slice(&text.as_bytes());
                        }
                    }
                    Some(other) => out.push(*other),
                    None => out.push(0),
                }
            }
            return Ok(());
        }
        Replacement::Table(table) => table.get::<Value>(matcher.capture(0, (start, end))?)?,
    };
    match value {
        Value::Nil | Value::Boolean(false) => {
            out.extend_from_slice(&matcher.subject[start..end]);
        }
        Value::String(_) | Value::Number(_) | Value::Integer(_) => {
            if let Some(text) = matcher.lua.coerce_string(value)? {
                out.extend_from_slice(&text.as_bytes());
            }
        }
        other => {
            let kind = super::arguments::type_of(Some(&other));
            return matcher.fail(&format!("invalid replacement value (a {kind})"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_found_where_it_first_is() {
        for (text, wanted) in [("aabaabaac", "aabaac"), ("abc", ""), ("aaa", "b"), ("", "a")] {
            assert_eq!(find_plain(text.as_bytes(), wanted.as_bytes()), text.find(wanted));
        }
    }

    #[test]
    fn classes_are_those_of_c() {
        assert!(is_of_class(b' ', b's') && is_of_class(11, b's') && !is_of_class(b'x', b's'));
        assert!(is_of_class(b'x', b'S') && is_of_class(b'.', b'.') && is_of_class(0, b'z'));
    }
}
