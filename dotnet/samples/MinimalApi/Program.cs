// A minimal API on Quoit: one line more than on sockets.
//
//   dotnet run --project dotnet/samples/MinimalApi
//   curl http://localhost:5000/
using Quoit.Kestrel;

var builder = WebApplication.CreateBuilder(args);
builder.WebHost.UseQuoit();
builder.Services.AddHealthChecks().AddQuoit();

var app = builder.Build();
app.MapGet("/", () => "Hello, World!");
app.MapGet("/json", () => new { message = "Hello, World!" });
app.MapGet("/doctor", () => QuoitDoctor.Examine());
app.MapHealthChecks("/healthz");
// For the probes of a cluster (docs/kubernetes.md). Once it drains, nobody connects any more, so that these are refused.
app.MapHealthChecks("/readyz");
app.MapHealthChecks("/livez");
app.Run();
