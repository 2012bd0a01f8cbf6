using System.Runtime.InteropServices;

namespace Quoit.Kestrel.Native;

// The structures of quoit.h, field by field; a test compares each with quoit-layout.txt. Names are those of the header.

/// <summary><c>quoit_command</c>: one request to a loop, 64 bytes.</summary>
[StructLayout(LayoutKind.Sequential)]
internal unsafe struct NativeCommand
{
    public CommandKind Kind;
    public CommandFlags Flags;
    public int Descriptor;
    public ulong Target;
    public ulong Token;
    public void* Data;
    public uint Length;
    public uint Reserved;
    public ulong Offset;
    public ulong Lease;
    public long TimeNs;
}

/// <summary><c>struct iovec</c>: a piece of a gathered send.</summary>
[StructLayout(LayoutKind.Sequential)]
internal unsafe struct NativePiece
{
    public void* Address;
    public nuint Length;
}

/// <summary><c>quoit_event</c>: one thing that happened, 64 bytes.</summary>
[StructLayout(LayoutKind.Sequential)]
internal unsafe struct NativeEvent
{
    public EventKind Kind;
    public ushort Reason;
    public int Error;
    public int Descriptor;
    public uint Length;
    public ulong Connection;
    public ulong Listener;
    public ulong Token;
    public byte* Data;
    public ulong Lease;
    public ulong Reserved;
}

/// <summary><c>quoit_stream_options</c>: options of a stream socket.</summary>
[StructLayout(LayoutKind.Sequential)]
internal struct NativeStreamOptions
{
    public uint NoDelay;
    public uint ReceiveBuffer;
    public uint SendBuffer;
    public uint KeepaliveIdleS;
    public uint KeepaliveIntervalS;
    public uint KeepaliveProbes;
    public ulong Reserved;
}

/// <summary><c>quoit_config</c>: the limits of one loop.</summary>
[StructLayout(LayoutKind.Sequential)]
internal struct NativeConfig
{
    public uint Size;
    public uint Engine;
    public ulong Without;
    public uint Connections;
    public uint Listeners;
    public uint Timers;
    public uint ReceiveSlots;
    public uint ReceiveSlotSize;
    public uint LeasesPerConnection;
    public uint CloseAtLeaseLimit;
    public uint HighWater;
    public uint LowWater;
    public uint SendPieces;
    public uint SendChunkSize;
    public uint SendChunks;
    public uint ZeroCopyThreshold;
    public uint SubmissionQueue;
    public uint CompletionQueue;
    public uint BufferRing;
    public uint RegisterPool;
    public uint CompletionsPerTurn;
    public uint ReceivesPerTurn;
    public uint Inbox;
    public long KernelPollNs;
    public long ConnectTimeoutNs;
    public long CloseDeadlineNs;
    public long RingMemoryPatienceNs;
    public uint DatagramSockets;
    public uint Wait;
    public long SpinNs;
    public uint Pollable;
    public uint Reserved;
    public long StallLimitNs;
}

/// <summary><c>quoit_connect_options</c>.</summary>
[StructLayout(LayoutKind.Sequential)]
internal unsafe struct NativeConnectOptions
{
    public uint Size;
    public uint AddressLength;
    public byte* Address;
    public byte* Local;
    public uint LocalLength;
    public uint Reserved;
    public long TimeoutNs;
    public NativeStreamOptions Stream;
}

/// <summary><c>quoit_bind_options</c>.</summary>
[StructLayout(LayoutKind.Sequential)]
internal struct NativeBindOptions
{
    public uint Size;
    public BindFlags Flags;
    public uint Backlog;
    public uint ReceiveBuffer;
    public uint SendBuffer;
    public uint Reserved;
}

/// <summary><c>quoit_listen_options</c>.</summary>
[StructLayout(LayoutKind.Sequential)]
internal unsafe struct NativeListenOptions
{
    public uint Size;
    public AcceptKind Accept;
    public nint* Remotes;
    public uint RemoteCount;
    public uint Reserved;
    public NativeStreamOptions Stream;
    public uint TellFailures;
    public uint ReservedToo;
}

/// <summary><c>quoit_capability</c>: a feature of io_uring.</summary>
[StructLayout(LayoutKind.Sequential)]
internal unsafe struct NativeCapability
{
    public uint Size;
    public uint Usable;
    public ulong Bit;
    public byte* Name;
    public byte* About;
    public byte* MinimumKernel;
    public byte* Reason;
}

/// <summary><c>quoit_counter_info</c>: what a counter is.</summary>
[StructLayout(LayoutKind.Sequential)]
internal unsafe struct NativeCounterInfo
{
    public uint Size;
    public FigureKind Kind;
    public uint Offset;
    public uint Reserved;
    public byte* Name;
    public byte* About;
}
