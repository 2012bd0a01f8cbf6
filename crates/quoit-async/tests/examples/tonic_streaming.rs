use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, IntoRequest, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::example::on_each_engine;

#[path = "../../examples/tonic_streaming/numbers.rs"]
#[expect(dead_code, reason = "what serves")]
mod numbers;

use numbers::{CountRequest, Number, SquareRequest};

async fn square(client: &mut Grpc<Channel>, value: u64) -> Result<u64, Status> {
    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/numbers.Numbers/Square");
    let codec = ProstCodec::<SquareRequest, Number>::default();
    let answer = client
        .unary(SquareRequest { value }.into_request(), path, codec)
        .await?;
    Ok(answer.into_inner().value)
}

async fn count(client: &mut Grpc<Channel>, from: u64, to: u64) -> Streaming<Number> {
    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/numbers.Numbers/Count");
    let codec = ProstCodec::<CountRequest, Number>::default();
    let request = CountRequest { from, to }.into_request();
    client
        .server_streaming(request, path, codec)
        .await
        .unwrap()
        .into_inner()
}

async fn talk(channel: Channel) {
    let mut client = Grpc::new(channel);
    assert_eq!(square(&mut client, 12).await.unwrap(), 144);
    let error = square(&mut client, u64::MAX).await.unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange);
    let mut numbers = count(&mut client, 1, 10_000).await;
    for expected in 1..=10_000 {
        assert_eq!(numbers.next().await.unwrap().unwrap().value, expected);
    }
    assert!(numbers.next().await.is_none());
    assert!(count(&mut client, 2, 1).await.next().await.is_none());
    // One that is given up keeps the connection's others from nothing.
    let mut endless = count(&mut client, 0, u64::MAX).await;
    assert_eq!(endless.next().await.unwrap().unwrap().value, 0);
    drop(endless);
    assert_eq!(square(&mut client, 3).await.unwrap(), 9);
    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/numbers.Numbers/None");
    let codec = ProstCodec::<SquareRequest, Number>::default();
    let none = client
        .unary(SquareRequest { value: 1 }.into_request(), path, codec)
        .await;
    assert_eq!(none.unwrap_err().code(), Code::Unimplemented);
}

#[test]
fn both_methods_answer_clients_on_tokio_and_on_quoit() {
    on_each_engine("tonic_streaming", &[], async |example| {
        let endpoint = Endpoint::from_shared(format!("http://{}", example.address)).unwrap();
        talk(endpoint.connect().await.unwrap()).await;
        talk(
            endpoint
                .connect_with_connector(quoit_async::Connector::new())
                .await
                .unwrap(),
        )
        .await;
    });
}
