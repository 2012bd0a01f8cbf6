//! HTTP/2: servers and clients.

use std::time::Duration;

use hyper::upgrade::on;
use hyper::{Method, Request, Response, client, server};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::behaviour;
use crate::clock::Clock;
use crate::frames::{
    ACK, DATA, GET, GOAWAY, HEADERS, LAST, OK, PING, POST, PREFACE, RESET, SETTINGS, WHOLE, WINDOW, frame,
    setting,
};
use crate::net::{Io, Net, Peer};
use crate::parts::{Body, Server, Service, all, ended, failure, heard, next, read};
use crate::support::pattern;

const INTERVAL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(3);

type ServerBuilder = server::conn::http2::Builder<TokioExecutor>;
type ClientBuilder = client::conn::http2::Builder<TokioExecutor>;

fn serve_on(io: Io, options: impl FnOnce(&mut ServerBuilder), service: Service) -> Server {
    let mut http = ServerBuilder::new(TokioExecutor::new());
    http.auto_date_header(false);
    options(&mut http);
    let used = io.used();
    let connection = http.serve_connection(io, service);
    Server::spawn(used, connection, |connection| connection.graceful_shutdown())
}

async fn serve(net: Net, options: impl FnOnce(&mut ServerBuilder), service: Service) -> (Peer, Server) {
    let (io, peer) = net.accepted().await;
    (peer, serve_on(io, options, service))
}

struct Client {
    sender: client::conn::http2::SendRequest<Body>,
    connection: JoinHandle<String>,
}

impl Client {
    async fn on(io: Io, options: impl FnOnce(&mut ClientBuilder)) -> Self {
        let mut http = ClientBuilder::new(TokioExecutor::new());
        options(&mut http);
        let (sender, connection) = http.handshake(io).await.unwrap();
        Self {
            sender,
            connection: tokio::spawn(async { ended(connection.await) }),
        }
    }

    fn ask(&mut self, request: Request<Body>) -> JoinHandle<hyper::Result<Response<hyper::body::Incoming>>> {
        tokio::spawn(self.sender.send_request(request))
    }

    async fn ended(self) -> String {
        let ended = self.connection.await.unwrap();
        drop(self.sender);
        ended
    }

    async fn let_go(self) -> String {
        drop(self.sender);
        self.connection.await.unwrap()
    }
}

async fn client(net: Net, options: impl FnOnce(&mut ClientBuilder)) -> (Peer, Client) {
    let (io, mut peer) = net.connected().await;
    let client = Client::on(io, options).await;
    peer.greet_client(&[]).await;
    (peer, client)
}

fn get() -> Request<Body> {
    with(Body::empty())
}

fn with(body: Body) -> Request<Body> {
    Request::builder().uri("http://quoit/a?b").body(body).unwrap()
}

behaviour! {
    fn both_sides(says, net) {
        let (theirs, ours) = net.pair().await;
        let server = serve_on(ours, |_| {}, Service::new(|request| async {
            let (head, body) = request.into_parts();
            let (body, end) = all(body).await;
            let (pieces, answer) = Body::pieces();
            for part in body.chunks(10_007) {
                pieces.data(part.to_vec());
            }
            pieces.trailer("sum", "1");
            Ok(Response::builder().header("x-asked", format!("{} {end}", head.uri)).body(answer).unwrap())
        }));
        let mut client = Client::on(theirs, |_| {}).await;
        let sent = pattern(300_000);
        let mut asked = Vec::new();
        for chunked in [false, true, false] {
            let body = if chunked {
                let (pieces, body) = Body::pieces();
                for part in sent.chunks(9001) {
                    pieces.data(part.to_vec());
                }
                pieces.trailer("x-sum", "2");
                body
            } else {
                Body::of(sent.clone())
            };
            asked.push(client.ask(with(body)));
        }
        for asked in asked {
            let answer = asked.await.unwrap().unwrap();
            says.note(format!("{} {:?}", answer.status(), answer.headers()));
            let (back, end) = all(answer.into_body()).await;
            assert!(back == sent);
            says.note(end);
        }
        says.note(heard(client.ask(get())).await);
        says.note(client.let_go().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn the_preface_byte_by_byte(says, net) {
        let (mut peer, server) = serve(net, |_| {}, Service::hello()).await;
        let mut begin = PREFACE.to_vec();
        begin.extend(frame(SETTINGS, 0, 0, &[]));
        begin.extend(frame(HEADERS, WHOLE | LAST, 1, GET));
        for (at, byte) in begin.into_iter().enumerate() {
            peer.send([byte]).await;
            server.used.read(at + 1).await;
        }
        says.note(format!("{:?}", peer.frame_of(HEADERS).await));
        says.note(format!("{:?}", peer.frame_of(DATA).await));
        peer.end().await;
        says.note(server.ended().await);
    }
}

behaviour! {
    fn another_preface(says, net) {
        for begin in ["GET / HTTP/1.1\r\n\r\n......", "PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n", "PRI * HT"] {
            let (mut peer, server) = serve(net, |_| {}, Service::hello()).await;
            peer.send(begin).await;
            peer.end().await;
            says.note(peer.rest().await);
            says.note(server.ended().await);
        }
    }
}

behaviour! {
    fn settings_pings_and_frames_in_order(says, net) {
        let (mut peer, server) = serve(net, |_| {}, Service::echo()).await;
        peer.send(PREFACE).await;
        peer.send(frame(SETTINGS, 0, 0, &setting(4, 100))).await;
        // In an order that tokio's threads decide.
        let mut first = Vec::new();
        for _ in 0..3 {
            first.push(format!("{:?}", peer.frame().await));
        }
        first.sort();
        says.note(first.join("; "));
        peer.send(frame(PING, 0, 0, b"abcdefgh")).await;
        says.note(format!("{:?}", peer.frame().await));
        peer.send(frame(HEADERS, WHOLE, 1, POST)).await;
        peer.send(frame(DATA, 0, 1, b"a body ")).await;
        peer.send(frame(DATA, LAST, 1, b"in two")).await;
        says.note(format!("{:?}", peer.frame_of(HEADERS).await));
        says.note(format!("{:?}", peer.frame_of(DATA).await));
        drop(peer);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn a_shutdown_of_an_idle_connection(says, net) {
        let (mut peer, server) = serve(net, |_| {}, Service::hello()).await;
        peer.greet_server(&[]).await;
        server.stop().await;
        let warned = peer.frame_of(GOAWAY).await;
        says.note(format!("{warned:?}"));
        let ping = peer.frame_of(PING).await;
        peer.send(frame(PING, ACK, 0, &ping.payload)).await;
        says.note(format!("{:?}", peer.frame_of(GOAWAY).await));
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn a_shutdown_with_a_stream_under_way(says, net) {
        let (service, mut asked) = Service::waiting();
        let (mut peer, server) = serve(net, |_| {}, service).await;
        peer.greet_server(&[]).await;
        peer.send(frame(HEADERS, WHOLE | LAST, 1, GET)).await;
        let answer = asked.recv().await.unwrap();
        server.stop().await;
        says.note(format!("{:?}", peer.frame_of(GOAWAY).await));
        let ping = peer.frame_of(PING).await;
        // This one was on its way when the server said so.
        peer.send(frame(HEADERS, WHOLE | LAST, 3, GET)).await;
        let late = asked.recv().await.unwrap();
        peer.send(frame(PING, ACK, 0, &ping.payload)).await;
        says.note(format!("{:?}", peer.frame_of(GOAWAY).await));
        for answer in [answer, late] {
            assert!(answer.send(Ok(Response::new(Body::of("hello")))).is_ok());
            says.note(format!("{:?}", peer.frame_of(HEADERS).await));
            says.note(format!("{:?}", peer.frame_of(DATA).await));
        }
        says.note(peer.rest().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn a_client_that_answers_no_ping(says, net) {
        let clock = Clock::new();
        let options = |http: &mut ServerBuilder| {
            http.timer(clock.clone()).keep_alive_interval(INTERVAL).keep_alive_timeout(TIMEOUT);
        };
        let (mut peer, server) = serve(net, options, Service::hello()).await;
        peer.greet_server(&[]).await;
        for (answers, asked) in [(true, 2), (false, 4)] {
            // One deadline is asked for at the start; then that of the next ping, and that of its answer.
            clock.asked(asked).await;
            clock.advance(INTERVAL);
            let ping = peer.frame_of(PING).await;
            says.note(format!("{ping:?}"));
            if answers {
                peer.send(frame(PING, ACK, 0, &ping.payload)).await;
            }
        }
        clock.advance(TIMEOUT);
        says.note(server.ended().await);
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn a_server_that_answers_no_ping(says, net) {
        let clock = Clock::new();
        let options = |http: &mut ClientBuilder| {
            http.timer(clock.clone()).keep_alive_interval(INTERVAL).keep_alive_timeout(TIMEOUT);
        };
        let (mut peer, mut client) = client(net, options).await;
        let asked = client.ask(get());
        says.note(format!("{:?}", peer.frame_of(HEADERS).await));
        // hyper sends a request's head before it has noted that a stream is open, and asks for the ping's deadline
        // only with a stream open. The head of a second request says that it is done with the first.
        let second = client.ask(get());
        says.note(format!("{:?}", peer.frame_of(HEADERS).await));
        clock.asked(2).await;
        clock.advance(INTERVAL);
        says.note(format!("{:?}", peer.frame_of(PING).await));
        clock.advance(TIMEOUT);
        says.note(heard(asked).await);
        // How the second and the connection end depends on how far hyper's dispatcher was, on tokio's threads too.
        assert!(second.await.unwrap().is_err());
        client.ended().await;
    }
}

behaviour! {
    fn the_client_resets_a_stream(says, net) {
        let (tell, mut told) = mpsc::unbounded_channel();
        let service = Service::new(move |request| {
            let tell = tell.clone();
            async move {
                let mut body = request.into_body();
                tell.send(next(&mut body).await).unwrap();
                tell.send(next(&mut body).await).unwrap();
                Ok(Response::new(Body::of("hello")))
            }
        });
        let (mut peer, server) = serve(net, |_| {}, service).await;
        peer.greet_server(&[]).await;
        peer.send(frame(HEADERS, WHOLE, 1, POST)).await;
        peer.send(frame(DATA, 0, 1, b"begun")).await;
        says.note(told.recv().await.unwrap());
        peer.send(frame(RESET, 0, 1, &[0, 0, 0, 11])).await;
        says.note(told.recv().await.unwrap());
        // The connection goes on.
        peer.send(frame(HEADERS, WHOLE | LAST, 3, GET)).await;
        says.note(format!("{:?}", peer.frame_of(HEADERS).await));
        says.note(format!("{:?}", peer.frame_of(DATA).await));
        peer.end().await;
        says.note(server.ended().await);
    }
}

behaviour! {
    fn the_client_resets_what_is_waited_for(says, net) {
        let (service, mut asked) = Service::waiting();
        let (mut peer, server) = serve(net, |_| {}, service).await;
        peer.greet_server(&[]).await;
        peer.send(frame(HEADERS, WHOLE | LAST, 1, GET)).await;
        let mut answer = asked.recv().await.unwrap();
        peer.send(frame(RESET, 0, 1, &[0, 0, 0, 8])).await;
        answer.closed().await;
        peer.end().await;
        says.note(server.ended().await);
    }
}

behaviour! {
    fn the_server_resets_a_stream(says, net) {
        let service = Service::new(|request| async move {
            if request.method() == Method::GET {
                return Err(std::io::Error::other("no service"));
            }
            let (pieces, body) = Body::pieces();
            pieces.data("begun");
            pieces.fail();
            Ok(Response::new(body))
        });
        let (mut peer, server) = serve(net, |_| {}, service).await;
        peer.greet_server(&[]).await;
        peer.send(frame(HEADERS, WHOLE | LAST, 1, GET)).await;
        says.note(format!("{:?}", peer.frame_of(RESET).await));
        peer.send(frame(HEADERS, WHOLE | LAST, 3, POST)).await;
        says.note(format!("{:?}", peer.frame_of(RESET).await));
        peer.end().await;
        says.note(server.ended().await);

        let (mut peer, mut client) = client(net, |_| {}).await;
        let asked = client.ask(get());
        peer.frame_of(HEADERS).await;
        peer.send(frame(RESET, 0, 1, &[0, 0, 0, 7])).await;
        says.note(heard(asked).await);
        let asked = client.ask(get());
        peer.frame_of(HEADERS).await;
        peer.send(frame(HEADERS, WHOLE, 3, OK)).await;
        let mut body = asked.await.unwrap().unwrap().into_body();
        peer.send(frame(DATA, 0, 3, b"begun")).await;
        says.note(next(&mut body).await);
        peer.send(frame(RESET, 0, 3, &[0, 0, 0, 2])).await;
        says.note(next(&mut body).await);
        drop(body);
        says.note(client.let_go().await);
        says.note(format!("{:?}", peer.frame_of(GOAWAY).await));
        says.note(peer.rest().await);
    }
}

behaviour! {
    fn who_asks_gives_up(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;
        let asked = client.ask(get());
        peer.frame_of(HEADERS).await;
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled());
        says.note(format!("{:?}", peer.frame_of(RESET).await));
        says.note(client.let_go().await);
    }
}

behaviour! {
    fn a_window_is_kept_to(says, net) {
        let service = Service::new(|_| async { Ok(Response::new(Body::of(pattern(100)))) });
        let (mut peer, server) = serve(net, |_| {}, service).await;
        peer.greet_server(&setting(4, 30)).await;
        peer.send(frame(HEADERS, WHOLE | LAST, 1, GET)).await;
        says.note(format!("{:?}", peer.frame_of(HEADERS).await));
        for more in [20, 1, 49] {
            says.note(format!("{:?}", peer.frame_of(DATA).await));
            peer.send(frame(WINDOW, 0, 1, &u32::to_be_bytes(more))).await;
        }
        says.note(format!("{:?}", peer.frame_of(DATA).await));
        peer.end().await;
        says.note(server.ended().await);
    }
}

behaviour! {
    fn a_slow_reader_holds_the_sender(says, net) {
        const WINDOW: u32 = 20_000;
        let (theirs, ours) = net.pair().await;
        let (pieces, body) = Body::pieces();
        let body = std::sync::Mutex::new(Some(body));
        let service = Service::new(move |_| {
            let body = body.lock().unwrap().take().unwrap();
            async { Ok(Response::new(body)) }
        });
        let server = serve_on(ours, |http| { http.max_send_buf_size(10_000); }, service);
        let mut client = Client::on(theirs, |http| { http.initial_stream_window_size(WINDOW); }).await;
        let answer = client.ask(get()).await.unwrap().unwrap();
        let sent = pattern(200_000);
        for part in sent.chunks(7001) {
            pieces.data(part.to_vec());
        }
        drop(pieces);
        let mut body = answer.into_body();
        let first = next(&mut body).await;
        says.note((first.len() <= WINDOW as usize).to_string());
        let (rest, end) = all(body).await;
        assert!(sent.ends_with(&rest) && rest.len() >= sent.len() - WINDOW as usize);
        says.note(end);
        says.note(client.let_go().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn more_streams_than_are_allowed(says, net) {
        let (service, mut asked) = Service::waiting();
        let (mut peer, server) = serve(net, |http| { http.max_concurrent_streams(1); }, service).await;
        peer.greet_server(&[]).await;
        peer.send(frame(HEADERS, WHOLE | LAST, 1, GET)).await;
        let answer = asked.recv().await.unwrap();
        peer.send(frame(HEADERS, WHOLE | LAST, 3, GET)).await;
        says.note(format!("{:?}", peer.frame_of(RESET).await));
        assert!(answer.send(Ok(Response::new(Body::of("hello")))).is_ok());
        says.note(format!("{:?}", peer.frame_of(DATA).await));
        peer.end().await;
        says.note(server.ended().await);
    }
}

behaviour! {
    fn requests_wait_for_a_stream(says, net) {
        let (theirs, ours) = net.pair().await;
        let (service, mut asked) = Service::waiting();
        let server = serve_on(ours, |http| { http.max_concurrent_streams(1); }, service);
        let mut client = Client::on(theirs, |http| { http.initial_max_send_streams(1); }).await;
        let mut heard_of: Vec<_> = (0..3).map(|_| client.ask(get())).collect();
        for _ in 0..3 {
            let answer = asked.recv().await.unwrap();
            says.note(format!("{}", asked.try_recv().is_err()));
            assert!(answer.send(Ok(Response::new(Body::of("hello")))).is_ok());
            says.note(heard(heard_of.remove(0)).await);
        }
        says.note(client.let_go().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn the_client_goes(says, net) {
        for resets in [false, true] {
            let (service, mut asked) = Service::waiting();
            let (mut peer, server) = serve(net, |_| {}, service).await;
            peer.greet_server(&[]).await;
            peer.send(frame(HEADERS, WHOLE | LAST, 1, GET)).await;
            let mut answer = asked.recv().await.unwrap();
            peer.leave(resets);
            answer.closed().await;
            says.note(server.ended().await);
        }
    }
}

behaviour! {
    fn the_server_goes(says, net) {
        for resets in [false, true] {
            let (mut peer, mut client) = client(net, |_| {}).await;
            let waiting = client.ask(get());
            peer.frame_of(HEADERS).await;
            let reading = client.ask(get());
            peer.frame_of(HEADERS).await;
            peer.send(frame(HEADERS, WHOLE, 3, OK)).await;
            peer.send(frame(DATA, 0, 3, b"begun")).await;
            let mut body = reading.await.unwrap().unwrap().into_body();
            says.note(next(&mut body).await);
            peer.leave(resets);
            says.note(heard(waiting).await);
            says.note(next(&mut body).await);
            while client.sender.ready().await.is_ok() {
                tokio::task::yield_now().await;
            }
            let refused = client.sender.try_send_request(get()).await.unwrap_err();
            says.note(format!("{} {}", failure(refused.error()), refused.message().is_some()));
            says.note(client.ended().await);
        }
    }
}

behaviour! {
    fn the_server_wants_no_more_streams(says, net) {
        let (mut peer, mut client) = client(net, |_| {}).await;
        let first = client.ask(get());
        peer.frame_of(HEADERS).await;
        let second = client.ask(get());
        peer.frame_of(HEADERS).await;
        // It has seen the first only.
        peer.send(frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])).await;
        says.note(heard(second).await);
        peer.send(frame(HEADERS, WHOLE | LAST, 1, OK)).await;
        says.note(heard(first).await);
        says.note(client.ended().await);
    }
}

behaviour! {
    fn a_frame_that_is_none(says, net) {
        // Data of a stream that never was, a window that overflows, and a frame larger than any may be.
        let overflow = frame(WINDOW, 0, 0, &u32::to_be_bytes(i32::MAX as u32));
        for wrong in [frame(DATA, 0, 5, b"x"), overflow, vec![0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1]] {
            let (mut peer, server) = serve(net, |_| {}, Service::hello()).await;
            peer.greet_server(&[]).await;
            peer.send(wrong).await;
            says.note(format!("{:?}", peer.frame_of(GOAWAY).await));
            says.note(peer.rest().await);
            says.note(server.ended().await);
        }
    }
}

behaviour! {
    fn a_tunnel_through_a_stream(says, net) {
        let (theirs, ours) = net.pair().await;
        let (tell, mut told) = mpsc::unbounded_channel();
        let server = serve_on(ours, |_| {}, Service::new(move |mut request: Request<_>| {
            tell.send(on(&mut request)).unwrap();
            async { Ok(Response::new(Body::empty())) }
        }));
        let mut client = Client::on(theirs, |_| {}).await;
        let mut request = get();
        *request.method_mut() = Method::CONNECT;
        *request.uri_mut() = "quoit:1".parse().unwrap();
        let answer = client.ask(request).await.unwrap().unwrap();
        says.note(answer.status().to_string());
        let far = told.recv().await.unwrap().await.unwrap();
        let echo = tokio::spawn(async move {
            let (mut reader, mut writer) = tokio::io::split(TokioIo::new(far));
            tokio::io::copy(&mut reader, &mut writer).await.unwrap();
            writer.shutdown().await.unwrap();
        });
        let (mut reader, mut writer) = tokio::io::split(TokioIo::new(on(answer).await.unwrap()));
        let sent = pattern(300_000);
        let mut back = Vec::new();
        let writing = async {
            writer.write_all(&sent).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let ((), result) = tokio::join!(writing, reader.read_to_end(&mut back));
        says.note(format!("{result:?}"));
        assert!(back == sent);
        echo.await.unwrap();
        drop((reader, writer));
        says.note(client.let_go().await);
        says.note(server.ended().await);
    }
}

behaviour! {
    fn a_body_is_dropped_half_read(says, net) {
        let service = Service::new(|request| async {
            let mut body = request.into_body();
            let first = next(&mut body).await;
            drop(body);
            Ok(Response::new(Body::of(first)))
        });
        let (mut peer, server) = serve(net, |_| {}, service).await;
        peer.greet_server(&[]).await;
        peer.send(frame(HEADERS, WHOLE, 1, POST)).await;
        peer.send(frame(DATA, 0, 1, b"begun")).await;
        says.note(format!("{:?}", peer.frame_of(HEADERS).await));
        says.note(format!("{:?}", peer.frame_of(DATA).await));
        says.note(format!("{:?}", peer.frame_of(RESET).await));
        peer.end().await;
        says.note(server.ended().await);

        let (mut peer, mut client) = client(net, |_| {}).await;
        let asked = client.ask(get());
        peer.frame_of(HEADERS).await;
        peer.send(frame(HEADERS, WHOLE, 1, OK)).await;
        peer.send(frame(DATA, 0, 1, b"begun")).await;
        let mut body = asked.await.unwrap().unwrap().into_body();
        says.note(next(&mut body).await);
        drop(body);
        says.note(format!("{:?}", peer.frame_of(RESET).await));
        says.note(client.let_go().await);
    }
}

behaviour! {
    fn trailers(says, net) {
        let service = Service::new(|request| async {
            let (pieces, body) = Body::pieces();
            pieces.data(read(request.into_body()).await);
            pieces.trailer("sum", "5");
            Ok(Response::new(body))
        });
        let (mut peer, server) = serve(net, |_| {}, service).await;
        peer.greet_server(&[]).await;
        peer.send(frame(HEADERS, WHOLE, 1, POST)).await;
        peer.send(frame(DATA, 0, 1, b"body")).await;
        // `sum: 4`, in plain words.
        peer.send(frame(HEADERS, WHOLE | LAST, 1, b"\0\x03sum\x014")).await;
        for kind in [HEADERS, DATA, HEADERS] {
            says.note(format!("{:?}", peer.frame_of(kind).await));
        }
        peer.end().await;
        says.note(server.ended().await);
    }
}
