use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::clock::TestClock;

fn options(folder: &Path, max_age: Option<Duration>) -> Options {
    let owner = "https://tfe.example.com file /t".to_owned();
    Options { file: folder.join("gateway.token"), max_age, grace: Duration::from_hours(24), owner }
}

fn accepted(watch: &CredentialWatch<Accepted>) -> Arc<Accepted> {
    match watch.peek().availability {
        State::Serving(accepted) => accepted,
        State::None { reason, .. } => panic!("{reason}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_outlives_its_keeper_and_one_rotation_with_what_was_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::Test(TestClock::starting_at(SystemTime::now()));
    let (mut keeper, watch) = LocalToken::open(options(folder.path(), None), clock.clone()).unwrap();
    let first = accepted(&watch);
    let file = folder.path().join("gateway.token");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(read(&file).unwrap().expose_secret(), first.current.expose_secret());
    keeper.rotate().unwrap();
    let second = accepted(&watch);
    drop(keeper);
    let (_keeper, watch) = LocalToken::open(options(folder.path(), None), clock.clone()).unwrap();
    let third = accepted(&watch);
    let now = clock.now().wall;
    let which = |token: &SecretString, now| third.which(token.expose_secret().as_bytes(), now);
    assert_eq!(which(&second.current, now), Some(Which::Current));
    assert_eq!(which(&first.current, now), Some(Which::Previous));
    assert_eq!(which(&first.current, now + Duration::from_hours(25)), None, "its grace is over");
    assert_eq!(third.which(b"", now), None);
    assert_eq!(third.which(&first.current.expose_secret().as_bytes()[..40], now), None);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_rotated_at_its_age_and_stays_where_none_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::Test(TestClock::starting_at(SystemTime::now()));
    let week = Duration::from_hours(7 * 24);
    let (keeper, mut watch) = LocalToken::open(options(folder.path(), Some(week)), clock.clone()).unwrap();
    let first = accepted(&watch);
    watch.current();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(keeper.run(CancellationToken::new()));
    tokio::time::sleep(week.checked_sub(Duration::from_mins(1)).unwrap()).await;
    assert!(Arc::ptr_eq(&first, &accepted(&watch)));
    watch.changed().await.unwrap();
    let second = accepted(&watch);
    let which = |token: &SecretString| second.which(token.expose_secret().as_bytes(), clock.now().wall);
    assert_eq!((which(&second.current), which(&first.current)), (Some(Which::Current), Some(Which::Previous)));
}

#[test]
fn a_token_of_before_owners_were_written_down_stays_good_and_belongs_to_who_opens_it_first() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), None);
    std::fs::write(&options.file, "keyward-local-of-an-older-release\n").unwrap();
    let (_keeper, watch) = LocalToken::open(options.clone(), Clock::System).unwrap();
    assert_eq!(accepted(&watch).current.expose_secret(), "keyward-local-of-an-older-release");
    let other = Options { owner: "https://tfe.example.com file /other".to_owned(), ..options };
    let told = crate::error_chain::format_chain(&LocalToken::open(other, Clock::System).unwrap_err());
    assert!(told.contains("holds the local token of another gateway"), "{told}");
}

#[test]
fn a_file_that_holds_something_else_is_named_and_not_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), None);
    for text in ["hush", "a token with spaces in it, and long", ""] {
        std::fs::write(&options.file, text).unwrap();
        let error = LocalToken::open(options.clone(), Clock::System).unwrap_err();
        let told = crate::error_chain::format_chain(&error);
        assert!(told.contains("gateway.token") && !told.contains("hush"), "{told}");
    }
}
