//! Messages about stores, as fields.

use super::{FinalStore, Followed, HandedStore};

pub(super) const STORE: &str = "store";
pub(super) const FINAL: &str = "final";

/// Text without the byte that ends fields.
fn field(text: &str) -> String {
    text.replace('\0', " ")
}

pub(super) fn fields_of_store(store: &HandedStore) -> Vec<String> {
    vec![STORE.to_owned(), field(&store.pool), field(&store.log), field(&store.primary)]
}

pub(super) fn store_of<'m>(mut fields: impl Iterator<Item = &'m str>) -> Option<HandedStore> {
    let mut next = || fields.next().map(str::to_owned);
    Some(HandedStore { pool: next()?, log: next()?, primary: next()? })
}

/// The numbers, the primary in five fields, two fields about replicas, and two for each flush.
pub(super) fn fields_of_final(store: &FinalStore) -> Vec<String> {
    let mut fields = vec![FINAL.to_owned(), field(&store.pool)];
    fields.extend([store.offset, store.numbers, store.clients].map(|number| number.to_string()));
    match &store.primary {
        Some(Followed { host, port, position }) => {
            let (id, offset, database) = position.clone().unwrap_or_default();
            let database = database.map_or_else(String::new, |database| database.to_string());
            fields.extend([field(host), port.to_string(), field(&id)]);
            fields.extend([offset.to_string(), database]);
        }
        None => fields.extend(std::iter::repeat_n(String::new(), 5)),
    }
    fields.extend([field(store.history.as_deref().unwrap_or("")), store.replicas.to_string()]);
    for (database, at) in &store.flushes {
        fields.extend([database.to_string(), at.to_string()]);
    }
    fields
}

pub(super) fn final_of<'m>(fields: impl Iterator<Item = &'m str>) -> Option<FinalStore> {
    let fields: Vec<&str> = fields.collect();
    let [pool, offset, numbers, clients, rest @ ..] = &fields[..] else { return None };
    let [host, port, id, at, database, history, replicas, flushes @ ..] = rest else {
        return None;
    };
    let primary = match (*host, *port) {
        (_, "") => None,
        (host, port) => {
            let position = match *id {
                "" => None,
                id => {
                    let database = match *database {
                        "" => None,
                        number => Some(number.parse().ok()?),
                    };
                    Some((id.to_owned(), at.parse().ok()?, database))
                }
            };
            Some(Followed { host: host.to_owned(), port: port.parse().ok()?, position })
        }
    };
    let flush = |pair: &[&str]| match pair {
        [database, at] => Some((database.parse().ok()?, at.parse().ok()?)),
        _ => None,
    };
    Some(FinalStore {
        pool: (*pool).to_owned(),
        offset: offset.parse().ok()?,
        numbers: numbers.parse().ok()?,
        clients: clients.parse().ok()?,
        flushes: flushes.chunks(2).map(flush).collect::<Option<_>>()?,
        primary,
        history: (!history.is_empty()).then(|| (*history).to_owned()),
        replicas: replicas.parse().ok()?,
    })
}
