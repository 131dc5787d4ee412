#pragma once
// ContentChecks compares the bytes that a recomputation reads and makes with those of the first
// run. A check for a user who doubts a result.
//
//   MemoryBudget budget{4_GiB, {.run = {.verify_every = 1}}};
//
// keeps a digest of every operand and result of an op's first run, and compares it when the op is
// recomputed. The first difference throws an error that names the op and the value. Without the
// check, the difference would become a wrong gradient much later. Each check reads every operand
// once more.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>

#include <c10/core/ScalarType.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <reprise/base/error.hpp>
#include <reprise/base/hash_bytes.hpp>
#include <reprise/libtorch/record/recording.hpp>

namespace reprise::guided {

/// Digest of the bytes that a tensor shows. Bytes between them may never have been written.
[[nodiscard]] inline std::uint64_t digest_of(const c10::StorageImpl& storage, const Geometry& g) {
  const auto* bytes = static_cast<const std::byte*>(
      const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks().get());
  if (bytes == nullptr || std::ranges::find(g.sizes, 0) != g.sizes.end()) return 0;
  struct Dimension {
    std::int64_t stride, size;
  };
  c10::SmallVector<Dimension, 6> outer;
  for (std::size_t i = 0; i < g.sizes.size(); ++i)
    if (g.sizes[i] > 1 && g.strides[i] > 0) outer.push_back({g.strides[i], g.sizes[i]});
  std::ranges::sort(outer, std::greater{}, &Dimension::stride);
  std::int64_t run = 1, last = g.offset;
  for (const Dimension& d : outer) last += d.stride * (d.size - 1);
  while (!outer.empty() && outer.back().stride == run) run *= outer.pop_back_val().size;
  const auto item = static_cast<std::int64_t>(c10::elementSize(g.dtype));
  if (static_cast<std::uint64_t>((last + 1) * item) > storage.nbytes()) return 0;
  std::uint64_t digest = 1;
  c10::SmallVector<std::int64_t, 6> index(outer.size(), 0);
  for (;;) {
    std::int64_t offset = g.offset;
    for (std::size_t i = 0; i < outer.size(); ++i) offset += index[i] * outer[i].stride;
    digest = hash_bytes({bytes + offset * item, static_cast<std::size_t>(run * item)}, digest);
    std::size_t i = outer.size();
    while (i > 0 && ++index[i - 1] == outer[i - 1].size) index[--i] = 0;
    if (i == 0) return digest;
  }
}

class ContentChecks {
 public:
  /// The call is about to run: digest of its operand k.
  void note_operand(const Call& call, NodeId node, std::size_t k, const Recording& recording,
                    const c10::StorageImpl& storage) {
    operands_[key(node, k)] =
        digest_of(storage, recording.values[call.reads[k].value.index].geometry);
  }
  /// The call has made this value.
  void note_result(const Recording& recording, ValueId value, const c10::StorageImpl& storage) {
    results_[value.index] = digest_of(storage, recording.values[value.index].geometry);
  }

  void check_operand(const Recording& recording, NodeId node, std::size_t k,
                     const c10::StorageImpl& storage) const {
    const auto it = operands_.find(key(node, k));
    const ValueId operand = recording.calls[node.index].reads[k].value;
    if (it != operands_.end() &&
        it->second != digest_of(storage, recording.values[operand.index].geometry))
      throw Error(Errc::capture_failed, "verify: node " + std::to_string(node.index) + " (" +
                                            recording.calls[node.index].op_name() +
                                            ") must be recomputed, but its operand, " +
                                            recording.describe(operand) +
                                            ", has changed since its first run");
  }
  /// `recomputed`: the bytes come from a recomputation. Otherwise the user's ops are about to read
  /// them.
  void check_result(const Recording& recording, ValueId value, const c10::StorageImpl& storage,
                    bool recomputed) const {
    const auto it = results_.find(value.index);
    if (it == results_.end() ||
        it->second == digest_of(storage, recording.values[value.index].geometry))
      return;
    throw Error(
        Errc::capture_failed,
        "verify: " + (recomputed ? "recomputing " + recording.describe(value) +
                                       " gave other bytes than its first run"
                                 : recording.describe(value) +
                                       " was changed after its node ran, and not by an op"));
  }

 private:
  static std::uint64_t key(NodeId node, std::size_t k) {
    return (std::uint64_t{node.index} << 16) | k;
  }

  std::unordered_map<std::uint64_t, std::uint64_t> operands_;
  std::unordered_map<std::uint32_t, std::uint64_t> results_;
};

}  // namespace reprise::guided
