//! What scenarios are made of: bodies, services, and the two sides of HTTP/1.

use std::error::Error;
use std::fmt::Write as _;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::{HeaderMap, Request, Response, client, server};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::net::{Io, Net, Peer, Used};

/// A whole response.
pub(crate) const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

/// A body whose length is known, or whose pieces come one by one.
pub(crate) enum Body {
    Whole(Option<Bytes>),
    Pieces(mpsc::UnboundedReceiver<io::Result<Frame<Bytes>>>),
}

/// Brings the pieces of a body, which ends when this is dropped.
pub(crate) struct Pieces(mpsc::UnboundedSender<io::Result<Frame<Bytes>>>);

impl Pieces {
    pub(crate) fn data(&self, bytes: impl Into<Bytes>) {
        // Who sends the body may have given up.
        let _ = self.0.send(Ok(Frame::data(bytes.into())));
    }

    pub(crate) fn trailer(&self, name: &'static str, value: &'static str) {
        let mut trailers = HeaderMap::new();
        trailers.insert(name, value.parse().unwrap());
        let _ = self.0.send(Ok(Frame::trailers(trailers)));
    }

    pub(crate) fn fail(self) {
        let _ = self.0.send(Err(io::Error::other("no more of this body")));
    }

    /// Waits until nobody wants the body any more.
    pub(crate) async fn unwanted(&self) {
        self.0.closed().await;
    }
}

impl Body {
    pub(crate) fn empty() -> Self {
        Self::Whole(None)
    }

    pub(crate) fn of(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }

    pub(crate) fn pieces() -> (Pieces, Self) {
        let (pieces, body) = mpsc::unbounded_channel();
        (Pieces(pieces), Self::Pieces(body))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Pieces(pieces) => pieces.poll_recv(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Pieces(_) => SizeHint::default(),
        }
    }
}

/// The next piece of a body.
pub(crate) async fn next(body: &mut Incoming) -> String {
    match poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
        None => "the end".into(),
        Some(Err(error)) => failure(&error),
        Some(Ok(frame)) => match frame.into_data() {
            Ok(data) => String::from_utf8_lossy(&data).into_owned(),
            Err(frame) => format!("{:?}", frame.into_trailers().unwrap()),
        },
    }
}

/// All data of a body, and how it ends.
pub(crate) async fn all(mut body: Incoming) -> (Vec<u8>, String) {
    let mut data = Vec::new();
    let mut end = String::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        match frame {
            Err(error) => return (data, failure(&error)),
            Ok(frame) => match frame.into_data() {
                Ok(bytes) => data.extend_from_slice(&bytes),
                Err(frame) => end = format!("{:?}", frame.into_trailers().unwrap()),
            },
        }
    }
    (data, end)
}

/// A body as text.
pub(crate) async fn read(body: Incoming) -> String {
    let (data, end) = all(body).await;
    format!("{} [{end}]", String::from_utf8_lossy(&data))
}

/// An error with all that is behind it.
pub(crate) fn failure(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut at = Some(error);
    while let Some(error) = at {
        match error.downcast_ref::<io::Error>() {
            Some(io) => write!(text, "{:?} {:?} ({error}); ", io.kind(), io.raw_os_error()),
            None => write!(text, "{error}; "),
        }
        .unwrap();
        at = error.source();
    }
    text
}

/// How a connection ends.
pub(crate) fn ended(result: hyper::Result<()>) -> String {
    match result {
        Ok(()) => "ended".into(),
        Err(error) => failure(&error),
    }
}

pub(crate) type Answer = io::Result<Response<Body>>;

type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A service, of one type for all scenarios.
#[derive(Clone)]
pub(crate) struct Service(Arc<dyn Fn(Request<Incoming>) -> Answering + Send + Sync>);

impl Service {
    pub(crate) fn new<F>(answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        Self(Arc::new(move |request| Box::pin(answer(request))))
    }

    /// Says hello, whatever is asked.
    pub(crate) fn hello() -> Self {
        Self::new(|_| async { Ok(Response::new(Body::of("hello"))) })
    }

    /// Answers with what it is sent, as text.
    pub(crate) fn echo() -> Self {
        Self::new(|request| async { Ok(Response::new(Body::of(read(request.into_body()).await))) })
    }

    /// Says when it is asked, and answers when it is told to.
    pub(crate) fn waiting() -> (Self, mpsc::UnboundedReceiver<oneshot::Sender<Answer>>) {
        let (tell, asked) = mpsc::unbounded_channel();
        let service = Self::new(move |_| {
            let (answer, answered) = oneshot::channel();
            tell.send(answer).unwrap();
            async { answered.await.unwrap() }
        });
        (service, asked)
    }
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response<Body>;
    type Error = io::Error;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        self.0(request)
    }
}

/// A connection that is served.
pub(crate) struct Server {
    pub(crate) used: Used,
    stop: mpsc::Sender<oneshot::Sender<()>>,
    serving: JoinHandle<String>,
}

impl Server {
    /// Serves a connection, of which `shut_down` begins a graceful shutdown.
    pub(crate) fn spawn<C>(
        used: Used,
        connection: C,
        shut_down: impl FnOnce(Pin<&mut C>) + Send + 'static,
    ) -> Self
    where
        C: Future<Output = hyper::Result<()>> + Send + 'static,
    {
        let (stop, mut stopped) = mpsc::channel::<oneshot::Sender<()>>(1);
        let serving = async move {
            let mut connection = pin!(connection);
            ended(tokio::select! {
                result = connection.as_mut() => result,
                Some(told) = stopped.recv() => {
                    shut_down(connection.as_mut());
                    told.send(()).unwrap();
                    connection.await
                }
            })
        };
        Self {
            used,
            stop,
            serving: tokio::spawn(serving),
        }
    }

    /// Begins a graceful shutdown.
    pub(crate) async fn stop(&self) {
        let (tell, told) = oneshot::channel();
        self.stop.send(tell).await.unwrap();
        told.await.unwrap();
    }

    /// How the connection has ended.
    pub(crate) async fn ended(self) -> String {
        self.serving.await.unwrap()
    }
}

/// Serves HTTP/1 on a stream.
pub(crate) fn serve_on(io: Io, http: &server::conn::http1::Builder, service: Service) -> Server {
    let used = io.used();
    let connection = http.serve_connection(io, service).with_upgrades();
    Server::spawn(used, connection, |connection| connection.graceful_shutdown())
}

/// A builder whose answers are the same at any time.
pub(crate) fn builder() -> server::conn::http1::Builder {
    let mut http = server::conn::http1::Builder::new();
    http.auto_date_header(false);
    http
}

/// Serves HTTP/1 to a plain socket.
pub(crate) async fn serve(
    net: Net,
    options: impl FnOnce(&mut server::conn::http1::Builder),
    service: Service,
) -> (Peer, Server) {
    let (io, peer) = net.accepted().await;
    let mut http = builder();
    options(&mut http);
    (peer, serve_on(io, &http, service))
}

/// A client of HTTP/1.
pub(crate) struct Client {
    pub(crate) sender: client::conn::http1::SendRequest<Body>,
    pub(crate) used: Used,
    connection: JoinHandle<String>,
}

impl Client {
    pub(crate) async fn on(io: Io, http: &client::conn::http1::Builder) -> Self {
        let used = io.used();
        let (sender, connection) = http.handshake(io).await.unwrap();
        let connection = tokio::spawn(async { ended(connection.with_upgrades().await) });
        Self {
            sender,
            used,
            connection,
        }
    }

    /// Begins to ask for something.
    pub(crate) fn ask(&mut self, request: Request<Body>) -> JoinHandle<hyper::Result<Response<Incoming>>> {
        tokio::spawn(self.sender.send_request(request))
    }

    /// How the connection has ended, which it has to by itself.
    pub(crate) async fn ended(self) -> String {
        let ended = self.connection.await.unwrap();
        drop(self.sender);
        ended
    }

    /// How it ends when nobody asks any more.
    pub(crate) async fn let_go(self) -> String {
        drop(self.sender);
        self.connection.await.unwrap()
    }
}

/// A client of HTTP/1 of a plain socket.
pub(crate) async fn client(
    net: Net,
    options: impl FnOnce(&mut client::conn::http1::Builder),
) -> (Peer, Client) {
    let (io, peer) = net.connected().await;
    let mut http = client::conn::http1::Builder::new();
    options(&mut http);
    (peer, Client::on(io, &http).await)
}

/// A request without a body.
pub(crate) fn get() -> Request<Body> {
    with(Body::empty())
}

/// A request with a body.
pub(crate) fn with(body: Body) -> Request<Body> {
    let method = if matches!(body, Body::Whole(None)) {
        "GET"
    } else {
        "POST"
    };
    Request::builder()
        .method(method)
        .uri("/a?b")
        .header("host", "quoit")
        .body(body)
        .unwrap()
}

/// What was answered: the head, and the body as text.
pub(crate) async fn heard(asked: JoinHandle<hyper::Result<Response<Incoming>>>) -> String {
    match asked.await.unwrap() {
        Err(error) => failure(&error),
        Ok(answer) => {
            let (head, body) = answer.into_parts();
            let body = read(body).await;
            format!("{:?} {} {:?} {body}", head.version, head.status, head.headers)
        }
    }
}
