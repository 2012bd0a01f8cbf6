using Quoit.Kestrel;

// It serves one request to itself, and says where the library came from.
var builder = WebApplication.CreateSlimBuilder(args);
builder.Logging.ClearProviders();
builder.WebHost.UseQuoit(options => options.Require = true).UseUrls("http://127.0.0.1:0");
await using var app = builder.Build();
app.Run(context => context.Response.WriteAsync("hello"));
await app.StartAsync();
using var client = new HttpClient();
var answer = await client.GetStringAsync(app.Urls.First());
var found = QuoitDoctor.Examine();
Console.WriteLine($"{answer} from Quoit {found.LibraryVersion}, {Path.GetRelativePath(AppContext.BaseDirectory, found.Library ?? "")}");
return answer == "hello" ? 0 : 1;
