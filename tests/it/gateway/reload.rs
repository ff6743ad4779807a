//! Reload of the gateway beside connections that the replaced one keeps until its grace ends.

use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::command::{World, config_with_token_kind, head, offload, terraform_config_file};
use crate::harness::binary::Binary;
use crate::harness::ports;

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
    let folder = std::path::PathBuf::from(world.path(""));
    let agent = Binary::start(&["run", "--config", &path], &[], &folder);
    let written = terraform_config_file(&folder);
    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(format!("GET /.well-known/terraform.json HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())
        .await
        .unwrap();
    head(&mut idle).await;

    configure("11s");
    agent.signal(Signal::HUP);
    assert_eq!(idle.read(&mut [0; 1024]).await.unwrap(), 0, "it is closed at the end of the grace");
    let file = folder.join("terraform.d/zz-keyward.tfrc.json");
    // The replaced gateway ends its tasks now.
    for _ in 0..50 {
        assert!(file.exists(), "{}", agent.output());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(terraform_config_file(&folder), written);
    let (status, output) = offload(move || agent.stop()).await;
    assert_eq!(status.code(), Some(0), "{output}");
    assert!(!file.exists(), "the token does not stay behind");
}
