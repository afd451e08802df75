//! `keyway bus`: runs a node of the bus, and asks nodes of its tree.

mod bench;
mod guest;
mod metrics;
mod node;
mod repeats;
mod signals;
mod words;

use anyhow::Result;
use bench::{Bench, bench, take_part};
use clap::{Args, Subcommand};
use guest::Guest;
use keyway_bus::{MESSAGE_LEN_MAX, NodeId, TOPIC_BODY_MAX, Url};
use std::path::PathBuf;
use std::process::ExitCode;

pub use metrics::{Failures, figures, note};
pub use node::check;
pub use repeats::Repeats;
pub use signals::{Signalled, watch_signals};
pub use words::{not_let_in, not_reached};

/// Prints a line. For functions that return a `Result` of [`anyhow`].
macro_rules! say {
    ($($part:tt)*) => { $crate::cli::print(format!("{}\n", format_args!($($part)*)).as_bytes()) };
}
pub(crate) use say;

/// What can be done on the bus.
#[derive(Debug, Subcommand)]
pub enum Bus {
    /// Join the bus as a node until SIGTERM or SIGINT; then leave in order. Prints what happens.
    ///
    /// A line for each: `ready ID ADDRESSES`; `peer ID dialled|accepted LABELS` and `lost ID: why` of
    /// connections; `unreached ADDRESS: why` of an address that was dialled, `refused ID: why` of a dial that came
    /// to nothing, `refused ID from WHERE: why` of a dialler (ID is `none` of one that has not proved any, WHERE an
    /// address, or a process and its user), `refused COUNT more` where there were too many of them; `joined ID` and
    /// `left ID` of nodes below; `unshared ADDRESS: why` of one of shared memory that is spoken to over its socket;
    /// `upstream ID|none`; `message FROM TEXT`; `push TOPIC EPOCH VERSION LENGTH bytes`,
    /// `withdrawn TOPIC EPOCH VERSION`, `conflict TOPIC EPOCH VERSION` of two bodies that are one version,
    /// `unkept TOPIC EPOCH VERSION: why` of one that there is no room for; `published TOPIC EPOCH VERSION LENGTH
    /// bytes` by command; `metrics URL`; `cannot accept: why`, as for want of descriptors; `left out COUNT lines: why`
    /// of those that could not be written or were not read as fast. What is unreached or refused time and again for
    /// the same reason is said once a minute. Lines have at most 4096 bytes; longer ones end with `…`.
    ///
    /// On SIGHUP the files of its certificates are read again: `certificates read again`, or what is wrong with them.
    ///
    /// `keyway check FILE` tells whether its file is right.
    Node {
        /// Its file: see docs/bus.md.
        file: PathBuf,
    },
    /// Send a message to a node and wait for word of its arrival.
    Send {
        #[command(flatten)]
        through: Through,
        /// The node it is for, as z1.proxy.7.3.
        node: NodeId,
        /// What it says.
        #[arg(required_unless_present = "file")]
        text: Option<String>,
        /// A file with what it says, at most 64 MiB; - stands for standard input.
        #[arg(long, conflicts_with = "text")]
        file: Option<PathBuf>,
    },
    /// Ask a node whether it is there, and how long that takes.
    Ping {
        #[command(flatten)]
        through: Through,
        /// The node; without one, that which is connected to.
        node: Option<NodeId>,
        /// How often.
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
    },
    /// Print a node and all below it, each with its upstream and its labels.
    ///
    /// A line for each node: its id, the id of its upstream, and its labels as `name=value` with commas
    /// between. The first is the node that was asked; a root has upstream none. Guests, this
    /// command among them, are nodes as well.
    Tree {
        #[command(flatten)]
        through: Through,
        /// The node; without one, that which is connected to.
        node: Option<NodeId>,
    },
    /// Publish a version of a topic to a node and all below it.
    ///
    /// The node must have `publish = true` in its file. The version is the one after the latest of that topic
    /// that the node has, or one that is connected below it, and is printed as `TOPIC EPOCH VERSION`.
    Publish {
        #[command(flatten)]
        through: Through,
        /// The topic: 1 to 63 letters and digits of ASCII, and -_./:
        topic: String,
        /// A file with what is to be published, almost 64 MiB at most; - stands for standard input.
        file: PathBuf,
        /// The node; without one, that which is connected to.
        #[arg(long)]
        node: Option<NodeId>,
        /// The epoch, which wins over every version of an epoch before; without one, the latest there is.
        #[arg(long)]
        epoch: Option<u64>,
    },
    /// Print each version of a topic as it comes, until SIGINT.
    ///
    /// A line for each, `TOPIC EPOCH VERSION LENGTH`, beginning with the latest that there is. While the node
    /// is away it is looked for; standard error says so.
    Watch {
        #[command(flatten)]
        through: Through,
        /// The topic; all without one.
        topic: Option<String>,
        /// Print what each version says behind its line.
        #[arg(long)]
        body: bool,
        /// End after so many.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        count: Option<u32>,
    },
    /// Print the topics a node has, and who has not applied what it published.
    ///
    /// `topic NAME EPOCH VERSION LENGTH PUBLISHER` for each, and behind what this node itself published
    /// `lags ID EPOCH VERSION` for each node below that has not applied it, with what it has applied.
    Topics {
        #[command(flatten)]
        through: Through,
        /// The node; without one, that which is connected to.
        node: Option<NodeId>,
    },
    /// Measure what the channels carry: messages filled, sent, received and checked.
    ///
    /// A receiver and each sender are processes; with two cores or more the receiver has one, and
    /// the senders share another. Every message is filled, copied in and out and looked at byte by
    /// byte; messages lost, doubled, out of order or changed are counted, and end the command with
    /// status 1. Round trips are measured behind that.
    Bench(Bench),
    /// A process of the benchmark.
    #[command(hide = true)]
    BenchEnd {
        /// What it is to do.
        order: String,
    },
    /// Print what a node has counted.
    ///
    /// First `NAME COUNT` lines. Of its start until now: sent (messages and commands of its own), delivered
    /// (messages for it), relayed (frames of others), refused (messages of others that could not go on),
    /// failed (its own), untold_failures (nobody could be told), late_answers (nobody waited any more),
    /// nodes_over (nodes below that there was no room for), ids_twice (two nodes of one id), unproven (failures
    /// of messages that did not go that way), stalled (messages in parts that stood still), strangers_refused
    /// (who was not let in), upstream_changes, pushes_full and pushes_delta (versions sent whole, and as what
    /// changed). Of now: nodes_below and nodes_below_bytes (what is known of them), parked_failures (wait for a way).
    ///
    /// Then a line for each connection: `peer ID RTT_US QUEUED BYTES_IN BYTES_OUT`: the other node, or none
    /// before it has registered; the round trip, smoothed, in microseconds; bytes that wait to be sent; bytes
    /// that came and went.
    Stats {
        #[command(flatten)]
        through: Through,
        /// The node; without one, that which is connected to.
        node: Option<NodeId>,
    },
}

/// How to come to the bus.
#[derive(Debug, Args)]
pub struct Through {
    /// Where a node listens; several are tried in their order.
    #[arg(long, required = true, value_name = "URL")]
    at: Vec<Url>,
    /// A file with the token of the bus.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Authorities of the bus's certificates, for a bus with TLS.
    #[arg(long, value_name = "FILE", requires_all = ["cert_file", "key_file"])]
    ca_file: Option<PathBuf>,
    /// A certificate made out to guest.bus.keyway.
    #[arg(long, value_name = "FILE", requires = "ca_file")]
    cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", requires = "ca_file")]
    key_file: Option<PathBuf>,
    /// How long to wait for an answer, in seconds.
    #[arg(long, default_value_t = 5, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    within: u64,
}

/// Runs the command that was typed.
pub fn run(bus: Bus) -> Result<ExitCode> {
    match bus {
        Bus::Node { file } => node::run(&file),
        Bus::Bench(arguments) => bench(arguments),
        Bus::BenchEnd { order } => take_part(&order),
        Bus::Send { through, node, text, file } => {
            let body = match (text, file) {
                (Some(text), _) => text.into_bytes(),
                (None, file) => {
                    guest::read_body(&file.unwrap_or_default(), "message", MESSAGE_LEN_MAX)?
                }
            };
            Guest::join(&through)?.send(node, &body)
        }
        Bus::Ping { through, node, count } => Guest::join(&through)?.ping(node, count),
        Bus::Tree { through, node } => Guest::join(&through)?.ask(node, "bus.tree"),
        Bus::Stats { through, node } => Guest::join(&through)?.ask(node, "bus.stats"),
        Bus::Topics { through, node } => Guest::join(&through)?.ask(node, "bus.topics"),
        Bus::Publish { through, topic, file, node, epoch } => {
            let body = guest::read_body(&file, "topic", TOPIC_BODY_MAX)?;
            Guest::join(&through)?.publish(node, &topic, epoch, &body)
        }
        Bus::Watch { through, topic, body, count } => {
            Guest::join(&through)?.watch(topic.as_deref(), body, count)
        }
    }
}

/// Returns a number that grows with every start: see [`keyway_bus::Settings::incarnation`].
pub fn incarnation() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let millis = now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000;
    millis << 20
}
