namespace Quoit.Kestrel;

/// <summary>Quoit cannot run here: the native library is missing or another version's, or the engine that was asked
/// for is not usable. The message names what is missing and the remedy.</summary>
public sealed class QuoitUnavailableException : InvalidOperationException
{
    /// <summary>An exception with that message.</summary>
    /// <param name="message">What is missing and the remedy.</param>
    public QuoitUnavailableException(string message)
        : base(message)
    {
    }

    /// <summary>An exception with that message and its cause.</summary>
    /// <param name="message">What is missing and the remedy.</param>
    /// <param name="innerException">What failed.</param>
    public QuoitUnavailableException(string message, Exception innerException)
        : base(message, innerException)
    {
    }

    /// <summary>An exception with a general message.</summary>
    public QuoitUnavailableException()
        : this("Quoit cannot run here.")
    {
    }
}
