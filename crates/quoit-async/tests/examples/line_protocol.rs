use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::example::on_each_engine;
use crate::http_client::by_hand;

async fn answer(stream: &mut TcpStream, expected: &str) {
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), expected);
}

#[test]
fn lines_are_answered_however_they_are_cut() {
    on_each_engine("line_protocol", &[], async |example| {
        let mut one = TcpStream::connect(example.address).await.unwrap();
        let mut two = TcpStream::connect(example.address).await.unwrap();
        one.write_all(b"GET a\nSET a b c\r\nGET a\nSE").await.unwrap();
        answer(&mut one, "-none\n+ok\n+b c\n").await;
        two.write_all(b"GET a\nT x y\n\nGET\n").await.unwrap();
        answer(&mut two, "+b c\n-error\n-error\n-error\n").await;
        for byte in b"T a d\nGET a\n" {
            one.write_all(&[*byte]).await.unwrap();
        }
        answer(&mut one, "+ok\n+d\n").await;
        // Many at once, more than any buffer holds.
        let (mut reader, mut writer) = one.split();
        let requests = "GET a\n".repeat(100_000);
        let mut answers = vec![0; 3 * 100_000];
        let (sent, received) = tokio::join!(
            writer.write_all(requests.as_bytes()),
            reader.read_exact(&mut answers)
        );
        sent.unwrap();
        received.unwrap();
        assert!(answers.chunks(3).all(|answer| answer == b"+d\n"));
        drop(one);
        // What comes after the end is not answered.
        assert_eq!(by_hand(two, "SET a e\nQUIT\n").await, "+ok\n");
    });
}

#[test]
fn a_line_is_bounded() {
    on_each_engine("line_protocol", &[], async |example| {
        let mut client = TcpStream::connect(example.address).await.unwrap();
        let value = "v".repeat(4096 - "SET k \n".len());
        client
            .write_all(format!("SET k {value}\nGET k\n").as_bytes())
            .await
            .unwrap();
        answer(&mut client, &format!("+ok\n+{value}\n")).await;
        assert_eq!(by_hand(client, &"x".repeat(4097)).await, "-too long\n");
    });
}
