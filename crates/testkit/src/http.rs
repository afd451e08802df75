//! One HTTP request, and the Prometheus text behind it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpReply {
    /// The status code.
    pub status: u16,
    /// Header lines without the status line, as they came.
    pub headers: String,
    /// The body.
    pub body: String,
}

/// Asks `address` for `path` and closes.
///
/// # Panics
/// When nobody answers or the answer is not HTTP.
pub fn http_get(address: SocketAddr, path: &str) -> HttpReply {
    ask(address, "GET", path, "")
}

/// The same with more header lines, each with its line end.
///
/// # Panics
/// When nobody answers or the answer is not HTTP.
pub fn http_get_with(address: SocketAddr, path: &str, headers: &str) -> HttpReply {
    ask(address, "GET", path, headers)
}

/// The same with POST and no body.
///
/// # Panics
/// When nobody answers or the answer is not HTTP.
pub fn http_post(address: SocketAddr, path: &str) -> HttpReply {
    ask(address, "POST", path, "")
}

fn ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> HttpReply {
    let mut stream = TcpStream::connect(address)
        .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a live socket");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: \
         close\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).expect("a live socket");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("a whole reply, then the end");
    let text = String::from_utf8(bytes).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("headers, then a body");
    let (first, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status code");
    HttpReply { status, headers: headers.to_owned(), body: body.to_owned() }
}

/// The id of the process that answers at the admin listener there; `None` when nobody does, or
/// one that ends.
pub fn serving_process(admin: SocketAddr) -> Option<u32> {
    let mut stream = TcpStream::connect(admin).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let request = "GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    let rest = reply.split("\"pid\":").nth(1)?;
    rest.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
}

/// Metrics at one moment: every sample under its name and labels as printed.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    samples: BTreeMap<String, f64>,
    text: String,
}

/// Reads `/metrics`.
///
/// # Panics
/// When the status is not 200 or a line is neither a comment nor a sample.
pub fn scrape(address: SocketAddr) -> Metrics {
    let reply = http_get(address, "/metrics");
    assert_eq!(reply.status, 200, "{}", reply.body);
    Metrics::parse(&reply.body)
}

impl Metrics {
    /// Reads Prometheus text.
    ///
    /// # Panics
    /// When a line is neither a comment nor a sample.
    pub fn parse(text: &str) -> Metrics {
        let mut samples = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, value) =
                line.rsplit_once(' ').unwrap_or_else(|| panic!("not a sample: {line}"));
            let value = value.parse().unwrap_or_else(|_| panic!("not a number: {line}"));
            assert!(samples.insert(name.to_owned(), value).is_none(), "twice: {line}");
        }
        Metrics { samples, text: text.to_owned() }
    }

    /// The sum of the samples of `name` whose labels hold each of `labels`
    /// (such as `pool="main"`); zero when there is none.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        self.matching(name, labels).map(|(_, value)| value).sum()
    }

    /// How many samples `name` has with these labels.
    pub fn count(&self, name: &str, labels: &[&str]) -> usize {
        self.matching(name, labels).count()
    }

    /// The page as it came.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn matching<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [&'a str],
    ) -> impl Iterator<Item = (&'a str, f64)> {
        self.samples
            .iter()
            .filter(move |(sample, _)| {
                let (metric, rest) = sample.split_once('{').unwrap_or((sample, ""));
                metric == name && labels.iter().all(|label| rest.contains(label))
            })
            .map(|(sample, value)| (sample.as_str(), *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_over_the_labels_not_named() {
        let metrics = Metrics::parse(
            "# HELP a x\n# TYPE a counter\na{p=\"1\",q=\"x\"} 2\na{p=\"1\",q=\"y\"} 3\na{p=\"2\",q=\"x\"} 10\nab 7\n",
        );
        assert_eq!(metrics.sum("a", &["p=\"1\""]), 5.0);
        assert_eq!(metrics.sum("a", &[]), 15.0);
        assert_eq!(metrics.sum("ab", &[]), 7.0);
        assert_eq!(metrics.count("a", &["q=\"x\""]), 2);
        assert_eq!(metrics.sum("missing", &[]), 0.0);
    }
}
