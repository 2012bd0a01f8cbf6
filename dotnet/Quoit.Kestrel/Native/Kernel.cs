using System.Buffers.Binary;
using System.Net;
using System.Net.Sockets;
using System.Runtime.InteropServices;
using System.Text;

namespace Quoit.Kestrel.Native;

/// <summary>The system calls that the transport makes itself, on descriptors that it knows to be open.</summary>
internal static unsafe partial class Kernel
{
    private const string C = "libc";

    // sizeof(struct sockaddr_storage)
    private const int AddressRoom = 128;
    private const uint AddressBytesV4 = 16, AddressBytesV6 = 28;

    // SOL_SOCKET and SO_PEERNAME
    private const int SocketLevel = 1, PeerName = 28;
    private const int PathOffset = 2;

    // F_DUPFD_CLOEXEC
    private const int DuplicateCloseOnExec = 1030;

    [LibraryImport(C, EntryPoint = "getsockname", SetLastError = true)]
    private static partial int GetSocketName(int descriptor, byte* address, uint* length);

    [LibraryImport(C, EntryPoint = "getpeername", SetLastError = true)]
    private static partial int GetPeerName(int descriptor, byte* address, uint* length);

    [LibraryImport(C, EntryPoint = "getsockopt", SetLastError = true)]
    private static partial int GetOption(int descriptor, int level, int name, byte* value, uint* length);

    // Variadic in C, with integers alone; their place is the same in both forms of call.
    [LibraryImport(C, EntryPoint = "fcntl", SetLastError = true)]
    private static partial int Control(int descriptor, int command, int lowest);

    [LibraryImport(C, EntryPoint = "listen", SetLastError = true)]
    private static partial int StartListening(int descriptor, int backlog);

    [LibraryImport(C, EntryPoint = "close")]
    private static partial int Close(int descriptor);

    [LibraryImport(C, EntryPoint = "sched_getaffinity", SetLastError = true)]
    private static partial int GetAffinity(int thread, nuint size, ulong* mask);

    [LibraryImport(C, EntryPoint = "sched_setaffinity", SetLastError = true)]
    private static partial int SetAffinity(int thread, nuint size, ulong* mask);

    /// <summary>The socket's own address; null if it has none.</summary>
    public static EndPoint? LocalEndPoint(int descriptor)
    {
        var address = stackalloc byte[AddressRoom];
        uint length = AddressRoom;
        return GetSocketName(descriptor, address, &length) < 0 ? null : ToEndPoint(new ReadOnlySpan<byte>(address, (int)length));
    }

    /// <summary>The peer's address, also of one that has reset the connection; null if there is none.</summary>
    public static EndPoint? RemoteEndPoint(int descriptor)
    {
        var address = stackalloc byte[AddressRoom];
        uint length = AddressRoom;
        if (GetPeerName(descriptor, address, &length) >= 0)
        {
            return ToEndPoint(new ReadOnlySpan<byte>(address, (int)length));
        }

        // Of a peer that has reset its connection accept4(2) would have told it, and getpeername(2) does not. SO_PEERNAME does,
        // to who asks for the exact length.
        foreach (var exact in (ReadOnlySpan<uint>)[AddressBytesV6, AddressBytesV4])
        {
            length = exact;
            if (GetOption(descriptor, SocketLevel, PeerName, address, &length) >= 0)
            {
                return ToEndPoint(new ReadOnlySpan<byte>(address, (int)length));
            }
        }

        return null;
    }

    /// <summary>Another descriptor of the same socket, for the caller to close; processes that are started do not inherit
    /// it.</summary>
    public static int DuplicateDescriptor(int descriptor)
    {
        var copy = Control(descriptor, DuplicateCloseOnExec, 0);
        return copy >= 0 ? copy : throw Errno.ToException(-Marshal.GetLastPInvokeError(), "The socket's descriptor cannot be duplicated.");
    }

    /// <summary>Closes a descriptor that was given to be owned. Whatever the kernel returns, it is gone.</summary>
    public static void CloseDescriptor(int descriptor) => _ = Close(descriptor);

    /// <summary>Makes a bound socket listen; one that does already gets the backlog.</summary>
    public static void Listen(int descriptor, int backlog)
    {
        if (StartListening(descriptor, backlog) < 0)
        {
            throw Errno.ToException(
                -Marshal.GetLastPInvokeError(), $"Descriptor {descriptor} cannot listen: it is not a bound stream socket.");
        }
    }

    /// <summary>Binds the calling thread to one of the processors that it may use.</summary>
    /// <returns>The processor; -1 if the kernel does not let it.</returns>
    public static int PinThread(int index)
    {
        const int Words = 1024 / 64;
        var mask = stackalloc ulong[Words];
        var size = GetAffinity(0, Words * sizeof(ulong), mask) < 0 ? 0 : Words * 64;
        var allowed = new List<int>();
        for (var processor = 0; processor < size; processor++)
        {
            if ((mask[processor / 64] >> (processor % 64) & 1) != 0)
            {
                allowed.Add(processor);
            }
        }
        if (allowed.Count == 0)
        {
            return -1;
        }
        var chosen = allowed[index % allowed.Count];
        new Span<ulong>(mask, Words).Clear();
        mask[chosen / 64] = 1UL << (chosen % 64);
        return SetAffinity(0, Words * sizeof(ulong), mask) < 0 ? -1 : chosen;
    }

    private static EndPoint? ToEndPoint(ReadOnlySpan<byte> address)
    {
        if (address.Length < 2)
        {
            return null;
        }
        const int Unix = 1, InterNetwork = 2, InterNetworkV6 = 10;
        switch (BitConverter.ToUInt16(address))
        {
            case InterNetwork:
                return new IPEndPoint(new IPAddress(address.Slice(4, 4)), BinaryPrimitives.ReadUInt16BigEndian(address[2..]));
            case InterNetworkV6:
                var scope = BitConverter.ToUInt32(address[24..]);
                return new IPEndPoint(new IPAddress(address.Slice(8, 16), scope), BinaryPrimitives.ReadUInt16BigEndian(address[2..]));
            case Unix:
                var path = new SocketAddress(AddressFamily.Unix, address.Length);
                for (var index = PathOffset; index < address.Length; index++)
                {
                    path[index] = address[index];
                }
                return new UnixDomainSocketEndPoint("any").Create(path);
            default:
                return null;
        }
    }

    /// <summary>An address as the library writes it: <c>127.0.0.1:80</c>, <c>[::1]:80</c>, <c>unix:/path</c>,
    /// <c>unix:@name</c>.</summary>
    public static byte[] AddressText(EndPoint endPoint)
    {
        switch (endPoint)
        {
            case IPEndPoint ip:
                return Encoding.UTF8.GetBytes(ip.ToString());
            case UnixDomainSocketEndPoint unix:
                var address = unix.Serialize();
                return UnixText(address.Buffer.Span[PathOffset..address.Size]);
            default:
                throw new NotSupportedException($"{endPoint.GetType().Name} is not a kind of endpoint that Quoit can bind or connect to.");
        }
    }

    /// <summary>A Unix address from what the kernel gets of it: a name of the abstract space behind a NUL, or a path and its
    /// NUL.</summary>
    private static byte[] UnixText(ReadOnlySpan<byte> name)
    {
        var text = new List<byte>("unix:".Length + name.Length);
        text.AddRange("unix:"u8);
        if (name.StartsWith((byte)0))
        {
            text.Add((byte)'@');
            name = name[1..];
        }
        else
        {
            name = name.TrimEnd((byte)0);
        }
        foreach (var part in name)
        {
            // A backslash begins an escape, and the sign an abstract name where it comes first. What is not ASCII may be no UTF-8.
            if (part is >= (byte)' ' and <= (byte)'~' and not (byte)'\\' and not (byte)'@')
            {
                text.Add(part);
            }
            else
            {
                text.AddRange(Encoding.ASCII.GetBytes($"\\x{part:x2}"));
            }
        }
        return [.. text];
    }
}
