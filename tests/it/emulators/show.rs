//! `keyward dev` as a newcomer meets it: one screen, variables for every other command, and faults that are told and healed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::harness::binary::{Binary, eventually, run};
use crate::harness::browser::Browser;

/// A running `keyward dev`.
struct Show {
    dev: Binary,
    dir: PathBuf,
    variables: Vec<(String, String)>,
    _folder: tempfile::TempDir,
}

impl Show {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("dev");
        let dev = Binary::start(&["dev", "--dir", dir.to_str().unwrap()], &[], folder.path());
        eventually(Duration::from_secs(30), || {
            let output = dev.output();
            if output.contains("Ctrl-C stops it.") { Ok(()) } else { Err(output) }
        });
        let mut show = Self { dev, dir, variables: Vec::new(), _folder: folder };
        let exports = show.run("dev env --dir DIR", 0);
        let export = |line: &str| {
            let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
            Some((name.to_owned(), value.trim_matches('\'').to_owned()))
        };
        show.variables = exports.lines().filter_map(export).collect();
        show.run("wait --timeout 30s", 0);
        show
    }

    /// Runs a command with the variables of `dev env`; returns all that it prints.
    #[track_caller]
    fn run(&self, line: &str, expected: i32) -> String {
        let line = line.replace("DIR", self.dir.to_str().unwrap());
        let variables: Vec<_> = self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let (code, output, error) = run(&line.split(' ').collect::<Vec<_>>(), &variables);
        assert_eq!(code, expected, "{line}: {output}{error}");
        output + &error
    }
}

#[test]
fn it_prints_one_screen_and_its_log_is_in_a_file() {
    let show = Show::start();
    let screen = show.dev.output();
    assert!(screen.lines().count() <= 24, "{screen}");
    for text in ["dev.log", "/env ", "dev break server", "dev heal", "guide.txt", "ACL server", "gateway", "pages"] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    eventually(Duration::from_secs(30), || match std::fs::read_to_string(show.dir.join("dev.log")) {
        Ok(log) if log.contains("agent.ready") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(show.dev.output(), screen);
}

/// The screen with the usual folder, without the numbers of ports.
fn stable(screen: &str, dir: &str) -> String {
    let ports = regex_lite::Regex::new(r"127\.0\.0\.1:\d+").unwrap();
    let screen = screen.replace(dir, "~/.local/state/keyward-dev");
    let (screen, _) = screen.split_once("Ctrl-C stops it.").unwrap();
    ports.replace_all(screen, "127.0.0.1:PORT").into_owned()
}

#[test]
fn the_readme_shows_the_screen() {
    let show = Show::start();
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let (_, shown) = readme.split_once("```text\n").unwrap();
    let dir = show.dir.to_str().unwrap();
    let lines = |screen: &str| -> Vec<String> {
        // The comments of the commands stand where the longest folder lets them.
        stable(screen, dir).lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let screen = show.dev.output();
    assert_eq!(lines(shown), lines(&screen), "README.md does not show the screen of `keyward dev`:\n{screen}");
}

#[test]
fn every_other_command_works_against_it_with_its_variables() {
    let show = Show::start();
    assert!(!show.run("token --session workload", 0).trim().is_empty());
    assert!(show.run("status", 0).contains("workload"));
    assert_eq!(show.run("exec -- /usr/bin/printenv GREETING", 0), "hello from the emulated Vault\n");
    assert!(show.run("exec -- /usr/bin/printenv TFE_ADDRESS", 0).starts_with("http://127.0.0.1:"));
    assert!(show.run("acl token list", 0).contains("AccessorID"));
    assert!(show.run("gateway tokens", 0).contains("platform token"));
    assert!(show.run("gateway report", 0).len() > 1);
    for session in ["instance", "workload"] {
        let output = show.run(&format!("login --session {session}"), 0);
        assert!(output.contains("the token is revoked") && !output.contains(" INFO "), "{output}");
    }
    let checked = show.run("check --online", 0);
    assert!(
        checked.contains("session workload: revocation ok") && checked.contains("gateway: platform token ok"),
        "{checked}"
    );
    let diagnosed = show.run("doctor", 0);
    assert!(diagnosed.contains("ok      session workload: revocation: the token is revoked"), "{diagnosed}");
    assert!(!diagnosed.contains("FAILED") && !diagnosed.contains("\nwarning "), "{diagnosed}");
    let config = std::fs::read_to_string(show.dir.join("keyward.toml")).unwrap();
    assert!(config.contains("\nsandbox = \"off\"\n"), "the doctor's remedy names it: {config}");
    show.run("retry workload", 0);
    show.run("healthcheck", 0);
    let template = show.dir.join("app.tmpl");
    std::fs::write(&template, "{{ with secret \"secret/data/example\" }}{{ .Data.data.greeting }}{{ end }}\n").unwrap();
    for more in ["", " --login"] {
        let rendered = show.run(&format!("template try DIR/app.tmpl --session workload{more}"), 0);
        assert_eq!(rendered, "hello from the emulated Vault\n", "{more}");
    }
    let names = "is needed: the agent serves instance, workload [KW-1806]";
    assert!(show.run("token", 1).contains(&format!("error: --session {names}")));
    let retried = show.run("retry", 1);
    assert!(
        retried.contains("SESSION is needed, as in `keyward retry NAME`") && retried.contains("[KW-1806]"),
        "{retried}"
    );
}

#[tokio::test]
async fn the_printed_pages_open_with_the_printed_key_and_show_every_part() {
    let show = Show::start();
    let screen = show.dev.output();
    let (url, key_file) = screen.split_once("pages for a browser").unwrap().1.split_once("(key: ").unwrap();
    let browser = Browser::new(url.trim().trim_end_matches('/'));
    assert!(browser.origin.starts_with("http://127.0.0.1:"), "{screen}");
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    let closed = browser.get("/agent").send().await.unwrap();
    assert_eq!(closed.status(), 303, "nothing is shown without the key");
    let cookie = browser.sign_in("/sign-in", &read(key_file.split_once(')').unwrap().0), None).await;
    let agent = browser.page("/agent", &cookie).await;
    for text in ["instance", "workload", "listener/pages", "template/greeting", "gateway/"] {
        assert!(agent.contains(text), "{text}: {agent}");
    }
    assert!(browser.page("/gateway", &cookie).await.contains("Platform token"));
    assert!(browser.page("/history", &cookie).await.contains("changes"));
    let root = read(show.dir.join("acl-root.token").to_str().unwrap());
    let cookie = browser.sign_in("/acl/sign-in", root.trim(), Some(&cookie)).await;
    assert!(browser.page("/acl/tokens", &cookie).await.contains("href=\"/acl/tokens/"));
}

#[test]
fn each_fault_is_told_seen_with_the_named_command_and_healed() {
    let show = Show::start();
    // The lines of the status that it prints: the fault shows at once.
    let breaks = |fault: &str, signs: &[(&str, &str)]| {
        let printed = show.run(&format!("dev break {fault}"), 0);
        assert!(
            printed.starts_with("broken: ") && printed.contains("\nlook:\n  keyward ") && printed.contains("\nends: "),
            "{printed}"
        );
        let (_, shown) = printed.split_once("\n`keyward status` shows after ").unwrap_or_else(|| panic!("{printed}"));
        let shown = shown.split_once("\nlook:").unwrap().0;
        for (state, component) in signs {
            let is_sign = |line: &str| line.starts_with(state) && line.contains(&format!(" {component} "));
            assert!(shown.lines().any(is_sign), "{state} {component}: {printed}");
        }
        let status = show.run("status", 0);
        if fault != "token" {
            assert!(status.lines().next().unwrap().contains("AT RISK") || status.contains("DOWN"), "{status}");
        }
    };
    let heals = |fault: &str| {
        let printed = show.run(&format!("dev heal {fault}"), 0);
        assert!(printed.contains(&format!("healed: {fault}\n")), "{printed}");
        // Each command that is advised works as it is written.
        for (_, rest) in printed.match_indices("`keyward ").map(|(at, _)| printed[at + 1..].split_once(' ').unwrap()) {
            let command = rest.split('`').next().unwrap();
            assert_ne!(show.try_run(command).0, 1, "{command}: {printed}");
        }
        let status = show.run("status", 0);
        let is_bad = |line: &&str| line.contains(" session/") && !line.starts_with("OK ");
        assert_eq!(status.lines().filter(is_bad).collect::<Vec<_>>(), [""; 0], "{printed}");
    };
    breaks("server", &[("AT RISK", "session/workload")]);
    assert!(show.run("check --online", 2).contains("session workload: tcp FAILED"));
    // The template keeps what it rendered, and the status tells that it is not refreshed.
    let is_stale = |status: &str| {
        let line = status.lines().find(|line| line.contains("template/greeting")).unwrap();
        line.starts_with("AT RISK ") && line.contains("could not be read again: ") && line.contains("[KW-1201]")
    };
    eventually(Duration::from_secs(30), || {
        let status = show.run("status", 0);
        if is_stale(&status) { Ok(()) } else { Err(status) }
    });
    assert!(!show.run("token --session workload", 0).is_empty());
    heals("server");
    eventually(Duration::from_mins(1), || {
        let status = show.run("status", 0);
        if is_stale(&status) { Err(status) } else { Ok(()) }
    });
    breaks("cloud", &[("AT RISK", "session/instance"), ("AT RISK", "session/workload")]);
    let (code, output, error) = show.try_run("login --session workload");
    assert!(code != 0 && error.contains("[KW-"), "{code}: {output}{error}");
    heals("cloud");
    for fault in ["clock", "audience"] {
        breaks(fault, &[("AT RISK", "session/instance"), ("AT RISK", "session/workload")]);
        let (code, output, error) = show.try_run("login --session workload");
        assert!(code != 0 && error.contains("[KW-"), "{code}: {output}{error}");
        heals(fault);
        show.run("login --session workload", 0);
    }
    breaks("token", &[("OK", "session/workload")]);
    assert_eq!(show.run("exec -- /usr/bin/printenv GREETING", 0), "hello from the emulated Vault\n");
    let before = std::fs::read(show.dir.join("platform.token")).unwrap();
    breaks("platform", &[("DOWN", "gateway/platform")]);
    assert!(show.run("check --online", 2).contains("gateway: platform token FAILED"));
    let printed = show.run("dev heal", 0);
    assert_eq!(printed.matches("healed: ").count(), 1, "{printed}");
    assert!(printed.starts_with("healed: platform\nthe gateway reads the new platform token"), "{printed}");
    assert!(printed.contains("OK       gateway/"), "{printed}");
    assert!(std::fs::read(show.dir.join("platform.token")).unwrap() != before);
    eventually(Duration::from_secs(20), || {
        let (code, output, error) = show.try_run("check --online");
        if code == 0 { Ok(()) } else { Err(output + &error) }
    });
    assert_eq!(show.run("dev heal", 0), "no fault was on\n");
    assert_eq!(show.run("dev heal clock", 0), "the fault clock was not on\n");
}

#[test]
fn break_watch_shows_the_recovery_and_ends_with_it() {
    let show = Show::start();
    let folder = tempfile::tempdir().unwrap();
    let dir = show.dir.to_str().unwrap();
    let mut watching = Binary::start(&["dev", "break", "audience", "--watch", "--dir", dir], &[], folder.path());
    watching.logs("following each change until everything works again");
    show.run("dev heal", 0);
    let status = watching.wait(Duration::from_secs(30));
    let output = watching.output();
    assert_eq!(status.code(), Some(0), "{output}");
    assert!(output.contains("\nhealed: audience; everything works again, "), "{output}");
    let after = output.split_once("following each change").unwrap().1;
    assert!(after.lines().any(|line| line.starts_with("OK ") && line.contains("session/instance")), "{output}");
}

impl Show {
    fn try_run(&self, line: &str) -> (i32, String, String) {
        let variables: Vec<_> = self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        run(&line.split(' ').collect::<Vec<_>>(), &variables)
    }
}

#[test]
fn without_a_running_one_the_commands_beside_it_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let missing = |dir: &Path, command: &str| {
        let args: Vec<&str> = command.split(' ').chain(["--dir", dir.to_str().unwrap()]).collect();
        let (code, output, error) = run(&args, &[]);
        assert_eq!((code, output.as_str()), (1, ""), "{error}");
        assert!(error.contains("no `keyward dev` runs in ") && error.contains("--dir"), "{error}");
    };
    for command in ["dev break server", "dev heal", "dev env"] {
        missing(&folder.path().join("nothing"), command);
        assert!(!folder.path().join("nothing").exists());
    }
    let mut show = Show::start();
    show.dev.signal(rustix::process::Signal::INT);
    show.dev.wait(Duration::from_secs(20));
    missing(&show.dir, "dev break server");
}
