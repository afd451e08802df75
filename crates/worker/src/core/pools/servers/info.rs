//! INFO on a sharded pool: of Keyway alone, of all its servers added up, or of one server.

use crate::core::pending::Conclusion;
use crate::core::request::RequestContext;
use crate::core::request::Step;
use crate::core::{Connections, Plane};
use crate::server_status::backend_state;
use crate::{Cluster, Plan, Upstream};
use keyway_command::{Args, Join as Rule};
use keyway_proxy::{BackendInfo, InfoAsks, InfoQuery, Join, NoAnswer, write_fault};
use keyway_resp::reply;
use std::fmt::Write as _;
use std::sync::Arc;

/// The request for the figures of every server, in the form that every version knows.
const INFO: &[u8] = b"*1\r\n$4\r\nINFO\r\n";

impl Plane {
    /// Answers INFO, or asks the servers that it is about.
    #[cold]
    pub(in crate::core) fn info(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
    ) -> Step {
        match InfoAsks::of(&incoming.request.args) {
            InfoAsks::Keyway => {
                let plan = Arc::clone(&self.plan);
                let pool = &plan.pools[incoming.session.pool as usize];
                self.answer_without_server(incoming, pool)
            }
            InfoAsks::Servers(query) => self.info_of_servers(links, incoming, query),
            InfoAsks::Backend => self.info_of_one(links, incoming),
        }
    }

    fn info_of_servers(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        mut query: InfoQuery,
    ) -> Step {
        query.is_cluster =
            self.plan.listeners[usize::from(incoming.session.listener)].cluster.is_some();
        if self.in_use(incoming.session.pool).count() == 0 {
            let (plan, pool) = (Arc::clone(&self.plan), incoming.session.pool);
            let protocol = incoming.session.identity.protocol;
            self.served(incoming.session.pool, incoming.request.command.counted());
            self.observe.served.count_calls(&self.cells);
            let mut join = Join::default();
            join.report = Some(Box::new((query, protocol)));
            self.answer(incoming.session, incoming.busy, |out| {
                write_report(&plan, pool, &join, out)
            });
            return Step::Started;
        }
        let report = Box::new((query, incoming.session.identity.protocol));
        self.pending.expect(Conclusion::Report(report));
        let mut request = *incoming.request;
        request.args = Args::new(INFO, &[]);
        let step = self.send_everywhere(links, &mut incoming.with(&request), Rule::Each);
        self.pending.expect_nothing();
        step
    }

    /// Hands INFO to one server, which its first argument names.
    fn info_of_one(&mut self, links: &mut Connections, incoming: &mut RequestContext) -> Step {
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[incoming.session.pool as usize];
        let shared = self.pools[usize::from(incoming.session.pool)].shared();
        let (Some(Upstream { servers: sharded, .. }), Some(shared)) =
            (pool.kind.upstream(), shared)
        else {
            return self.answer_unrouted(incoming);
        };
        let wanted = String::from_utf8_lossy(&incoming.request.args[2]).into_owned();
        let servers = || (0..sharded.servers.len()).filter(|&server| pool.kind.has_server(server));
        let is_at = |server: &usize| {
            pool.kind.address(*server).is_some_and(|address| address.to_string() == wanted)
        };
        let named = servers().find(|&server| pool.kind.label(server) == wanted);
        let Some(server) = named.or_else(|| servers().find(is_at)) else {
            let known: Vec<_> = servers().take(20).map(|server| pool.kind.label(server)).collect();
            let text = format!(
                "ERR no server of pool {} has this name or address; there are: {}",
                pool.name,
                known.join(", ")
            );
            return self.refuse_request(incoming, &text);
        };
        let mut frame = Vec::new();
        reply::array(&mut frame, incoming.request.args.len() - 2);
        reply::bulk(&mut frame, b"INFO");
        incoming.request.args.from(3).for_each(|section| reply::bulk(&mut frame, section));
        let mut request = *incoming.request;
        request.args = Args::new(&frame, &[]);
        let link = self.link_of(&shared, incoming.session, server as u16);
        self.forward(links, &mut incoming.with(&request), link)
    }
}

/// Appends the report that is made of the servers' answers in a join.
#[cold]
pub(in crate::core) fn write_report(plan: &Plan, pool: u16, join: &Join, out: &mut Vec<u8>) {
    let Some((query, protocol)) = join.report.as_deref() else { return };
    let kind = &plan.pools[usize::from(pool)].kind;
    let Some(Upstream { servers: sharded, options, .. }) = kind.upstream() else { return };
    let cluster = kind.cluster();
    let mut servers: Vec<BackendInfo> = Vec::with_capacity(sharded.servers.len());
    // Holds, for each server index, its position among the servers in use.
    let mut positions = vec![None; sharded.servers.len()];
    for (index, position) in positions.iter_mut().enumerate() {
        let Some(address) = kind.address(index) else { continue };
        let (health, reason) =
            backend_state(plan, plan.topology.backend_id(usize::from(pool), index));
        let why = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        *position = Some(servers.len());
        servers.push(BackendInfo {
            name: kind.label(index),
            address: address.to_string(),
            health,
            standing: cluster.map_or_else(String::new, |it| standing(it, index)),
            latency_micros: plan.facts.backend_latency_micros(pool, index),
            info: Err(format!("it is {health}{why} and was not asked")),
        });
    }
    for (backend, answer) in join.answers() {
        let Some(at) = positions[usize::from(backend)] else { continue };
        servers[at].info = match answer {
            Ok(text) => std::str::from_utf8(text).map_err(|_| "its INFO is no text".to_owned()),
            Err(NoAnswer::Refused(words)) => Err(one_line(&String::from_utf8_lossy(words))),
            Err(NoAnswer::Fault(fault)) => {
                let mut text = Vec::new();
                write_fault(fault, "", &mut text);
                let text = String::from_utf8_lossy(&text);
                let what = text.trim_start_matches("-ERR backend ");
                Err(one_line(what.split(';').next().unwrap_or(what)))
            }
        };
    }
    let sections: Vec<&str> = query.sections.iter().map(String::as_str).collect();
    let mut own = String::new();
    plan.facts.info(pool, query.is_cluster, &sections, &mut own);
    let databases = options.database..options.database.saturating_add(options.databases.max(1));
    protocol.text(out, query.text(&own, databases, &servers).as_bytes());
}

/// Returns the role and state of a server, as fields of the INFO text.
fn standing(cluster: &Cluster, server: usize) -> String {
    let Some(known) = cluster.status(server) else { return String::new() };
    let mut fields = format!(",standing={}", known.role);
    let others = [
        ("of", known.of),
        ("slots", known.slots.map(|slots| slots.to_string())),
        ("zone", known.zone),
        ("lag_ms", known.lag_millis.map(|millis| millis.to_string())),
    ];
    for (name, value) in others {
        let Some(value) = value else { continue };
        let _ = write!(fields, ",{name}={}", one_line(&value));
    }
    fields
}

/// Returns a text without the characters that separate lines and fields of INFO.
fn one_line(text: &str) -> String {
    text.trim().chars().map(|it| if it.is_control() || it == ',' { ' ' } else { it }).collect()
}
