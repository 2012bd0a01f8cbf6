using System.Net.Sockets;

namespace Quoit.Kestrel.Native;

/// <summary>Errors of the kernel, as negative numbers in the way of the library.</summary>
internal static class Errno
{
    public const int PermissionDenied = -13;
    public const int NotSupported = -95;
    public const int AddressInUse = -98;

    /// <summary>The exception that <see cref="Socket"/> throws for that error, with the library's text.</summary>
    public static SocketException ToException(int error, string message)
    {
        var code = error switch
        {
            -1 or PermissionDenied => SocketError.AccessDenied,
            -2 => SocketError.AddressNotAvailable, // ENOENT of a Unix path
            -9 or -88 => SocketError.NotSocket,
            -11 => SocketError.WouldBlock, // EAGAIN of a Unix listener whose queue is full
            -4 => SocketError.Interrupted,
            -6 => SocketError.HostNotFound, // ENXIO
            -14 => SocketError.Fault,
            -22 => SocketError.InvalidArgument,
            -23 or -24 => SocketError.TooManyOpenSockets,
            -32 => SocketError.Shutdown,
            -61 => SocketError.NoData,
            -89 => SocketError.DestinationAddressRequired,
            -90 => SocketError.MessageSize,
            -91 => SocketError.ProtocolType, // a Unix path of datagrams
            -92 => SocketError.ProtocolOption,
            -93 => SocketError.ProtocolNotSupported,
            -94 => SocketError.SocketNotSupported,
            NotSupported => SocketError.OperationNotSupported,
            -96 => SocketError.ProtocolFamilyNotSupported,
            -97 => SocketError.AddressFamilyNotSupported,
            AddressInUse => SocketError.AddressAlreadyInUse,
            -99 => SocketError.AddressNotAvailable,
            -100 => SocketError.NetworkDown,
            -101 => SocketError.NetworkUnreachable,
            -102 => SocketError.NetworkReset,
            -103 => SocketError.ConnectionAborted,
            -104 => SocketError.ConnectionReset,
            -105 => SocketError.NoBufferSpaceAvailable,
            -106 => SocketError.IsConnected,
            -107 => SocketError.NotConnected,
            -108 => SocketError.Disconnecting,
            -110 => SocketError.TimedOut,
            -111 => SocketError.ConnectionRefused,
            -112 => SocketError.HostDown,
            -113 => SocketError.HostUnreachable,
            -114 => SocketError.AlreadyInProgress,
            -115 => SocketError.InProgress,
            -125 => SocketError.OperationAborted,
            _ => SocketError.SocketError,
        };
        return new SocketException((int)code, message);
    }
}
