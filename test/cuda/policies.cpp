// What Reprise has for CUDA, on a device or on the stand-in for one. Where there is neither, that
// this links is all that is shown.

#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include <c10/cuda/CUDAFunctions.h>

#include <reprise/cuda.hpp>

#include "device_step.hpp"
#include "expect.hpp"
#include "stand_in.hpp"

using namespace reprise;
using namespace reprise::cuda;
using namespace reprise_test;

void profile_a_captured_step();  // captured_step.cpp

namespace {

bool near(Microseconds time, double expected) {
  return std::abs(time.count - expected) < 1e-3 * expected;
}

void every_op_has_its_own_bytes() {
  DeviceStep step{{4096, 1000, 700000}, 256};
  const Profile profile =
      Profiler<CudaEventTimer, CudaCachingProbe>{}.run(step, {.warmup = 1, .runs = 2});
  const Bytes base = profile.nodes[0].memory.before;
  std::int64_t held = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const MemorySample& seen = profile.nodes[i].memory;
    EXPECT((seen.before - base).count == held);
    EXPECT((seen.peak - base).count == held + 256 + step.bytes[i]);
    EXPECT((seen.after - base).count == held + step.bytes[i]);
    held += step.bytes[i];
  }
  EXPECT((profile.peak - base).count == held + 256);
}

void allocated_bytes_are_blocks() {
  DeviceStep step{{1000, 1}, 0};
  const CudaCachingProbe probe{0, CudaBytes::allocated};
  const Profile profile = Profiler<CudaEventTimer, CudaCachingProbe>{CudaEventTimer{}, probe}.run(
      step, {.warmup = 1, .runs = 1});
  EXPECT((profile.nodes[0].memory.after - profile.nodes[0].memory.before).count == 1024);
  EXPECT((profile.nodes[1].memory.after - profile.nodes[1].memory.before).count == 512);
}

void memory_between_ops_counts_for_the_run() {
  CudaCachingProbe probe;
  auto* allocator = c10::cuda::CUDACachingAllocator::get();
  probe.begin_run();
  const Bytes base = probe.end_run();
  probe.begin_run();
  allocator->allocate(1 << 20).clear();
  probe.begin_op();
  const c10::DataPtr kept = allocator->allocate(512);
  const MemorySample op = probe.end_op();
  EXPECT((op.peak - op.before).count == 512);
  EXPECT((probe.end_run() - base).count == 1 << 20);
  probe.begin_run();  // a new run knows nothing of the last
  EXPECT((probe.end_run() - base).count == 512);
}

void times_are_those_of_the_device() {
  DeviceStep step{{4096, 1000, 700000}, 256};
  const Profile profile =
      Profiler<CudaEventTimer, CudaCachingProbe>{}.run(step, {.warmup = 1, .runs = 3});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT(profile.nodes[i].samples.size() == 3);
    for (const Microseconds sample : profile.nodes[i].samples)
      EXPECT(stand_in_counts() ? near(sample, static_cast<double>(step.bytes[i]) / 1000)
                               : sample.count > 0);
    EXPECT(profile.graph.node(NodeId{i}).time == profile.nodes[i].time);
  }
}

// Known of the stand-in alone: a device does not tell.
void the_host_waits_only_when_a_run_is_over() {
  if (!stand_in_counts()) return;
  CudaEventTimer timer;
  timer.begin_run(100);
  const StandInCounts before = *stand_in_counts();
  for (std::size_t i = 0; i < 100; ++i) {
    timer.start(i);
    timer.stop(i);
  }
  EXPECT(stand_in_counts()->waits == before.waits);
  EXPECT(timer.end_run().size() == 100);
  EXPECT(stand_in_counts()->waits == before.waits + 100);
}

void events_are_kept_from_run_to_run() {
  if (!stand_in_counts()) return;
  const StandInCounts before = *stand_in_counts();
  {
    CudaEventTimer timer;
    for (const std::size_t occurrences : {std::size_t{5}, std::size_t{3}, std::size_t{5}}) {
      timer.begin_run(occurrences);
      EXPECT(timer.end_run() == std::vector<Microseconds>(occurrences));  // nothing was timed
    }
    EXPECT(stand_in_counts()->events_made == before.events_made + 10);
    const CudaEventTimer moved = std::move(timer);
  }
  EXPECT(stand_in_counts()->events_alive == before.events_alive);
}

void an_interrupted_run_leaves_nothing_to_the_next() {
  const c10::DataPtr data = c10::cuda::CUDACachingAllocator::get()->allocate(1000);
  CudaEventTimer timer;
  timer.begin_run(2);
  timer.start(0);
  C10_CUDA_CHECK(cudaMemsetAsync(data.get(), 0, 1000, c10::cuda::getCurrentCUDAStream().stream()));
  timer.stop(0);
  timer.start(1);  // the op throws: no stop
  timer.begin_run(1);
  EXPECT(timer.end_run() == std::vector<Microseconds>{{0}});
}

void what_is_moved_to_the_host_comes_back() {
  constexpr std::size_t bytes = 100000;
  const auto stream = c10::cuda::getCurrentCUDAStream();
  const c10::DataPtr data = c10::cuda::CUDACachingAllocator::get()->allocate(bytes);
  C10_CUDA_CHECK(cudaMemsetAsync(data.get(), 42, bytes, stream.stream()));
  {
    HostMover host;
    const HostMover::Place place = host.write(data.get(), bytes);
    EXPECT(stand_in_counts() ? near(place.time, 100) : place.time.count > 0);
    EXPECT(
        std::vector<char>(bytes, 42) ==
        std::vector<char>(static_cast<char*>(place.host), static_cast<char*>(place.host) + bytes));
    C10_CUDA_CHECK(cudaMemsetAsync(data.get(), 0, bytes, stream.stream()));
    EXPECT(host.read(place, data.get()).count > 0);
    host.release(place);
    const HostMover::Place smaller = host.write(data.get(), bytes / 2);  // where the first one was
    EXPECT(smaller.host == place.host && smaller.room == bytes);
    EXPECT(static_cast<char*>(smaller.host)[bytes / 2 - 1] == 42);
    EXPECT(host.size() == Bytes{bytes});
  }
  if (stand_in_counts()) EXPECT(stand_in_counts()->pinned_blocks_alive == 0);
}

}  // namespace

int main() {
  if (c10::cuda::device_count() == 0) {
    std::cout << "   compiled and linked; no CUDA device here: nothing was run\n";
    return 0;
  }
  test("every op has its own bytes", every_op_has_its_own_bytes);
  test("allocated bytes are those of blocks", allocated_bytes_are_blocks);
  test("memory between two ops counts for the run, not for an op",
       memory_between_ops_counts_for_the_run);
  test("times are those of the device", times_are_those_of_the_device);
  test("the host waits only when a run is over", the_host_waits_only_when_a_run_is_over);
  test("events are kept from run to run", events_are_kept_from_run_to_run);
  test("an interrupted run leaves nothing to the next",
       an_interrupted_run_leaves_nothing_to_the_next);
  test("what is moved to the host comes back", what_is_moved_to_the_host_comes_back);
  test("a captured step can be profiled with these policies", profile_a_captured_step);
  return failures == 0 ? 0 : 1;
}
