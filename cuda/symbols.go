package cuda

// symbol is one function of a library.
//
// Args spells its parameters: p pointer or handle, i int32, u uint32, l int64 or size_t, d device
// address, D a struct of 128 bytes by value; Ret is i status, l size, s string, v nothing.
type symbol struct {
	lib, name string
	args      string
	ret       byte
	min       int  // first driver or library version that has it, 0 for all supported ones
	optional  bool // absence is no reason to refuse the library
}

// Libraries by the name the table uses.
const (
	libDriver = "cuda"
	libBlas   = "cublasLt"
	libDNN    = "cudnn"
	libRTC    = "nvrtc"
	libNCCL   = "nccl"
)

// symbols is every function the package may call, with the names valid from CUDA 11.4 to 13.
var symbols = []symbol{
	{lib: libDriver, name: "cuInit", args: "u"},
	{lib: libDriver, name: "cuDriverGetVersion", args: "p"},
	{lib: libDriver, name: "cuGetErrorName", args: "ip"},
	{lib: libDriver, name: "cuGetErrorString", args: "ip"},
	{lib: libDriver, name: "cuDeviceGetCount", args: "p"},
	{lib: libDriver, name: "cuDeviceGet", args: "pi"},
	{lib: libDriver, name: "cuDeviceGetName", args: "pii"},
	{lib: libDriver, name: "cuDeviceTotalMem_v2", args: "pi"},
	{lib: libDriver, name: "cuDeviceGetAttribute", args: "pii"},
	{lib: libDriver, name: "cuDeviceGetUuid_v2", args: "pi", min: 11040, optional: true},
	{lib: libDriver, name: "cuDevicePrimaryCtxRetain", args: "pi"},
	{lib: libDriver, name: "cuDevicePrimaryCtxRelease_v2", args: "i"},
	{lib: libDriver, name: "cuCtxSetCurrent", args: "p"},
	{lib: libDriver, name: "cuCtxPushCurrent_v2", args: "p"},
	{lib: libDriver, name: "cuCtxPopCurrent_v2", args: "p"},
	{lib: libDriver, name: "cuCtxGetDevice", args: "p"},
	{lib: libDriver, name: "cuCtxSynchronize", args: ""},
	{lib: libDriver, name: "cuMemGetInfo_v2", args: "pp"},
	{lib: libDriver, name: "cuMemAlloc_v2", args: "pl"},
	{lib: libDriver, name: "cuMemFree_v2", args: "d"},
	{lib: libDriver, name: "cuMemHostAlloc", args: "plu"},
	{lib: libDriver, name: "cuMemFreeHost", args: "p"},
	{lib: libDriver, name: "cuMemcpyHtoDAsync_v2", args: "dplp"},
	{lib: libDriver, name: "cuMemcpyDtoHAsync_v2", args: "pdlp"},
	{lib: libDriver, name: "cuMemcpyDtoDAsync_v2", args: "ddlp"},
	{lib: libDriver, name: "cuMemsetD8Async", args: "dclp"},
	{lib: libDriver, name: "cuMemsetD32Async", args: "dulp"},
	{lib: libDriver, name: "cuStreamCreate", args: "pu"},
	{lib: libDriver, name: "cuStreamDestroy_v2", args: "p"},
	{lib: libDriver, name: "cuStreamSynchronize", args: "p"},
	{lib: libDriver, name: "cuStreamWaitEvent", args: "ppu"},
	{lib: libDriver, name: "cuEventCreate", args: "pu"},
	{lib: libDriver, name: "cuEventRecord", args: "pp"},
	{lib: libDriver, name: "cuEventQuery", args: "p"},
	{lib: libDriver, name: "cuEventSynchronize", args: "p"},
	{lib: libDriver, name: "cuEventDestroy_v2", args: "p"},
	{lib: libDriver, name: "cuEventElapsedTime_v2", args: "ppp", min: 12080, optional: true},
	{lib: libDriver, name: "cuEventElapsedTime", args: "ppp", optional: true},
	{lib: libDriver, name: "cuModuleLoadDataEx", args: "ppupp"},
	{lib: libDriver, name: "cuModuleUnload", args: "p"},
	{lib: libDriver, name: "cuModuleGetFunction", args: "ppp"},
	{lib: libDriver, name: "cuFuncGetAttribute", args: "pip"},
	{lib: libDriver, name: "cuFuncSetAttribute", args: "pii"},
	{lib: libDriver, name: "cuLaunchKernel", args: "puuuuuuuppp"},
	{lib: libDriver, name: "cuStreamBeginCapture_v2", args: "pi"},
	{lib: libDriver, name: "cuStreamEndCapture", args: "pp"},
	{lib: libDriver, name: "cuGraphGetNodes", args: "ppp"},
	{lib: libDriver, name: "cuGraphInstantiateWithFlags", args: "ppl", min: 11040},
	{lib: libDriver, name: "cuGraphLaunch", args: "pp"},
	{lib: libDriver, name: "cuGraphExecDestroy", args: "p"},
	{lib: libDriver, name: "cuGraphDestroy", args: "p"},

	{lib: libBlas, name: "cublasLtCreate", args: "p"},
	{lib: libBlas, name: "cublasLtDestroy", args: "p"},
	{lib: libBlas, name: "cublasLtGetVersion", args: "", ret: 'l'},
	{lib: libBlas, name: "cublasLtGetStatusString", args: "i", ret: 's', optional: true},
	{lib: libBlas, name: "cublasLtMatmulDescCreate", args: "pii"},
	{lib: libBlas, name: "cublasLtMatmulDescDestroy", args: "p"},
	{lib: libBlas, name: "cublasLtMatmulDescSetAttribute", args: "pipl"},
	{lib: libBlas, name: "cublasLtMatrixLayoutCreate", args: "pilll"},
	{lib: libBlas, name: "cublasLtMatrixLayoutDestroy", args: "p"},
	{lib: libBlas, name: "cublasLtMatrixLayoutSetAttribute", args: "pipl"},
	{lib: libBlas, name: "cublasLtMatmulPreferenceCreate", args: "p"},
	{lib: libBlas, name: "cublasLtMatmulPreferenceDestroy", args: "p"},
	{lib: libBlas, name: "cublasLtMatmulPreferenceSetAttribute", args: "pipl"},
	{lib: libBlas, name: "cublasLtMatmulAlgoGetHeuristic", args: "pppppppipp"},
	{lib: libBlas, name: "cublasLtMatmul", args: "pppppppppppppplp"},

	{lib: libDNN, name: "cudnnGetVersion", args: "", ret: 'l'},
	{lib: libDNN, name: "cudnnGetCudartVersion", args: "", ret: 'l', optional: true},
	{lib: libDNN, name: "cudnnGetErrorString", args: "i", ret: 's'},
	{lib: libDNN, name: "cudnnGetLastErrorString", args: "pl", ret: 'v', min: 90000, optional: true},
	{lib: libDNN, name: "cudnnCreate", args: "p"},
	{lib: libDNN, name: "cudnnDestroy", args: "p"},
	{lib: libDNN, name: "cudnnSetStream", args: "pp"},
	{lib: libDNN, name: "cudnnBackendCreateDescriptor", args: "ip"},
	{lib: libDNN, name: "cudnnBackendDestroyDescriptor", args: "p"},
	{lib: libDNN, name: "cudnnBackendSetAttribute", args: "piilp"},
	{lib: libDNN, name: "cudnnBackendGetAttribute", args: "piilpp"},
	{lib: libDNN, name: "cudnnBackendFinalize", args: "p"},
	{lib: libDNN, name: "cudnnBackendExecute", args: "ppp"},

	{lib: libRTC, name: "nvrtcVersion", args: "pp"},

	{lib: libNCCL, name: "ncclGetVersion", args: "p"},
	{lib: libNCCL, name: "ncclGetErrorString", args: "i", ret: 's'},
	{lib: libNCCL, name: "ncclGetLastError", args: "p", ret: 's'},
	{lib: libNCCL, name: "ncclGetUniqueId", args: "p"},
	{lib: libNCCL, name: "ncclCommInitRankConfig", args: "piDip"},
	{lib: libNCCL, name: "ncclCommGetAsyncError", args: "pp"},
	{lib: libNCCL, name: "ncclCommFinalize", args: "p"},
	{lib: libNCCL, name: "ncclCommDestroy", args: "p"},
	{lib: libNCCL, name: "ncclCommAbort", args: "p"},
	{lib: libNCCL, name: "ncclAllReduce", args: "ppliipp"},
	{lib: libNCCL, name: "ncclAllGather", args: "pplipp"},
	{lib: libNCCL, name: "ncclSend", args: "pliipp"},
	{lib: libNCCL, name: "ncclRecv", args: "pliipp"},
	{lib: libNCCL, name: "ncclGroupStart", args: ""},
	{lib: libNCCL, name: "ncclGroupEnd", args: ""},
}

// sonames lists the file names of each library, best first.
var sonames = map[string][]string{
	libDriver: {"libcuda.so.1"},
	libBlas:   {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"},
	libDNN:    {"libcudnn.so.9", "libcudnn.so.8"},
	libRTC:    {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"},
	libNCCL:   {"libnccl.so.2"},
}
