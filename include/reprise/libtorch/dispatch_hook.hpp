#pragma once
// Sees every op that LibTorch runs below autograd on this thread: forward, backward and optimizer alike.
//
//   struct Printer : DispatchHook {
//     void on_op(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack& stack) override {
//       std::cout << op.schema().name() << '\n';
//       op.redispatchBoxed(below, &stack);
//     }
//   } printer;
//   printer.switch_on();
//
// How: a boxed fallback on a dispatch key that LibTorch leaves free (Fake), registered once per process and switched on for one thread
// at a time. Autograd and autocast lie above that key, so what is seen is what runs; what an op calls inside itself is not seen.

#include <mutex>
#include <optional>
#include <utility>

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <reprise/error.hpp>
#include <reprise/libtorch/counting_allocator.hpp>

namespace reprise {

class DispatchHook {
 public:
  DispatchHook() = default;
  virtual ~DispatchHook() { switch_off(); }
  DispatchHook(const DispatchHook&) = delete;
  DispatchHook& operator=(const DispatchHook&) = delete;

  /// Must run the op, by redispatching it with `below`. The hook itself is off meanwhile.
  virtual void on_op(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack& stack) = 0;

  /// Throws Errc::bad_argument where another hook is on, Errc::capture_failed where another library has taken the key.
  void switch_on() {
    if (current() != nullptr)
      throw Error(Errc::bad_argument,
                  "a step is already being recorded on this thread: a MemoryBudget's step, capture() or TrainStep cannot be used inside another one");
    register_fallback();
    current() = this;
    key_.emplace(key);
  }

  /// On top of the hook that is on, if there is one: that one sees an op when this one hands it to below().
  void switch_on_above() {
    register_fallback();
    below_ = std::exchange(current(), this);
    key_.emplace(key);
  }

  void switch_off() {
    if (current() != this) return;
    key_.reset();
    current() = std::exchange(below_, nullptr);
  }

  [[nodiscard]] bool is_on() const { return current() == this; }
  [[nodiscard]] DispatchHook* below() const { return below_; }

  /// Runs the op as `hook` does; just runs it where there is none.
  static void run_in(DispatchHook* hook, const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
    if (hook != nullptr) hook->on_op(op, keys, stack);
    else op.redispatchBoxed(keys, &stack);
  }

  /// The hook that is on; none where there is none.
  REPRISE_ONE_PER_PROCESS static DispatchHook*& current() {
    thread_local DispatchHook* active = nullptr;
    return active;
  }

  /// What a program that calls ops as they were seen excludes: everything from the key upwards.
  [[nodiscard]] static c10::DispatchKeySet above() {
    return c10::DispatchKeySet(c10::DispatchKeySet::FULL) - c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key);
  }

 private:
  static constexpr c10::DispatchKey key = c10::DispatchKey::Fake;

  static void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard once(key);
    const c10::DispatchKeySet below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key);
    run_in(current(), op, below, *stack);  // none: the key came from a thread that has a hook, autograd hands its settings on
  }

  struct Registration {
    std::mutex guard{};
    bool done = false;
  };
  REPRISE_ONE_PER_PROCESS static Registration& registration() {
    static auto& once = *new Registration;
    return once;
  }

  // Shared objects that each include this header, and threads, share the flag: the first one to get here registers, for good.
  static void register_fallback() {
    const std::lock_guard lock(registration().guard);
    if (registration().done) return;
    auto& dispatcher = c10::Dispatcher::singleton();
    if (dispatcher.hasBackendFallbackForDispatchKey(key))
      throw Error(Errc::capture_failed,
                  "another library has taken the dispatch key that Reprise records on (Fake): fake tensors and Reprise cannot be used in "
                  "one process");
    static auto& handle = *new c10::RegistrationHandleRAII(
        dispatcher.registerFallback(key, c10::KernelFunction::makeFromBoxedFunction<&DispatchHook::fallback>(), "reprise"));
    static_cast<void>(handle);
    registration().done = true;
  }

  std::optional<c10::impl::IncludeDispatchKeyGuard> key_;
  DispatchHook* below_ = nullptr;
};

}  // namespace reprise
