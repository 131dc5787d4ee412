// Which blocks an op takes from the allocator.

#include <torch/torch.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/record/allocation_trace.hpp>

using namespace reprise;
using namespace reprise::recording;
using torch::Tensor;

TEST_CASE("an op's blocks are told in order: results, workspaces, and when those end",
          "[allocation_trace]") {
  AllocationTrace trace;
  AllocationNotes notes;
  notes.begin();
  Tensor early = torch::empty({16});  // 64 bytes, freed before the next one
  early.reset();
  const Tensor first = torch::empty({32}), workspace = torch::empty({8}),
               second = torch::empty({4});
  const std::vector<c10::IValue> results{first, std::vector<Tensor>{second}};
  notes.end(results, trace, NodeId{2});
  static_cast<void>(torch::empty({64}));  // after the op

  CHECK(trace.find(NodeId{0}) == nullptr);
  CHECK(trace.find(NodeId{7}) == nullptr);
  const AllocationTrace::Op* op = trace.find(NodeId{2});
  REQUIRE(op != nullptr);
  REQUIRE(op->allocations.size() == 4);
  const auto is = [&](std::size_t i, std::size_t bytes, std::uint32_t result, std::int32_t element,
                      std::uint32_t dead_at) {
    const TracedAllocation& a = op->allocations[i];
    return a.bytes == bytes && a.result == result && a.element == element && a.dead_at == dead_at;
  };
  constexpr auto none = TracedAllocation::workspace, end = TracedAllocation::at_the_end;
  CHECK(is(0, 64, none, -1, 1));
  CHECK(is(1, 128, 0, -1, end));
  CHECK(is(2, 32, none, -1, end));
  CHECK(is(3, 16, 1, 0, end));
}

TEST_CASE("of an op that threw nothing is noted, and notes can be taken inside of notes",
          "[allocation_trace]") {
  AllocationTrace trace;
  AllocationNotes outer, inner;
  outer.begin();
  inner.begin();
  static_cast<void>(torch::empty({16}));
  inner.stop();
  const Tensor made = torch::empty({4});
  outer.end(std::vector<c10::IValue>{made}, trace, NodeId{0});
  REQUIRE(trace.find(NodeId{0})->allocations.size() == 1);
  CHECK(trace.find(NodeId{0})->allocations[0].bytes == 16);
}
