package io.quoit.netty;

/**
 * Who is at the other end of a Unix socket, as it was when the connection was made: {@code SO_PEERCRED}, see {@code unix(7)}.
 *
 * @param pid the process
 * @param uid its effective user
 * @param gid its effective group
 */
public record QuoitPeerCredentials(int pid, int uid, int gid) {}
