//! The error replies for programs: RFC 9457.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

/// The reason why a request was not executed, as `application/problem+json`.
#[derive(Debug, Serialize)]
pub(crate) struct Problem {
    /// No page tells more about a kind of problem than its status does.
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: Box<str>,
    /// Every single mistake, if there may be several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<String>,
    /// Facts about servers, if the process is not ready.
    #[serde(flatten)]
    servers: Option<Box<Servers>>,
    /// The path at which a control node answers the same for all members.
    #[serde(skip_serializing_if = "Option::is_none")]
    instead: Option<Box<str>>,
    /// The methods of the path, if another was used.
    #[serde(skip)]
    allow: Option<Box<str>>,
}

/// The reason of a refusal, which its reply has beside its body, for the log.
#[derive(Clone, Debug)]
pub(crate) struct Detail(pub(crate) String);

/// Servers that are listed besides the reasons why a process is not ready.
#[derive(Debug, Serialize)]
struct Servers {
    /// Servers that fail, in pools that are not a reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failing: Vec<String>,
    /// Servers that have neither answered nor failed yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<String>,
}

impl Problem {
    /// Creates a problem with this status. `detail` says what to do about it.
    pub(crate) fn new(status: StatusCode, detail: impl Into<Box<str>>) -> Self {
        let title = status.canonical_reason().unwrap_or("Problem");
        let detail = detail.into();
        Self {
            r#type: "about:blank",
            title,
            status: status.as_u16(),
            detail,
            errors: Vec::new(),
            servers: None,
            instead: None,
            allow: None,
        }
    }

    /// Adds several mistakes.
    pub(crate) fn with_errors(mut self, errors: Vec<String>) -> Self {
        self.errors = errors;
        self
    }

    /// Adds facts about servers.
    pub(crate) fn with_servers(mut self, failing: Vec<String>, unknown: Vec<String>) -> Self {
        self.servers = Some(Box::new(Servers { failing, unknown }));
        self
    }

    /// Adds the path to ask in place of this one.
    pub(crate) fn with_instead(mut self, path: Option<String>) -> Self {
        self.instead = path.map(Into::into);
        self
    }

    /// Adds the methods that the path accepts.
    pub(crate) fn with_allow(mut self, methods: &str) -> Self {
        self.allow = Some(methods.into());
        self
    }

    /// Returns the reply with this problem.
    pub(crate) fn reply(&self) -> Response<Full<Bytes>> {
        // These are texts and numbers, all of which can be written.
        let text = serde_json::to_string(self).unwrap_or_default() + "\n";
        let mut reply = Response::new(Full::new(text.into()));
        *reply.status_mut() = StatusCode::from_u16(self.status).unwrap_or_default();
        let kind = HeaderValue::from_static("application/problem+json");
        reply.headers_mut().insert(CONTENT_TYPE, kind);
        reply.extensions_mut().insert(Detail(self.detail.to_string()));
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
