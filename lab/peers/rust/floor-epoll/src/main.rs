//! The epoll floor.

fn main() {}
