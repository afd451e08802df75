use super::departures::LINGER;
use super::*;
use keyway_base::Clock;
use keyway_net::{Accept, Address, ListenerIndex, Recv, Send};
use keyway_proxy::Identity;
use keyway_proxy::local::ClientEntry;
use keyway_users::{User, Users};

/// Sockets on which nothing is ever received. There is mail once.
#[derive(Default)]
struct Silence {
    has_mail: bool,
    closed: Vec<Socket>,
    now: Time,
    /// True if a direction can be ended without closing the socket.
    finishes: bool,
}

impl Io for Silence {
    fn clock(&mut self) -> Clock {
        Clock { now: self.now, unix_micros: 0 }
    }
    fn poll(&mut self, _wait: Option<Duration>, events: &mut Vec<Event>) -> bool {
        if std::mem::take(&mut self.has_mail) {
            events.push(Event::Mail);
        }
        false
    }
    fn accept(&mut self, _listener: ListenerIndex) -> Accept {
        Accept::Empty
    }
    fn pause_accepting(&mut self, _paused: bool) {}
    fn stop_listening(&mut self) {}
    fn watch(&mut self, _socket: Socket, _token: Token) -> bool {
        true
    }
    fn connect(&mut self, _address: &Address, _token: Token) {}
    fn cancel_connect(&mut self, _token: Token) {}
    fn recv(&mut self, _socket: Socket) -> Recv<'_> {
        Recv::Empty
    }
    fn send(&mut self, _socket: Socket, bytes: &[u8]) -> Send {
        Send::Taken(bytes.len())
    }
    fn release(&mut self, socket: Socket) -> Socket {
        socket
    }
    fn finish(&mut self, _socket: Socket) -> bool {
        self.finishes
    }
    fn close(&mut self, socket: Socket) {
        self.closed.push(socket);
    }
}

#[test]
fn a_client_killed_while_it_is_handed_over_is_closed_by_who_adopts_it() {
    let (plan, cells) = crate::core::tests::plan_with(|_| ());
    let mailbox = Mailbox::new(4).unwrap();
    let mailer = mailbox.mailer();
    let entry =
        |id: u64| ClientEntry::new(&Identity::new(id, true, Time(0)), Arc::default(), 1, 0, id);
    [1, 2].into_iter().for_each(|id| plan.clients.insert(id, entry(id)));
    let mut worker = Worker::new(Silence::default(), Arc::clone(&plan), cells, mailbox, 1);
    // No worker has the client when all workers are told.
    worker.kill(&[1]);
    for id in [1, 2] {
        let adopted = Adopted {
            socket: Socket(id as _),
            pool: 0,
            listener: 0,
            identity: Identity::new(id, true, Time(0)),
        };
        assert!(mailer.post(Mail::Adopt(Box::new(adopted))).is_ok());
    }
    worker.io_mut().has_mail = true;
    assert!(worker.turn(true));
    assert_eq!(worker.io_mut().closed, [Socket(1)]);
    assert!(plan.clients.get(1).is_none() && !plan.clients.is_killed(1));
}

#[test]
fn a_client_adopted_by_a_draining_worker_does_not_hold_it_up() {
    let (plan, cells) = crate::core::tests::plan_with(|_| ());
    let mailbox = Mailbox::new(4).unwrap();
    let mailer = mailbox.mailer();
    let mut worker = Worker::new(Silence::default(), plan, cells, mailbox, 1);
    let adopted = Adopted {
        socket: Socket(7),
        pool: 0,
        listener: 0,
        identity: Identity::new(1, true, Time(0)),
    };
    assert!(mailer.post(Mail::Drain).is_ok());
    assert!(mailer.post(Mail::Adopt(Box::new(adopted))).is_ok());
    worker.io_mut().has_mail = true;
    assert!(!worker.turn(true), "there is no further turn");
    assert_eq!(worker.io_mut().closed, [Socket(7)]);
}

/// Returns a worker that has adopted these clients, and then was told to drain.
fn draining(plan: &Arc<Plan>, cells: WorkerCells, ids: std::ops::Range<u64>) -> Worker<Silence> {
    let mailbox = Mailbox::new(64).unwrap();
    let mailer = mailbox.mailer();
    let mut worker = Worker::new(Silence::default(), Arc::clone(plan), cells, mailbox, 1);
    for id in ids {
        let identity = Identity::new(id, true, Time(0));
        let socket = Socket(id as _);
        let adopted = Adopted { socket, pool: 0, listener: 0, identity };
        assert!(mailer.post(Mail::Adopt(Box::new(adopted))).is_ok());
    }
    assert!(mailer.post(Mail::Drain).is_ok());
    worker.io_mut().has_mail = true;
    worker.io_mut().finishes = true;
    worker
}

#[test]
fn a_worker_is_drained_when_nobody_lingers() {
    let (plan, cells) = crate::core::tests::plan_with(|_| ());
    let mut worker = draining(&plan, cells, 1..4);
    assert!(worker.turn(true), "they may be sending");
    assert!(!worker.core.has_clients() && worker.io_mut().closed.is_empty());
    assert_eq!(worker.core.plane.cells.lingering.get(), 3);
    worker.io_mut().now = Time(0) + (LINGER - Duration::from_millis(1));
    assert!(worker.turn(true));
    assert!(worker.io_mut().closed.is_empty());
    worker.io_mut().now = Time(0) + LINGER + UPKEEP_EVERY;
    assert!(!worker.turn(true), "that is over");
    assert_eq!(worker.io_mut().closed, [1, 2, 3].map(Socket));
    assert_eq!(worker.core.plane.cells.lingering.get(), 0);
}

#[test]
fn an_idle_client_is_closed_whatever_state_its_session_is_in() {
    let (mut plan, cells) = crate::core::tests::plan_with(|_| ());
    let own = Arc::get_mut(&mut plan).expect("nobody else has it");
    own.listeners[0].access.idle_timeout = Some(Duration::from_secs(1));
    let mailbox = Mailbox::new(8).unwrap();
    let mailer = mailbox.mailer();
    let mut worker = Worker::new(Silence::default(), plan, cells, mailbox, 1);
    for id in 1..=5 {
        let identity = Identity::new(id, true, Time(0));
        let socket = Socket(id as _);
        let adopted = Adopted { socket, pool: 0, listener: 0, identity };
        assert!(mailer.post(Mail::Adopt(Box::new(adopted))).is_ok());
    }
    worker.io_mut().has_mail = true;
    assert!(worker.turn(true));
    for key in worker.core.sessions.keys() {
        let session = worker.core.sessions.get_mut(key).expect("it is there");
        match session.identity.id {
            1 => session.closing = true,
            2 => session.ended = true,
            3 => session.hung_up = true,
            4 => session.send_blocked = true,
            _ => {}
        }
        // This reply never arrives.
        session.busy.insert(Box::default()).order.reserve();
    }
    worker.io_mut().now = Time(0) + Duration::from_secs(2);
    assert!(worker.turn(true));
    let mut closed = worker.io_mut().closed.clone();
    closed.sort_by_key(|socket| socket.0);
    assert_eq!(closed, [1, 2, 3, 4].map(Socket), "a reply may still come to the last");
    worker.io_mut().now = Time(0) + Duration::from_secs(3600);
    assert!(worker.turn(true));
    assert_eq!(worker.io_mut().closed.last(), Some(&Socket(5)), "none takes so long");
    assert!(worker.leftovers().is_empty());
}

#[test]
fn who_has_lingered_longest_makes_room() {
    let (mut plan, cells) = crate::core::tests::plan_with(|_| ());
    Arc::get_mut(&mut plan).expect("nobody else has it").limits.clients_max = 1;
    let mut worker = draining(&plan, cells, 1..21);
    assert!(worker.turn(true));
    let lingering = worker.core.plane.cells.lingering.get();
    let closed = worker.io_mut().closed.clone();
    assert_eq!((closed.len(), lingering), (3, 17), "one client, and sixteen more");
    assert_eq!(closed, [1, 2, 3].map(Socket));
}

#[test]
fn a_client_handed_over_while_users_change_has_the_rights_of_now() {
    let users = |all: &[(&str, &str)]| {
        let user = |(name, rules): &(&str, &str)| User::new(name, rules).expect("rules");
        Arc::new(Users::new(all.iter().map(|it| Arc::new(user(it))).collect()))
    };
    let before = users(&[("less", "nopass +@all ~*"), ("gone", "nopass +@all ~*")]);
    let (mut plan, cells) = crate::core::tests::plan_with(|_| ());
    let own = Arc::get_mut(&mut plan).expect("nobody else has it");
    own.listeners[0].users = users(&[("less", "nopass +get ~a")]);
    let mailbox = Mailbox::new(4).unwrap();
    let mailer = mailbox.mailer();
    let mut worker = Worker::new(Silence::default(), plan, cells, mailbox, 1);
    for (id, name) in [(1, "less"), (2, "gone")] {
        let mut identity = Identity::new(id, false, Time(0));
        identity.admit(before.get(name.as_bytes()).expect("it was there"), &before);
        assert!(!identity.is_free);
        let adopted = Adopted { socket: Socket(id as _), pool: 0, listener: 0, identity };
        assert!(mailer.post(Mail::Adopt(Box::new(adopted))).is_ok());
    }
    worker.io_mut().has_mail = true;
    assert!(worker.turn(true));
    assert_eq!(worker.io_mut().closed, [Socket(2)], "its user is gone");
    let keys = worker.core.sessions.keys();
    let user = worker.core.session(keys[0]).and_then(|it| it.identity.user.clone());
    assert!(user.is_some_and(|user| user.rules().ends_with("+get")));
}
