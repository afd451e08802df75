//! etcd from 3.4 on, by its JSON gateway: the same HTTP library that serves the admin listener,
//! instead of gRPC and what generates it.
//!
//! etcd's revisions, leases and transactions are what [`Coordinator`] means, so this side only
//! asks. `http.rs` has the connections and says which requests were certainly not executed,
//! `wire.rs` the JSON, `watch.rs` and `lease.rs` what lasts.

mod http;
mod lease;
mod tree;
mod watch;
mod wire;

use crate::clock::Moment;
use crate::coordinator::{Answer, Coordinator, Patience, Watch};
use crate::guard::Guard;
use crate::key::check_cluster;
use crate::limits::{LIST_LEN_MAX, PAGE_ENTRIES};
use crate::net::Dialer;
use crate::session::check_ttl;
use crate::{
    Entry, Fault, FaultKind, Listing, Mark, Outcome, Prefix, Revision, Session, SessionId, Txn,
};
use http::{Http, Refusal, Retry};
use keyway_tls::ClientTls;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
pub(crate) use tree::read_v2;
use watch::EtcdWatch;
use wire::Names;

/// Times that a listing begins anew, as its revision was compacted between pages.
const LIST_TRIES: usize = 3;

/// A name and a password. No text of this crate shows the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub name: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Where etcd is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdSettings {
    /// The members, as `HOST:PORT` of their client URLs.
    pub endpoints: Vec<String>,
    /// TLS to the members. A certificate of ours does not say who we are: etcd's gateway does not
    /// take users from certificates.
    pub tls: Option<ClientTls>,
    /// The user, where etcd has authentication.
    pub user: Option<Credentials>,
    /// What all keys begin with, without the last `/`.
    pub root: String,
    /// The name of the cluster.
    pub cluster: String,
    /// How long calls take at most.
    pub patience: Patience,
    /// The newest state that the caller has seen earlier.
    pub mark: Option<Mark>,
}

impl EtcdSettings {
    /// Returns the usual settings: plain, without a user, below `/kw`.
    pub fn new(endpoints: &[&str], cluster: &str) -> EtcdSettings {
        EtcdSettings {
            endpoints: endpoints.iter().map(|endpoint| (*endpoint).to_owned()).collect(),
            tls: None,
            user: None,
            root: "/kw".to_owned(),
            cluster: cluster.to_owned(),
            patience: Patience::default(),
            mark: None,
        }
    }
}

/// A cluster in etcd.
#[derive(Clone, Debug)]
pub struct Etcd(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: Http,
    names: Names,
    guard: Guard,
    patience: Patience,
}

impl Etcd {
    /// Opens a cluster, and asks etcd for its state.
    ///
    /// # Errors
    /// Returns a fault if no endpoint answers, the user may not read, or the state is older than
    /// the mark says.
    pub async fn open(settings: EtcdSettings) -> Result<Etcd, Fault> {
        check_cluster(&settings.cluster)?;
        let EtcdSettings { endpoints, tls, user, root, cluster, patience, mark } = settings;
        if Prefix::new(root.trim_start_matches('/')).is_err() || root.ends_with('/') {
            return Err(Fault::invalid(format!("{root:?} is no beginning of keys")));
        }
        let dialer = Dialer::new("etcd", &endpoints, tls, patience.request)?;
        let guard = Guard::new(dialer.all(), mark);
        let http = Http::new(dialer, user, patience);
        let names = Names::new(&root, &cluster);
        let etcd = Etcd(Arc::new(Inner { http, names, guard, patience }));
        etcd.0.probe("open", &Prefix::all()).await?;
        Ok(etcd)
    }
}

/// Puts the key `ROOT/CLUSTER/NAME` with these bytes, bound to a session of its own.
pub(crate) async fn register(
    settings: EtcdSettings,
    name: &crate::Key,
    value: &[u8],
    ttl: Duration,
) -> Result<Session, Fault> {
    // Opened anew each time: a backup that was restored since is none of our business.
    let etcd = Etcd::open(settings).await?;
    let session = etcd.0.begin(ttl, Some(name.clone())).await?;
    match etcd.0.txn(&Txn::new().put_bound(name, value, &session)).await {
        Ok(_) => Ok(session),
        Err(fault) => {
            session.end().await;
            Err(fault)
        }
    }
}

impl Inner {
    /// Asks for the state of now, of a quorum.
    async fn probe(&self, tried: &'static str, prefix: &Prefix) -> Result<Mark, Fault> {
        let floor = self.guard.floor()?;
        let (key, range_end) = self.names.range(prefix);
        let request = json!({"key": key, "range_end": range_end, "count_only": true});
        let reply = self.ask("/v3/kv/range", &request, tried).await?;
        self.see(&reply, floor, tried)
    }

    /// Asks what may be asked twice.
    async fn ask(&self, path: &str, body: &Value, tried: &'static str) -> Result<Value, Fault> {
        let until = Moment::now().after(self.patience.call);
        let answered = self.http.call(path, body, tried, Retry::Always, until).await;
        answered.map_err(Refusal::into_fault)
    }

    fn see(&self, reply: &Value, floor: Revision, tried: &'static str) -> Result<Mark, Fault> {
        let mark = wire::mark(reply).ok_or_else(|| self.damaged(tried))?;
        self.guard.see(floor, mark)?;
        Ok(mark)
    }

    fn damaged(&self, tried: &'static str) -> Fault {
        let what = "the answer is not etcd's";
        Fault::new(FaultKind::Damaged, self.http.dialer().all(), tried, what)
    }

    async fn list(&self, prefix: &Prefix) -> Result<Listing, Fault> {
        for _ in 0..LIST_TRIES {
            if let Some(listing) = self.try_list(prefix).await? {
                return Ok(listing);
            }
        }
        let what = "its revision was compacted each time while it was read";
        Err(Fault::new(FaultKind::Busy, self.http.dialer().all(), "list", what))
    }

    /// Reads page after page of one revision. Returns nothing if etcd has forgotten it meanwhile.
    async fn try_list(&self, prefix: &Prefix) -> Result<Option<Listing>, Fault> {
        let tried = "list";
        let until = Moment::now().after(self.patience.call);
        let (first, range_end) = self.names.range(prefix);
        let mut request =
            json!({"key": first, "range_end": range_end, "limit": PAGE_ENTRIES.to_string()});
        let mut listing: Option<Listing> = None;
        let mut len = 0;
        loop {
            let floor = self.guard.floor()?;
            let call = self.http.call("/v3/kv/range", &request, tried, Retry::Always, until);
            let reply = match call.await {
                Err(Refusal::Compacted) => return Ok(None),
                reply => reply.map_err(Refusal::into_fault)?,
            };
            let mark = self.see(&reply, floor, tried)?;
            let listing = listing
                .get_or_insert_with(|| Listing { revision: mark.revision, entries: Vec::new() });
            let page = self.names.entries(&reply["kvs"]).ok_or_else(|| self.damaged(tried))?;
            len += page.iter().map(|entry: &Entry| entry.value.len() + 300).sum::<usize>();
            if len > LIST_LEN_MAX {
                let what = format!("the entries have more than {LIST_LEN_MAX} bytes");
                let place = self.http.dialer().all();
                return Err(Fault::new(FaultKind::TooLarge, place, tried, what));
            }
            let last = wire::last_key(&reply["kvs"]);
            listing.entries.extend(page);
            let Some(last) = last.filter(|_| reply["more"] == true) else {
                return Ok(Some(std::mem::replace(
                    listing,
                    Listing { revision: Revision(0), entries: Vec::new() },
                )));
            };
            request["key"] = wire::behind(&last);
            request["revision"] = listing.revision.to_string().into();
        }
    }

    async fn txn(&self, txn: &Txn) -> Result<Outcome, Fault> {
        let tried = "transaction";
        txn.check(&self.http.dialer().all())?;
        let floor = self.guard.floor()?;
        let until = Moment::now().after(self.patience.call);
        let body = self.names.txn(txn);
        let answered = self.http.call("/v3/kv/txn", &body, tried, Retry::Unsent, until).await;
        let reply = answered.map_err(|refusal| match refusal {
            Refusal::NoLease(place) => Fault::session_lost(place, tried),
            refusal => refusal.into_fault(),
        })?;
        let revision = self.see(&reply, floor, tried)?.revision;
        if reply["succeeded"] == true {
            return Ok(Outcome::Done { revision });
        }
        let found = self.names.found(txn, &reply).ok_or_else(|| self.damaged(tried))?;
        Ok(Outcome::Refused { revision, found })
    }

    /// Returns the session to which a key is bound; `None` if there is no key, or none.
    async fn owner_of(&self, key: &crate::Key) -> Result<Option<SessionId>, Fault> {
        let tried = "look at an entry";
        let (key, _) = self.names.range(&Prefix::new(key.as_str())?);
        let reply = self.ask("/v3/kv/range", &json!({"key": key}), tried).await?;
        let entries = self.names.entries(&reply["kvs"]).ok_or_else(|| self.damaged(tried))?;
        Ok(entries.first().and_then(|entry| entry.session))
    }

    /// Begins a session. With `bound` it is lost as soon as that key is not bound to it.
    async fn begin(
        self: &Arc<Self>,
        ttl: Duration,
        bound: Option<crate::Key>,
    ) -> Result<Session, Fault> {
        check_ttl(ttl)?;
        self.guard.floor()?;
        let tried = "begin a session";
        let sent = Moment::now();
        let secs = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let request = json!({"TTL": secs.to_string(), "ID": "0"});
        let reply = self.ask("/v3/lease/grant", &request, tried).await?;
        let id = wire::number(&reply["ID"]).filter(|id| *id != 0);
        let granted = wire::number(&reply["TTL"]).and_then(|ttl| u64::try_from(ttl).ok());
        let (Some(id), Some(granted)) = (id, granted.filter(|ttl| *ttl > 0)) else {
            return Err(self.damaged(tried));
        };
        let renewer = lease::Renewer::new(Arc::clone(self), id, bound);
        let id = SessionId(id.cast_unsigned());
        Session::keep(id, sent, Duration::from_secs(granted), renewer)
    }
}

impl Coordinator for Etcd {
    fn list<'a>(&'a self, prefix: &'a Prefix) -> Answer<'a, Listing> {
        Box::pin(self.0.list(prefix))
    }

    fn watch(&self, prefix: &Prefix, after: Revision) -> Watch {
        Watch::new(EtcdWatch::new(Arc::clone(&self.0), prefix.clone(), after))
    }

    fn txn(&self, txn: Txn) -> Answer<'_, Outcome> {
        Box::pin(async move { self.0.txn(&txn).await })
    }

    fn session(&self, ttl: Duration) -> Answer<'_, Session> {
        Box::pin(self.0.begin(ttl, None))
    }

    fn mark(&self) -> Option<Mark> {
        self.0.guard.mark()
    }
}
