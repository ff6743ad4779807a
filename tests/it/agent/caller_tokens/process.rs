//! `scope = "process"`: each process has its own token, from its first need to its end.

use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation};
use serde_json::json;

use super::{Process, Scene, TOKEN, put_secrets};
use crate::agent::derived_tokens::call;
use crate::harness::binary::{ask, eventually, run};
use crate::harness::not_run::{is_root, not_run};

const JOB: &str = "[caller.job]\nuid = \"2000\"\nroutes = [\"token\", \"proxy\"]\n\
    [caller.job.derived_token]\npolicies = [\"a\"]\nttl = \"1h\"\nscope = \"process\"\n";

/// Calls that revoke: by accessor, or of the token itself.
fn revocations(scene: &Scene) -> u64 {
    scene.count(Operation::OtherToken) + scene.count(Operation::Revoke)
}

/// Waits until the server does not know a token any more.
#[track_caller]
fn ends_within(scene: &Scene, token: &str, seconds: u64) {
    let alive = || if scene.is_alive(token) { Err(format!("it is alive: {}", scene.agent.output())) } else { Ok(()) };
    eventually(Duration::from_secs(seconds), alive);
}

fn live(scene: &Scene) -> u64 {
    scene.metric("keyward_caller_process_tokens{caller=\"job\"}")
}

#[expect(clippy::disallowed_methods, reason = "a process is waited for, in real time")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_has_one_token_which_is_revoked_within_two_seconds_of_its_end() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(JOB);
    put_secrets(&scene).await;
    assert_eq!(scene.count(Operation::CreateToken), 0, "none is made ahead");
    let (mut one, mut other) = (Process::start(2000), Process::start(2000));
    let (first, second) = tokio::task::block_in_place(|| {
        let (first, second) = (one.token(&scene), other.token(&scene));
        assert_eq!((one.token(&scene), other.token(&scene)), (first.clone(), second.clone()));
        let (status, _, body) = one.ask(&scene.socket("proxy"), "/v1/secret/data/a");
        assert_eq!(status, 200, "{body}");
        assert_eq!(one.ask(&scene.socket("proxy"), "/v1/secret/data/b").0, 403);
        (first, second)
    });
    assert_ne!(first, second);
    assert_eq!((scene.count(Operation::Login), scene.count(Operation::CreateToken)), (1, 2));
    let (_, body) = call(&scene.secrets, &first, "auth/token/lookup-self", None).await;
    let meta = &body["data"]["meta"];
    let pid = one.child.id().to_string();
    assert_eq!((&meta["caller"], &meta["uid"], &meta["pid"]), (&json!("job"), &json!("2000"), &json!(pid)), "{body}");
    tokio::task::block_in_place(|| {
        assert_eq!(live(&scene), 2);
        let status = scene.status();
        let caller = &status["callers"]["callers"][0];
        assert_eq!((&caller["token_scope"], &caller["tokens"]), (&json!("process"), &json!(2)), "{caller}");
        one.end();
        let ended = now();
        ends_within(&scene, &first, 2);
        eprintln!("revoked {:?} after the end of its process", ended.elapsed());
        assert_eq!(revocations(&scene), 1, "one call");
        assert!(scene.is_alive(&second), "the other process lives");
        eventually(Duration::from_secs(5), || if live(&scene) == 1 { Ok(()) } else { Err(live(&scene).to_string()) });
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_one_process_at_once_create_one_token() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(JOB);
    tokio::task::block_in_place(|| {
        let script = r#"
            use POSIX; use IO::Socket::UNIX; my ($path) = @ARGV; $) = "2000 2000"; POSIX::setgid(2000); POSIX::setuid(2000);
            my @all = map { IO::Socket::UNIX->new(Peer => $path) or die } 1..20;
            print $_ "GET /agent/v1/token HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\nConnection: close\r\n\r\n" for @all;
            $_->flush for @all;
            for (@all) { local $/; my $answer = <$_>; my ($token) = $answer =~ m{"token":"([^"]+)"}; print $token // $answer, "\n"; }"#;
        let output = std::process::Command::new("perl").args(["-e", script]).arg(scene.socket("api")).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut tokens: Vec<_> = text.lines().collect();
        assert_eq!(tokens.len(), 20, "{text}");
        tokens.dedup();
        assert_eq!(tokens.len(), 1, "{text}");
    });
    assert_eq!(scene.count(Operation::CreateToken), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sixty_fifth_process_is_refused_until_one_has_ended() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(JOB);
    tokio::task::block_in_place(|| {
        let mut processes: Vec<_> = (0..64).map(|_| Process::start(2000)).collect();
        for process in &mut processes {
            process.send(&scene.socket("api"), TOKEN);
        }
        for process in &mut processes {
            let (mut status, _, mut body) = process.answer();
            // A disk that is busy for longer than the audit waits; a request without a record is not served.
            if body.to_string().contains("KW-1505") {
                (status, _, body) = process.ask(&scene.socket("api"), TOKEN);
            }
            assert_eq!(status, 200, "{body} {}", scene.agent.output());
        }
        let mut last = Process::start(2000);
        let (status, retry, body) = last.ask(&scene.socket("api"), TOKEN);
        assert!(
            status == 503 && retry > 0 && body.to_string().contains("has reached its limit of 64 process tokens"),
            "{status} {body}"
        );
        assert_eq!(last.ask(&scene.socket("proxy"), "/v1/secret/data/a").0, 503);
        assert_eq!(live(&scene), 64);
        let refused = "caller=\"job\",listener=\"api\",reason=\"token_limit\"";
        assert_eq!(scene.metric(&format!("keyward_caller_refused_total{{{refused}}}")), 1);
        let status = scene.status().to_string();
        assert!(status.contains("64 processes have a token"), "{status}");
        scene.agent.logs("reason=\"token_limit\"");
        // Another caller is not concerned.
        assert_eq!(ask(&scene.socket("api"), "GET", "/agent/v1/token").unwrap().0, 200);
        processes.pop();
        eventually(Duration::from_secs(20), || {
            let (status, _, body) = last.ask(&scene.socket("api"), TOKEN);
            if status == 200 { Ok(()) } else { Err(format!("{status} {body}")) }
        });
    });
    assert_eq!(scene.count(Operation::Login), 1);
}

/// Number of processes. `KEYWARD_SHORT_LIVED_CALLERS=10000` takes some minutes.
fn short_lived() -> u64 {
    let variable = std::env::vars_os().find(|(name, _)| name == "KEYWARD_SHORT_LIVED_CALLERS");
    variable.map_or(400, |(_, count)| count.to_str().unwrap().parse().unwrap())
}

/// Processes that each send one request and end.
const SHORT_LIVED: &str = r#"
    use POSIX; use IO::Socket::UNIX; my ($path, $count) = @ARGV; $) = "2000 2000"; POSIX::setgid(2000); POSIX::setuid(2000);
    pipe(my $out, my $in); my $running = 0; my %answers;
    for (1..$count) {
        if ($running >= 8) { wait(); $running-- }
        if (!fork()) {
            my $s = IO::Socket::UNIX->new(Peer => $path) or do { syswrite($in, '000'); POSIX::_exit(1) };
            print $s "GET /agent/v1/token HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\nConnection: close\r\n\r\n";
            my $line = <$s>; 1 while <$s>;
            syswrite($in, substr($line // '', 9, 3) || '---'); POSIX::_exit(0);
        }
        $running++;
        if ($_ % 1000 == 0) { while ($running > 0) { wait(); $running-- } sysread($out, my $part, 3000); $answers{$_}++ for $part =~ /.../g }
    }
    while ($running > 0) { wait(); $running-- }
    close $in; { local $/; my $rest = <$out>; $answers{$_}++ for $rest =~ /.../g }
    print join(' ', map { "$_:$answers{$_}" } sort keys %answers), "\n";
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_short_lived_processes_cost_no_login_and_their_tokens_are_revoked() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(JOB);
    let count = short_lived();
    tokio::task::block_in_place(|| {
        let started = now();
        let output = std::process::Command::new("perl")
            .args(["-e", SHORT_LIVED])
            .arg(scene.socket("api"))
            .arg(count.to_string())
            .output()
            .unwrap();
        let took = started.elapsed();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let created = scene.count(Operation::CreateToken);
        eprintln!("{count} processes in {took:?}: {} {created} tokens", stdout.trim());
        let responses: Vec<(&str, u64)> = stdout
            .split_whitespace()
            .map(|part| part.split_once(':').unwrap())
            .map(|(a, b)| (a, b.parse().unwrap()))
            .collect();
        assert_eq!(responses.iter().map(|(_, number)| number).sum::<u64>(), count, "{stdout}");
        assert!(responses.iter().all(|(status, _)| ["200", "429", "503"].contains(status)), "{stdout}");
        assert!(responses.iter().any(|(status, _)| *status == "429"), "{stdout}");
        assert_eq!(scene.count(Operation::Login), 1);
        assert!(created <= 64 + took.as_secs() + 2, "{created} tokens in {took:?}");
        eventually(Duration::from_secs(10), || {
            let (revoked, left) = (revocations(&scene), live(&scene));
            if revoked == created && left == 0 { Ok(()) } else { Err(format!("{revoked} of {created}, {left} live")) }
        });
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_keeps_the_tokens_of_unchanged_callers_and_revokes_those_of_changed_ones() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(JOB);
    let mut process = Process::start(2000);
    tokio::task::block_in_place(|| {
        let first = process.token(&scene);
        scene.reload(|text| text.replace("max_age = \"1m\"", "max_age = \"2m\""));
        assert_eq!(process.token(&scene), first);
        scene.reload(|text| text.replace("ttl = \"1h\"", "ttl = \"2h\""));
        let second = process.token(&scene);
        assert_ne!(second, first);
        ends_within(&scene, &first, 5);
        scene.reload(|text| text.replace("scope = \"process\"", "scope = \"caller\""));
        let third = process.token(&scene);
        assert_ne!(third, second);
        ends_within(&scene, &second, 5);
        assert_eq!(Process::start(2000).token(&scene), third);
    });
    assert_eq!(scene.count(Operation::Login), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tokens_that_a_process_had_before_a_replacement_are_revoked_with_its_last() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(&JOB.replace("ttl = \"1h\"", "ttl = \"20s\""));
    tokio::task::block_in_place(|| {
        let mut process = Process::start(2000);
        let first = process.token(&scene);
        let second = eventually(Duration::from_secs(20), || {
            let token = process.token(&scene);
            if token == first { Err("it has the first token".to_owned()) } else { Ok(token) }
        });
        assert!(scene.is_alive(&first), "it is replaced before it ends");
        process.end();
        ends_within(&scene, &second, 2);
        ends_within(&scene, &first, 2);
        assert_eq!((revocations(&scene), scene.count(Operation::CreateToken)), (2, 2));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_revokes_the_tokens_of_living_processes() {
    if !is_root() {
        return;
    }
    let scene = Scene::start_with(JOB, "");
    let mut process = Process::start(2000);
    let token = tokio::task::block_in_place(|| process.token(&scene));
    let Scene { secrets, agent, folder, _tasks: tasks } = scene;
    let (ended, output) = tokio::task::block_in_place(|| agent.stop());
    assert!(ended.success(), "{output}");
    assert!(secrets.remaining(&token).is_none(), "{output}");
    assert!(secrets.faults().tokens() > 0, "the session's own token stays, as revoke_on_exit is not set");
    drop((folder, tasks));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_creation_is_told_and_not_repeated_for_each_process() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(JOB);
    let refused = CannedResponse::error(403, "1 error occurred:\n\t* permission denied\n\n");
    scene.secrets.faults().respond_always(Operation::CreateToken, Some(refused));
    tokio::task::block_in_place(|| {
        for _ in 0..20 {
            let (status, retry, body) = Process::start(2000).ask(&scene.socket("api"), TOKEN);
            let text = body.to_string();
            assert!(status == 503 && retry > 0 && text.contains("could not be created"), "{status} {retry} {body}");
        }
        assert_eq!(scene.count(Operation::CreateToken), 1, "one attempt for all");
        scene.agent.logs("event=\"token.derived.failed\"");
        let output = scene.agent.output();
        assert_eq!(output.matches("event=\"token.derived.failed\"").count(), 1, "{output}");
        let status = scene.status().to_string();
        assert!(status.contains("the derived token could not be created: HTTP 403"), "{status}");
        assert!(status.contains("must allow update on auth/token/create") && status.contains("KW-"), "{status}");
        assert_eq!(ask(&scene.socket("api"), "GET", "/readyz").unwrap().0, 200, "it is no condition of readiness");
        assert_eq!(live(&scene), 0);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_token_of_a_process_is_replaced_and_so_is_one_that_ended_with_the_sessions() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(JOB);
    put_secrets(&scene).await;
    let mut process = Process::start(2000);
    let mut read = || tokio::task::block_in_place(|| process.ask(&scene.socket("proxy"), "/v1/secret/data/a"));
    assert_eq!(read().0, 200);
    let accessor = accessor_in_log(&scene);
    let root = scene
        .secrets
        .token(&keyward_emulators::secrets::Role { policies: vec!["root".to_owned()], ..Default::default() });
    let root = root.expose_secret();
    let body = json!({ "accessor": accessor });
    assert_eq!(call(&scene.secrets, root, "auth/token/revoke-accessor", Some(body)).await.0, 204);
    let (status, _, body) = read();
    assert_eq!(status, 200, "{body} {}", scene.agent.output());
    assert_eq!((scene.count(Operation::Login), scene.count(Operation::CreateToken)), (1, 2));
    scene.secrets.faults().revoke_all();
    tokio::task::block_in_place(|| {
        eventually(Duration::from_secs(40), || {
            let (status, _, body) = process.ask(&scene.socket("proxy"), "/v1/secret/data/a");
            if status == 200 { Ok(()) } else { Err(format!("{status} {body} {}", scene.agent.output())) }
        });
    });
    assert_eq!(scene.count(Operation::Login), 2);
}

/// The accessor of the only token that was derived.
fn accessor_in_log(scene: &Scene) -> String {
    tokio::task::block_in_place(|| scene.agent.logs("event=\"token.derived\" "));
    let output = scene.agent.output();
    let event = output.split("event=\"token.derived\" ").nth(1).and_then(|rest| rest.split("accessor=\"").nth(1));
    event.and_then(|rest| rest.split('"').next()).unwrap_or_else(|| panic!("{output}")).to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_revokes_itself_where_the_session_may_not_revoke_by_accessor() {
    if !is_root() {
        return;
    }
    let scene = Scene::start(JOB);
    let refused = CannedResponse::error(403, "1 error occurred:\n\t* permission denied\n\n");
    scene.secrets.faults().respond_always(Operation::OtherToken, Some(refused));
    tokio::task::block_in_place(|| {
        for _ in 0..3 {
            let mut process = Process::start(2000);
            let token = process.token(&scene);
            process.end();
            ends_within(&scene, &token, 2);
        }
    });
    assert_eq!((scene.count(Operation::OtherToken), scene.count(Operation::Revoke)), (1, 3), "tried by accessor once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_cannot_be_revoked_and_connections_without_a_process_are_refused() {
    if !is_root() {
        return;
    }
    let callers = JOB.replace("policies = [\"a\"]", "role = \"batch\"");
    let scene = Scene::start(&format!("[listener.tcp]\naddress = \"tcp://127.0.0.1:0\"\n{callers}"));
    tokio::task::block_in_place(|| {
        let (status, body) = scene.ask_as(2000, "api", TOKEN);
        assert_eq!(status, 503, "{body}");
        scene.agent.logs("it cannot be revoked: set token_type = service in its role");
        let config = scene.folder.path().join("keyward.toml");
        let (_, out, error) = run(&["check", "--config", config.to_str().unwrap()], &[]);
        assert!((out.clone() + &error).contains("a token for each of its processes, until that ends"), "{out}{error}");
        let status = scene.status();
        if status["callers"]["kernel"]["tcp_owners"] != true {
            not_run("the kernel does not tell the owners of TCP sockets");
            return;
        }
        let address = status["components"]["listener/tcp"]["target"].as_str().unwrap_or_else(|| panic!("{status}"));
        let address = address.trim_start_matches("tcp://").to_owned();
        let script = r#"
            use POSIX; use IO::Socket::INET; my ($to) = @ARGV; $) = "2000 2000"; POSIX::setgid(2000); POSIX::setuid(2000);
            my $s = IO::Socket::INET->new($to) or die; local $/;
            print $s "GET /agent/v1/token HTTP/1.1\r\nHost: $to\r\nX-Vault-Request: true\r\nConnection: close\r\n\r\n"; print <$s>;"#;
        let output = std::process::Command::new("perl").args(["-e", script, &address]).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(stdout.contains(" 403 ") && stdout.contains("which the kernel does not report"), "{stdout}");
    });
}
