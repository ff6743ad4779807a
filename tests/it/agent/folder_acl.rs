//! Sinks in a folder with an access control list, as `setfacl -m u:keyward:rwx` makes it.

use keyward_machine::tasks::TaskGroup;

use super::derived_tokens::{revoke_all, server, sink, start};
use crate::harness::binary::run;
use crate::harness::posix_acl::set_acl;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_is_written_where_a_list_lets_the_agents_user_write_and_nobody_else() {
    let (mut tasks, folder) = (TaskGroup::default(), tempfile::tempdir().unwrap());
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let user = rustix::process::geteuid().as_raw();
    if !set_acl(&out, &[(user, 7)], 5) {
        return;
    }
    let secrets = server(&mut tasks);
    let agent = start(&secrets, folder.path(), "[sink.out]\npath = \"FOLDER/out/token\"\n");
    let first = sink(&agent, &out.join("token"), "");
    let config = folder.path().join("keyward.toml").display().to_string();
    let check = || tokio::task::block_in_place(|| run(&["check", "--host", "--quiet", "--config", &config], &[]));
    let (code, output, error) = check();
    assert_eq!((code, error.as_str()), (0, ""), "{output}");

    // The list changes while the agent runs, and the next token is not written.
    set_acl(&out, &[(user, 7), (4711, 7)], 5);
    revoke_all(&secrets, folder.path());
    tokio::task::block_in_place(|| agent.logs("users other than root and the agent's can write the folder"));
    assert_eq!(std::fs::read_to_string(out.join("token")).unwrap(), first);
    let (code, output, _) = check();
    assert_eq!(code, 3, "{output}");
    assert!(output.contains("setfacl -x u:4711") && !output.contains("chmod"), "{output}");
    set_acl(&out, &[(user, 7), (4711, 5)], 5);
    sink(&agent, &out.join("token"), &first);
}
