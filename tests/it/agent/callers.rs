//! Callers as the kernel identifies them: the real agent, and processes of other users in cgroups of their own.

mod kernels;
mod limits;
mod matrix;
mod policy_explain;
mod process;

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use crate::harness::agent::Agent;
use crate::harness::not_run::{is_root, not_run};
use crate::harness::world::World;

/// Listeners that every user may open, of the local API and of an API proxy, and the secret of a credential.
const LISTENERS: &str = "[listener.proxy]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/proxy.sock\"\nmode = \"0666\"\n\
    session = \"web\"\n[credential.registry]\nsession = \"web\"\nhosts = [\"registry.example.com\"]\npath = \"secret/data/registry\"\n";

/// Last caller: lets the test itself, which is root, ask for everything.
const OPS: &str = "[caller.ops]\nuid = \"0\"\nroutes = [\"token\", \"refresh\", \"proxy\", \"credentials\", \"status\", \"health\"]\n";

/// Says that a test was not run, and returns true, where it cannot be other users in other cgroups.
fn cannot_run() -> bool {
    if !is_root() {
        return true;
    }
    let cannot = Cgroup::root().is_none();
    if cannot {
        not_run("there is no writable tree of cgroups of version 2");
    }
    cannot
}

/// Starts an agent with callers. `setup` runs in a shell before it; empty for none.
fn start(world: &World, callers: &str, setup: &str) -> Agent {
    world.put("web", &json!({ "password": "canary-web" }));
    world.put("registry", &json!({ "username": "puller", "password": "canary-registry" }));
    let edit = |text: String| {
        text.replace("/api.sock\"\n", "/api.sock\"\nmode = \"0666\"\n")
            .replace("[sink.token]\n", "[sink.token]\nsession = \"web\"\n")
            + LISTENERS
            + callers
            + OPS
    };
    let agent = Agent::ready_after(world, if setup.is_empty() { ":" } else { setup }, edit);
    std::fs::set_permissions(agent.socket().parent().unwrap(), Permissions::from_mode(0o711)).unwrap();
    agent
}

/// A cgroup of version 2, removed when dropped.
struct Cgroup {
    /// Path as the kernel tells it.
    path: String,
    folder: PathBuf,
}

impl Cgroup {
    /// The tree's mount point, if cgroups can be made there.
    fn root() -> Option<PathBuf> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let root = PathBuf::from(line.split(' ').nth(4)?);
        let probe = root.join(format!("keyward-probe-{}", Self::unique()));
        std::fs::create_dir(&probe).ok()?;
        std::fs::remove_dir(&probe).ok()?;
        Some(root)
    }

    fn unique() -> String {
        static MADE: AtomicU32 = AtomicU32::new(0);
        format!("{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes a cgroup with the folders above it; `NAME` stands for a part that no other test has.
    fn new(path: &str) -> Self {
        let path = path.replace("NAME", &Self::unique());
        let folder = Self::root().unwrap().join(path.trim_start_matches('/'));
        // Another run of the tests may remove a folder above it that was empty.
        let mut tries = (0..100).map(|_| std::fs::create_dir_all(&folder));
        let made = tries.find(|made| !made.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound));
        made.unwrap_or_else(|| panic!("{} is removed again and again", folder.display())).unwrap();
        Self { path, folder }
    }

    fn procs(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// The system's unit that it is.
    fn unit(&self) -> &str {
        self.path.trim_start_matches('/')
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let root = Self::root().unwrap();
        let mut folder = self.folder.clone();
        // Ends at the first that is not ours alone.
        while folder != root && std::fs::remove_dir(&folder).is_ok() {
            folder.pop();
        }
    }
}

/// Client whose steps are its arguments. It enters a cgroup and becomes a user by the first two: `FILE` and `UID GID...`.
const CLIENT: &str = r#"
    use POSIX; use IO::Socket::UNIX; use IO::Socket::INET;
    $| = 1;
    my ($procs, $ids, @steps) = @ARGV;
    sub enter { open(my $f, '>', $_[0]) or die "$_[0]: $!"; syswrite($f, "$$\n") or die "$_[0]: $!"; }
    sub become { my @ids = split / /, $_[0]; $) = "$ids[1] @ids[1..$#ids]"; POSIX::setgid($ids[1]); POSIX::setuid($ids[0]); die "uid" if $< != $ids[0]; }
    enter($procs) if $procs; become($ids) if $ids;
    my $s;
    sub connect_to {
        $s = $_[0] =~ m{^/} ? IO::Socket::UNIX->new(Peer => $_[0]) : IO::Socket::INET->new($_[0]);
        die "cannot connect to $_[0]: $!" unless $s;
    }
    sub request {
        my ($method, $path) = split / /, $_[0];
        print $s "$method $path HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\nContent-Length: 0\r\n\r\n";
        my $head = ''; while (<$s>) { last if $_ eq "\r\n"; $head .= $_; }
        my ($status) = $head =~ m{^HTTP/1.1 (\d+)}; my ($length) = $head =~ m{content-length: (\d+)}i;
        my $body = ''; read($s, $body, $length) if $length;
        $body =~ s/\n/ /g;
        print defined $status ? "$status $body\n" : "closed\n";
    }
    while (@steps) {
        my ($step, $with) = (shift @steps, shift @steps);
        if ($step eq 'connect') { connect_to($with) }
        elsif ($step eq 'request') { request($with) }
        elsif ($step eq 'enter') { enter($with) }
        elsif ($step eq 'become') { become($with) }
        elsif ($step eq 'pass') { my $parent = $$; exit 0 if fork(); select(undef, undef, undef, 0.01) while getppid() == $parent }
        elsif ($step eq 'child') { if (my $child = fork()) { waitpid($child, 0); exit 0 } }
        elsif ($step eq 'exec') { fcntl($s, 2, 0); exec($with, '-e', $ENV{THEN}, fileno($s)) or die "exec: $!" }
    }
"#;

/// Program that goes on with the socket of the client that executed it, which is its argument.
const THEN: &str = r#"
    open(my $s, '+<&=', $ARGV[0]) or die; $| = 1; select((select($s), $| = 1)[0]);
    for my $path ('/agent/v1/token', '/agent/v1/status') {
        print $s "GET $path HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n\r\n";
        my $head = ''; while (<$s>) { last if $_ eq "\r\n"; $head .= $_; }
        my ($status) = $head =~ m{^HTTP/1.1 (\d+)}; my ($length) = $head =~ m{content-length: (\d+)}i;
        read($s, my $body, $length); $body =~ s/\n/ /g; print "$status $body\n";
    }
"#;

/// Runs the client in a cgroup as a user, with steps as pairs; returns a line for each request.
fn client(cgroup: Option<&Cgroup>, ids: &str, steps: &[(&str, &str)]) -> Vec<String> {
    let steps = steps.iter().flat_map(|(step, with)| [*step, *with]);
    let procs = cgroup.map(Cgroup::procs).unwrap_or_default();
    let mut command = Command::new("perl");
    command.args(["-e", CLIENT]).arg(procs).arg(ids).args(steps).env("THEN", THEN).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(str::to_owned).collect()
}

/// Sends one request on a connection of its own: its status, and the response.
fn ask_as(cgroup: Option<&Cgroup>, ids: &str, socket: &Path, request: &str) -> (u16, String) {
    let lines = client(cgroup, ids, &[("connect", socket.to_str().unwrap()), ("request", request)]);
    parse(&lines[0])
}

/// Splits a line of the client.
fn parse(line: &str) -> (u16, String) {
    let (status, body) = line.split_once(' ').unwrap_or_else(|| panic!("{line:?}"));
    (status.parse().unwrap(), body.to_owned())
}

const TOKEN: &str = "GET /agent/v1/token";
