//! `keyward dev`: the whole chain on one machine, as a new user runs it.

use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::binary::{Binary, eventually, run};
use crate::harness::ports;

/// Variables that a user's shell may hold and `dev` must ignore.
const FOREIGN: [(&str, &str); 10] = [
    ("AZURE_CLIENT_ID", "00000000-0000-0000-0000-000000000001"),
    ("AZURE_TENANT_ID", "00000000-0000-0000-0000-000000000002"),
    ("AZURE_CLIENT_SECRET", "foreign-secret"),
    ("AZURE_FEDERATED_TOKEN_FILE", "/nonexistent/token"),
    ("AZURE_AUTHORITY_HOST", "https://127.0.0.1:9/"),
    ("IDENTITY_ENDPOINT", "http://127.0.0.1:9/identity"),
    ("IDENTITY_HEADER", "foreign-header"),
    ("HTTP_PROXY", "http://127.0.0.1:9"),
    ("HTTPS_PROXY", "http://127.0.0.1:9"),
    ("http_proxy", "http://127.0.0.1:9"),
];

/// Starts `keyward dev` and waits until it says where its guide is; gives the lines to paste.
fn start(dir: &Path, folder: &Path) -> (Binary, Vec<String>) {
    let dev = Binary::start(&["dev", "--dir", dir.to_str().unwrap()], &FOREIGN, folder);
    let lines = eventually(Duration::from_secs(30), || {
        let output = dev.output();
        output.find("Ctrl-C stops it.").ok_or_else(|| output.clone())?;
        let guide = std::fs::read_to_string(dir.join("guide.txt")).unwrap();
        let lines = guide.lines().filter_map(|line| line.strip_prefix("  "));
        let commands = ["curl ", "cat ", env!("CARGO_BIN_EXE_keyward")];
        Ok(lines.filter(|line| commands.iter().any(|start| line.starts_with(start))).map(ToOwned::to_owned).collect())
    });
    (dev, lines)
}

/// Runs a line as a shell does, with a `curl` of our own in case there is none.
fn paste(line: &str) -> Result<String, String> {
    let line = line.trim_end_matches("; echo");
    let shell = format!("curl() {{ printf 'curl\\n'; printf '%s\\n' \"$@\"; }}\n{line}");
    let output = Command::new("sh").args(["-c", &shell]).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    if !output.status.success() {
        return Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    match stdout.strip_prefix("curl\n") {
        Some(args) => curl(&args.lines().collect::<Vec<_>>()).map_err(|error| format!("{line}: {error}")),
        None => Ok(stdout),
    }
}

fn curl(args: &[&str]) -> Result<String, String> {
    let (mut method, mut socket, mut headers, mut url) = ("GET", None, String::new(), "");
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match *arg {
            "-s" => {}
            "-X" => method = args.next().unwrap(),
            "-H" => headers.extend([args.next().unwrap(), "\r\n"]),
            "--unix-socket" => socket = args.next(),
            other => url = other.strip_prefix("http://").unwrap_or_else(|| panic!("what does curl make of {other}?")),
        }
    }
    let (host, path) = url.split_once('/').unwrap();
    let request =
        format!("{method} /{path} HTTP/1.1\r\nHost: {host}\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n");
    let mut response = String::new();
    let mut speak = |stream: &mut dyn Stream| {
        stream.write_all(request.as_bytes())?;
        stream.read_to_string(&mut response)
    };
    let spoken = match socket {
        Some(path) => UnixStream::connect(path).and_then(|mut stream| speak(&mut stream)),
        None => TcpStream::connect(host).and_then(|mut stream| speak(&mut stream)),
    };
    spoken.map_err(|error| error.to_string())?;
    let (head, body) = response.split_once("\r\n\r\n").ok_or("no answer")?;
    if head.starts_with("HTTP/1.1 2") { Ok(body.to_owned()) } else { Err(response) }
}

trait Stream: std::io::Read + std::io::Write {}

impl<T: std::io::Read + std::io::Write> Stream for T {}

#[test]
fn the_tour_goes_through_the_machines_of_other_clouds_too() {
    for cloud in ["aws", "gcp"] {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("dev").display().to_string();
        let (code, output, error) = run(&["dev", "--once", "--cloud", cloud, "--dir", &dir], &FOREIGN);
        assert_eq!(code, 0, "{cloud}: {output}{error}");
        for text in
            ["session instance: logged in", "session workload: logged in", "broken: the emulated cloud accepts no"]
        {
            assert!(output.contains(text), "{cloud}: no {text:?} in {output}");
        }
        assert_eq!(output.matches("healed: ").count(), 5, "{cloud}: {output}");
    }
}

#[test]
fn once_runs_the_whole_chain_and_reports_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("made/dev");
    for _ in 0..2 {
        let (code, output, error) = run(&["dev", "--once", "--dir", dir.to_str().unwrap()], &FOREIGN);
        assert_eq!((code, error.as_str()), (0, ""), "{output}");
        for step in [
            "session instance: logged in",
            "session workload: logged in",
            "the ACL server knows the first",
            "the emulated Vault reads with the second",
            "the sink ",
            "the emulated HCP Terraform authenticates the gateway's calls",
            "a call fails: ",
            "a login fails: ",
            "keyward logged in and repeated it",
            "waits for the new platform token",
        ] {
            assert!(output.contains(step), "{step} in {output}");
        }
        assert_eq!(output.matches("healed: ").count(), 6, "{output}");
    }
    let count = private(&dir);
    assert!(count > 10, "{count} files were looked at");
}

/// Folders are ours alone, and files too; gives how many there are.
fn private(dir: &Path) -> usize {
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(dir), 0o700);
    let mut count = 0;
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let (path, kind) = entry.map(|entry| (entry.path(), entry.file_type().unwrap())).unwrap();
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() || kind.is_socket() {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
                count += 1;
            }
        }
    }
    count
}

#[test]
fn the_printed_commands_can_be_pasted_and_fault_injection_breaks_the_servers() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("dev");
    let (mut dev, lines) = start(&dir, folder.path());
    assert!(lines.len() > 8, "{lines:?}");
    let (rotating, lines): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| line.contains("heal platform"));
    let is_fault = |line: &&String| line.contains(" dev break ") || line.contains(" dev heal ");
    let (faults, asking): (Vec<_>, Vec<_>) = lines.iter().partition(is_fault);
    assert_eq!(faults.len(), 3, "{lines:?}");
    let token = |lines: &[&String]| paste(lines[0]);
    eventually(Duration::from_secs(30), || paste(asking.iter().find(|line| line.contains("readyz")).unwrap()));
    for line in &asking {
        let response = paste(line).unwrap();
        assert!(!response.trim().is_empty(), "{line}");
    }
    assert!(token(&asking).unwrap().contains("\"session\":\"instance\""));
    let secret = asking.iter().find(|line| line.contains("secret/data")).unwrap();
    assert!(paste(secret).unwrap().contains("hello"));
    private(&dir);

    // The platform's token changes, and callers of the gateway do not notice.
    let platform = asking.iter().find(|line| line.contains("/api/v2/organizations/")).unwrap();
    let before = std::fs::read(dir.join("platform.token")).unwrap();
    assert_eq!(rotating.len(), 1);
    paste(&rotating[0]).unwrap();
    assert!(std::fs::read(dir.join("platform.token")).unwrap() != before);
    assert!(paste(platform).unwrap().contains("total-count"));

    // The cloud and the server fail; the agent serves on.
    for line in &faults[..2] {
        paste(line).unwrap();
    }
    assert!(paste(secret).is_err(), "the server is away");
    assert!(token(&asking).unwrap().contains("\"token\""));
    for line in &faults[2..] {
        paste(line).unwrap();
    }
    eventually(Duration::from_secs(30), || paste(secret));

    dev.signal(Signal::INT);
    let status = dev.wait(Duration::from_secs(20));
    assert_eq!(status.code(), Some(0), "{}", dev.output());
    let log = std::fs::read_to_string(dir.join("dev.log")).unwrap();
    assert!(!log.contains("ERROR") && log.contains(" INFO "), "{log}");
    assert!(!dev.output().contains("foreign"), "{}", dev.output());
    assert!(!dir.join("agent.sock").exists());
}

#[test]
fn a_second_process_in_the_same_folder_fails_without_harm() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("dev");
    let (dev, lines) = start(&dir, folder.path());
    let files = || ["faults.key", "keyward.toml", "local-api.key"].map(|name| std::fs::read(dir.join(name)).unwrap());
    let before = files();
    for args in [&["dev", "--dir"][..], &["dev", "--once", "--dir"]] {
        let args: Vec<&str> = args.iter().copied().chain([dir.to_str().unwrap()]).collect();
        let (code, output, error) = run(&args, &[]);
        assert_eq!((code, output.as_str()), (1, ""), "{error}");
        assert!(error.contains("another keyward dev runs in ") && error.contains("--dir"), "{error}");
    }
    assert!(files() == before, "the files of the first are as they were");
    let command = lines.iter().find(|line| line.contains(" dev break server ")).unwrap();
    paste(command).unwrap();
    drop(dev);
    // A killed process leaves nothing behind that stops the next one.
    let (mut dev, _) = start(&dir, folder.path());
    dev.signal(Signal::INT);
    assert_eq!(dev.wait(Duration::from_secs(20)).code(), Some(0), "{}", dev.output());
}

#[test]
fn unusable_arguments_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("dev");
    let check = |args: &[&str], variables: &[(&str, &str)], expected_output: &str| {
        let (code, output, error) = run(args, variables);
        assert_eq!((code, output.as_str()), (1, ""), "{error}");
        assert!(error.contains(expected_output), "{expected_output} in {error}");
    };
    check(&["dev", "--once"], &[], "pass --dir FOLDER");
    let unused = folder.path().join("unused");
    let arguments = ["dev", "--once", "--dir", unused.to_str().unwrap(), "--first-port", "65530"];
    check(&arguments, &[], "do not fit below 65536");
    assert!(!unused.exists(), "no folder is left behind");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
    let dir_text = dir.to_str().unwrap();
    check(&["dev", "--once", "--dir", dir_text], &[], "is accessible to other users (mode 0755)");
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o700)).unwrap();
    let taken = ports::reserve();
    let listener = std::net::TcpListener::bind(taken).unwrap();
    let port = taken.port().to_string();
    check(&["dev", "--once", "--dir", dir_text, "--first-port", &port], &[], &taken.to_string());
    drop(listener);
    let state = folder.path().display().to_string();
    let (code, output, error) = run(&["dev", "--once"], &[("XDG_STATE_HOME", &state)]);
    assert_eq!(code, 0, "{error}");
    assert!(output.contains(&format!("{state}/keyward-dev/instance.token")), "{output}");
}
