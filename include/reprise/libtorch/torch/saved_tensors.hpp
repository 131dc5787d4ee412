#pragma once
// A SavedTensorHooks keeps the tensors that autograd saves for backward on this thread.
//
// ```cpp
// struct Counter : SavedTensorHooks {
//   int count = 0;
//   std::shared_ptr<SavedTensor> keep(const at::Tensor& t) override {
//     ++count;
//     return std::make_shared<SavedAsItIs>(t);
//   }
// } counter;
// torch::Tensor y;
// {
//   const KeepSavedTensors here(counter);
//   y = x.exp();          // autograd asks counter to keep y
// }
// y.sum().backward();     // and gets it back from what keep() returned
// ```
//
// Every SavedVariable asks the autograd engine for hooks. LibTorch lets a program set the engine,
// as Python does. Reprise's engine passes everything on to the previous engine. It answers only
// this question itself, if the thread has a keeper.

#include <memory>
#include <mutex>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <reprise/base/one_per_process.hpp>

namespace reprise::tensors {

/// A tensor that was saved for backward. Autograd releases it when backward has used it.
struct SavedTensor {
  virtual ~SavedTensor() = default;
  [[nodiscard]] virtual at::Tensor get() = 0;
};

/// A tensor without autograd's graph (which would keep the graph alive) that shares the version
/// counter of `tensor`.
[[nodiscard]] inline at::Tensor detached(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return at::Tensor(impl->shallow_copy_and_detach(impl->version_counter(),
                                                  /*allow_tensor_metadata_change=*/false));
}

struct SavedAsItIs final : SavedTensor {
  explicit SavedAsItIs(const at::Tensor& t) : tensor(detached(t)) {}
  [[nodiscard]] at::Tensor get() override { return tensor; }
  at::Tensor tensor;
};

struct SavedTensorHooks {
  virtual ~SavedTensorHooks() = default;
  [[nodiscard]] virtual std::shared_ptr<SavedTensor> keep(const at::Tensor& tensor) = 0;

  REPRISE_ONE_PER_PROCESS static SavedTensorHooks*& current() {
    thread_local SavedTensorHooks* keeper = nullptr;
    return keeper;
  }
};

class HooksOfKeeper final : public torch::autograd::SavedVariableHooks {
 public:
  explicit HooksOfKeeper(SavedTensorHooks& keeper) : keeper_(&keeper) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    saved_ = std::exchange(keeper_, nullptr)->keep(tensor);
  }
  at::Tensor call_unpack_hook() override { return saved_->get(); }

 private:
  SavedTensorHooks* keeper_;  // called at once, while it is alive
  std::shared_ptr<SavedTensor> saved_{};
};

/// How LibTorch keeps a node (older versions: std::shared_ptr) and passes on a task (these: by
/// value).
using NodePointer = decltype(torch::autograd::get_current_node());
template <class Member>
struct FirstArgument;
template <class Engine, class First, class... Rest>
struct FirstArgument<void (Engine::*)(First, Rest...)> {
  using type = First;
};
using TaskArgument = FirstArgument<decltype(&torch::autograd::Engine::thread_on_exception)>::type;

/// The previous engine, except for the question who keeps saved tensors.
class AskingEngine final : public torch::autograd::Engine {
 public:
  /// Call it before tensors are kept: another library (Python's) may have set its own engine
  /// meanwhile.
  static void install() {
    static auto& guard = *new std::mutex;
    const std::lock_guard lock(guard);
    torch::autograd::Engine& now = get_default_engine();
    if (&now == &instance()) return;
    instance().engine_ = &now;
    torch::autograd::set_default_engine_stub(
        []() -> torch::autograd::Engine& { return instance(); });
  }

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return engine_->execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task, NodePointer root,
      torch::autograd::InputBuffer&& buffer) override {
    return engine_->execute_with_graph_task(task, std::move(root), std::move(buffer));
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return engine_->make_anomaly_metadata();
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (SavedTensorHooks* keeper = SavedTensorHooks::current())
      return std::make_unique<HooksOfKeeper>(*keeper);
    return engine_->get_default_saved_variable_hooks();
  }
  void thread_on_exception(TaskArgument task, const NodePointer& node, std::exception& e) override {
    engine_->thread_on_exception(task, node, e);
  }
  void thread_init(int device, const std::shared_ptr<torch::autograd::ReadyQueue>& queue,
                   bool should_increment) override {
    engine_->thread_init(device, queue, should_increment);
  }

 private:
  REPRISE_ONE_PER_PROCESS static AskingEngine& instance() {
    static auto& engine = *new AskingEngine;  // engines are asked until the process ends
    return engine;
  }

  torch::autograd::Engine* engine_ = nullptr;
};

/// Until the end of its scope, `keeper` keeps what autograd saves on this thread.
class [[nodiscard]] KeepSavedTensors {
 public:
  explicit KeepSavedTensors(SavedTensorHooks& keeper) {
    AskingEngine::install();
    before_ = std::exchange(SavedTensorHooks::current(), &keeper);
  }
  ~KeepSavedTensors() { SavedTensorHooks::current() = before_; }
  KeepSavedTensors(const KeepSavedTensors&) = delete;
  KeepSavedTensors& operator=(const KeepSavedTensors&) = delete;

 private:
  SavedTensorHooks* before_ = nullptr;
};

}  // namespace reprise::tensors
