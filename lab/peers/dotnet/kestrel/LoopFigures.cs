using System.Diagnostics.Metrics;
using System.Globalization;
using System.Text;

namespace Lab;

/// <summary>
/// The counters of Quoit's loops, from the transport's meter, by the names that <c>quoit serve --metrics</c> has for them.
/// The loops of a client are numbered on behind those of the server.
/// </summary>
internal sealed class LoopFigures : IDisposable
{
    private const string MeterName = "Quoit.Transport";

    private readonly MeterListener _listener = new();
    private readonly List<Meter> _meters = [];

    /// <summary>Each family's text. They are kept, so that a reading costs little.</summary>
    private readonly Dictionary<string, StringBuilder> _families = [];

    /// <param name="loops">Loops of a server, and of a client.</param>
    public LoopFigures(int loops)
    {
        _listener.InstrumentPublished = (instrument, listener) =>
        {
            if (instrument.Meter.Name == MeterName)
            {
                listener.EnableMeasurementEvents(instrument, FirstLoop(instrument.Meter, loops));
            }
        };
        _listener.SetMeasurementEventCallback<long>((instrument, value, tags, first) =>
            Add(instrument, value.ToString(CultureInfo.InvariantCulture), tags, first));
        // Times alone: the meter has them in seconds, the loops in nanoseconds.
        _listener.SetMeasurementEventCallback<double>((instrument, value, tags, first) =>
            Add(instrument, Math.Round(value * 1e9).ToString("F0", CultureInfo.InvariantCulture), tags, first));
        _listener.Start();
    }

    /// <summary>Reads all counters and appends their text; nothing while no loop runs. For one thread.</summary>
    public void AppendTo(StringBuilder text)
    {
        foreach (var family in _families.Values)
        {
            family.Clear();
        }
        _listener.RecordObservableInstruments();
        foreach (var family in _families.Values)
        {
            text.Append(family);
        }
    }

    public void Dispose() => _listener.Dispose();

    /// <summary>The number of a meter's first loop.</summary>
    private object FirstLoop(Meter meter, int loops)
    {
        lock (_meters)
        {
            if (!_meters.Contains(meter))
            {
                _meters.Add(meter);
            }
            return _meters.IndexOf(meter) * loops;
        }
    }

    private void Add(Instrument instrument, string value, ReadOnlySpan<KeyValuePair<string, object?>> tags, object? first)
    {
        if (!_families.TryGetValue(instrument.Name, out var family))
        {
            _families.Add(instrument.Name, family = new StringBuilder());
        }
        var isCounter = instrument is ObservableCounter<long>;
        var name = instrument.Name.Replace('.', '_') + (instrument.Unit == "s" ? "_ns" : "");
        if (family.Length == 0)
        {
            family.Append(CultureInfo.InvariantCulture, $"# HELP {name} {instrument.Description}\n");
            family.Append(CultureInfo.InvariantCulture, $"# TYPE {name} {(isCounter ? "counter" : "gauge")}\n");
        }
        family.Append(name).Append(isCounter ? "_total" : "");
        foreach (var (tag, loop) in tags)
        {
            if (tag == "quoit.loop")
            {
                family.Append(CultureInfo.InvariantCulture, $"{{loop=\"{(int)first! + (int)loop!}\"}}");
            }
        }
        family.Append(' ').Append(value).Append('\n');
    }
}
