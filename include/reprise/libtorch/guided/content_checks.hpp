#pragma once
// Whether what runs again starts from the same bytes and makes the same bytes: a check for whoever doubts a result.
//
//   MemoryBudget budget{4_GiB, {.verify = true}};
//
// keeps a digest of everything that an op read and made when it first ran, and compares when it runs again. The first difference throws
// and names the op and the value; without the check it would become a wrong gradient much later. Costs a pass over every operand.

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include <c10/core/StorageImpl.h>

#include <reprise/base/error.hpp>
#include <reprise/libtorch/record/graph_of.hpp>
#include <reprise/libtorch/record/recording.hpp>
#include <reprise/libtorch/torch/storage_table.hpp>

namespace reprise {

class ContentChecks {
 public:
  /// The call has not run: what its argument number k holds.
  void note_operand(NodeId node, std::size_t k, const c10::StorageImpl& storage) { operands_[key(node, k)] = digest_of(storage); }
  /// A call has made this.
  void note_result(ValueId value, const c10::StorageImpl& storage) { results_[value.index] = digest_of(storage); }

  void check_operand(const Recording& recording, NodeId node, std::size_t k, const c10::StorageImpl& storage) const {
    const auto it = operands_.find(key(node, k));
    if (it != operands_.end() && it->second != digest_of(storage))
      throw Error(Errc::capture_failed, "node " + std::to_string(node.index) + " (" + recording.calls[node.index].op_name() +
                                            ") is to run again from another " +
                                            detail::describe(recording, recording.calls[node.index].reads[k].value));
  }
  void check_result(const Recording& recording, ValueId value, const c10::StorageImpl& storage) const {
    const auto it = results_.find(value.index);
    if (it != results_.end() && it->second != digest_of(storage))
      throw Error(Errc::capture_failed, detail::describe(recording, value) + " came out otherwise when it was made again");
  }

 private:
  static std::uint64_t key(NodeId node, std::size_t k) { return (std::uint64_t{node.index} << 16) | k; }

  std::unordered_map<std::uint64_t, std::uint64_t> operands_;
  std::unordered_map<std::uint32_t, std::uint64_t> results_;
};

}  // namespace reprise
