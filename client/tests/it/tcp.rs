//! Over real sockets: what the network in memory cannot show.

use super::fake::Fake;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use weir_client::{Call, Client, Mode, Options, Outcome, Settlement};

fn call() -> Call {
    Call::new("openai/gpt-5", "acme", "p1").cost("requests", 1)
}

/// A node in a runtime of its own: stopping that ends the node and breaks all its connections.
struct Node {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Node {
    fn serve(fake: &Fake, address: SocketAddr) -> Node {
        let (stop, stopped) = oneshot::channel();
        let fake = fake.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::bind(address).await.unwrap();
                tokio::select! {
                    () = fake.serve_tcp(listener) => {}
                    _ = stopped => {}
                }
            });
        });
        Node { stop, thread }
    }

    fn kill(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
}

#[tokio::test]
async fn a_node_dies_and_comes_back() {
    let address = free_address().await;
    let fake = Fake::new(vec![address.to_string()]);
    let options = Options::new([address.to_string()]).transport(super::TRANSPORT).ungated_after(Duration::from_millis(300));
    let client = Client::new(options).unwrap();
    let node = Node::serve(&fake, address);
    let guard = client
        .admit_wait(&call().deadline(Duration::from_secs(20)))
        .await
        .unwrap();
    assert_eq!(
        guard.settle(Outcome::Ok, [("requests", 1)]).await,
        Ok(Settlement::Applied)
    );

    node.kill();
    let guard = client
        .admit_wait(&call().deadline(Duration::from_secs(20)))
        .await
        .unwrap();
    assert!(guard.is_ungated());
    drop(guard);

    let node = Node::serve(&fake, address);
    let patience = Instant::now() + Duration::from_secs(30);
    while client.stats().reports_done == 0 {
        assert!(Instant::now() < patience, "{:?}", client.stats());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!client.admit_wait(&call()).await.unwrap().is_ungated());
    assert_eq!(fake.world().reports.len(), 1);
    node.kill();
}

#[tokio::test]
async fn something_else_on_the_port_is_no_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let other = tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let page = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
            let _ = connection.write_all(page).await;
        }
    });
    let seed = [address.to_string()];
    let open = Options::new(seed.clone()).transport(super::TRANSPORT).ungated_after(Duration::ZERO);
    let client = Client::new(open).unwrap();
    assert!(client.admit_wait(&call()).await.unwrap().is_ungated());
    let closed = Options::new(seed).transport(super::TRANSPORT)
        .ungated_after(Duration::ZERO)
        .mode(Mode::Closed);
    let client = Client::new(closed).unwrap();
    assert!(client.admit_wait(&call()).await.is_err());
    other.abort();
}

#[tokio::test]
async fn nothing_on_the_port_is_no_answer() {
    let address = free_address().await;
    let options = Options::new([address.to_string()]).transport(super::TRANSPORT).ungated_after(Duration::ZERO);
    let client = Client::new(options).unwrap();
    assert!(client.admit_wait(&call()).await.unwrap().is_ungated());
}
