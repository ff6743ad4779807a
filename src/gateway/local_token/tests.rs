use std::os::unix::fs::PermissionsExt as _;

use keyward_machine::clock::TestClock;

use super::*;

fn options(folder: &Path, max_age: Option<Duration>) -> LocalTokenOptions {
    let owner = "https://tfe.example.com file /t".to_owned();
    LocalTokenOptions { file: folder.join("gateway.token"), max_age, grace: Duration::from_hours(24), owner }
}

fn accepted(watch: &CredentialWatch<AcceptedTokens>) -> Arc<AcceptedTokens> {
    match watch.peek().availability {
        Availability::Available(accepted) => accepted,
        Availability::Unavailable { reason, .. } => panic!("{reason}"),
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_survive_a_restart_and_one_rotation() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::Test(TestClock::starting_at(SystemTime::now()));
    let (mut manager, watch) = LocalTokenManager::open(options(folder.path(), None), clock.clone()).unwrap();
    let first = accepted(&watch);
    let file = folder.path().join("gateway.token");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(read(&file).unwrap().expose_secret(), first.current.expose_secret());
    manager.rotate().unwrap();
    let second = accepted(&watch);
    drop(manager);
    let (_keeper, watch) = LocalTokenManager::open(options(folder.path(), None), clock.clone()).unwrap();
    let third = accepted(&watch);
    let now = clock.now().wall;
    let match_token = |token: &SecretString, now| third.match_token(token.expose_secret().as_bytes(), now);
    assert_eq!(match_token(&second.current, now), Some(MatchedToken::Current));
    assert_eq!(match_token(&first.current, now), Some(MatchedToken::Previous));
    assert_eq!(match_token(&first.current, now + Duration::from_hours(25)), None, "its grace is over");
    assert_eq!(third.match_token(b"", now), None);
    assert_eq!(third.match_token(&first.current.expose_secret().as_bytes()[..40], now), None);
}

#[tokio::test(start_paused = true)]
async fn tokens_are_rotated_at_max_age_or_never() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::Test(TestClock::starting_at(SystemTime::now()));
    let week = Duration::from_hours(7 * 24);
    let (manager, mut watch) = LocalTokenManager::open(options(folder.path(), Some(week)), clock.clone()).unwrap();
    let first = accepted(&watch);
    watch.current();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(manager.run(CancellationToken::new()));
    tokio::time::sleep(week.checked_sub(Duration::from_mins(1)).unwrap()).await;
    assert!(Arc::ptr_eq(&first, &accepted(&watch)));
    watch.changed().await.unwrap();
    let second = accepted(&watch);
    let match_token = |token: &SecretString| second.match_token(token.expose_secret().as_bytes(), clock.now().wall);
    assert_eq!(
        (match_token(&second.current), match_token(&first.current)),
        (Some(MatchedToken::Current), Some(MatchedToken::Previous))
    );
}

#[test]
fn a_token_file_without_owner_is_claimed_by_the_first_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), None);
    std::fs::write(&options.file, "keyward-local-of-an-older-release\n").unwrap();
    let (_keeper, watch) = LocalTokenManager::open(options.clone(), Clock::System).unwrap();
    assert_eq!(accepted(&watch).current.expose_secret(), "keyward-local-of-an-older-release");
    let other = LocalTokenOptions { owner: "https://tfe.example.com file /other".to_owned(), ..options };
    let text =
        keyward_telemetry::error_chain::format_chain(&LocalTokenManager::open(other, Clock::System).unwrap_err());
    assert!(text.contains("is the local token of another gateway"), "{text}");
}

#[test]
fn errors_name_a_malformed_file_without_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), None);
    for text in ["hush", "a token with spaces in it, and long", ""] {
        std::fs::write(&options.file, text).unwrap();
        let error = LocalTokenManager::open(options.clone(), Clock::System).unwrap_err();
        let text = keyward_telemetry::error_chain::format_chain(&error);
        assert!(text.contains("gateway.token") && !text.contains("hush"), "{text}");
    }
}
