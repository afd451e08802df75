//! Documents of the control plane over many generated files: each part has one owner, no text crashes
//! the reader, and no secret is shown.

use keyway_config::{Config, describe};
use keyway_testkit::TempDir;
use proptest::prelude::*;

const HASH: &str = "#248a997db5dbd534cbac4dfc0b88feab66fcf5c50223ae8c0fd4370fa6e818a9";

fn users(names: &[u8]) -> String {
    let user = |name: &u8| {
        format!(
            "[[user]]\nname = \"u{name}\"\nrules = \"+get ~*\"\npassword_hashes = [\"{HASH}\"]\n"
        )
    };
    names.iter().map(user).collect()
}

fn limits(clients_max: Option<u32>) -> String {
    clients_max.map(|max| format!("[limits]\nclients_max = {max}\n")).unwrap_or_default()
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::btree_set(0u8..6, 0..4).prop_map(|names| names.into_iter().collect())
}

/// Pieces of documents, and of what looks like them.
fn piece() -> impl Strategy<Value = String> {
    let words = [
        "[[user]]\n",
        "[user]\n",
        "[limits]\n",
        "[pool.a]\n",
        "[pool.\"x y\"]\n",
        "user = []\n",
        "limits = 3\n",
        "name = \"app\"\n",
        "rules = \"+@all ~* #0\"\n",
        "password = \"hush\"\n",
        "password_hashes = [\"#00\", 7]\n",
        "pool = \"b\"\n",
        "pool = \"c d\"\n",
        "kind = \"store\"\n",
        "clients_max = 1\n",
        "replica_of = \"é@@://é\"\n",
        "\"\"\"",
        "{",
        "]",
        "\u{feff}",
        "é\n",
    ];
    prop::sample::select(words.to_vec()).prop_map(str::to_owned)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// All users are of the file or all are of the document, and so are the limits; which of them is
    /// what the file and the document say.
    #[test]
    fn each_part_has_one_owner(
        (of_file, of_document) in (names(), names()),
        (file_max, document_max) in (prop::option::of(1u32..9), prop::option::of(11u32..19)),
        (takes_users, takes_limits) in any::<(bool, bool)>(),
    ) {
        let folder = TempDir::new();
        let pool = "[pool.a]\nkind = \"store\"\n";
        let text = format!(
            "[control]\ncluster = \"c\"\nid = \"z1.proxy.0.1\"\ncoordinator = {{ dir = \"d\" }}\n\
             state_file = \"s\"\npools = [\"a\"]\nusers = {takes_users}\nlimits = {takes_limits}\n\
             [[listener]]\nbind = \"tcp://127.0.0.1:7\"\npool = \"a\"\n{pool}{}{}",
            users(&of_file),
            limits(file_max)
        );
        let path = folder.write("keyway.toml", text);
        let document = format!("{}{}{pool}", users(&of_document), limits(document_max));
        let config = Config::load_with(&path, "document 1.1", &document).expect("both are right");
        let found: Vec<String> = config.users.iter().map(|user| user.user.name().to_string()).collect();
        let is_taken = takes_users && !of_document.is_empty();
        let expected = if is_taken { &of_document } else { &of_file };
        prop_assert_eq!(found, expected.iter().map(|name| format!("u{name}")).collect::<Vec<_>>());
        let max = document_max.filter(|_| takes_limits).or(file_max).unwrap_or(100_000);
        prop_assert_eq!(config.limits.clients_max, max);
        let from = config.document.as_ref().expect("it is there");
        prop_assert_eq!(from.users, is_taken);
        prop_assert_eq!(from.limits, takes_limits && document_max.is_some());
        let shown = describe(&config);
        let told = shown.matches("# The user is from document 1.1.").count();
        prop_assert_eq!(told, if is_taken { of_document.len() } else { 0 });
        prop_assert!(!shown.contains(&HASH[1..20]));
    }

    /// Whatever a document is, it is read or refused, and shown without its secrets.
    #[test]
    fn any_document_is_read_or_refused(pieces in prop::collection::vec(piece(), 0..16)) {
        let text = pieces.concat();
        let checked = Config::check_new_document("d", &text);
        let masked = Config::masked_document(&text);
        prop_assert!(!masked.contains("hush"), "{}", masked);
        prop_assert_eq!(Config::masked_document(&masked), masked.clone());
        let _ = (Config::changed_parts(&text, &masked), Config::other_files("", &text));
        let _ = Config::load_document("d", &text);
        if checked.is_ok() {
            prop_assert!(Config::check_document("d", &masked).is_ok(), "{}", masked);
        } else {
            let errors = checked.err().unwrap_or_default();
            prop_assert!(!errors.is_empty());
            prop_assert!(!errors.iter().any(|error| error.to_string().contains("hush")));
        }
    }
}
