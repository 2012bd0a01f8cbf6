package io.quoit.netty;

/** Whose received bytes lie in slots of a pool: it is told of every slot that pipelines get and give back. */
interface LeaseHolder {
    /** Whether its buffers hold so many slots that what it receives is to be copied. */
    boolean holdsTooMuch();

    void handedOut();

    /** A slot came back on the loop's thread. */
    void returnedHere();

    /** A slot came back on another thread. */
    void returnedElsewhere();
}
