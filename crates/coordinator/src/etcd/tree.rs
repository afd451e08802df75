//! Keys of version 2 of the API, which version 3 does not know.

use super::EtcdSettings;
use super::http::Http;
use crate::clock::Moment;
use crate::net::Dialer;
use crate::{Fault, FaultKind};
use hyper::StatusCode;
use serde_json::Value;

/// The attempt that faults name.
const TRIED: &str = "read";

/// Largest number of folders within each other.
const DEPTH_MAX: usize = 16;

/// The code of etcd's error for a key that is not there.
const NO_KEY: u64 = 100;

/// Returns the keys below `ROOT/CLUSTER` that have a value.
pub(crate) async fn read_v2(settings: EtcdSettings) -> Result<Vec<(String, Vec<u8>)>, Fault> {
    crate::key::check_cluster(&settings.cluster)?;
    let EtcdSettings { endpoints, tls, root, cluster, patience, .. } = settings;
    let dialer = Dialer::new("etcd", &endpoints, tls, patience.request)?;
    let all = dialer.all();
    let http = Http::new(dialer, None, patience);
    let base = format!("{}/{cluster}", root.trim_end_matches('/'));
    let path = format!("/v2/keys{base}?recursive=true&sorted=true&quorum=true");
    let (status, page) = http.page(&path, TRIED, Moment::now().after(patience.call)).await?;
    let refused = |kind, what: String| Err(Fault::new(kind, all.clone(), TRIED, what));
    if page["errorCode"].as_u64() == Some(NO_KEY) {
        return Ok(Vec::new());
    }
    if status == StatusCode::NOT_FOUND && !page.is_object() {
        let what = "it has no API of version 2: start etcd with --enable-v2";
        return refused(FaultKind::Damaged, what.to_owned());
    }
    if let Some(said) = page["message"].as_str() {
        let said: String = said.chars().take(200).collect();
        return refused(FaultKind::Denied, format!("it says: {said}"));
    }
    if !page["node"].is_object() {
        return refused(FaultKind::Damaged, format!("no answer of etcd (HTTP status {status})"));
    }
    let mut found = Vec::new();
    collect(&page["node"], &base, DEPTH_MAX, &mut found);
    found.sort();
    Ok(found)
}

fn collect(node: &Value, base: &str, depth: usize, found: &mut Vec<(String, Vec<u8>)>) {
    let key = node["key"].as_str().and_then(|key| key.strip_prefix(base));
    if let (Some(key), Some(value)) = (key, node["value"].as_str()) {
        found.push((key.trim_start_matches('/').to_owned(), value.as_bytes().to_vec()));
    }
    for child in node["nodes"].as_array().into_iter().flatten().filter(|_| depth > 0) {
        collect(child, base, depth - 1, found);
    }
}
