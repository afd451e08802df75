//! What a reply must look like.
//!
//! `+text`, `-text` exactly; `-text*` starts so; `:7`; `:5..9`; `"bytes"`;
//! `@key`; `nil`; `nil-array`; `[a b]` in this order; `{a b}` in any order;
//! `any`, `bulk`, `int`, `array`; `closed`; `a | b` either.

use super::script::{closing_quote, unescape};
use crate::value::Value;

/// A pattern over replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expect {
    Simple(Vec<u8>),
    Error(Vec<u8>),
    ErrorPrefix(Vec<u8>),
    Between(i64, i64),
    Bulk(Vec<u8>),
    Key(String),
    Nil,
    NilArray,
    Ordered(Vec<Expect>),
    Unordered(Vec<Expect>),
    Any,
    AnyBulk,
    AnyInteger,
    AnyArray,
    Closed,
    Either(Vec<Expect>),
}

impl Expect {
    /// Reads one pattern.
    ///
    /// # Panics
    /// When it makes no sense: the files are ours.
    pub(super) fn parse(text: &str) -> Expect {
        if text.contains(" | ") {
            return Expect::Either(
                text.split(" | ").map(|part| Expect::parse(part.trim())).collect(),
            );
        }
        if let Some(message) = text.strip_prefix('+') {
            return Expect::Simple(unescape(message));
        }
        if let Some(message) = text.strip_prefix('-') {
            return error(message);
        }
        let mut rest = text;
        let expect = element(&mut rest);
        assert!(rest.trim().is_empty(), "left over: {rest:?} of {text:?}");
        expect
    }

    /// Whether `value` is such a reply, with `tag` in the keys' names.
    pub(super) fn matches(&self, value: &Value, tag: &str) -> bool {
        match (self, value) {
            (Expect::Simple(text), Value::Simple(got)) => text == got,
            (Expect::Error(text), Value::Error(got)) => text == got,
            (Expect::ErrorPrefix(text), Value::Error(got)) => got.starts_with(text),
            (Expect::Between(low, high), Value::Integer(got)) => (low..=high).contains(&got),
            (Expect::Bulk(bytes), Value::Bulk(got)) => bytes == got,
            (Expect::Key(name), Value::Bulk(got)) => format!("{{{tag}}}{name}").as_bytes() == got,
            (Expect::Ordered(items), Value::Array(got)) => {
                items.len() == got.len()
                    && items.iter().zip(got).all(|(item, one)| item.matches(one, tag))
            }
            (Expect::Unordered(items), Value::Array(got)) => unordered(items, got, tag),
            (Expect::Either(choices), _) => choices.iter().any(|one| one.matches(value, tag)),
            (Expect::Nil, Value::Nil)
            | (Expect::NilArray, Value::NilArray)
            | (Expect::Nil | Expect::NilArray, Value::Null)
            | (Expect::Any, _)
            | (Expect::AnyBulk, Value::Bulk(_))
            | (Expect::AnyInteger, Value::Integer(_))
            | (Expect::AnyArray, Value::Array(_)) => true,
            _ => false,
        }
    }
}

/// Each pattern takes the first reply it matches: patterns in braces are
/// literals, so greedy is exact.
fn unordered(items: &[Expect], got: &[Value], tag: &str) -> bool {
    let mut left: Vec<&Value> = got.iter().collect();
    for item in items {
        match left.iter().position(|value| item.matches(value, tag)) {
            Some(index) => drop(left.remove(index)),
            None => return false,
        }
    }
    left.is_empty()
}

fn error(message: &str) -> Expect {
    match message.strip_suffix('*') {
        Some(prefix) => Expect::ErrorPrefix(unescape(prefix)),
        None => Expect::Error(unescape(message)),
    }
}

fn element(rest: &mut &str) -> Expect {
    *rest = rest.trim_start();
    if let Some(quoted) = rest.strip_prefix('"') {
        let end = closing_quote(quoted);
        *rest = &quoted[end + 1..];
        return Expect::Bulk(unescape(&quoted[..end]));
    }
    if let Some(inner) = rest.strip_prefix('[') {
        *rest = inner;
        return Expect::Ordered(elements(rest, ']'));
    }
    if let Some(inner) = rest.strip_prefix('{') {
        *rest = inner;
        return Expect::Unordered(elements(rest, '}'));
    }
    let end = rest.find([' ', ']', '}']).unwrap_or(rest.len());
    let word = &rest[..end];
    *rest = &rest[end..];
    atom(word)
}

fn elements(rest: &mut &str, close: char) -> Vec<Expect> {
    let mut items = Vec::new();
    loop {
        *rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix(close) {
            *rest = after;
            return items;
        }
        items.push(element(rest));
    }
}

fn atom(word: &str) -> Expect {
    let number =
        |text: &str| -> i64 { text.parse().unwrap_or_else(|_| panic!("not a number: {word:?}")) };
    match word {
        "nil" => Expect::Nil,
        "nil-array" => Expect::NilArray,
        "any" => Expect::Any,
        "bulk" => Expect::AnyBulk,
        "int" => Expect::AnyInteger,
        "array" => Expect::AnyArray,
        "closed" => Expect::Closed,
        _ => match word.split_at_checked(1) {
            Some((":", text)) => match text.split_once("..") {
                Some((low, high)) => Expect::Between(number(low), number(high)),
                None => Expect::Between(number(text), number(text)),
            },
            Some(("@", name)) => Expect::Key(name.to_owned()),
            Some(("+", text)) => Expect::Simple(text.as_bytes().to_vec()),
            Some(("-", text)) => error(text),
            _ => panic!("not a pattern: {word:?}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_they_say_and_nothing_else() {
        let list = Value::Array(vec![Value::Integer(1), Value::bulk("b"), Value::Nil]);
        assert!(Expect::parse("[:1 \"b\" nil]").matches(&list, ""));
        assert!(Expect::parse("{nil :1 \"b\"}").matches(&list, ""));
        assert!(Expect::parse("nil | array").matches(&list, ""));
        assert!(!Expect::parse("{nil :1}").matches(&list, ""));
        assert!(!Expect::parse("[\"b\" :1 nil]").matches(&list, ""));
        assert!(Expect::parse(":5..7").matches(&Value::Integer(7), ""));
        assert!(!Expect::parse(":5..7").matches(&Value::Integer(8), ""));
        let error = Value::Error(b"ERR syntax error".to_vec());
        assert!(Expect::parse("-ERR syn*").matches(&error, ""));
        assert!(!Expect::parse("-ERR syn").matches(&error, ""));
        assert!(Expect::parse("@k").matches(&Value::bulk("{t}k"), "t"));
    }
}
