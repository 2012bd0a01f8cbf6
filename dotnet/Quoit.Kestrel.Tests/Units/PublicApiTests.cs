using System.Reflection;
using System.Text;

namespace Quoit.Kestrel.Tests.Units;

/// <summary>The public API against PublicApi.txt, so that it changes only on purpose.</summary>
public class PublicApiTests
{
    [Fact]
    public void It_is_as_written_down()
    {
        using var stream = typeof(PublicApiTests).Assembly.GetManifestResourceStream("PublicApi.txt")!;
        using var reader = new StreamReader(stream);
        var expected = reader.ReadToEnd().ReplaceLineEndings("\n").TrimEnd();
        var actual = Describe().TrimEnd();
        if (expected != actual)
        {
            var path = Path.Combine(Path.GetTempPath(), "PublicApi.txt");
            File.WriteAllText(path, actual + "\n");
            Assert.Fail($"the public API has changed; if that is meant, replace PublicApi.txt by {path}");
        }
    }

    private static string Describe()
    {
        var text = new StringBuilder();
        foreach (var type in typeof(QuoitTransportOptions).Assembly.GetExportedTypes().OrderBy(type => type.FullName, StringComparer.Ordinal))
        {
            text.AppendLine(type.FullName);
            var members = type.GetMembers(BindingFlags.Public | BindingFlags.Instance | BindingFlags.Static | BindingFlags.DeclaredOnly)
                .Where(member => member is not MethodInfo { IsSpecialName: true })
                .Select(member => $"  {member.MemberType}: {member}")
                .OrderBy(line => line, StringComparer.Ordinal);
            foreach (var member in members)
            {
                text.AppendLine(member);
            }
        }
        return text.ToString().ReplaceLineEndings("\n");
    }
}
