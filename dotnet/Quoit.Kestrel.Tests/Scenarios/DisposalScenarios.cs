using System.Net;
using System.Net.Sockets;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Server.Kestrel.Transport.Sockets;
using Microsoft.Extensions.Logging.Abstractions;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>Disposals that come twice, or before anything has ended.</summary>
public class DisposalScenarios
{
    public static TheoryData<Transport> Quoit => Transports.Quoit;

    public static TheoryData<Transport> All => Transports.All;

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task Whoever_else_disposes_waits_as_well(Transport transport)
    {
        using var held = new ManualResetEventSlim();
        var factory = FactoryScenarios.Create(transport);
        Assert.True(factory.CanBind(new IPEndPoint(IPAddress.Loopback, 0)));
        factory.Group!.Loops[0].TryPost(_ => held.Wait(Wait.Limit), null);
        var first = factory.DisposeAsync().AsTask();
        var second = factory.DisposeAsync().AsTask();
        Assert.False(second.IsCompleted);
        held.Set();
        await second.Soon();
        Assert.True(first.IsCompleted);
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task Whoever_accepts_where_the_factory_ended_as_it_bound_is_told_the_end(Transport transport)
    {
        using var held = new ManualResetEventSlim();
        var factory = FactoryScenarios.Create(transport);
        Assert.True(factory.CanBind(new IPEndPoint(IPAddress.Loopback, 0)));
        factory.Group!.Loops[0].TryPost(_ => held.Wait(Wait.Limit), null);
        var binding = factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0)).AsTask();
        var ending = factory.DisposeAsync().AsTask();
        held.Set();
        var listener = await binding.Soon();
        Assert.Null(await listener.AcceptAsync().AsTask().Soon());
        await listener.DisposeAsync().AsTask().Soon();
        await ending.Soon();
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_listener_that_is_disposed_waits_for_no_connection_to_end_by_itself(Transport transport)
    {
        await using var factory = FactoryScenarios.Create(transport, configure: static options => options.KeepIdle = TimeSpan.FromHours(1));
        var listener = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
        using var client = await Client.ConnectAsync(listener.EndPoint);
        await using var connection = (await listener.AcceptAsync().Soon())!;
        await listener.DisposeAsync().AsTask().Soon();
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Whoever_else_disposes_a_connection_waits_as_well(Transport transport)
    {
        const int Size = 30_000_000;
        using var listening = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        listening.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        listening.Listen();
        await using var factory = transport.IsQuoit
            ? FactoryScenarios.Create(transport, configure: static options => options.MaxWriteBufferSize = null)
            : null;
        using var sockets = new SocketConnectionContextFactory(
            new SocketConnectionFactoryOptions { MaxWriteBufferSize = null }, NullLogger.Instance);
        ConnectionContext connection;
        if (factory is null)
        {
            var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
            await socket.ConnectAsync(listening.LocalEndPoint!);
            connection = sockets.Create(socket);
        }
        else
        {
            connection = await factory.ConnectAsync(listening.LocalEndPoint!);
        }
        using var peer = await listening.AcceptAsync(Wait.Token);
        await connection.Transport.Output.WriteAsync(new byte[Size], Wait.Token);
        var first = connection.DisposeAsync().AsTask();
        var second = connection.DisposeAsync().AsTask();
        Assert.False(first.IsCompleted);
        Assert.False(second.IsCompleted);
        var buffer = new byte[1 << 20];
        var received = 0;
        while (received < Size)
        {
            received += await peer.ReceiveAsync(buffer, Wait.Token);
        }
        await Task.WhenAll(first, second).Soon();
    }
}
