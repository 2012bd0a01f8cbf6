use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint};

use crate::example::on_each_engine;
use crate::tls_client;

async fn echo(connection: Connection, bytes: Vec<u8>) {
    let (mut to, mut from) = connection.open_bi().await.unwrap();
    let (sent, received) = tokio::join!(
        async {
            to.write_all(&bytes).await.unwrap();
            to.finish().unwrap();
        },
        from.read_to_end(bytes.len() + 1)
    );
    let () = sent;
    assert!(received.unwrap() == bytes, "{} bytes", bytes.len());
}

#[test]
fn streams_get_back_what_they_send() {
    let config = QuicClientConfig::try_from(tls_client::config(&[])).unwrap();
    let config = ClientConfig::new(Arc::new(config));
    on_each_engine("quinn_echo", &[], async |example| {
        let mut endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        endpoint.set_default_client_config(config.clone());
        let connect = || async {
            let connecting = endpoint.connect(example.address, "localhost").unwrap();
            connecting.await.unwrap()
        };
        let connections = [connect().await, connect().await];
        let mut streams = tokio::task::JoinSet::new();
        for round in 0..10 {
            for connection in &connections {
                let bytes = (0..round * 100_000).map(|at| (at % 251) as u8).collect();
                streams.spawn(echo(connection.clone(), bytes));
            }
        }
        while let Some(stream) = streams.join_next().await {
            stream.unwrap();
        }
        example.terminate();
        for connection in &connections {
            match connection.closed().await {
                ConnectionError::ApplicationClosed(close) => assert_eq!(close.reason, "the server ends"),
                other => panic!("{other}"),
            }
        }
        endpoint.wait_idle().await;
    });
}
