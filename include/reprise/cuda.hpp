#pragma once
// What measures and moves on a CUDA device. Needs a CUDA build of LibTorch and the CUDA runtime's
// headers, beside reprise::libtorch.
//
//   Profile profile = reprise::Profiler<reprise::CudaEventTimer, reprise::CudaCachingProbe>{}.run(captured);
//
// Compiled, linked and tested with a stand-in for the CUDA runtime by scripts/check-cuda; no device
// has run it yet.

#include <reprise/cuda/cuda_caching_probe.hpp>
#include <reprise/cuda/cuda_event.hpp>
#include <reprise/cuda/cuda_event_timer.hpp>
#include <reprise/cuda/host_mover.hpp>
