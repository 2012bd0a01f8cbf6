// A reverse proxy on Quoit at both ends: Kestrel accepts on the loops, and HttpClient connects to the backend on them by
// its ConnectCallback. YARP takes the same handler, by ConfigureHttpClient.
//
//   dotnet run --project dotnet/samples/ReverseProxy -- --backend http://localhost:8080
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Http.Features;
using Quoit.Kestrel;

var builder = WebApplication.CreateBuilder(args);
builder.WebHost.UseQuoit();

var app = builder.Build();
var backend = new Uri(app.Configuration["backend"] ?? "http://localhost:8080");
using var client = new HttpMessageInvoker(new SocketsHttpHandler
{
    AllowAutoRedirect = false,
    UseCookies = false,
    UseProxy = false,
}.UseQuoit(app.Services.GetRequiredService<IConnectionFactory>()));

// Fields that are between one client and one server, and none of the other's business (RFC 9110, section 7.6.1).
HashSet<string> hopByHop = new(StringComparer.OrdinalIgnoreCase)
    { "Connection", "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Host" };

app.Map("/{**path}", async (HttpContext context) =>
{
    // Not as a reference relative to the backend: the path //other.host/ would name another.
    var target = new UriBuilder(backend)
    {
        Path = context.Request.Path.ToUriComponent(),
        Query = context.Request.QueryString.ToUriComponent(),
    };
    using var request = new HttpRequestMessage(new HttpMethod(context.Request.Method), target.Uri);
    // HTTP/2 has bodies without a field that says so.
    if (context.Features.Get<IHttpRequestBodyDetectionFeature>()?.CanHaveBody is true)
    {
        request.Content = new StreamContent(context.Request.Body);
    }
    foreach (var (name, values) in context.Request.Headers)
    {
        if (!hopByHop.Contains(name) && !request.Headers.TryAddWithoutValidation(name, values.AsEnumerable()))
        {
            request.Content?.Headers.TryAddWithoutValidation(name, values.AsEnumerable());
        }
    }
    try
    {
        using var response = await client.SendAsync(request, context.RequestAborted);
        context.Response.StatusCode = (int)response.StatusCode;
        foreach (var (name, values) in response.Headers.Concat(response.Content.Headers))
        {
            if (!hopByHop.Contains(name))
            {
                context.Response.Headers[name] = values.ToArray();
            }
        }
        await response.Content.CopyToAsync(context.Response.Body, context.RequestAborted);
    }
    catch (HttpRequestException) when (!context.Response.HasStarted)
    {
        context.Response.StatusCode = StatusCodes.Status502BadGateway;
    }
});
app.Run();
