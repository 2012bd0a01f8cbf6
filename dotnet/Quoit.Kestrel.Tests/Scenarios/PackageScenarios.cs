using System.Diagnostics;
using System.IO.Compression;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>The package, as a project of somebody's takes it.</summary>
public class PackageScenarios
{
#if DEBUG
    private const string Configuration = "Debug";
#else
    private const string Configuration = "Release";
#endif

    private static async Task<string> RunAsync(string folder, Dictionary<string, string?> environment, params string[] arguments)
    {
        var start = new ProcessStartInfo("dotnet", arguments)
        {
            WorkingDirectory = folder,
            RedirectStandardOutput = true,
            RedirectStandardError = true,
        };
        foreach (var (name, value) in environment)
        {
            start.Environment[name] = value;
        }
        using var process = Process.Start(start)!;
        var error = process.StandardError.ReadToEndAsync();
        var output = await process.StandardOutput.ReadToEndAsync().WaitAsync(TimeSpan.FromMinutes(3));
        await process.WaitForExitAsync();
        Assert.True(process.ExitCode == 0, $"dotnet {string.Join(' ', arguments)}: {output}{await error}");
        return output;
    }

    [Fact]
    public async Task An_empty_project_serves_by_it()
    {
        using var folder = new Folder();
        var library = Environment.GetEnvironmentVariable("QUOIT_LIBRARY");
        string[] native = library is null ? [] : [$"-p:QuoitNativeLibrary={library}"];
        await RunAsync(
            Folder.Repository, [],
            ["pack", "dotnet/Quoit.Kestrel", "--no-build", "--configuration", Configuration, "--output", folder.Path, .. native]);
        var package = Assert.Single(Directory.GetFiles(folder.Path, "*.nupkg"));
        using (var archive = ZipFile.OpenRead(package))
        {
            var entries = archive.Entries.Select(entry => entry.FullName).ToList();
            Assert.Contains("runtimes/linux-x64/native/libquoit.so", entries);
            Assert.Contains("lib/net10.0/Quoit.Kestrel.dll", entries);
            Assert.Contains("lib/net10.0/Quoit.Kestrel.xml", entries);
            Assert.Contains("README.md", entries);
        }
        Assert.Single(Directory.GetFiles(folder.Path, "*.snupkg"));
        var project = Directory.CreateDirectory(Path.Combine(folder.Path, "app")).FullName;
        await File.WriteAllTextAsync(Path.Combine(project, "app.csproj"), """
            <Project Sdk="Microsoft.NET.Sdk.Web">
              <PropertyGroup>
                <TargetFramework>net10.0</TargetFramework>
                <ImplicitUsings>enable</ImplicitUsings>
                <NuGetAudit>false</NuGetAudit>
              </PropertyGroup>
              <ItemGroup>
                <PackageReference Include="Quoit.Kestrel" Version="*" />
              </ItemGroup>
            </Project>
            """);
        await File.WriteAllTextAsync(Path.Combine(project, "Program.cs"), """
            using Quoit.Kestrel;
            var builder = WebApplication.CreateBuilder(args);
            builder.WebHost.UseQuoit(options => options.Require = true).UseUrls("http://127.0.0.1:0");
            await using var app = builder.Build();
            app.MapGet("/", () => "hello from the package");
            await app.StartAsync();
            using var client = new HttpClient();
            Console.WriteLine(await client.GetStringAsync(app.Urls.First()));
            Console.WriteLine(QuoitDoctor.Examine().Library);
            """);
        Dictionary<string, string?> environment = new()
        {
            ["QUOIT_LIBRARY"] = null,
            // A package of this version that was there before must not be taken for this one.
            ["NUGET_PACKAGES"] = Path.Combine(folder.Path, "packages"),
            ["MSBuildSDKsPath"] = null,
        };
        var offline = Environment.GetEnvironmentVariable("DOTNET_NUGET_OFFLINE");
        string[] sources = offline is null ? ["--source", folder.Path] : ["--source", folder.Path, "--source", offline];
        await RunAsync(project, environment, ["build", "--nologo", "-v", "q", .. sources]);
        var output = await RunAsync(project, environment, "run", "--no-build");
        Assert.Contains("hello from the package", output, StringComparison.Ordinal);
        Assert.Contains(Path.Combine("runtimes", "linux-x64", "native", "libquoit.so"), output, StringComparison.Ordinal);
    }
}
