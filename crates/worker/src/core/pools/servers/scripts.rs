//! Scripts and libraries of functions, which servers keep for later calls.
//!
//! The pool's [`ScriptCache`] has the scripts and libraries that its clients have loaded. The
//! [`Given`] of a connection says which of them were sent there. A request may need a script or
//! library that its connection was not given yet. Then that is sent ahead of the request on the
//! same connection, so that no request overtakes another request of its client. A script precedes
//! the first EVALSHA of it. The libraries precede the first FCALL, and the first FCALL after a
//! change of them. A server that has a library already answers with an error, which goes to no
//! client.

use crate::core::pending::Conclusion;
use crate::core::pending::Due;
use crate::core::pools::given::Loads;
use crate::core::pools::scripts::LOAD;
use crate::core::request::RequestContext;
use crate::core::request::Step;
use crate::core::{Connection, ConnectionKey, Connections, Plane};
use keyway_command::{Flags, Join as Rule, Loaded, Request, Verb};
use keyway_proxy::{
    CacheFull, Digest, DumpFault, Join, ScriptCache, ScriptStep, Work, dumped_libraries,
    library_name,
};
use keyway_route::{Route, route_script};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

/// Number of scripts that a worker remembers to have shown to the cache. With more, applications
/// that use more scripts in turn would need less hashing.
const SHOWN: usize = 256;

/// A script to be loaded before the request that needs it.
pub(in crate::core) struct Preload {
    pub(in crate::core) digest: Digest,
    pub(in crate::core) body: Arc<[u8]>,
}

/// Hashes of scripts that EVAL has shown to the cache already. The low bits of a hash are its index.
pub(in crate::core) struct Shown(Box<[u64; SHOWN]>);

impl Default for Shown {
    fn default() -> Self {
        Self(Box::new([0; SHOWN]))
    }
}

impl Plane {
    /// Starts a request that loads a script or libraries into every server.
    pub(in crate::core) fn load(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        what: Loaded,
    ) -> Step {
        let scripts = Arc::clone(self.scripts(incoming.session.pool));
        let loads = match to_load(&scripts, incoming.request, what) {
            Ok(loads) => loads,
            Err(full) => {
                return self.refuse_request(incoming, full.text());
            }
        };
        if what != Loaded::Scripts {
            self.give_libraries_everywhere(links, incoming);
        }
        self.send_loads(links, incoming, loads, Rule::Same)
    }

    /// Starts a request that removes scripts or libraries from every server.
    pub(in crate::core) fn unload(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        what: Loaded,
    ) -> Step {
        if !incoming.session.is_quiet(incoming.busy) {
            // An earlier load is remembered when its reply arrives, which must not be after it was
            // removed again.
            incoming.session.fence();
            return Step::Wait;
        }
        if incoming.request.command.verb == Verb::FunctionDelete {
            self.give_libraries_everywhere(links, incoming);
        }
        forget(self.scripts(incoming.session.pool), incoming.request, what);
        self.send_loads(links, incoming, Loads::Forgotten(what), Rule::AllOk)
    }

    fn send_loads(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        loads: Loads,
        rule: Rule,
    ) -> Step {
        self.pending.expect(Conclusion::Loads(loads));
        let step = self.send_everywhere(links, incoming, rule);
        self.pending.expect_nothing();
        step
    }

    /// Asks every server which scripts it has.
    pub(in crate::core) fn script_exists(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
    ) -> Step {
        let scripts = self.scripts(incoming.session.pool);
        let is_known = |text: &[u8]| {
            Digest::parse(text).is_some_and(|digest| scripts.script(&digest).is_some())
        };
        let certain: Vec<bool> = incoming.request.args.from(2).map(is_known).collect();
        self.pending.expect(Conclusion::Certain(certain));
        let step = self.send_everywhere(links, incoming, Rule::AllOnes);
        self.pending.expect_nothing();
        step
    }

    /// Runs a script or function on the server of its keys.
    pub(in crate::core) fn run_script(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
    ) -> Step {
        let RequestContext { session, busy, request, .. } = &mut *incoming;
        let request = *request;
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[session.pool as usize];
        let (Some(upstream), Some(scripts)) = (pool.kind.upstream(), pool.kind.scripts()) else {
            return self.answer_unrouted(incoming);
        };
        let sharded = &upstream.servers;
        let first = match request.args.get(2) {
            Some(b"0") => self.in_use(session.pool).first_from(0),
            _ => None,
        };
        let Some(state) = self.pools[session.pool as usize].servers() else {
            return self.answer_unrouted(incoming);
        };
        let shared = *state.shared();
        let server = match route_script(request, sharded, state.ring(), first, &mut self.keys) {
            Route::One(server) => server,
            Route::Unrouted if self.awaits_owner(incoming) => return Step::Wait,
            refused => return self.refuse_route(incoming, pool, refused),
        };
        if !request.command.flags.contains(Flags::READONLY) {
            self.note_write(session, busy);
        }
        let index = self.link_of(&shared, session, server);
        self.set_reading(links, index, false);
        let digest = match request.command.verb {
            Verb::Evalsha | Verb::EvalshaRo => Digest::parse(&request.args[1]),
            Verb::Fcall | Verb::FcallRo => {
                self.give_libraries(index, &mut links[index]);
                None
            }
            _ => {
                self.show(session.pool, scripts, &request.args[1]);
                None
            }
        };
        let Some(digest) = digest else {
            return self.forward(links, incoming, index);
        };
        let mut preload = None;
        if !links[index].given.has_script(&digest, scripts.flushes()) {
            let Some(body) = scripts.script(&digest) else {
                // The script is not one of our clients'. The server may have it.
                return self.forward(links, incoming, index);
            };
            preload = Some(Preload { digest, body });
        }
        let work = Work::Script { digest, step: ScriptStep::Run };
        let mut multi_step = self.pending.take_multi_step(work);
        multi_step.server = server;
        multi_step.request.extend_from_slice(request.args.buf());
        self.start_multi_step(links, incoming, multi_step, preload)
    }

    /// Shows a script to the cache, unless that was done lately.
    fn show(&mut self, pool: u16, scripts: &ScriptCache, body: &[u8]) {
        let mut hasher = DefaultHasher::new();
        hasher.write_u16(pool);
        // A script that the cache has lost since is shown again.
        hasher.write_u64(scripts.losses());
        hasher.write(body);
        let hash = hasher.finish();
        let known = &mut self.servers.shown.0[hash as usize % SHOWN];
        if *known != hash {
            *known = hash;
            scripts.see(body);
        }
    }

    /// Sends the libraries that were loaded since the connection was given them, ahead of the
    /// request that needs them.
    pub(in crate::core) fn give_libraries(
        &mut self,
        index: ConnectionKey,
        connection: &mut Connection,
    ) {
        if connection.given.libraries != self.scripts(connection.server_id.pool).changes() {
            self.send_libraries(index, connection);
        }
    }

    #[cold]
    fn send_libraries(&mut self, index: ConnectionKey, connection: &mut Connection) {
        let now = self.clock.now;
        if !connection.link.has_room(self.link_options(connection.server_id.pool))
            || connection.link.is_down(now)
        {
            // The request itself waits, or is refused.
            return;
        }
        let (newer, change) =
            self.scripts(connection.server_id.pool).libraries_since(connection.given.libraries);
        connection.given.libraries = change;
        if newer.is_empty() {
            return;
        }
        self.mark_link_dirty(index, connection);
        if !connection.link.is_awaited() {
            self.wake_link(index, connection);
        }
        for code in newer {
            connection.link.enqueue_own(LOAD, &[b"FUNCTION", b"LOAD", &code], now);
        }
        self.note_unsent(index, connection);
    }

    /// Does the same for every server in use.
    fn give_libraries_everywhere(&mut self, links: &mut Connections, incoming: &RequestContext) {
        let in_use = self.in_use(incoming.session.pool);
        let Some(shared) = self.pools[usize::from(incoming.session.pool)].shared() else { return };
        let mut next = in_use.first_from(0);
        while let Some(server) = next {
            let index = self.link_of(&shared, incoming.session, server);
            self.give_libraries(index, &mut links[index]);
            next = in_use.first_from(usize::from(server) + 1);
        }
    }

    /// Handles that a server refused a script or library. If the server has the library already, or
    /// will never take it, this is the end of it. A server that is busy, loading or full is given
    /// it again when it is next needed.
    #[cold]
    pub(in crate::core) fn on_load_refused(&mut self, index: ConnectionKey, said: &[u8]) {
        let transient: [&[u8]; 4] = [b"-BUSY", b"-LOADING", b"-MASTERDOWN", b"-OOM"];
        if transient.iter().any(|code| said.starts_with(code)) {
            self.pending.add_due(Due::Loads(index));
        }
    }

    /// Handles that every server has answered a request that loads or removes scripts or libraries.
    #[cold]
    pub(in crate::core) fn learn_loads(&mut self, pool: u16, join: &Join, loads: Loads) {
        let scripts = self.scripts(pool);
        match (loads, join.agreed()) {
            // A script that was given meanwhile may have come first, and be gone.
            (Loads::Forgotten(Loaded::Scripts), _) => scripts.note_flushed(),
            (Loads::Forgotten(_), _) if join.command == "function|flush" => {
                scripts.renew_libraries();
            }
            (Loads::Script(body), Some(_)) => {
                scripts.load(&body);
            }
            (Loads::Library(code), Some(name)) => scripts.load_library(name, &code),
            (Loads::Libraries { libraries, is_flush }, Some(_)) => {
                if is_flush {
                    scripts.forget_libraries(None);
                }
                libraries.iter().for_each(|(name, code)| scripts.load_library(name, code));
            }
            (_, _) => {}
        }
    }
}

/// Returns the scripts or libraries that a request is going to load, if there is room for them. It
/// returns none for a dump that cannot be parsed.
fn to_load(scripts: &ScriptCache, request: &Request, what: Loaded) -> Result<Loads, CacheFull> {
    if what == Loaded::Dump {
        let is_flush = request.args.get(3).is_some_and(|it| it.eq_ignore_ascii_case(b"flush"));
        let codes = match dumped_libraries(&request.args[2]) {
            Ok(codes) => codes,
            Err(DumpFault::Unknown) => Vec::new(),
            Err(DumpFault::TooLong) => return Err(CacheFull::Libraries),
        };
        let named = |code: Vec<u8>| Some((library_name(&code)?.to_vec(), code));
        let libraries: Vec<_> = codes.into_iter().filter_map(named).collect();
        scripts.try_libraries(&libraries, is_flush)?;
        return Ok(Loads::Libraries { libraries, is_flush });
    }
    let body = request.args.from(2).last().unwrap_or_default();
    if what == Loaded::Scripts {
        scripts.try_script(body)?;
        return Ok(Loads::Script(body.to_vec()));
    }
    let name = library_name(body).unwrap_or_default();
    scripts.try_libraries(&[(name.to_vec(), body.to_vec())], false)?;
    Ok(Loads::Library(body.to_vec()))
}

/// Removes from the cache what a request removes from the servers, if the servers will take its
/// arguments.
fn forget(scripts: &ScriptCache, request: &Request, what: Loaded) {
    let option = request.args.get(2);
    if request.command.verb == Verb::FunctionDelete {
        return scripts.forget_libraries(option);
    }
    let is_mode =
        |word: &[u8]| word.eq_ignore_ascii_case(b"async") || word.eq_ignore_ascii_case(b"sync");
    if request.args.len() <= 3 && option.is_none_or(is_mode) {
        match what {
            Loaded::Scripts => scripts.forget_scripts(),
            Loaded::Functions | Loaded::Dump => scripts.forget_libraries(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::core::Core;
    use crate::core::tests::{client, connected_core, output, pass_to};
    use keyway_base::{BackendFault, Key};
    use keyway_net::Socket;
    use keyway_proxy::{LinkState, Session};

    const BODY: &str = "return 1";
    const EVALSHA: &[u8] = b"EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 1 k\r\n";
    const MISSING: &[u8] = b"-NOSCRIPT No matching script.\r\n";
    const CODE: &[u8] = b"#!lua name=mylib\ncode";

    /// Returns the names of the requests that a link has to send.
    fn sent(core: &mut Core) -> Vec<&'static str> {
        let link = &mut core.links[0].link;
        let text = link.unsent().escape_ascii().to_string();
        link.advance(link.unsent().len());
        let names = ["LOAD", "EXISTS", "EVALSHA", "FCALL", "GET", "MULTI", "DELETE", "LIST"];
        let mut found: Vec<_> = names
            .into_iter()
            .flat_map(|name| {
                text.match_indices(&format!(r"\n{name}\r"))
                    .map(move |it| (it.0, name))
                    .collect::<Vec<_>>()
            })
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, name)| name).collect()
    }

    /// Returns a core whose pool has a script and a library, and a client of it.
    fn core_and_client() -> (Core, Key<Session>) {
        let mut core = connected_core();
        core.plane.scripts(0).load(BODY.as_bytes());
        core.plane.scripts(0).load_library(b"mylib", CODE);
        let client = client(&mut core);
        (core, client)
    }

    fn reconnect(core: &mut Core) {
        core.plane.upstream.connects.clear();
        core.on_connecting(core.links.key_at(0));
        core.on_connected(core.links.key_at(0), Socket(2));
    }

    #[test]
    fn a_connection_is_given_a_script_before_its_first_call() {
        let (mut core, client) = core_and_client();
        core.on_client_bytes(client, &EVALSHA.repeat(2));
        assert_eq!(sent(&mut core), ["LOAD", "EVALSHA", "EVALSHA"]);
        core.on_backend_bytes(core.links.key_at(0), b"$1\r\nx\r\n:1\r\n:1\r\n").unwrap();
        core.on_client_bytes(client, EVALSHA);
        assert_eq!(sent(&mut core), ["EVALSHA"]);
        // The script is given again, because servers may have been emptied.
        core.plane.scripts(0).note_flushed();
        core.on_client_bytes(client, EVALSHA);
        assert_eq!(sent(&mut core), ["LOAD", "EVALSHA"]);
    }

    #[test]
    fn a_script_that_is_missing_runs_again_unless_something_was_sent_behind_it() {
        let (mut core, client) = core_and_client();
        core.on_client_bytes(client, &[EVALSHA, b"GET k\r\n"].concat());
        assert_eq!(sent(&mut core), ["LOAD", "EVALSHA", "GET"]);
        core.on_backend_bytes(core.links.key_at(0), &[b"+x\r\n", MISSING, b"$1\r\nv\r\n"].concat())
            .unwrap();
        core.continue_operations();
        assert_eq!(output(&core, client), r"-NOSCRIPT No matching script.\r\n$1\r\nv\r\n");
        assert!(sent(&mut core).is_empty());
        // The request runs again alone, and requests that come meanwhile wait.
        core.on_client_bytes(client, EVALSHA);
        assert_eq!(sent(&mut core), ["LOAD", "EVALSHA"]);
        core.on_backend_bytes(core.links.key_at(0), &[b"+x\r\n", MISSING].concat()).unwrap();
        core.on_client_bytes(client, b"GET k\r\n");
        core.continue_operations();
        assert_eq!(sent(&mut core), ["EXISTS"]);
        core.on_backend_bytes(core.links.key_at(0), b"*1\r\n:0\r\n").unwrap();
        core.continue_operations();
        assert_eq!(sent(&mut core), ["LOAD", "EVALSHA"]);
        core.on_backend_bytes(core.links.key_at(0), b"+x\r\n:1\r\n").unwrap();
        core.resume_sessions(&mut Vec::new());
        assert_eq!(sent(&mut core), ["GET"]);
    }

    #[test]
    fn a_script_that_returns_such_an_error_itself_runs_once() {
        for is_lost in [false, true] {
            let (mut core, client) = core_and_client();
            core.on_client_bytes(client, EVALSHA);
            assert_eq!(sent(&mut core), ["LOAD", "EVALSHA"]);
            core.on_backend_bytes(core.links.key_at(0), &[b"+x\r\n", MISSING].concat()).unwrap();
            core.continue_operations();
            assert_eq!(sent(&mut core), ["EXISTS"]);
            match is_lost {
                false => core.on_backend_bytes(core.links.key_at(0), b"*1\r\n:1\r\n").unwrap(),
                true => drop(core.on_link_lost(core.links.key_at(0), BackendFault::Closed)),
            }
            core.continue_operations();
            assert_eq!(output(&core, client), r"-NOSCRIPT No matching script.\r\n");
            assert!(!sent(&mut core).contains(&"EVALSHA"));
        }
    }

    #[test]
    fn a_transaction_that_missed_a_script_has_it_given_to_the_next() {
        let (mut core, client) = core_and_client();
        let transaction = [b"MULTI\r\n", EVALSHA, b"EXEC\r\n"].concat();
        for _ in 0..2 {
            core.on_client_bytes(client, &transaction);
            assert_eq!(sent(&mut core), ["LOAD", "MULTI", "EVALSHA"]);
            let replies = [b"+x\r\n+OK\r\n+QUEUED\r\n*1\r\n", MISSING].concat();
            core.on_backend_bytes(core.links.key_at(0), &replies).unwrap();
            core.continue_operations();
            assert!(sent(&mut core).is_empty(), "it is not run again");
        }
        let said = r"+OK\r\n+QUEUED\r\n*1\r\n-NOSCRIPT No matching script.\r\n";
        assert_eq!(output(&core, client), said.repeat(2));
    }

    #[test]
    fn what_nobody_hears_is_not_run_again() {
        let (mut core, client) = core_and_client();
        core.on_client_bytes(client, b"CLIENT REPLY OFF\r\n");
        core.on_client_bytes(client, EVALSHA);
        assert_eq!(sent(&mut core), ["LOAD", "EVALSHA"]);
        core.on_backend_bytes(core.links.key_at(0), &[b"+x\r\n", MISSING].concat()).unwrap();
        core.continue_operations();
        assert!(sent(&mut core).is_empty());
    }

    #[test]
    fn what_is_not_to_be_heard_waits_for_a_script_before_it() {
        let (mut core, client) = core_and_client();
        core.on_client_bytes(client, &[EVALSHA, b"CLIENT REPLY SKIP\r\nGET k\r\n"].concat());
        assert_eq!(sent(&mut core), ["LOAD", "EVALSHA"]);
        core.on_backend_bytes(core.links.key_at(0), b"+x\r\n:1\r\n").unwrap();
        core.resume_sessions(&mut Vec::new());
        assert_eq!(sent(&mut core), ["GET"]);
    }

    #[test]
    fn what_relies_on_a_script_goes_out_on_no_connection_that_lacks_it() {
        let (mut core, client) = core_and_client();
        core.on_client_bytes(client, EVALSHA);
        sent(&mut core);
        core.on_backend_bytes(core.links.key_at(0), b"+x\r\n:1\r\n").unwrap();
        core.on_client_bytes(client, EVALSHA);
        core.on_link_lost(core.links.key_at(0), BackendFault::Closed);
        assert!(output(&core, client).contains("was not sent"), "{}", output(&core, client));
        reconnect(&mut core);
        core.on_client_bytes(client, EVALSHA);
        assert_eq!(sent(&mut core), ["LOAD", "EVALSHA"]);
    }

    #[test]
    fn a_connection_is_given_the_libraries_once_before_what_is_about_them() {
        for line in ["FCALL f 1 k\r\n", "FUNCTION LIST\r\n", "FUNCTION DELETE other\r\n"] {
            let (mut core, client) = core_and_client();
            let name = line
                .split([' ', '\r'])
                .find(|it| ["FCALL", "LIST", "DELETE"].contains(it))
                .unwrap();
            core.on_client_bytes(client, line.as_bytes());
            assert_eq!(sent(&mut core), ["LOAD", name]);
            core.on_backend_bytes(
                core.links.key_at(0),
                b"-ERR Library 'mylib' already exists\r\n+OK\r\n",
            )
            .unwrap();
            core.continue_operations();
            for _ in 0..3 {
                core.on_client_bytes(client, b"FCALL f 1 k\r\n");
                assert_eq!(sent(&mut core), ["FCALL"]);
                core.on_backend_bytes(core.links.key_at(0), b"-ERR Function not found\r\n")
                    .unwrap();
            }
            core.plane.scripts(0).load_library(b"another", CODE);
            core.on_client_bytes(client, b"FCALL f 1 k\r\n");
            assert_eq!(sent(&mut core), ["LOAD", "FCALL"], "only what is new");
        }
    }

    #[test]
    fn a_server_that_was_busy_is_given_the_libraries_again_however_late_it_says_so() {
        for is_late in [false, true] {
            let (mut core, client) = core_and_client();
            core.on_client_bytes(client, b"FCALL f 1 k\r\n");
            assert_eq!(sent(&mut core), ["LOAD", "FCALL"]);
            if is_late {
                pass_to(&mut core, 5_000);
                assert!(output(&core, client).starts_with("-ERR"));
            }
            assert_eq!(core.links[0].link.state(), LinkState::Ready);
            core.on_backend_bytes(
                core.links.key_at(0),
                b"-BUSY a script runs\r\n-BUSY a script runs\r\n",
            )
            .unwrap();
            core.continue_operations();
            core.on_client_bytes(client, b"FCALL f 1 k\r\n");
            assert_eq!(sent(&mut core), ["LOAD", "FCALL"]);
        }
    }
}
