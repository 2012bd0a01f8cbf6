using System.Globalization;
using System.Text;

namespace Quoit.Kestrel.Tests.Support;

/// <summary>A request of those that all doors send. Its lines are the parts that others can be made of.</summary>
public sealed record HostileRequest(string Name, List<string> Lines)
{
    public string Text => string.Concat(Lines);

    /// <summary>Whether a server may wait for the rest of it.</summary>
    public bool Unfinished => Name.EndsWith(" ...", StringComparison.Ordinal);
}

/// <summary>The requests that all doors send: those of <c>fuzz/http-requests.txt</c>, and others made of their lines.</summary>
public static class HttpRequests
{
    public static List<HostileRequest> Read()
    {
        var requests = new List<HostileRequest>();
        foreach (var line in File.ReadLines(Path.Combine(Folder.Repository, "fuzz", "http-requests.txt")))
        {
            if (line.StartsWith("= ", StringComparison.Ordinal))
            {
                requests.Add(new(line[2..], []));
            }
            else if (line.Length > 0 && line[0] != '#')
            {
                requests[^1].Lines.Add(Unescape(line));
            }
        }
        return requests;
    }

    /// <summary>As the head of the file says.</summary>
    private static string Unescape(string line)
    {
        var text = new StringBuilder();
        for (var at = 0; at < line.Length; at++)
        {
            if (line[at] != '\\')
            {
                text.Append(line[at]);
                continue;
            }
            at++;
            switch (line[at])
            {
                case 'r':
                    text.Append('\r');
                    break;
                case 'n':
                    text.Append('\n');
                    break;
                case 't':
                    text.Append('\t');
                    break;
                case 's':
                    text.Append(' ');
                    break;
                case '\\':
                    text.Append('\\');
                    break;
                case 'x':
                    text.Append((char)byte.Parse(line.AsSpan(at + 1, 2), NumberStyles.HexNumber, CultureInfo.InvariantCulture));
                    at += 2;
                    break;
                case '{':
                    var space = line.IndexOf(' ', at);
                    var end = line.IndexOf('}', at);
                    var repeated = Unescape(line[(space + 1)..end]);
                    text.Insert(text.Length, repeated, int.Parse(line.AsSpan(at + 1, space - at - 1), CultureInfo.InvariantCulture));
                    at = end;
                    break;
                default:
                    throw new FormatException(line);
            }
        }
        return text.ToString();
    }

    /// <summary>A request made of the lines of others.</summary>
    public static string Mix(Random random, List<HostileRequest> requests)
    {
        var text = new StringBuilder();
        List<string> Any() => requests[random.Next(requests.Count)].Lines;
        for (var number = random.Next(1, 4); number > 0; number--)
        {
            text.Append(random.Next(3) > 0 ? "POST /x HTTP/1.1\r\nHost: x\r\n" : Any()[0]);
            for (var fields = random.Next(4); fields > 0; fields--)
            {
                // Any line of a head, and sometimes one of a body, but not the end of a head.
                var lines = Any();
                var at = random.Next(Math.Min(4, lines.Count));
                if (at > 0 && lines[at] != "\r\n")
                {
                    text.Append(lines[at]);
                }
            }
            text.Append("\r\n");
            var of = Any();
            if (of.IndexOf("\r\n") is >= 0 and var end)
            {
                text.AppendJoin("", of.Skip(end + 1));
            }
        }
        return text.ToString();
    }
}
