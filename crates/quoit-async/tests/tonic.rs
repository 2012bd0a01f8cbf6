//! gRPC by tonic, over tokio's sockets first and then over ours, on each engine: what a method learns of who asks.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

#[path = "../examples/tonic_streaming/numbers.rs"]
mod numbers;

use std::future::Future;
use std::io;
use std::path::Path;

use futures_util::stream;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_stream::{Empty, Stream};
use tonic::client::Grpc;
use tonic::transport::server::{Connected, UdsConnectInfo};
use tonic::transport::{Channel, Endpoint, Server, Uri};
use tonic::{Extensions, IntoRequest, Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

use numbers::{CountRequest, Number, Numbers, NumbersServer, SquareRequest};
use support::{Says, compare, config};

/// Notes what it learns of who asks.
struct Asked {
    says: Says,
    learn: fn(&Request<SquareRequest>) -> String,
}

impl Numbers for Asked {
    type CountStream = Empty<Result<Number, Status>>;

    async fn square(&self, request: Request<SquareRequest>) -> Result<Response<Number>, Status> {
        self.says.note((self.learn)(&request));
        let value = request.into_inner().value;
        Ok(Response::new(Number { value: value * value }))
    }

    async fn count(&self, _: Request<CountRequest>) -> Result<Response<Self::CountStream>, Status> {
        Err(Status::unimplemented("nobody asks for it"))
    }
}

/// Serves until one that `channel` connects has asked once.
async fn serve_one<S>(
    asked: Asked,
    incoming: impl Stream<Item = io::Result<S>> + Send + 'static,
    channel: impl Future<Output = Channel>,
) where
    S: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let (done, ends) = oneshot::channel::<()>();
    let serving = tokio::spawn(
        Server::builder()
            .add_service(NumbersServer::new(asked))
            .serve_with_incoming_shutdown(incoming, async { drop(ends.await) }),
    );
    let mut client = Grpc::new(channel.await);
    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/numbers.Numbers/Square");
    let codec = ProstCodec::<SquareRequest, Number>::default();
    let answer = client
        .unary(SquareRequest { value: 12 }.into_request(), path, codec)
        .await
        .unwrap();
    assert_eq!(answer.into_inner().value, 144);
    drop(client);
    done.send(()).unwrap();
    serving.await.unwrap().unwrap();
}

/// What every connection has of the two addresses, as they differ each time.
fn of_tcp(request: &Request<SquareRequest>) -> String {
    let remote = request
        .remote_addr()
        .map(|address| (address.ip(), address.port() > 0));
    let local = request
        .local_addr()
        .map(|address| (address.ip(), address.port() > 0));
    format!(
        "{remote:?} {local:?}, to another port {}",
        request.remote_addr() != request.local_addr()
    )
}

#[test]
fn a_method_learns_the_addresses_of_tcp() {
    compare(
        "tonic::a_method_learns_the_addresses_of_tcp",
        config,
        |says| {
            Box::pin(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let uri = format!("http://{}", listener.local_addr().unwrap());
                let incoming = stream::unfold(listener, async |listener| {
                    Some((listener.accept().await.map(|(stream, _)| stream), listener))
                });
                let channel = async { Endpoint::from_shared(uri).unwrap().connect().await.unwrap() };
                serve_one(Asked { says, learn: of_tcp }, Box::pin(incoming), channel).await;
            })
        },
        |says| {
            Box::pin(async {
                let listener = quoit_async::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let uri = format!("http://{}", listener.local_addr().unwrap());
                let endpoint = Endpoint::from_shared(uri).unwrap();
                let channel = async {
                    let connector = quoit_async::Connector::new();
                    endpoint.connect_with_connector(connector).await.unwrap()
                };
                serve_one(Asked { says, learn: of_tcp }, listener.incoming(), channel).await;
            })
        },
    );
}

/// The peer without a name, and whose process it is: this one's.
fn unix(unnamed: bool, process: Option<u32>, user: u32, group: u32) -> String {
    let own = process == Some(std::process::id());
    format!("unnamed {unnamed}, of this process {own}, user {user}, group {group}")
}

fn of_tokios_unix(request: &Request<SquareRequest>) -> String {
    let info = find::<UdsConnectInfo>(request.extensions());
    let (peer, by) = (info.peer_addr.as_ref().unwrap(), info.peer_cred.unwrap());
    unix(
        peer.is_unnamed(),
        by.pid().map(i32::unsigned_abs),
        by.uid(),
        by.gid(),
    )
}

fn of_our_unix(request: &Request<SquareRequest>) -> String {
    let info = find::<quoit_async::UnixConnectInfo>(request.extensions());
    let (peer, by) = (info.peer_addr.as_ref().unwrap(), info.peer_cred.unwrap());
    unix(
        *peer == quoit_async::Address::UnixUnnamed,
        by.process,
        by.user,
        by.group,
    )
}

fn find<T: Send + Sync + 'static>(extensions: &Extensions) -> &T {
    extensions.get::<T>().unwrap()
}

fn at(folder: &tempfile::TempDir) -> std::path::PathBuf {
    folder.path().join("numbers")
}

/// A channel whose URI names nobody, as those to Unix sockets are made.
fn to_nowhere() -> Endpoint {
    Endpoint::from_static("http://localhost")
}

async fn connect_tokios(path: &Path) -> Channel {
    let path = path.to_owned();
    let connector = service_fn(move |_: Uri| {
        let path = path.clone();
        async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
    });
    to_nowhere().connect_with_connector(connector).await.unwrap()
}

async fn connect_ours(path: &Path) -> Channel {
    let path = path.to_owned();
    let connector = service_fn(move |_: Uri| quoit_async::UnixStream::connect(path.clone()));
    to_nowhere().connect_with_connector(connector).await.unwrap()
}

#[test]
fn a_method_learns_who_is_behind_a_unix_socket() {
    compare(
        "tonic::a_method_learns_who_is_behind_a_unix_socket",
        config,
        |says| {
            Box::pin(async {
                let folder = tempfile::tempdir().unwrap();
                let listener = tokio::net::UnixListener::bind(at(&folder)).unwrap();
                let incoming = stream::unfold(listener, async |listener| {
                    Some((listener.accept().await.map(|(stream, _)| stream), listener))
                });
                let asked = Asked {
                    says,
                    learn: of_tokios_unix,
                };
                serve_one(asked, Box::pin(incoming), connect_tokios(&at(&folder))).await;
            })
        },
        |says| {
            Box::pin(async {
                let folder = tempfile::tempdir().unwrap();
                let listener = quoit_async::UnixListener::bind(at(&folder)).unwrap();
                let asked = Asked {
                    says,
                    learn: of_our_unix,
                };
                serve_one(asked, listener.incoming(), connect_ours(&at(&folder))).await;
            })
        },
    );
}
