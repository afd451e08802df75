use crate::tracking::Tracking;
use crate::{ClientLive, Identity};
use keyway_resp::Protocol;
use std::sync::Arc;

/// The facts about a client that other clients may learn.
#[derive(Clone, Debug)]
pub struct ClientEntry {
    /// Its address, as in `CLIENT LIST`.
    pub addr: Arc<str>,
    /// The local address to which it connected.
    pub laddr: Arc<str>,
    /// The name of its user.
    pub user: Arc<str>,
    /// Its last request and the state that it has begun.
    pub live: Arc<ClientLive>,
    /// Unix time at which it connected, in seconds.
    pub connected_unix: u64,
    /// The database that it last selected.
    pub database: u32,
    /// The worker that serves it.
    pub worker: u16,
    /// Index of its pool.
    pub pool: u16,
    /// Its protocol.
    pub protocol: Protocol,
    /// The facts that it has announced about itself, if there are any.
    told: Option<Box<Told>>,
}

/// The facts that few clients announce about themselves. For other clients, this takes one word.
#[derive(Clone, Debug, Default)]
struct Told {
    name: Box<str>,
    lib_name: Box<str>,
    lib_ver: Box<str>,
    tracking: Option<TrackingEntry>,
}

impl Told {
    fn is_empty(&self) -> bool {
        self.name.is_empty()
            && self.lib_name.is_empty()
            && self.lib_ver.is_empty()
            && self.tracking.is_none()
    }
}

/// The facts about a client's tracking that other clients may learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackingEntry {
    /// True if it is told of keys by their prefixes.
    pub bcast: bool,
    /// The client that is told in its place.
    pub redirect: Option<u64>,
    /// True if that client has left.
    pub is_broken: bool,
}

impl From<&Tracking> for TrackingEntry {
    fn from(tracking: &Tracking) -> Self {
        let Tracking { bcast, redirect, is_broken, .. } = *tracking;
        Self { bcast, redirect, is_broken }
    }
}

impl ClientEntry {
    /// Creates the entry of a client of `pool` that has announced nothing about itself yet. It
    /// connected to the local address `laddr`.
    pub fn new(
        identity: &Identity,
        laddr: Arc<str>,
        worker: u16,
        pool: u16,
        connected_unix: u64,
    ) -> Self {
        Self {
            addr: Arc::clone(&identity.addr),
            laddr,
            user: identity.shared_user_name(),
            live: Arc::clone(&identity.live),
            connected_unix,
            database: identity.database,
            worker,
            pool,
            protocol: identity.protocol,
            told: None,
        }
    }

    /// Returns the name of `CLIENT SETNAME`. Empty if there is none.
    pub fn name(&self) -> &str {
        self.told.as_ref().map_or("", |told| &told.name)
    }

    /// Returns the `lib-name` of `CLIENT SETINFO`. Empty if there is none.
    pub fn lib_name(&self) -> &str {
        self.told.as_ref().map_or("", |told| &told.lib_name)
    }

    /// Returns the `lib-ver` of `CLIENT SETINFO`. Empty if there is none.
    pub fn lib_ver(&self) -> &str {
        self.told.as_ref().map_or("", |told| &told.lib_ver)
    }

    /// Returns its tracking, if it has any.
    pub fn tracking(&self) -> Option<TrackingEntry> {
        self.told.as_ref()?.tracking
    }

    /// Sets its name. An empty one removes it.
    pub fn set_name(&mut self, name: &str) {
        self.tell(name.is_empty(), |told| told.name = name.into());
    }

    /// Sets the name of its library.
    pub fn set_lib_name(&mut self, name: &str) {
        self.tell(name.is_empty(), |told| told.lib_name = name.into());
    }

    /// Sets the version of its library.
    pub fn set_lib_ver(&mut self, version: &str) {
        self.tell(version.is_empty(), |told| told.lib_ver = version.into());
    }

    /// Sets its tracking.
    pub fn set_tracking(&mut self, tracking: Option<&Tracking>) {
        self.tell(tracking.is_none(), |told| told.tracking = tracking.map(TrackingEntry::from));
    }

    /// Changes what the client has announced. The box is removed if nothing is left in it.
    fn tell(&mut self, is_less: bool, change: impl FnOnce(&mut Told)) {
        if is_less && self.told.is_none() {
            return;
        }
        change(self.told.get_or_insert_default());
        if is_less && self.told.as_ref().is_some_and(|told| told.is_empty()) {
            self.told = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::Time;

    fn entry() -> ClientEntry {
        ClientEntry::new(&Identity::new(1, true, Time(0)), "here".into(), 0, 0, 0)
    }

    /// Each client has one, even an idle one.
    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<ClientEntry>() <= 88, "{} bytes", size_of::<ClientEntry>());
    }

    #[test]
    fn a_client_that_has_told_nothing_has_nothing_to_tell() {
        let mut entry = entry();
        entry.set_name("");
        entry.set_lib_name("");
        entry.set_lib_ver("");
        entry.set_tracking(None);
        assert!(entry.told.is_none());
        assert_eq!((entry.name(), entry.lib_name(), entry.lib_ver()), ("", "", ""));
        assert_eq!(entry.tracking(), None);
    }

    #[test]
    fn what_is_told_is_kept_until_it_is_taken_back() {
        let mut entry = entry();
        entry.set_name("name");
        entry.set_lib_name("lib");
        entry.set_lib_ver("1");
        entry.set_tracking(Some(&Tracking::default()));
        assert_eq!((entry.name(), entry.lib_name(), entry.lib_ver()), ("name", "lib", "1"));
        assert_eq!(entry.tracking(), Some(TrackingEntry::from(&Tracking::default())));
        entry.set_name("");
        entry.set_lib_name("");
        entry.set_tracking(None);
        assert_eq!((entry.name(), entry.lib_name(), entry.lib_ver()), ("", "", "1"));
        entry.set_lib_ver("");
        assert!(entry.told.is_none());
    }
}
