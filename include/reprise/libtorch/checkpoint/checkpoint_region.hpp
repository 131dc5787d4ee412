#pragma once
// A checkpointed region while it runs, the first time (ForwardRegion) and in a recomputation
// (RecomputeRegion). Both watch the ops to know which storages are made inside, and autograd asks
// both to keep tensors.
//
//   forward      describes and frees what is made inside, keeps everything else; copies the contents of a storage from before the
//                region before an op writes to it
//   recompute    keeps what backward needs; restores afterwards what the region writes outside of itself
//
// Regions nest. An inner region's arguments, and other tensors that the inner region did not make,
// are items of the outer region. They may be made inside the outer region, and are then freed too.
// The outer region counts everything that the inner region saves, needed or not. Its numbers are
// then the same in both runs, whichever storages the inner region uses.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/variable.h>

#include <reprise/libtorch/checkpoint/checkpoint_frame.hpp>
#include <reprise/libtorch/torch/dispatch_hook.hpp>
#include <reprise/libtorch/torch/tensor_slots.hpp>

namespace reprise::checkpointing {

inline at::Tensor copy_unseen(const at::Tensor& t) {
  const c10::impl::ExcludeDispatchKeyGuard unseen(DispatchHook::above());
  return t.clone();
}

/// The storages that were made inside a region, each with the last op that made it.
class StoragesMadeInside {
 public:
  using Arguments = c10::SmallVector<const c10::StorageImpl*, 8>;

  [[nodiscard]] static Arguments storages_of(c10::ArrayRef<c10::IValue> arguments) {
    Arguments storages;
    for (const c10::IValue& argument : arguments)
      for_each_tensor_of(argument, [&](const at::Tensor& t) {
        if (t.has_storage()) storages.push_back(t.storage().unsafeGetStorageImpl());
      });
    return storages;
  }

  /// Results of the op in storages that it did not get as arguments are made inside.
  void note_results(const OpFacts& facts, const Arguments& arguments,
                    c10::ArrayRef<c10::IValue> results) {
    for (const c10::IValue& result : results)
      for_each_tensor_of(result, [&](const at::Tensor& t) {
        if (!t.has_storage()) return;
        const c10::StorageImpl* storage = t.storage().unsafeGetStorageImpl();
        const bool given =
            std::find(arguments.begin(), arguments.end(), storage) != arguments.end();
        if (!given || makers_.contains(storage)) makers_[storage] = &facts;
      });
  }
  void note(const c10::StorageImpl* storage, const OpFacts& maker) { makers_[storage] = &maker; }

  /// The op that made the tensor's storage; null if it was not made inside.
  [[nodiscard]] const OpFacts* maker(const at::Tensor& t) const {
    if (!t.has_storage()) return nullptr;
    const auto it = makers_.find(t.storage().unsafeGetStorageImpl());
    return it == makers_.end() ? nullptr : it->second;
  }

 private:
  std::unordered_map<const c10::StorageImpl*, const OpFacts*> makers_{};
};

class CheckpointRegion : public DispatchHook, public SavedTensorHooks {
 public:
  explicit CheckpointRegion(CheckpointRegion* outer)
      : outer_(outer),
        recorder_(innermost() != nullptr ? innermost()->recorder_ : DispatchHook::current()),
        keeping_(*this) {
    switch_on_above();
    before_ = std::exchange(innermost(), this);
  }
  ~CheckpointRegion() override {
    switch_off();
    innermost() = before_;
  }

  /// Counts the tensor. The result returns it later; null if it is not wanted.
  [[nodiscard]] virtual std::shared_ptr<SavedTensor> take(const at::Tensor& tensor,
                                                          bool wanted) = 0;
  [[nodiscard]] std::shared_ptr<SavedTensor> keep(const at::Tensor& tensor) final {
    return take(tensor, true);
  }

  REPRISE_ONE_PER_PROCESS static CheckpointRegion*& innermost() {
    thread_local CheckpointRegion* region = nullptr;
    return region;
  }

 protected:
  /// A tensor that this region made for its own use while `op` ran. The outer regions did not see
  /// it, so they get it here.
  [[nodiscard]] std::shared_ptr<SavedTensor> keep_own(const at::Tensor& tensor, const OpFacts& op) {
    for (CheckpointRegion* r = outer_; r != nullptr; r = r->outer_)
      r->inside_.note(tensor.storage().unsafeGetStorageImpl(), op);
    return keep_outside(tensor, true);
  }
  [[nodiscard]] std::shared_ptr<SavedTensor> keep_outside(const at::Tensor& tensor, bool wanted) {
    if (outer_ != nullptr) return outer_->take(tensor, wanted);
    return wanted ? std::make_shared<SavedAsItIs>(tensor) : nullptr;
  }
  [[nodiscard]] DispatchHook* recorder() const { return recorder_; }

  StoragesMadeInside inside_{};

 private:
  CheckpointRegion* outer_;
  DispatchHook* recorder_;  ///< the hook below all regions of this thread
  KeepSavedTensors keeping_;
  CheckpointRegion* before_ = nullptr;
};

class ForwardRegion final : public CheckpointRegion {
 public:
  ForwardRegion(std::shared_ptr<CheckpointFrame> frame, const std::vector<at::Tensor>& arguments)
      : CheckpointRegion(innermost()), frame_(std::move(frame)) {
    for (const at::Tensor& t : arguments) add_argument(t);
  }

  [[nodiscard]] std::shared_ptr<SavedTensor> take(const at::Tensor& tensor, bool wanted) override {
    SavedItem item;
    item.maker = inside_.maker(tensor);
    item.made_inside = item.maker != nullptr;
    std::shared_ptr<SavedTensor> elsewhere = keep_outside(tensor, wanted && !item.made_inside);
    if (wanted) {
      item.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
      item.dtype = tensor.scalar_type();
      item.device = tensor.device();
      item.mark = VersionSnapshot(tensor);
      item.wanted = true;
      item.elsewhere = std::move(elsewhere);
    }
    frame_->items.push_back(std::move(item));
    if (!wanted) return nullptr;
    return std::make_shared<ItemOfFrame>(frame_, frame_->items.size() - 1);
  }

 private:
  void add_argument(const at::Tensor& t) {
    SavedArgument argument;
    argument.mark = VersionSnapshot(t);
    argument.requires_grad = t.requires_grad();
    argument.leaf = t.is_leaf();
    argument.tensor = keep_outside(t, true);
    if (is_plain(t)) {
      argument.geometry = geometry_of(t);
      argument_storages_.emplace_back(t.storage().getWeakStorageImpl());
    } else {
      argument_storages_.emplace_back(c10::intrusive_ptr<c10::StorageImpl>());
    }
    frame_->arguments.push_back(std::move(argument));
  }

  void on_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
             torch::jit::Stack& stack) override {
    const OpFacts& facts = facts_of(op);
    const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
    before_writes(facts, arguments);
    if (facts.random) note_generators(arguments);
    const StoragesMadeInside::Arguments given = StoragesMadeInside::storages_of(arguments);
    run_in(below(), op, keys, stack);
    const auto results = torch::jit::last(stack, op.schema().returns().size());
    inside_.note_results(facts, given, results);
    if (frame_->options.keep && frame_->options.keep(facts.name))
      keep_results(facts, given, results);
  }

  void before_writes(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (!facts.writes[i]) continue;
      for_each_tensor_of(arguments[i], [&](const at::Tensor& t) {
        if (t.has_storage()) before_write(facts, t, recorded_by_autograd(arguments));
      });
    }
    if (!facts.moves_statistics() || !arguments[facts.training].toBool()) return;
    for (std::size_t i : facts.statistics)
      for_each_tensor_of(arguments[i], [&](const at::Tensor& t) { before_write(facts, t, false); });
  }

  static bool recorded_by_autograd(c10::ArrayRef<c10::IValue> arguments) {
    bool recorded = false;
    for (const c10::IValue& argument : arguments)
      for_each_tensor_of(argument,
                         [&](const at::Tensor& t) { recorded = recorded || t.requires_grad(); });
    return recorded && at::GradMode::is_enabled();
  }

  void before_write(const OpFacts& facts, const at::Tensor& t, bool recorded) {
    const c10::StorageImpl* storage = t.storage().unsafeGetStorageImpl();
    if (inside_.maker(t) != nullptr) {
      if (const auto it = kept_in_.find(storage); it != kept_in_.end())
        frame_->kept[it->second].results.clear();
      return;
    }
    for (const auto& [written, holds] : written_)
      if (written == storage) return;
    const bool is_argument =
        std::any_of(argument_storages_.begin(), argument_storages_.end(),
                    [&](const auto& weak) { return weak._unsafe_get_target() == storage; });
    if (recorded && !is_argument)
      throw Error(Errc::recompute_failed,
                  "checkpoint: " + facts.name + " writes in place to a tensor (" +
                      shape_text(t.sizes(), t.scalar_type()) +
                      ") that the function captures, and autograd records it; computing again "
                      "would record it a "
                      "second time: pass the tensor as an argument, or write to a clone");
    save_contents(facts, t, is_argument);
  }

  void save_contents(const OpFacts& facts, const at::Tensor& t, bool is_argument) {
    OldContents old;
    old.bytes = keep_own(copy_unseen(bytes_of(t.storage(), t)), facts);
    if (!is_argument) old.storage = t.storage();
    frame_->old.push_back(std::move(old));
    written_.emplace_back(t.storage().unsafeGetStorageImpl(), t.storage());
    for (std::size_t i = 0; i < argument_storages_.size(); ++i) {
      if (argument_storages_[i]._unsafe_get_target() != t.storage().unsafeGetStorageImpl())
        continue;
      frame_->arguments[i].old = static_cast<std::ptrdiff_t>(frame_->old.size()) - 1;
      frame_->arguments[i].tensor.reset();
    }
  }

  // The CPU's default generator is known from the start, every other generator from its first draw.
  void note_generators(c10::ArrayRef<c10::IValue> arguments) {
    at::Generator generator;
    at::Device device = at::kCPU;
    for (const c10::IValue& argument : arguments) {
      if (argument.isGenerator()) generator = argument.toGenerator();
      for_each_tensor_of(argument, [&](const at::Tensor& t) { device = t.device(); });
    }
    if (!generator.defined() && device.type() != at::kCPU)
      generator = at::globalContext().defaultGenerator(device);
    if (!generator.defined() || generator == at::detail::getDefaultCPUGenerator()) return;
    for (const GeneratorCopy& known : frame_->then.others)
      if (known.generator == generator) return;
    frame_->then.others.emplace_back(generator);
  }

  void keep_results(const OpFacts& facts, const StoragesMadeInside::Arguments& given,
                    c10::ArrayRef<c10::IValue> results) {
    KeptCall& call = frame_->kept.emplace_back();
    call.op = &facts;
    for (const c10::IValue& result : results) {
      if (!result.isTensor() || !result.toTensor().defined() || !is_plain(result.toTensor()))
        return call.results.clear();
      const at::Tensor& t = result.toTensor();
      const c10::StorageImpl* storage = t.storage().unsafeGetStorageImpl();
      // a view, or an in-place result
      if (std::find(given.begin(), given.end(), storage) != given.end())
        return call.results.clear();
      call.results.emplace_back(keep_outside(t, true), VersionSnapshot(t));
      kept_in_[storage] = frame_->kept.size() - 1;
    }
    if (facts.random) call.generator_after = GeneratorState::now();
  }

  std::shared_ptr<CheckpointFrame> frame_;
  // weak: this prevents reuse of their addresses
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> argument_storages_{};
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> written_{};
  std::unordered_map<const c10::StorageImpl*, std::size_t> kept_in_{};
};

class RecomputeRegion final : public CheckpointRegion {
 public:
  /// Thrown when everything that backward needs has been recomputed. No std::exception, so that a
  /// function that catches these lets it pass.
  struct EarlyStop {};

  explicit RecomputeRegion(CheckpointFrame& frame) : CheckpointRegion(nullptr), frame_(frame) {
    for (std::size_t i = 0; i < frame_.items.size(); ++i)
      missing_ += frame_.is_missing(i) ? 1U : 0U;
    last_pass_ = torch::autograd::get_current_graph_task_id() >= 0 &&
                 !torch::autograd::get_current_graph_task_keep_graph();
  }
  ~RecomputeRegion() override {
    for (auto mark = written_.rbegin(); mark != written_.rend(); ++mark) mark->set_back();
  }

  [[nodiscard]] std::shared_ptr<SavedTensor> take(const at::Tensor& tensor, bool wanted) override {
    const std::size_t index = next_++;
    if (index < frame_.items.size()) offer(index, tensor);
    else if (frame_.complete) throw_more(tensor);
    // kept for backward passes inside the function
    return wanted ? std::make_shared<SavedAsItIs>(tensor) : nullptr;
  }

  /// Call it when the function has returned.
  void check_complete() const {
    if (missing_ == 0) return;
    std::size_t first = 0;
    while (!frame_.is_missing(first)) ++first;
    const SavedItem& item = frame_.items[first];
    throw Error(Errc::recompute_failed,
                "checkpoint: computed again, the function saved " + std::to_string(next_) +
                    " tensors for backward, and " + std::to_string(frame_.items.size()) +
                    " the first time; the first that is missing was made by " +
                    maker_text(item.maker) + " (" + shape_text(item.sizes, item.dtype) + "). " +
                    what_to_do);
  }

 private:
  static constexpr const char* what_to_do =
      "The function must do the same both times: let nothing that it reads change between forward "
      "and backward, or pass it as an argument";

  void offer(std::size_t index, const at::Tensor& tensor) {
    const SavedItem& item = frame_.items[index];
    if (item.made_inside && item.dtype != at::ScalarType::Undefined &&
        (tensor.sizes() != c10::IntArrayRef(item.sizes) || tensor.scalar_type() != item.dtype ||
         tensor.device() != item.device))
      throw Error(Errc::recompute_failed,
                  "checkpoint: computed again, tensor " + std::to_string(index) +
                      " that is saved for backward is " +
                      shape_text(tensor.sizes(), tensor.scalar_type()) + ", made by " +
                      maker_text(inside_.maker(tensor)) + "; the first time it was " +
                      shape_text(item.sizes, item.dtype) + ", made by " + maker_text(item.maker) +
                      ". " + what_to_do);
    if (frame_.is_missing(index)) {
      frame_.ready[index] = detached(tensor);
      --missing_;
    }
    if (missing_ == 0 && frame_.options.early_stop) throw EarlyStop{};
  }

  [[noreturn]] void throw_more(const at::Tensor& tensor) const {
    throw Error(
        Errc::recompute_failed,
        "checkpoint: computed again, the function saves more tensors for backward than the " +
            std::to_string(frame_.items.size()) +
            " of the first time; the first of them was made by " +
            maker_text(inside_.maker(tensor)) + " (" +
            shape_text(tensor.sizes(), tensor.scalar_type()) + "). " + what_to_do);
  }

  void on_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
             torch::jit::Stack& stack) override {
    const OpFacts& facts = facts_of(op);
    const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
    const StoragesMadeInside::Arguments given = StoragesMadeInside::storages_of(arguments);
    const bool kept = frame_.options.keep && frame_.options.keep(facts.name);
    if (!kept || !serve(op, facts, stack)) {
      note_writes(facts, arguments);
      run_in(recorder(), op, keys, stack);
    }
    inside_.note_results(facts, given, torch::jit::last(stack, op.schema().returns().size()));
  }

  // Their contents are restored after the run, and so is the version of the tensor. Otherwise
  // autograd would reject tensors that others have saved.
  void note_writes(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (!facts.writes[i]) continue;
      for_each_tensor_of(arguments[i], [&](const at::Tensor& t) {
        if (t.has_storage() && inside_.maker(t) == nullptr) written_.emplace_back(t);
      });
    }
  }

  /// Returns the kept results of the forward instead of running the call; false if there are none.
  bool serve(const c10::OperatorHandle& op, const OpFacts& facts, torch::jit::Stack& stack) {
    const std::size_t index = next_kept_++;
    if (index >= frame_.kept.size()) return false;
    KeptCall& call = frame_.kept[index];
    if (call.op != &facts)
      throw Error(Errc::recompute_failed,
                  "checkpoint: computed again, call " + std::to_string(index) +
                      " of those whose results are kept is " + facts.name +
                      "; the first time it was " + call.op->name + ". " + what_to_do);
    if (call.results.empty()) return false;
    for (const auto& [result, mark] : call.results)
      if (mark.written_since()) return false;
    std::vector<at::Tensor> results;
    for (const auto& [result, mark] : call.results)
      results.push_back(result->get().variable_data());
    torch::jit::drop(stack, op.schema().arguments().size());
    for (at::Tensor& result : results) stack.emplace_back(std::move(result));
    if (call.generator_after) call.generator_after->restore();
    // from here on, backward's own items keep what they need
    if (last_pass_) call.results.clear();
    return true;
  }

  CheckpointFrame& frame_;
  std::size_t next_ = 0, missing_ = 0, next_kept_ = 0;
  bool last_pass_ = false;
  std::vector<VersionSnapshot> written_{};
};

/// A tensor that is no leaf and has no history: the function may write to it in place, as to the
/// original argument.
template <class Node = torch::autograd::Identity>
void make_inner_node(at::Tensor& t) {
  // 2.13 counts references in the node, earlier versions in a std::shared_ptr
  using Pointer = std::remove_cvref_t<decltype(t.grad_fn())>;
  Pointer node;
  if constexpr (std::is_constructible_v<Pointer, std::shared_ptr<Node>>)
    node = std::make_shared<Node>();
  else node = c10::make_intrusive<Node>();
  const std::uint32_t output = node->add_input_metadata(t);
  torch::autograd::impl::set_gradient_edge(t, {std::move(node), output});
}

/// The arguments as in the forward: new tensors, so that the function cannot change the user's
/// tensors.
inline std::vector<at::Tensor> arguments_again(CheckpointFrame& frame) {
  std::vector<at::Tensor> copies(frame.old.size()), tensors;
  for (std::size_t i = 0; i < frame.arguments.size(); ++i) {
    const SavedArgument& a = frame.arguments[i];
    at::Tensor t;
    if (a.old >= 0) {
      at::Tensor& copy = copies[static_cast<std::size_t>(a.old)];
      if (!copy.defined())
        copy = copy_unseen(frame.old[static_cast<std::size_t>(a.old)].bytes->get());
      t = tensor_over(copy.storage(), a.geometry, copy);
    } else {
      t = a.tensor->get().variable_data();
      if (a.mark.written_since())
        throw Error(Errc::recompute_failed,
                    "checkpoint: argument " + std::to_string(i) + " (" +
                        shape_text(t.sizes(), t.scalar_type()) +
                        ") was written in place after the forward (version " +
                        std::to_string(a.mark.count()) + ", was " + std::to_string(a.mark.then()) +
                        "); computing again needs what it was: write to a clone");
    }
    if (a.requires_grad && a.leaf) t.set_requires_grad(true);
    else if (a.requires_grad) make_inner_node(t);
    tensors.push_back(std::move(t));
  }
  return tensors;
}

/// Until the end of its scope, storages that the region writes to have their contents from before
/// the region.
class [[nodiscard]] OldContentsScope {
 public:
  explicit OldContentsScope(CheckpointFrame& frame) {
    const c10::impl::ExcludeDispatchKeyGuard unseen(DispatchHook::above());
    for (OldContents& old : frame.old) {
      if (!old.storage) continue;
      const at::Tensor before = old.bytes->get();
      at::Tensor now = bytes_of(*old.storage, before);
      now_.emplace_back(now, now.clone());
      now.copy_(before);
    }
  }
  ~OldContentsScope() {
    const c10::impl::ExcludeDispatchKeyGuard unseen(DispatchHook::above());
    for (auto& [tensor, contents] : now_) tensor.copy_(contents);
  }
  OldContentsScope(const OldContentsScope&) = delete;
  OldContentsScope& operator=(const OldContentsScope&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> now_{};
};

inline void CheckpointFrame::recompute(int task) {
  if (running_)
    throw Error(Errc::recompute_failed,
                "checkpoint: computing a region again needs a tensor of that same region; do not "
                "keep tensors of the first run in the function");
  ready.clear();
  ready_for_ = task;
  struct Running {
    bool& flag;
    explicit Running(bool& f) : flag(f) { flag = true; }
    ~Running() { flag = false; }
  } const running(running_);
  try {
    const AmbientScope as_then(then);
    std::vector<at::Tensor> tensors = arguments_again(*this);
    const OldContentsScope contents(*this);
    RecomputeRegion region(*this);
    try {
      run(std::move(tensors));
      region.check_complete();
    } catch (const RecomputeRegion::EarlyStop&) {
    }
  } catch (...) {
    ready.clear();
    throw;
  }
  if (task < 0) return;
  torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this(), task] {
    const std::shared_ptr<CheckpointFrame> frame = weak.lock();
    if (!frame) return;
    const std::lock_guard lock(frame->guard_);
    if (frame->ready_for_ == task) frame->ready.clear();
  });
}

}  // namespace reprise::checkpointing
