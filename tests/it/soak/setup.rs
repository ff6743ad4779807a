//! The configuration of the run: one process with everything.

use std::fmt::Write as _;
use std::path::Path;

use super::plan::{MAX_AGE, RESPONSE, SESSIONS, STALE, TEMPLATES, VAULT_SESSIONS, session};

/// Addresses in the run's own network.
pub(super) const VAULT: &str = "127.0.0.1:8200";
pub(super) const PLATFORM: &str = "127.0.0.1:8900";
pub(super) const ACL: &str = "127.0.0.1:8500";
pub(super) const GATEWAY: &str = "127.0.0.1:8800";

/// Name of the ACL server's auth method.
pub(super) const METHOD: &str = "fleet";

/// Only the ACL server, for its first records.
pub(super) fn acl_config(folder: &Path) -> String {
    format!(
        "[acl]\nlisten = \"tcp://{ACL}\"\ndata_dir = \"{0}/acl\"\n[agent]\nstate_dir = \"{0}/disk/state\"\n",
        folder.display()
    )
}

/// The whole configuration.
pub(super) fn config(folder: &Path) -> String {
    let mut text = acl_config(folder);
    let response = RESPONSE.as_secs();
    let _ = write!(
        text,
        "[server.vault]\nkind = \"vault\"\naddress = \"https://{VAULT}\"\nca_file = \"FOLDER/ca.pem\"\n\
         response_timeout = \"{response}s\"\nlogin_timeout = \"{response}s\"\n\
         [server.acl]\nkind = \"consul\"\naddress = \"http://{ACL}\"\nresponse_timeout = \"{response}s\"\n\
         [gateway]\nupstream = \"http://{PLATFORM}\"\nlisten = \"tcp://{GATEWAY}\"\nresponse_timeout = \"{response}s\"\n\
         token_file = \"FOLDER/platform.token\"\nlocal_token_file = \"FOLDER/local.token\"\nprocess_token = \"local_token\"\n\
         [listener.local]\naddress = \"unix://FOLDER/api.sock\"\n\
         [templates]\ninterval = \"10s\"\npersist = true\n\
         [process]\ncommand = [\"/bin/sh\", \"FOLDER/child.sh\"]\nrestart = \"always\"\nstop_timeout = \"5s\"\n\
         [env_template.VALUE]\nsession = \"s00\"\n\
         contents = '{{{{ with secret \"secret/data/s00/value\" }}}}{{{{ .Data.data.owner }}}} {{{{ .Data.data.version }}}}{{{{ end }}}}'\n"
    );
    for number in 0..SESSIONS {
        let name = session(number);
        let login = if number < VAULT_SESSIONS {
            format!("server = \"vault\"\n[session.{name}.jwt]\nrole = \"{name}\"\n")
        } else {
            format!("server = \"acl\"\nauth_method = \"{METHOD}\"\nrevoke_on_exit = false\n[session.{name}.jwt]\n")
        };
        let file = if number < VAULT_SESSIONS { "disk/jwt" } else { "acl.jwt" };
        let _ = write!(
            text,
            "[session.{name}]\nseal_key_file = \"FOLDER/seal.key\"\n{login}file = \"FOLDER/{file}\"\n\
             [sink.{name}]\nsession = \"{name}\"\npath = \"FOLDER/disk/{name}.token\"\n\
             [listener.{name}]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/{name}.sock\"\nsession = \"{name}\"\n\
             response_timeout = \"{response}s\"\n"
        );
        if number < VAULT_SESSIONS {
            let (age, stale) = (MAX_AGE.as_secs(), STALE.as_secs());
            let _ = write!(
                text,
                "[listener.{name}.cache]\nmax_age = \"{age}s\"\nstale_if_error = \"{stale}s\"\npersist = true\n"
            );
        }
    }
    for number in 0..TEMPLATES {
        let _ = write!(
            text,
            "[template.t{number:02}]\nsession = \"{0}\"\ndestination = \"FOLDER/disk/t{number:02}\"\n\
             contents = '{{{{ with secret \"secret/data/{0}/value\" }}}}{{{{ .Data.data | toJSON }}}}{{{{ end }}}}'\n",
            session(number % VAULT_SESSIONS)
        );
    }
    text.replace("FOLDER", &folder.display().to_string())
}

/// The child process: it writes down the variable that it got, and ends with the program.
pub(super) fn child(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "echo \"$$ $VALUE\" >> {folder}/children\nparent=$PPID\n\
         while kill -0 \"$parent\" 2> /dev/null; do sleep 1; done\n"
    )
}
