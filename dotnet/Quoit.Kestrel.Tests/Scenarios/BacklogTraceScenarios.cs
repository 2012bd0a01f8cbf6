using System.Net;
using System.Net.Sockets;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Server.Kestrel.Transport.Sockets;
using Microsoft.Extensions.Logging.Abstractions;
using Microsoft.Extensions.Options;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>A server that accepts nobody, until its backlog is full: on sockets first, and then on each of ours the same.</summary>
public class BacklogTraceScenarios
{
    private const int Backlog = 4;

    public static TheoryData<Transport> Normal => Transports.QuoitNormal;

    /// <summary>The first ones come; the one that there is no room for is told so at once, as clients of Unix sockets
    /// are; and there is room again when somebody has been accepted.</summary>
    [Theory]
    [MemberData(nameof(Normal))]
    public async Task A_full_backlog_of_a_unix_socket(Transport transport)
    {
        var stock = await TraceAsync(new SocketTransportFactory(
            Options.Create(new SocketTransportOptions { Backlog = Backlog }), NullLoggerFactory.Instance));
        Assert.Equal("refused WouldBlock", stock[0]);
        await using var factory = FactoryScenarios.Create(transport, configure: options => options.Backlog = Backlog);
        Assert.Equal(stock, await TraceAsync(factory));
    }

    private static async Task<string[]> TraceAsync(IConnectionListenerFactory factory)
    {
        var trace = new List<string>();
        await using var listener = await factory.BindAsync(new UnixDomainSocketEndPoint($"\0quoit-{Guid.NewGuid():N}"));
        var clients = new List<Socket>();
        while (true)
        {
            var client = Connect(listener.EndPoint, out var refusal);
            if (client is null)
            {
                trace.Add($"refused {refusal}");
                break;
            }
            client.Send(BitConverter.GetBytes(clients.Count));
            clients.Add(client);
        }
        // How many there are is the transport's: ours accepts some before it is asked.
        trace.Add($"more than the backlog: {clients.Count > Backlog}");
        var come = new HashSet<int>();
        while (come.Count < clients.Count && come.Add(await NumberAsync(listener)))
        {
        }
        trace.Add($"each comes: {come.Count == clients.Count}");
        var late = Connect(listener.EndPoint, out var again);
        trace.Add($"then there is room: {again}");
        late!.Send(BitConverter.GetBytes(clients.Count));
        trace.Add($"for the next one: {await NumberAsync(listener) == clients.Count}");
        clients.Add(late);
        clients.ForEach(client => client.Dispose());
        await listener.UnbindAsync();
        trace.Add($"nobody more: {await listener.AcceptAsync() is null}");
        return [.. trace];
    }

    /// <summary>The number that the next connection sends.</summary>
    private static async Task<int> NumberAsync(IConnectionListener listener)
    {
        await using var connection = (await listener.AcceptAsync().Soon())!;
        var result = await connection.Transport.Input.ReadAtLeastAsync(sizeof(int), Wait.Token);
        var number = BitConverter.ToInt32(result.Buffer.FirstSpan);
        connection.Transport.Input.AdvanceTo(result.Buffer.End);
        return number;
    }

    /// <summary>A client; or null, and why there is no room for one.</summary>
    private static Socket? Connect(EndPoint place, out SocketError refusal)
    {
        var client = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified) { Blocking = false };
        try
        {
            client.Connect(place);
            refusal = SocketError.Success;
            return client;
        }
        catch (SocketException failure)
        {
            client.Dispose();
            refusal = failure.SocketErrorCode;
            return null;
        }
    }
}
