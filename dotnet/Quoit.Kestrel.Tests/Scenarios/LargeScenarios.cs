using System.Net;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>Bodies that are larger than what a process should hold of them. Nothing else may run in it meanwhile.</summary>
[Collection(Alone.Name)]
public class LargeScenarios
{
    public static TheoryData<Transport> OnThreadPool =>
        [.. Transports.Each.Where(transport => !transport.Inline && !transport.Tiny)];

    [Theory]
    [MemberData(nameof(OnThreadPool))]
    public async Task A_gibibyte_both_ways_in_bounded_memory(Transport transport)
    {
        const long Size = 1 << 30;
        var before = Environment.WorkingSet;
        await using var server = await TestServer.HttpAsync(transport, HttpScenarios.Map);
        using var client = new HttpClient { Timeout = Wait.Limit };
        await using (var body = await client.GetStreamAsync($"{server.Address}/bytes/{Size}"))
        {
            Assert.Equal(Size, await HttpScenarios.CheckBodyAsync(body));
        }
        using var content = new PatternContent(Size);
        using var counted = await client.PostAsync(new Uri($"{server.Address}/count"), content);
        Assert.Equal($"{Size}", await counted.Content.ReadAsStringAsync());
        // The pipes' limits, 1 MiB and 64 KiB, what one turn may bring past the first, and what Kestrel holds itself.
        Assert.InRange(server.Pools.MostRented, 1, (4 << 20) / 4096);
        Assert.InRange(Environment.WorkingSet - before, long.MinValue, Size / 2);
    }

    private sealed class PatternContent(long size) : HttpContent
    {
        protected override Task SerializeToStreamAsync(Stream stream, TransportContext? context) => HttpScenarios.WriteBodyAsync(stream, size);

        protected override bool TryComputeLength(out long length)
        {
            length = size;
            return true;
        }
    }
}
