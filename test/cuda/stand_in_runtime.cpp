// A stand-in for the CUDA runtime on a machine without a device: one device whose memory is the
// host's and whose clock is a counter. Loaded in front of the real runtime (LD_PRELOAD), it lets
// LibTorch's own caching allocator, streams and checks run, and with them what Reprise has for
// CUDA. It shows that these call the runtime in the right order and read the right numbers; it
// shows nothing about a device.
//
//   a memset of n bytes takes n nanoseconds of its stream's time, a copy as many; nothing else takes any
//
// Only what LibTorch and Reprise call is here. A call that is not goes to the real runtime and
// fails: there is no device. LibTorch asks the driver itself one question, so the library is called
// libcuda.so.1, as the driver is.

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "stand_in.hpp"

namespace {

std::mutex mutex;
reprise_test::StandInCounts counts;
std::map<cudaStream_t, long long> stream_time;  // nanoseconds

struct FakeEvent {
  long long at = -1;  // of its stream's time; -1: never recorded
};
FakeEvent* fake(cudaEvent_t event) { return reinterpret_cast<FakeEvent*>(event); }

cudaError_t give(void** to, std::size_t bytes) {
  *to = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  return *to == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

}  // namespace

extern "C" {

void reprise_stand_in_counts(reprise_test::StandInCounts* to) {
  const std::lock_guard lock(mutex);
  *to = counts;
}

// --- The device ----------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "stand-in");
  properties->totalGlobalMem = std::size_t{8} << 30;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{8} << 30;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

// --- Memory --------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** to, std::size_t bytes) { return give(to, bytes); }
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** to, std::size_t bytes, unsigned) {
  const std::lock_guard lock(mutex);
  ++counts.pinned_blocks_alive;
  return give(to, bytes);
}
cudaError_t cudaFreeHost(void* memory) {
  const std::lock_guard lock(mutex);
  if (memory != nullptr) --counts.pinned_blocks_alive;
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  std::memset(to, value, bytes);
  stream_time[stream] += static_cast<long long>(bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  std::memcpy(to, from, bytes);
  stream_time[stream] += static_cast<long long>(bytes);
  return cudaSuccess;
}

// --- Streams -------------------------------------------------------------------------------------

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = static_cast<cudaStream_t>(std::malloc(1));
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  const std::lock_guard lock(mutex);
  ++counts.waits;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const std::lock_guard lock(mutex);
  ++counts.waits;
  return cudaSuccess;
}

// --- Events --------------------------------------------------------------------------------------

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const std::lock_guard lock(mutex);
  ++counts.events_made;
  ++counts.events_alive;
  *event = reinterpret_cast<cudaEvent_t>(new FakeEvent);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  --counts.events_alive;
  delete fake(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  fake(event)->at = stream_time[stream];
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  const std::lock_guard lock(mutex);
  ++counts.waits;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::lock_guard lock(mutex);
  if (fake(begin)->at < 0 || fake(end)->at < 0) return cudaErrorInvalidResourceHandle;
  *milliseconds = static_cast<float>(fake(end)->at - fake(begin)->at) / 1e6F;
  return cudaSuccess;
}

}  // extern "C"
