//! What the program does in a call that the loop makes.

use std::io::ErrorKind;
use std::sync::Arc;

use quoit_async::{TcpListener, TcpStream, UdpSocket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{both_ways, is_own_process};

#[test]
fn a_panic_with_a_socket_in_hand_is_its_tasks_own() {
    if !is_own_process(concat!(
        module_path!(),
        "::a_panic_with_a_socket_in_hand_is_its_tasks_own"
    )) {
        return;
    }
    both_ways(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stream, other) = (TcpStream::connect(address), listener.accept());
        let (stream, mut other) = (stream.await.unwrap(), other.await.unwrap().0);
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let panics = [
            tokio::spawn(
                async move { stream.with_socket(|_| -> std::io::Result<()> { panic!("of a stream") }) },
            ),
            tokio::spawn(
                async move { socket.with_socket(|_| -> std::io::Result<()> { panic!("of a port") }) },
            ),
        ];
        for (panicked, with) in panics.into_iter().zip(["of a stream", "of a port"]) {
            let panicked = panicked.await.unwrap_err().into_panic();
            assert_eq!(panicked.downcast_ref::<&str>(), Some(&with));
        }
        // The stream ends with its task, as it does with tokio.
        assert_eq!(other.read(&mut [0; 1]).await.unwrap(), 0);
        for _ in 0..4 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let mut accepted = listener.accept().await.unwrap().0;
            stream.write_all(b"as before").await.unwrap();
            let mut text = [0; 9];
            accepted.read_exact(&mut text).await.unwrap();
            assert_eq!(&text, b"as before");
        }
    });
}

#[test]
fn asking_a_loop_with_a_socket_in_hand_is_an_error_and_no_end() {
    if !is_own_process(concat!(
        module_path!(),
        "::asking_a_loop_with_a_socket_in_hand_is_an_error_and_no_end"
    )) {
        return;
    }
    both_ways(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connect = async || Arc::new(TcpStream::connect(address).await.unwrap());
        let (one, other) = (connect().await, connect().await);
        let (itself, another) = (Arc::clone(&one), Arc::clone(&other));
        let told = one.with_socket(move |socket| {
            // Itself, and one that may be of another loop.
            let told = [itself.set_nodelay(false), another.set_nodelay(false)];
            socket.set_tcp_nodelay(false)?;
            Ok(told.map(|told| told.unwrap_err().kind()))
        });
        assert_eq!(told.unwrap(), [ErrorKind::Deadlock; 2]);
        // What it is given is asked, and asking goes on.
        assert!(!one.nodelay().unwrap());
        assert!(other.nodelay().unwrap());
    });
}
