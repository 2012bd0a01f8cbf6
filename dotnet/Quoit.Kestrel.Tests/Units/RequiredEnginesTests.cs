using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Units;

/// <summary>
/// Tests leave out an engine that does not run, and would pass without it: <c>QUOIT_TEST_ENGINES</c> names those that must,
/// with spaces between them, as in CI.
/// </summary>
public class RequiredEnginesTests
{
    [Fact]
    public void The_engines_that_are_required_run_here()
    {
        var required = Environment.GetEnvironmentVariable("QUOIT_TEST_ENGINES") ?? "";
        foreach (var name in required.Split(' ', StringSplitOptions.RemoveEmptyEntries))
        {
            var engine = name switch
            {
                "uring" => QuoitEngine.IoUring,
                "epoll" => QuoitEngine.Epoll,
                _ => throw new ArgumentException($"QUOIT_TEST_ENGINES names {name}, which is no engine: uring, epoll"),
            };
            Assert.Contains(engine, Transports.UsableEngines);
        }
    }
}
