package io.quoit.netty;

/** The kernel interface that a loop runs on. */
public enum QuoitEngine {
    /** io_uring where it is usable, otherwise epoll, with the reason logged. */
    AUTO,
    /** io_uring, or an exception that says what is missing and the remedy. */
    URING,
    /** epoll. */
    EPOLL
}
