//! The parameters of a query.

/// Returns the wanted parameters of a query, percent-decoded. Each must be given once and must not
/// be empty.
pub(crate) fn required<const N: usize>(
    query: &str,
    names: [&str; N],
) -> Result<[String; N], String> {
    let values = parameters(query, names)?.map(Option::unwrap_or_default);
    match values.iter().position(String::is_empty) {
        Some(missing) => Err(format!("`{}` is missing", names[missing])),
        None => Ok(values),
    }
}

/// Returns the parameters that are given, each at most once.
pub(crate) fn parameters<const N: usize>(
    query: &str,
    names: [&str; N],
) -> Result<[Option<String>; N], String> {
    let mut values = [const { None }; N];
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let Some(place) = names.iter().position(|known| *known == name) else {
            return Err(format!("there is no parameter `{name}`"));
        };
        if values[place].replace(value.into_owned()).is_some() {
            return Err(format!("`{name}` is given twice"));
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pool: &str, backend: &str) -> Result<[String; 2], String> {
        Ok([pool.into(), backend.into()])
    }

    fn both(query: &str) -> Result<[String; 2], String> {
        required(query, ["pool", "backend"])
    }

    #[test]
    fn names_in_a_query_may_hold_any_character() {
        assert_eq!(both("pool=a&backend=b"), names("a", "b"));
        assert_eq!(
            both("backend=10.0.0.1%3A6379%3A1+alpha&pool=%C3%A9%26"),
            names("é&", "10.0.0.1:6379:1 alpha")
        );
    }

    #[test]
    fn a_wrong_query_names_what_is_wrong() {
        for (query, wrong) in [
            ("", "`pool` is missing"),
            ("pool=a", "`backend` is missing"),
            ("pool=&backend=b", "`pool` is missing"),
            ("pool=a&backend=b&pool=c", "`pool` is given twice"),
            ("pool=a&backend=b&force=1", "there is no parameter `force`"),
        ] {
            assert_eq!(both(query), Err(wrong.into()), "{query}");
        }
    }
}
