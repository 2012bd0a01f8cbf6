namespace Quoit.Kestrel.Tests.Support;

/// <summary>A folder that goes with the test.</summary>
public sealed class Folder : IDisposable
{
    public string Path { get; } = Directory.CreateTempSubdirectory("quoit-").FullName;

    public void Dispose() => Directory.Delete(Path, recursive: true);
}
