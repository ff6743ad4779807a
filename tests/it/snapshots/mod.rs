//! Output and responses of the program, compared as a whole with the files in `snapshots/`. A change of structure or names
//! is seen to change no behaviour, and a change of texts is read as a diff.
//!
//! A snapshot that is missing or differs fails the test. To write them anew, and then to read the diff:
//!
//! ```text
//! INSTA_UPDATE=always cargo test --all-features --test it snapshots::
//! git diff tests/it/snapshots
//! ```

mod redact;
mod transcript;

mod acl;
mod check;
mod exit_codes;
mod help;
mod metrics;
mod migrate;
mod status;

use transcript::Transcript;

/// Every snapshot, by the name of its file.
const NAMES: [&str; 7] = ["acl", "check", "exit_codes", "help", "metrics", "migrate", "status"];

#[test]
fn every_snapshot_file_is_compared_by_a_test() {
    for entry in std::fs::read_dir(transcript::FOLDER).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        assert!(NAMES.iter().any(|name| file == format!("{name}.snap")), "{file} is compared by no test: remove it");
    }
}
