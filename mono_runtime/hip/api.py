"""HIP's functions with the signatures of ``hip_runtime_api.h``, looked up when they are first called."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from typing import Any

from mono_runtime.errors import DriverMissing
from mono_runtime.hip.library import Library

SUPPORTED_MAJORS = (6, 7)

# hipError_t
SUCCESS = 0
NOT_SUPPORTED = 801

# hipDeviceAttribute_t
MULTIPROCESSOR_COUNT = 63

# hipMemcpyKind
HOST_TO_DEVICE = 1
DEVICE_TO_HOST = 2

# hipStreamCaptureMode
CAPTURE_MODE_RELAXED = 2

# Flags: hipStreamNonBlocking, hipDeviceMallocUncached, hipIpcMemLazyEnablePeerAccess.
STREAM_NON_BLOCKING = 1
MALLOC_UNCACHED = 3
IPC_LAZY_PEER_ACCESS = 1

# HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END
BUFFER_POINTER, BUFFER_SIZE, END = 1, 2, 3

IPC_HANDLE_SIZE = 64


class IpcHandle(ctypes.Structure):
    """``hipIpcMemHandle_t``."""

    _fields_ = (("reserved", c_char * IPC_HANDLE_SIZE),)


def _ints(*names: str) -> list[tuple[str, Any]]:
    return [(name, c_int) for name in names]


class Properties(ctypes.Structure):
    """``hipDeviceProp_tR0600`` of HIP 6 and 7, member for member."""

    _fields_ = (
        ("name", c_char * 256),
        ("uuid", c_char * 16),
        ("luid", c_char * 8),
        ("luidDeviceNodeMask", c_uint),
        ("totalGlobalMem", c_size_t),
        ("sharedMemPerBlock", c_size_t),
        *_ints("regsPerBlock", "warpSize"),
        ("memPitch", c_size_t),
        ("maxThreadsPerBlock", c_int),
        ("maxThreadsDim", c_int * 3),
        ("maxGridSize", c_int * 3),
        ("clockRate", c_int),
        ("totalConstMem", c_size_t),
        *_ints("major", "minor"),
        ("textureAlignment", c_size_t),
        ("texturePitchAlignment", c_size_t),
        *_ints("deviceOverlap", "multiProcessorCount", "kernelExecTimeoutEnabled"),
        *_ints("integrated", "canMapHostMemory", "computeMode"),
        *_ints("maxTexture1D", "maxTexture1DMipmap", "maxTexture1DLinear"),
        ("maxTexture2D", c_int * 2),
        ("maxTexture2DMipmap", c_int * 2),
        ("maxTexture2DLinear", c_int * 3),
        ("maxTexture2DGather", c_int * 2),
        ("maxTexture3D", c_int * 3),
        ("maxTexture3DAlt", c_int * 3),
        ("maxTextureCubemap", c_int),
        ("maxTexture1DLayered", c_int * 2),
        ("maxTexture2DLayered", c_int * 3),
        ("maxTextureCubemapLayered", c_int * 2),
        ("maxSurface1D", c_int),
        ("maxSurface2D", c_int * 2),
        ("maxSurface3D", c_int * 3),
        ("maxSurface1DLayered", c_int * 2),
        ("maxSurface2DLayered", c_int * 3),
        ("maxSurfaceCubemap", c_int),
        ("maxSurfaceCubemapLayered", c_int * 2),
        ("surfaceAlignment", c_size_t),
        *_ints("concurrentKernels", "ECCEnabled", "pciBusID", "pciDeviceID", "pciDomainID"),
        *_ints("tccDriver", "asyncEngineCount", "unifiedAddressing", "memoryClockRate"),
        *_ints("memoryBusWidth", "l2CacheSize", "persistingL2CacheMaxSize"),
        *_ints("maxThreadsPerMultiProcessor", "streamPrioritiesSupported"),
        *_ints("globalL1CacheSupported", "localL1CacheSupported"),
        ("sharedMemPerMultiprocessor", c_size_t),
        *_ints("regsPerMultiprocessor", "managedMemory", "isMultiGpuBoard", "multiGpuBoardGroupID"),
        *_ints("hostNativeAtomicSupported", "singleToDoublePrecisionPerfRatio"),
        *_ints("pageableMemoryAccess", "concurrentManagedAccess", "computePreemptionSupported"),
        *_ints("canUseHostPointerForRegisteredMem", "cooperativeLaunch"),
        ("cooperativeMultiDeviceLaunch", c_int),
        ("sharedMemPerBlockOptin", c_size_t),
        *_ints("pageableMemoryAccessUsesHostPageTables", "directManagedMemAccessFromHost"),
        *_ints("maxBlocksPerMultiProcessor", "accessPolicyMaxWindowSize"),
        ("reservedSharedMemPerBlock", c_size_t),
        *_ints("hostRegisterSupported", "sparseHipArraySupported"),
        *_ints("hostRegisterReadOnlySupported", "timelineSemaphoreInteropSupported"),
        *_ints("memoryPoolsSupported", "gpuDirectRDMASupported"),
        ("gpuDirectRDMAFlushWritesOptions", c_uint),
        ("gpuDirectRDMAWritesOrdering", c_int),
        ("memoryPoolSupportedHandleTypes", c_uint),
        *_ints("deferredMappingHipArraySupported", "ipcEventSupported", "clusterLaunch"),
        ("unifiedFunctionPointers", c_int),
        ("reserved", c_int * 63),
        ("hipReserved", c_int * 32),
        ("gcnArchName", c_char * 256),
        ("maxSharedMemoryPerMultiProcessor", c_size_t),
        ("clockInstructionRate", c_int),
        ("arch", c_uint),
        ("hdpMemFlushCntl", c_void_p),
        ("hdpRegFlushCntl", c_void_p),
        *_ints("cooperativeMultiDeviceUnmatchedFunc", "cooperativeMultiDeviceUnmatchedGridDim"),
        *_ints("cooperativeMultiDeviceUnmatchedBlockDim"),
        *_ints("cooperativeMultiDeviceUnmatchedSharedMem", "isLargeBar", "asicRevision"),
    )


_INT_OUT = POINTER(c_int)
_OUT = POINTER(c_void_p)

# Streams, events, modules, functions and device addresses are pointers. All but the two that give
# texts return a hipError_t.
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "hipRuntimeGetVersion": (_INT_OUT,),
    "hipGetDeviceCount": (_INT_OUT,),
    "hipGetDevice": (_INT_OUT,),
    "hipSetDevice": (c_int,),
    "hipDeviceGetAttribute": (_INT_OUT, c_int, c_int),
    "hipDeviceGetPCIBusId": (c_char_p, c_int, c_int),
    "hipGetDevicePropertiesR0600": (POINTER(Properties), c_int),
    "hipDeviceSynchronize": (),
    "hipDeviceEnablePeerAccess": (c_int, c_uint),
    "hipGetErrorName": (c_int,),
    "hipGetErrorString": (c_int,),
    "hipGetLastError": (),
    "hipModuleLoadData": (_OUT, c_void_p),
    "hipModuleUnload": (c_void_p,),
    "hipModuleGetFunction": (_OUT, c_void_p, c_char_p),
    "hipModuleLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, _OUT, _OUT),
    "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor": (_INT_OUT, c_void_p, c_int, c_size_t),
    "hipStreamCreateWithFlags": (_OUT, c_uint),
    "hipStreamDestroy": (c_void_p,),
    "hipStreamSynchronize": (c_void_p,),
    "hipStreamIsCapturing": (c_void_p, _INT_OUT),
    "hipThreadExchangeStreamCaptureMode": (_INT_OUT,),
    "hipEventCreateWithFlags": (_OUT, c_uint),
    "hipEventDestroy": (c_void_p,),
    "hipEventRecord": (c_void_p, c_void_p),
    "hipEventQuery": (c_void_p,),
    "hipEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "hipMalloc": (_OUT, c_size_t),
    "hipExtMallocWithFlags": (_OUT, c_size_t, c_uint),
    "hipFree": (c_void_p,),
    "hipMemcpy": (c_void_p, c_void_p, c_size_t, c_int),
    "hipMemcpyAsync": (c_void_p, c_void_p, c_size_t, c_int, c_void_p),
    "hipMemset": (c_void_p, c_int, c_size_t),
    "hipIpcGetMemHandle": (POINTER(IpcHandle), c_void_p),
    "hipIpcOpenMemHandle": (_OUT, IpcHandle, c_uint),
    "hipIpcCloseMemHandle": (c_void_p,),
}
_TEXTS = ("hipGetErrorName", "hipGetErrorString")


class Api:
    """The functions of one library."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._functions: dict[str, Callable[..., Any]] = {}

    def function(self, name: str) -> Callable[..., Any]:
        """The function of this name, with its signature; `DriverMissing` when the library lacks it."""
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = self._look_up(name, _ARGUMENTS[name])
        return function

    def bare_function(self, name: str, *, keep_lock: bool = False) -> Callable[..., int]:
        """A function object of its own that takes ready-made C arguments, which is the fastest call.

        ``keep_lock`` keeps the interpreter's lock: only for what cannot wait.
        """
        return self._look_up(name, None, keep_lock)

    def name_of(self, status: int) -> str:
        """HIP's name of a status, such as ``hipErrorInvalidValue``."""
        return _text(self.function("hipGetErrorName")(status))

    def text_of(self, status: int) -> str:
        """HIP's explanation of a status."""
        return _text(self.function("hipGetErrorString")(status))

    def _look_up(
        self, name: str, arguments: tuple[Any, ...] | None, keep_lock: bool = False
    ) -> Callable[..., Any]:
        handle = self.library.handle
        if keep_lock:
            handle = ctypes.PyDLL(self.library.path, handle=handle._handle)
        try:
            # Indexing gives a new object each time, so nobody else's signature is changed.
            function = handle[name]
        except AttributeError as error:
            majors = " and ".join(map(str, SUPPORTED_MAJORS))
            raise DriverMissing(
                f"the HIP library has no {name}",
                where=self.library.path,
                fix=f"use HIP {majors}; other versions do not have what this runtime calls",
            ) from error
        function.restype = c_char_p if name in _TEXTS else c_int
        if arguments is not None:
            function.argtypes = arguments
        return function


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
