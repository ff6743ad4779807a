//! The example files, as users find them.

use std::path::Path;

use keyward_config::{Environment, LoadOutcome, Purpose, load};

/// Parses an example as `keyward check` does on a machine that has none of its files and users.
fn example(name: &str) -> LoadOutcome {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(name);
    load(&[path], &Environment::default(), Purpose::Check)
}

// The examples are of all parts.
#[cfg(all(feature = "acl", feature = "gateway"))]
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

/// A line that begins with `#key` or `#[section]` is one that the reader may put in; a comment begins with `# `.
#[test]
fn the_default_configuration_has_no_errors_with_every_line_that_it_offers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/keyward.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let offered = |line: &&str| line.starts_with('#') && line.len() > 1 && !line.starts_with("# ");
    assert!(text.lines().filter(offered).count() > 15, "the file offers no lines");
    let all = text.lines().map(|line| if offered(&line) { &line[1..] } else { line }).collect::<Vec<_>>().join("\n");
    let (folder, outcome) = super::check(&all);
    assert_eq!(folder.short(&outcome.errors), [""; 0], "{all}");
    assert_eq!(folder.short(&outcome.warnings), [""; 0], "{all}");
}
