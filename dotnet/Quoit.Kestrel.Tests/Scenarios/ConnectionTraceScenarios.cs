using System.Net;
using System.Text;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Connections.Features;
using Microsoft.AspNetCore.Http.Features;
using Microsoft.Extensions.Logging;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>What a handler of bare connections and its client see, on sockets first, and then on each of ours: the
/// same.</summary>
public class ConnectionTraceScenarios
{
    /// <summary>For what depends on which of two threads is first: the log of a callback's failure and the end of the exchange, a write
    /// and the abort ahead of it.</summary>
    private const int Tries = 20;

    /// <summary>One connection: what its handler does, and its client.</summary>
    private sealed record Exchange(string Name, Func<ConnectionContext, Stage, Task> Serve, Func<Client, Stage, Task> Ask)
    {
        /// <summary>What is different on ours, as docs/kestrel.md says; and no other part of the trace.</summary>
        public Func<string, string>? Differs { get; init; }

        public override string ToString() => Name;
    }

    /// <summary>What both sides of an exchange share.</summary>
    private sealed class Stage
    {
        private readonly Dictionary<string, TaskCompletionSource> _points = [];

        public Trace Trace { get; } = new();

        public EndPoint? ClientsAddress { get; set; }

        public TaskCompletionSource Closed { get; } = new(TaskCreationOptions.RunContinuationsAsynchronously);

        /// <summary>Says that a point has been reached, or waits for it.</summary>
        public TaskCompletionSource At(string point)
        {
            lock (_points)
            {
                if (!_points.TryGetValue(point, out var source))
                {
                    source = new(TaskCreationOptions.RunContinuationsAsynchronously);
                    _points.Add(point, source);
                }
                return source;
            }
        }

        public void Reach(string point) => At(point).TrySetResult();

        public Task Until(string point) => At(point).Task.Soon();

        public void App(string seen) => Trace.Add("application", seen);

        public async Task ReceiveAsync(Client client) => Trace.Add("client", await Trace.ReceiveAsync(client));
    }

    private static readonly byte[] s_bye = "bye"u8.ToArray();

    private static readonly Type[] s_features =
    [
        typeof(IConnectionIdFeature), typeof(IConnectionTransportFeature), typeof(IConnectionItemsFeature),
        typeof(IMemoryPoolFeature), typeof(IConnectionLifetimeFeature), typeof(IConnectionEndPointFeature),
        typeof(IConnectionSocketFeature), typeof(IConnectionInherentKeepAliveFeature), typeof(IConnectionCompleteFeature),
        typeof(IConnectionHeartbeatFeature), typeof(IConnectionLifetimeNotificationFeature),
        typeof(IConnectionMetricsTagsFeature), typeof(ITlsConnectionFeature), typeof(IStreamDirectionFeature),
    ];

    private static readonly Exchange[] s_exchanges =
    [
        new(
            "the client ends first",
            async (connection, stage) =>
            {
                stage.App(await Trace.ReadToEndAsync(connection.Transport.Input));
                await stage.Closed.Task.Soon();
                stage.App(await Trace.WriteAsync(connection.Transport.Output, s_bye));
            },
            async (client, stage) =>
            {
                await client.SendAsync("hello");
                client.EndSending();
                await stage.ReceiveAsync(client);
            }),
        new(
            "the server ends first",
            async (connection, stage) =>
            {
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
                stage.App(await Trace.WriteAsync(connection.Transport.Output, s_bye));
            },
            async (client, stage) =>
            {
                await client.SendAsync("hello");
                await stage.ReceiveAsync(client);
                client.EndSending();
            }),
        new(
            "the server's output ends and it reads on",
            async (connection, stage) =>
            {
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
                stage.App(await Trace.WriteAsync(connection.Transport.Output, s_bye));
                await connection.Transport.Output.CompleteAsync();
                await stage.Closed.Task.Soon();
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
            },
            async (client, stage) =>
            {
                await client.SendAsync("hello");
                await stage.ReceiveAsync(client);
                client.EndSending();
            }),
        new(
            "both end at once",
            async (connection, stage) =>
            {
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
                stage.Reach("end");
            },
            async (client, stage) =>
            {
                await client.SendAsync("hello");
                await stage.Until("end");
                client.EndSending();
                await stage.ReceiveAsync(client);
            }),
        new(
            "the handler returns with bytes unread",
            async (connection, stage) =>
            {
                var result = await connection.Transport.Input.ReadAtLeastAsync(1000);
                stage.App($"{result.Buffer.Length} bytes");
                connection.Transport.Input.AdvanceTo(result.Buffer.Start);
                stage.App(await Trace.WriteAsync(connection.Transport.Output, s_bye));
            },
            async (client, stage) =>
            {
                await client.SendAsync(new byte[1000]);
                await stage.ReceiveAsync(client);
            }),
        new(
            "the client resets while a read waits",
            async (connection, stage) =>
            {
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
                stage.Reach("read");
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
                await stage.Closed.Task.Soon();
                stage.App(await Trace.WriteAsync(connection.Transport.Output, s_bye));
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
            },
            async (client, stage) =>
            {
                await client.SendAsync("hello");
                await stage.Until("read");
                client.Reset();
            })
        {
            // On sockets the first write behind a reset seems to be taken.
            Differs = static stock => stock.Replace("; written;", "; written, and nobody reads;", StringComparison.Ordinal),
        },
        new(
            "the client resets behind bytes that nobody has read",
            async (connection, stage) =>
            {
                await stage.Closed.Task.Soon();
                stage.App(await Trace.ReadToEndAsync(connection.Transport.Input));
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
            },
            async (client, stage) =>
            {
                await client.SendAsync(new byte[40_000]);
                client.Reset();
            }),
        new(
            "the client resets while a write waits",
            async (connection, stage) =>
            {
                stage.Reach("writing");
                stage.App(await Trace.WriteUntilGoneAsync(connection.Transport.Output));
                await stage.Closed.Task.Soon();
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
            },
            async (client, stage) =>
            {
                await stage.Until("writing");
                await client.ReceiveAsync(200_000);
                client.Reset();
            }),
        new(
            "the client resets behind its own end",
            async (connection, stage) =>
            {
                stage.App(await Trace.ReadToEndAsync(connection.Transport.Input));
                stage.App(await Trace.WriteAsync(connection.Transport.Output, s_bye));
                stage.Reach("written");
                await stage.Until("reset");
                stage.App(await Trace.WriteUntilGoneAsync(connection.Transport.Output));
            },
            async (client, stage) =>
            {
                client.EndSending();
                await stage.Until("written");
                await client.ReceiveAsync(3);
                client.Reset();
                stage.Reach("reset");
            }),
        new(
            "the client resets behind the server's end",
            async (connection, stage) =>
            {
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
                stage.App(await Trace.WriteAsync(connection.Transport.Output, s_bye));
                await connection.Transport.Output.CompleteAsync();
                await stage.Until("reset");
                await stage.Closed.Task.Soon();
                stage.App(await Trace.WriteAsync(connection.Transport.Output, s_bye));
            },
            async (client, stage) =>
            {
                await client.SendAsync("hello");
                await stage.ReceiveAsync(client);
                client.Reset();
                stage.Reach("reset");
            }),
        new(
            "an abort, and all that comes behind it",
            async (connection, stage) =>
            {
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
                connection.Abort(new ConnectionAbortedException(Trace.OnPurpose));
                connection.Abort(new ConnectionAbortedException($"{Trace.OnPurpose}, again"));
                await stage.Closed.Task.Soon();
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
                stage.App(await Trace.WriteAsync(connection.Transport.Output, s_bye));
                await connection.Transport.Output.CompleteAsync();
                stage.App(await Trace.WriteAsync(connection.Transport.Output, s_bye));
                await connection.Transport.Input.CompleteAsync();
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
            },
            async (client, stage) =>
            {
                await client.SendAsync("hello");
                await stage.ReceiveAsync(client);
            }),
        new(
            "an abort behind the client's end",
            async (connection, stage) =>
            {
                stage.App(await Trace.ReadToEndAsync(connection.Transport.Input));
                connection.Abort(new ConnectionAbortedException(Trace.OnPurpose));
                stage.App(await Trace.WriteUntilGoneAsync(connection.Transport.Output));
            },
            async (client, stage) =>
            {
                await client.SendAsync("hello");
                client.EndSending();
                await stage.ReceiveAsync(client);
            }),
        new(
            "an abort behind the server's end",
            async (connection, stage) =>
            {
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
                await connection.Transport.Output.WriteAsync(s_bye);
                await connection.Transport.Output.CompleteAsync();
                await stage.Closed.Task.Soon();
                connection.Abort(new ConnectionAbortedException(Trace.OnPurpose));
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
            },
            async (client, stage) =>
            {
                await client.SendAsync("hello");
                await stage.ReceiveAsync(client);
            }),
        new(
            "an abort while a write waits",
            async (connection, stage) =>
            {
                var writing = Trace.WriteUntilGoneAsync(connection.Transport.Output);
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
                connection.Abort(new ConnectionAbortedException(Trace.OnPurpose));
                stage.App(await writing);
            },
            async (client, stage) =>
            {
                await client.ReceiveAsync(10);
                await client.SendAsync("hello");
                await client.ExpectResetAsync();
                stage.Trace.Add("client", "reset");
            }),
        new(
            "the output is completed with a failure",
            async (connection, stage) =>
            {
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
                stage.App(await Trace.WriteAsync(connection.Transport.Output, s_bye));
                stage.Reach("written");
                await stage.Until("received");
                await connection.Transport.Output.CompleteAsync(new InvalidOperationException(Trace.OnPurpose));
                await stage.Closed.Task.Soon();
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
            },
            async (client, stage) =>
            {
                await client.SendAsync("hello");
                await stage.Until("written");
                stage.Trace.Add("client", Encoding.Latin1.GetString(await client.ReceiveAsync(3)));
                stage.Reach("received");
                await stage.ReceiveAsync(client);
            }),
        new(
            "the input is completed and the client sends on",
            async (connection, stage) =>
            {
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
                await connection.Transport.Input.CompleteAsync();
                stage.Reach("completed");
                await stage.Until("sent");
                stage.App(await Trace.WriteAsync(connection.Transport.Output, s_bye));
            },
            async (client, stage) =>
            {
                await client.SendAsync("hello");
                await stage.Until("completed");
                await client.SendAsync("more");
                stage.Reach("sent");
                await stage.ReceiveAsync(client);
            }),
        new(
            "reads and flushes that are cancelled",
            async (connection, stage) =>
            {
                var (input, output) = (connection.Transport.Input, connection.Transport.Output);
                using var cancel = new CancellationTokenSource();
                var reading = Trace.ReadAsync(input, cancel.Token);
                await cancel.CancelAsync();
                stage.App(await reading);
                stage.App(await Trace.ReadAsync(input, cancel.Token));
                reading = Trace.ReadAsync(input);
                input.CancelPendingRead();
                stage.App(await reading);
                // More than the pipe and the kernel hold: it waits for the client.
                var writing = Trace.WriteAsync(output, new byte[30_000_000]);
                output.CancelPendingFlush();
                stage.App(await writing);
                stage.Reach("cancelled");
                stage.App(await Trace.ReadAsync(input));
            },
            async (client, stage) =>
            {
                await stage.Until("cancelled");
                var receiving = Trace.ReceiveAsync(client);
                await client.SendAsync("hello");
                stage.Trace.Add("client", (await receiving).Split(' ')[^1]);
            }),
        new(
            "a handler that throws",
            async (connection, stage) =>
            {
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
                throw new InvalidOperationException(Trace.OnPurpose);
            },
            async (client, stage) =>
            {
                await client.SendAsync("hello");
                await stage.ReceiveAsync(client);
            }),
        new(
            "a callback of ConnectionClosed that throws",
            async (connection, stage) =>
            {
                connection.ConnectionClosed.Register(() => stage.Trace.Add("first callback", "called"));
                connection.ConnectionClosed.Register(static () => throw new InvalidOperationException(Trace.OnPurpose));
                connection.ConnectionClosed.Register(() => stage.Trace.Add("last callback", "called"));
                stage.Reach("registered");
                stage.App(await Trace.ReadToEndAsync(connection.Transport.Input));
                await stage.Closed.Task.Soon();
                stage.App(await Trace.WriteAsync(connection.Transport.Output, s_bye));
            },
            async (client, stage) =>
            {
                await stage.Until("registered");
                client.EndSending();
                await stage.ReceiveAsync(client);
            }),
        new(
            "ConnectionClosed by its handler's own end",
            async (connection, stage) =>
            {
                connection.ConnectionClosed.Register(() => stage.Trace.Add("callback", "called"));
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
                stage.App($"closed {connection.ConnectionClosed.IsCancellationRequested}");
                connection.Abort(new ConnectionAbortedException(Trace.OnPurpose));
                await stage.Closed.Task.Soon();
                stage.App($"closed {connection.ConnectionClosed.IsCancellationRequested}");
            },
            async (client, stage) =>
            {
                await client.SendAsync("hello");
                await stage.ReceiveAsync(client);
            }),
        new(
            "a connection that is disposed, and used on",
            async (connection, stage) =>
            {
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
                stage.App(await Trace.OutcomeAsync(() => connection.DisposeAsync().AsTask()));
                stage.App(await Trace.OutcomeAsync(() => connection.DisposeAsync().AsTask()));
                stage.App(await Trace.ReadAsync(connection.Transport.Input));
                stage.App(await Trace.WriteAsync(connection.Transport.Output, s_bye));
                stage.App(await Trace.OutcomeAsync(() =>
                {
                    connection.Abort(new ConnectionAbortedException(Trace.OnPurpose));
                    return Task.CompletedTask;
                }));
                stage.App($"closed {connection.ConnectionClosed.IsCancellationRequested}");
                stage.App(Addresses(connection, stage));
            },
            async (client, stage) =>
            {
                await client.SendAsync("hello");
                await stage.ReceiveAsync(client);
            }),
        new(
            "a connection that is disposed while a write waits",
            async (connection, stage) =>
            {
                // More than the kernel holds.
                var writing = Trace.WriteAsync(connection.Transport.Output, new byte[30_000_000]);
                var disposing = Trace.OutcomeAsync(() => connection.DisposeAsync().AsTask());
                stage.App($"disposed {disposing.IsCompleted}");
                stage.Reach("disposing");
                stage.App(await disposing);
                stage.App(await writing);
            },
            async (client, stage) =>
            {
                await stage.Until("disposing");
                await stage.ReceiveAsync(client);
            }),
        new(
            "addresses and features, before and behind the end",
            async (connection, stage) =>
            {
                stage.App(await Trace.ReadToEndAsync(connection.Transport.Input));
                stage.App(Addresses(connection, stage));
                stage.App(string.Join(' ', s_features.Select(feature => $"{feature.Name}={connection.Features[feature] is not null}")));
                var socket = connection.Features.Get<IConnectionSocketFeature>()!.Socket;
                stage.App($"{socket.AddressFamily} {socket.SocketType} {socket.ProtocolType} no delay {socket.NoDelay}");
                connection.Abort(new ConnectionAbortedException(Trace.OnPurpose));
                await stage.Closed.Task.Soon();
                stage.App(Addresses(connection, stage));
            },
            async (client, stage) =>
            {
                await client.SendAsync("hello");
                client.EndSending();
                await stage.ReceiveAsync(client);
            })
        {
            Differs = static stock => stock.Replace("IConnectionEndPointFeature=False", "IConnectionEndPointFeature=True", StringComparison.Ordinal),
        },
        new(
            "a slow writer to a slow reader with small buffers",
            async (connection, stage) =>
            {
                long length = 0;
                while (true)
                {
                    var result = await connection.Transport.Input.ReadAsync();
                    foreach (var segment in result.Buffer)
                    {
                        Pattern.Check(segment.Span, length);
                        length += segment.Length;
                        await connection.Transport.Output.WriteAsync(segment);
                    }
                    connection.Transport.Input.AdvanceTo(result.Buffer.End);
                    if (result.IsCompleted)
                    {
                        stage.App($"{length} bytes");
                        return;
                    }
                }
            },
            async (client, stage) =>
            {
                const int Size = 400_000;
                client.Socket.ReceiveBufferSize = client.Socket.SendBufferSize = 4096;
                var sending = Task.Run(async () =>
                {
                    for (var at = 0; at < Size; at += 1000)
                    {
                        await client.SendAsync(Pattern.Bytes(1000, at));
                    }
                    client.EndSending();
                });
                var back = 0;
                while (back < Size)
                {
                    var some = await client.ReceiveAsync(Math.Min(777, Size - back));
                    Pattern.Check(some, back);
                    back += some.Length;
                }
                await sending.Soon();
                await stage.ReceiveAsync(client);
            }),
    ];

    public static TheoryData<string> Names => [.. s_exchanges.Select(exchange => exchange.Name)];

    private static string Addresses(ConnectionContext connection, Stage stage) =>
        $"client known {Equals(connection.RemoteEndPoint, stage.ClientsAddress)}, "
        + $"local {(connection.LocalEndPoint as IPEndPoint)?.Address}, id {connection.ConnectionId.Length > 0}";

    [Theory]
    [MemberData(nameof(Names))]
    public Task Both_sides_see_what_they_see_over_sockets(string name)
    {
        var exchange = s_exchanges.Single(one => one.Name == name);
        return Trace.CompareAsync(transport => SeenAsync(exchange, transport), exchange.Differs, Tries);
    }

    private static async Task<string> SeenAsync(Exchange exchange, Transport transport)
    {
        var stage = new Stage();
        await using (var server = await TestServer.RawAsync(transport, async connection =>
        {
            using var registration = connection.ConnectionClosed.Register(() => stage.Closed.TrySetResult());
            try
            {
                await exchange.Serve(connection, stage);
            }
            finally
            {
                stage.Reach("served");
            }
        }))
        {
            using var client = await Client.ConnectAsync(server.EndPoint);
            stage.ClientsAddress = client.Socket.LocalEndPoint;
            await exchange.Ask(client, stage);
            await stage.Until("served");
            client.Dispose();
            await Wait.Until(
                () => server.Log.Lines.Any(line => line.Id.Name == "ConnectionStop"), () => "the connection has not stopped");
            stage.Trace.AddLoud(server.Log);
        }
        return stage.Trace.ToString();
    }
}
