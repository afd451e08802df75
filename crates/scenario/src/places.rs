//! Places in commands and files that are filled in when a system is started: `{port}`,
//! `{redis.address}`.
//!
//! A place is a name in braces without blanks; other braces are text. A line, or a word of a
//! command, that names servers of the scenario is repeated for each of them.

use crate::reader::nearest;

/// What stands for an address, a port or a number of servers.
const OF_SERVERS: [&str; 3] = ["address", "port", "number"];

/// The next place in `text`: where it begins and ends, and its name.
fn next(text: &str) -> Option<(usize, usize, &str)> {
    let mut from = 0;
    while let Some(open) = text[from..].find('{').map(|at| from + at) {
        let rest = &text[open + 1..];
        let is_name =
            |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
        let len = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
        let begins = rest.starts_with(|letter: char| letter.is_ascii_lowercase());
        if begins && rest[len..].starts_with('}') {
            return Some((open, open + len + 2, &rest[..len]));
        }
        from = open + 1;
    }
    None
}

/// All places of a text.
pub fn names(text: &str) -> Vec<&str> {
    let (mut names, mut rest) = (Vec::new(), text);
    while let Some((_, end, name)) = next(rest) {
        names.push(name);
        rest = &rest[end..];
    }
    names
}

/// The servers that a place names.
pub fn servers_of(name: &str) -> Option<&str> {
    let (servers, what) = name.rsplit_once('.')?;
    let is_own = name.starts_with("port.") || name.starts_with("file.");
    (!is_own && OF_SERVERS.contains(&what)).then_some(servers)
}

/// Why a place cannot be filled in: what is wrong, and what to write instead.
pub fn check(name: &str, servers: &[&str], files: &[&str]) -> Result<(), (String, String)> {
    let wrong = |hint: String| Err((format!("nothing stands for {{{name}}}"), hint));
    match name.split_once('.') {
        None if matches!(name, "port" | "dir" | "cores") => Ok(()),
        Some(("port", word)) if !word.is_empty() => Ok(()),
        Some(("file", file)) if files.contains(&file) => Ok(()),
        Some(("file", _)) => wrong(format!("files are {}", listed(files))),
        _ => match servers_of(name) {
            Some(group) if servers.contains(&group) => Ok(()),
            Some(group) => wrong(match nearest(group, servers.iter().copied()) {
                Some(meant) => format!("did you mean {{{}}}?", name.replace(group, meant)),
                None => format!("servers are {}", listed(servers)),
            }),
            None => wrong(
                "{port}, {port.NAME}, {dir}, {cores}, {file.NAME}, {SERVERS.address}, \
                 {SERVERS.port} and {SERVERS.number} are known"
                    .to_owned(),
            ),
        },
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "not named in this file".to_owned() } else { names.join(", ") }
}

/// Ports of servers, by the servers' name.
pub type Ports = std::collections::BTreeMap<String, Vec<u16>>;

/// Fills in one line or word: once, or once for each of the servers that it names.
fn fill(text: &str, ports: &Ports, value: &mut dyn FnMut(&str) -> String, out: &mut Vec<String>) {
    let named = names(text).into_iter().find_map(servers_of);
    let count = named.map_or(1, |servers| ports.get(servers).map_or(0, Vec::len));
    for number in 0..count {
        let (mut line, mut rest) = (String::new(), text);
        while let Some((start, end, name)) = next(rest) {
            line.push_str(&rest[..start]);
            let port = servers_of(name).and_then(|servers| ports.get(servers)?.get(number));
            match (port, name.rsplit_once('.').map(|(_, what)| what)) {
                (Some(port), Some("address")) => line.push_str(&format!("127.0.0.1:{port}")),
                (Some(port), Some("port")) => line.push_str(&port.to_string()),
                (Some(_), _) => line.push_str(&number.to_string()),
                (None, _) => line.push_str(&value(name)),
            }
            rest = &rest[end..];
        }
        line.push_str(rest);
        out.push(line);
    }
}

/// A file with its places filled in by `value`, or by the servers' ports.
pub fn fill_text(text: &str, ports: &Ports, value: &mut dyn FnMut(&str) -> String) -> String {
    let mut out = Vec::new();
    for line in text.split_inclusive('\n') {
        fill(line, ports, value, &mut out);
    }
    out.concat()
}

/// The words of a command, likewise.
pub fn fill_words(
    words: &[String],
    ports: &Ports,
    value: &mut dyn FnMut(&str) -> String,
) -> Vec<String> {
    let mut out = Vec::new();
    for word in words {
        fill(word, ports, value, &mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_names_servers_is_there_for_each() {
        let ports = Ports::from([("redis".to_owned(), vec![7000, 7001])]);
        let text =
            "listen: {port}\nhash_tag: \"{}\"\n - {redis.address}:1 s{redis.number}\nend {\n";
        let filled = fill_text(text, &ports, &mut |name| format!("<{name}>"));
        assert_eq!(
            filled,
            "listen: <port>\nhash_tag: \"{}\"\n - 127.0.0.1:7000:1 s0\n - 127.0.0.1:7001:1 s1\nend {\n"
        );
        let words = ["a".to_owned(), "--to={redis.port}".to_owned()];
        assert_eq!(
            fill_words(&words, &ports, &mut |_| String::new()),
            ["a", "--to=7000", "--to=7001"]
        );
    }

    #[test]
    fn what_stands_for_nothing_is_told() {
        let check = |name| check(name, &["redis"], &["a.conf"]);
        for right in ["port", "port.admin", "dir", "cores", "file.a.conf", "redis.address"] {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        assert_eq!(check("redi.port").unwrap_err().1, "did you mean {redis.port}?");
        assert_eq!(check("file.b").unwrap_err().1, "files are a.conf");
        assert!(check("prot").unwrap_err().1.contains("{port.NAME}"));
        assert_eq!(names("{ a } {A} {}  {port}x{dir"), ["port"]);
    }
}
