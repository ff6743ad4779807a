//! The pages for browsers: the real binary over TCP, by a client that sends what a browser sends.

mod access;
mod pages;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::harness::binary::{Binary, eventually, run};
use crate::harness::browser::Browser;

/// Key of the listener in these tests.
const KEY: &str = "key-of-the-pages-0123456789abcdef";

/// A running agent with pages, an ACL server and a gateway; its session has no server.
struct Pages {
    binary: Binary,
    folder: tempfile::TempDir,
    browser: Browser,
}

impl Pages {
    fn start() -> Self {
        Self::start_with("")
    }

    /// Starts it with more lines of configuration for the listener.
    fn start_with(listener: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, text) in [
            ("pages.key", KEY),
            ("platform.token", "platform-token-0123456789"),
            ("vault.token", "hvs.token-of-nobody"),
        ] {
            std::fs::write(at(name), text).unwrap();
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let dir = folder.path().display();
        let text = format!(
            "[agent]\nstate_dir = \"{dir}/state\"\n\
             [server.main]\nkind = \"vault\"\naddress = \"http://127.0.0.1:9\"\n\
             [session.main.token_file]\nfile = \"{dir}/vault.token\"\n\
             [listener.api]\naddress = \"unix://{dir}/api.sock\"\n\
             [listener.pages]\nkind = \"ui\"\naddress = \"tcp://127.0.0.1:0\"\nkey_file = \"{dir}/pages.key\"\n{listener}\
             [acl]\nlisten = \"unix://{dir}/acl.sock\"\ndata_dir = \"{dir}/acl\"\n\
             [gateway]\nupstream = \"http://127.0.0.1:9\"\nlisten = \"unix://{dir}/gateway.sock\"\n\
             token_file = \"{dir}/platform.token\"\n"
        );
        std::fs::create_dir(at("state")).unwrap();
        std::fs::set_permissions(at("state"), std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::write(at("keyward.toml"), text).unwrap();
        let binary = Binary::start(&["run", "--config", at("keyward.toml").to_str().unwrap()], &[], folder.path());
        let origin = eventually(Duration::from_secs(30), || {
            let output = binary.output();
            let url =
                output.split_once("url=\"").and_then(|(_, rest)| rest.split_once("/\"")).map(|(url, _)| url.to_owned());
            url.ok_or(output)
        });
        Self { binary, folder, browser: Browser::new(origin) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `keyward acl` against its ACL server; returns what it prints.
    fn acl(&self, args: &[&str], token: Option<&str>) -> String {
        let address = format!("unix://{}", self.path("acl.sock").display());
        let variables: Vec<(&str, &str)> = token.map(|token| ("KEYWARD_ACL_TOKEN", token)).into_iter().collect();
        let args = [&["acl"], args, &["--address", &address]].concat();
        let (code, output, error) = run(&args, &variables);
        assert_eq!(code, 0, "{args:?}: {error}");
        output
    }
}
