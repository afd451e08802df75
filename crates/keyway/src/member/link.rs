//! The thread's loop: the bus, the machine, the file, and the orders to the main thread.

use super::asked::{Answer, Desk};
use super::measure::Base;
use super::{Joining, Ordered, SharedAbout, is_passing, state_file};
use crate::bus::{Repeats, incarnation, not_reached};
use crate::certificates::by_file;
use crate::control_node::{ANSWERED, NOT_ANSWERED};
use crate::expiry::Expiry;
use crate::reload::{Diff, Refusal, Wake};
use anyhow::{Context, Result, bail};
use keyway_base::Time;
use keyway_bus::{Event, NodeId, SendOptions, Settings, Stamp, Tokens};
use keyway_channel::{Driver, DriverSettings, clock, here};
use keyway_config::ControlConfig;
use keyway_control::{AdminState, PassedRequest};
use keyway_fleet::limits::{PUBLISHED_LEN_MAX, REPORT_WITHIN};
use keyway_fleet::{
    Document, GROUPS_TOPIC, Member, MemberAction, Published, PublishedGroups, TOPIC, Version,
};
use keyway_tls::PeerTls;
use rustix::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Longest turn: how late the control plane hears of other listeners after a reload.
const TURN: Duration = Duration::from_secs(1);

/// How often the member takes what its pools see of their servers.
const OBSERVE_EVERY: Duration = Duration::from_millis(200);

/// Time until a document is applied again that could not be at that moment, as during an upgrade.
const APPLY_AGAIN: Duration = Duration::from_secs(1);

/// Longest turn while the thread waits for an answer before it leaves.
const ANSWER_TURN: Duration = Duration::from_millis(20);

/// Time for leaving the bus at the end.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);

/// How the main thread has applied a document.
type Outcome = Result<Diff, Refusal>;

pub(super) struct Link {
    driver: Driver,
    member: Member,
    about: SharedAbout,
    state_file: PathBuf,
    main: Sender<Wake>,
    applied: (Sender<Outcome>, Receiver<Outcome>),
    /// The document that the main thread was told of, and when it is told again.
    applying: Option<(Document, Option<Time>)>,
    /// The publication that came last: its stamp, and the version in it for this process.
    latest: Option<(Stamp, Version)>,
    measured: Base,
    expiry: Expiry,
    /// The certificates of the bus.
    tls: Option<PeerTls>,
    id: NodeId,
    /// The report whose acknowledgement is awaited.
    report: Option<u64>,
    upstream: Option<NodeId>,
    repeats: Repeats,
    /// Requests of the leader for the admin listener.
    desk: Desk,
}

/// Returns which decisions the pools obey while later ones are refused.
fn obeyed(version: Version) -> String {
    match version == Version::default() {
        true => "no decided primaries are known, and the pools ask their servers".to_owned(),
        false => format!("the pools obey the decided primaries {version}"),
    }
}

fn settings(control: &ControlConfig, tokens: Tokens) -> Result<Settings> {
    let mut settings = Settings::of(control.id);
    (settings.place, settings.incarnation) = (here(), incarnation());
    settings.upstreams = control.upstreams();
    settings.tokens = tokens;
    // A proxy takes documents and nothing else.
    settings.topics_max = 4;
    settings.topics_len_max = 8 * PUBLISHED_LEN_MAX;
    let faults = settings.faults();
    if !faults.is_empty() {
        bail!("[control]: {}", faults.join("; "));
    }
    Ok(settings)
}

/// Checks everything that an operator can get wrong, and starts nothing.
pub(super) fn check(control: &ControlConfig, tokens: Tokens) -> Result<()> {
    settings(control, tokens)?;
    tls(control, |_| ()).map(drop)
}

fn tls(control: &ControlConfig, warn: impl Fn(&str)) -> Result<Option<PeerTls>> {
    let Some(files) = &control.tls else { return Ok(None) };
    match PeerTls::load(files, &keyway_config::read_file) {
        Ok(loaded) => {
            for fault in loaded.warnings {
                warn(&format!("tls in [control]: {}; {}", fault.what, fault.hint));
            }
            Ok(Some(loaded.tls))
        }
        Err(faults) => {
            let lines = faults.iter().map(|fault| format!("{}; {}", fault.what, fault.hint));
            bail!("tls in [control]: {}", lines.collect::<Vec<_>>().join("\n"))
        }
    }
}

/// The settings of the thread. Everything that an operator can get wrong was checked.
pub(super) struct Start {
    settings: Settings,
    tls: Option<PeerTls>,
    member: Member,
    about: SharedAbout,
    state_file: PathBuf,
    main: Sender<Wake>,
}

impl Start {
    pub fn new(joining: &Joining, main: Sender<Wake>, about: SharedAbout) -> Result<Start> {
        let control = &joining.control;
        let (saved, begun) = (joining.saved.clone(), joining.begun.clone());
        Ok(Start {
            settings: settings(control, joining.secret.tokens()?)?,
            tls: tls(control, |fault| tracing::warn!("{fault}"))?,
            member: Member::new((&control.cluster, control.id), about.get(), saved, begun),
            about,
            state_file: control.state_file.clone(),
            main,
        })
    }
}

impl Link {
    pub fn new(start: Start, state: Arc<dyn AdminState>) -> Result<Link> {
        let Start { settings, tls, mut member, about, state_file, main } = start;
        let id = settings.id;
        member.set_process(settings.incarnation);
        crate::events::want();
        let channels = DriverSettings { tls: tls.clone(), ..DriverSettings::default() };
        let driver = Driver::new(settings, channels).context("no node of the bus")?;
        let desk = Desk::start(state, driver.waker())?;
        let waker = driver.waker();
        about.groups().on_drained(Arc::new(move || {
            let _ = rustix::io::write(&*waker, &1u64.to_ne_bytes());
        }));
        Ok(Link {
            driver,
            member,
            about,
            state_file,
            main,
            applied: channel(),
            applying: None,
            latest: None,
            measured: Base::default(),
            expiry: Expiry::default(),
            tls,
            id,
            report: None,
            upstream: None,
            repeats: Repeats::default(),
            desk,
        })
    }

    pub fn waker(&self) -> Arc<OwnedFd> {
        self.driver.waker()
    }

    /// Runs until it is told to end. A failure of the system ends it too: the process serves on.
    pub fn run(mut self, is_over: &AtomicBool) {
        loop {
            if let Err(error) = self.turn() {
                self.about.groups().release(true);
                tracing::error!(
                    "control: the thread ends: {error}; this process serves on by what it has"
                );
                return;
            }
            // ORDER: the flag itself is the only data
            if is_over.load(Ordering::Relaxed) {
                self.about.groups().release(true);
                return self.leave();
            }
        }
    }

    fn turn(&mut self) -> std::io::Result<()> {
        let now = clock();
        let again = self.applying.as_ref().and_then(|(_, again)| *again);
        let due = self.member.poll_deadline().into_iter().chain(again).min();
        let longest = if self.about.groups().has_any() { OBSERVE_EVERY } else { TURN };
        self.driver.turn(due.map_or(longest, |at| at.since(now)).min(longest))?;
        while let Some(event) = self.driver.poll_event() {
            self.on_event(event);
        }
        while let Ok(outcome) = self.applied.1.try_recv() {
            self.on_applied(outcome);
        }
        self.answer();
        let now = clock();
        self.member.set_about(self.about.get(), now);
        self.about.groups().release(false);
        self.member.note_decisions(self.about.groups().version().revision);
        self.member.observe(self.about.groups().seen(), now);
        self.member.note_slots(self.about.groups().seen_slots(), now);
        self.take_events(now);
        if self.member.poll_deadline().is_some_and(|at| at <= now) {
            self.member.handle_timeout(now);
        }
        if let Some((document, Some(at))) = &self.applying
            && *at <= now
        {
            self.order(document.clone());
        }
        self.carry_out();
        Ok(())
    }

    /// Sends the answers that have come to the leader.
    fn answer(&mut self) {
        while let Some(Answer { to, seq, reply }) = self.desk.poll() {
            // If it cannot be sent, the leader waits for no longer than it has said.
            let _ = self.driver.node().reply(to, seq, ANSWERED, &reply.encode(), clock());
        }
    }

    /// Takes what has happened in this process, for the leader.
    fn take_events(&mut self, now: Time) {
        let mut events = crate::events::take();
        if self.expiry.is_due(now) {
            let unix_seconds = crate::serve::wall_clock().unix_micros / 1_000_000;
            let mut files = self.about.expiries();
            files.extend(by_file(self.tls.iter().map(PeerTls::files)));
            events.extend(self.expiry.look(files, unix_seconds));
        }
        for event in events {
            self.member.note_event(event, now);
        }
    }

    fn leave(mut self) {
        let until = clock() + LEAVE_WITHIN;
        // The end may be what a request has asked for, and its answer is about to come.
        while self.desk.is_busy() && clock() < until {
            if self.driver.turn(ANSWER_TURN).is_err() {
                return;
            }
            self.answer();
        }
        // Queued answers go out first.
        if self.driver.turn(Duration::ZERO).is_err() {
            return;
        }
        self.driver.node().leave(clock());
        while clock() < until {
            while let Some(event) = self.driver.poll_event() {
                if event == Event::Gone {
                    return;
                }
            }
            if self.driver.turn(until.since(clock())).is_err() {
                return;
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        let now = clock();
        match event {
            Event::Push { topic, body, .. } if topic == TOPIC => self.on_document(&body),
            Event::Push { topic, epoch, version, body, .. } if topic == GROUPS_TOPIC => {
                self.on_groups(Stamp { epoch, version }, &body);
            }
            Event::Acked { seq } if self.report == Some(seq) => {
                self.report = None;
                self.member.handle_reported(true, now);
            }
            Event::Failed { seq, .. } if self.report == Some(seq) => {
                self.report = None;
                self.member.handle_reported(false, now);
            }
            Event::Upstream(upstream) => self.on_upstream(upstream),
            Event::Unreached { at, reason, .. } => {
                let why = reason.to_string();
                if self.repeats.is_news(&at.to_string(), &why, now) {
                    let serves = self.serves();
                    tracing::warn!("control: {}; {serves}", not_reached(&at, reason));
                }
            }
            Event::PushConflict { epoch, version, .. } => {
                let version = Version { epoch, revision: version };
                tracing::error!("control: there are two documents {version}; the first one counts");
            }
            Event::Command { from, seq, args } => {
                if let Err(why) = self.on_command(from, seq, args) {
                    let _ = self.driver.node().reply(from, seq, NOT_ANSWERED, &[why], now);
                }
            }
            _ => {}
        }
    }

    /// Has a request of the leader answered. Returns why it is not.
    fn on_command(
        &mut self,
        from: NodeId,
        seq: u64,
        args: Vec<Vec<u8>>,
    ) -> Result<(), &'static str> {
        let request = PassedRequest::decode(args).ok_or("a proxy has no such command")?;
        // Others on the bus have its token, too, and are not obeyed.
        if self.member.leader() != Some(from) {
            return Err("this process answers the leader alone, and has not heard of this one");
        }
        match self.desk.ask(from, seq, request) {
            true => Ok(()),
            false => Err("too many requests wait for an answer: try again"),
        }
    }

    /// Tells the bus that this process has applied its part of a publication, or refused it.
    fn tell_applied(&mut self, version: Version, is_good: bool) {
        let own = Stamp { epoch: version.epoch, version: version.revision };
        let is_latest = |latest: &(Stamp, Version)| latest.1 == version;
        let stamp = self.latest.filter(is_latest).map_or(own, |(stamp, _)| stamp);
        self.driver.node().applied(TOPIC, stamp, is_good, clock());
    }

    fn serves(&self) -> String {
        match self.member.running() {
            Some(version) => format!("this process serves by document {version}"),
            None => "this process serves by its file".to_owned(),
        }
    }

    fn on_upstream(&mut self, upstream: Option<NodeId>) {
        if upstream == self.upstream {
            return;
        }
        self.upstream = upstream;
        match upstream {
            Some(id) => {
                self.repeats.forget();
                tracing::info!("control: connected to {id}");
                self.member.handle_joined(clock());
            }
            None => {
                tracing::warn!("control: no control node is connected; {}", self.serves());
            }
        }
    }

    fn on_document(&mut self, body: &[u8]) {
        let now = clock();
        let published = match Published::decode(body) {
            Ok(published) => published,
            Err(fault) => return tracing::error!("control: {fault}; {}", self.serves()),
        };
        let version = published.document_for(self.id).version;
        let newest = published.stamp();
        let is_first = published.rollout.is_some() && version == newest;
        let stamp = Stamp { epoch: newest.epoch, version: newest.revision };
        match self.member.handle_published(published, now) {
            Ok(is_new) => {
                self.latest = Some((stamp, version));
                let words = if is_first { ", before the others get it" } else { "" };
                match is_new {
                    true => tracing::info!("control: document {version} has come{words}"),
                    // The members of a share alone have something to do.
                    false if self.member.running() == Some(version) => {
                        self.tell_applied(version, true);
                    }
                    false => {}
                }
            }
            Err(refusal) => tracing::error!("control: refused: {refusal}; {}", self.serves()),
        }
    }

    /// Obeys published decisions, then saves them. A primary that is gone is worse than a restart that
    /// knows an earlier one, and a disk may hang.
    fn on_groups(&mut self, stamp: Stamp, body: &[u8]) {
        let now = clock();
        let Some(published) = PublishedGroups::decode(body) else {
            return tracing::error!(
                "control: the decided primaries are not in a form that this version reads"
            );
        };
        let groups = self.about.groups().clone();
        let is_good = match groups.take(&published) {
            Ok(saved) => {
                groups.obey();
                let saved =
                    saved.map(|bytes| state_file::write_decisions(&self.state_file, &bytes));
                match saved {
                    Some(Ok(())) => groups.note_saved(),
                    Some(Err(why)) if self.repeats.is_news("groups", &why, now) => {
                        tracing::error!("control: the decided primaries cannot be saved: {why}");
                    }
                    Some(Err(_)) | None => {}
                }
                self.member.note_decisions(groups.version().revision);
                self.member.observe(groups.seen(), now);
                self.member.note_slots(groups.seen_slots(), now);
                true
            }
            Err(refusal) => {
                let obeyed = obeyed(groups.version());
                tracing::error!("control: refused: {refusal}; {obeyed}");
                false
            }
        };
        self.driver.node().applied(GROUPS_TOPIC, stamp, is_good, now);
    }

    /// Orders the main thread to serve by a document.
    fn order(&mut self, document: Document) {
        let ordered = Ordered {
            document: document.clone(),
            answer: self.applied.0.clone(),
            wake: self.driver.waker(),
        };
        self.applying = Some((document, None));
        // If the main thread has ended, this one is about to.
        let _ = self.main.send(Wake::Document(ordered));
    }

    fn on_applied(&mut self, outcome: Outcome) {
        let Some((document, _)) = self.applying.take() else { return };
        let outcome = match outcome {
            Err(refusal) if is_passing(&refusal) => {
                self.applying = Some((document, Some(clock() + APPLY_AGAIN)));
                return;
            }
            Ok(_) => {
                tracing::info!("control: this process serves by document {}", document.version);
                Ok(())
            }
            Err(refusal) => {
                tracing::error!(
                    "control: document {} cannot be applied: {refusal}; {}",
                    document.version,
                    self.serves()
                );
                Err(refusal.to_string())
            }
        };
        self.member.handle_applied(outcome, clock());
    }

    /// Carries out the orders of the machine.
    fn carry_out(&mut self) {
        while let Some(action) = self.member.poll_action() {
            let now = clock();
            match action {
                MemberAction::Save(saved) => {
                    let outcome = state_file::write(&self.state_file, &saved);
                    if let Err(why) = &outcome
                        && self.repeats.is_news("state", why, now)
                    {
                        tracing::error!(
                            "control: document {} is not served by, for it cannot be saved: {why}",
                            saved.newest.version
                        );
                    }
                    self.member.handle_saved(outcome, now);
                }
                MemberAction::Apply(document) => self.order(document),
                MemberAction::Applied { version, is_good } => {
                    self.tell_applied(version, is_good);
                }
                MemberAction::Measure { rollout, revision } => {
                    let counted = self.about.counted();
                    let measured = self.measured.measure(counted.as_ref(), (rollout, revision));
                    self.member.handle_measured(measured, now);
                }
                MemberAction::Report { to, body } => {
                    let options =
                        SendOptions { ack_within: Some(REPORT_WITHIN), no_upstream: false };
                    match self.driver.node().send(to, &body, options, now) {
                        Ok(seq) => self.report = Some(seq),
                        Err(_) => self.member.handle_reported(false, now),
                    }
                }
                MemberAction::Tell { to, body } => {
                    // It is told again with the next document.
                    let _ = self.driver.node().send(to, &body, SendOptions::default(), now);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_tells_which_decisions_are_obeyed() {
        assert!(obeyed(Version::default()).contains("no decided primaries are known"));
        let known = obeyed(Version { epoch: 2, revision: 7 });
        assert_eq!(known, "the pools obey the decided primaries 2.7");
    }
}
