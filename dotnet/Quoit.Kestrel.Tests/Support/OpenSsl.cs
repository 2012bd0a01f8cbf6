using System.Net;
using System.Net.Sockets;
using System.Runtime.InteropServices;
using System.Text;

namespace Quoit.Kestrel.Tests.Support;

/// <summary>
/// A client of TLS 1.2 made of OpenSSL's own calls, on a blocking socket: it can ask for a renegotiation, which
/// <see cref="System.Net.Security.SslStream"/> cannot. OpenSSL is what .NET itself has TLS from on Linux.
/// </summary>
internal sealed unsafe partial class OpenSsl : IDisposable
{
    private const string Library = "libssl";
    private const int ControlSetMaximumVersion = 124;
    private const int Tls12 = 0x0303;

    private readonly Socket _socket;
    private readonly nint _context;
    private readonly nint _connection;

    static OpenSsl() => NativeLibrary.SetDllImportResolver(typeof(OpenSsl).Assembly, static (name, assembly, path) =>
    {
        if (name != Library)
        {
            return 0;
        }
        foreach (var file in new[] { "libssl.so.3", "libssl.so.1.1" })
        {
            if (NativeLibrary.TryLoad(file, assembly, path, out var handle))
            {
                return handle;
            }
        }
        return 0;
    });

    private OpenSsl(Socket socket)
    {
        _socket = socket;
        _context = SSL_CTX_new(TLS_client_method());
        SSL_CTX_ctrl(_context, ControlSetMaximumVersion, Tls12, 0);
        _connection = SSL_new(_context);
        Assert.Equal(1, SSL_set_fd(_connection, (int)socket.Handle));
    }

    /// <summary>Connects and shakes hands; whose certificate it is, is not asked. Blocks, as all that follows.</summary>
    public static OpenSsl Connect(EndPoint to)
    {
        var socket = new Socket(to.AddressFamily, SocketType.Stream, ProtocolType.Tcp);
        // OpenSSL reads and writes by the descriptor: a limit for what would hang.
        socket.ReceiveTimeout = socket.SendTimeout = (int)Wait.Limit.TotalMilliseconds;
        socket.Connect(to);
        var client = new OpenSsl(socket);
        Assert.Equal(1, SSL_connect(client._connection));
        return client;
    }

    public void Send(string text)
    {
        var bytes = Encoding.Latin1.GetBytes(text);
        fixed (byte* first = bytes)
        {
            Assert.Equal(bytes.Length, SSL_write(_connection, first, bytes.Length));
        }
    }

    /// <summary>What comes until that text does.</summary>
    public string ReceiveUntil(string end)
    {
        var text = new StringBuilder();
        var buffer = stackalloc byte[4096];
        while (!text.ToString().Contains(end, StringComparison.Ordinal))
        {
            var read = SSL_read(_connection, buffer, 4096);
            Assert.True(read > 0, $"it ended behind: {text}");
            text.Append(Encoding.Latin1.GetString(buffer, read));
        }
        return text.ToString();
    }

    /// <summary>Asks for a new handshake; whether the peer agrees.</summary>
    public bool Renegotiate() => SSL_renegotiate(_connection) == 1 && SSL_do_handshake(_connection) == 1;

    public void Dispose()
    {
        SSL_free(_connection);
        SSL_CTX_free(_context);
        _socket.Dispose();
    }

    [LibraryImport(Library)]
    private static partial nint TLS_client_method();

    [LibraryImport(Library)]
    private static partial nint SSL_CTX_new(nint method);

    [LibraryImport(Library)]
    private static partial nint SSL_CTX_ctrl(nint context, int command, nint number, nint pointer);

    [LibraryImport(Library)]
    private static partial void SSL_CTX_free(nint context);

    [LibraryImport(Library)]
    private static partial nint SSL_new(nint context);

    [LibraryImport(Library)]
    private static partial void SSL_free(nint connection);

    [LibraryImport(Library)]
    private static partial int SSL_set_fd(nint connection, int descriptor);

    [LibraryImport(Library)]
    private static partial int SSL_connect(nint connection);

    [LibraryImport(Library)]
    private static partial int SSL_read(nint connection, byte* buffer, int length);

    [LibraryImport(Library)]
    private static partial int SSL_write(nint connection, byte* buffer, int length);

    [LibraryImport(Library)]
    private static partial int SSL_renegotiate(nint connection);

    [LibraryImport(Library)]
    private static partial int SSL_do_handshake(nint connection);
}
