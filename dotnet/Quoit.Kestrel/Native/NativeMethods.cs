using System.Runtime.InteropServices;

namespace Quoit.Kestrel.Native;

/// <summary>
/// The calls of quoit.h. All arguments are blittable, so that nothing is marshalled. Call
/// <see cref="QuoitLibrary.Load"/> before any of them.
/// </summary>
internal static unsafe partial class NativeMethods
{
    /// <summary>The name by which <see cref="QuoitLibrary"/> resolves the library.</summary>
    public const string Library = "libquoit";

    [LibraryImport(Library, EntryPoint = "quoit_abi_check")]
    public static partial int AbiCheck(uint version);

    [LibraryImport(Library, EntryPoint = "quoit_version")]
    public static partial byte* Version();

    [LibraryImport(Library, EntryPoint = "quoit_layout")]
    public static partial byte* Layout();

    [LibraryImport(Library, EntryPoint = "quoit_error_text")]
    public static partial int ErrorText(byte* buffer, nuint capacity);

    [LibraryImport(Library, EntryPoint = "quoit_counter_describe")]
    public static partial int CounterDescribe(uint index, NativeCounterInfo* info);

    [LibraryImport(Library, EntryPoint = "quoit_config_default")]
    public static partial int ConfigDefault(NativeConfig* config);

    [LibraryImport(Library, EntryPoint = "quoit_capabilities_probe")]
    public static partial int CapabilitiesProbe(NativeConfig* config, nint* capabilities);

    [LibraryImport(Library, EntryPoint = "quoit_capabilities_usable")]
    public static partial int CapabilitiesUsable(nint capabilities);

    [LibraryImport(Library, EntryPoint = "quoit_capabilities_reason")]
    public static partial int CapabilitiesReason(nint capabilities, byte* buffer, nuint capacity);

    [LibraryImport(Library, EntryPoint = "quoit_capabilities_get")]
    public static partial int CapabilitiesGet(nint capabilities, uint index, NativeCapability* capability);

    [LibraryImport(Library, EntryPoint = "quoit_capabilities_free")]
    public static partial void CapabilitiesFree(nint capabilities);

    [LibraryImport(Library, EntryPoint = "quoit_socket_bind")]
    public static partial int SocketBind(byte* address, nuint length, NativeBindOptions* options, nint* socket);

    [LibraryImport(Library, EntryPoint = "quoit_socket_adopt")]
    public static partial int SocketAdopt(int descriptor, nint* socket);

    [LibraryImport(Library, EntryPoint = "quoit_socket_clone")]
    public static partial int SocketClone(nint socket, nint* clone);

    [LibraryImport(Library, EntryPoint = "quoit_socket_fd")]
    public static partial int SocketFd(nint socket);

    [LibraryImport(Library, EntryPoint = "quoit_socket_close")]
    public static partial void SocketClose(nint socket);

    [LibraryImport(Library, EntryPoint = "quoit_loop_create")]
    public static partial int LoopCreate(NativeConfig* config, uint index, nint* loop);

    [LibraryImport(Library, EntryPoint = "quoit_loop_destroy")]
    public static partial int LoopDestroy(nint loop);

    [LibraryImport(Library, EntryPoint = "quoit_turn")]
    public static partial int Turn(
        nint loop, NativeCommand* commands, nuint count, NativeEvent* events, nuint capacity, long timeoutNs);

    [LibraryImport(Library, EntryPoint = "quoit_engine")]
    public static partial int Engine(nint loop);

    [LibraryImport(Library, EntryPoint = "quoit_engine_reason")]
    public static partial int EngineReason(nint loop, byte* buffer, nuint capacity);

    [LibraryImport(Library, EntryPoint = "quoit_listen")]
    public static partial int Listen(nint loop, nint socket, NativeListenOptions* options, ulong* listener);

    [LibraryImport(Library, EntryPoint = "quoit_connection_fd")]
    public static partial int ConnectionFd(nint loop, ulong connection);

    [LibraryImport(Library, EntryPoint = "quoit_try_send")]
    public static partial long TrySend(nint loop, ulong connection, NativePiece* pieces, nuint count);

    [LibraryImport(Library, EntryPoint = "quoit_loop_direct_sender")]
    public static partial int LoopDirectSender(nint loop, ulong connection, nint* sender);

    [LibraryImport(Library, EntryPoint = "quoit_direct_sender_try_send")]
    public static partial long DirectSenderTrySend(nint sender, NativePiece* pieces, nuint count);

    [LibraryImport(Library, EntryPoint = "quoit_direct_sender_release")]
    public static partial void DirectSenderRelease(nint sender);

    [LibraryImport(Library, EntryPoint = "quoit_loop_remote")]
    public static partial int LoopRemote(nint loop, nint* remote);

    [LibraryImport(Library, EntryPoint = "quoit_remote_release")]
    public static partial void RemoteRelease(nint remote);

    [LibraryImport(Library, EntryPoint = "quoit_remote_wake")]
    public static partial int RemoteWake(nint remote);

    [LibraryImport(Library, EntryPoint = "quoit_remote_counters")]
    public static partial int RemoteCounters(nint remote, void* counters);
}
