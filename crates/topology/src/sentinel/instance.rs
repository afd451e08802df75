use crate::reply_reader::{Item, ReplyReader, decimal, endpoint, is_unknown_host};
use crate::{Endpoint, NODES_MAX, ViewError};

/// The state of a server or of another sentinel, as a Sentinel sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstanceState {
    /// This sentinel cannot reach it (`s_down`).
    pub is_down_here: bool,
    /// Enough sentinels agree that it is down (`o_down`). Only for a primary.
    pub is_down: bool,
    /// This sentinel has no connection to it now.
    pub is_disconnected: bool,
    /// A fail-over of this primary is under way.
    pub is_failing_over: bool,
    /// This replica is being made the primary.
    pub is_promoted: bool,
}

impl InstanceState {
    fn of_flags(flags: &str) -> InstanceState {
        let has = |flag: &str| flags.split(',').any(|one| one == flag);
        InstanceState {
            is_down_here: has("s_down"),
            is_down: has("o_down"),
            is_disconnected: has("disconnected"),
            is_failing_over: has("failover_in_progress"),
            is_promoted: has("promoted"),
        }
    }

    /// Returns whether this sentinel reaches it.
    pub fn is_reached(self) -> bool {
        !self.is_down_here && !self.is_down && !self.is_disconnected
    }
}

/// A watched primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedPrimary {
    /// Its name for the sentinels.
    pub name: Box<str>,
    /// Its address.
    pub endpoint: Endpoint,
    /// The run id of its process; `None` until it was reached.
    pub run_id: Option<Box<str>>,
    /// Its state for this sentinel.
    pub state: InstanceState,
    /// True if the server itself said, when last asked, that it is a replica. It was restarted or
    /// was made a replica, and the sentinels have not acted on it yet.
    pub reports_replica: bool,
    /// Number of sentinels that must find it down.
    pub quorum: Option<u32>,
    /// Its configuration epoch, which grows with every fail-over. Of two sentinels, the one with
    /// the greater epoch is right.
    pub config_epoch: Option<u64>,
    /// Number of replicas that this sentinel has ever seen.
    pub replica_count: Option<u32>,
    /// Number of other sentinels that watch it.
    pub other_sentinel_count: Option<u32>,
}

/// A replica of a watched primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedReplica {
    /// Its address.
    pub endpoint: Endpoint,
    /// The run id of its process; `None` until it was reached.
    pub run_id: Option<Box<str>>,
    /// Its state for this sentinel.
    pub state: InstanceState,
    /// True if the server itself said, when last asked, that it is a primary.
    pub reports_primary: bool,
    /// True if it is connected to its primary.
    pub is_linked: bool,
    /// Time for which it has not been connected, in milliseconds.
    pub link_down_ms: Option<u64>,
    /// The primary that it says it copies; `None` if it has not said.
    pub primary: Option<Endpoint>,
    /// The priority for promotion. The lowest is promoted first, zero never.
    pub priority: Option<u32>,
    /// Its replication offset, in bytes.
    pub replication_offset: Option<u64>,
    /// True if clients are told of it (since 7.0; before, they are told of all).
    pub is_announced: bool,
}

/// Another sentinel that watches the same primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherSentinel {
    /// Its address.
    pub endpoint: Endpoint,
    /// Its run id.
    pub run_id: Option<Box<str>>,
    /// Its state for the asked sentinel.
    pub state: InstanceState,
}

/// All that one sentinel knows of one primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelView {
    /// The primary.
    pub primary: WatchedPrimary,
    /// Its replicas. Replicas that are gone are listed until the sentinel is reset.
    pub replicas: Vec<WatchedReplica>,
    /// The other sentinels that watch it, without the asked one.
    pub sentinels: Vec<OtherSentinel>,
}

impl SentinelView {
    /// Reads the replies to SENTINEL MASTER, REPLICAS and SENTINELS.
    ///
    /// # Errors
    /// Returns an error if one of them is not such a reply. It is an error reply if the name is not
    /// watched.
    pub fn from_replies(
        primary: &[u8],
        replicas: &[u8],
        sentinels: &[u8],
    ) -> Result<SentinelView, ViewError> {
        Ok(SentinelView {
            primary: WatchedPrimary::from_primary(primary)?,
            replicas: WatchedReplica::from_replicas(replicas)?,
            sentinels: OtherSentinel::from_sentinels(sentinels)?,
        })
    }
}

/// Reads the reply to SENTINEL GET-MASTER-ADDR-BY-NAME. Returns `None` if the name is not watched.
///
/// # Errors
/// Returns an error if the bytes are not such a reply.
/// When it is something else.
pub fn primary_address(reply: &[u8]) -> Result<Option<Endpoint>, ViewError> {
    const WHAT: &str = "the host and port of a primary";
    let mut reader = ReplyReader::new(reply)?;
    match reader.next()? {
        Item::Null => Ok(None),
        Item::List(2) => {
            let host = reader.text(WHAT)?;
            match endpoint(host, reader.port(WHAT)?)? {
                Some(endpoint) => Ok(Some(endpoint)),
                None => Err(ViewError::Expected(WHAT)),
            }
        }
        _ => Err(ViewError::Expected(WHAT)),
    }
}

impl WatchedPrimary {
    /// Reads the reply to SENTINEL MASTERS.
    ///
    /// # Errors
    /// Returns an error if the bytes are not such a reply.
    pub fn from_primaries(reply: &[u8]) -> Result<Vec<WatchedPrimary>, ViewError> {
        every(reply, WatchedPrimary::of_fields)
    }

    /// Reads the reply to SENTINEL MASTER name.
    ///
    /// # Errors
    /// Returns an error if the bytes are not such a reply. It is an error reply if the name is not
    /// watched.
    pub fn from_primary(reply: &[u8]) -> Result<WatchedPrimary, ViewError> {
        WatchedPrimary::of_fields(&Fields::read(&mut ReplyReader::new(reply)?)?)
    }

    fn of_fields(fields: &Fields<'_>) -> Result<WatchedPrimary, ViewError> {
        Ok(WatchedPrimary {
            name: fields.name.ok_or(ViewError::Expected("the name of a primary"))?.into(),
            endpoint: fields.endpoint()?,
            run_id: fields.run_id(),
            state: fields.state(),
            reports_replica: fields.role_reported == Some("slave"),
            quorum: number(fields.quorum),
            config_epoch: number(fields.config_epoch),
            replica_count: number(fields.replica_count),
            other_sentinel_count: number(fields.sentinel_count),
        })
    }
}

impl WatchedReplica {
    /// Reads the reply to SENTINEL REPLICAS name, or SLAVES name before 5.0. Leaves out replicas
    /// without an address.
    ///
    /// # Errors
    /// Returns an error if the bytes are not such a reply. It is an error reply if the name is not
    /// watched.
    pub fn from_replicas(reply: &[u8]) -> Result<Vec<WatchedReplica>, ViewError> {
        let replicas = every(reply, |fields| Ok(WatchedReplica::of_fields(fields).ok()))?;
        Ok(replicas.into_iter().flatten().collect())
    }

    fn of_fields(fields: &Fields<'_>) -> Result<WatchedReplica, ViewError> {
        let port = number(fields.primary_port).unwrap_or(0);
        let primary = endpoint(fields.primary_host.unwrap_or_default(), port).ok().flatten();
        Ok(WatchedReplica {
            endpoint: fields.endpoint()?,
            run_id: fields.run_id(),
            state: fields.state(),
            reports_primary: fields.role_reported == Some("master"),
            is_linked: fields.link_status == Some("ok"),
            link_down_ms: number(fields.link_down_ms),
            primary,
            priority: number(fields.priority),
            replication_offset: number(fields.offset),
            is_announced: fields.is_announced != Some("0"),
        })
    }
}

impl OtherSentinel {
    /// Reads the reply to SENTINEL SENTINELS name.
    ///
    /// Returns an error if the bytes are not such a reply.
    pub fn from_sentinels(reply: &[u8]) -> Result<Vec<OtherSentinel>, ViewError> {
        every(reply, |fields| {
            Ok(OtherSentinel {
                endpoint: fields.endpoint()?,
                run_id: fields.run_id(),
                state: fields.state(),
            })
        })
    }
}

/// Reads an array of instances.
fn every<T>(
    reply: &[u8],
    one: impl Fn(&Fields<'_>) -> Result<T, ViewError>,
) -> Result<Vec<T>, ViewError> {
    let mut reader = ReplyReader::new(reply)?;
    let count = reader.list("an array of instances")?;
    if count > NODES_MAX {
        return Err(ViewError::TooManyNodes);
    }
    (0..count).map(|_| one(&Fields::read(&mut reader)?)).collect()
}

/// The fields of an instance that are used here, as they are written.
#[derive(Default)]
struct Fields<'a> {
    name: Option<&'a str>,
    ip: Option<&'a str>,
    port: Option<&'a str>,
    run_id: Option<&'a str>,
    flags: Option<&'a str>,
    role_reported: Option<&'a str>,
    quorum: Option<&'a str>,
    config_epoch: Option<&'a str>,
    replica_count: Option<&'a str>,
    sentinel_count: Option<&'a str>,
    link_status: Option<&'a str>,
    link_down_ms: Option<&'a str>,
    primary_host: Option<&'a str>,
    primary_port: Option<&'a str>,
    priority: Option<&'a str>,
    offset: Option<&'a str>,
    is_announced: Option<&'a str>,
}

impl<'a> Fields<'a> {
    fn read(reader: &mut ReplyReader<'a>) -> Result<Fields<'a>, ViewError> {
        let mut fields = Fields::default();
        for _ in 0..reader.pairs("the fields of an instance")? {
            let field = match reader.text("the name of a field")? {
                "name" => &mut fields.name,
                "ip" => &mut fields.ip,
                "port" => &mut fields.port,
                "runid" => &mut fields.run_id,
                "flags" => &mut fields.flags,
                "role-reported" => &mut fields.role_reported,
                "quorum" => &mut fields.quorum,
                "config-epoch" => &mut fields.config_epoch,
                "num-slaves" | "num-replicas" => &mut fields.replica_count,
                "num-other-sentinels" => &mut fields.sentinel_count,
                "master-link-status" => &mut fields.link_status,
                "master-link-down-time" => &mut fields.link_down_ms,
                "master-host" => &mut fields.primary_host,
                "master-port" => &mut fields.primary_port,
                "slave-priority" | "replica-priority" => &mut fields.priority,
                "slave-repl-offset" | "replica-repl-offset" => &mut fields.offset,
                "replica-announced" => &mut fields.is_announced,
                _ => {
                    reader.skip()?;
                    continue;
                }
            };
            *field = reader.text_or_null("the value of a field")?;
        }
        Ok(fields)
    }

    fn endpoint(&self) -> Result<Endpoint, ViewError> {
        const WHAT: ViewError = ViewError::Expected("the address of an instance");
        let port = number(self.port).unwrap_or(0);
        endpoint(self.ip.unwrap_or_default(), port)?.ok_or(WHAT)
    }

    fn run_id(&self) -> Option<Box<str>> {
        self.run_id.filter(|id| !is_unknown_host(id)).map(Into::into)
    }

    fn state(&self) -> InstanceState {
        InstanceState::of_flags(self.flags.unwrap_or_default())
    }
}

/// Reads a number; returns `None` if it cannot be one. For a replica that has never copied its
/// primary, a Sentinel tells that its link is down for -1 seconds.
fn number<N: std::str::FromStr>(text: Option<&str>) -> Option<N> {
    decimal(text?, "a field").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_watched_is_told_in_two_ways() {
        assert_eq!(primary_address(b"*-1\r\n"), Ok(None));
        assert_eq!(primary_address(b"_\r\n"), Ok(None));
        let refused = WatchedPrimary::from_primary(b"-ERR No such master with that name\r\n");
        let text = "ERR No such master with that name";
        assert_eq!(refused, Err(ViewError::Refused(text.into())));
    }

    #[test]
    fn an_address_has_a_host_and_a_port() {
        let address = primary_address(b"*2\r\n$3\r\n::1\r\n$4\r\n6379\r\n").unwrap().unwrap();
        assert_eq!(address.to_string(), "[::1]:6379");
        for reply in [
            &b"*2\r\n$0\r\n\r\n$4\r\n6379\r\n"[..],
            b"*2\r\n$1\r\nh\r\n$1\r\n0\r\n",
            b"*2\r\n$1\r\nh\r\n$5\r\n65536\r\n",
            b"*1\r\n$1\r\nh\r\n",
            b"+OK\r\n",
        ] {
            assert!(primary_address(reply).is_err(), "{reply:?}");
        }
    }

    fn replica(fields: &[(&str, &str)]) -> String {
        let words = fields.iter().flat_map(|&(name, value)| [name, value]);
        let words: String = words.map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        format!("*{}\r\n{words}", fields.len() * 2)
    }

    #[test]
    fn what_cannot_be_a_number_is_unknown_and_costs_no_other_replica() {
        let at = |port| [("ip", "10.0.0.2"), ("port", port), ("master-link-status", "err")];
        let odd = [("master-link-down-time", "-1000"), ("slave-repl-offset", "-1")];
        let more = [("slave-priority", "many"), ("master-port", "-6"), ("master-host", "a/b")];
        let replicas = [
            replica(&[&at("7")[..], &odd, &more].concat()),
            replica(&at("-1")),
            replica(&[("ip", "a/b"), ("port", "9")]),
            replica(&at("8")),
        ];
        let reply = format!("*4\r\n{}", replicas.concat());
        let told = WatchedReplica::from_replicas(reply.as_bytes()).unwrap();
        let addresses: Vec<String> = told.iter().map(|it| it.endpoint.to_string()).collect();
        assert_eq!(addresses, ["10.0.0.2:7", "10.0.0.2:8"]);
        let first = &told[0];
        assert_eq!((first.link_down_ms, first.priority, &first.primary), (None, None, &None));
        assert!(!first.is_linked && first.replication_offset.is_none());
    }

    #[test]
    fn a_primary_is_taken_whatever_its_numbers_are() {
        let odd = [("config-epoch", "-1"), ("quorum", "x"), ("num-slaves", "")];
        let at = [("name", "main"), ("ip", "10.0.0.1"), ("port", "6379")];
        let reply = replica(&[&at[..], &odd].concat());
        let primary = WatchedPrimary::from_primary(reply.as_bytes()).unwrap();
        assert_eq!((primary.config_epoch, primary.quorum), (None, None));
        assert_eq!(primary.endpoint.to_string(), "10.0.0.1:6379");
    }

    #[test]
    fn instances_are_bounded() {
        let mut reply = format!("*{}\r\n", NODES_MAX + 1).into_bytes();
        reply.extend(b"*0\r\n".repeat(NODES_MAX + 1));
        assert_eq!(OtherSentinel::from_sentinels(&reply), Err(ViewError::TooManyNodes));
    }
}
