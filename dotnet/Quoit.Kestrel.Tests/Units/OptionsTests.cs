using System.Globalization;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Options;
using Quoit.Kestrel.Loops;
using Quoit.Kestrel.Native;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Units;

/// <summary>Options: their defaults, ranges and where they come from.</summary>
public class OptionsTests
{
    private static QuoitTransportOptions Bind(Dictionary<string, string?> values, Action<QuoitTransportOptions>? configure = null)
    {
        var builder = WebApplication.CreateSlimBuilder();
        builder.Configuration.AddInMemoryCollection(values);
        builder.WebHost.UseQuoit(configure);
        using var application = builder.Build() as IDisposable;
        return ((WebApplication)application!).Services.GetRequiredService<IOptions<QuoitTransportOptions>>().Value;
    }

    [Fact]
    public void They_come_from_the_configuration_and_then_from_the_code()
    {
        var options = Bind(
            new()
            {
                ["Kestrel:Quoit:Engine"] = "Epoll",
                ["Kestrel:Quoit:Loops"] = "3",
                ["Kestrel:Quoit:Scheduling"] = "UnsafeInlineOnLoop",
                ["Kestrel:Quoit:NoDelay"] = "false",
                ["Kestrel:Quoit:MaxReadBufferSize"] = "5000",
                ["Kestrel:Quoit:DrainDeadline"] = "00:00:03",
                ["Kestrel:Quoit:Without:0"] = "buffer-ring",
            },
            options => options.Loops = 4);
        Assert.Equal(QuoitEngine.Epoll, options.Engine);
        Assert.Equal(4, options.Loops);
        Assert.Equal(QuoitScheduling.UnsafeInlineOnLoop, options.Scheduling);
        Assert.False(options.NoDelay);
        Assert.Equal(5000, options.MaxReadBufferSize);
        Assert.Equal(TimeSpan.FromSeconds(3), options.DrainDeadline);
        Assert.Equal(["buffer-ring"], options.Without);
    }

    [Fact]
    public void Each_comes_from_the_configuration_and_is_documented()
    {
        var texts = new Dictionary<string, string>(StringComparer.Ordinal)
        {
            { "Engine", "Epoll" }, { "Require", "True" }, { "Scheduling", "UnsafeInlineOnLoop" }, { "Loops", "1023" },
            { "PinLoops", "True" }, { "AcceptMode", "Shared" }, { "Backlog", "511" }, { "NoDelay", "False" },
            { "KeepAlive", "00:01:30" }, { "Connections", "1000" }, { "ReceiveSlots", "1001" }, { "ReceiveSlotSize", "1002" },
            { "LeasesPerConnection", "15" }, { "MaxReadBufferSize", "1003" }, { "MaxWriteBufferSize", "1004" },
            { "SpinBudget", "00:00:00.0010000" }, { "CoalesceTime", "00:00:00.0002000" }, { "DrainDeadline", "00:00:03" },
            { "KeepIdle", "00:00:05" }, { "BlockedLoopLimit", "00:00:04" }, { "Without", "buffer-ring" },
        };
        var properties = typeof(QuoitTransportOptions).GetProperties();
        Assert.Equal(properties.Select(property => property.Name).Order(StringComparer.Ordinal), texts.Keys.Order(StringComparer.Ordinal));
        // Bound without the validation of a host, as two of them exclude each other.
        var options = new QuoitTransportOptions();
        new ConfigurationBuilder()
            .AddInMemoryCollection(texts.Select(text => KeyValuePair.Create(text.Key == "Without" ? "Without:0" : text.Key, (string?)text.Value)))
            .Build()
            .Bind(options);
        var rows = File.ReadLines(Path.Combine(Folder.Repository, "docs", "kestrel.md"))
            .Where(line => line.StartsWith("| `", StringComparison.Ordinal))
            .Select(line => line.Split('|')[1])
            .ToList();
        foreach (var property in properties)
        {
            var value = property.Name == "Without" ? Assert.Single(options.Without) : property.GetValue(options);
            Assert.Equal(texts[property.Name], Convert.ToString(value, CultureInfo.InvariantCulture));
            Assert.Contains(rows, row => row.Contains($"`{property.Name}`", StringComparison.Ordinal));
        }
    }

    [Fact]
    public void Their_defaults_are_as_documented()
    {
        var options = new QuoitTransportOptions();
        Assert.Equal(QuoitEngine.Auto, options.Engine);
        Assert.False(options.Require);
        Assert.Equal(QuoitScheduling.ThreadPool, options.Scheduling);
        Assert.Equal(Math.Min(Environment.ProcessorCount, 16), options.Loops);
        Assert.False(options.PinLoops);
        Assert.Equal(QuoitAcceptMode.HandOver, options.AcceptMode);
        Assert.Equal(512, options.Backlog);
        Assert.True(options.NoDelay);
        Assert.Equal(TimeSpan.Zero, options.KeepAlive);
        Assert.Equal(16_384, options.Connections);
        Assert.Equal(1024, options.ReceiveSlots);
        Assert.Equal(16_384, options.ReceiveSlotSize);
        Assert.Equal(16, options.LeasesPerConnection);
        Assert.Equal(1 << 20, options.MaxReadBufferSize);
        Assert.Equal(64 << 10, options.MaxWriteBufferSize);
        Assert.Equal(TimeSpan.Zero, options.SpinBudget);
        Assert.Equal(TimeSpan.Zero, options.CoalesceTime);
        Assert.Equal(TimeSpan.FromSeconds(10), options.DrainDeadline);
        Assert.Equal(TimeSpan.Zero, options.KeepIdle);
        Assert.Equal(TimeSpan.FromSeconds(1), options.BlockedLoopLimit);
        Assert.Empty(options.Without);
        Assert.Empty(options.Faults());
    }

    public static TheoryData<string, string> OutOfRange => new()
    {
        { "Engine", "7" }, { "Scheduling", "7" }, { "AcceptMode", "7" }, { "Loops", "0" }, { "Loops", "1025" },
        { "Backlog", "0" }, { "KeepAlive", "-00:00:01" }, { "KeepIdle", "-00:00:01" }, { "KeepIdle", "01:00:01" }, { "Connections", "0" }, { "Connections", "1048577" },
        { "ReceiveSlots", "0" }, { "ReceiveSlots", "32769" }, { "ReceiveSlotSize", "63" }, { "LeasesPerConnection", "0" },
        { "MaxReadBufferSize", "-1" }, { "MaxWriteBufferSize", "-1" }, { "SpinBudget", "00:00:02" },
        { "CoalesceTime", "-00:00:00.0001" }, { "CoalesceTime", "00:00:00.0000009" }, { "CoalesceTime", "00:00:00.1000001" },
        { "DrainDeadline", "00:00:00" }, { "BlockedLoopLimit", "00:00:00" },
    };

    /// <summary>What an application says that does not start with this in its configuration.</summary>
    private static async Task<OptionsValidationException> FailToStartAsync(string name, string value)
    {
        var builder = WebApplication.CreateSlimBuilder();
        builder.Configuration.AddInMemoryCollection(new Dictionary<string, string?> { [$"Kestrel:Quoit:{name}"] = value });
        builder.WebHost.UseQuoit();
        return await Assert.ThrowsAsync<OptionsValidationException>(async () =>
        {
            await using var application = builder.Build();
            await application.StartAsync();
        });
    }

    [Theory]
    [MemberData(nameof(OutOfRange))]
    public async Task One_out_of_range_is_named_when_the_application_starts(string name, string value)
    {
        var failure = await FailToStartAsync(name, value);
        Assert.StartsWith($"Kestrel:Quoit:{name} is ", Assert.Single(failure.Failures), StringComparison.Ordinal);
        Assert.Contains("must be", failure.Message, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData("Engine", "Uring", "Engine is Auto or IoUring or Epoll")]
    [InlineData("Scheduling", "Inline", "Scheduling ThreadPool or UnsafeInlineOnLoop")]
    [InlineData("Loops", "many", "other values are numbers")]
    public async Task One_that_is_none_is_named_with_what_there_is_to_choose_from(string name, string value, string choice)
    {
        var failure = await FailToStartAsync(name, value);
        Assert.Contains($"'{value}' at 'Kestrel:Quoit:{name}'", failure.Message, StringComparison.Ordinal);
        Assert.Contains(choice, failure.Message, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData("00:00:00.0000010", 1_000)]
    [InlineData("00:00:00.0002500", 250_000)]
    [InlineData("00:00:00.1000000", 100_000_000)]
    public void A_time_to_coalesce_is_given_to_the_library(string time, long nanoseconds)
    {
        QuoitLibrary.Load();
        var options = new QuoitTransportOptions { CoalesceTime = TimeSpan.Parse(time, CultureInfo.InvariantCulture) };
        Assert.Empty(options.Faults());
        var config = LoopGroup.CreateConfig(options);
        Assert.Equal(((uint)NativeWait.Coalesce, nanoseconds), (config.Wait, config.SpinNs));
    }

    [Theory]
    [InlineData("00:00:00")]
    [InlineData("00:00:00.0010000")]
    public void Without_a_time_to_coalesce_the_library_blocks(string spin)
    {
        QuoitLibrary.Load();
        var options = new QuoitTransportOptions { SpinBudget = TimeSpan.Parse(spin, CultureInfo.InvariantCulture) };
        Assert.Equal((uint)NativeWait.Block, LoopGroup.CreateConfig(options).Wait);
    }

    [Fact]
    public void A_loop_that_is_to_spin_and_to_coalesce_is_refused()
    {
        var options = new QuoitTransportOptions
        {
            SpinBudget = TimeSpan.FromMilliseconds(1),
            CoalesceTime = TimeSpan.FromMicroseconds(200),
        };
        Assert.StartsWith(
            "Kestrel:Quoit:CoalesceTime is 00:00:00.0002000 and Kestrel:Quoit:SpinBudget is 00:00:00.0010000; one of them must be zero",
            Assert.Single(options.Faults()),
            StringComparison.Ordinal);
    }

    [Fact]
    public void One_out_of_range_is_named_without_a_host()
    {
        var failure = Assert.Throws<OptionsValidationException>(
            () => new QuoitTransportFactory(Options.Create(new QuoitTransportOptions { Loops = 0 })));
        Assert.Contains("Loops is 0", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public void A_feature_that_is_none_is_named_with_those_that_there_are()
    {
        var options = new QuoitTransportOptions { Require = true };
        options.Without.Add("warp");
        var failure = Assert.Throws<OptionsValidationException>(() => new QuoitTransportFactory(Options.Create(options)));
        Assert.Contains("\"warp\"", failure.Message, StringComparison.Ordinal);
        Assert.Contains("buffer-ring", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_feature_that_is_none_is_not_left_to_sockets()
    {
        var failure = await FailToStartAsync("Without:0", "warp");
        Assert.Contains("Kestrel:Quoit:Without names \"warp\"", failure.Message, StringComparison.Ordinal);
        Assert.Contains("buffer-ring", failure.Message, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData("null", null)]
    [InlineData("0", 0L)]
    public void A_limit_may_be_lifted_in_a_file(string text, long? value)
    {
        var builder = WebApplication.CreateSlimBuilder();
        builder.Configuration.AddJsonStream(new MemoryStream(System.Text.Encoding.UTF8.GetBytes(
            $$$"""{ "Kestrel": { "Quoit": { "MaxReadBufferSize": {{{text}}}, "MaxWriteBufferSize": {{{text}}} } } }""")));
        builder.WebHost.UseQuoit();
        var options = builder.Build().Services.GetRequiredService<IOptions<QuoitTransportOptions>>().Value;
        Assert.Equal((value, value), (options.MaxReadBufferSize, options.MaxWriteBufferSize));
    }

    [Fact]
    public async Task A_factory_that_the_application_has_added_before_is_what_Kestrel_runs_on()
    {
        var builder = WebApplication.CreateSlimBuilder();
        var options = new QuoitTransportOptions { Loops = 1 };
        await using var own = new QuoitTransportFactory(Options.Create(options));
        builder.Services.AddSingleton(own);
        builder.WebHost.UseQuoit();
        builder.WebHost.ConfigureKestrel(kestrel => kestrel.Listen(System.Net.IPAddress.Loopback, 0));
        await using var application = builder.Build();
        await application.StartAsync();
        Assert.NotNull(own.Group);
        await application.StopAsync();
    }

    /// <summary>As any instance that the application has made: its container disposes what it has made itself.</summary>
    [Fact]
    public async Task A_factory_of_the_application_goes_on_when_a_host_has_ended()
    {
        await using var own = new QuoitTransportFactory(Options.Create(new QuoitTransportOptions { Loops = 1 }));
        for (var host = 0; host < 2; host++)
        {
            var builder = WebApplication.CreateSlimBuilder();
            builder.Services.AddSingleton(own);
            builder.WebHost.UseQuoit();
            builder.WebHost.ConfigureKestrel(kestrel => kestrel.Listen(System.Net.IPAddress.Loopback, 0));
            await using var application = builder.Build();
            Assert.NotNull(application.Services.GetRequiredService<Microsoft.AspNetCore.Connections.IConnectionFactory>());
            await application.StartAsync();
            await application.StopAsync();
        }
        await using var listener = await own.BindAsync(new System.Net.IPEndPoint(System.Net.IPAddress.Loopback, 0));
        await using var connection = await own.ConnectAsync(listener.EndPoint);
        await using var accepted = await listener.AcceptAsync();
        Assert.NotNull(accepted);
    }

    [Fact]
    public async Task A_host_ends_a_factory_that_it_has_made()
    {
        QuoitTransportFactory made;
        var builder = WebApplication.CreateSlimBuilder();
        builder.WebHost.UseQuoit();
        builder.WebHost.ConfigureKestrel(kestrel => kestrel.Listen(System.Net.IPAddress.Loopback, 0));
        await using (var application = builder.Build())
        {
            made = application.Services.GetRequiredService<QuoitTransportFactory>();
            await application.StartAsync();
            await application.StopAsync();
        }
        Assert.Throws<ObjectDisposedException>(() => made.CanBind(new System.Net.IPEndPoint(System.Net.IPAddress.Loopback, 0)));
    }

    [Theory]
    [InlineData("Engin", "Epoll")]
    [InlineData("Making:0", "1")]
    public async Task An_option_that_is_none_is_named_with_those_that_there_are(string name, string value)
    {
        var failure = await FailToStartAsync(name, value);
        Assert.StartsWith($"Kestrel:Quoit:{name.Split(':')[0]} is no option; there are AcceptMode, ", failure.Message, StringComparison.Ordinal);
    }

    /// <summary>As environment variables have them, which know no lists.</summary>
    [Fact]
    public async Task Features_may_be_one_text()
    {
        var failure = await FailToStartAsync("Without", "buffer-ring, warp");
        Assert.Contains("Kestrel:Quoit:Without names \"warp\"", failure.Message, StringComparison.Ordinal);
        var builder = WebApplication.CreateSlimBuilder();
        builder.Configuration.AddInMemoryCollection(
            new Dictionary<string, string?> { ["kestrel:quoit:without"] = "buffer-ring,multishot-accept", ["Kestrel:Quoit:ENGINE"] = "Epoll" });
        builder.WebHost.UseQuoit();
        var options = builder.Build().Services.GetRequiredService<IOptions<QuoitTransportOptions>>().Value;
        Assert.Equal(["buffer-ring", "multishot-accept"], options.Without);
        Assert.Equal(QuoitEngine.Epoll, options.Engine);
    }

    [Fact]
    public async Task Its_health_says_what_to_call_where_it_was_not_added()
    {
        var builder = WebApplication.CreateSlimBuilder();
        builder.Services.AddHealthChecks().AddQuoit();
        await using var application = builder.Build();
        var health = application.Services.GetRequiredService<Microsoft.Extensions.Diagnostics.HealthChecks.HealthCheckService>();
        var entry = (await health.CheckHealthAsync()).Entries["quoit"];
        Assert.Equal(Microsoft.Extensions.Diagnostics.HealthChecks.HealthStatus.Degraded, entry.Status);
        Assert.Contains("UseQuoit()", entry.Description, StringComparison.Ordinal);
        Assert.Null(entry.Exception);
    }

    [Fact]
    public void UseQuoit_twice_adds_it_once()
    {
        var services = new ServiceCollection().AddQuoitTransport().AddQuoitTransport(options => options.Loops = 2);
        Assert.Single(services, service => service.ServiceType == typeof(QuoitTransportFactory));
        Assert.Equal(2, services.Count(service => service.ServiceType == typeof(Microsoft.AspNetCore.Connections.IConnectionListenerFactory)));
    }
}
