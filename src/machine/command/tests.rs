use super::*;
use crate::clock::Clock;

#[test]
fn a_command_gets_allowed_variables_and_never_reserved_ones() {
    let of = ["PATH", "LC_ALL", "APP_MODE", "APP_COLOR", "OTHER", "AZURE_CLIENT_SECRET", "NOTIFY_SOCKET", "LISTEN_FDS"];
    let of = of.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect();
    let check = |pass: &[&str], expected: &[&str]| {
        let pass: Vec<_> = pass.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(EnvVars::select(&of, &pass).names().collect::<Vec<_>>(), expected, "{pass:?}");
    };
    check(&[], &["LC_ALL", "PATH"]);
    check(&["OTHER"], &["LC_ALL", "OTHER", "PATH"]);
    check(&["APP_*"], &["APP_COLOR", "APP_MODE", "LC_ALL", "PATH"]);
    check(&["*"], &["APP_COLOR", "APP_MODE", "LC_ALL", "OTHER", "PATH"]);
    check(&["AZURE_CLIENT_SECRET", "LISTEN_FDS"], &["LC_ALL", "PATH"]);
}

#[test]
fn variables_compare_by_value_and_print_only_names() {
    let of = |value: &str| {
        let mut variables = EnvVars::default();
        variables.set("PASSWORD", SecretString::from(value));
        variables
    };
    assert_eq!(of("canary"), of("canary"));
    assert_ne!(of("canary"), of("other"));
    assert_ne!(of("canary"), EnvVars::default());
    assert_eq!(format!("{:?}", of("canary")), "{\"PASSWORD\"}");
}

fn shell(line: &str) -> CommandSpec {
    CommandSpec { command: CommandSpec::shell_argv(line), variables: EnvVars::default() }
}

#[tokio::test]
async fn a_command_fails_by_its_exit_code_or_its_time_limit() {
    let run = async |line: &str, limit: u64| {
        let ended = Launcher::default().run(&shell(line), Duration::from_millis(limit), &Clock::System).await;
        ended.map_err(|error| error.to_string())
    };
    assert_eq!(run("exit 0", 30_000).await, Ok(()));
    assert_eq!(run("exit 3", 30_000).await, Err("it ended with code 3".to_owned()));
    assert_eq!(run("kill -TERM $$", 30_000).await, Err("it was ended by signal 15".to_owned()));
    assert_eq!(run("sleep 60", 50).await, Err("it did not end within 0.05 s and was killed".to_owned()));
    let nothing = CommandSpec { command: vec!["/nowhere/at/all".to_owned()], variables: EnvVars::default() };
    let error = Launcher::default().run(&nothing, Duration::from_secs(30), &Clock::System).await.unwrap_err();
    assert_eq!(error.to_string(), "it cannot be started");
}
