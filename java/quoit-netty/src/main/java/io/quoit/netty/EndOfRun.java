package io.quoit.netty;

/** Who reads in runs: to be told when all events of a turn were reported. */
interface EndOfRun {
    /** The run is over. */
    void complete();
}
