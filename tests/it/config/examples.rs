//! The example files, as users find them.

use std::path::Path;

use keyward::config::{Environment, LoadOutcome, Purpose, load};

/// Parses an example as `keyward check` does on a machine that has none of its files and users.
fn example(name: &str) -> LoadOutcome {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(name);
    load(&[path], &Environment::default(), Purpose::Check)
}

#[test]
fn every_example_has_no_errors_and_no_warnings() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut read = 0;
    for name in names {
        let name = if name == "drop-in" { "drop-in/keyward.toml".to_owned() } else { name };
        let outcome = example(&name);
        if cfg!(not(feature = "etcd")) && name == "acl-etcd.toml" {
            assert!(outcome.errors[0].to_string().contains("this build has no etcd part"), "{:?}", outcome.errors);
            continue;
        }
        assert_eq!((outcome.errors, outcome.warnings), (vec![], vec![]), "{name}");
        assert!(outcome.config.is_some(), "{name}");
        read += 1;
    }
    assert!(read >= 4, "{read} examples were read");
}
