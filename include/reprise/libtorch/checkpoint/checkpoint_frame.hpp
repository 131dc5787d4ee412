#pragma once
// A CheckpointFrame is what a checkpointed region keeps until its backward: no activations, but
// everything that their recomputation needs.
//
//   h = x.mm(w); y = h.relu(); return y.mm(v);        the region, over the argument x
//
//   arguments    {x}                                  kept, with the number of writes to it so far
//   items        0: x, 1: w      not made inside:     kept as autograd would, because they exist anyway
//                2: y            made inside:         shape and producing op (aten::relu); its bytes are freed during the forward
//                3: v            not made inside
//   run          calls the function again, on new tensors over the arguments' storages
//
// Items are numbered in the order in which autograd saves them. The recomputation saves in the same
// order, so its number 2 is y. When the backward of an item is done, autograd releases the item.
// The recomputation stops at the last item that autograd still needs.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/graph_task.h>

#include <reprise/base/error.hpp>
#include <reprise/libtorch/torch/ambient_state.hpp>
#include <reprise/libtorch/torch/geometry.hpp>
#include <reprise/libtorch/torch/op_facts.hpp>
#include <reprise/libtorch/torch/saved_tensors.hpp>

namespace reprise::checkpointing {

struct CheckpointOptions {
  /// Results of these ops ("aten::mm") are kept from the forward; everything else is recomputed.
  /// See keep_matmuls().
  std::function<bool(std::string_view op)> keep{};
  /// Stop the recomputation at the last tensor that backward needs. An exception does that: set
  /// false if a function in the region is noexcept or catches everything.
  bool early_stop = true;
};

/// The number of writes to a tensor, and whether more have come since.
class VersionSnapshot {
 public:
  VersionSnapshot() = default;
  explicit VersionSnapshot(const at::Tensor& t)
      : counter_(t.unsafeGetTensorImpl()->version_counter()), then_(count()) {}
  [[nodiscard]] bool written_since() const { return count() != then_; }
  [[nodiscard]] std::uint32_t then() const { return then_; }
  [[nodiscard]] std::uint32_t count() const {
    return counter_.enabled() ? counter_.current_version() : 0;
  }
  void set_back() {
    if (counter_.enabled()) counter_.set_version(then_);
  }

 private:
  c10::VariableVersion counter_{c10::VariableVersion::DISABLED};
  std::uint32_t then_ = 0;
};

/// A saved tensor: autograd gets the same tensor, or a recomputed one.
struct SavedItem {
  c10::SmallVector<std::int64_t, 5> sizes{};
  at::ScalarType dtype = at::ScalarType::Undefined;
  at::Device device = at::kCPU;
  const OpFacts* maker = nullptr;
  VersionSnapshot mark{};
  bool made_inside = false;
  bool wanted = false;                       ///< autograd still needs it
  std::shared_ptr<SavedTensor> elsewhere{};  ///< for an item that was not made inside
};

struct SavedArgument {
  /// null if the region wrote to it: `old` then has its former contents
  std::shared_ptr<SavedTensor> tensor{};
  std::ptrdiff_t old = -1;
  Geometry geometry{};
  VersionSnapshot mark{};
  bool requires_grad = false, leaf = true;
};

/// Contents of a storage from before the region, copied before the region's first write to it.
struct OldContents {
  std::shared_ptr<SavedTensor> bytes{};
  /// for a storage that is no argument: its old contents are restored during the recomputation
  std::optional<c10::Storage> storage{};
};

/// A call whose results were kept. It has no results if they were written afterwards: the call must
/// then be recomputed.
struct KeptCall {
  const OpFacts* op = nullptr;
  std::vector<std::pair<std::shared_ptr<SavedTensor>, VersionSnapshot>> results{};
  std::optional<GeneratorState> generator_after{};
};

/// A saved tensor's description: "[4, 8] float".
[[nodiscard]] inline std::string shape_text(c10::IntArrayRef sizes, at::ScalarType dtype) {
  return c10::str(sizes, " ", c10::toString(dtype));
}
[[nodiscard]] inline std::string maker_text(const OpFacts* maker) {
  return maker == nullptr ? "no op that was seen" : maker->name;
}

/// A storage's bytes as a tensor.
[[nodiscard]] inline at::Tensor bytes_of(const c10::Storage& storage, const at::Tensor& like) {
  Geometry g;
  g.sizes = {static_cast<std::int64_t>(storage.nbytes())};
  g.strides = {1};
  g.dtype = at::kByte;
  return tensor_over(storage, g, like);
}

class CheckpointFrame : public std::enable_shared_from_this<CheckpointFrame> {
 public:
  explicit CheckpointFrame(CheckpointOptions o)
      : options(std::move(o)), then(AmbientState::now()) {}

  CheckpointOptions options;
  AmbientState then;
  /// calls the function with these tensors instead of its own
  std::function<void(std::vector<at::Tensor>&&)> run{};
  std::vector<SavedArgument> arguments{};
  std::vector<OldContents> old{};
  std::vector<KeptCall> kept{};
  std::vector<SavedItem> items{};
  std::map<std::size_t, at::Tensor> ready{};  ///< recomputed, and not yet asked for
  bool complete = false;                      ///< the forward has ended

  /// The item: the kept tensor, or a recomputed one.
  [[nodiscard]] at::Tensor unpack(std::size_t index) {
    std::unique_lock lock(guard_);
    const SavedItem& item = items[index];
    if (item.mark.written_since()) throw_written(item);
    if (item.elsewhere) {
      const std::shared_ptr<SavedTensor> elsewhere = item.elsewhere;
      lock.unlock();
      return elsewhere->get();
    }
    const int task = torch::autograd::get_current_graph_task_id();
    if (task != ready_for_ || !ready.contains(index)) recompute(task);
    at::Tensor tensor = std::move(ready.extract(index).mapped());
    if (task < 0) ready.clear();  // outside of backward, no end is reported
    return tensor;
  }

  /// Autograd has released the item.
  void release(std::size_t index) {
    at::Tensor no_longer_ready;
    std::shared_ptr<SavedTensor> no_longer_held;  // both are released without the lock
    const std::lock_guard lock(guard_);
    items[index].wanted = false;
    no_longer_held = std::move(items[index].elsewhere);
    if (auto node = ready.extract(index)) no_longer_ready = std::move(node.mapped());
  }

  [[nodiscard]] bool is_missing(std::size_t index) const {
    return items[index].wanted && items[index].made_inside && !ready.contains(index);
  }

 private:
  void recompute(int task);

  [[noreturn]] static void throw_written(const SavedItem& item) {
    throw Error(Errc::recompute_failed,
                "checkpoint: a tensor that backward needs, made by " + maker_text(item.maker) +
                    " (" + shape_text(item.sizes, item.dtype) +
                    "), was written in place after it was saved (version " +
                    std::to_string(item.mark.count()) + ", saved at version " +
                    std::to_string(item.mark.then()) +
                    "); without a checkpoint autograd refuses this too: write to a clone");
  }

  std::recursive_mutex guard_{};
  int ready_for_ = -1;  ///< the backward pass that `ready` belongs to
  bool running_ = false;
};

/// An item in the form in which autograd keeps it.
class ItemOfFrame final : public SavedTensor {
 public:
  ItemOfFrame(std::shared_ptr<CheckpointFrame> frame, std::size_t index)
      : frame_(std::move(frame)), index_(index) {}
  ~ItemOfFrame() override { frame_->release(index_); }
  ItemOfFrame(const ItemOfFrame&) = delete;
  ItemOfFrame& operator=(const ItemOfFrame&) = delete;
  [[nodiscard]] at::Tensor get() override { return frame_->unpack(index_); }

 private:
  std::shared_ptr<CheckpointFrame> frame_;
  std::size_t index_;
};

}  // namespace reprise::checkpointing

namespace reprise {
using checkpointing::CheckpointOptions;
}  // namespace reprise
