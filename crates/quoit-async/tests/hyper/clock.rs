//! A clock that tests move on, so that nothing depends on how long something takes.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use tokio::sync::watch;

/// A timer for hyper.
#[derive(Clone)]
pub(crate) struct Clock {
    time: Arc<Mutex<Time>>,
    asked: Arc<watch::Sender<usize>>,
}

struct Time {
    now: Instant,
    sleeping: Vec<Waker>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self {
            time: Arc::new(Mutex::new(Time {
                now: Instant::now(),
                sleeping: Vec::new(),
            })),
            asked: Arc::default(),
        }
    }

    /// Waits until hyper has asked for so many deadlines.
    pub(crate) async fn asked(&self, times: usize) {
        let mut asked = self.asked.subscribe();
        asked.wait_for(|asked| *asked >= times).await.unwrap();
    }

    pub(crate) fn advance(&self, by: Duration) {
        let mut time = self.time.lock().unwrap();
        time.now += by;
        let sleeping = std::mem::take(&mut time.sleeping);
        drop(time);
        for waker in sleeping {
            waker.wake();
        }
    }
}

impl Timer for Clock {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.asked.send_modify(|asked| *asked += 1);
        Box::pin(Sleeping {
            time: Arc::clone(&self.time),
            deadline,
        })
    }

    fn now(&self) -> Instant {
        self.time.lock().unwrap().now
    }
}

struct Sleeping {
    time: Arc<Mutex<Time>>,
    deadline: Instant,
}

impl Future for Sleeping {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut time = self.time.lock().unwrap();
        if time.now >= self.deadline {
            return Poll::Ready(());
        }
        time.sleeping.push(cx.waker().clone());
        Poll::Pending
    }
}

impl Sleep for Sleeping {}
