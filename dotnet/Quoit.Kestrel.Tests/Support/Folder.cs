using System.Reflection;

namespace Quoit.Kestrel.Tests.Support;

/// <summary>A folder that goes with the test.</summary>
public sealed class Folder : IDisposable
{
    /// <summary>That of the sources.</summary>
    public static string Repository { get; } = typeof(Folder).Assembly
        .GetCustomAttributes<AssemblyMetadataAttribute>().Single(data => data.Key == "RepositoryRoot").Value!;

    public string Path { get; } = Directory.CreateTempSubdirectory("quoit-").FullName;

    public void Dispose() => Directory.Delete(Path, recursive: true);
}
