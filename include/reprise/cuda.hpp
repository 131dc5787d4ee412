#pragma once
// The components for a CUDA device: timer, memory probe and spilling to host memory. They need a
// CUDA build of LibTorch and the CUDA runtime's headers, in addition to reprise::libtorch.
//
//   Profile profile = reprise::Profiler<reprise::CudaEventTimer, reprise::CudaCachingProbe>{}.run(captured);
//
// scripts/check-cuda compiles, links and tests them with a stand-in for the CUDA runtime. They have
// not run on a device.

#include <reprise/cuda/cuda_caching_probe.hpp>
#include <reprise/cuda/cuda_event.hpp>
#include <reprise/cuda/cuda_event_timer.hpp>
#include <reprise/cuda/host_mover.hpp>
