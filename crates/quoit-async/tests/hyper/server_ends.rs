//! HTTP/1 servers: timeouts, graceful shutdown, and peers that go.

use std::pin::Pin;
use std::time::Duration;

use hyper::Response;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::behaviour;
use crate::clock::Clock;
use crate::parts::{Body, Pieces, Service, builder, ended, failure, next, read, serve};

const GET: &str = "GET / HTTP/1.1\r\nhost: quoit\r\n\r\n";

const TIMEOUT: Duration = Duration::from_secs(5);

/// Has heads time out by a clock.
fn timing_out(clock: &Clock) -> impl FnOnce(&mut Builder) {
    let clock = clock.clone();
    |http| {
        http.timer(clock).header_read_timeout(TIMEOUT);
    }
}

behaviour! {
    fn no_head_comes_in_time(says, net) {
        let clock = Clock::new();
        let (peer, server) = serve(net, timing_out(&clock), Service::hello()).await;
        clock.asked(1).await;
        clock.advance(TIMEOUT);
        says.note(server.ended().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn half_a_head_comes_in_time(says, net) {
        let clock = Clock::new();
        let (mut peer, server) = serve(net, timing_out(&clock), Service::hello()).await;
        peer.send(&GET[..10]).await;
        server.used.read(10).await;
        clock.advance(TIMEOUT / 2);
        peer.send(&GET[10..20]).await;
        server.used.read(20).await;
        clock.advance(TIMEOUT / 2);
        says.note(server.ended().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn no_second_head_comes_in_time(says, net) {
        let clock = Clock::new();
        let (mut peer, server) = serve(net, timing_out(&clock), Service::hello()).await;
        for _ in 0..2 {
            clock.asked(1).await;
            clock.advance(TIMEOUT / 2);
            peer.send(GET).await;
            says.note(peer.until("hello").await);
        }
        clock.asked(3).await;
        clock.advance(TIMEOUT);
        says.note(server.ended().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn the_client_only_listens_any_more(says, net) {
        let (service, mut asked) = Service::waiting();
        let (mut peer, server) = serve(net, |http| { http.half_close(true); }, service).await;
        peer.send(GET).await;
        let answer = asked.recv().await.unwrap();
        peer.end().await;
        assert!(answer.send(Ok(Response::new(Body::of("hello")))).is_ok());
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn a_client_that_only_listens_is_given_up(says, net) {
        let (service, mut asked) = Service::waiting();
        let (mut peer, server) = serve(net, |http| { http.half_close(false); }, service).await;
        peer.send(GET).await;
        let mut answer = asked.recv().await.unwrap();
        peer.end().await;
        answer.closed().await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

/// A service that says how the body of its request goes on, and answers.
fn telling(told: &mpsc::UnboundedSender<String>) -> Service {
    let told = told.clone();
    Service::new(move |request| {
        let told = told.clone();
        async move {
            let mut body = request.into_body();
            told.send(next(&mut body).await).unwrap();
            let end = read(body).await;
            told.send(end).unwrap();
            Ok(Response::new(Body::of("hello")))
        }
    })
}

behaviour! {
    fn the_client_ends_in_the_middle_of_a_body(says, net) {
        for half_close in [false, true] {
            for request in [
                "POST / HTTP/1.1\r\ncontent-length: 10\r\n\r\nhalf",
                "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            ] {
                let (tell, mut told) = mpsc::unbounded_channel();
                let (mut peer, server) = serve(net, |http| { http.half_close(half_close); }, telling(&tell)).await;
                peer.send(request).await;
                says.note(told.recv().await.unwrap());
                peer.end().await;
                says.note(told.recv().await.unwrap());
                says.note(peer.rest().await);
                says.note(server.ended().await);
            }
        }
    }
}

behaviour! {
    fn the_client_resets_in_the_middle_of_a_body(says, net) {
        let (tell, mut told) = mpsc::unbounded_channel();
        let (mut peer, server) = serve(net, |_| {}, telling(&tell)).await;
        peer.send("POST / HTTP/1.1\r\ncontent-length: 10\r\n\r\nhalf").await;
        says.note(told.recv().await.unwrap());
        peer.reset();
        says.note(told.recv().await.unwrap());
        says.note(server.ended().await);
    }
}

behaviour! {
    fn the_client_goes_in_the_middle_of_a_head(says, net) {
        let (mut peer, server) = serve(net, |_| {}, Service::hello()).await;
        peer.send(&GET[..10]).await;
        peer.end().await;
        says.note(peer.rest().await);
        says.note(server.ended().await);

        let (mut peer, server) = serve(net, |_| {}, Service::hello()).await;
        peer.send(&GET[..10]).await;
        server.used.read(10).await;
        peer.reset();
        says.note(server.ended().await);
    }
}

behaviour! {
    fn the_client_goes_between_requests(says, net) {
        for asks_first in [false, true] {
            for resets in [false, true] {
                let (mut peer, server) = serve(net, |_| {}, Service::hello()).await;
                if asks_first {
                    peer.send(GET).await;
                    says.note(peer.until("hello").await);
                }
                peer.leave(resets);
                says.note(server.ended().await);
            }
        }
    }
}

behaviour! {
    fn the_client_resets_while_it_waits(says, net) {
        let (service, mut asked) = Service::waiting();
        let (mut peer, server) = serve(net, |http| { http.half_close(false); }, service).await;
        peer.send(GET).await;
        let mut answer = asked.recv().await.unwrap();
        peer.reset();
        answer.closed().await;
        says.note(server.ended().await);
    }
}

/// A request whose answer has begun, and what brings the rest of it.
macro_rules! answering {
    ($net:ident, $peer:ident, $server:ident, $pieces:ident) => {
        let (service, mut asked) = Service::waiting();
        let (mut $peer, $server) = serve($net, |_| {}, service).await;
        $peer.send(GET).await;
        let ($pieces, body): (Pieces, Body) = Body::pieces();
        let answer = asked.recv().await.unwrap();
        assert!(answer.send(Ok(Response::new(body))).is_ok());
        $pieces.data("begun");
        $peer.until("begun\r\n").await;
    };
}

behaviour! {
    fn the_client_resets_in_the_middle_of_an_answer(says, net) {
        answering!(net, peer, server, pieces);
        peer.reset();
        pieces.unwanted().await;
        says.note(server.ended().await);
    }
}

behaviour! {
    fn the_client_ends_in_the_middle_of_an_answer(says, net) {
        answering!(net, peer, server, pieces);
        peer.end().await;
        pieces.unwanted().await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn the_client_closes_under_a_large_answer(says, net) {
        answering!(net, peer, server, pieces);
        // More than all buffers on the way, so that writing is what waits.
        pieces.data(vec![b'x'; 16 << 20]);
        peer.exactly(100_000).await;
        drop(peer);
        pieces.unwanted().await;
        // Reading finds the reset or writing does, on tokio as well.
        says.note((server.ended().await != "ended").to_string());
    }
}

behaviour! {
    fn the_body_of_an_answer_fails(says, net) {
        answering!(net, peer, server, pieces);
        pieces.fail();
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn the_service_fails(says, net) {
        let service = Service::new(|_| async { Err(std::io::Error::other("no service")) });
        let (mut peer, server) = serve(net, |_| {}, service).await;
        peer.send(GET).await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn a_shutdown_before_the_first_request(says, net) {
        let (peer, server) = serve(net, |_| {}, Service::hello()).await;
        server.stop().await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn a_shutdown_in_a_head(says, net) {
        let (mut peer, server) = serve(net, |_| {}, Service::hello()).await;
        peer.send(&GET[..10]).await;
        server.used.read(10).await;
        server.stop().await;
        peer.send(&GET[10..]).await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn a_shutdown_in_the_body_of_a_request(says, net) {
        let (tell, mut told) = mpsc::unbounded_channel();
        let (mut peer, server) = serve(net, |_| {}, telling(&tell)).await;
        peer.send("POST / HTTP/1.1\r\ncontent-length: 8\r\n\r\nhalf").await;
        says.note(told.recv().await.unwrap());
        server.stop().await;
        peer.send("half").await;
        says.note(told.recv().await.unwrap());
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn a_shutdown_before_the_answer(says, net) {
        let (service, mut asked) = Service::waiting();
        let (mut peer, server) = serve(net, |_| {}, service).await;
        peer.send(GET).await;
        let answer = asked.recv().await.unwrap();
        server.stop().await;
        assert!(answer.send(Ok(Response::new(Body::of("hello")))).is_ok());
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn a_shutdown_in_an_answer(says, net) {
        answering!(net, peer, server, pieces);
        server.stop().await;
        pieces.data("and done");
        drop(pieces);
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn a_shutdown_between_requests(says, net) {
        let (mut peer, server) = serve(net, |_| {}, Service::hello()).await;
        peer.send(GET).await;
        says.note(peer.until("hello").await);
        server.stop().await;
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn the_stream_is_had_back(says, net) {
        let (io, mut peer) = net.accepted().await;
        let connection = builder().serve_connection(io, Service::hello());
        let serving = tokio::spawn(connection.without_shutdown());
        peer.send("GET / HTTP/1.1\r\nconnection: close\r\n\r\nsomething else").await;
        says.note(peer.until("hello").await);
        let parts = serving.await.unwrap().unwrap();
        says.note(format!("{:?}", parts.read_buf));
        let mut io = TokioIo::new(parts.io);
        io.write_all(b"not ended").await.unwrap();
        says.note(peer.until("not ended").await);
        peer.send("nor here").await;
        peer.end().await;
        let mut text = String::new();
        io.read_to_string(&mut text).await.unwrap();
        says.note(text);
        io.shutdown().await.unwrap();
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn a_connection_is_dropped_in_the_middle(says, net) {
        let (io, mut peer) = net.accepted().await;
        let used = io.used();
        let mut connection = builder().serve_connection(io, Service::hello());
        peer.send(&GET[..10]).await;
        tokio::select! {
            result = &mut connection => says.note(ended(result)),
            () = used.read(10) => {}
        }
        Pin::new(&mut connection).graceful_shutdown();
        let parts = connection.into_parts();
        says.note(format!("{:?}", parts.read_buf));
        drop(parts);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn a_head_that_times_out_gives_the_stream_back(says, net) {
        let clock = Clock::new();
        let (io, peer) = net.accepted().await;
        let mut http = builder();
        timing_out(&clock)(&mut http);
        let serving = tokio::spawn(http.serve_connection(io, Service::hello()).without_shutdown());
        clock.asked(1).await;
        clock.advance(TIMEOUT);
        let error = serving.await.unwrap().err().unwrap();
        says.note(format!("{} {}", error.is_timeout(), failure(&error)));
        says.note(peer.rest().await);
    }
}
