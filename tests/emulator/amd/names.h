/* SPDX-License-Identifier: 0BSD */
/* names.h - HIP's names for what it has of CUDA, before cuda/driver.h: the functions of
 * cuda/calls.def.
 */
#ifndef TGC_EMULATOR_AMD_NAMES_H
#define TGC_EMULATOR_AMD_NAMES_H

#define cuInit hipInit
#define cuDriverGetVersion hipDriverGetVersion
#define cuDeviceGetName hipDeviceGetName
#define cuDeviceTotalMem_v2 hipDeviceTotalMem
#define cuStreamCreate hipStreamCreateWithFlags
#define cuStreamSynchronize hipStreamSynchronize
#define cuStreamDestroy_v2 hipStreamDestroy
#define cuStreamWaitEvent hipStreamWaitEvent
#define cuStreamBeginCapture_v2 hipStreamBeginCapture
#define cuStreamEndCapture hipStreamEndCapture
#define cuStreamIsCapturing hipStreamIsCapturing
#define cuMemGetInfo_v2 hipMemGetInfo
#define cuMemAlloc_v2 hipMalloc
#define cuMemHostAlloc hipHostMalloc
#define cuMemFreeHost hipHostFree
#define cuMemFree_v2 hipFree
#define cuMemcpyHtoDAsync_v2 hipMemcpyHtoDAsync
#define cuMemcpyDtoHAsync_v2 hipMemcpyDtoHAsync
#define cuMemcpyHtoD_v2 hipMemcpyHtoD
#define cuMemcpyDtoH_v2 hipMemcpyDtoH
#define cuMemGetAddressRange_v2 hipMemGetAddressRange
#define cuModuleLoadDataEx hipModuleLoadDataEx
#define cuModuleUnload hipModuleUnload
#define cuModuleGetFunction hipModuleGetFunction
#define cuFuncGetAttribute hipFuncGetAttribute
#define cuLaunchKernel hipModuleLaunchKernel
#define cuGraphCreate hipGraphCreate
#define cuGraphAddKernelNode hipGraphAddKernelNode
#define cuGraphInstantiateWithFlags hipGraphInstantiateWithFlags
#define cuGraphExecKernelNodeSetParams hipGraphExecKernelNodeSetParams
#define cuGraphLaunch hipGraphLaunch
#define cuGraphExecDestroy hipGraphExecDestroy
#define cuGraphDestroy hipGraphDestroy
#define cuEventCreate hipEventCreateWithFlags
#define cuEventRecord hipEventRecord
#define cuEventSynchronize hipEventSynchronize
#define cuEventElapsedTime hipEventElapsedTime
#define cuEventDestroy_v2 hipEventDestroy

#define OWN_CALLS "../amd/own.def"
/* A launch as a graph has it: hipKernelNodeParams. */
struct kernel_node {
    unsigned block[3];
    void **extra, *function;
    unsigned groups[3];
    void **parameters;
    unsigned shared_bytes;
};

#endif
