using System.Text.Json;
using System.Text.Json.Serialization;

namespace Lab;

/// <summary>What the paths answer.</summary>
internal static class Answers
{
    public const string Plaintext = "Hello, World!";

    public static readonly byte[] PlaintextBytes = "Hello, World!"u8.ToArray();

    public static readonly byte[] HealthBytes = "ok"u8.ToArray();

    /// <summary>Serialised anew, as the benchmarks ask for.</summary>
    public static byte[] Json() => JsonSerializer.SerializeToUtf8Bytes(new Message(Plaintext), MessageContext.Default.Message);
}

internal readonly record struct Message([property: JsonPropertyName("message")] string Text);

[JsonSerializable(typeof(Message))]
internal sealed partial class MessageContext : JsonSerializerContext;
