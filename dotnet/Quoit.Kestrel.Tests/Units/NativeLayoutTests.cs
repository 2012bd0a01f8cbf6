using System.Reflection;
using System.Runtime.InteropServices;
using Quoit.Kestrel.Native;

namespace Quoit.Kestrel.Tests.Units;

/// <summary>The structures and values of the binding against quoit-layout.txt, which the library is built with.</summary>
public class NativeLayoutTests
{
    private static readonly Dictionary<string, Type> s_structures = new(StringComparer.Ordinal)
    {
        ["quoit_command"] = typeof(NativeCommand),
        ["quoit_event"] = typeof(NativeEvent),
        ["quoit_stream_options"] = typeof(NativeStreamOptions),
        ["quoit_config"] = typeof(NativeConfig),
        ["quoit_connect_options"] = typeof(NativeConnectOptions),
        ["quoit_bind_options"] = typeof(NativeBindOptions),
        ["quoit_listen_options"] = typeof(NativeListenOptions),
        ["quoit_capability"] = typeof(NativeCapability),
        ["quoit_counter_info"] = typeof(NativeCounterInfo),
    };

    private static readonly Dictionary<string, Type> s_values = new(StringComparer.Ordinal)
    {
        ["QUOIT_COMMAND_"] = typeof(CommandKind),
        ["QUOIT_FLAG_"] = typeof(CommandFlags),
        ["QUOIT_EVENT_"] = typeof(EventKind),
        ["QUOIT_CLOSED_"] = typeof(CloseReason),
        ["QUOIT_REFUSED_"] = typeof(Refusal),
        ["QUOIT_ACCEPT_"] = typeof(AcceptKind),
        ["QUOIT_BIND_"] = typeof(BindFlags),
        ["QUOIT_FIGURE_"] = typeof(FigureKind),
        ["QUOIT_ENGINE_"] = typeof(NativeEngine),
        ["QUOIT_WAIT_"] = typeof(NativeWait),
    };

    /// <summary>Of datagram sockets, which the binding does not open.</summary>
    private static readonly string[] s_unused = ["QUOIT_DATAGRAM_", "QUOIT_DATAGRAMS_", "QUOIT_GRO_", "QUOIT_STEERING_"];

    private static IEnumerable<string[]> Lines(string kind) =>
        NativeLayout.Expected().Select(line => line.Split(' ')).Where(words => words[0] == kind);

    private static string Pascal(string name) =>
        string.Concat(name.Split('_').Select(word => char.ToUpperInvariant(word[0]) + word[1..].ToLowerInvariant()));

    [Fact]
    public void Structures_have_the_sizes_and_fields_of_the_header()
    {
        foreach (var words in Lines("struct").Where(words => s_structures.ContainsKey(words[1])))
        {
            Assert.Equal(int.Parse(words[2], null), SizeOf(s_structures[words[1]]));
        }
        var checkedFields = 0;
        foreach (var words in Lines("field").Where(words => s_structures.ContainsKey(words[1])))
        {
            var structure = s_structures[words[1]];
            var field = structure.GetField(Pascal(words[2]), BindingFlags.Public | BindingFlags.Instance);
            Assert.True(field is not null, $"{structure.Name} lacks {words[2]}");
            Assert.Equal(int.Parse(words[3], null), (int)Marshal.OffsetOf(structure, field.Name));
            var size = field.FieldType.IsPointer ? 8 : SizeOf(field.FieldType.IsEnum ? Enum.GetUnderlyingType(field.FieldType) : field.FieldType);
            Assert.Equal(int.Parse(words[4], null), size);
            checkedFields++;
        }
        Assert.Equal(s_structures.Values.Sum(type => type.GetFields(BindingFlags.Public | BindingFlags.Instance).Length), checkedFields);
    }

    [Fact]
    public void The_library_is_asked_for_the_version_of_the_header()
    {
        uint Constant(string name) => uint.Parse(Lines("constant").Single(words => words[1] == name)[2], null);
        Assert.Equal(QuoitLibrary.AbiVersion, (Constant("QUOIT_ABI_MAJOR") << 16) | Constant("QUOIT_ABI_MINOR"));
    }

    [Fact]
    public void Values_are_those_of_the_header()
    {
        foreach (var words in Lines("constant"))
        {
            var prefix = s_values.Keys.FirstOrDefault(prefix => words[1].StartsWith(prefix, StringComparison.Ordinal));
            if (s_unused.Any(unused => words[1].StartsWith(unused, StringComparison.Ordinal)))
            {
                continue;
            }
            if (prefix is null)
            {
                Assert.Contains(words[1], new[] { "QUOIT_ABI_MAJOR", "QUOIT_ABI_MINOR", "QUOIT_UNSET" });
                continue;
            }
            var name = Pascal(words[1][prefix.Length..]);
            var value = Enum.GetValues(s_values[prefix]).Cast<object>()
                .FirstOrDefault(known => string.Equals(known.ToString(), name, StringComparison.OrdinalIgnoreCase));
            Assert.True(value is not null, $"{s_values[prefix].Name} lacks {name}");
            Assert.Equal(long.Parse(words[2], null), Convert.ToInt64(value, null));
        }
    }

    [Fact]
    public void A_library_of_another_layout_is_refused_by_the_line_that_differs()
    {
        var lines = NativeLayout.Expected();
        NativeLayout.Check("x.so", string.Join('\n', lines));
        // One that has grown can be used.
        NativeLayout.Check("x.so", string.Join('\n', lines.Select(line => line == "struct quoit_config 160 8" ? "struct quoit_config 168 8" : line)));
        var other = lines.Select(line => line == "field quoit_event lease 48 8" ? "field quoit_event lease 56 8" : line);
        var failure = Assert.Throws<QuoitUnavailableException>(() => NativeLayout.Check("x.so", string.Join('\n', other)));
        Assert.Contains("x.so", failure.Message, StringComparison.Ordinal);
        Assert.Contains("field quoit_event lease 48 8", failure.Message, StringComparison.Ordinal);
    }

    private static int SizeOf(Type type) =>
        (int)typeof(System.Runtime.CompilerServices.Unsafe).GetMethod("SizeOf")!.MakeGenericMethod(type).Invoke(null, null)!;
}
