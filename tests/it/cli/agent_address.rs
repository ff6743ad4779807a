//! The commands that ask a running agent, as processes: how they find it, how long they wait, how they end.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::harness::binary::{Binary, ask, eventually, run};
use crate::harness::not_run::is_root;
use crate::harness::ports;
use crate::harness::program::copy_program;
use crate::harness::python_script::PythonScript;

const KEY: &str = "0123456789abcdef0123456789abcdef";

/// An agent's folder, with a configuration that has these listeners. It cannot log in.
fn folder(listeners: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key"), KEY).unwrap();
    std::fs::write(folder.path().join("wrong"), KEY.replace('0', "f")).unwrap();
    let text = format!(
        "[server.main]\nkind = \"vault\"\naddress = \"http://127.0.0.1:9\"\n\
         [session.main.cloud]\nrole = \"web\"\nresource = \"https://management.azure.com/\"\n{listeners}"
    );
    let text = text.replace("FOLDER", &folder.path().display().to_string());
    std::fs::write(folder.path().join("keyward.toml"), text).unwrap();
    folder
}

/// Runs `keyward WORDS --config FOLDER/keyward.toml MORE`: exit code, standard error, and how long it took.
fn command(folder: &Path, words: &str) -> (i32, String, Duration) {
    let config = folder.join("keyward.toml").display().to_string();
    let words = words.replace("FOLDER", &folder.display().to_string());
    let args: Vec<&str> = words.split(' ').chain(["--config", &config]).collect();
    #[expect(clippy::disallowed_methods, reason = "a process is timed, in real time")]
    let start = Instant::now();
    let (code, _, stderr) = run(&args, &[]);
    (code, stderr, start.elapsed())
}

fn free_port() -> u16 {
    ports::reserve().port()
}

#[test]
fn wait_ends_at_its_timeout_without_a_response() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let folder = folder(&format!("[listener.api]\naddress = \"tcp://127.0.0.1:{port}\"\nany_local_user = true\n"));
    let (code, stderr, took) = command(folder.path(), "wait --timeout 1s");
    assert_eq!(code, 5, "{stderr}");
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(20), "{took:?}");
    drop(silent);
    // A time that no clock holds is no mistake.
    let (code, stderr, _) = command(folder.path(), "token --wait 18446744073709551615s");
    assert_eq!(code, 7, "{stderr}");
}

#[test]
fn each_kind_of_refusal_has_its_own_exit_code() {
    let port = free_port();
    let api = |key: &str| {
        format!(
            "[listener.unix]\naddress = \"unix://FOLDER/api.sock\"\n\
             [listener.tcp]\naddress = \"tcp://127.0.0.1:{port}\"\nkey_file = \"FOLDER/{key}\"\n"
        )
    };
    let folder = folder(&api("key"));
    let config = folder.path().join("keyward.toml");
    let agent = Binary::start(&["run", "--config", &config.display().to_string()], &[], folder.path());
    eventually(Duration::from_secs(30), || ask(&folder.path().join("api.sock"), "GET", "/livez"));
    eventually(Duration::from_secs(30), || TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string()));
    let tcp = format!("--address http://127.0.0.1:{port}");
    let check = |words: &str, expected: i32, says: &str| {
        let (code, stderr, _) = command(folder.path(), words);
        assert_eq!(code, expected, "{words}: {stderr}");
        assert!(stderr.contains(says), "{words}: {stderr}\n{}", agent.output());
    };
    check("healthcheck --live", 0, "");
    check("healthcheck", 4, "session/main");
    check("token --wait 100ms", 4, "503");
    check(&format!("healthcheck --live {tcp}"), 0, "");
    check("healthcheck --live --address unix://FOLDER/api.sock", 0, "");
    check("healthcheck --address unix://FOLDER/none.sock", 7, "none.sock");
    check("token --address http://example.com:80", 1, "unix:///PATH");
    // The command has another key than the agent.
    let change = |key: &str| {
        let text = std::fs::read_to_string(&config).unwrap();
        let start = text.find("key_file").unwrap();
        std::fs::write(&config, format!("{}key_file = \"{}/{key}\"\n", &text[..start], folder.path().display()))
            .unwrap();
    };
    change("wrong");
    for words in ["healthcheck", "healthcheck --live", "wait --timeout 20s", "token", "status"] {
        check(&format!("{words} {tcp}"), 6, "403");
    }
    change("missing");
    for words in ["healthcheck", "wait --timeout 20s", "token", "status"] {
        check(&format!("{words} {tcp}"), 1, "listener.tcp.key_file");
    }
    check("healthcheck --live", 0, "");
}

#[test]
fn check_online_resolves_the_proxy_instead_of_the_server_behind_it() {
    let folder = folder("");
    let file = folder.path().join("keyward.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let direct = text.replace("http://127.0.0.1:9", "https://no-such-host.invalid");
    let through = direct.replace("[session", "proxy = \"http://no-such-proxy.invalid:3128\"\n[session");
    let environment = [("HTTPS_PROXY", "http://no-such-proxy.invalid:3128")];
    let exempt = [environment[0], ("NO_PROXY", "invalid")];
    for (text, variables, expected) in [
        (&direct, &[][..], "no-such-host"),
        (&direct, &environment[..], "the proxy no-such-proxy"),
        (&direct, &exempt[..], "no-such-host"),
        (&through, &[][..], "the proxy no-such-proxy"),
    ] {
        std::fs::write(&file, text).unwrap();
        let (code, output, error) = run(&["check", "--online", "--config", &file.display().to_string()], variables);
        let failed = output.lines().find(|line| line.contains("FAILED")).unwrap_or_default();
        assert!(code == 2 && failed.contains(expected), "{expected}: {output}{error}");
    }
}

#[test]
fn commands_reach_a_healthy_agent_despite_a_broken_configuration() {
    let folder = folder("[listener.unix]\naddress = \"unix://FOLDER/api.sock\"\n");
    let config = folder.path().join("keyward.toml");
    let agent = Binary::start(&["run", "--config", &config.display().to_string()], &[], folder.path());
    let socket = folder.path().join("api.sock");
    eventually(Duration::from_secs(30), || ask(&socket, "GET", "/livez"));
    let whole = std::fs::read_to_string(&config).unwrap();
    let misspelt = whole.replace("role =", "rolle =").replace("[listener", "[agnet]\nx = 1\n[listener");
    let check = |words: &str, variables: &[(&str, &str)], expected: i32, says: &str| {
        let mut args: Vec<&str> = words.split(' ').collect();
        let file = config.display().to_string();
        args.extend(["--config", &file]);
        let (code, output, error) = run(&args, variables);
        assert_eq!(code, expected, "{words}: {output}{error}\n{}", agent.output());
        assert!(error.contains(says), "{words}: {error}");
        error
    };
    for broken in [misspelt.clone(), format!("{misspelt}\n= nothing\n")] {
        std::fs::write(&config, broken).unwrap();
        for (words, expected) in
            [("healthcheck --live", 0), ("healthcheck", 4), ("status", 0), ("token", 4), ("wait --timeout 300ms", 5)]
        {
            let error = check(words, &[], expected, "warning: the configuration has errors: ");
            assert_eq!(error.matches("warning: ").count(), 1, "{error}");
            assert!(error.contains("more); using the agent at unix://"), "{error}");
        }
    }
    // An address needs no file, and the variable replaces the option.
    std::fs::write(&config, "[listener").unwrap();
    let there = format!("unix://{}", socket.display());
    let address = format!("healthcheck --live --address {there}");
    assert_eq!(check(&address, &[], 0, ""), "");
    assert_eq!(check("healthcheck --live", &[("KEYWARD_ADDR", &there)], 0, ""), "");
    check(&address, &[("KEYWARD_ADDR", "unix:///nowhere")], 0, "");
    check("healthcheck --live", &[("KEYWARD_ADDR", "here")], 1, "KEYWARD_ADDR is \"here\": write unix:///PATH");
    check("healthcheck --live", &[], 7, "/run/keyward/api.sock");
}

/// Takes another user's place, listens on a socket, and answers with a token.
const IMPOSTOR: &str = r#"
import os, socket, sys
os.setgid(65534); os.setuid(65534)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1]); listener.listen(8)
print("listens", flush=True)
while True:
    connection, _ = listener.accept()
    if connection.recv(65536):
        body = b'{"token":"of-the-impostor","session":"main"}'
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        connection.sendall(head + body)
    connection.close()
"#;

#[test]
fn the_token_of_another_users_process_that_listens_on_the_socket_is_not_printed() {
    if !is_root() {
        return;
    }
    let folder = folder("[listener.unix]\naddress = \"unix://FOLDER/shared/api.sock\"\n");
    let shared = folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    for (path, mode) in [(folder.path(), 0o755), (&shared, 0o1777)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut impostor = PythonScript::start(IMPOSTOR, &shared.join("api.sock"));
    assert_eq!(impostor.line(), "listens");
    for words in ["token", "token --address FOLDER/shared/api.sock", "status"] {
        let (code, error, _) = command(folder.path(), words);
        assert_eq!(code, 6, "{words}: {error}");
        assert!(error.contains("listens on the socket") && error.contains("KEYWARD_AGENT_USER="), "{words}: {error}");
    }
    let config = folder.path().join("keyward.toml").display().to_string();
    let (code, output, error) = run(&["token", "--config", &config], &[("KEYWARD_AGENT_USER", "65534")]);
    assert_eq!((code, output.as_str()), (0, "of-the-impostor\n"), "the user is named: {error}");
    let (code, _, error) = run(&["token", "--config", &config], &[("KEYWARD_AGENT_USER", "no-such-user")]);
    assert!(code == 6 && error.contains("no such user on this machine"), "{error}");
}

#[test]
fn a_socket_without_permission_is_a_refusal_that_names_the_group() {
    if !is_root() {
        return;
    }
    let folder = folder("[listener.unix]\naddress = \"unix://FOLDER/closed/api.sock\"\nmode = \"0660\"\n");
    let closed = folder.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    let config = folder.path().join("keyward.toml").display().to_string();
    let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    open(folder.path(), 0o755);
    let _agent = Binary::start(&["run", "--config", &config], &[], folder.path());
    eventually(Duration::from_secs(30), || ask(&closed.join("api.sock"), "GET", "/livez"));
    // The test's own binary may stand where only root looks.
    let program = folder.path().join("keyward");
    copy_program(env!("CARGO_BIN_EXE_keyward"), &program);
    let check = |words: &str, says: &str| {
        let args = words.split(' ').chain(["--config", &config]);
        let output =
            std::process::Command::new(&program).args(args).env_clear().uid(65534).gid(65534).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(6), "{words}: {error}");
        assert!(error.contains(says) && error.contains("group root"), "{words}: {error}");
    };
    for words in ["token", "status", "wait --timeout 20s", "healthcheck --live"] {
        check(words, "api.sock has mode 0660");
    }
    open(&closed, 0o750);
    check("status", "closed has mode 0750");
}

#[test]
fn a_configuration_that_the_user_may_not_read_is_named_only_if_no_agent_answers() {
    if !is_root() {
        return;
    }
    let folder = folder("[listener.unix]\naddress = \"unix://FOLDER/api.sock\"\nmode = \"0660\"\ngroup = \"65534\"\n");
    let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let files = folder.path().join("conf");
    std::fs::create_dir(&files).unwrap();
    std::fs::rename(folder.path().join("keyward.toml"), files.join("a.toml")).unwrap();
    std::fs::write(files.join("b.toml"), "[log]\nlevel = \"info\"\n").unwrap();
    open(folder.path(), 0o755);
    open(&files, 0o755);
    open(&files.join("a.toml"), 0o644);
    open(&files.join("b.toml"), 0o600);
    let config = files.display().to_string();
    let agent = Binary::start(&["run", "--config", &config], &[], folder.path());
    eventually(Duration::from_secs(30), || ask(&folder.path().join("api.sock"), "GET", "/livez"));
    // The test's own binary may stand where only root looks.
    let program = folder.path().join("keyward");
    copy_program(env!("CARGO_BIN_EXE_keyward"), &program);
    let as_nobody = |words: &str| {
        let args = words.split(' ').chain(["--config", &config]);
        let output =
            std::process::Command::new(&program).args(args).env_clear().uid(65534).gid(65534).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for words in ["status", "healthcheck --live"] {
        assert_eq!(as_nobody(words), (Some(0), String::new()), "{words}");
    }
    agent.stop();
    for words in ["status", "healthcheck --live"] {
        let (code, error) = as_nobody(words);
        assert_eq!(code, Some(7), "{words}: {error}");
        assert!(error.contains("b.toml: cannot be read: Permission denied") && !error.contains("warning:"), "{error}");
    }
}
