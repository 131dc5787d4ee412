#pragma once
// An AllocationTrace lists the blocks that each op allocates, in order. An arena needs this list in
// addition to the graph.
//
//   aten::native_dropout      0  4096 B  lives on as result 0
//                             1  1024 B  lives on as result 1
//   aten::convolution         0  8192 B  workspace, freed before block 1 was taken: both may have the same address
//                             1  8192 B  workspace: dead when the op returns
//                             2  4096 B  lives on as result 0
//
// TraceHooks fills it while a step is captured. Blocks of other threads inside an op are not seen,
// and never get a planned address.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <reprise/base/ids.hpp>
#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/record/recorder.hpp>

namespace reprise::recording {

struct TracedAllocation {
  static constexpr std::uint32_t workspace = ~std::uint32_t{0};
  static constexpr std::uint32_t at_the_end = ~std::uint32_t{0};
  std::size_t bytes = 0;
  std::uint32_t result = workspace;  ///< the op's result that is in the block
  std::int32_t element = -1;         ///< for a result that is a list
  /// for a workspace: the op's allocation before which it was freed
  std::uint32_t dead_at = at_the_end;
};

/// By node; a node that did not run has no list.
struct AllocationTrace {
  struct Op {
    bool seen = false;
    std::vector<TracedAllocation> allocations{};
  };
  std::vector<Op> ops{};

  [[nodiscard]] const Op* find(NodeId n) const {
    return n.index < ops.size() && ops[n.index].seen ? &ops[n.index] : nullptr;
  }
};

/// Lists the allocations of one op on this thread, from begin() to end().
class AllocationNotes final : public BlockSource {
 public:
  AllocationNotes() = default;
  ~AllocationNotes() override { stop(); }
  AllocationNotes(const AllocationNotes&) = delete;
  AllocationNotes& operator=(const AllocationNotes&) = delete;

  void begin() {
    stop();
    taken_.clear();
    serials_.clear();
    outer_ = std::exchange(block_source(), this);
    on_ = true;
  }
  /// The op threw: its list is useless.
  void stop() {
    if (std::exchange(on_, false)) block_source() = outer_;
  }
  void end(c10::ArrayRef<c10::IValue> results, AllocationTrace& trace, NodeId n) {
    stop();
    for (std::uint32_t k = 0; k < results.size() && !taken_.empty(); ++k) {
      if (results[k].isTensor()) match(results[k].toTensor(), k, -1);
      if (!results[k].isTensorList()) continue;
      std::int32_t element = 0;
      for (const c10::IValue& item : results[k].toListRef()) match(item.toTensor(), k, element++);
    }
    if (trace.ops.size() <= n.index) trace.ops.resize(n.index + std::size_t{1});
    trace.ops[n.index] = {true, std::move(taken_)};
    taken_.clear();
  }

  std::byte* take(std::size_t bytes, std::uint32_t& /*number*/) override {
    taken_.push_back({.bytes = bytes});
    serials_.push_back(0);
    return nullptr;
  }
  void came_from_system(std::uint64_t serial) override { serials_.back() = serial; }
  void give_back(std::uint32_t /*number*/) override {}
  void freed(std::uint64_t serial) override {
    for (std::size_t i = serials_.size(); i-- > 0;)
      if (serials_[i] == serial) taken_[i].dead_at = static_cast<std::uint32_t>(taken_.size());
  }

 private:
  void match(const at::Tensor& tensor, std::uint32_t result, std::int32_t element) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const std::uint64_t serial = CountingAllocator::serial_of(tensor.storage().data_ptr());
    for (std::size_t i = 0; i < serials_.size(); ++i)
      if (serials_[i] == serial && taken_[i].result == TracedAllocation::workspace) {
        taken_[i].result = result;
        taken_[i].element = element;
      }
  }

  std::vector<TracedAllocation> taken_;
  std::vector<std::uint64_t> serials_;
  BlockSource* outer_ = nullptr;
  bool on_ = false;
};

/// Fills a trace while a step is captured.
struct TraceHooks final : RecorderHooks {
  AllocationTrace trace{};

  void before(const c10::OperatorHandle& /*op*/,
              c10::ArrayRef<c10::IValue> /*arguments*/) override {
    notes_.begin();
  }
  void after(const c10::OperatorHandle& /*op*/, c10::ArrayRef<c10::IValue> results,
             NodeId node) override {
    notes_.end(results, trace, node);
  }

 private:
  AllocationNotes notes_;
};

}  // namespace reprise::recording
