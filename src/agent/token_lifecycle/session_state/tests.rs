use std::time::{Duration, SystemTime};

use super::*;
use crate::retry_budget::RetryBudget;

#[test]
fn a_saved_token_is_outdated_by_other_settings_and_not_by_other_files() {
    let cases = [
        ("a.x", "a.x", false),
        ("a.x", "a.y", false),
        ("a.x", "b.x", true),
        ("old", "a.x", false),
        ("one", "one", false),
        ("one", "two", true),
    ];
    for (saved, own, expected) in cases {
        assert_eq!(has_other_settings(saved, own), expected, "{saved} {own}");
    }
}

#[tokio::test]
async fn content_is_written_again_until_a_write_of_it_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let state_dir = folder.path().join("state");
    let options = SessionStateOptions { file: state_dir.join("web.json"), seal_key: None };
    let mut file = SessionStateFile::new(&options, "web", &[], "one");
    let now = ClockReading { boot: Duration::ZERO, wall: SystemTime::UNIX_EPOCH };
    let budget = RetryBudget::new(now).to_record();
    let given_up = file.save(&budget, None, None).unwrap();
    assert!(file.save(&budget, None, None).is_none(), "a write of it is under way");
    drop(given_up);
    file.save(&budget, None, None).unwrap().await;
    assert!(!options.file.exists(), "there is no folder");
    std::fs::create_dir(&state_dir).unwrap();
    file.save(&budget, None, None).unwrap().await;
    assert!(options.file.exists());
    assert!(file.save(&budget, None, None).is_none());
    assert!(file.save(&budget, None, Some("an error")).is_some());
}
