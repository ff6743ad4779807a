use super::*;

fn paths(list: &[&str]) -> BTreeSet<PathBuf> {
    list.iter().map(PathBuf::from).collect()
}

fn allowed() -> AllowedAccess {
    AllowedAccess {
        files: Some(AllowedFiles {
            read: paths(&["/etc/keyward", "/etc/ca.pem"]),
            write: paths(&["/run/keyward"]),
            planned_read: paths(&["/etc/gai.conf"]),
            planned_write: paths(&["/var/lib/keyward"]),
        }),
        bind: Some([8200].into()),
        connect: Some([443].into()),
        capabilities: Some(CapabilitySet::CHOWN),
        spawner: false,
    }
}

fn missing(plan: &SandboxPlan) -> String {
    let resolve = |path: &Path| {
        // As if /link led to /run/keyward.
        path.strip_prefix("/link").map_or_else(|_| path.to_owned(), |rest| Path::new("/run/keyward").join(rest))
    };
    allowed().missing(plan, resolve).join(", ")
}

#[test]
fn what_a_new_configuration_needs_beyond_the_sandbox_is_listed() {
    let plan = SandboxPlan::default;
    let check = |plan: SandboxPlan, expected: &str| assert_eq!(missing(&plan), expected);
    check(plan(), "");
    let read = |path: &str| SandboxPlan { read: paths(&[path]), ..plan() };
    check(read("/etc/keyward/keyward.toml"), "");
    check(read("/etc/ca.pem"), "");
    check(read("/run/keyward/x"), "");
    check(read("/etc/keyward-other"), "reads /etc/keyward-other");
    check(read("/etc/shadow"), "reads /etc/shadow");
    check(read("/etc/gai.conf"), "");
    check(read("/var/lib/keyward"), "reads /var/lib/keyward");
    let write = |path: &str| SandboxPlan { write: paths(&[path]), ..plan() };
    check(write("/run/keyward/below"), "");
    check(write("/link/below"), "");
    check(write("/var/lib/keyward"), "");
    check(write("/run"), "writes in /run");
    check(write("/etc/keyward"), "writes in /etc/keyward");
    let hidden = SandboxPlan { hidden: paths(&["/srv/secret/a"]), ..write("/srv/secret") };
    check(hidden, "writes in a path from a reference");
    check(SandboxPlan { bind: [8200, 8300].into(), ..plan() }, "listens on port 8300");
    check(SandboxPlan { bind: [0].into(), ..plan() }, "listens on port 0");
    check(SandboxPlan { connect: Some([443, 8200].into()), ..plan() }, "connects to port 8200");
    check(SandboxPlan { connect: None, ..plan() }, "connects to any port");
    check(SandboxPlan { programs: programs(&["/bin/sh", "-c"]), ..plan() }, "runs /bin/sh");
    let capabilities = CapabilitySet::CHOWN | CapabilitySet::NET_BIND_SERVICE;
    check(SandboxPlan { capabilities, ..plan() }, "uses CAP_NET_BIND_SERVICE");
    check(SandboxPlan { executables: true, ..plan() }, "opens the executables of callers");
}

fn programs(words: &[&str]) -> ConfiguredPrograms {
    let command = words.iter().map(|word| (*word).to_owned()).collect();
    ConfiguredPrograms { commands: [command].into(), ..ConfiguredPrograms::default() }
}

#[test]
fn a_sandbox_without_limits_lacks_nothing() {
    let unlimited = AllowedAccess { spawner: true, ..AllowedAccess::default() };
    let plan = SandboxPlan {
        read: paths(&["/etc/shadow"]),
        write: paths(&["/"]),
        hidden: paths(&[]),
        bind: [1].into(),
        connect: None,
        programs: programs(&["sh"]),
        capabilities: CapabilitySet::CHOWN,
        executables: true,
        abstract_socket: true,
    };
    assert_eq!(unlimited.missing(&plan, Path::to_owned), Vec::<String>::new());
}

#[test]
fn a_file_shares_a_rule_with_its_folder_unless_that_holds_other_things() {
    let check = |file: &str, expected: Option<&str>| {
        assert_eq!(rule_folder(Path::new(file)), expected.map(Path::new), "{file}");
    };
    check("/var/run/secrets/azure/tokens/token", Some("/var/run/secrets/azure/tokens"));
    check("/etc/keyward/keyward.toml", Some("/etc/keyward"));
    check("/etc/ca.pem", None);
    check("/home/me/token", None);
    check("/home/me/keyward/token", Some("/home/me/keyward"));
    check("/tmp/token", None);
    check("/", None);
    check("keyward.toml", None);
}
