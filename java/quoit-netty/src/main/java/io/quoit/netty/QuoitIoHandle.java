package io.quoit.netty;

import io.netty.channel.IoHandle;

/**
 * A handle that {@link QuoitIoHandler} takes. Only this package's channels have one: a handle of another transport is
 * refused with a message.
 */
@SuppressWarnings("try")
public interface QuoitIoHandle extends IoHandle {}
