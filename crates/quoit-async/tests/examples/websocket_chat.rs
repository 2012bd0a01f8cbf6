use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::example::on_each_engine;

async fn join(address: SocketAddr) -> (SocketAddr, WebSocketStream<TcpStream>) {
    let stream = TcpStream::connect(address).await.unwrap();
    let own = stream.local_addr().unwrap();
    let uri = format!("ws://{address}/chat");
    (own, tokio_tungstenite::client_async(uri, stream).await.unwrap().0)
}

#[test]
fn all_hear_what_one_says_until_the_room_is_closed() {
    on_each_engine("websocket_chat", &[], async |example| {
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(join(example.address).await);
        }
        let long = "x".repeat(100_000);
        for (speaker, line) in [(0, "hello"), (3, "and good day"), (1, &long)] {
            let said = format!("{}: {line}", clients[speaker].0);
            clients[speaker].1.send(Message::text(line)).await.unwrap();
            for (_, client) in &mut clients {
                assert_eq!(client.next().await.unwrap().unwrap(), Message::text(&said));
            }
        }
        let (_, mut leaver) = clients.pop().unwrap();
        leaver.close(None).await.unwrap();
        assert!(leaver.next().await.unwrap().unwrap().is_close());
        assert!(leaver.next().await.is_none());
        example.terminate();
        for (_, client) in &mut clients {
            assert_eq!(client.next().await.unwrap().unwrap(), Message::Close(None));
            // Both have said goodbye then, and the connection ends.
            assert!(client.next().await.is_none());
        }
    });
}
