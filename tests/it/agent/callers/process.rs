//! Processes that change, end or pass their socket on after they have connected.

use std::process::{Command, Stdio};

use super::{Cgroup, TOKEN, cannot_run, client, parse, start};
use crate::harness::program::copy_program;
use crate::harness::world::{World, run_in_network_namespace};

#[test]
fn an_inherited_socket_has_the_rights_of_the_process_that_opened_it_while_that_lives() {
    if cannot_run() {
        return;
    }
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = start(&world, "[caller.web]\nuid = \"2000\"\nroutes = [\"token\"]\n", "");
        let socket = agent.socket();
        let socket = socket.to_str().unwrap();
        let ask = |ids: &str, steps: &[(&str, &str)]| {
            let steps: Vec<_> = [("connect", socket)].into_iter().chain(steps.iter().copied()).collect();
            let lines = client(None, ids, &steps);
            lines.iter().map(|line| parse(line)).collect::<Vec<_>>()
        };
        // A child of another user holds the socket of its parent, which waits.
        let passed = ask("", &[("child", ""), ("become", "2000 2000"), ("request", TOKEN)]);
        assert_eq!(passed[0].0, 200, "root opened it: {passed:?}");
        // The opener has ended, and its child goes on.
        let orphan = ask("2000 2000", &[("request", TOKEN), ("pass", ""), ("request", TOKEN)]);
        assert_eq!((orphan[0].0, orphan[1].0), (200, 403), "{orphan:?}");
        assert!(orphan[1].1.contains("has ended"), "{orphan:?}");
        // A process that becomes another user is that caller no more, whichever user it becomes.
        for (before, after) in [("0 0", "2000 2000"), ("0 0", "2001 2001")] {
            let changed = ask(before, &[("request", TOKEN), ("become", after), ("request", TOKEN)]);
            assert_eq!((changed[0].0, changed[1].0), (200, 403), "{before} to {after}: {changed:?}");
            assert!(changed[1].1.contains("has changed since it connected"), "{changed:?}");
        }
    });
}

#[test]
fn a_process_that_moves_to_another_cgroup_after_connecting_is_refused() {
    if cannot_run() {
        return;
    }
    run_in_network_namespace(|| {
        let (web, other) = (Cgroup::new("/keyward-test-NAME.service"), Cgroup::new("/keyward-test-NAME.service"));
        let world = World::start();
        let callers = format!("[caller.web]\nunit = \"{}\"\nroutes = [\"token\"]\n", web.unit());
        let agent = start(&world, &callers, "");
        let (socket, there) = (agent.socket(), other.procs());
        let steps = [
            ("connect", socket.to_str().unwrap()),
            ("request", TOKEN),
            ("enter", there.to_str().unwrap()),
            ("request", TOKEN),
        ];
        let lines = client(Some(&web), "", &steps);
        assert_eq!((parse(&lines[0]).0, parse(&lines[1]).0), (200, 403), "{lines:?}");
    });
}

#[test]
fn a_caller_that_executes_another_program_after_connecting_is_refused() {
    if cannot_run() {
        return;
    }
    run_in_network_namespace(|| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let found = Command::new("sh").args(["-c", "readlink -f $(command -v perl)"]).output().unwrap();
        let perl = String::from_utf8(found.stdout).unwrap().trim().to_owned();
        let other = folder.path().join("other");
        copy_program(&perl, &other);
        let (perl, other) = (perl.as_str(), other.to_str().unwrap());
        let sum = Command::new("sha256sum").arg(perl).output().unwrap();
        let digest = String::from_utf8(sum.stdout).unwrap().split(' ').next().unwrap().to_owned();
        let world = World::start();
        for (name, digest, granted) in [
            ("by its path", String::new(), true),
            ("by its digest", format!("sha256 = \"{digest}\"\n"), true),
            ("by another digest", format!("sha256 = \"{}\"\n", "0".repeat(64)), false),
        ] {
            let callers = format!(
                "[caller.perl]\nuid = \"2000\"\nexecutable = \"{perl}\"\n{digest}routes = [\"token\", \"status\"]\n"
            );
            let agent = start(&world, &callers, "");
            let socket = agent.socket();
            let socket = socket.to_str().unwrap();
            let run = |program| {
                let steps = [("connect", socket), ("request", TOKEN), ("exec", program)];
                client(None, "2000 2000", &steps).iter().map(|line| parse(line).0).collect::<Vec<_>>()
            };
            let (yes, no) = (if granted { 200 } else { 403 }, 403);
            assert_eq!(run(perl), [yes, yes, yes], "{name}: the same program");
            assert_eq!(run(other), [yes, no, no], "{name}: another file of the same content");
        }
    });
}

/// Reuses one id: a process in one cgroup connects and ends, a process in the caller's cgroup gets its id, and a third that
/// inherited the socket asks. `ARGV`: socket, the two cgroups, the number of times, and if the agent stands still meanwhile.
const REUSE: &str = r#"
    use POSIX; use IO::Socket::UNIX; use Fcntl;
    my ($path, $evil, $web, $times) = @ARGV;
    sysopen(my $e, $evil, 0200000) or die "$evil: $!"; sysopen(my $w, $web, 0200000) or die "$web: $!";
    # clone3 with CLONE_INTO_CGROUP, an exit signal and one id.
    sub spawn {
        my ($cgroup, $pid) = @_; my $set = pack('i', $pid);
        my $args = pack('QQQQQQQQPQQ', 0x200000000, 0, 0, 0, SIGCHLD, 0, 0, 0, $set, 1, fileno($cgroup));
        my $got = syscall(435, $args, length $args); die "clone3: $!" if $got < 0; $got
    }
    my $agent = (grep { readlink("/proc/$_/exe") =~ /keyward/ } map { m{/proc/(\d+)$} } glob('/proc/[0-9]*'))[0] or die 'no agent';
    my ($wrong, $right, %answers) = (0, 0);
    for my $round (1..$times) {
        my $id = 20000 + $round % 7;
        my $still = $round % 2; kill('STOP', $agent) if $still;
        # The opener makes the socket by itself and hands it to this process by a pair.
        socketpair(my $near, my $far, AF_UNIX, SOCK_STREAM, 0) or die;
        my $s;
        if (!spawn($e, $id)) {
            my $c = IO::Socket::UNIX->new(Peer => $path) or POSIX::_exit(1);
            # A holder of the socket that outlives it.
            if (!fork()) {
                close $near; syswrite($far, 'c'); my $go; sysread($far, $go, 1);
                print $c "GET /agent/v1/token HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\nConnection: close\r\n\r\n";
                my $line = <$c>; syswrite($far, substr($line // '', 9, 3) || '---'); POSIX::_exit(0);
            }
            POSIX::_exit(0);
        }
        close $far; sysread($near, my $connected, 1); waitpid($id, 0);
        if (!spawn($w, $id)) {
            close $near; select(undef, undef, undef, undef) while 1;
        }
        kill('CONT', $agent) if $still;
        syswrite($near, 'g'); sysread($near, my $status, 3); $answers{$status}++; $wrong++ if $status eq '200';
        if ($round % 50 == 1) {
            kill('KILL', $id); waitpid($id, 0);
            if (!(my $own = spawn($w, $id))) {
                my $c = IO::Socket::UNIX->new(Peer => $path) or POSIX::_exit(1);
                print $c "GET /agent/v1/token HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\nConnection: close\r\n\r\n";
                my $line = <$c>; POSIX::_exit(substr($line, 9, 3) eq '200' ? 0 : 1);
            }
            waitpid($id, 0); $right++ if $? == 0;
        } else { kill('KILL', $id); waitpid($id, 0); }
        1 while waitpid(-1, WNOHANG) > 0;
    }
    print "wrong=$wrong right=$right ", join(' ', map { "$_:$answers{$_}" } sort keys %answers), "\n";
"#;

/// Number of reuses of an id. `KEYWARD_PID_REUSES=100000` takes some minutes.
fn reuses() -> u32 {
    let variable = std::env::vars_os().find(|(name, _)| name == "KEYWARD_PID_REUSES");
    variable.map_or(1000, |(_, count)| count.to_str().unwrap().parse().unwrap())
}

#[test]
fn a_reused_process_id_gets_nothing_of_the_process_that_has_it_now() {
    if cannot_run() {
        return;
    }
    run_in_network_namespace(|| {
        let (evil, web) = (Cgroup::new("/keyward-test-NAME.service"), Cgroup::new("/keyward-test-NAME.service"));
        let world = World::start();
        let callers = format!("[caller.web]\nunit = \"{}\"\nroutes = [\"token\"]\n", web.unit());
        // The root user is the last caller of the others; here a match by the user would hide a wrong one by the id.
        let callers = format!("{callers}[caller.evil]\nunit = \"{}\"\nroutes = [\"health\"]\n", evil.unit());
        let inside = "exec unshare --pid --fork --kill-child --mount-proc sh -c '\"$0\" \"$@\"; exit $?' \"$0\" \"$@\"";
        let agent = start(&world, &callers, inside);
        let namespace = format!("--pid=/proc/{}/ns/pid_for_children", agent.binary.id());
        let times = reuses();
        let output = Command::new("nsenter")
            .args([&namespace, "unshare", "--mount", "sh", "-c", "mount -t proc proc /proc && exec \"$0\" \"$@\""])
            .args(["perl", "-e", REUSE])
            .arg(agent.socket())
            .args([&evil.folder, &web.folder])
            .arg(times.to_string())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        eprintln!("{times} reuses of an id: {stdout}");
        let right = times.div_ceil(50);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(stdout.starts_with(&format!("wrong=0 right={right} ")), "{stdout}{error}{}", agent.binary.output());
        assert!(stdout.contains(&format!("403:{times}")), "{stdout}");
    });
}
