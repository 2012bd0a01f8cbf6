using System.Text.RegularExpressions;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections;
using Microsoft.Extensions.DependencyInjection;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Units;

/// <summary>The blocks of C# in the documents, which are parts of what is compiled: of a sample, or of <see cref="Shown"/>.</summary>
public partial class SnippetTests
{
    /// <summary>What no sample has. It is compiled and not run.</summary>
    internal static void Shown(WebApplicationBuilder builder, IConnectionFactory connectionFactory)
    {
        builder.WebHost.UseQuoit(options => options.Scheduling = QuoitScheduling.UnsafeInlineOnLoop);
        builder.Services.AddHealthChecks().AddQuoit();
        new SocketsHttpHandler().UseQuoit(connectionFactory);
    }

    public static TheoryData<string> Documents { get; } = new(
        Directory.GetFiles(Path.Combine(Folder.Repository, "docs"), "*.md")
            .Append(Path.Combine(Folder.Repository, "README.md"))
            .Append(Path.Combine(Folder.Repository, "dotnet", "Quoit.Kestrel", "README.md"))
            .Where(path => Blocks(path).Any())
            .Select(path => Path.GetRelativePath(Folder.Repository, path)));

    [Theory]
    [MemberData(nameof(Documents))]
    public void A_block_is_a_part_of_what_is_compiled(string document)
    {
        var dotnet = Path.Combine(Folder.Repository, "dotnet");
        var compiled = Directory.GetFiles(Path.Combine(dotnet, "samples"), "*.cs", SearchOption.AllDirectories)
            .Append(Path.Combine(dotnet, "Quoit.Kestrel.Tests", "Units", "SnippetTests.cs"))
            .Select(path => Bare(File.ReadAllText(path)))
            .ToList();
        Assert.All(
            Blocks(Path.Combine(Folder.Repository, document)),
            block => Assert.True(compiled.Exists(source => source.Contains(Bare(block), StringComparison.Ordinal)), block));
    }

    private static IEnumerable<string> Blocks(string document) =>
        Block().Matches(File.ReadAllText(document)).Select(block => block.Groups[1].Value);

    /// <summary>Without comments and white space.</summary>
    private static string Bare(string source) => BesideCode().Replace(source, "");

    [GeneratedRegex("^ *```csharp\n(.*?)^ *```$", RegexOptions.Multiline | RegexOptions.Singleline)]
    private static partial Regex Block();

    [GeneratedRegex(@"//[^\n]*|\s+")]
    private static partial Regex BesideCode();
}
