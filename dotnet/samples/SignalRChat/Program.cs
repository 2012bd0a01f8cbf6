// A chat by SignalR on Quoit: everybody sees what anybody says.
//
//   dotnet run --project dotnet/samples/SignalRChat
//   open http://localhost:5000/ in two windows
using Microsoft.AspNetCore.SignalR;
using Quoit.Kestrel;

var builder = WebApplication.CreateBuilder(args);
builder.WebHost.UseQuoit();
builder.Services.AddSignalR();

var app = builder.Build();
app.MapHub<Chat>("/chat");
app.MapGet("/", () => Results.Content(Page.Text, "text/html"));
app.Run();

internal sealed class Chat : Hub
{
    public Task Say(string text) => Clients.All.SendAsync("Heard", text);
}

internal static class Page
{
    // SignalR's JSON protocol by hand: a message is JSON and ends with the byte 0x1e.
    public const string Text = """
        <!doctype html><title>Chat</title>
        <form><input id=text autofocus autocomplete=off><button>Say</button></form><ul id=heard></ul>
        <script>
        const end = "\u001e", socket = new WebSocket(`ws://${location.host}/chat`);
        socket.onopen = () => socket.send(JSON.stringify({protocol: "json", version: 1}) + end);
        socket.onmessage = event => {
          for (const part of event.data.split(end)) {
            const message = part && JSON.parse(part);
            if (message && message.target === "Heard") {
              const item = document.createElement("li");
              item.textContent = message.arguments[0];
              document.getElementById("heard").append(item);
            }
          }
        };
        document.forms[0].onsubmit = event => {
          event.preventDefault();
          const text = document.getElementById("text");
          socket.send(JSON.stringify({type: 1, target: "Say", arguments: [text.value]}) + end);
          text.value = "";
        };
        </script>
        """;
}
