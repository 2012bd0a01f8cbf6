package io.quoit.netty;

/** Whose received bytes lie in slots of a pool: it is told of every slot that pipelines get and give back. */
interface LeaseHolder {
    /** How many slots its buffers hold; 0 if only the pool's own limit counts. */
    int slotsHeld();

    void handedOut();

    /** A slot came back on the loop's thread. */
    void returnedHere();

    /** A slot came back on another thread. */
    void returnedElsewhere();
}
