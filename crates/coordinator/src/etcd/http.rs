//! Requests to etcd's gateway, over connections that are kept.

use super::Credentials;
use crate::clock::Moment;
use crate::coordinator::Patience;
use crate::limits::BODY_LEN_MAX;
use crate::net::{Dialer, in_words};
use crate::{Fault, FaultKind};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::time::Duration;

/// Connections that are kept for later requests. Watches have their own.
const IDLE_MAX: usize = 8;

/// Pause between two tries, so that an etcd that refuses at once is not flooded.
const PAUSE: Duration = Duration::from_millis(50);

/// What may be sent again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    /// Everything: executing it twice does no harm.
    Always,
    /// Only what was certainly not executed.
    Unsent,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The lease does not exist, says this endpoint.
    NoLease(String),
    /// The revision was compacted.
    Compacted,
    /// Something else.
    Fault(Fault),
}

impl Refusal {
    pub(super) fn into_fault(self) -> Fault {
        match self {
            Refusal::Fault(fault) => fault,
            Refusal::NoLease(place) => Fault::session_lost(place, "request"),
            Refusal::Compacted => {
                Fault::new(FaultKind::Busy, "etcd", "request", "the revision was compacted")
            }
        }
    }
}

/// One try that failed.
enum Failure {
    /// Nothing was sent, or etcd says that it did nothing and another may.
    NotExecuted(Fault),
    /// It may have been executed.
    Maybe(Fault),
    /// etcd does not know our token any more.
    TokenExpired(Fault),
    /// etcd did nothing, and will not.
    Refused(Refusal),
}

pub(super) type Sender = SendRequest<Full<Bytes>>;

#[derive(Debug)]
pub(super) struct Http {
    dialer: Dialer,
    user: Option<Credentials>,
    patience: Patience,
    token: Mutex<Option<String>>,
    idle: Mutex<Vec<(usize, Sender)>>,
}

impl Http {
    pub(super) fn new(dialer: Dialer, user: Option<Credentials>, patience: Patience) -> Http {
        let (token, idle) = (Mutex::new(None), Mutex::new(Vec::new()));
        Http { dialer, user, patience, token, idle }
    }

    pub(super) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// Sends a request until an endpoint answers, or the time is over.
    pub(super) async fn call(
        &self,
        path: &str,
        body: &Value,
        tried: &'static str,
        retry: Retry,
        until: Moment,
    ) -> Result<Value, Refusal> {
        let body = Bytes::from(body.to_string());
        let mut is_second_token = false;
        loop {
            let at = self.dialer.preferred();
            let failure = match self.try_once(at, path, body.clone(), tried, until).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let fault = match failure {
                Failure::Refused(refusal) => return Err(refusal),
                Failure::TokenExpired(fault) if is_second_token => {
                    return Err(Refusal::Fault(fault));
                }
                Failure::TokenExpired(_) => {
                    is_second_token = true;
                    continue;
                }
                Failure::Maybe(fault) if retry == Retry::Unsent => {
                    self.dialer.leave(at);
                    return Err(Refusal::Fault(fault.with_kind(FaultKind::Unknown)));
                }
                Failure::Maybe(fault) | Failure::NotExecuted(fault) => fault,
            };
            self.dialer.leave(at);
            if until.left() <= PAUSE {
                return Err(Refusal::Fault(fault));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_once(
        &self,
        at: usize,
        path: &str,
        body: Bytes,
        tried: &'static str,
        until: Moment,
    ) -> Result<Value, Failure> {
        let token = match self.token(at, until).await {
            Ok(token) => token,
            Err(failure) => return Err(failure),
        };
        let timeout = self.patience.request.min(until.left());
        let (response, sender) = self.send(at, path, body, token, tried, timeout).await?;
        let status = response.status();
        let collect = Limited::new(response.into_body(), BODY_LEN_MAX).collect();
        let late = |what: &str| Failure::Maybe(self.fault(at, tried, what));
        let body = match tokio::time::timeout(timeout, collect).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                let what = format!("the answer has more than {BODY_LEN_MAX} bytes");
                let place = self.dialer.place(at);
                let fault = Fault::new(FaultKind::TooLarge, place, tried, what);
                return Err(Failure::Refused(Refusal::Fault(fault)));
            }
            Ok(Err(_)) => return Err(late("the connection was lost within the answer")),
            Err(_) => return Err(late("the answer did not end in time")),
        };
        self.keep(at, sender);
        self.read(at, status, &body, tried)
    }

    /// Reads an answer.
    fn read(
        &self,
        at: usize,
        status: StatusCode,
        body: &[u8],
        tried: &'static str,
    ) -> Result<Value, Failure> {
        let reply: Option<Value> = serde_json::from_slice(body).ok();
        let Some(reply) = reply.filter(Value::is_object) else {
            let what = format!("the answer is not etcd's (HTTP status {status})");
            return Err(Failure::Maybe(self.fault(at, tried, &what)));
        };
        if status.is_success() && reply["error"].is_null() {
            return Ok(reply);
        }
        let place = self.dialer.place(at);
        Err(self.failure(place, status, &reply, tried))
    }

    /// Reads a refusal: a code of gRPC with a text.
    fn failure(
        &self,
        place: String,
        status: StatusCode,
        reply: &Value,
        tried: &'static str,
    ) -> Failure {
        let text = [&reply["message"], &reply["error"], &reply["error"]["message"]]
            .into_iter()
            .find_map(Value::as_str)
            .unwrap_or("no reason given");
        // What etcd says is shown, but for its length.
        let text: String = text.chars().take(200).collect();
        let code = [&reply["code"], &reply["error"]["grpc_code"], &reply["error"]["code"]];
        let code = code.into_iter().find_map(Value::as_u64).unwrap_or(0);
        let of = |kind| Fault::new(kind, place.clone(), tried, text.clone());
        let refused = |kind| Failure::Refused(Refusal::Fault(of(kind)));
        match code {
            _ if text.contains("invalid auth token") || text.contains("old auth store") => {
                *self.token.lock() = None;
                Failure::TokenExpired(of(FaultKind::Denied))
            }
            _ if text.contains("auth store is old") => {
                *self.token.lock() = None;
                Failure::TokenExpired(of(FaultKind::Denied))
            }
            5 if text.contains("lease not found") => Failure::Refused(Refusal::NoLease(place)),
            11 if text.contains("compacted") => Failure::Refused(Refusal::Compacted),
            7 | 16 => refused(FaultKind::Denied),
            3 if text.contains("user name is empty") || text.contains("authentication failed") => {
                refused(FaultKind::Denied)
            }
            3 if text.contains("too large") => refused(FaultKind::TooLarge),
            8 if text.contains("space exceeded") => refused(FaultKind::Full),
            8 if text.contains("too many requests") => Failure::NotExecuted(of(FaultKind::Busy)),
            3 | 5 | 9 | 11 | 12 => refused(FaultKind::Damaged),
            _ if status == StatusCode::NOT_FOUND => refused(FaultKind::Damaged),
            // Of the rest nobody says whether it was executed.
            _ => Failure::Maybe(of(FaultKind::Unreachable)),
        }
    }

    /// Returns the token of our user, if there is a user.
    async fn token(&self, at: usize, until: Moment) -> Result<Option<String>, Failure> {
        let Some(user) = &self.user else { return Ok(None) };
        if let Some(token) = self.token.lock().clone() {
            return Ok(Some(token));
        }
        let tried = "log in";
        let body = json!({"name": user.name, "password": user.password}).to_string();
        let timeout = self.patience.request.min(until.left());
        let not_executed = |failure| match failure {
            Failure::Maybe(fault) => Failure::NotExecuted(fault),
            Failure::TokenExpired(fault) => Failure::Refused(Refusal::Fault(fault)),
            failure => failure,
        };
        let path = "/v3/auth/authenticate";
        let sent = self.send(at, path, Bytes::from(body), None, tried, timeout).await;
        let (response, sender) = sent.map_err(not_executed)?;
        let status = response.status();
        let collect = Limited::new(response.into_body(), BODY_LEN_MAX).collect();
        let Ok(Ok(body)) = tokio::time::timeout(timeout, collect).await else {
            return Err(Failure::NotExecuted(self.fault(at, tried, "no answer")));
        };
        self.keep(at, sender);
        let reply = self.read(at, status, &body.to_bytes(), tried).map_err(not_executed)?;
        let Some(token) = reply["token"].as_str() else {
            return Err(Failure::NotExecuted(self.fault(at, tried, "the answer has no token")));
        };
        *self.token.lock() = Some(token.to_owned());
        Ok(Some(token.to_owned()))
    }

    /// Sends a request whose answer lasts, on a connection of its own.
    pub(super) async fn open(
        &self,
        at: usize,
        path: &str,
        body: &Value,
        tried: &'static str,
    ) -> Result<(Response<Incoming>, Sender), Fault> {
        let until = Moment::now().after(self.patience.call);
        let fault = |failure| match failure {
            Failure::NotExecuted(fault) | Failure::Maybe(fault) => fault,
            Failure::TokenExpired(fault) => fault,
            Failure::Refused(refusal) => refusal.into_fault(),
        };
        let token = self.token(at, until).await.map_err(fault)?;
        let sender = self.connect(at).await?;
        let request = self.request(at, path, Bytes::from(body.to_string()), token)?;
        let timeout = self.patience.request;
        self.send_on(sender, at, request, tried, timeout)
            .await
            .map_err(|(failure, _)| fault(failure))
    }

    /// Gets a page of another version of the API from an endpoint that answers. Users are not sent.
    pub(super) async fn page(
        &self,
        path: &str,
        tried: &'static str,
        until: Moment,
    ) -> Result<(StatusCode, Value), Fault> {
        loop {
            let at = self.dialer.preferred();
            let fault = match self.page_of(at, path, tried, until).await {
                Ok(page) => return Ok(page),
                Err(fault) => fault,
            };
            self.dialer.leave(at);
            if fault.kind() != FaultKind::Unreachable || until.left() <= PAUSE {
                return Err(fault);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn page_of(
        &self,
        at: usize,
        path: &str,
        tried: &'static str,
        until: Moment,
    ) -> Result<(StatusCode, Value), Fault> {
        let mut sender = self.connect(at).await?;
        let request = Request::get(path).header(HOST, self.dialer.authority(at));
        let request = request
            .body(Full::new(Bytes::new()))
            .map_err(|_| self.fault(at, tried, "the request cannot be written"))?;
        let timeout = self.patience.request.min(until.left());
        let answered = async {
            let response = sender.send_request(request).await.ok()?;
            let status = response.status();
            let body = Limited::new(response.into_body(), BODY_LEN_MAX).collect().await.ok()?;
            Some((status, serde_json::from_slice(&body.to_bytes()).unwrap_or_default()))
        };
        let answered = tokio::time::timeout(timeout, answered).await;
        let late = || format!("no answer within {}", in_words(timeout));
        answered
            .map_err(|_| self.fault(at, tried, &late()))?
            .ok_or_else(|| self.fault(at, tried, "the connection was lost"))
    }

    /// Forgets the token: etcd has refused it within a stream.
    pub(super) fn forget_token(&self) {
        *self.token.lock() = None;
    }

    async fn send(
        &self,
        at: usize,
        path: &str,
        body: Bytes,
        token: Option<String>,
        tried: &'static str,
        timeout: Duration,
    ) -> Result<(Response<Incoming>, Sender), Failure> {
        let request = self
            .request(at, path, body, token)
            .map_err(|fault| Failure::Refused(Refusal::Fault(fault)))?;
        let mut request = Some(request);
        // A kept connection may be closed: what was not sent goes out on the next.
        while let Some(sender) = self.kept(at) {
            let Some(one) = request.take() else { break };
            match self.send_on(sender, at, one, tried, timeout).await {
                Ok(answered) => return Ok(answered),
                Err((_, Some(unsent))) => request = Some(unsent),
                Err((failure, None)) => return Err(failure),
            }
        }
        let sender = self.connect(at).await.map_err(Failure::NotExecuted)?;
        let Some(request) = request else {
            return Err(Failure::Maybe(self.fault(at, tried, "the connection was lost")));
        };
        let sent = self.send_on(sender, at, request, tried, timeout).await;
        sent.map_err(|(failure, _)| failure)
    }

    /// Sends on one connection. A request that was not sent comes back.
    async fn send_on(
        &self,
        mut sender: Sender,
        at: usize,
        request: Request<Full<Bytes>>,
        tried: &'static str,
        timeout: Duration,
    ) -> Result<(Response<Incoming>, Sender), (Failure, Option<Request<Full<Bytes>>>)> {
        let sent = tokio::time::timeout(timeout, sender.try_send_request(request)).await;
        match sent {
            Ok(Ok(response)) => Ok((response, sender)),
            Ok(Err(mut error)) => {
                let unsent = error.take_message();
                let fault = self.fault(at, tried, "the connection was lost");
                let failure = match unsent {
                    Some(_) => Failure::NotExecuted(fault),
                    None => Failure::Maybe(fault),
                };
                Err((failure, unsent))
            }
            Err(_) => {
                let what = format!("no answer within {}", in_words(timeout));
                Err((Failure::Maybe(self.fault(at, tried, &what)), None))
            }
        }
    }

    async fn connect(&self, at: usize) -> Result<Sender, Fault> {
        let socket = self.dialer.dial(at).await?;
        let shaken = http1::handshake(TokioIo::new(socket)).await;
        let (sender, connection) =
            shaken.map_err(|error| self.fault(at, "connect", &error.to_string()))?;
        // It ends with its sender.
        tokio::spawn(connection);
        Ok(sender)
    }

    fn request(
        &self,
        at: usize,
        path: &str,
        body: Bytes,
        token: Option<String>,
    ) -> Result<Request<Full<Bytes>>, Fault> {
        let mut builder = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, self.dialer.authority(at))
            .header(CONTENT_TYPE, "application/json")
            // A member that has no leader ends watches instead of telling nothing.
            .header("Grpc-Metadata-hasleader", "true");
        if let Some(token) = token {
            builder = builder.header(AUTHORIZATION, token);
        }
        let request = builder.body(Full::new(body));
        request.map_err(|_| self.fault(at, "request", "the request cannot be written"))
    }

    fn kept(&self, at: usize) -> Option<Sender> {
        let mut idle = self.idle.lock();
        idle.retain(|(_, sender)| !sender.is_closed());
        let index = idle.iter().rposition(|(of, _)| *of == at)?;
        Some(idle.swap_remove(index).1)
    }

    fn keep(&self, at: usize, sender: Sender) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX && !sender.is_closed() {
            idle.push((at, sender));
        }
    }

    fn fault(&self, at: usize, tried: &'static str, what: &str) -> Fault {
        Fault::new(FaultKind::Unreachable, self.dialer.place(at), tried, what)
    }
}
