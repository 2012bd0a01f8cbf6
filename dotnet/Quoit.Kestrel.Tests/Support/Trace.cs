using System.Collections.Concurrent;
using System.IO.Pipelines;
using System.Net.Sockets;
using System.Text;
using Microsoft.Extensions.Logging;

namespace Quoit.Kestrel.Tests.Support;

/// <summary>What somebody saw, step by step, in a lane for each who sees in an order of its own: the application, its
/// callbacks, the client. Between lanes there is no order.</summary>
public sealed class Trace
{
    /// <summary>What a text of the test's own has in it, that is part of what was seen; others are the transport's.</summary>
    public const string OnPurpose = "on purpose";

    private const string SocketsCategory = "Microsoft.AspNetCore.Server.Kestrel.Transport.Sockets";

    private readonly ConcurrentDictionary<string, ConcurrentQueue<string>> _lanes = new(StringComparer.Ordinal);

    public void Add(string lane, string seen) => _lanes.GetOrAdd(lane, static _ => new()).Enqueue(seen);

    /// <summary>What was logged as worse than information: by its name if it is Kestrel's, whose names of events do not depend
    /// on the transport.</summary>
    public void AddLoud(MemoryLog log)
    {
        foreach (var line in log.Lines.Where(line => line.Level > LogLevel.Information))
        {
            Add("log", line.Category is "Quoit.Kestrel" or SocketsCategory ? $"{line.Level} of the transport" : line.Id.Name ?? line.Category);
        }
    }

    public override string ToString() => string.Join(
        '\n',
        _lanes.OrderBy(lane => lane.Key, StringComparer.Ordinal).Select(lane => $"{lane.Key}: {string.Join("; ", lane.Value)}"));

    /// <summary>An exception by its type, and those inside it.</summary>
    public static string Describe(Exception failure)
    {
        var text = failure is SocketException socket ? $"SocketException {socket.SocketErrorCode}" : failure.GetType().Name;
        if (failure.Message.Contains(OnPurpose, StringComparison.Ordinal))
        {
            text += $" \"{failure.Message}\"";
        }
        return failure.InnerException is { } inner ? $"{text} ({Describe(inner)})" : text;
    }

    /// <summary>Does something, and returns what came of it.</summary>
    public static async Task<string> OutcomeAsync(Func<Task> act)
    {
        try
        {
            await act();
            return "done";
        }
        catch (Exception failure)
        {
            return Describe(failure);
        }
    }

    /// <summary>Sees what there is to be seen on sockets, and holds each of ours against that. Where it depends on what is found
    /// first, on sockets too, it is tried again and counts as the same if either does once what the other did.</summary>
    /// <param name="see">Runs the scenario.</param>
    /// <param name="differs">What is different on ours, as docs/kestrel.md says: from what is seen on sockets; null for
    /// nothing.</param>
    /// <param name="tries">1 where it depends on nothing.</param>
    internal static async Task CompareAsync(Func<Transport, Task<string>> see, Func<string, string>? differs = null, int tries = 1)
    {
        var sockets = Transports.Each.First(static transport => !transport.IsQuoit);
        var wanted = new List<string>();
        async Task AskSocketsAsync()
        {
            var stock = await see(sockets);
            wanted.Add(differs is null ? stock : differs(stock));
        }
        await AskSocketsAsync();
        foreach (var transport in Transports.Each.Where(static transport => transport.IsQuoit))
        {
            var seen = new List<string> { await see(transport) };
            while (!seen.Exists(wanted.Contains) && seen.Count < tries)
            {
                await AskSocketsAsync();
                seen.Add(await see(transport));
            }
            Assert.True(
                seen.Exists(wanted.Contains),
                $"over {transport}:\n{string.Join("\nor\n", seen.Distinct())}\nas over sockets:\n{string.Join("\nor\n", wanted.Distinct())}");
        }
    }

    /// <summary>One read, all of which is consumed.</summary>
    public static async Task<string> ReadAsync(PipeReader input, CancellationToken cancellation = default)
    {
        try
        {
            var result = await input.ReadAsync(cancellation);
            var text = Encoding.Latin1.GetString(System.Buffers.BuffersExtensions.ToArray(result.Buffer));
            input.AdvanceTo(result.Buffer.End);
            return $"read \"{text}\"{(result.IsCompleted ? " end" : "")}{(result.IsCanceled ? " cancelled" : "")}";
        }
        catch (Exception failure)
        {
            return $"read {Describe(failure)}";
        }
    }

    /// <summary>Reads to the end, however it is: how many bytes there were, and what ended them.</summary>
    public static async Task<string> ReadToEndAsync(PipeReader input)
    {
        long length = 0;
        try
        {
            while (true)
            {
                var result = await input.ReadAsync();
                length += result.Buffer.Length;
                input.AdvanceTo(result.Buffer.End);
                if (result.IsCompleted)
                {
                    return $"read {length} bytes and the end";
                }
            }
        }
        catch (Exception failure)
        {
            return $"read {length} bytes and {Describe(failure)}";
        }
    }

    /// <summary>One write.</summary>
    public static async Task<string> WriteAsync(PipeWriter output, ReadOnlyMemory<byte> bytes, CancellationToken cancellation = default)
    {
        try
        {
            var result = await output.WriteAsync(bytes, cancellation);
            return $"written{(result.IsCompleted ? ", and nobody reads" : "")}{(result.IsCanceled ? ", cancelled" : "")}";
        }
        catch (Exception failure)
        {
            return $"write {Describe(failure)}";
        }
    }

    /// <summary>Writes until it fails, or nobody reads any more.</summary>
    public static async Task<string> WriteUntilGoneAsync(PipeWriter output)
    {
        while (true)
        {
            var outcome = await WriteAsync(output, new byte[50_000]);
            if (outcome != "written")
            {
                return outcome;
            }
            await Task.Yield();
        }
    }

    /// <summary>What comes to a client until its peer's end, and how that is. Much of it is told by its length.</summary>
    public static async Task<string> ReceiveAsync(Client client)
    {
        var all = new MemoryStream();
        var buffer = new byte[64 * 1024];
        string end;
        try
        {
            while (true)
            {
                var received = await client.Socket.ReceiveAsync(buffer, Wait.Token);
                if (received == 0)
                {
                    end = "end";
                    break;
                }
                all.Write(buffer, 0, received);
            }
        }
        catch (SocketException failure)
        {
            end = $"{failure.SocketErrorCode}";
        }
        return all.Length > 1000 ? $"{all.Length} bytes, {end}" : $"\"{Encoding.Latin1.GetString(all.ToArray())}\", {end}";
    }
}
