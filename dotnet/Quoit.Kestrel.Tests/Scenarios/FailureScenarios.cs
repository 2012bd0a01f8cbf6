using System.Net;
using System.Net.Sockets;
using Microsoft.AspNetCore.Connections;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;
using Quoit.Kestrel.Observability;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>What the transport is given by the application, and fails: its pool of blocks, its log. That has an end for the
/// connection that it was called for, and for no other.</summary>
public class FailureScenarios
{
    public static TheoryData<Transport> All => Transports.All;

    public static TheoryData<Transport> Quoit => Transports.Quoit;

    [Theory]
    [MemberData(nameof(All))]
    public async Task Without_a_block_for_what_was_received_that_connection_ends_and_no_other(Transport transport)
    {
        var started = new SemaphoreSlim(0);
        var failed = new TaskCompletionSource<Exception>(TaskCreationOptions.RunContinuationsAsynchronously);
        var closed = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.RawAsync(transport, async connection =>
        {
            started.Release();
            try
            {
                await connection.Transport.Input.CopyToAsync(connection.Transport.Output);
            }
            catch (InsufficientMemoryException failure)
            {
                using var registration = connection.ConnectionClosed.Register(closed.SetResult);
                failed.SetResult(failure);
                await closed.Task;
            }
        });
        using var first = await Client.ConnectAsync(server.EndPoint);
        await IsServedAsync(first);
        using (var second = await Client.ConnectAsync(server.EndPoint))
        {
            await started.WaitAsync(Wait.Token);
            await started.WaitAsync(Wait.Token);
            server.Pools.IsExhausted = true;
            await second.SendAsync(Pattern.Bytes(10_000));
            Assert.Equal("no block is left", (await failed.Task.Soon()).Message);
            await closed.Task.Soon();
            server.Pools.IsExhausted = false;
            await EndsAsync(second);
        }
        await IsServedAsync(first);
        using var third = await Client.ConnectAsync(server.EndPoint);
        await IsServedAsync(third);
        first.Dispose();
        third.Dispose();
        await Wait.Until(() => server.Pools.Rented == 0, () => $"{server.Pools.Rented} blocks are left");
        if (transport.IsQuoit)
        {
            await LoopState.NothingLeftAsync(server.Loops!);
        }
    }

    /// <summary>Ours alone: what fails here as a connection is made is not there on sockets.</summary>
    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_connection_that_cannot_be_made_is_reset_and_the_next_is_served(Transport transport)
    {
        await using var server = await TestServer.StartAsync(
            transport,
            static kestrel => kestrel.Listen(IPAddress.Loopback, 0, static listening => listening.Run(
                static connection => connection.Transport.Input.CopyToAsync(connection.Transport.Output))),
            null,
            services: static services => services.AddSingleton<ILoggerProvider>(new LogThatFails("ConnectionAccepted")));
        // It may come before the client knows that it is connected.
        var reset = await Assert.ThrowsAsync<SocketException>(async () =>
        {
            using var first = await Client.ConnectAsync(server.EndPoint);
            await first.ReceiveToEndAsync();
        });
        Assert.Equal(SocketError.ConnectionReset, reset.SocketErrorCode);
        var line = Assert.Single(server.Log.Lines, static line => line.Id.Name == "ConnectionNotMade");
        Assert.Equal(LogLevel.Error, line.Level);
        Assert.Contains("no room in the log", line.Text, StringComparison.Ordinal);
        using (var second = await Client.ConnectAsync(server.EndPoint))
        {
            await IsServedAsync(second);
        }
        await LoopState.NothingLeftAsync(server.Loops!);
    }

    /// <summary>Has no room for the first of such lines of the transport.</summary>
    private sealed class LogThatFails(string name) : ILoggerProvider, ILogger
    {
        private int _failed;
        private bool _isTransports;

        public ILogger CreateLogger(string categoryName) =>
            new LogThatFails(name) { _isTransports = categoryName == QuoitLog.Category };

        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => null;

        public bool IsEnabled(LogLevel logLevel) => true;

        public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter)
        {
            if (_isTransports && eventId.Name == name && Interlocked.Exchange(ref _failed, 1) == 0)
            {
                throw new IOException("no room in the log");
            }
        }

        public void Dispose()
        {
        }
    }

    private static async Task IsServedAsync(Client client)
    {
        var bytes = Pattern.Bytes(100);
        await client.SendAsync(bytes);
        Assert.Equal(bytes, await client.ReceiveAsync(bytes.Length));
    }

    /// <summary>In order, or by a reset where the kernel has bytes that nobody read.</summary>
    private static async Task EndsAsync(Client client)
    {
        try
        {
            Assert.Empty(await client.ReceiveToEndAsync());
        }
        catch (SocketException failure)
        {
            Assert.Equal(SocketError.ConnectionReset, failure.SocketErrorCode);
        }
    }
}
