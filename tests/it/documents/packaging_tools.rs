//! The scripts that build packages name all tools that a machine lacks, or install them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ROOT;

/// A folder that takes the place of PATH.
struct Programs(tempfile::TempDir);

impl Programs {
    /// With the system's programs of these names alone.
    fn with(names: &[&str]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for name in names {
            let folders = ["/usr/bin", "/bin", "/usr/local/bin"];
            let program = folders.iter().map(|it| Path::new(it).join(name)).find(|it| it.exists());
            symlink(program.unwrap_or_else(|| panic!("this machine has no {name}")), folder.path(name)).unwrap();
        }
        folder
    }

    /// With a program that writes its arguments to `calls`.
    fn record(&self, name: &str) {
        let calls = self.path("calls");
        let script = format!("#!/bin/sh\necho \"{name} $*\" >> '{}'\n", calls.display());
        fs::write(self.path(name), script).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a script of `packaging` with these programs alone; returns its exit code and what it says.
    fn run(&self, script: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let output = Command::new("/bin/bash")
            .arg(Path::new(ROOT).join("packaging").join(script))
            .args(arguments)
            .env_clear()
            .envs([("PATH", self.0.path()), ("HOME", self.0.path())])
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }
}

const SHELL: [&str; 4] = ["bash", "dirname", "env", "id"];

#[test]
fn a_package_build_names_all_missing_tools_and_the_commands_that_install_them() {
    let programs = Programs::with(&SHELL);
    let (code, said) = programs.run("deb", &[]);
    assert_eq!(code, Some(1), "{said}");
    for line in [
        "packaging: missing: cargo cargo-deb dpkg-shlibdeps cc protoc cargo-auditable",
        "packaging: install Rust from https://rustup.rs first",
        "    sudo apt-get install dpkg-dev gcc libc6-dev protobuf-compiler libprotobuf-dev",
        "    cargo install --locked cargo-deb cargo-auditable",
    ] {
        assert!(said.lines().any(|said| said == line), "{line:?} in {said}");
    }
    let (code, said) = programs.run("deb", &["--agent", "--profile", "release"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("packaging: missing: cargo cargo-deb dpkg-shlibdeps cc\n"), "{said}");
    let (code, said) = programs.run("build", &["--arch", "arm64"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("cargo cc protoc cargo-auditable aarch64-linux-gnu-gcc\n"), "{said}");
    programs.record("cargo");
    let (code, said) = programs.run("rpm", &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("packaging: missing: cargo-generate-rpm dpkg-deb\n"), "{said}");
    assert!(!programs.path("calls").exists(), "nothing is installed without --install-tools");
}

#[test]
fn tools_of_a_package_build_are_installed_on_request() {
    let programs = Programs::with(&SHELL);
    for name in ["cargo", "apt-get", "dpkg-shlibdeps"] {
        programs.record(name);
    }
    // It is called by users that are not root: it runs the command behind it.
    fs::write(programs.path("sudo"), "#!/bin/sh\nexec \"$@\"\n").unwrap();
    fs::set_permissions(programs.path("sudo"), fs::Permissions::from_mode(0o755)).unwrap();
    let tools = ["--install", "cargo", "cc", "protoc", "cargo-deb", "dpkg-shlibdeps", "cargo-auditable"];
    let (code, said) = programs.run("tools", &tools);
    assert_eq!(code, Some(0), "{said}");
    let calls = fs::read_to_string(programs.path("calls")).unwrap();
    let expected = [
        "apt-get update -qq",
        "apt-get install -y gcc libc6-dev protobuf-compiler libprotobuf-dev",
        "cargo install --locked cargo-deb cargo-auditable",
    ];
    assert_eq!(calls.lines().collect::<Vec<_>>(), expected);
}
