use crate::reply_reader::{ReplyReader, decimal, endpoint};
use crate::{Endpoint, NODES_MAX, ViewError};

/// A server's own description of its replication (INFO replication).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoReplication {
    /// Its connection to its primary. A server that has one is a replica.
    pub link: Option<PrimaryLink>,
    /// Its replication id (since 4.0).
    pub replication_id: Option<Box<str>>,
    /// Its replication offset, in bytes.
    pub replication_offset: u64,
    /// The replicas connected to it. A replica may have some too.
    pub replicas: Vec<ConnectedReplica>,
    /// True if it loads its data, which only INFO without a section tells.
    pub is_loading: bool,
}

/// A replica's connection to its primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryLink {
    /// Where the primary is.
    pub primary: Endpoint,
    /// True if the connection is up.
    pub is_up: bool,
    /// True if the first full copy is under way.
    pub is_syncing: bool,
    /// Seconds since the primary last sent something; `None` while the connection is down.
    pub last_io_seconds_ago: Option<u64>,
    /// Seconds since the connection went down; `None` while it is up, or if it never was.
    pub down_seconds: Option<u64>,
    /// The offset up to which commands were executed here, in bytes.
    pub replication_offset: Option<u64>,
    /// The priority for promotion. The lowest is promoted first, zero never.
    pub priority: Option<u32>,
    /// True if it refuses writes.
    pub is_read_only: bool,
}

/// A replica as its primary sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectedReplica {
    /// Its address; `None` if it has not told one.
    pub endpoint: Option<Endpoint>,
    /// True if it has its full copy and follows. False while the copy is being sent.
    pub is_online: bool,
    /// The offset that it reported last, in bytes.
    pub replication_offset: u64,
    /// Seconds since that report.
    pub lag_seconds: u64,
}

impl InfoReplication {
    /// Reads the reply to INFO replication, or to INFO.
    ///
    /// # Errors
    /// Returns an error if the bytes are no such reply, or tell no role.
    pub fn from_reply(reply: &[u8]) -> Result<InfoReplication, ViewError> {
        InfoReplication::from_text(ReplyReader::new(reply)?.text("lines of information")?)
    }

    /// Reads the text of such a reply.
    ///
    /// # Errors
    /// Returns an error if the text tells no role.
    pub fn from_text(text: &str) -> Result<InfoReplication, ViewError> {
        let mut lines = Lines::default();
        for line in text.lines() {
            if let Some((name, value)) = line.trim_ascii().split_once(':') {
                lines.take(name, value)?;
            }
        }
        lines.finish()
    }

    /// Returns whether it is a replica.
    pub fn is_replica(&self) -> bool {
        self.link.is_some()
    }
}

/// The lines used here, as they are written.
#[derive(Default)]
struct Lines<'a> {
    role: Option<&'a str>,
    host: &'a str,
    port: u16,
    is_up: bool,
    is_syncing: bool,
    last_io: Option<u64>,
    down: Option<u64>,
    own_offset: Option<u64>,
    priority: Option<u32>,
    is_read_only: bool,
    replication_id: Option<&'a str>,
    offset: u64,
    replicas: Vec<ConnectedReplica>,
    is_loading: bool,
}

impl<'a> Lines<'a> {
    fn take(&mut self, name: &'a str, value: &'a str) -> Result<(), ViewError> {
        match name {
            "role" => self.role = Some(value),
            "loading" => self.is_loading = value == "1",
            "master_host" => self.host = value,
            "master_port" => self.port = decimal(value, "the port of a primary")?,
            "master_link_status" => self.is_up = value == "up",
            "master_sync_in_progress" => self.is_syncing = value == "1",
            // A negative number means never.
            "master_last_io_seconds_ago" => self.last_io = value.parse().ok(),
            "master_link_down_since_seconds" => self.down = value.parse().ok(),
            "slave_repl_offset" => self.own_offset = value.parse().ok(),
            "slave_priority" => self.priority = Some(decimal(value, "a priority")?),
            "slave_read_only" => self.is_read_only = value == "1",
            "master_replid" => self.replication_id = Some(value),
            "master_repl_offset" => self.offset = decimal(value, "a replication offset")?,
            _ => {
                let number = name.strip_prefix("slave").unwrap_or_default();
                if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
                    self.replicas.push(replica(value)?);
                }
            }
        }
        if self.replicas.len() > NODES_MAX { Err(ViewError::TooManyNodes) } else { Ok(()) }
    }

    fn finish(self) -> Result<InfoReplication, ViewError> {
        let link = match self.role {
            Some("master") => None,
            Some("slave" | "replica") => Some(PrimaryLink {
                primary: endpoint(self.host, self.port)?
                    .ok_or(ViewError::Expected("the address of a primary"))?,
                is_up: self.is_up,
                is_syncing: self.is_syncing,
                last_io_seconds_ago: self.last_io,
                down_seconds: self.down.filter(|_| !self.is_up),
                replication_offset: self.own_offset,
                priority: self.priority,
                is_read_only: self.is_read_only,
            }),
            _ => return Err(ViewError::Expected("a role")),
        };
        Ok(InfoReplication {
            link,
            replication_id: self.replication_id.map(Into::into),
            replication_offset: self.offset,
            replicas: self.replicas,
            is_loading: self.is_loading,
        })
    }
}

/// Reads `ip=host,port=number,state=online,offset=bytes,lag=seconds`.
fn replica(text: &str) -> Result<ConnectedReplica, ViewError> {
    let (mut host, mut port) = ("", 0);
    let mut replica = ConnectedReplica {
        endpoint: None,
        is_online: false,
        replication_offset: 0,
        lag_seconds: 0,
    };
    for field in text.split(',') {
        match field.split_once('=') {
            Some(("ip", value)) => host = value,
            Some(("port", value)) => port = decimal(value, "the port of a replica")?,
            Some(("state", value)) => replica.is_online = value == "online",
            Some(("offset", value)) => {
                replica.replication_offset = decimal(value, "a replication offset")?;
            }
            // The number is negative if the clock was set back.
            Some(("lag", value)) => replica.lag_seconds = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    replica.endpoint = endpoint(host, port)?;
    Ok(replica)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_a_role_is_refused() {
        for text in ["", "# Server\r\nredis_version:7.0.15\r\n", "role:sentinel\r\n"] {
            assert_eq!(
                InfoReplication::from_text(text),
                Err(ViewError::Expected("a role")),
                "{text}"
            );
        }
    }

    #[test]
    fn a_replica_without_its_primary_is_refused() {
        let text = "role:slave\r\nmaster_host:\r\nmaster_port:0\r\n";
        let expected = Err(ViewError::Expected("the address of a primary"));
        assert_eq!(InfoReplication::from_text(text), expected);
    }

    #[test]
    fn lines_that_only_look_like_replicas_are_not() {
        let text = "role:master\r\nslave_priority:100\r\nslaves:3\r\nslave:ip=h\r\n\
            slave7:ip=::1,port=6380,state=wait_bgsave,offset=0,lag=-1\r\n";
        let info = InfoReplication::from_text(text).unwrap();
        assert_eq!(info.replicas.len(), 1);
        assert_eq!(info.replicas[0].endpoint.as_ref().unwrap().to_string(), "[::1]:6380");
        assert!(!info.replicas[0].is_online && !info.is_replica());
    }
}
