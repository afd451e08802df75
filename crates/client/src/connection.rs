//! Commands and replies over a [`Stream`].

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::stream::{Stream, Waiting};
use crate::value::Value;
use keyway_resp::{Framer, Framing, FramingFault, Protocol, reply};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Duration;

/// Bytes that are read at once, as a rule.
const READ_LEN: usize = 64 << 10;

/// Input buffers larger than this are given back once they are empty.
const KEPT_LEN_MAX: usize = 1 << 20;

/// What a flush receives and keeps, in bytes: a server that is not read from beyond that stops
/// reading.
const UNREAD_MAX: usize = 64 << 20;

/// How deep replies may nest.
const DEPTH_MAX: u32 = 128;

/// Messages that may wait for [`Connection::take_push`].
const PUSHES_MAX: usize = 65_536;

/// How to connect.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long connecting may take; 5 s.
    pub connect_timeout: Option<Duration>,
    /// How long the server may do nothing while a reply is waited for; 60 s. `None` for commands
    /// that wait without a bound of their own.
    pub timeout: Option<Duration>,
    /// User to log in as, with the password; the default user when a password alone is given.
    pub username: Option<String>,
    /// Password to log in with.
    pub password: Option<String>,
    /// Database to select.
    pub database: u32,
    /// Longest reply that is accepted, in bytes; 1 GiB.
    pub reply_len_max: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connect_timeout: Some(Duration::from_secs(5)),
            timeout: Some(Duration::from_secs(60)),
            username: None,
            password: None,
            database: 0,
            reply_len_max: 1 << 30,
        }
    }
}

impl Options {
    /// The commands that log in and select a database, where that is asked for, to be sent first.
    ///
    /// # Errors
    /// When there is a user without a password.
    pub fn first_commands(&self) -> Result<Vec<Vec<String>>, Error> {
        let mut commands = Vec::new();
        let auth = || "AUTH".to_owned();
        match (&self.username, &self.password) {
            (Some(user), Some(password)) => {
                commands.push(vec![auth(), user.clone(), password.clone()]);
            }
            (None, Some(password)) => commands.push(vec![auth(), password.clone()]),
            (Some(_), None) => {
                return Err(Error::Refused("a user without a password cannot log in".to_owned()));
            }
            (None, None) => {}
        }
        if self.database != 0 {
            commands.push(vec!["SELECT".to_owned(), self.database.to_string()]);
        }
        Ok(commands)
    }
}

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    /// Requests, encoded; what was sent of them is at the front.
    output: Vec<u8>,
    sent: usize,
    /// What was received and not taken is at `input[taken..filled]`.
    input: Vec<u8>,
    taken: usize,
    filled: usize,
    /// No use framing before this much is there.
    at_least: usize,
    framer: Framer,
    pushes: VecDeque<Value>,
    reply_len_max: u32,
    is_lost: bool,
}

impl Connection {
    /// Connects to the server at `url`, with the usual [`Options`].
    ///
    /// # Errors
    /// When the URL is none, or there is no connection.
    pub fn open(url: &str) -> Result<Connection, Error> {
        Connection::open_with(url, &Options::default())
    }

    /// Connects, logs in and selects a database where that is asked for.
    ///
    /// # Errors
    /// When the URL is none, there is no connection, or the server refuses.
    pub fn open_with(url: &str, options: &Options) -> Result<Connection, Error> {
        let endpoint: Endpoint = url.parse()?;
        let first = options.first_commands()?;
        let mut stream = Stream::connect(&endpoint, options.connect_timeout)
            .map_err(|error| Error::Connect(endpoint.to_string(), error))?;
        stream.set_timeout(options.timeout);
        let mut connection = Connection::over(stream);
        connection.reply_len_max = options.reply_len_max;
        for command in first {
            connection.command(&command)?;
        }
        Ok(connection)
    }

    /// Speaks over what is connected already.
    pub fn over(stream: Stream) -> Connection {
        Connection {
            stream,
            output: Vec::new(),
            sent: 0,
            input: Vec::new(),
            taken: 0,
            filled: 0,
            at_least: 1,
            framer: Framer::new(Protocol::Resp3),
            pushes: VecDeque::new(),
            reply_len_max: Options::default().reply_len_max,
            is_lost: false,
        }
    }

    /// What carries the bytes.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Bounds how long the server may do nothing while a reply is waited for.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.stream.set_timeout(timeout);
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// [`Error::Refused`] when the reply is an error; others when there is none.
    pub fn command<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Result<Value, Error> {
        self.append(arguments)?;
        match self.reply()? {
            Value::Error(text) => Err(Error::Refused(String::from_utf8_lossy(&text).into_owned())),
            value => Ok(value),
        }
    }

    /// Begins a pipeline: commands that are sent together.
    pub fn pipeline(&mut self) -> Pipeline<'_> {
        let start = self.output.len();
        Pipeline { connection: self, start, count: 0, has_run: false, is_empty_command: false }
    }

    /// Puts a command behind those that are about to be sent. One reply is to be read for it with
    /// [`Connection::reply`], unless it is one that has none or several.
    ///
    /// # Errors
    /// When the connection was lost, or `arguments` is empty.
    pub fn append<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Result<(), Error> {
        self.check()?;
        if arguments.is_empty() {
            return Err(Error::Refused("a command has at least a name".to_owned()));
        }
        reply::array(&mut self.output, arguments.len());
        for argument in arguments {
            reply::bulk(&mut self.output, argument.as_ref());
        }
        Ok(())
    }

    /// Sends what was appended, and waits for no reply. What comes meanwhile is kept.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn flush(&mut self) -> Result<(), Error> {
        while !self.is_flushed()? {
            match self.try_exchange() {
                // What the server said before it ended is there to be received.
                Err(error) if error.kind() != io::ErrorKind::TimedOut && self.unread() > 0 => break,
                done => self.or_lost(done)?,
            }
        }
        Ok(())
    }

    /// Returns whether all that was appended is sent.
    ///
    /// # Errors
    /// When the connection was lost.
    pub fn is_flushed(&self) -> Result<bool, Error> {
        self.check()?;
        Ok(self.output.is_empty())
    }

    /// Sends what was appended, and waits for the next reply, which may be an error.
    ///
    /// # Errors
    /// When there is none.
    pub fn reply(&mut self) -> Result<Value, Error> {
        loop {
            if let Some(value) = self.ready_reply()? {
                return Ok(value);
            }
            self.exchange()?;
        }
    }

    /// Sends what was appended, and waits for whatever comes next, a reply or a message.
    ///
    /// # Errors
    /// When nothing comes.
    pub fn receive(&mut self) -> Result<Value, Error> {
        loop {
            if let Some(value) = self.ready()? {
                return Ok(value);
            }
            // Both at once: a server that nobody reads from stops reading.
            self.exchange()?;
        }
    }

    /// As [`Connection::receive`], waiting for no longer than `wait`. `None` when nothing has come
    /// by then, which leaves the connection as it is.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn receive_within(&mut self, wait: Duration) -> Result<Option<Value>, Error> {
        self.within(wait, Connection::ready)
    }

    /// As [`Connection::reply`], waiting for no longer than `wait`. `None` when no reply has come
    /// by then, which leaves the connection as it is: the reply is still to be read.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn reply_within(&mut self, wait: Duration) -> Result<Option<Value>, Error> {
        self.within(wait, Connection::ready_reply)
    }

    fn within(
        &mut self,
        wait: Duration,
        ready: impl Fn(&mut Connection) -> Result<Option<Value>, Error>,
    ) -> Result<Option<Value>, Error> {
        let mut waiting = Waiting::new(Some(wait));
        loop {
            if let Some(value) = ready(self)? {
                return Ok(Some(value));
            }
            // What can be done at once is done when the time is up, too.
            let left = waiting.left().map_or(Duration::ZERO, |left| left.unwrap_or(wait));
            if !self.advance(left)? || left.is_zero() {
                return ready(self);
            }
        }
    }

    /// The next reply or message of what has come already. It does not wait.
    ///
    /// # Errors
    /// When the connection was lost, or what has come is no reply.
    pub fn ready(&mut self) -> Result<Option<Value>, Error> {
        self.check()?;
        self.take()
    }

    /// The next reply of what has come already; messages before it are put aside for
    /// [`Connection::take_push`]. It does not wait.
    ///
    /// # Errors
    /// When the connection was lost, or what has come is no reply.
    pub fn ready_reply(&mut self) -> Result<Option<Value>, Error> {
        loop {
            match self.ready()? {
                Some(Value::Push(_)) if self.pushes.len() == PUSHES_MAX => {
                    return Err(self.fail("too many messages that nobody has taken"));
                }
                Some(push @ Value::Push(_)) => self.pushes.push_back(push),
                other => return Ok(other),
            }
        }
    }

    /// Sends what it can of what was appended, and receives what there is, waiting up to `wait` for
    /// one of both; whether anything was sent or received. With it, who has to look at something
    /// else as well waits in slices.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn advance(&mut self, wait: Duration) -> Result<bool, Error> {
        self.check()?;
        let timeout = self.stream.timeout();
        self.stream.set_timeout(Some(wait));
        let done = self.try_exchange();
        self.stream.set_timeout(timeout);
        match done {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(false),
            other => self.or_lost(other).map(|()| true),
        }
    }

    /// Takes the oldest message that came between replies.
    pub fn take_push(&mut self) -> Option<Value> {
        self.pushes.pop_front()
    }

    /// The first reply of those that are there.
    fn take(&mut self) -> Result<Option<Value>, Error> {
        let there = &self.input[self.taken..self.filled];
        if there.len() < self.at_least {
            return Ok(None);
        }
        match self.framer.frame(there, self.reply_len_max, DEPTH_MAX) {
            Ok(Framing::NeedMore { at_least }) => {
                self.at_least = at_least;
                Ok(None)
            }
            Ok(Framing::Ready { len, .. }) => {
                let value = Value::of_frame(&there[..len]);
                self.taken += len;
                self.at_least = 1;
                value.ok_or_else(|| self.fail("a value that is none")).map(Some)
            }
            Err(FramingFault::Protocol) => Err(self.fail("this is not Redis's protocol")),
            Err(FramingFault::TooLong) => Err(self.fail("it is longer than is accepted")),
            Err(FramingFault::TooDeep) => Err(self.fail("it nests deeper than is accepted")),
        }
    }

    /// How many bytes have come that are not taken.
    fn unread(&self) -> usize {
        self.filled - self.taken
    }

    fn check(&self) -> Result<(), Error> {
        if self.is_lost { Err(Error::Closed) } else { Ok(()) }
    }

    /// Sends and receives some.
    fn exchange(&mut self) -> Result<(), Error> {
        let done = self.try_exchange();
        self.or_lost(done)
    }

    fn or_lost(&mut self, done: io::Result<()>) -> Result<(), Error> {
        done.map_err(|error| {
            self.is_lost = true;
            Error::Lost(match self.stream.refusal() {
                // It may be the reason of this, too.
                Some(why) => {
                    let text = format!("{error} (over the socket, since {why})");
                    io::Error::new(error.kind(), text)
                }
                None => error,
            })
        })
    }

    fn try_exchange(&mut self) -> io::Result<()> {
        self.make_room();
        let (out, unread) = (&self.output[self.sent..], self.unread());
        // Nobody takes what comes while who appends only flushes.
        let is_full = unread >= self.at_least.max(UNREAD_MAX) && !out.is_empty();
        let (written, read) = match is_full {
            true => (self.stream.write(out)?, 0),
            false => self.stream.exchange(out, &mut self.input[self.filled..])?,
        };
        if (written, read) == (0, 0) {
            let what = "the server has ended it";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        self.filled += read;
        self.sent += written;
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
        Ok(())
    }

    /// Makes sure that there is room for what comes next.
    fn make_room(&mut self) {
        if self.taken == self.filled {
            self.taken = 0;
            self.filled = 0;
            if self.input.len() > KEPT_LEN_MAX {
                self.input = Vec::new();
            }
        }
        // A bulk says how long it is, within what is accepted; no more is taken for granted than
        // is there already.
        let there = self.unread();
        let wanted = self.at_least.min(2 * there).max(there + READ_LEN / 4);
        if self.input.len() - self.taken < wanted {
            self.input.copy_within(self.taken..self.filled, 0);
            self.filled = there;
            self.taken = 0;
            if self.input.len() < wanted {
                self.input.resize(wanted.max(READ_LEN), 0);
            }
        }
    }

    fn fail(&mut self, what: &'static str) -> Error {
        self.is_lost = true;
        Error::Protocol(what)
    }
}

/// Commands that are sent together; their replies come in their order.
#[derive(Debug)]
pub struct Pipeline<'a> {
    connection: &'a mut Connection,
    /// Where its commands begin in the output.
    start: usize,
    count: usize,
    has_run: bool,
    is_empty_command: bool,
}

impl Pipeline<'_> {
    /// Adds a command that has one reply.
    pub fn add<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> &mut Self {
        match arguments.is_empty() {
            true => self.is_empty_command = true,
            // A connection that was lost is told of when it runs.
            false => self.count += usize::from(self.connection.append(arguments).is_ok()),
        }
        self
    }

    /// Sends them, and waits for their replies, of which some may be errors.
    ///
    /// # Errors
    /// When not all have replies; the connection is lost then. A command without a name is told
    /// before anything is sent.
    pub fn run(mut self) -> Result<Vec<Value>, Error> {
        if self.connection.is_lost {
            return Err(Error::Closed);
        }
        if self.is_empty_command {
            return Err(Error::Refused("a command has at least a name".to_owned()));
        }
        self.has_run = true;
        let mut replies = Vec::with_capacity(self.count.min(READ_LEN));
        while replies.len() < self.count {
            let reply = self.connection.reply()?;
            replies.push(reply);
        }
        Ok(replies)
    }
}

impl Drop for Pipeline<'_> {
    /// What was not run is not sent.
    fn drop(&mut self) {
        if !self.has_run {
            self.connection.output.truncate(self.start);
        }
    }
}
