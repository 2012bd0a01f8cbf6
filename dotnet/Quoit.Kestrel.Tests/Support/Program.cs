namespace Quoit.Kestrel.Tests.Support;

/// <summary>What runs when the assembly is started as a program, by the tests alone.</summary>
internal static class Program
{
    private static Task<int> Main(string[] arguments) => Child.RunAsync(arguments);
}
