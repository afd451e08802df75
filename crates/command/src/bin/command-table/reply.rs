//! A minimal RESP2 client: one request, one reply, blocking.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

/// One reply, as a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status line or a bulk string.
    Text(String),
    /// An integer.
    Integer(i64),
    /// An array, or a map flattened to one.
    Array(Vec<Reply>),
    /// An error line, without its dash.
    Error(String),
    /// A null.
    Null,
}

impl Reply {
    /// Returns the text of a string, or an empty one.
    pub fn text(&self) -> &str {
        match self {
            Reply::Text(text) => text,
            _ => "",
        }
    }

    /// Returns the value of an integer, or 0.
    pub fn integer(&self) -> i64 {
        match self {
            Reply::Integer(value) => *value,
            _ => 0,
        }
    }

    /// Returns the elements of an array, or none.
    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) => items,
            _ => &[],
        }
    }

    /// Returns the value of `key` in a flattened map, or a null.
    pub fn get(&self, key: &str) -> &Reply {
        let pair = self.items().chunks_exact(2).find(|pair| pair[0].text() == key);
        pair.map_or(&Reply::Null, |pair| &pair[1])
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A connection to a Redis server.
pub struct Client {
    stream: BufReader<Box<dyn Stream>>,
}

impl Client {
    /// Connects to `host:port`, or to the unix socket at a path.
    pub fn connect(address: &str) -> io::Result<Client> {
        let stream: Box<dyn Stream> = if address.contains('/') {
            Box::new(UnixStream::connect(address)?)
        } else {
            Box::new(TcpStream::connect(address)?)
        };
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Sends `args` and reads the reply.
    pub fn call(&mut self, args: &[&str]) -> io::Result<Reply> {
        let mut request = format!("*{}\r\n", args.len());
        for arg in args {
            request.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
        }
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.read()
    }

    fn read(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let line = line.trim_end_matches("\r\n");
        let Some((kind, rest)) = line.split_at_checked(1) else { return Err(unexpected(line)) };
        let number = || rest.parse::<i64>().map_err(|_| unexpected(line));
        match kind {
            "+" => Ok(Reply::Text(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Integer(number()?)),
            "$" | "*" if rest == "-1" => Ok(Reply::Null),
            "$" => {
                let mut bytes = vec![0; number()? as usize + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
            }
            "*" => Ok(Reply::Array((0..number()?).map(|_| self.read()).collect::<Result<_, _>>()?)),
            _ => Err(unexpected(line)),
        }
    }
}

fn unexpected(line: &str) -> io::Error {
    io::Error::other(format!("unexpected reply from the server: {line:?}"))
}
