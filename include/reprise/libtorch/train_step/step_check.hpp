#pragma once
// Compares a replay with eager, op by op. Both store a hash of every node's results, and the first
// node with different hashes is named.
//
//   NodeHashes replayed, eager;
//   program.run(bindings, HashObserver{replayed});     HashHooks{eager} while the same step is recorded
//   first_difference(replayed, eager);                 the node whose first run made other bits; empty if all are equal

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <reprise/base/hash_bytes.hpp>
#include <reprise/base/ids.hpp>
#include <reprise/libtorch/record/capture.hpp>
#include <reprise/libtorch/replay/program.hpp>
#include <reprise/libtorch/replay/step_snapshot.hpp>

namespace reprise::training {

/// By node: a hash of its results, 0 if there is none.
using NodeHashes = std::vector<std::uint64_t>;

/// Hash of the tensor's bytes, in the order of memory. Tensors with holes are left out, because the
/// bytes in a hole belong to no result.
inline std::uint64_t hash_of(const at::Tensor& t, std::uint64_t hash) {
  if (!t.defined() || !t.has_storage() || t.numel() == 0 || !t.is_non_overlapping_and_dense())
    return hash;
  return hash_bytes({static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes()}, hash);
}

inline void note_hash(NodeHashes& hashes, NodeId n, std::span<const at::Tensor> results) {
  if (hashes.size() <= n.index) hashes.resize(n.index + std::size_t{1}, 0);
  if (hashes[n.index] != 0) return;  // a recomputation
  std::uint64_t hash = 1;
  for (const at::Tensor& t : results) hash = hash_of(t, hash);
  hashes[n.index] = hash;
}

/// Whether both have the same bits in the same places; two undefined tensors are equal.
[[nodiscard]] inline bool equal_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.sizes() != b.sizes() || a.strides() != b.strides() || a.scalar_type() != b.scalar_type())
    return false;
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

struct HashObserver {
  NodeHashes& hashes;
  template <class Tensors>
  void before(std::size_t /*occurrence*/, NodeId /*node*/, const Tensors& /*tensors*/) {}
  template <class Tensors>
  void after(std::size_t /*occurrence*/, NodeId node, const Tensors& tensors) {
    const std::vector<at::Tensor> made = tensors();
    note_hash(hashes, node, made);
  }
};

/// The same while a step is recorded. Only nodes whose results are all returned can be compared,
/// because the recorder sees returned results only.
struct HashHooks final : RecorderHooks {
  NodeHashes hashes{};
  /// of the captured step: tells which results of an op became values
  const Recording* known = nullptr;

  void after(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> results,
             NodeId node) override {
    std::vector<at::Tensor> made;
    // the bytes of fresh memory belong to no result
    if (op.schema().name().find("empty") != std::string::npos) return;
    if (node.index >= known->calls.size()) return;
    for (const ResultSlot& slot : known->calls[node.index].results) {
      if (slot.from != ResultSlot::From::returned || slot.index >= results.size()) return;
      const c10::IValue& value = results[slot.index];
      if (slot.element < 0 && value.isTensor()) made.push_back(value.toTensor());
      else if (slot.element >= 0 && value.isList())
        made.push_back(value.toListRef()[static_cast<std::size_t>(slot.element)].toTensor());
      else return;
    }
    note_hash(hashes, node, made);
  }
};

[[nodiscard]] inline std::optional<NodeId> first_difference(const NodeHashes& a,
                                                            const NodeHashes& b) {
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (a[i] != 0 && b[i] != 0 && a[i] != b[i]) return NodeId{i};
  return std::nullopt;
}

/// As text for an error; empty if there is no difference.
[[nodiscard]] inline std::string describe_difference(const StepGraph& graph,
                                                     std::optional<NodeId> n) {
  if (!n) return {};
  return "node " + std::to_string(n->index) + " (" + graph.node(*n).name +
         ") made other bits than eager";
}

/// Compares a replay's results with eager's: `results`, and the gradients that the leaves now have.
/// Empty if they are equal.
[[nodiscard]] inline std::string compare_handed_over(const CapturedStep& step,
                                                     const RunOutcome& ours,
                                                     const std::vector<at::Tensor>& results,
                                                     const std::vector<NamedTensor>& leaves) {
  for (std::size_t i = 0; i < std::min(results.size(), ours.results.size()); ++i)
    if (!equal_bits(results[i], ours.results[i]))
      return "result " + std::to_string(i) + " is not eager's";
  const auto& gradient_of = step.gradient_of();
  for (std::size_t i = 0; i < gradient_of.size(); ++i)
    if (!equal_bits(leaves[gradient_of[i]].tensor.grad(), ours.gradients[i]))
      return "the gradient of " + leaves[gradient_of[i]].name + " is not eager's";
  return {};
}

/// Finds a closure tensor that was exchanged for another tensor of the same shape, while the graphs
/// are equal. Both must be alive; the next replay notices a dead one. Empty if no tensor was
/// exchanged.
[[nodiscard]] inline std::string exchanged_tensor(const Recording& before, const Recording& now) {
  const auto captured_in = [](const Recording& recording) {
    std::vector<const RecordedValue*> found;
    for (const RecordedValue& value : recording.values)
      if (value.origin == Origin::captured && value.outside->captured) found.push_back(&value);
    return found;
  };
  const auto old_ones = captured_in(before), new_ones = captured_in(now);
  for (std::size_t i = 0; i < std::min(old_ones.size(), new_ones.size()); ++i) {
    const auto old_storage = old_ones[i]->outside->captured->lock(),
               new_storage = new_ones[i]->outside->captured->lock();
    if (!old_storage || !new_storage) continue;
    if (old_storage == new_storage &&
        old_ones[i]->geometry->offset == new_ones[i]->geometry->offset)
      continue;
    return "the loss function reads another tensor in the place of '" + old_ones[i]->name() +
           "', which is neither an argument nor of the model: pass it as an argument";
  }
  return {};
}

/// Whether data decides the node's result (a number for user code, a shape). Another such number
/// does not make another step: the new capture is used from then on.
[[nodiscard]] inline bool is_data_decided(const Recording& recording, NodeId n) {
  if (n.index >= recording.calls.size() || recording.calls[n.index].kind != CallKind::op)
    return false;
  const OpFacts& facts = *recording.calls[n.index].facts;
  return facts.returns_host_value || facts.dynamic_shape;
}

/// Whether the n-th call of a capture is compared with the graph. The capture itself is call 1.
[[nodiscard]] inline bool is_recheck_due(std::int64_t n) {
  return n <= 4 || n % 100 == 0 || (n < 100 && (n & (n - 1)) == 0);
}

}  // namespace reprise::training
