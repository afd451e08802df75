//! ZooKeeper's frames: requests, replies and what stands in them. Numbers are big-endian; texts
//! and data have their length in front, -1 for none.

use std::sync::Arc;

/// Who may do what with a node: everything, for one scheme and id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Acl {
    /// Everybody who can reach the server.
    Anyone,
    /// Who has the credentials that made the node.
    Creator,
    /// The same, and everybody may read.
    CreatorAndReaders,
}

/// Error codes that have a meaning of their own here.
pub(super) mod code {
    pub(crate) const OK: i32 = 0;
    pub(crate) const RUNTIME_INCONSISTENCY: i32 = -2;
    pub(crate) const NO_NODE: i32 = -101;
    pub(crate) const NO_AUTH: i32 = -102;
    pub(crate) const BAD_VERSION: i32 = -103;
    pub(crate) const NODE_EXISTS: i32 = -110;
    pub(crate) const SESSION_EXPIRED: i32 = -112;
    pub(crate) const AUTH_FAILED: i32 = -115;
    pub(crate) const THROTTLED: i32 = -127;
    pub(crate) const QUOTA_EXCEEDED: i32 = -125;
}

/// The types of requests.
mod kind {
    pub(super) const CREATE: i32 = 1;
    pub(super) const DELETE: i32 = 2;
    pub(super) const GET_DATA: i32 = 4;
    pub(super) const SET_DATA: i32 = 5;
    pub(super) const GET_CHILDREN: i32 = 8;
    pub(super) const SYNC: i32 = 9;
    pub(super) const PING: i32 = 11;
    pub(super) const CHECK: i32 = 13;
    pub(super) const MULTI: i32 = 14;
    pub(super) const AUTH: i32 = 100;
    pub(super) const CLOSE: i32 = -11;
    pub(super) const ERROR: i32 = -1;
}

/// The number of replies to pings.
pub(super) const PING_XID: i32 = -2;

/// The number of replies to credentials.
pub(super) const AUTH_XID: i32 = -4;

/// The number of events.
pub(super) const EVENT_XID: i32 = -1;

/// A request.
#[derive(Clone)]
pub(super) enum Request {
    Sync(String),
    GetData { path: String, watch: bool },
    GetChildren { path: String, watch: bool },
    Create { path: String, data: Vec<u8>, acl: Acl },
    Multi(Vec<Step>),
    Ping,
    Auth { id: String },
    Close,
}

/// One operation of a [`Request::Multi`].
#[derive(Clone)]
pub(super) enum Step {
    Check { path: String, version: i32 },
    Create { path: String, data: Vec<u8>, acl: Acl, is_ephemeral: bool },
    Set { path: String, data: Vec<u8>, version: i32 },
    Delete { path: String },
}

impl Request {
    /// Returns the frame, with its length in front.
    pub(super) fn frame(&self, xid: i32) -> Vec<u8> {
        let mut out = vec![0; 4];
        put_i32(&mut out, xid);
        put_i32(&mut out, self.kind());
        match self {
            Request::Sync(path) => put_text(&mut out, path),
            Request::GetData { path, watch } | Request::GetChildren { path, watch } => {
                put_text(&mut out, path);
                out.push(u8::from(*watch));
            }
            Request::Create { path, data, acl } => put_create(&mut out, path, data, acl, false),
            Request::Multi(steps) => {
                for step in steps {
                    put_step(&mut out, step);
                }
                put_step_header(&mut out, kind::ERROR, true);
            }
            Request::Auth { id } => {
                put_i32(&mut out, 0);
                put_text(&mut out, "digest");
                put_text(&mut out, id);
            }
            Request::Ping | Request::Close => {}
        }
        set_length(&mut out);
        out
    }

    fn kind(&self) -> i32 {
        match self {
            Request::Sync(_) => kind::SYNC,
            Request::GetData { .. } => kind::GET_DATA,
            Request::GetChildren { .. } => kind::GET_CHILDREN,
            Request::Create { .. } => kind::CREATE,
            Request::Multi(_) => kind::MULTI,
            Request::Ping => kind::PING,
            Request::Auth { .. } => kind::AUTH,
            Request::Close => kind::CLOSE,
        }
    }

    /// Returns whether executing it twice does no harm.
    pub(super) fn is_harmless(&self) -> bool {
        !matches!(self, Request::Create { .. } | Request::Multi(_))
    }
}

fn put_step(out: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Check { path, version } => {
            put_step_header(out, kind::CHECK, false);
            put_text(out, path);
            put_i32(out, *version);
        }
        Step::Create { path, data, acl, is_ephemeral } => {
            put_step_header(out, kind::CREATE, false);
            put_create(out, path, data, acl, *is_ephemeral);
        }
        Step::Set { path, data, version } => {
            put_step_header(out, kind::SET_DATA, false);
            put_text(out, path);
            put_data(out, data);
            put_i32(out, *version);
        }
        Step::Delete { path } => {
            put_step_header(out, kind::DELETE, false);
            put_text(out, path);
            put_i32(out, -1);
        }
    }
}

fn put_step_header(out: &mut Vec<u8>, kind: i32, is_last: bool) {
    put_i32(out, kind);
    out.push(u8::from(is_last));
    put_i32(out, -1);
}

fn put_create(out: &mut Vec<u8>, path: &str, data: &[u8], acl: &Acl, is_ephemeral: bool) {
    /// All five permissions.
    const ALL: i32 = 31;
    const READ: i32 = 1;
    const ANYONE: [&str; 2] = ["world", "anyone"];
    const CREATOR: [&str; 2] = ["auth", ""];
    put_text(out, path);
    put_data(out, data);
    let entries: &[(i32, [&str; 2])] = match acl {
        Acl::Anyone => &[(ALL, ANYONE)],
        Acl::Creator => &[(ALL, CREATOR)],
        Acl::CreatorAndReaders => &[(ALL, CREATOR), (READ, ANYONE)],
    };
    put_i32(out, i32::try_from(entries.len()).unwrap_or(0));
    for (permissions, [scheme, id]) in entries {
        put_i32(out, *permissions);
        put_text(out, scheme);
        put_text(out, id);
    }
    put_i32(out, i32::from(is_ephemeral));
}

/// A session of ZooKeeper, as it is asked for and granted.
#[derive(Clone)]
pub(super) struct Granted {
    pub(super) timeout_ms: i32,
    pub(super) id: i64,
    pub(super) password: Vec<u8>,
}

impl Granted {
    /// Asks for a new session.
    pub(super) fn ask(timeout_ms: i32) -> Granted {
        Granted { timeout_ms, id: 0, password: vec![0; 16] }
    }

    /// Returns the first frame of a connection.
    pub(super) fn frame(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        put_i32(&mut out, 0);
        put_i64(&mut out, 0);
        put_i32(&mut out, self.timeout_ms);
        put_i64(&mut out, self.id);
        put_data(&mut out, &self.password);
        // We do not read from servers that are cut off.
        out.push(0);
        set_length(&mut out);
        out
    }

    /// Reads the answer. A timeout of 0 says that the session has ended.
    pub(super) fn read(frame: &[u8]) -> Option<Granted> {
        let mut reader = Reader(frame);
        reader.i32()?;
        let timeout_ms = reader.i32()?;
        let id = reader.i64()?;
        let password = reader.data()?;
        // A password has 16 bytes; longer ones are not ours to keep.
        (password.len() <= 64).then(|| Granted { timeout_ms, id, password: password.to_vec() })
    }
}

/// A reply without its meaning.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) xid: i32,
    pub(super) code: i32,
    body: Vec<u8>,
}

impl Reply {
    pub(super) fn read(frame: &[u8]) -> Option<Reply> {
        let mut reader = Reader(frame);
        let xid = reader.i32()?;
        reader.i64()?;
        let code = reader.i32()?;
        Some(Reply { xid, code, body: reader.0.to_vec() })
    }

    /// The data of a node with its version.
    pub(super) fn data(&self) -> Option<(Arc<[u8]>, i32)> {
        let mut reader = Reader(&self.body);
        let data = Arc::from(reader.data()?);
        let version = reader.stat_version()?;
        Some((data, version))
    }

    /// The names of children.
    pub(super) fn names(&self) -> Option<Vec<String>> {
        let mut reader = Reader(&self.body);
        let count = reader.i32()?;
        (0..count).map(|_| String::from_utf8(reader.data()?.to_vec()).ok()).collect()
    }

    /// The first failure of a transaction with the index of its step, or none.
    pub(super) fn failed_step(&self) -> Option<Option<(usize, i32)>> {
        if self.code != code::OK {
            return Some(Some((0, self.code)));
        }
        let mut reader = Reader(&self.body);
        for index in 0.. {
            let kind = reader.i32()?;
            let is_last = reader.u8()? != 0;
            reader.i32()?;
            if is_last {
                return Some(None);
            }
            match kind {
                kind::CREATE => drop(reader.data()?),
                kind::SET_DATA => drop(reader.take(STAT_LEN)?),
                kind::DELETE | kind::CHECK => {}
                kind::ERROR => {
                    // Steps before the one that failed have 0, those behind it another.
                    let code = reader.i32()?;
                    if code != code::OK && code != code::RUNTIME_INCONSISTENCY {
                        return Some(Some((index, code)));
                    }
                }
                _ => return None,
            }
        }
        None
    }
}

/// Bytes of what a server tells about a node.
const STAT_LEN: usize = 68;

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(len)?;
        self.0 = left;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn i32(&mut self) -> Option<i32> {
        self.take(4)?.try_into().ok().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.take(8)?.try_into().ok().map(i64::from_be_bytes)
    }

    fn data(&mut self) -> Option<&'a [u8]> {
        match self.i32()? {
            -1 => Some(&[]),
            len => self.take(usize::try_from(len).ok()?),
        }
    }

    /// czxid, mzxid, ctime, mtime, and then the version of the data.
    fn stat_version(&mut self) -> Option<i32> {
        let mut stat = Reader(self.take(STAT_LEN)?);
        stat.take(32)?;
        stat.i32()
    }
}

fn put_i32(out: &mut Vec<u8>, number: i32) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn put_i64(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn put_data(out: &mut Vec<u8>, data: &[u8]) {
    // Bounds of transactions are far below 2 GiB.
    put_i32(out, i32::try_from(data.len()).unwrap_or(i32::MAX));
    out.extend_from_slice(data);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_data(out, text.as_bytes());
}

fn set_length(frame: &mut [u8]) {
    let len = i32::try_from(frame.len().saturating_sub(4)).unwrap_or(i32::MAX);
    if let Some(start) = frame.first_chunk_mut::<4>() {
        *start = len.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_frame_makes_the_readers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Granted::read(&bytes);
            let framed = [&[0; 16][..], &bytes].concat();
            if let Some(reply) = Reply::read(&framed) {
                let _ = (reply.data(), reply.names(), reply.failed_step());
            }
        }
    }

    #[test]
    fn a_list_that_claims_to_be_endless_is_refused() {
        let frame = [&[0; 16][..], &i32::MAX.to_be_bytes()].concat();
        assert_eq!(Reply::read(&frame).unwrap().names(), None);
    }
}
