//! Connections that become something else than HTTP.

use std::pin::pin;

use bytes::Bytes;
use hyper::upgrade::{OnUpgrade, Upgraded, on};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::behaviour;
use crate::net::Io;
use crate::parts::{Body, Client, Service, builder, client, ended, failure, get, heard, serve, serve_on};

const ASKS: &str = "GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n";
const GRANTS: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n";

fn granted() -> Response<Body> {
    let answer = Response::builder().status(101);
    let answer = answer.header("connection", "upgrade").header("upgrade", "other");
    answer.body(Body::empty()).unwrap()
}

/// A service that hands out what its connections become, and grants that.
fn granting() -> (Service, mpsc::UnboundedReceiver<OnUpgrade>) {
    let (tell, told) = mpsc::unbounded_channel();
    let service = Service::new(move |mut request: Request<_>| {
        tell.send(on(&mut request)).unwrap();
        async move {
            Ok(if request.method() == Method::CONNECT {
                Response::new(Body::empty())
            } else {
                granted()
            })
        }
    });
    (service, told)
}

/// A request for another protocol.
fn asking() -> Request<Body> {
    let mut request = get();
    request
        .headers_mut()
        .insert("connection", "upgrade".parse().unwrap());
    request.headers_mut().insert("upgrade", "other".parse().unwrap());
    request
}

/// Reads so many bytes.
async fn exactly(io: &mut TokioIo<Upgraded>, count: usize) -> String {
    let mut bytes = vec![0; count];
    io.read_exact(&mut bytes).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

behaviour! {
    fn a_server_reads_on_behind_the_head(says, net) {
        for connect in [false, true] {
            let (service, mut told) = granting();
            let (mut peer, server) = serve(net, |_| {}, service).await;
            let asks = if connect { "CONNECT quoit:1 HTTP/1.1\r\n\r\n" } else { ASKS };
            peer.send(format!("{asks}early")).await;
            let upgraded = told.recv().await.unwrap().await.unwrap();
            says.note(peer.until("\r\n\r\n").await);
            says.note(server.ended().await);
            let mut io = TokioIo::new(upgraded);
            says.note(exactly(&mut io, 5).await);
            peer.send("later").await;
            says.note(exactly(&mut io, 5).await);
            io.write_all(b"answered").await.unwrap();
            says.note(peer.until("answered").await);
            peer.end().await;
            says.note(format!("{:?}", io.read(&mut [0]).await));
            io.write_all(b"at last").await.unwrap();
            io.shutdown().await.unwrap();
            says.note(peer.rest().await);
        }
    }
}

behaviour! {
    fn a_client_reads_on_behind_the_head(says, net) {
        for connect in [false, true] {
            let (mut peer, mut client) = client(net, |_| {}).await;
            let mut request = asking();
            if connect {
                *request.method_mut() = Method::CONNECT;
                *request.uri_mut() = "quoit:1".parse().unwrap();
            }
            let asked = client.ask(request);
            says.note(peer.until("\r\n\r\n").await);
            let grants = if connect { "HTTP/1.1 200 OK\r\n\r\n" } else { GRANTS };
            peer.send(format!("{grants}early")).await;
            let answer = asked.await.unwrap().unwrap();
            says.note(format!("{} {:?}", answer.status(), answer.headers()));
            let mut io = TokioIo::new(on(answer).await.unwrap());
            says.note(client.ended().await);
            says.note(exactly(&mut io, 5).await);
            io.write_all(b"asked on").await.unwrap();
            says.note(peer.until("asked on").await);
            peer.send("later").await;
            says.note(exactly(&mut io, 5).await);
            drop(io);
            says.note(peer.rest().await);
        }
    }
}

behaviour! {
    fn the_stream_and_what_was_read_of_it(says, net) {
        let (service, mut told) = granting();
        let (mut peer, server) = serve(net, |_| {}, service).await;
        peer.send(format!("{ASKS}early")).await;
        let upgraded = told.recv().await.unwrap().await.unwrap();
        says.note(server.ended().await);
        let parts = upgraded.downcast::<Io>().unwrap();
        assert_eq!(parts.read_buf, Bytes::from("early"));
        let mut io = TokioIo::new(parts.io);
        says.note(peer.until("\r\n\r\n").await);
        peer.send("later").await;
        let mut bytes = [0; 5];
        io.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"later");
        drop(io);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn both_sides(says, net) {
        let (theirs, ours) = net.pair().await;
        let (service, mut told) = granting();
        let server = serve_on(ours, &builder(), service);
        let mut client = Client::on(theirs, &hyper::client::conn::http1::Builder::new()).await;
        let answer = client.ask(asking()).await.unwrap().unwrap();
        says.note(answer.status().to_string());
        let near = on(answer).await.unwrap();
        let far = told.recv().await.unwrap().await.unwrap();
        says.note(client.ended().await);
        says.note(server.ended().await);
        let echo = tokio::spawn(async move {
            let (mut reader, mut writer) = tokio::io::split(TokioIo::new(far));
            tokio::io::copy(&mut reader, &mut writer).await.unwrap();
            writer.shutdown().await.unwrap();
        });
        let sent = crate::support::pattern(300_000);
        let (mut reader, mut writer) = tokio::io::split(TokioIo::new(near));
        let mut back = Vec::new();
        let writing = async {
            writer.write_all(&sent).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let ((), read) = tokio::join!(writing, reader.read_to_end(&mut back));
        says.note(format!("{read:?}"));
        assert!(back == sent);
        echo.await.unwrap();
    }
}

behaviour! {
    fn a_shutdown_behind_the_upgrade_is_none(says, net) {
        let (io, mut peer) = net.accepted().await;
        let (service, mut told) = granting();
        let mut connection = pin!(builder().serve_connection(io, service).with_upgrades());
        peer.send(ASKS).await;
        says.note(ended(connection.as_mut().await));
        let mut io = TokioIo::new(told.recv().await.unwrap().await.unwrap());
        connection.as_mut().graceful_shutdown();
        io.write_all(b"goes on").await.unwrap();
        says.note(peer.until("goes on").await);
        drop(io);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn asked_for_and_not_granted(says, net) {
        let (tell, mut told) = mpsc::unbounded_channel();
        let service = Service::new(move |mut request: Request<_>| {
            tell.send(on(&mut request)).unwrap();
            async { Ok(Response::new(Body::of("hello"))) }
        });
        let (mut peer, server) = serve(net, |_| {}, service).await;
        for _ in 0..2 {
            peer.send(ASKS).await;
            says.note(peer.until("hello").await);
        }
        peer.end().await;
        says.note(server.ended().await);
        // Of the last one hyper grants what it has at the end.
        for _ in 0..2 {
            let upgraded = told.recv().await.unwrap().await;
            says.note(upgraded.map_or_else(|error| failure(&error), |_| "upgraded".into()));
        }
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn granted_and_not_asked_for(says, net) {
        let (mut peer, server) = serve(net, |_| {}, Service::new(|_| async { Ok(granted()) })).await;
        peer.send("GET / HTTP/1.1\r\n\r\n").await;
        says.note(peer.rest().await);
        says.note(server.ended().await);

        let (mut peer, mut client) = client(net, |_| {}).await;
        let asked = client.ask(get());
        peer.until("\r\n\r\n").await;
        peer.send(GRANTS).await;
        says.note(heard(asked).await);
        says.note(client.ended().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn the_upgrade_is_waited_for_when_the_connection_goes(says, net) {
        let (service, mut asked) = Service::waiting();
        let (tell, mut told) = mpsc::unbounded_channel();
        let service = Service::new(move |mut request: Request<_>| {
            tell.send(on(&mut request)).unwrap();
            hyper::service::Service::call(&service, request)
        });
        let (mut peer, server) = serve(net, |_| {}, service).await;
        peer.send(ASKS).await;
        let upgrade = told.recv().await.unwrap();
        let mut answer = asked.recv().await.unwrap();
        peer.reset();
        answer.closed().await;
        says.note(failure(&upgrade.await.unwrap_err()));
        says.note(server.ended().await);
    }
}

behaviour! {
    fn the_client_gives_its_stream_back(says, net) {
        let (io, mut peer) = net.connected().await;
        let http = hyper::client::conn::http1::Builder::new();
        let (mut sender, mut connection) = http.handshake(io).await.unwrap();
        let asked = tokio::spawn(sender.send_request(asking()));
        let polled = tokio::spawn(async move {
            std::future::poll_fn(|cx| connection.poll_without_shutdown(cx)).await.unwrap();
            connection.into_parts()
        });
        says.note(peer.until("\r\n\r\n").await);
        peer.send(format!("{GRANTS}early")).await;
        says.note(asked.await.unwrap().unwrap().status().to_string());
        let parts = polled.await.unwrap();
        says.note(format!("{:?}", parts.read_buf));
        let mut io = TokioIo::new(parts.io);
        io.write_all(b"asked on").await.unwrap();
        says.note(peer.until("asked on").await);
        drop(io);
        says.note(peer.rest().await);
    }
}
