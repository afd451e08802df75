//! A client that asks local commands, for tests.

use super::{After, ClientEntry, ClientRegistry, EmulatedCluster, Facts, LocalContext, answer};
use crate::Identity;
use keyway_base::{ByteRange, Clock, Time};
use keyway_command::{Args, Request};
use keyway_users::Users;

/// Facts that the test knows.
struct FixedFacts;

impl Facts for FixedFacts {
    fn info(&self, _: u16, _: bool, sections: &[&str], out: &mut String) {
        for section in sections {
            out.push_str(&format!("# {section}\r\n"));
        }
    }

    fn settings(&self, _: u16) -> Vec<(&'static str, String)> {
        vec![("save", String::new()), ("appendonly", "no".to_owned())]
    }
}

/// A client of pool 0 at 127.0.0.1:7.
pub(super) struct Bench {
    pub(super) identity: Identity,
    pub(super) clock: Clock,
    pub(super) clients: ClientRegistry,
    pub(super) reply_len_max: usize,
    pub(super) cluster: Option<EmulatedCluster>,
    pub(super) users: Users,
}

impl Bench {
    pub(super) fn new() -> Self {
        let bench = Self {
            identity: Identity::new(7, true, Time(0)),
            clock: Clock { now: Time(0), unix_micros: 1_000_000_000 },
            clients: ClientRegistry::default(),
            reply_len_max: 1 << 30,
            cluster: None,
            users: Users::plain(None),
        };
        bench.add_client(7, 0, "127.0.0.1:7");
        bench
    }

    pub(super) fn with_password(password: &'static str) -> Self {
        let mut bench = Self::new();
        bench.serve(Users::plain(Some(password)));
        bench
    }

    /// Uses these users from now on.
    pub(super) fn serve(&mut self, users: Users) {
        self.identity.begin(&users);
        self.users = users;
    }

    pub(super) fn add_client(&self, id: u64, pool: u16, addr: &str) {
        let identity = Identity { addr: addr.into(), ..Identity::new(id, true, Time(0)) };
        let entry = ClientEntry::new(&identity, "127.0.0.1:6380".into(), 0, pool, 1_000);
        self.clients.insert(id, entry);
    }

    /// Asks with these words. Panics if the table refuses them.
    pub(super) fn ask(&mut self, line: &str) -> String {
        self.ask_after(line).0
    }

    pub(super) fn ask_after(&mut self, line: &str) -> (String, After) {
        let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
        self.ask_args(&words)
    }

    pub(super) fn ask_args(&mut self, args: &[&[u8]]) -> (String, After) {
        let (reply, after) = self.try_args(args).expect("a request the table knows");
        (String::from_utf8_lossy(&reply).into_owned(), after)
    }

    /// Asks if the table accepts the arguments.
    pub(super) fn try_args(&mut self, args: &[&[u8]]) -> Option<(Vec<u8>, After)> {
        let mut buf = Vec::new();
        let mut ranges = Vec::new();
        for arg in args {
            ranges.push(ByteRange::new(buf.len(), buf.len() + arg.len()));
            buf.extend_from_slice(arg);
        }
        let request = Request::resolve(Args::new(&buf, &ranges)).ok()?;
        let mut context = LocalContext {
            identity: &mut self.identity,
            clock: self.clock,
            users: &self.users,
            databases: 16,
            clients: &self.clients,
            facts: &FixedFacts,
            pool: 0,
            reply_len_max: self.reply_len_max,
            cluster: self.cluster.as_ref(),
        };
        let mut out = Vec::new();
        let after = answer(&request, &mut context, &mut out);
        Some((out, after))
    }
}
