//! What a program is told that asked for what cannot be done: RFC 9457.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

/// Why a request was not done, as `application/problem+json`.
#[derive(Debug, Serialize)]
pub(crate) struct Problem {
    /// No page of ours tells more of a kind of problem than its status does.
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    /// Every single thing that is wrong, where there may be several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<String>,
    /// What is told of servers, where the process is not ready.
    #[serde(flatten)]
    servers: Option<Box<Servers>>,
    /// The methods that the path takes, where another was used.
    #[serde(skip)]
    allow: Option<Box<str>>,
}

/// Servers that are told of beside the reasons why a process is not ready.
#[derive(Debug, Serialize)]
struct Servers {
    /// Those that fail, in pools that are no reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failing: Vec<String>,
    /// Those that have neither answered nor failed yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<String>,
}

impl Problem {
    /// A problem of this status; `detail` says what to do about it.
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Problem");
        let detail = detail.into();
        Self {
            r#type: "about:blank",
            title,
            status: status.as_u16(),
            detail,
            errors: Vec::new(),
            servers: None,
            allow: None,
        }
    }

    /// The same, of several things that are wrong.
    pub(crate) fn with_errors(mut self, errors: Vec<String>) -> Self {
        self.errors = errors;
        self
    }

    /// The same, with what is told of servers beside the reasons.
    pub(crate) fn with_servers(mut self, failing: Vec<String>, unknown: Vec<String>) -> Self {
        self.servers = Some(Box::new(Servers { failing, unknown }));
        self
    }

    /// The same, with the methods that would do.
    pub(crate) fn with_allow(mut self, methods: &str) -> Self {
        self.allow = Some(methods.into());
        self
    }

    /// The reply that says so.
    pub(crate) fn reply(&self) -> Response<Full<Bytes>> {
        // Texts and numbers: nothing that could not be written.
        let text = serde_json::to_string(self).unwrap_or_default() + "\n";
        let mut reply = Response::new(Full::new(text.into()));
        *reply.status_mut() = StatusCode::from_u16(self.status).unwrap_or_default();
        let kind = HeaderValue::from_static("application/problem+json");
        reply.headers_mut().insert(CONTENT_TYPE, kind);
        let allow = self.allow.as_ref().and_then(|allow| HeaderValue::from_str(allow).ok());
        if let Some(allow) = allow {
            reply.headers_mut().insert(ALLOW, allow);
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_has_the_members_of_the_standard() {
        let problem = Problem::new(StatusCode::CONFLICT, "say \"no\"");
        let text = serde_json::to_string(&problem).unwrap();
        let expected = "{\"type\":\"about:blank\",\"title\":\"Conflict\",\"status\":409,\
                        \"detail\":\"say \\\"no\\\"\"}";
        assert_eq!(text, expected);
        let problem = problem.with_errors(vec!["one".into()]);
        let text = serde_json::to_string(&problem).unwrap();
        assert!(text.ends_with(",\"errors\":[\"one\"]}"), "{text}");
        let problem = problem.with_servers(vec!["two".into()], Vec::new());
        let text = serde_json::to_string(&problem).unwrap();
        assert!(text.ends_with(",\"errors\":[\"one\"],\"failing\":[\"two\"]}"), "{text}");
    }
}
