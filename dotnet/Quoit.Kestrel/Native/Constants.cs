namespace Quoit.Kestrel.Native;

// The values of quoit.h; a test compares each with quoit-layout.txt.

/// <summary><c>QUOIT_COMMAND_*</c>.</summary>
internal enum CommandKind : ushort
{
    Connect = 1,
    Attach = 2,
    Send = 3,
    SendLease = 4,
    SendFile = 5,
    Shutdown = 6,
    Close = 7,
    Abort = 8,
    Pause = 9,
    Resume = 10,
    SetDeadline = 11,
    SetTimer = 12,
    CancelTimer = 13,
    StopListening = 14,
    Drain = 15,
    ReturnLease = 16,
    OpenDatagram = 17,
    SendDatagrams = 18,
    PauseDatagrams = 19,
    ResumeDatagrams = 20,
    JoinMulticast = 21,
    LeaveMulticast = 22,
    CloseDatagram = 23,
    SendGathered = 24,
    PauseListening = 25,
    ResumeListening = 26,
}

/// <summary><c>QUOIT_FLAG_*</c>.</summary>
[Flags]
internal enum CommandFlags : ushort
{
    None = 0,
    Borrowed = 1,
    Paused = 2,
    Ecn = 4,
    Progress = 8,
    TellShort = 16,
}

/// <summary><c>QUOIT_EVENT_*</c>.</summary>
internal enum EventKind : ushort
{
    None = 0,
    Accepted = 1,
    AcceptedDescriptor = 2,
    Connecting = 3,
    Opened = 4,
    Data = 5,
    EndOfStream = 6,
    Sent = 7,
    Writable = 8,
    Pressure = 9,
    Deadline = 10,
    Closed = 11,
    ListenerClosed = 12,
    Refused = 13,
    Timer = 14,
    Woken = 15,
    Draining = 16,
    Drained = 17,
    DatagramOpened = 18,
    Datagrams = 19,
    DatagramSent = 20,
    DatagramError = 21,
    DatagramWritable = 22,
    DatagramPressure = 23,
    DatagramClosed = 24,
    DatagramRefused = 25,
    FileShort = 26,
    AcceptFailed = 27,
    SendFailed = 28,
}

/// <summary><c>QUOIT_CLOSED_*</c>: why a connection has closed.</summary>
internal enum CloseReason : ushort
{
    Local = 1,
    Peer = 2,
    Reset = 3,
    Timeout = 4,
    Limit = 5,
    Error = 6,
}

/// <summary><c>QUOIT_REFUSED_*</c>: why a command did nothing.</summary>
internal enum Refusal : ushort
{
    Stale = 1,
    Full = 2,
    TooLarge = 3,
    Closing = 4,
    Limit = 5,
    Error = 6,
}

/// <summary><c>QUOIT_ACCEPT_*</c>: what becomes of accepted connections.</summary>
internal enum AcceptKind : uint
{
    Connections = 0,
    Paused = 1,
    Descriptors = 2,
    Spread = 3,
}

/// <summary><c>QUOIT_BIND_*</c>.</summary>
[Flags]
internal enum BindFlags : uint
{
    None = 0,
    ReusePort = 1,
    Ipv6Only = 2,
    UnlinkExisting = 4,
}

/// <summary><c>QUOIT_FIGURE_*</c>.</summary>
internal enum FigureKind : uint
{
    Counter = 0,
    Gauge = 1,
}

/// <summary><c>QUOIT_ENGINE_*</c>.</summary>
internal enum NativeEngine : uint
{
    Auto = 0,
    Uring = 1,
    Epoll = 2,
}

/// <summary><c>QUOIT_WAIT_*</c>: how a loop waits. Spinning is the binding's own (<c>Loop.TakeTurn</c>): between two looks
/// it runs what was posted.</summary>
internal enum NativeWait : uint
{
    Block = 0,
    Spin = 1,
    Poll = 2,
    Coalesce = 3,
}
