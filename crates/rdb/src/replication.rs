//! Replication: how a replica and its primary agree (PSYNC), and the stream of commands that
//! follows. Both ends are values without sockets.
//!
//! ```text
//!  replica                                   primary
//!  ReplicaHandshake ── PING, AUTH, REPLCONF ──► ReplicaProfile
//!                   ── PSYNC id offset ───────► Request, History
//!                   ◄─ +CONTINUE │ +FULLRESYNC, $length or $EOF:mark
//!  Transfer, Reader ◄─ the snapshot ─────────── Writer
//!  CommandStream    ◄─ commands ───────────────
//! ```
//! An offset counts the bytes of the stream of commands. A replica that has processed 100 bytes is
//! at offset 100 and asks for byte 101.
//!
//! Sources of the protocol: `src/replication.c` of Redis 7.0 and of Valkey 9.

mod commands;
mod id;
mod primary;
mod replica;
mod transfer;

pub use commands::{Command, CommandFault, CommandKind, CommandStep, CommandStream, CommandWrong};
pub use id::ReplicationId;
pub use primary::{
    Answer, Decision, FullReason, History, ReplconfFault, ReplicaProfile, Request, RequestWrong,
    write_continue, write_full_resync, write_length, write_mark,
};
pub use replica::{
    HandshakeEvent, HandshakeFault, HandshakeStage, HandshakeStep, HandshakeWrong,
    ReplicaHandshake, ReplicaSettings, Resume,
};
pub use transfer::{Body, MARK_LEN, Transfer, TransferStep};
