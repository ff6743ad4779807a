//! Reload of the gateway beside connections that the replaced one keeps until its grace ends.

use std::fs::{File, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::command::{World, config_with_token_kind, head, offload, terraform_config_file};
use crate::harness::binary::Binary;
use crate::harness::ports;

/// A connection of a client that has made a call, and keeps it open.
async fn idle_connection(address: SocketAddr) -> TcpStream {
    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(format!("GET /.well-known/terraform.json HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())
        .await
        .unwrap();
    head(&mut idle).await;
    idle
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_gateway_leaves_the_terraform_file_to_its_successor() {
    let world = World::start();
    let address = ports::reserve();
    let configure = |token_wait: &str| {
        let (listen, more) = (format!("tcp://{address}"), format!("token_wait = \"{token_wait}\""));
        let path = config_with_token_kind(&world, &listen, &more, "token_kind = \"platform_token\"");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("[agent]\n", "[agent]\nstop_grace = \"1s\"\n")).unwrap();
        path
    };
    let path = configure("10s");
    let folder = PathBuf::from(world.path(""));
    let agent = Binary::start(&["run", "--config", &path], &[], &folder);
    let written = terraform_config_file(&folder);
    let mut idle = idle_connection(address).await;

    configure("11s");
    agent.signal(Signal::HUP);
    assert_eq!(idle.read(&mut [0; 1024]).await.unwrap(), 0, "it is closed at the end of the grace");
    let file = folder.join("terraform.d/zz-keyward.tfrc.json");
    // The replaced gateway ends its tasks now.
    for _ in 0..50 {
        assert!(file.exists(), "{}", agent.output());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(terraform_config_file(&folder), written);
    let (status, output) = offload(move || agent.stop()).await;
    assert_eq!(status.code(), Some(0), "{output}");
    assert!(!file.exists(), "the token does not stay behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_gateway_leaves_the_rotation_of_the_local_token_to_its_successor() {
    let world = World::start();
    let address = ports::reserve();
    let configure = |token_wait: &str| {
        let more = format!("local_token_max_age = \"1m\"\ntoken_wait = \"{token_wait}\"");
        let path = config_with_token_kind(&world, &format!("tcp://{address}"), &more, "");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("[agent]\n", "[agent]\nstop_grace = \"1m\"\n")).unwrap();
        path
    };
    let path = configure("10s");
    let folder = PathBuf::from(world.path(""));
    // Its rotation is due in 15 s, when one gateway has replaced the other.
    let (file, first) = (folder.join("state/gateway.token"), "keyward-local-of-both-gateways");
    std::fs::write(&file, format!("{first}\n")).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let opened = File::options().write(true).open(&file).unwrap();
    opened.set_modified(SystemTime::now() - Duration::from_secs(45)).unwrap();
    let agent = Binary::start(&["run", "--config", &path], &[], &folder);
    terraform_config_file(&folder);
    // The replaced gateway drains as long as this connection is open.
    let idle = idle_connection(address).await;
    configure("11s");
    agent.signal(Signal::HUP);
    agent.logs("event=\"config.reload.ok\"");
    agent.logs("event=\"gateway.local_token.rotated\"");

    let second = std::fs::read_to_string(&file).unwrap();
    assert_ne!(second.trim_end(), first);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for token in [second.trim_end(), first] {
        let call = client.get(format!("http://{address}/api/v2/ping")).bearer_auth(token);
        assert_eq!(call.send().await.unwrap().status(), 200, "{}", agent.output());
    }
    drop(idle);
    let (status, output) = offload(move || agent.stop()).await;
    assert_eq!(status.code(), Some(0), "{output}");
    assert_eq!(output.matches("event=\"gateway.local_token.rotated\"").count(), 1, "{output}");
}
