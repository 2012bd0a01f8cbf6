namespace Quoit.Kestrel.Tests.Support;

/// <summary>The processes that tests start: this assembly with the name of a part to play.</summary>
internal static class Child
{
    public static Task<int> RunAsync(string[] arguments)
    {
        Console.Error.WriteLine($"no such part: {string.Join(' ', arguments)}");
        return Task.FromResult(2);
    }
}
